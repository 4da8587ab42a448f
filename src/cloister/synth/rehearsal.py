"""A dataset without anybody in it, for plans: the same columns, and a public number of rows, the same in every cell.

Privacy: no row can be read through it. It knows the columns of the real one, has no engine, and pays from an account
    that is thrown away. How many rows it pretends to have is the caller's word.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.relation import Relation
from cloister.data.statistics import Sums
from cloister.privacy.errors import BadInput

__all__ = ["Rehearsed"]


class Rehearsed:
    """A dataset without anybody in it, whose account is thrown away."""

    def __init__(self, data: Any, account: Any, rows: int) -> None:
        self.account, self.reader, self.version = account, None, ""
        self.schema, self.tables = data.schema, data.tables
        self._data, self._rows = data, rows

    def columns(self, table: str) -> Any:
        """As the dataset has them."""
        return self._data.columns(table)

    def relation(self, table: str | None, columns: Sequence[str]) -> Relation:
        """The same columns, and nobody's rows."""
        found = self._data.relation(table, columns)
        known = {one.name: getattr(found, one.name) for one in fields(found)}
        return _NoRows(**{**known, "engine": _NoEngine(found.engine.dialect)}, pretended=self._rows)


class _NoEngine:
    """Runs nothing: a rehearsal that gets this far would read rows."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def run(self, sql: str) -> Any:
        """Never."""
        raise BadInput("this method reads rows themselves, so there is no plan of it.")


@dataclass(frozen=True, slots=True)
class _NoRows(Relation):
    """A relation that nobody is in. Its counts are made up."""

    pretended: int = 0

    def sums(self, keys: Sequence[Any] = (), values: Sequence[Any] = ()) -> Sums:
        """A statement that needs no engine."""
        return _NoSums(self.rows, tuple(keys), tuple(values), self.max_rows, self.copies, self.pretended)


@dataclass(frozen=True, slots=True)
class _NoSums(Sums):
    """As many rows as are pretended, spread alike over all groups; sums of values are nought."""

    pretended: int = 0

    def run(self, engine: Any) -> list[NDArray[Any]]:
        """The number of rows, and the sums."""
        total = self.pretended * self.unit_weight
        counts = np.diff(np.arange(self.cells + 1) * total // self.cells)
        return [counts, *(np.broadcast_to(np.int64(0), (self.cells,)) for _ in self.values)]

    def run_sets(self, engine: Any, sets: Sequence[Sequence[int]]) -> list[list[NDArray[Any]]]:
        """The same for each choice of keys."""
        return [replace(self, keys=tuple(self.keys[i] for i in one)).run(engine) for one in sets]

    def run_occupied(self, engine: Any, sets: Sequence[Sequence[int]]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """The groups that somebody is pretended to be in, for each choice of keys."""
        return [self._occupied(math.prod(len(self.keys[i].values) for i in one)) for one in sets]

    def _occupied(self, cells: int) -> tuple[NDArray[Any], NDArray[Any]]:
        total = self.pretended * self.unit_weight
        if total >= cells:
            return np.arange(cells), np.diff(np.arange(cells + 1) * total // cells)
        return np.arange(self.pretended) * (cells // max(self.pretended, 1)), np.full(self.pretended, self.unit_weight)
