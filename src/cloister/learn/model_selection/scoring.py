"""Integer scores of a model on rows: each row adds between 0 and `most` points."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.cells import numbers_in
from cloister.learn.base.containers import read_column
from cloister.learn.base.inputs import codes, read_box
from cloister.learn.base.integer_rows import on_grid
from cloister.learn.model_selection.candidates import model_of
from cloister.privacy.errors import BadBounds, BadInput

__all__ = ["Scoring", "read_scoring"]

Floats = NDArray[np.float64]
_FINE = 2**10  # points of a row whose score is not binary
_WORST = 5.0  # nats: larger losses are clipped to this


@dataclass(frozen=True, slots=True)
class Scoring:
    """Score of a model.

    Attributes:
        name: scikit-learn's name of it.
        most: the points of a perfect row.
        share: the share of a perfect row's points that each row gets, given the model's prediction.
        told: maps the mean share to the usual score, and its slope.
    """

    name: str
    most: int
    share: Callable[[Any, Any, NDArray[Any]], Floats]
    told: Callable[[Floats], Floats]
    slope: float

    def points(self, model: Any, rows: Any, labels: Any) -> int:
        """Return the sum of points over rows. Reads rows: call it inside a step.

        Privacy: a row adds between 0 and `most` points.
        """
        column = read_column(labels)
        # The model predicts even if there are no rows: an error must not reveal if there is one.
        each = np.clip(self.share(model, rows, column), 0.0, 1.0)
        return int(on_grid(each * self.most, self.most).astype(np.int64).sum())

    def counted(self, model: Any, labels: Any) -> int:
        """Return the number of scored rows; those without a listed label or a target are left out, as in `fit`."""
        column = read_column(labels)
        if self.name == "neg_mean_squared_error":
            return int((~np.isnan(numbers_in(column))).sum())
        return int((codes(column, list(model.classes_)) >= 0).sum())


def read_scoring(name: str | None, *models: Any) -> Scoring:
    """Return the score of that name, or the default one of the first model. All models must support it."""
    from sklearn.base import is_classifier, is_regressor

    if name is None:
        kinds = {"accuracy": is_classifier(models[0]), "neg_mean_squared_error": is_regressor(models[0])}
        name = next((kind for kind, fits in kinds.items() if fits), None)
        if name is None:
            raise BadInput("only classifiers and regressors have a score here.")
    if not isinstance(name, str) or name not in ("accuracy", "neg_log_loss", "neg_mean_squared_error"):
        raise BadInput("scoring is 'accuracy', 'neg_log_loss' or 'neg_mean_squared_error'.")
    fits = is_regressor if name == "neg_mean_squared_error" else is_classifier
    if not all(fits(model) for model in models):
        kind = "regressors" if fits is is_regressor else "classifiers"
        raise BadInput(f"{name} is a score of {kind}, and a model here is none.")
    if name == "accuracy":
        return Scoring(name, 1, _right, lambda share: share, 1.0)
    if name == "neg_log_loss":
        if not all(hasattr(model, "predict_proba") for model in models):
            raise BadInput("neg_log_loss needs predict_proba, and a model here has none. Use scoring='accuracy'.")
        return Scoring(name, _FINE, _surprise, lambda share: (share - 1) * _WORST, _WORST)
    width = max(_width(model_of(model)) for model in models)
    return Scoring(name, _FINE, _nearness(width), lambda share: (share - 1) * width**2, width**2)


def _said(model: Any, rows: Any, labels: NDArray[Any]) -> NDArray[Any]:
    """Return the model's predictions, exactly one per label: any other shape would be broadcast."""
    predictions = read_column(model.predict(rows))
    if len(predictions) != len(labels):
        raise BadInput("a model gives one answer for each row.")
    return predictions


def _right(model: Any, rows: Any, labels: NDArray[Any]) -> Floats:
    true, predicted = (codes(column, list(model.classes_)) for column in (labels, _said(model, rows, labels)))
    return np.asarray((true >= 0) & (true == predicted), dtype=np.float64)


def _surprise(model: Any, rows: Any, labels: NDArray[Any]) -> Floats:
    code, every = codes(labels, list(model.classes_)), np.asarray(model.predict_proba(rows))
    if every.shape != (len(code), len(model.classes_)):
        raise BadInput("a model gives one probability for each row and class.")
    likely = every[np.arange(len(code)), code]
    return np.where(code < 0, 0.0, 1 + np.log(np.maximum(likely, math.exp(-_WORST))) / _WORST)


def _nearness(width: float) -> Callable[[Any, Any, NDArray[Any]], Floats]:
    def share(model: Any, rows: Any, labels: NDArray[Any]) -> Floats:
        with np.errstate(all="ignore"):  # a warning would reveal a row
            away = (numbers_in(_said(model, rows, labels)) - numbers_in(labels)) / width
            return np.asarray(1 - np.minimum(away**2, 1.0))

    return share


def _width(model: Any) -> float:
    try:
        ends = read_box(model.target_bounds, 1)
    except (AttributeError, BadBounds):
        raise BadBounds("this score needs the model's public target_bounds=(low, high).") from None
    return float(ends.high[0] - ends.low[0])
