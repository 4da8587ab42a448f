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

import os
import secrets
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, clone

from cloister.learn.base.inputs import check_asked, check_parameters, is_dataset
from cloister.learn.base.nested_budget import DryRun, part_of, refuse_free_scores
from cloister.learn.base.quiet import Quiet
from cloister.privacy.budget_split import BudgetShare, budget_share
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import PrivacyFilter, release_steps
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.noise import SYSTEM, SeededSource, Source
from cloister.privacy.release import Release
from cloister.privacy.unit import ROW, Unit

if TYPE_CHECKING:
    from cloister.learn.base.row_source import FetchedTable

__all__ = ["Payer", "PrivateEstimator"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Payer:
    """Reference from a pickled estimator to its ledger or account. It holds neither a key nor a connection.

    Attributes:
        folder: the ledger's folder; None if it was not opened with `Ledger.in_folder`.
        owner: the ledger's public key, so that no other ledger in that folder is charged.
        name, analyst: those of the account; None for a ledger.
    """

    folder: str | None
    owner: str
    name: str | None = None
    analyst: str | None = None

    @classmethod
    def of(cls, payer: Ledger | Account) -> "Payer":
        """Describe a ledger or account."""
        book: Any = payer.book if isinstance(payer, Account) else payer
        folder = getattr(book, "folder", None)
        account = (payer.rules.name, payer.rules.analyst) if isinstance(payer, Account) else (None, None)
        return cls(None if folder is None else str(folder), str(book.key.public), *account)

    def ledger(self) -> Ledger:
        """Reopen the ledger."""
        if self.folder is None or not (Path(self.folder) / "ledger.db").exists():
            raise BadInput(
                "this model was unpickled, and the ledger that paid for it is not here. Set its ledger or account "
                "before it is fitted again."
            )
        book = Ledger.in_folder(self.folder)
        if str(book.key.public) != self.owner:
            book.close()
            raise BadInput("the folder of this model's ledger holds another ledger now. Set its ledger or account.")
        return book

    def account(self) -> Account:
        """Reopen the account."""
        assert self.name is not None
        return self.ledger().account(self.name, self.analyst)


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

    def _train(self, steps: Callable[[PrivacyFilter, BudgetShare], T], data: Any = None, asked: str = "") -> T:
        """Charge the spend, run the steps, and keep the receipt.

        Args:
            steps: reads rows only inside `meter.release`; returns post-processing of released values.
            data: the Cloister dataset that holds the rows, if any.
            asked: description of the columns that are read, for the ledger.
        """
        refuse_free_scores()
        budget = budget_share(self.spend)
        if self._meter is not None:
            return self._train_within(self._meter, steps, budget, data)
        source = self._source()
        accounts, unit, version, label = self._payers(budget.loss, data)
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

    def _train_rows(self, steps: Callable[[PrivacyFilter, BudgetShare], T], source: "FetchedTable") -> T:
        """Train a method that protects one row on the rows of a dataset (learn/base/row_source.py).

        Privacy: the spend, for the dataset's unit: the steps get the budget of one of its rows (`Purse.of_a_row`).
        """
        most = source.relation.rows_each

        def of_rows(meter: PrivacyFilter, budget: BudgetShare) -> T:
            each = budget.of_a_row(most)
            return steps(part_of(meter, each.loss), each)

        model = self._train(of_rows, source.data, asked=source.asked)
        told = {"rows of a unit": str(most), "a row": str(budget_share(self.spend).of_a_row(most).loss)}
        self.release_ = replace(self.release_, parameters=told)
        return model

    def _train_within(
        self,
        meter: PrivacyFilter | DryRun,
        steps: Callable[[PrivacyFilter, BudgetShare], T],
        budget: BudgetShare,
        data: Any,
    ) -> T:
        """Train as one of several fits under one charge, with one receipt (learn/base/nested_budget.py)."""
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
        kept = dict(super().__getstate__())
        kept.pop("_meter", None)
        for name in ("ledger", "account"):
            if isinstance(kept.get(name), Ledger | Account):
                kept[name] = Payer.of(kept[name])
        return kept

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy that shares the payer: a copied ledger would be a different one."""
        told = {
            name: value if name in ("ledger", "account") else clone(value, safe=False)
            for name, value in self.get_params(deep=False).items()
        }
        copy = type(self)(**told)
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

    def _payers(self, loss: Loss, data: Any) -> tuple[list[Account], Unit, str, str]:
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

    @wraps(method)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() & _ELSEWHERE.keys():
            raise TypeError(
                f"{type(self).__name__}.{method.__name__}() got an unexpected keyword argument {name!r}: "
                f"{_ELSEWHERE[name]}"
            )
        if method.__name__ == "fit":
            check_parameters(self.get_params(deep=False))
            check_asked(kwargs)
        with np.errstate(all="ignore"):  # learn/base/quiet.py
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
}
_ABSENT = {
    "partial_fit": "every look at rows is paid for, so a fit sees all of them at once: fit on all rows, or a dataset.",
}
