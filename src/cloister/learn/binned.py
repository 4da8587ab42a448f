"""What estimators on public cells share: how they read rows, and that what they read is private until it is noisy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloister.learn.bins import Axis, Columns, feature_names, read_axes, read_columns
from cloister.learn.estimator import PrivateEstimator
from cloister.learn.exact import Integers
from cloister.learn.fetched import Fetched, fetch
from cloister.learn.inputs import codes, read_classes
from cloister.learn.purse import Purse
from cloister.privacy.errors import BadInput
from cloister.privacy.meter import Meter
from cloister.privacy.noise import Source

__all__ = ["BinnedEstimator", "BinnedRows", "FetchedCells", "public_generator"]

T = TypeVar("T")


@dataclass(slots=True)
class BinnedRows:
    """Private rows; `cells` and `targets` are called inside a step, after the charge.

    Attributes:
        axes: the public cells.
        classes: the public labels; None if the target is a number. Rows of no listed class are left out.
    """

    columns: Columns
    labels: NDArray[Any]
    axes: tuple[Axis, ...]
    classes: NDArray[Any] | None
    _read: tuple[Integers, NDArray[Any]] | None = field(default=None, repr=False)

    def look(self) -> tuple[Integers, NDArray[Any]]:
        """The cell of each row and feature, and the code of its class (or its target as it came)."""
        if self._read is None:
            given, labels = self._given()
            cells = given.cells(self.axes)
            listed = slice(None) if self.classes is None else labels >= 0
            self._read = cells[listed], labels[listed]
        return self._read

    def _given(self) -> tuple[Columns, NDArray[Any]]:
        """The columns, and the code of each row's class (or its target)."""
        if self.classes is None:
            return self.columns, self.labels
        return self.columns, codes(self.labels, list(self.classes))


@dataclass(slots=True)
class FetchedCells(BinnedRows):
    """The same of a dataset whose rows are read when a step looks."""

    source: Fetched | None = None

    @classmethod
    def of(cls, source: Fetched, axes: tuple[Axis, ...]) -> "FetchedCells":
        """Of the columns that a step will read."""
        return cls(Columns((), source.features), np.zeros(0), axes, source.classes, source=source)

    def _given(self) -> tuple[Columns, NDArray[Any]]:
        assert self.source is not None
        return self.source.columns(), self.source.labels()


class BinnedEstimator(PrivateEstimator):
    """An estimator that sees features through public cells."""

    bounds: Any
    bins: Any
    categories: Mapping[Any, Sequence[Any]] | None
    fill: float | None
    n_features_in_: int
    _usual_bins = 16

    def _rows(self, rows: Any, labels: Any, classes: Any, numeric: bool = False) -> BinnedRows:
        """Check what is public about the input: shapes, types, bounds, classes."""
        from sklearn.utils.validation import column_or_1d

        columns = read_columns(rows, self.categories, self.fill)
        axes = read_axes(columns.names, self.bounds, self.bins, self.categories, self._usual_bins)
        listed = None if numeric else read_classes(classes)
        if labels is None:
            raise BadInput(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        given = np.asarray(column_or_1d(labels, warn=True))
        if len(given) != columns.length:
            raise BadInput("y is one column, as long as X.")
        if listed is not None:
            codes(given[:0], list(listed))
        return BinnedRows(columns, given, axes, listed)

    def _table_cells(
        self,
        data: Any,
        target: str | None,
        features: Sequence[str] | None,
        table: str | None,
        classes: Any,
        numeric: bool = False,
    ) -> FetchedCells:
        """The same of a dataset, whose schema has bounds, categories and classes."""
        kind = "number" if numeric else "classes"
        source = fetch(data, target, features, table, classes=classes, kind=kind, fill=self.fill)
        return FetchedCells.of(source, source.axes(self.bins, self._usual_bins))

    def _grow_on(self, data: BinnedRows, steps: Callable[[Meter, Purse], T]) -> T:
        """Charge and train, on whatever the rows are in."""
        if isinstance(data, FetchedCells) and data.source is not None:
            return self._train_rows(steps, data.source)
        return self._train(steps)

    def _keep_names(self, rows: Any, data: BinnedRows) -> None:
        names = list(data.columns.names) if isinstance(data, FetchedCells) else feature_names(rows)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_features_in_ = len(data.axes)
        self._axes = data.axes

    def _cells(self, rows: Any) -> Integers:
        """The cells of rows to answer about."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "n_features_in_")
        named = feature_names(rows)
        by_name = named is not None and hasattr(self, "feature_names_in_")
        words = [(i, axis) for i, axis in enumerate(self._axes) if axis.categories is not None]
        listed: dict[Any, Any] = {axis.name if by_name else i: axis.categories for i, axis in words}
        columns = read_columns(rows, listed, self.fill)
        if len(columns.names) != self.n_features_in_:
            raise BadInput(
                f"X has {len(columns.names)} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        if by_name and named != list(self.feature_names_in_):
            raise BadInput("The feature names should match those that were passed during fit, in the same order.")
        return columns.cells(self._axes)


def public_generator(source: Source) -> np.random.Generator:
    """Randomness for what needs no secrecy, such as which features a split may use; repeats if the source does."""
    return np.random.default_rng(int.from_bytes(source.bytes(16), "little"))
