"""Base class of estimators on public cells, and the private rows they read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.bins import BinnedFeature, Columns, columns_of, read_axes, read_columns
from cloister.learn.base.cells import numbers_in
from cloister.learn.base.containers import frame_names
from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.inputs import (
    codes,
    is_dataset,
    keep_features,
    read_answers,
    read_classes,
    read_goal,
    read_labels,
)
from cloister.learn.base.integer_rows import Integers
from cloister.learn.base.private_data import columns_as_parts, ends_of
from cloister.learn.base.row_source import FetchedTable, fetch
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.noise import Source

__all__ = ["BinnedEstimator", "BinnedRows", "FetchedCells", "public_generator"]

T = TypeVar("T")


@dataclass(slots=True)
class BinnedRows:
    """Private rows in public cells; call `look` only inside a step, after the charge.

    Attributes:
        axes: the public cells.
        classes: the public labels; None if the target is a number. Rows of no listed class, and rows in which a
            number is missing, are left out.
    """

    columns: Columns
    labels: NDArray[Any]
    axes: tuple[BinnedFeature, ...]
    classes: NDArray[Any] | None
    _read: tuple[Integers, NDArray[Any]] | None = field(default=None, repr=False)

    def look(self) -> tuple[Integers, NDArray[Any]]:
        """Return the cell of each row and feature, and each row's class code (or target)."""
        if self._read is None:
            columns, labels = self._given()
            cells, complete = columns.cells(self.axes)
            complete &= ~np.isnan(labels) if self.classes is None else labels >= 0
            self._read = (cells, labels) if complete.all() else (cells[complete], labels[complete])
        return self._read

    def _given(self) -> tuple[Columns, NDArray[Any]]:
        """Return the columns, and each row's class code (or target)."""
        if self.classes is None:
            return self.columns, numbers_in(self.labels)
        return self.columns, codes(self.labels, list(self.classes))


@dataclass(slots=True)
class FetchedCells(BinnedRows):
    """Cells of a dataset whose rows are read inside the first step."""

    source: FetchedTable | None = None

    @classmethod
    def of(cls, source: FetchedTable, axes: tuple[BinnedFeature, ...]) -> "FetchedCells":
        """Build the cells of the columns that a step will read."""
        return cls(Columns((), source.features), np.zeros(0), axes, source.classes, source=source)

    @property
    def target_ends(self) -> tuple[float, float]:
        """Return the public bounds of the target."""
        assert self.source is not None
        assert self.source.target is not None
        return ends_of(self.source.relation.columns[self.source.target])

    def _given(self) -> tuple[Columns, NDArray[Any]]:
        assert self.source is not None
        return self.source.columns(), self.source.labels()


class BinnedEstimator(PrivateEstimator):
    """Estimator whose features are public cells."""

    bounds: Any
    bins: Any
    categories: Mapping[Any, Sequence[Any]] | None
    fill: float | None
    n_features_in_: int
    _usual_bins = 16

    def _rows(
        self,
        rows: Any,
        labels: Any,
        classes: Any,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        table: str | None = None,
        numeric: bool = False,
    ) -> BinnedRows:
        """Check the public facts of the input: shapes, types, bounds, categories and classes; a schema has them."""
        if is_dataset(rows):
            kind = "number" if numeric else "classes"
            source = fetch(rows, target, features, table, classes=classes, kind=kind, fill=self.fill)
            return FetchedCells.of(source, source.axes(self.bins, self._usual_bins))
        columns = read_columns(rows, self.categories, self.fill)
        axes = read_axes(columns.names, self.bounds, self.bins, self.categories, self._usual_bins)
        listed = None if numeric else read_classes(classes)
        targets = read_goal(labels, columns.length) if listed is None else read_labels(labels, listed, columns.length)
        return BinnedRows(columns, targets, axes, listed)

    def _grow_on(self, data: BinnedRows, steps: Callable[[PrivacyFilter, BudgetShare], T]) -> T:
        """Charge the spend and train, on arrays or on a dataset."""
        if isinstance(data, FetchedCells) and data.source is not None:
            return self._train_rows(steps, data.source)
        return self._train(steps)

    def _keep_names(self, rows: Any, data: BinnedRows) -> None:
        if isinstance(data, FetchedCells):
            assert data.source is not None
            facts = columns_as_parts(data.source.relation.columns, data.source.features)
            keep_features(self, len(data.axes), data.columns.names, facts)
        else:
            keep_features(self, len(data.axes), frame_names(rows))
        self._axes = data.axes

    def _cells(self, rows: Any) -> Integers:
        """Return the cells of rows to predict."""
        table = read_answers(self, rows, self.fill, numbers=False)
        names = tuple(axis.name for axis in self._axes)
        return columns_of(table, names, [not axis.ordered for axis in self._axes]).cells(self._axes)[0]


def public_generator(source: Source) -> np.random.Generator:
    """Return a generator for public choices, such as a split's candidate features; seeded sources repeat it."""
    return np.random.default_rng(int.from_bytes(source.bytes(16), "little"))
