"""Columns of a released table as integer codes, and the equivalence classes they form.

A NULL is a value of its own: it equals only NULL. NaN in a column of doubles is read as NULL, and -0.0 equals 0.0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadInput

__all__ = ["Classes", "Contingency", "Floats", "Integers", "as_text", "classes", "contingency", "encode", "require",
           "to_arrow"]  # fmt: skip

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_WIDE = 2**62  # products of numbers of distinct values stay below this


def require(table: pa.Table, names: Sequence[str], purpose: str) -> tuple[str, ...]:
    """Return distinct column names of a table, or refuse.

    Args:
        table: the table.
        names: the columns, or a single name.
        purpose: their role in the message.
    """
    wanted = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
    absent = [name for name in wanted if name not in table.column_names]
    if not wanted or absent:
        has = ", ".join(table.column_names[:20])
        problem = f"the table has no column {absent[0]!r}" if absent else "no column is named"
        raise BadInput(f"{problem} as {purpose}. Choose among: {has}.")
    return wanted


def encode(column: Any) -> tuple[Integers, pa.Array]:
    """Return a code for each cell, and the distinct values that the codes number.

    >>> codes, values = encode(pa.array([0.5, None, -0.0, 0.0, float("nan")]))
    >>> codes.tolist(), values.to_pylist()
    ([0, 1, 2, 2, 1], [0.5, None, 0.0])
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_null(array.type):
        array = array.cast(pa.string())
    if pa.types.is_floating(array.type):
        array = pc.add(array.cast(pa.float64()), 0.0)
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, pa.float64()), array)
    try:
        coded = pc.dictionary_encode(array, null_encoding="encode")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise BadInput(
            f"a column of type {array.type} cannot be compared. Turn it into text, numbers or dates."
        ) from None
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    return np.asarray(coded.indices.to_numpy(zero_copy_only=False), dtype=np.int64), coded.dictionary


def as_text(value: object) -> str:
    """Return a value as it is shown in a report; NULL for a missing one."""
    return "NULL" if value is None else str(value)


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """Equivalence classes of rows: those with equal values in some columns.

    Attributes:
        names: the columns.
        of: the class of each row.
        sizes: number of rows of each class.
        codes: for each class the code of its value in each column.
        values: for each column the distinct values that the codes number.
    """

    names: tuple[str, ...]
    of: Integers
    sizes: Integers
    codes: Integers
    values: tuple[pa.Array, ...]

    def describe(self, number: int) -> dict[str, str]:
        """Return the values of a class as text."""
        codes = self.codes[number]
        return {name: as_text(self.values[i][int(codes[i])].as_py()) for i, name in enumerate(self.names)}


def classes(table: pa.Table, names: Sequence[str]) -> Classes:
    """Group the rows of a table by some columns.

    >>> found = classes(pa.table({"zip": ["130", "130", "148"], "age": [30, 30, None]}), ["zip", "age"])
    >>> found.of.tolist(), found.sizes.tolist(), found.describe(1)
    ([0, 0, 1], [2, 1], {'zip': '148', 'age': 'NULL'})
    """
    encoded = [encode(table.column(name)) for name in names]
    of, first = group([codes for codes, _ in encoded], [len(values) for _, values in encoded], table.num_rows)
    sizes = np.bincount(of, minlength=len(first)).astype(np.int64)
    matrix = np.column_stack([codes[first] for codes, _ in encoded]) if encoded else np.empty((len(first), 0), np.int64)
    return Classes(tuple(names), of, sizes, matrix, tuple(values for _, values in encoded))


def group(codes: Sequence[Integers], cardinalities: Sequence[int], rows: int) -> tuple[Integers, Integers]:
    """Number the distinct combinations of codes.

    Returns:
        the number of each row's combination, and a row in which each combination occurs.
    """
    key, width = np.zeros(rows, dtype=np.int64), 1
    for column, cardinality in zip(codes, cardinalities, strict=True):
        if width * max(cardinality, 1) >= _WIDE:
            distinct, key = np.unique(key, return_inverse=True)
            width = len(distinct)
        key, width = key * max(cardinality, 1) + column, width * max(cardinality, 1)
    if width <= 4 * rows:  # a table of all possible keys is cheaper than sorting
        seen = np.full(width, -1, dtype=np.int64)
        seen[key[::-1]] = np.arange(rows - 1, -1, -1)
        first = seen[seen >= 0]
        number = np.cumsum(seen >= 0) - 1
        return number[key], first
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    return of.astype(np.int64), first.astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Contingency:
    """Counts of the values of a column in each class; only pairs that occur, in the order of the classes.

    Attributes:
        of: the pair of each row.
        group: the class of each pair.
        value: the code of each pair's value.
        count: rows of each pair.
        starts: the first pair of each class.
    """

    of: Integers
    group: Integers
    value: Integers
    count: Integers
    starts: Integers

    def largest(self) -> tuple[Integers, Integers]:
        """Return for each class the count of its most frequent value, and the pair of it."""
        most = np.maximum.reduceat(self.count, self.starts)
        places = np.flatnonzero(self.count == most[self.group])
        _, first = np.unique(self.group[places], return_index=True)
        return most, places[first]


def contingency(of: Integers, codes: Integers) -> Contingency:
    """Count the codes of a column in each class.

    Args:
        of: the class of each row; each class has at least one row.
        codes: the code of each row.
    """
    width = int(codes.max(initial=0)) + 1
    key, pair, count = np.unique(of * width + codes, return_inverse=True, return_counts=True)
    owner = key // width
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    return Contingency(pair.astype(np.int64), owner, key % width, count.astype(np.int64), starts.astype(np.int64))
