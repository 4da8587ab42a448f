"""Baskets of items, read from lists, one-hot frames, (basket, item) rows and basket files.

    baskets = read_baskets([["milk", "bread"], ["milk"]])
    baskets = read_baskets(frame)                                  one column per item, True or 1 if in the basket
    baskets = read_baskets(frame, basket="receipt", item="article")
    baskets = read_baskets("groceries.csv")                        one basket per line, items separated by commas

An item is text; numbers are read as their text. A missing item is left out, and an item listed twice in a basket counts
once. A basket may be empty.
"""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadInput, BadSource

__all__ = ["Transactions", "read_baskets"]

Codes = NDArray[np.int64]
Words = NDArray[np.uint64]

_BLOCK = 1 << 16  # baskets packed at a time


@dataclass(frozen=True)
class Transactions:
    """Baskets as sorted item codes, basket after basket.

    Attributes:
        items: the names of the items; the code of an item is its index.
        starts: index of the first code of each basket, and the number of codes at the end.
        codes: item codes of all baskets, ascending and distinct within a basket.

    >>> baskets = read_baskets([["milk", "bread"], ["milk"], []])
    >>> len(baskets), baskets.items, baskets.to_lists()
    (3, ('bread', 'milk'), [['bread', 'milk'], ['milk'], []])
    """

    items: tuple[str, ...]
    starts: Codes
    codes: Codes

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def baskets(self) -> Codes:
        """The basket of every code."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def counts(self) -> Codes:
        """The number of baskets with each item."""
        return np.bincount(self.codes, minlength=len(self.items))

    @cached_property
    def code_of(self) -> dict[str, int]:
        """The code of each item."""
        return {item: code for code, item in enumerate(self.items)}

    def encode(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the codes of items in ascending order.

        Raises:
            BadInput: an item is not one of the items of these baskets.
        """
        names = [names] if isinstance(names, str) else list(names)
        unknown = [name for name in names if name not in self.code_of]
        if unknown:
            raise BadInput(f"no item is called {unknown[0]!r:.60}. Name items as the baskets do.")
        return tuple(sorted({self.code_of[name] for name in names}))

    def dense(self) -> NDArray[np.bool_]:
        """Return a table with a row per basket and a column per item: True if the item is in the basket."""
        table = np.zeros((len(self), len(self.items)), bool)
        table[self.baskets, self.codes] = True
        return table

    @cached_property
    def bits(self) -> Words:
        """Baskets of each item as packed bits: a row per item, 64 baskets per word."""
        words = np.zeros((len(self.items), -(-len(self) // 64)), np.uint64)
        for first in range(0, len(self), _BLOCK):
            last = min(first + _BLOCK, len(self))
            inside = slice(self.starts[first], self.starts[last])
            block = np.zeros((len(self.items), -(-(last - first) // 64) * 64), bool)
            block[self.codes[inside], self.baskets[inside] - first] = True
            words[:, first // 64 : first // 64 + block.shape[1] // 64] = pack(block)
        return words

    def count(self, itemset: Iterable[str]) -> int:
        """Return the number of baskets that contain all these items."""
        codes = list(self.encode(itemset))
        if not codes:
            return len(self)
        return int(np.bitwise_count(np.bitwise_and.reduce(self.bits[codes], axis=0)).sum())

    def to_lists(self) -> list[list[str]]:
        """Return the baskets as lists of names."""
        names = self.to_arrow().column("items")
        return names.to_pylist()  # type: ignore[no-any-return]

    def to_arrow(self) -> pa.Table:
        """Return the baskets as a table with one column `items` of lists."""
        names = pa.array(self.items, pa.string()).take(pa.array(self.codes))
        return pa.table({"items": pa.ListArray.from_arrays(pa.array(self.starts.astype(np.int32)), names)})

    def to_pandas(self) -> Any:
        """Return the baskets as a pandas frame with one column of booleans per item."""
        return pa.table(dict(zip(self.items, map(pa.array, self.dense().T), strict=True))).to_pandas()

    def content(self, *, parquet: bool) -> pa.Table | str:
        """Return the baskets as a file holds them: a column of lists, or a line for each basket as CSV."""
        if parquet:
            return self.to_arrow()
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows(self.to_lists())
        return lines.getvalue()

    @staticmethod
    def of_pairs(items: Sequence[str], baskets: Codes, codes: Codes, size: int) -> "Transactions":
        """Return baskets from pairs of basket number and item code, in any order, with repetitions."""
        keys = np.unique(baskets * max(len(items), 1) + codes)
        numbers, distinct = np.divmod(keys, max(len(items), 1))
        starts = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=size))])
        return Transactions(tuple(items), starts.astype(np.int64), distinct.astype(np.int64))

    @staticmethod
    def of_dense(items: Sequence[str], table: NDArray[np.bool_]) -> "Transactions":
        """Return baskets from a table of booleans."""
        baskets, codes = np.nonzero(table)
        return Transactions.of_pairs(items, baskets, codes, len(table))


def pack(rows: NDArray[np.bool_]) -> Words:
    """Return rows of booleans as packed words; the last word is filled with zeros."""
    width = -(-rows.shape[1] // 64) * 64
    padded = rows if rows.shape[1] == width else np.pad(rows, ((0, 0), (0, width - rows.shape[1])))
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def read_baskets(
    rows: Any,
    *,
    basket: str | None = None,
    item: str | None = None,
    items: Sequence[str] | None = None,
    amounts: bool = False,
) -> Transactions:
    """Read baskets in any of the forms that this module lists.

    Args:
        rows: a list of baskets, a frame or table, the path of a basket file or of Parquet, or `Transactions`.
        basket, item: columns of the basket's id and of the item, for rows with one item each. A row without a basket id
            is left out.
        items: the items to keep, in this order; all of them, sorted, unless given.
        amounts: in a frame with one column per item, True to read every number above 0 as an item of the basket, and
            all others as none, so that no number is refused.

    Raises:
        BadInput: the rows have none of these forms.
        BadSource: the file cannot be read.
    """
    if (basket is None) != (item is None):
        raise BadInput("rows with one item each need both columns: basket='receipt', item='article'.")
    if isinstance(rows, Transactions):
        return rows if items is None else _select(rows, items)
    if isinstance(rows, str | os.PathLike) and str(rows).lower().endswith(".parquet"):
        rows = _read_parquet(Path(rows))
    if isinstance(rows, str | os.PathLike):
        names, numbers, size = _flatten(_read_file(Path(rows)))
    elif basket is not None and item is not None:
        names, numbers, size = _pairs(to_arrow(rows), basket, item)
    elif isinstance(rows, Sequence) and not isinstance(rows, bytes):
        names, numbers, size = _flatten(rows)
    else:
        names, numbers, size = _frame(to_arrow(rows), amounts)
    return _encode(names, numbers, size, items)


def _encode(names: pa.Array, numbers: Codes, size: int, items: Sequence[str] | None) -> Transactions:
    valid = np.asarray(names.is_valid().to_numpy(zero_copy_only=False), bool)
    listed = sorted(pc.unique(names.drop_null()).to_pylist()) if items is None else [str(name) for name in items]
    if len(set(listed)) < len(listed):
        raise BadInput("an item is listed twice. List each item once.")
    codes = pc.index_in(names, value_set=pa.array(listed, pa.string())).fill_null(-1).to_numpy(zero_copy_only=False)
    valid &= codes >= 0
    return Transactions.of_pairs(listed, numbers[valid], codes[valid].astype(np.int64), size)


def _select(baskets: Transactions, items: Sequence[str]) -> Transactions:
    names = pa.array(baskets.items, pa.string()).take(pa.array(baskets.codes))
    return _encode(names, baskets.baskets, len(baskets), items)


def _read_parquet(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise BadSource(f"the baskets in {path.name!r:.80} cannot be read: {type(error).__name__}.") from None


def _read_file(path: Path) -> list[list[str | None]]:
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            return [[cell.strip() or None for cell in row] for row in csv.reader(lines)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadSource(f"the baskets in {path.name!r:.80} cannot be read: {type(error).__name__}.") from None


def _flatten(baskets: Sequence[Any]) -> tuple[pa.Array, Codes, int]:
    if any(isinstance(basket, str | bytes) or not isinstance(basket, Iterable) for basket in baskets):
        raise BadInput("a basket is a list of items: [['milk', 'bread'], ['milk']].")
    members = [list(basket) for basket in baskets]
    numbers = np.repeat(np.arange(len(members)), [len(basket) for basket in members])
    return _text([cell for basket in members for cell in basket]), numbers, len(members)


def _text(cells: list[Any]) -> pa.Array:
    """Return items as text, missing ones as NULL."""
    if all(cell is None or isinstance(cell, str) for cell in cells):
        return pa.array(cells, pa.string())
    return pa.array([None if cell is None or cell != cell else str(cell) for cell in cells], pa.string())


def _pairs(table: pa.Table, basket: str, item: str) -> tuple[pa.Array, Codes, int]:
    for name in (basket, item):
        if name not in table.column_names:
            raise BadInput(f"the rows have no column {name!r:.60}. Name the columns of the basket and of the item.")
    table = table.filter(pc.is_valid(table.column(basket)))
    ids = table.column(basket).combine_chunks().dictionary_encode()
    names = table.column(item).combine_chunks()
    return names.cast(pa.string()), ids.indices.to_numpy().astype(np.int64), len(ids.dictionary)


def _frame(table: pa.Table, amounts: bool) -> tuple[pa.Array, Codes, int]:
    """Read one column of lists, or one column per item that is true or 1 where the basket has it."""
    if table.num_columns == 1 and (
        pa.types.is_list(table.column(0).type) or pa.types.is_large_list(table.column(0).type)
    ):
        return _flatten([basket or [] for basket in table.column(0).to_pylist()])
    held = np.zeros((table.num_rows, table.num_columns), bool)
    for code, column in enumerate(table.columns):
        if not (
            pa.types.is_boolean(column.type) or pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        ):
            raise BadInput(
                f"column {table.column_names[code]!r:.60} is not true or false. Give one column per item, or "
                "basket= and item= for rows with one item each."
            )
        numbers = (
            column.cast(pa.float64(), safe=False) if not pa.types.is_boolean(column.type) else column.cast(pa.uint8())
        )
        cells = np.nan_to_num(numbers.to_numpy().astype(np.float64))
        if amounts:
            cells = (cells > 0).astype(np.float64)
        if not np.isin(cells, (0.0, 1.0)).all():
            raise BadInput(
                f"column {table.column_names[code]!r:.60} has numbers besides 0 and 1. Compare them with > 0."
            )
        held[:, code] = cells == 1
    numbers_, codes = np.nonzero(held)
    names = pa.array(table.column_names, pa.string()).take(pa.array(codes))
    return names, numbers_, table.num_rows
