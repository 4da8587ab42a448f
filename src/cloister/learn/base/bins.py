"""Public cells of features, fixed before any row is read.

Numbers are binned by public cuts; a category is one of a public list, and all others share the cell `other`. Trees and
additive models learn from counts over cells. Each value is read on its own (learn/base/cells.py) and placed by
comparisons, so the cell of a row depends on that row alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.cells import Categories, numbers_in
from cloister.learn.base.inputs import InputTable, check_numbers, read_box, read_numbers, read_table, read_values
from cloister.privacy.errors import BadBounds, BadSchema

__all__ = ["BinnedFeature", "Columns", "columns_of", "read_axes", "read_columns"]

_MOST = 1024  # cells per feature


@dataclass(frozen=True, slots=True)
class BinnedFeature:
    """Public cells of one feature.

    Attributes:
        name: the feature's name.
        cuts: for a number: cell i holds values that are at least cuts[i - 1] and below cuts[i].
        categories: for a category: one cell each, and one more for all others.
        exact: True to distinguish integers beyond 2^53, as a schema does.
    """

    name: str | int
    cuts: NDArray[np.float64]
    categories: tuple[Any, ...] | None = None
    exact: bool = False

    @property
    def ordered(self) -> bool:
        """Return True if the cells have an order."""
        return self.categories is None

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return len(self.cuts if self.categories is None else self.categories) + 1

    def place(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the cell of each value; a missing number is in the middle cell."""
        if self.categories is None:
            numbers = numbers_in(values)
            cells = np.searchsorted(self.cuts, numbers, side="right").astype(np.int64)
            return np.where(np.isnan(numbers), self.size // 2, cells)
        cells = Categories(self.categories, str(self.name), exact=self.exact).codes(values)
        return np.where(cells < 0, len(self.categories), cells)

    def labels(self) -> list[str]:
        """Return a text label of each cell."""
        if self.categories is not None:
            return [*map(str, self.categories), "other"]
        ends = [f"{cut:g}" for cut in self.cuts]
        if not ends:
            return ["all"]
        return [f"< {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f"≥ {ends[-1]}"]


@dataclass(frozen=True, slots=True)
class Columns:
    """Raw columns, read into cells only inside a step.

    Attributes:
        fill: replaces a missing number; None to leave its row out.
    """

    values: tuple[NDArray[Any], ...]
    names: tuple[str | int, ...]
    fill: float | None = None

    @property
    def length(self) -> int:
        """Return the private number of rows."""
        return len(self.values[0])

    def cells(self, axes: Sequence[BinnedFeature]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the cell of each row and feature, and True for each row without missing numbers."""
        complete = np.ones(self.length, dtype=bool)
        placed = []
        for axis, column in zip(axes, self.values, strict=True):
            values = column
            if axis.ordered:
                values = numbers_in(column)
                missing = np.isnan(values)
                if self.fill is None:
                    complete &= ~missing
                else:
                    values = np.where(missing, self.fill, values)
            placed.append(axis.place(values))
        return np.column_stack(placed), complete


def read_columns(rows: Any, categories: Mapping[Any, Sequence[Any]] | None, fill: float | None) -> Columns:
    """Read the columns of an array or frame.

    Args:
        rows: the input.
        categories: the categorical columns, by name or number.
        fill: replaces a missing number.
    """
    table = read_table(rows, fill, numbers=False)
    names: tuple[str | int, ...] = table.names or tuple(f"x{i}" for i in range(table.width))
    return columns_of(table, names, [_listed(categories, name, i) is not None for i, name in enumerate(names)])


def columns_of(table: InputTable, names: tuple[str | int, ...], categorical: Sequence[bool]) -> Columns:
    """Return the columns of a table; refuse a non-categorical column whose type cannot hold numbers."""
    check_numbers(column for column, other in zip(table.columns, categorical, strict=True) if not other)
    return Columns(table.columns, names, table.fill)


def read_axes(
    names: Sequence[str | int],
    bounds: Any,
    bins: int | Mapping[Any, Any],
    categories: Mapping[Any, Sequence[Any]] | None,
    usual: int,
    *,
    exact: bool = False,
) -> tuple[BinnedFeature, ...]:
    """Build the cells from public facts.

    Args:
        names: names of the features.
        bounds: (low, high) for all, (lows, highs), or a dict from name or number to (low, high).
        bins: number of equal cells between the bounds; or a dict from name or number to that, or to the cuts.
        categories: a dict from name or number to the list of categories.
        usual: number of cells of a feature that `bins` does not mention.
        exact: True if categories come from a schema (learn/base/cells.py).
    """
    for setting in (bounds, bins, categories):
        unknown = [key for key in setting if not _known(key, names)] if isinstance(setting, Mapping) else []
        if unknown:
            raise BadSchema(f"there is no feature {unknown[0]!r:.60}. Name columns as in X, or count them from 0.")
    box = None
    axes = []
    for i, name in enumerate(names):
        listed = _listed(categories, name, i)
        cells = _listed(bins, name, i) if isinstance(bins, Mapping) else bins
        cells = usual if cells is None else cells
        if listed is not None:
            axes.append(BinnedFeature(name, np.zeros(0), _categories(listed, name, exact), exact))
        elif not isinstance(cells, int | np.integer) or isinstance(cells, bool):
            axes.append(BinnedFeature(name, _cuts(cells, name)))
        elif isinstance(bounds, Mapping):
            axes.append(BinnedFeature(name, _equal(_listed(bounds, name, i), int(cells), name)))
        else:
            box = box or read_box(bounds, len(names))
            axes.append(BinnedFeature(name, _equal((box.low[i], box.high[i]), int(cells), name)))
    return tuple(axes)


def _known(key: Any, names: Sequence[str | int]) -> bool:
    """Return True if a key names a feature, or is its place. Where names are numbers, a number is a name."""
    if isinstance(names[0], int):
        return key in names
    return key in names or (isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(names))


def _listed(setting: Any, name: str | int, position: int) -> Any:
    if not isinstance(setting, Mapping):
        return None
    return setting[name] if name in setting else setting.get(position) if isinstance(name, str) else None


def _categories(listed: Sequence[Any], name: str | int, exact: bool) -> tuple[Any, ...]:
    values = tuple(dict.fromkeys(read_values(listed) or ()))
    if not 1 <= len(values) < _MOST:
        raise BadSchema(f"{name} needs a list of 1 to {_MOST - 1} categories.")
    Categories(values, str(name), exact=exact)
    return tuple(map(str, values)) if any(isinstance(value, str) for value in values) else values


def _cuts(numbers: Any, name: str | int) -> NDArray[np.float64]:
    cuts = read_numbers(numbers)
    if cuts is None or not 1 <= len(cuts) < _MOST or not np.isfinite(cuts).all() or not (np.diff(cuts) > 0).all():
        raise BadBounds(f"the bins of {name} are a number of cells, or cuts in rising order (at most {_MOST - 1}).")
    return cuts


def _equal(bounds: Any, cells: int, name: str | int) -> NDArray[np.float64]:
    if bounds is None:
        raise BadBounds(f"{name} needs public bounds, cuts or categories.")
    box = read_box(bounds, 1)
    if not 2 <= cells <= _MOST:
        raise BadBounds(f"a feature has 2 to {_MOST} cells.")
    return np.linspace(float(box.low[0]), float(box.high[0]), cells + 1)[1:-1]
