"""Base class of all estimators: the charge, the receipt and the fitted attributes.

Every estimator follows scikit-learn's interface: the constructor stores parameters, `fit` learns, `clone` and pipelines
work. Beside the model's own parameters it has

    spend         the privacy budget of a fit: epsilon(1, delta="1e-6"), rho("0.02"), or a pure epsilon(1)
    bounds        public (low, high) of the features; classes: the public list of labels
    ledger        a Ledger or a folder; each fit opens a new account in it with exactly this spend
    account       an existing account to charge instead, such as a dataset's
    random_state  a seed, for teaching and tests; the fit is then marked `not private`

and after `fit`: `release_` (loss, receipt, whether it is private), `loss_`, and `n_features_in_`.
"""

import inspect
import os
import secrets
import sys
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator, clone

from cloister.data.private_data import PrivateData
from cloister.learn.base.inputs import check_asked, check_parameters, is_dataset
from cloister.learn.base.payer import DryRun, Payer, part_of
from cloister.privacy.errors import BadInput, NotPrivate
from cloister.privacy.filter import BudgetShare, PrivacyFilter, budget_share, release_steps
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import ROW, Loss, Unit
from cloister.privacy.noise import SYSTEM, SeededSource, Source
from cloister.privacy.release import Release

if TYPE_CHECKING:
    from cloister.learn.base.row_source import InputRows

__all__ = ["PrivateEstimator", "Quiet", "quiet"]

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


_ASKED = (
    "decision_function", "inverse_transform", "predict", "predict_log_proba", "predict_proba", "score", "transform",
)  # fmt: skip


def quiet(method: Method) -> Method:
    """Wrap a function to run without floating-point warnings: an overflow would reveal that a row has a huge number."""

    @wraps(method)
    def silent(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return method(*args, **kwargs)

    silent._is_quiet = True  # type: ignore[attr-defined]
    return cast(Method, silent)


class Quiet:
    """Mixin whose methods on rows run without floating-point warnings, inherited ones included.

    Even if the caller turned them into errors: `np.seterr(all="raise")`, `warnings.simplefilter("error")`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _ASKED:
            method = getattr(cls, name, None)
            if inspect.isfunction(method) and not hasattr(method, "_is_quiet"):
                setattr(cls, name, quiet(method))


class PrivateEstimator(Quiet, BaseEstimator):  # type: ignore[misc]
    """Base class of private estimators: charges once, trains in steps within the charge, and keeps the receipt.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset it is fitted on). Bounds, classes,
        the number of features and all parameters are public; the number of rows is not.
    """

    spend: Loss | None
    ledger: Ledger | str | os.PathLike[str] | Payer | None
    account: Account | Payer | None
    random_state: Any
    _meter: PrivacyFilter | DryRun | None = None  # pays instead of an account, while `fit_within` runs

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("__init__", "fit"):
            if name in vars(cls):
                setattr(cls, name, _explained(vars(cls)[name]))

    if not TYPE_CHECKING:  # a type checker should still know which attributes there are

        def __getattr__(self, name: str) -> Any:
            if name in _ABSENT:
                raise AttributeError(f"{type(self).__name__} has no {name}: {_ABSENT[name]}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _train(
        self,
        steps: Callable[[PrivacyFilter, BudgetShare], T],
        data: PrivateData | None = None,
        asked: str = "",
        planned: Loss | None = None,
    ) -> T:
        """Charge the spend, run the steps, and keep the receipt.

        Args:
            steps: reads rows only inside `meter.release`; returns post-processing of released values.
            data: the Cloister dataset that holds the rows, if any.
            asked: description of the columns that are read, for the ledger.
            planned: the loss of one planned release (accountant/planned.py), an (epsilon, delta) or a rho, which is
                charged as it is; the spend as a pure epsilon or a rho unless given.
        """
        _refuse_free_scores()
        budget = budget_share(self.spend) if planned is None else BudgetShare(planned)
        if self._meter is not None:
            return self._train_within(self._meter, steps, budget, data)
        source = self._source()
        accounts, unit, version, label = self._payers(budget.loss if planned is None else planned.as_rho(), data)
        model, receipt = release_steps(
            lambda meter: steps(meter, budget),
            accounts=accounts,
            spend=budget.loss,
            request=f"{label}{self._request()}{asked and f' on {asked}'}",
            unit=unit,
            data_version=version,
            source=source,
        )
        self.loss_ = budget.loss
        self.release_ = Release(
            value=model,
            loss=budget.loss,
            unit=unit,
            mechanism=receipt.body["mechanism"],
            parameters={},
            private=source.private,
            receipt=receipt,
        )
        return model

    def _train_rows(self, steps: Callable[[PrivacyFilter, BudgetShare], T], source: "InputRows") -> T:
        """Train a method that protects one row on the rows of the input (learn/base/row_source.py).

        Privacy: the spend, for one row of an array or frame; for the unit of a dataset: the steps get the budget of one
            of its rows (`BudgetShare.of_a_row`).
        """
        if not source.dataset:
            return self._train(steps)
        most = source.relation.rows_each

        def of_rows(meter: PrivacyFilter, budget: BudgetShare) -> T:
            each = budget.of_a_row(most)
            return steps(part_of(meter, each.loss), each)

        model = self._train(of_rows, source.data, asked=source.asked)
        parameters = {"rows of a unit": str(most), "a row": str(budget_share(self.spend).of_a_row(most).loss)}
        self.release_ = replace(self.release_, parameters=parameters)
        return model

    def _train_within(
        self,
        meter: PrivacyFilter | DryRun,
        steps: Callable[[PrivacyFilter, BudgetShare], T],
        budget: BudgetShare,
        data: PrivateData | None,
    ) -> T:
        """Train as one of several fits under one charge, with one receipt (learn/base/payer.py)."""
        unit = ROW
        if is_dataset(data):
            # The rows of a dataset are charged to its own account, or the dataset is empty.
            free = isinstance(meter, DryRun)
            if not (getattr(data, "empty", False) if free else _same(data.account, meter)):
                raise BadInput("a selection or cross-validation needs rows as arrays or frames.")
            unit = data.tables.schema.unit
        model = steps(part_of(meter, budget.loss), budget)
        self.loss_ = budget.loss
        self.release_ = Release(model, budget.loss, unit, "a part of a larger work", {}, private=meter.source.private)
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, with references in place of the ledger's or account's connection and key."""
        state = dict(super().__getstate__())
        state.pop("_meter", None)
        for name in ("ledger", "account"):
            if isinstance(state.get(name), Ledger | Account):
                state[name] = Payer.of(state[name])
        return state

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy that shares the payer: a copied ledger would be a different one."""
        parameters = {
            name: value if name in ("ledger", "account") else clone(value, safe=False)
            for name, value in self.get_params(deep=False).items()
        }
        copy = type(self)(**parameters)
        for name in ("_metadata_request", "_sklearn_output_config"):  # set by set_output and metadata routing
            if hasattr(self, name):
                setattr(copy, name, deepcopy(getattr(self, name)))
        if self._meter is not None:  # a ColumnTransformer fits copies of its parts
            copy._meter = self._meter
        return copy

    def _request(self) -> str:
        """Describe the request by its public parameters alone."""
        named = {name: value for name, value in sorted(self.get_params(deep=False).items()) if name not in _NOT_ASKED}
        return f"fit {type(self).__name__} {named!r}"

    def _source(self) -> Source:
        return SYSTEM if self.random_state is None else SeededSource(str(self.random_state))

    def _payers(self, loss: Loss, data: PrivateData | None) -> tuple[list[Account], Unit, str, str]:
        """Return the accounts to charge, the unit, the version of the data, and the label of the work."""
        if data is not None and is_dataset(data):
            if self.account is not None or self.ledger is not None:
                raise BadInput("a dataset's own account pays. Leave account and ledger out.")
            reader = getattr(data, "reader", None)
            accounts = [data.account, *([] if reader is None else [reader.account])]
            label = f"{reader.label}\n" if reader is not None and reader.label else ""
            return accounts, data.tables.schema.unit, data.version, label
        if not isinstance(self.account, Account | Payer | None):
            raise BadInput("account is one of a ledger: account=ledger.open_account('visits', epsilon(2)).")
        if not isinstance(self.ledger, Ledger | Payer | str | os.PathLike | None):
            raise BadInput("ledger is a Ledger, or the folder of one.")
        if self.account is not None:
            return [self.account.account() if isinstance(self.account, Payer) else self.account], ROW, "", ""
        if isinstance(self.ledger, Payer):
            book = self.ledger.ledger()
        else:
            book = self.ledger if isinstance(self.ledger, Ledger) else Ledger.in_folder(self.ledger or ".cloister")
        name = f"{type(self).__name__}-{secrets.token_hex(6)}"
        return [book.open_account(name, loss)], ROW, "", ""


def _explained(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method to explain arguments known from other libraries; a wrapped fit also checks its parameters."""
    own = inspect.signature(method).parameters.keys()

    @wraps(method)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() & _ELSEWHERE.keys() - own:
            raise TypeError(
                f"{type(self).__name__}.{method.__name__}() got an unexpected keyword argument {name!r}: "
                f"{_ELSEWHERE[name]}"
            )
        if method.__name__ == "fit":
            check_parameters(self.get_params(deep=False))
            check_asked(kwargs)
        with np.errstate(all="ignore"):  # as `quiet`
            return method(self, *args, **kwargs)

    return told


def _same(account: Any, meter: Any) -> bool:
    """Return True if the meter holds a charge to this very account."""
    return isinstance(account, Account) and account.rules == meter.account.rules


_NOT_ASKED = {"ledger", "account", "random_state", "spend"}
# Arguments of scikit-learn and diffprivlib that have another name here or do not exist.
_ELSEWHERE = {
    "epsilon": "a loss is a value. Write spend=epsilon(1), spend=epsilon(1, delta='1e-6') or spend=rho('0.02').",
    "accountant": "an account pays. Write account=ledger.open_account('visits', epsilon(2)), or ledger='folder'.",
    "sample_weight": "a row's weight would multiply what it can reveal, so every row counts once.",
    "class_weight": "class sizes are private, and rows have no weights. Move the threshold on predict_proba.",
    "C": "how much a model is shrunk follows from the noise. Leave it out; Ridge has alpha.",
    "alpha": "how much a model is shrunk follows from the noise. Leave it out; Ridge has alpha.",
    "activation": "hidden layers use tanh. For another network give learn.deep.train a loss of your own.",
    "solver": "the algorithm is the private one. Leave it out.",
    "learning_rate": "the step size is constant. Networks have learning_rate_init.",
    **dict.fromkeys(
        ("early_stopping", "n_iter_no_change", "tol", "validation_fraction"),
        "stopping by the rows would reveal them, so the number of steps is fixed. Leave it out, or set max_iter.",
    ),
    "warm_start": "each fit is charged, and begins from nothing. Leave it out.",
    "verbose": "the course of a fit is private. Leave it out; networks show their steps with progress=True.",
    "shuffle": "rows are sampled at random, or all are read. Leave it out.",
    "n_jobs": "a fit runs in one process. Leave it out.",
}
_ABSENT = {
    "loss_curve_": "the training loss of private rows is not released.",
    "partial_fit": "every look at rows is paid for, so a fit sees all of them at once: fit on all rows, or a dataset.",
}


# Wrappers of scikit-learn that would score raw rows


_HELPERS = "sklearn.utils."  # they hold no model, and every other module calls through them
# Modules of scikit-learn that may fit a private estimator, and the functions in which they do (empty for any). All of
# them only pass rows on and keep the models. Others are refused: they may score raw rows, or choose by them.
_ONLY_FIT: dict[str, frozenset[str]] = {
    "sklearn.base": frozenset(),
    "sklearn.calibration": frozenset(),  # with a warning
    "sklearn.compose._column_transformer": frozenset(),
    "sklearn.compose._target": frozenset(),
    "sklearn.ensemble._bagging": frozenset({"BaseBagging.fit", "BaseBagging._fit", "_parallel_build_estimators"}),
    "sklearn.ensemble._base": frozenset({"_fit_single_estimator"}),
    "sklearn.ensemble._voting": frozenset(),
    "sklearn.feature_selection._from_model": frozenset({"SelectFromModel.fit"}),
    "sklearn.feature_selection._rfe": frozenset({"RFE.fit", "RFE._fit"}),  # goes by coefficients; RFECV by scores
    "sklearn.impute._iterative": frozenset(),
    "sklearn.model_selection._classification_threshold": frozenset(
        {"BaseThresholdClassifier.fit", "FixedThresholdClassifier._fit"}
    ),
    "sklearn.multiclass": frozenset(),
    "sklearn.multioutput": frozenset(
        {"_fit_estimator", "_MultiOutputEstimator.fit", "MultiOutputClassifier.fit", "_BaseChain.fit",
         "ClassifierChain.fit", "RegressorChain.fit"}
    ),
    "sklearn.pipeline": frozenset(),
    "sklearn.semi_supervised._self_training": frozenset(),
}  # fmt: skip
# Functions that read raw rows if a parameter of their estimator says so: out-of-bag rows, links of a chain. In another
# process or thread that estimator is an argument, not `self`.
_UNLESS = {
    ("sklearn.ensemble._bagging", "BaseBagging.fit"): "oob_score",
    ("sklearn.ensemble._bagging", "BaseBagging._fit"): "oob_score",
    ("sklearn.ensemble._bagging", "_parallel_build_estimators"): "oob_score",
    ("sklearn.multioutput", "_BaseChain.fit"): "cv",
    ("sklearn.multioutput", "ClassifierChain.fit"): "cv",
    ("sklearn.multioutput", "RegressorChain.fit"): "cv",
}


def _refuse_free_scores() -> None:
    """Refuse a fit whose model scikit-learn would score on raw rows. Nothing is charged yet.

    This inspects the call stack, in worker processes too: every function of scikit-learn on it must be known to fit
    only. Nothing else that scikit-learn tells an estimator distinguishes a wrapper that scores from one that only fits:

        clone, get_params, set_params    both kinds copy the estimator and set its parameters before a fit
        fit's arguments, routing         both pass rows and labels; metadata routing passes only what a user requests
        tags, is_classifier              asked by both, and by users
        predict on the held-out rows     what a user may do with rows of their own; and the charge has happened by then

    Replacing the functions of scikit-learn instead would have to reach worker processes, and would not refuse a
    function that is not known. tests/unit/learn/test_wrappers.py checks the list against all wrappers of scikit-learn,
    in one process and in two.
    """
    frame: Any = sys._getframe(1)
    calibrated = False
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("sklearn.") and not _only_fits(frame, module):
            raise NotPrivate(
                "scikit-learn's validation, searches, stacking and boosting show scores of raw rows that nobody "
                "paid for, and other wrappers of it may. Use cloister.learn.cross_val_score, which adds noise to "
                "them, or cloister.learn.select."
            )
        calibrated = calibrated or module == "sklearn.calibration"
        frame = frame.f_back
    if calibrated:
        warnings.warn(
            "CalibratedClassifierCV fits its curve to raw rows: what it adds to the private model is not private, and "
            "not charged. Naive Bayes models calibrate inside their spend: calibrate=True.",
            stacklevel=4,
        )


def _only_fits(frame: Any, module: str) -> bool:
    """Return True if a function of scikit-learn is known only to fit."""
    name = frame.f_code.co_qualname
    if module.startswith(_HELPERS):
        return True
    if module not in _ONLY_FIT or (_ONLY_FIT[module] and name not in _ONLY_FIT[module]):
        return False
    attribute = _UNLESS.get((module, name))
    if attribute is None:
        return True
    from sklearn.base import BaseEstimator

    values = [
        getattr(estimator, attribute)
        for estimator in frame.f_locals.values()
        if isinstance(estimator, BaseEstimator) and hasattr(estimator, attribute)
    ]
    return bool(values) and not any(value is not None and value is not False for value in values)
