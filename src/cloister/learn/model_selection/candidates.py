"""Candidate models: the parts that learn from rows, and their budgets."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister import learn
from cloister.lazy import homes
from cloister.learn.base.containers import as_array, as_table, is_frame, read_column
from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.payer import DryRun, Payer
from cloister.privacy.errors import BadCandidates, BadInput, NotPrivate, TextbookOnly
from cloister.privacy.filter import BudgetShare, PrivacyFilter, budget_share
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.release import Release

__all__ = [
    "Search",
    "fit_within",
    "model_of",
    "paying_parts",
    "payer_of",
    "priced",
    "read_candidates",
    "read_pair",
    "rehearse",
    "settled",
    "take",
    "total_spend",
]


class Search(PrivateEstimator):
    """Several fits under one charge and one receipt, like one estimator."""

    def __init__(
        self,
        spend: Loss | None = None,
        ledger: Ledger | str | None = None,
        account: Account | None = None,
        random_state: Any = None,
        asked: str = "",
    ) -> None:
        self.spend = spend
        self.ledger = ledger
        self.account = account
        self.random_state = random_state
        self.asked = asked

    def _request(self) -> str:
        return self.asked

    def carry_out(self, steps: Any) -> tuple[Any, Release]:
        """Charge the spend and run the steps; return their result, and the release with its receipt.

        Privacy: the spend; see `PrivateEstimator._train`.
        """
        return self._train(steps), self.release_


def settled(model: Any) -> Any:
    """Copy a model or pipeline in which every part is private, or stateless and applied to each row alone.

    Parts are recognised by exact type, in every parameter that can hold one. Unknown parts are refused, subclasses of
    private estimators too: they could learn from rows without a charge, or fail on one row. Parts that scikit-learn
    would run in other processes, which cannot share a filter, run in this one.
    """
    from sklearn.base import clone

    copied = _settle(clone(model))
    paying_parts(copied)
    return copied


def _settle(part: Any) -> Any:
    from sklearn.utils._set_output import _get_output_config

    from cloister.learn.preprocessing.stateless import STATELESS, EachRow, Passthrough

    kind = type(part)
    if _is_own(kind) or kind is Passthrough or (kind is EachRow and type(part.transformer) in STATELESS):
        return part
    if kind in STATELESS:
        return EachRow(part).set_output(transform=_get_output_config("transform", part)["dense"])
    if kind not in _containers():
        if kind.__module__.startswith("cloister.lessons."):
            raise TextbookOnly("a lesson is no part of a selection or cross-validation that is paid for.")
        if isinstance(part, PrivateEstimator):
            raise NotPrivate(
                f"{kind.__name__:.60} is not an estimator of cloister.learn but a class of its own, which may learn "
                "from rows without paying. Use the estimator itself; a function can return it with other defaults."
            )
        if not hasattr(part, "fit"):
            raise BadInput(f"a {kind.__name__:.60} is no estimator.")
        raise NotPrivate(
            f"{kind.__name__:.60} learns from rows without paying, or is not known not to. Use its twin in "
            "cloister.learn, or a transformer without memory such as FunctionTransformer."
        )
    parameters = part.get_params(deep=False)
    if parameters.get("memory") is not None or parameters.get("transformer_weights") is not None:
        raise BadInput(
            f"a {kind.__name__} has neither memory nor transformer_weights here: the one keeps rows in files."
        )
    if getattr(part, "_skl_callbacks", None):
        raise BadInput(f"a {kind.__name__} has no callbacks here: they are given the rows. Leave them out.")
    if "n_jobs" in parameters:
        part.n_jobs = 1
    output = None if kind.__name__ == "Pipeline" else _get_output_config("transform", part)["dense"]
    if output == "polars":
        raise BadInput(
            f"a {kind.__name__} cannot return polars frames here: polars chooses a column's type by its cells, and "
            'fails on a cell of another type. Call set_output(transform="pandas") or "default".'
        )
    attribute = _containers()[kind]
    setattr(
        part,
        attribute,
        [(name, _settle_step(kind, step), *_columns(rest)) for name, step, *rest in getattr(part, attribute)],
    )
    if "remainder" in parameters:
        part.remainder = _settle_step(kind, part.remainder)
    # Parts that return frames and arrays would be joined as an array, whose types pandas infers from its cells.
    return part if output is None else part.set_output(transform=output)


def _settle_step(kind: type, step: Any) -> Any:
    """Settle one step of a pipeline, or part of a union, which may be "passthrough" or "drop"."""
    from cloister.learn.preprocessing.stateless import Passthrough

    if step is None or (isinstance(step, str) and step == "drop"):
        return step
    if isinstance(step, str) and step == "passthrough":
        return step if kind.__name__ == "Pipeline" else Passthrough()
    return _settle(step)


def _columns(rest: list[Any]) -> list[Any]:
    """Check the columns of a transformer; a function is refused, since it could choose them by their cells."""
    if any(map(callable, rest)):
        raise BadInput("name the columns of a ColumnTransformer: a function could choose them by what is in them.")
    return rest


def _containers() -> dict[type, str]:
    """Return the container types and the parameter that holds their parts."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import FeatureUnion, Pipeline

    return {Pipeline: "steps", FeatureUnion: "transformer_list", ColumnTransformer: "transformers"}


def _is_own(kind: type) -> bool:
    """Return True if it is an estimator of cloister.learn itself: it pays, or reads no row in `fit`."""
    return kind.__name__ in homes(learn.__name__) and getattr(learn, kind.__name__) is kind


def paying_parts(model: Any, *, fitted: bool = False) -> list[PrivateEstimator]:
    """Return the private parts of a settled model or pipeline.

    Args:
        model: from `settled`.
        fitted: True for the fitted parts, which a ColumnTransformer keeps beside the others.
    """
    parts = _parts(model, fitted)
    if not parts:
        raise BadCandidates("there is no private estimator in it. Use one of cloister.learn.")
    return [part for part in parts if part.spend is not None or part is parts[-1]]


def _parts(model: Any, fitted: bool) -> list[PrivateEstimator]:
    if isinstance(model, PrivateEstimator):
        return [model]
    attribute = _containers().get(type(model))
    if attribute is None:
        return []
    if fitted and hasattr(model, f"{attribute}_"):
        inner = [step[1] for step in getattr(model, f"{attribute}_")]  # the remainder is last
    else:
        inner = [*(step[1] for step in getattr(model, attribute)), getattr(model, "remainder", None)]
    return [part for step in inner for part in _parts(step, fitted)]


def total_spend(model: Any) -> BudgetShare:
    """Return the cost of one fit of a model: the spends of its parts, which must be of one measure."""
    losses = [budget_share(part.spend).loss for part in paying_parts(model)]
    return BudgetShare(sum(losses[1:], start=losses[0]))


def payer_of(models: Sequence[Any], ledger: Any, account: Any) -> tuple[Any, Any]:
    """Return the ledger and the account to charge: those of the call, or otherwise those that the models name.

    An account that a model names limits what its rows cost, so it cannot be replaced: two accounts, an account of a
    model beside a ledger of the call, and two ledgers are refused.
    """
    parts = [part for model in models for part in paying_parts(model)]
    accounts = [payer for payer in (account, *(part.account for part in parts)) if payer is not None]
    if len({_account_name(payer) for payer in accounts}) > 1 or (accounts and account is None and ledger is not None):
        raise BadInput(
            "models and the call name different payers. One account pays for all of it: give it to the call, or to "
            "the models, or to both."
        )
    if accounts:
        return ledger, accounts[0]
    ledgers = [payer for payer in (ledger, *(part.ledger for part in parts)) if payer is not None]
    if len({_ledger_name(payer) for payer in ledgers}) > 1:
        raise BadInput("models and the call name different ledgers. One pays for all of it.")
    return (ledgers[0] if ledgers else None), None


def _account_name(account: Any) -> Any:
    """Return the identity of an account; anything else is returned unchanged, and refused when it is charged."""
    return Payer.of(account) if isinstance(account, Account) else account if isinstance(account, Payer) else id(account)


def _ledger_name(ledger: Any) -> Any:
    if isinstance(ledger, Ledger):
        ledger = Payer.of(ledger)
    if isinstance(ledger, Payer):
        return ledger.owner if ledger.folder is None else Path(ledger.folder).resolve()
    return Path(ledger).resolve() if isinstance(ledger, str | os.PathLike) else id(ledger)


def priced(model: Any, share: Loss) -> Any:
    """Return an unfitted copy whose parts together spend exactly this."""
    from sklearn.base import clone

    copy = clone(model)
    parts = paying_parts(copy)
    for part in parts:
        part.spend = share.split(len(parts))
    return copy


def model_of(model: Any) -> Any:
    """Return the last step of a pipeline, or the estimator itself."""
    from sklearn.pipeline import Pipeline

    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def read_candidates(models: Any, grid: Mapping[str, Sequence[Any]] | None) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the candidates, and the parameters in which each differs from its base model."""
    from sklearn.base import clone
    from sklearn.model_selection import ParameterGrid

    listed = list(models) if isinstance(models, list | tuple) else [models]
    changes: list[dict[str, Any]] = [{}] if grid is None else list(ParameterGrid(grid))
    pairs = [(settled(clone(model).set_params(**change)), change) for model in listed for change in changes]
    if len(pairs) < 2:
        raise BadCandidates("a choice needs at least two candidates: several models, or a grid of parameters.")
    return [model for model, _ in pairs], [change for _, change in pairs]


def read_pair(X: Any, y: Any) -> tuple[Any, NDArray[Any]]:  # noqa: N803
    """Return rows as an array or frame, and their labels as a one-dimensional array."""
    rows, labels = as_table(X) if is_frame(X) else as_array(X), read_column(y)
    if len(labels) != len(rows):
        raise BadInput("y is one column, as long as X.")
    return rows, labels


def rehearse(model: Any, X: Any, y: Any, score: Callable[[Any, Any, Any], Any]) -> None:  # noqa: N803
    """Fit and score on no rows, so that errors are raised before anything is charged.

    Args:
        model: settled and priced.
        X, y: from `read_pair`; no row of them is used.
        score: scores a fitted model on rows and labels.
    """
    from sklearn.base import clone

    nothing = take(X, []), take(y, [])
    score(fit_within(DryRun(), clone(model), *nothing), *nothing)


def fit_within(meter: PrivacyFilter | DryRun, model: Any, *rows: Any, **columns: Any) -> Any:
    """Fit a model and charge its private parts to a filter, not to accounts of their own.

    Args:
        meter: holds the charge; a `DryRun` for a fit on no rows.
        model: an estimator, or a pipeline from `settled`. Its parts refer to the filter only while they are fitted.
        rows, columns: the arguments of `fit`.

    Privacy: the spends of the parts, each within the filter's budget.
    """
    for part in _parts(model, fitted=False):
        part._meter = meter
    try:
        return model.fit(*rows, **columns)
    finally:
        for part in _every_part(model):
            part.__dict__.pop("_meter", None)


def _every_part(model: Any) -> list[PrivateEstimator]:
    """Return the private parts of a model, given and fitted ones: a ColumnTransformer in another holds three copies."""
    if isinstance(model, PrivateEstimator):
        return [model]
    attribute = _containers().get(type(model))
    if attribute is None:
        return []
    steps = [step[1] for step in (*getattr(model, attribute), *getattr(model, f"{attribute}_", ()))]
    return [part for step in (*steps, getattr(model, "remainder", None)) for part in _every_part(step)]


def take(rows: Any, places: Any) -> Any:
    """Return some rows of an array or frame."""
    from sklearn.utils import _safe_indexing

    chosen = np.asarray(places, dtype=np.int64)
    return _safe_indexing(rows, chosen)
