"""Disjoint parts of the private rows: each row, or each person with all rows, belongs to one teacher.

A part must not depend on other parts. Otherwise one person more could change several teachers' votes, and the noise is
for one. So the teacher of a row follows from that row (or person) alone:

    rows of an array or frame   a private coin of each row
    persons of a dataset        a keyed hash of the unit, as in model_selection/holdout.py
    rows of a dataset           a private coin of each row; a row that may occur c times counts as c rows

An engine returns rows in an order of its own. The rows of a part of a dataset are sorted by their content.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.schema import UNIT, internal
from cloister.learn.base.frame import Floats
from cloister.learn.base.inputs import Box, complete
from cloister.learn.base.integer_rows import Integers
from cloister.learn.base.row_source import FetchedTable, InputRows
from cloister.privacy.noise import Source, uniform

__all__ = ["Parts", "keyed", "of_persons"]

Part = tuple[Floats, Integers]
_KEY = internal("part")
_DIGITS = 15  # hexadecimal digits of a hash that fit an int64


@dataclass(slots=True)
class _KeyedTable(FetchedTable):
    """Columns of a dataset, and a keyed hash of each row's unit."""

    def keys(self) -> NDArray[Any]:
        """Return the hash of each row's unit; None where the unit is missing. Call it inside a step."""
        return np.asarray(self._columns()[_KEY])

    def _columns(self) -> dict[str, Any]:
        if self._read is None:
            assert self.target is not None
            wanted = (*self.features, self.target)
            table = self.relation.chosen((*wanted, _KEY)).run(self.relation.engine)
            self._read = {name: self._array(name, table.column(name)) for name in wanted}
            self._read[_KEY] = np.array(table.column(_KEY).to_pylist(), dtype=object)
        return self._read


def of_persons(source: InputRows) -> bool:
    """Return True if the unit is a person: then all rows of a person go to one teacher."""
    return source.dataset and source.relation.max_rows is not None


def keyed(source: InputRows) -> InputRows:
    """Return the source with a hash of the unit beside its columns, if its unit is a person. No row is read."""
    if not isinstance(source, FetchedTable) or not of_persons(source):
        return source
    relation = source.relation
    unit = exp.Cast(this=exp.column(UNIT, quoted=True), to=exp.DataType.build("TEXT"))
    hashed = exp.MD5(this=exp.DPipe(this=exp.Literal.string(f"{relation.secret}|teachers|"), expression=unit))
    facts = (source.data, relation.with_columns({_KEY: hashed}), source.features, source.target, source.classes)
    return _KeyedTable(*facts, source.fill)


@dataclass(frozen=True, slots=True)
class Parts:
    """Private rows in disjoint parts.

    Attributes:
        source: the rows; labels are codes of the public classes.
        count: number of parts.
        box: public bounds that rows are clipped to.
    """

    source: InputRows
    count: int
    box: Box

    def look(self, coins: Source) -> Sequence[Part]:
        """Return the rows and labels of each part. Call it inside a step, after the charge.

        Rows with a missing number or a label that is not listed are left out.

        Args:
            coins: the source of the private coins.
        """
        numbers, labels = self.source.numbers(), self.source.labels()
        keys = self._keys(len(labels), coins)
        numbers, labels, keys = complete(numbers, labels, keys)
        kept = (labels >= 0) & (keys >= 0)
        numbers, labels, keys = self.box.clip(numbers[kept]), labels[kept], keys[kept]
        order = np.argsort(keys, kind="stable")
        edges = np.searchsorted(keys[order], np.arange(self.count + 1))
        parts = [order[start:end] for start, end in pairwise(edges)]
        if self.source.dataset:
            parts = [_sorted(numbers, labels, part) for part in parts]
        return [(numbers[part], labels[part]) for part in parts]

    def _keys(self, rows: int, coins: Source) -> Integers:
        """Return the part of each row; -1 for a row of no unit."""
        if not isinstance(self.source, _KeyedTable):
            return np.asarray(uniform(self.count, (rows,), coins), dtype=np.int64)
        hashes = self.source.keys()
        return np.array([-1 if key is None else int(key[:_DIGITS], 16) % self.count for key in hashes], dtype=np.int64)


def _sorted(numbers: Floats, labels: Integers, part: Integers) -> Integers:
    """Return the positions of a part in the order of their content."""
    return part[np.lexsort((labels[part], *numbers[part].T))]
