"""Base class of linear classifiers, their private rows and their released model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from cloister.learn.base.bounds_search import find_box
from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.frame import Floats, Frame, read_frame
from cloister.learn.base.inputs import (
    Box,
    InputTable,
    codes,
    complete,
    keep_features,
    read_answers,
    read_classes,
    read_labels,
    read_table,
    wants_bounds,
)
from cloister.learn.base.integer_rows import weighted
from cloister.learn.base.row_source import FetchedTable, fetch
from cloister.learn.linear_model.gradient_descent import Fitted
from cloister.privacy.budget_split import BudgetShare
from cloister.privacy.filter import PrivacyFilter

__all__ = ["FetchedRows", "LinearClassifier", "LinearModel", "PrivateRows"]

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
        plan, found = fitted.plan, fitted.survey
        weights, intercepts = fitted.model(frame)
        told = cls(weights, intercepts, plan.steps, plan.clip, found.middle, plan.constant, errors)
        return replace(told, stretch=found.stretch)

    def places(self, scaled: Floats, frame: Frame) -> NDArray[np.int64]:
        """Return the index of the predicted class of each scaled row."""
        scores = weighted(scaled / frame.scale + frame.centre, self.coefficients.T) + self.intercepts
        return np.asarray((scores[:, 0] > 0) if scores.shape[1] == 1 else scores.argmax(axis=1)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class PrivateRows:
    """Raw rows with the public facts needed to read them.

    Rows with an unlisted class or a missing number are left out.
    """

    table: InputTable
    labels: NDArray[Any]
    classes: NDArray[Any]
    frame: Frame

    def look(self) -> tuple[Floats, NDArray[np.int64]]:
        """Return the scaled rows and their classes. Call it inside a step, after the charge."""
        return _listed(self.frame, self.raw(), codes(self.labels, list(self.classes)))

    def raw(self) -> Floats:
        """Return the raw rows."""
        return self.table.numbers()


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """Rows of a dataset, read inside the first step."""

    source: FetchedTable
    classes: NDArray[Any]
    frame: Frame

    def look(self) -> tuple[Floats, NDArray[np.int64]]:
        """Return the scaled rows and their classes. Call it inside a step, after the charge."""
        return _listed(self.frame, self.raw(), self.source.labels())

    def raw(self) -> Floats:
        """Return the raw rows from the engine."""
        return self.source.numbers()


def _listed(frame: Frame, rows: Floats, code: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """Return scaled rows and their classes, without rows of no listed class or with missing numbers."""
    known, kept = complete(rows, code)
    listed = kept >= 0
    return (frame.rows(known), kept) if listed.all() else (frame.rows(known[listed]), kept[listed])


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

    def _rows(self, rows: Any, labels: Any) -> PrivateRows:
        """Check the public facts of the input: shapes, types, bounds, classes."""
        table, listed = read_table(rows, self.fill), read_classes(self.classes)
        given = read_labels(labels, listed, table.length)
        return PrivateRows(table, given, listed, self._framed(self.bounds, table.width))

    def _table_rows(
        self, data: Any, target: str | None, features: Sequence[str] | None, table: str | None
    ) -> FetchedRows:
        """Check a dataset, whose schema has bounds and classes."""
        find = wants_bounds(self.bounds)
        source = fetch(data, target, features, table, classes=self.classes, fill=self.fill, find=find)
        assert source.classes is not None
        bounds = self.bounds if find or self.data_norm is not None else (source.box.low, source.box.high)
        return FetchedRows(source, source.classes, self._framed(bounds, len(source.names)))

    def _framed(self, bounds: Any, features: int) -> Frame:
        """Return the public frame; if bounds are to be found, a placeholder with the number of features."""
        return read_frame((-1, 1) if wants_bounds(bounds) else bounds, self.data_norm, features)

    def _fit(
        self,
        data: PrivateRows | FetchedRows,
        learn: Callable[[PrivacyFilter, BudgetShare, PrivateRows | FetchedRows], LinearModel],
    ) -> LinearModel:
        """Find bounds if they are not public, then fit and store the model."""

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> tuple[LinearModel, Frame]:
            seen = data
            if wants_bounds(self.bounds):
                box = find_box(meter, data.raw, data.frame.features, budget.part(_FINDING))
                seen = replace(data, frame=read_frame((box.low, box.high), self.data_norm, data.frame.features))
                budget = BudgetShare(budget.part(1 - _FINDING))
            return learn(meter, budget, seen), seen.frame

        if isinstance(data, FetchedRows):
            model, frame = self._train_rows(steps, data.source)
        else:
            model, frame = self._train(steps)
        self.release_ = replace(self.release_, value=model)
        self._keep(model, data.classes, frame)
        self._keep_names(data)
        return model

    def _keep(self, model: LinearModel, classes: NDArray[Any], frame: Frame | None, box: Box | None = None) -> None:
        self.coef_, self.intercept_ = model.coefficients, model.intercepts
        self.classes_, self.n_iter_, self._seen = classes, model.steps, frame
        self._box = box if frame is None else frame.ends

    def _keep_names(self, data: PrivateRows | FetchedRows) -> None:
        if isinstance(data, FetchedRows):
            keep_features(self, len(data.source.names), data.source.names, dataset=True)
        else:
            keep_features(self, data.table.width, data.table.names)

    def _read(self, rows: Any) -> Floats:
        """Read rows to predict."""
        table = read_answers(self, rows, self.fill).numbers()
        return table if self._box is None else self._box.settle(table)

    def decision_function(self, rows: Any) -> Floats:
        """Return the score of each row for `classes_[1]`; with more than two classes, one score for each."""
        table = self._read(rows)
        if self._seen is not None:
            table = self._seen.rows(table) / self._seen.scale + self._seen.centre
        scores = weighted(table, self.coef_.T) + self.intercept_
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def predict(self, rows: Any) -> NDArray[Any]:
        """Predict the class of each row."""
        scores = self.decision_function(rows)
        place = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[place])
