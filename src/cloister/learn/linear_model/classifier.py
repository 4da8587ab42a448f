"""Base class of linear classifiers, their private rows and their released model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.frame import Floats, Frame, find_box, read_frame
from cloister.learn.base.inputs import (
    Box,
    complete,
    read_answers,
    wants_bounds,
)
from cloister.learn.base.integer_rows import weighted
from cloister.learn.base.row_source import InputRows, keep_input, read_input
from cloister.learn.linear_model.gradient_descent import Fitted
from cloister.privacy.filter import BudgetShare, PrivacyFilter

__all__ = ["LinearClassifier", "LinearModel", "PrivateRows"]

_FINDING = Fraction(1, 10)


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Released linear model; holds released values only.

    Attributes:
        coefficients: one row for two classes, otherwise one for each class.
        intercepts: one for each row of coefficients.
        steps: number of passes over the rows.
        clip: the residuals' limit times a row's norm, where gradients were clipped; None otherwise.
        middle, constant, stretch: the origin of norms, in the frame, and the features' factors.
        errors: standard errors of the coefficients and, last, of the intercept; None where theory gives none.
        accuracy: the expected accuracy (`logistic.py`); None where there is no estimate.
        accuracy_interval: its 95 % interval; None where there is none.
    """

    coefficients: Floats
    intercepts: Floats
    steps: int
    clip: float | None = None
    middle: Floats | None = None
    constant: float = 0.0
    errors: Floats | None = None
    accuracy: float | None = None
    stretch: Floats | None = None
    accuracy_interval: tuple[float, float] | None = None

    @classmethod
    def of(cls, fitted: Fitted, frame: Frame, errors: Floats | None = None) -> "LinearModel":
        """Return the public part of a fit."""
        plan, probe = fitted.plan, fitted.survey
        weights, intercepts = fitted.model(frame)
        model = cls(weights, intercepts, plan.steps, plan.clip, probe.middle, plan.constant, errors)
        return replace(model, stretch=probe.stretch)

    def places(self, scaled: Floats, frame: Frame) -> NDArray[np.int64]:
        """Return the index of the predicted class of each scaled row."""
        scores = weighted(scaled / frame.scale + frame.centre, self.coefficients.T) + self.intercepts
        return np.asarray((scores[:, 0] > 0) if scores.shape[1] == 1 else scores.argmax(axis=1)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class PrivateRows:
    """Rows of the input with their public frame.

    Rows with an unlisted class or a missing number are left out.
    """

    source: InputRows
    frame: Frame

    @property
    def classes(self) -> NDArray[Any]:
        """Return the public labels."""
        assert self.source.classes is not None
        return self.source.classes

    def look(self) -> tuple[Floats, NDArray[np.int64]]:
        """Return the scaled rows and their classes. Call it inside a step, after the charge."""
        numbers, labels = complete(self.source.numbers(), self.source.labels())
        listed = labels >= 0
        rows = self.frame.rows
        return (rows(numbers), labels) if listed.all() else (rows(numbers[listed]), labels[listed])


class LinearClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Classifier that predicts from `coef_` and `intercept_`."""

    bounds: Any
    data_norm: float | None
    classes: Sequence[Any] | None
    fill: float | None
    rows: int | None
    coef_: Floats
    intercept_: Floats
    classes_: NDArray[Any]
    n_features_in_: int
    _seen: Frame | None

    def _rows(self, rows: Any, labels: Any, **columns: Any) -> PrivateRows:
        """Check the public facts of the input: shapes, types, bounds, classes.

        If bounds are to be found, the frame is a placeholder with the number of features.
        """
        find = wants_bounds(self.bounds)
        source = read_input(rows, labels, kind="classes", classes=self.classes, fill=self.fill, find=find, **columns)
        bounds = (-1, 1) if find else source.bounds(self.bounds, self.data_norm)
        return PrivateRows(source, read_frame(bounds, self.data_norm, source.width))

    def _fit(
        self, data: PrivateRows, learn: Callable[[PrivacyFilter, BudgetShare, PrivateRows], LinearModel]
    ) -> LinearModel:
        """Find bounds if they are not public, then fit and store the model."""

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> tuple[LinearModel, Frame]:
            framed = data
            if wants_bounds(self.bounds):
                box = find_box(meter, data.source.numbers, data.frame.features, budget.part(_FINDING))
                framed = replace(data, frame=read_frame((box.low, box.high), self.data_norm, data.frame.features))
                budget = BudgetShare(budget.part(1 - _FINDING))
            return learn(meter, budget, framed), framed.frame

        model, frame = self._train_rows(steps, data.source)
        self.release_ = replace(self.release_, value=model)
        self._keep(model, data.classes, frame)
        keep_input(self, data.source)
        return model

    def _keep(self, model: LinearModel, classes: NDArray[Any], frame: Frame | None, box: Box | None = None) -> None:
        self.coef_, self.intercept_ = model.coefficients, model.intercepts
        self.classes_, self.n_iter_, self._seen = classes, model.steps, frame
        self._box = box if frame is None else frame.ends

    def _read(self, rows: Any) -> Floats:
        """Read rows to predict."""
        table = read_answers(self, rows, self.fill).numbers()
        return table if self._box is None else self._box.settle(table)

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Return the score of each row for `classes_[1]`; with more than two classes, one score for each."""
        table = self._read(X)
        if self._seen is not None:
            table = self._seen.rows(table) / self._seen.scale + self._seen.centre
        scores = weighted(table, self.coef_.T) + self.intercept_
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Predict the class of each row."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])
