"""Columns of a row, as public facts: a list of choices, a number cut at public edges, or a number within bounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.privacy.errors import BadBounds, BadCandidates, BadInput

__all__ = ["Choices", "Column", "Cut", "Span", "equal_frequency", "equal_width", "numbers", "table_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Choices:
    """A public list of different values.

    >>> Choices(("Young", "Medium", "Old")).codes(["Old", "Young"]).tolist()
    [2, 0]
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2 or len(set(self.values)) < len(self.values):
            raise BadCandidates("a list of choices has at least two values, none of them twice.")

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.values)

    def codes(self, column: Any) -> NDArray[np.int64]:
        """Return each value's index in the list. An unlisted value is refused and not shown."""
        code_of = {value: code for code, value in enumerate(self.values)}
        different, inverse = _different(column)
        try:
            return np.asarray(np.array([code_of[value] for value in different], dtype=np.int64)[inverse])
        except (KeyError, TypeError):
            raise BadCandidates("a value is not in its public list of choices. Add it, or map it to one.") from None


@dataclass(frozen=True, slots=True)
class Cut:
    """A number reduced to its bin between public edges.

    >>> Cut((10.0, 20.0)).codes([3, 10, 99]).tolist()
    [0, 1, 2]
    """

    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.edges or not np.isfinite(self.edges).all() or (np.diff(self.edges) <= 0).any():
            raise BadBounds("inner edges are finite, ascending and public; one makes two bins.")

    @property
    def size(self) -> int:
        """The number of bins."""
        return len(self.edges) + 1

    def codes(self, column: Any) -> NDArray[np.int64]:
        """Return each number's bin. An edge belongs to the bin above it."""
        return np.searchsorted(self.edges, numbers(column), side="right").astype(np.int64)


@dataclass(frozen=True, slots=True)
class Span:
    """A number within public bounds; values beyond are clipped.

    >>> Span(0.0, 10.0).scaled([0, 5, 99]).tolist()
    [-1.0, 0.0, 1.0]
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise BadBounds("bounds are two finite numbers, the lower one first.")

    @property
    def width(self) -> float:
        """The distance between the bounds."""
        return self.high - self.low

    def scaled(self, column: Any) -> Floats:
        """Return numbers scaled to [-1, 1]."""
        return np.asarray(np.clip((numbers(column) - self.low) / self.width * 2 - 1, -1, 1))


Column = Choices | Cut | Span


def equal_width(low: float, high: float, bins: int) -> tuple[float, ...]:
    """Return inner edges of bins of equal width between public bounds.

    >>> [round(edge, 2) for edge in equal_width(0, 28, 3)]
    [9.33, 18.67]
    """
    Span(low, high)
    return tuple(np.linspace(low, high, _bins(bins) + 1)[1:-1].tolist())


def equal_frequency(public: ArrayLike, bins: int) -> tuple[float, ...]:
    """Return inner edges that cut a *public* sample, such as an old census, into bins of equal size.

    Edges that depend on the respondents' own values would reveal them before any noise is added (spec LDP-22), so edges
    are never computed from rows that are to be protected.

    >>> equal_frequency([0, 4, 12, 16, 16, 18, 24, 26, 28], 3)
    (16.0, 24.0)
    """
    sample = np.sort(numbers(public))
    if sample.size < _bins(bins):
        raise BadInput("a public sample has at least as many values as bins are wanted.")
    at = [-(-sample.size * cut // bins) for cut in range(1, bins)]
    edges = np.unique(sample[at])
    return tuple(edges[edges > sample[0]].tolist())


def numbers(column: Any) -> Floats:
    """Return a column of numbers, none missing."""
    try:
        rows = np.asarray(column, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise BadInput("a column with bounds or edges holds numbers.") from None
    if np.isnan(rows).any():
        raise BadInput("a number is missing. Fill it on the device with a public value.")
    return rows


def table_of(rows: Any) -> NDArray[Any]:
    """Return rows by columns. A list of mixed values keeps their types."""
    if hasattr(rows, "to_numpy"):
        rows = rows.to_numpy()
    table = rows if isinstance(rows, np.ndarray) else np.array(rows, dtype=object)
    table = table[None, :] if table.ndim == 1 else table
    if table.ndim != 2:
        raise BadInput("rows are a table: one row a person, one column a feature.")
    return table


def _bins(bins: int) -> int:
    if isinstance(bins, bool) or not isinstance(bins, int) or not 2 <= bins <= 1 << 16:
        raise BadInput("bins is a whole number of at least 2.")
    return bins


def _different(column: Any) -> tuple[list[Any], Any]:
    """Return the values to look up, and the positions of each; of a typed array, each different one once."""
    if isinstance(column, np.ndarray) and column.dtype != object:
        values, inverse = np.unique(column.ravel(), return_inverse=True)
        return values.tolist(), inverse
    if isinstance(column, np.ndarray):
        column = column.ravel().tolist()
    return list(column) if isinstance(column, Sequence) else [column], slice(None)
