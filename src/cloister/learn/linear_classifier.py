"""What linear classifiers share: how they read rows, and how they answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from cloister.learn.descent import Fitted
from cloister.learn.estimator import PrivateEstimator
from cloister.learn.fetched import Fetched, fetch
from cloister.learn.found import find_box, wants_bounds
from cloister.learn.frame import Floats, Frame, read_frame
from cloister.learn.inputs import codes, read_classes, read_rows
from cloister.learn.labels import read_labels
from cloister.learn.purse import Purse
from cloister.learn.rowwise import weighted
from cloister.privacy.errors import BadInput
from cloister.privacy.meter import Meter

__all__ = ["FetchedRows", "LinearClassifier", "LinearModel", "PrivateRows"]

_FINDING = Fraction(1, 10)


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
        accuracy: what `forecast.py` expects; None where theory gives none.
    """

    coefficients: Floats
    intercepts: Floats
    steps: int
    clip: float | None = None
    middle: Floats | None = None
    constant: float = 0.0
    errors: Floats | None = None
    accuracy: float | None = None

    @classmethod
    def of(
        cls, fitted: Fitted, frame: Frame, errors: Floats | None = None, accuracy: float | None = None
    ) -> "LinearModel":
        """The public part of a fit."""
        plan = fitted.plan
        return cls(*fitted.model(frame), plan.steps, plan.clip, fitted.survey.middle, plan.constant, errors, accuracy)


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

    def raw(self) -> Floats:
        """The rows as they came."""
        return self.table


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """The same of a dataset whose rows are read when a step looks."""

    source: Fetched
    classes: NDArray[Any]
    frame: Frame

    def look(self) -> tuple[Floats, NDArray[np.int64]]:
        """The scaled rows and their classes. Called inside a step, after the charge."""
        code = self.source.labels()
        listed = code >= 0
        return self.frame.rows(self.raw()[listed]), code[listed]

    def raw(self) -> Floats:
        """The rows as the engine gives them."""
        return self.source.numbers()


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
    _seen: Frame | None

    def _rows(self, rows: Any, labels: Any) -> PrivateRows:
        """Check what is public about the input: shapes, types, bounds, classes."""
        table, listed = read_rows(rows, self.fill), read_classes(self.classes)
        given = read_labels(labels, listed, len(table))
        self._check_rows()
        return PrivateRows(table, given, listed, self._framed(self.bounds, table.shape[1]))

    def _table_rows(
        self, data: Any, target: str | None, features: Sequence[str] | None, table: str | None
    ) -> FetchedRows:
        """The same of a dataset, whose schema has bounds and classes."""
        self._check_rows()
        find = wants_bounds(self.bounds)
        source = fetch(data, target, features, table, classes=self.classes, fill=self.fill, find=find)
        assert source.classes is not None
        bounds = self.bounds if find or self.data_norm is not None else (source.box.low, source.box.high)
        return FetchedRows(source, source.classes, self._framed(bounds, len(source.names)))

    def _framed(self, bounds: Any, features: int) -> Frame:
        """The public frame; where bounds are to be found, one that only says how many features there are."""
        return read_frame((-1, 1) if wants_bounds(bounds) else bounds, self.data_norm, features)

    def _check_rows(self) -> None:
        if self.rows is not None and (isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1):
            raise BadInput("rows is the public number of rows: a whole number of at least 1, or None.")

    def _fit(
        self,
        data: PrivateRows | FetchedRows,
        learn: Callable[[Meter, Purse, PrivateRows | FetchedRows], LinearModel],
    ) -> LinearModel:
        """Find bounds if they are not public, then learn; keep what was learned."""

        def steps(meter: Meter, budget: Purse) -> tuple[LinearModel, Frame]:
            seen = data
            if wants_bounds(self.bounds):
                box = find_box(meter, data.raw, data.frame.features, budget.part(_FINDING))
                seen = replace(data, frame=read_frame((box.low, box.high), self.data_norm, data.frame.features))
                budget = Purse(budget.part(1 - _FINDING))
            return learn(meter, budget, seen), seen.frame

        if isinstance(data, FetchedRows):
            model, frame = self._train_rows(steps, data.source)
            self.feature_names_in_ = np.array(data.source.names, dtype=object)
        else:
            model, frame = self._train(steps)
            if hasattr(self, "feature_names_in_"):  # of an earlier fit, on a dataset
                del self.feature_names_in_
        self.release_ = replace(self.release_, value=model)
        self._keep(model, data.classes, frame)
        return model

    def _keep(self, model: LinearModel, classes: NDArray[Any], frame: Frame | None) -> None:
        self.coef_, self.intercept_ = model.coefficients, model.intercepts
        self.classes_, self.n_features_in_ = classes, model.coefficients.shape[1]
        self.n_iter_, self._seen = model.steps, frame

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
        if self._seen is not None:
            table = self._seen.rows(table) / self._seen.scale + self._seen.centre
        scores = weighted(table, self.coef_.T) + self.intercept_
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def predict(self, rows: Any) -> NDArray[Any]:
        """The class of each row."""
        scores = self.decision_function(rows)
        place = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[place])
