"""What linear classifiers share: how they read rows, and how they answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from cloister.learn.descent import Fitted
from cloister.learn.estimator import PrivateEstimator
from cloister.learn.frame import Floats, Frame, read_frame
from cloister.learn.inputs import codes, read_classes, read_rows
from cloister.privacy.errors import BadInput

__all__ = ["LinearClassifier", "LinearModel", "PrivateRows"]


@dataclass(frozen=True, slots=True)
class LinearModel:
    """A released linear model: nothing in it but what was released.

    Attributes:
        coefficients: one row for two classes, else one for each class.
        intercepts: one for each row.
        steps: how often rows were looked at to find the coefficients.
        clip: the residuals' limit times a row's length, where gradients were clipped; None where nothing was.
        middle, constant: from where lengths are measured, in the frame.
        errors: standard errors of the coefficients and, last, of the intercept; None where theory gives none.
    """

    coefficients: Floats
    intercepts: Floats
    steps: int
    clip: float | None = None
    middle: Floats | None = None
    constant: float = 0.0
    errors: Floats | None = None

    @classmethod
    def of(cls, fitted: Fitted, frame: Frame, errors: Floats | None = None) -> "LinearModel":
        """The public part of a fit."""
        plan = fitted.plan
        return cls(*fitted.model(frame), plan.steps, plan.clip, fitted.survey.middle, plan.constant, errors)


@dataclass(frozen=True, slots=True)
class PrivateRows:
    """Rows as they came, with the public facts that say how to read them. Rows of no listed class are left out."""

    table: Floats
    labels: NDArray[Any]
    classes: NDArray[Any]
    frame: Frame

    def look(self) -> tuple[Floats, NDArray[np.int64]]:
        """The scaled rows and their classes. Called inside a step, after the charge."""
        code = codes(self.labels, list(self.classes))
        listed = code >= 0
        return self.frame.rows(self.table[listed]), code[listed]


class LinearClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier whose answers come from `coef_` and `intercept_`."""

    bounds: Any
    data_norm: float | None
    classes: Sequence[Any] | None
    fill: float | None
    rows: int | None
    coef_: Floats
    intercept_: Floats
    classes_: NDArray[Any]
    n_features_in_: int

    def _rows(self, rows: Any, labels: Any) -> PrivateRows:
        """Check what is public about the input: shapes, types, bounds, classes."""
        table, listed = read_rows(rows, self.fill), read_classes(self.classes)
        if labels is None or np.ndim(labels) != 1 or len(labels) != len(table):
            raise BadInput("y is one column of labels, as long as X.")
        given = np.asarray(labels)
        codes(given[:0], list(listed))
        if self.rows is not None and (isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1):
            raise BadInput("rows is the public number of rows: a whole number of at least 1, or None.")
        frame = read_frame(self.bounds, self.data_norm, table.shape[1])
        return PrivateRows(table, given, listed, frame)

    def _keep(self, model: LinearModel, classes: NDArray[Any]) -> None:
        self.coef_, self.intercept_ = model.coefficients, model.intercepts
        self.classes_, self.n_features_in_ = classes, model.coefficients.shape[1]
        self.n_iter_ = model.steps

    def _read(self, rows: Any) -> Floats:
        """Rows to answer about, clipped as those it learned from."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "coef_")
        table = read_rows(rows, self.fill)
        if table.shape[1] != self.n_features_in_:
            raise BadInput(
                f"X has {table.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        return table

    def decision_function(self, rows: Any) -> Floats:
        """How far each row lies on the side of `classes_[1]`; with more than two classes, one score for each."""
        table = self._read(rows)
        frame = self._frame()
        if frame is not None:
            table = frame.rows(table) / frame.scale + frame.centre
        scores = table @ self.coef_.T + self.intercept_
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def _frame(self) -> Frame | None:
        """The public frame that rows are clipped to."""
        return read_frame(self.bounds, self.data_norm, self.n_features_in_)

    def predict(self, rows: Any) -> NDArray[Any]:
        """The class of each row."""
        scores = self.decision_function(rows)
        place = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[place])
