"""Models as candidates: which of their parts learn from rows, and what each may spend."""

from collections.abc import Mapping, Sequence
from typing import Any

from cloister.learn.containers import as_array
from cloister.learn.estimator import PrivateEstimator
from cloister.learn.purse import Purse, purse
from cloister.learn.shared import Rehearsal, paying
from cloister.privacy.errors import BadCandidates, BadInput, NotPrivate
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.release import Release

__all__ = ["Work", "model_of", "paying_parts", "priced", "read_candidates", "rehearse", "take", "total_spend"]


class Work(PrivateEstimator):
    """A work of several fits: it charges once, like one estimator, and has one receipt."""

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
        """Charge the spend, carry the steps out; what they found, and the release with its receipt.

        Privacy: the spend; see `PrivateEstimator._train`.
        """
        return self._train(steps), self.release_


def paying_parts(model: Any) -> list[PrivateEstimator]:
    """The parts of a model or pipeline that pay; a part that learns from rows without paying is refused."""
    found = _parts(model)
    if not found:
        raise BadCandidates("there is no private estimator in it. Use one of cloister.learn.")
    return [part for part in found if part.spend is not None or part is found[-1]]


def _parts(model: Any) -> list[PrivateEstimator]:
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import FeatureUnion, Pipeline
    from sklearn.utils import get_tags

    if model is None or isinstance(model, str):  # "passthrough", "drop"
        return []
    if isinstance(model, PrivateEstimator):
        return [model]
    inner: dict[type, str] = {Pipeline: "steps", FeatureUnion: "transformer_list", ColumnTransformer: "transformers"}
    for kind, name in inner.items():
        if isinstance(model, kind):
            return [part for step in getattr(model, name) for part in _parts(step[1])]
    if not hasattr(model, "fit"):
        raise BadInput(f"a {type(model).__name__} is no estimator.")
    # Ours that are no PrivateEstimator are made of public facts; stateless ones of others learn nothing.
    if type(model).__module__.startswith("cloister.learn.") or not get_tags(model).requires_fit:
        return []
    raise NotPrivate(
        f"{type(model).__name__} learns from rows without paying. Use its twin in cloister.learn, or a transformer "
        "without memory such as FunctionTransformer."
    )


def total_spend(model: Any) -> Purse:
    """What one fit of a model costs: the spends of its parts, which must be of one measure."""
    purses = [purse(part.spend).loss for part in paying_parts(model)]
    return Purse(sum(purses[1:], start=purses[0]))


def priced(model: Any, share: Loss) -> Any:
    """A fresh copy whose parts together spend exactly this."""
    from sklearn.base import clone

    copy = clone(model)
    parts = paying_parts(copy)
    for part in parts:
        part.spend = share.split(len(parts))
    return copy


def model_of(model: Any) -> Any:
    """The last step of a pipeline; or the estimator itself."""
    from sklearn.pipeline import Pipeline

    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def read_candidates(models: Any, grid: Mapping[str, Sequence[Any]] | None) -> tuple[list[Any], list[dict[str, Any]]]:
    """The candidates, and how each differs from the model it was made of."""
    from sklearn.base import clone
    from sklearn.model_selection import ParameterGrid

    listed = list(models) if isinstance(models, list | tuple) else [models]
    changes: list[dict[str, Any]] = [{}] if grid is None else list(ParameterGrid(grid))
    pairs = [(clone(model).set_params(**change), change) for model in listed for change in changes]
    if len(pairs) < 2:
        raise BadCandidates("a choice needs at least two candidates: several models, or a grid of parameters.")
    for candidate, _ in pairs:
        paying_parts(candidate)
    return [one for one, _ in pairs], [change for _, change in pairs]


def rehearse(model: Any, X: Any, y: Any, share: Loss) -> None:  # noqa: N803
    """Fit on no rows at all, so that a parameter that is wrong is told before anything is charged."""
    if isinstance(model, PrivateEstimator):  # transformers of others may refuse an empty table
        with paying(Rehearsal()):
            priced(model, share).fit(take(X, []), take(y, []))


def take(rows: Any, places: Any) -> Any:
    """Some rows of an array, list or frame."""
    import numpy as np
    from sklearn.utils import _safe_indexing

    chosen = np.asarray(places, dtype=np.int64)
    return _safe_indexing(as_array(rows) if isinstance(rows, list | tuple) else rows, chosen)
