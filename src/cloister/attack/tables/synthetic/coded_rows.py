"""Tables as attacks on synthetic rows take them: public codes, and positions between public bounds."""

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["CodedColumn", "CodedRows", "Floats", "Integers", "cells", "choose_columns"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class CodedColumn(Protocol):
    """One column."""

    @property
    def name(self) -> str:
        """The name of the column."""

    @property
    def labels(self) -> tuple[Any, ...]:
        """The meaning of each code; the code after the last is missing."""

    @property
    def ordered(self) -> bool:
        """True if its values have positions between bounds."""

    @property
    def size(self) -> int:
        """Number of codes, including missing."""

    def value(self, point: float) -> Any:
        """Convert a position between the bounds to a value of an ordered column."""


class CodedRows(Protocol):
    """Rows as numbers, such as `synth`'s.

    `codes` has the code of each cell, rows × columns; `points` the position between the bounds, 0 to 1, for ordered
    columns and the code for others, NaN if missing. Two rows are equal exactly if their points are.
    """

    @property
    def sides(self) -> Sequence[CodedColumn]:
        """The columns."""

    @property
    def codes(self) -> Integers:
        """The code of each cell."""

    @property
    def points(self) -> Floats:
        """The position of each cell."""

    def __len__(self) -> int: ...

    def take(self, index: NDArray[Any]) -> Self:
        """Return some of the rows."""

    def at_most(self, most: int, random: np.random.Generator) -> Self:
        """Return the given number of rows at random, or all if there are fewer."""


def choose_columns(count: int, way: int, most: int, random: np.random.Generator) -> list[tuple[int, ...]]:
    """Return all choices of `way` columns, or `most` different ones at random."""
    if comb(count, way) <= most:
        return list(combinations(range(count), way))
    chosen: dict[tuple[int, ...], None] = {}
    while len(chosen) < most:
        chosen[tuple(sorted(random.choice(count, way, replace=False).tolist()))] = None
    return list(chosen)


def cells(rows: CodedRows, columns: Sequence[int]) -> Integers:
    """Return the cell of a marginal for each row."""
    codes = rows.codes[:, columns[0]]
    for j in columns[1:]:
        codes = codes * rows.sides[j].size + rows.codes[:, j]
    return codes
