"""How well a model does on rows, in whole numbers: each row adds between 0 and `most` points."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.cells import numbers_in
from cloister.learn.base.containers import read_column
from cloister.learn.base.inputs import codes
from cloister.learn.base.integer_rows import on_grid
from cloister.learn.model_selection.candidates import model_of
from cloister.privacy.errors import BadBounds, BadInput

__all__ = ["Scoring", "read_scoring"]

Floats = NDArray[np.float64]
_FINE = 2**10  # points of a row whose score is no yes or no
_WORST = 5.0  # nats: a worse surprise counts as this


@dataclass(frozen=True, slots=True)
class Scoring:
    """A score.

    Attributes:
        name: as scikit-learn calls it.
        most: the points of a perfect row.
        share: of a perfect row's points that each row gets, given the model's answer.
        told: from the mean share to the score as people know it, and how steep that is.
    """

    name: str
    most: int
    share: Callable[[Any, Any, NDArray[Any]], Floats]
    told: Callable[[Floats], Floats]
    slope: float

    def points(self, model: Any, rows: Any, labels: Any) -> int:
        """The sum over rows. Reads rows: call it inside a step.

        Privacy: a row adds at most `most`, and never takes any away.
        """
        given = read_column(labels)
        if not len(given):
            return 0
        each = np.clip(self.share(model, rows, given), 0.0, 1.0)
        return int(on_grid(each * self.most, self.most).astype(np.int64).sum())

    def counted(self, model: Any, labels: Any) -> int:
        """How many rows the score is of: those of no listed label, or without a target, are left out as in `fit`."""
        given = read_column(labels)
        if self.name == "neg_mean_squared_error":
            return int((~np.isnan(numbers_in(given))).sum())
        return int((codes(given, list(model.classes_)) >= 0).sum())


def read_scoring(name: str | None, model: Any) -> Scoring:
    """The score of that name, or the usual one of the model."""
    from sklearn.base import is_classifier, is_regressor

    if name is None:
        kinds = {"accuracy": is_classifier(model), "neg_mean_squared_error": is_regressor(model)}
        name = next((kind for kind, fits in kinds.items() if fits), None)
        if name is None:
            raise BadInput("only classifiers and regressors have a score here.")
    if name == "accuracy":
        return Scoring(name, 1, _right, lambda share: share, 1.0)
    if name == "neg_log_loss":
        return Scoring(name, _FINE, _surprise, lambda share: (share - 1) * _WORST, _WORST)
    if name == "neg_mean_squared_error":
        width = _width(model_of(model))
        return Scoring(name, _FINE, _nearness(width), lambda share: (share - 1) * width**2, width**2)
    raise BadInput("scoring is 'accuracy', 'neg_log_loss' or 'neg_mean_squared_error'.")


def _right(model: Any, rows: Any, labels: NDArray[Any]) -> Floats:
    true, said = (codes(one, list(model.classes_)) for one in (labels, model.predict(rows)))
    return np.asarray((true >= 0) & (true == said), dtype=np.float64)


def _surprise(model: Any, rows: Any, labels: NDArray[Any]) -> Floats:
    place = codes(labels, list(model.classes_))
    likely = np.asarray(model.predict_proba(rows))[np.arange(len(place)), place]
    return np.where(place < 0, 0.0, 1 + np.log(np.maximum(likely, math.exp(-_WORST))) / _WORST)


def _nearness(width: float) -> Callable[[Any, Any, NDArray[Any]], Floats]:
    def share(model: Any, rows: Any, labels: NDArray[Any]) -> Floats:
        with np.errstate(all="ignore"):  # a warning would tell of one row
            away = (np.asarray(model.predict(rows), dtype=np.float64) - numbers_in(labels)) / width
            return np.asarray(1 - np.minimum(away**2, 1.0))

    return share


def _width(model: Any) -> float:
    try:
        low, high = (float(end) for end in model.target_bounds)
    except (AttributeError, TypeError, ValueError):
        raise BadBounds("this score needs the model's public target_bounds=(low, high).") from None
    return high - low
