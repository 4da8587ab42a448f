"""A dataset without anybody in it, for plans: the same columns, and every count is nought.

Privacy: no row can be read through it. It knows the columns of the real one, has no engine, and pays from an account
    that is thrown away.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.relation import Relation
from cloister.data.statistics import Sums
from cloister.privacy.errors import BadInput

__all__ = ["Rehearsed"]


class Rehearsed:
    """A dataset without anybody in it, whose account is thrown away."""

    def __init__(self, data: Any, account: Any) -> None:
        self.account, self.reader, self.version = account, None, ""
        self.schema, self.tables = data.schema, data.tables
        self._data = data

    def columns(self, table: str) -> Any:
        """As the dataset has them."""
        return self._data.columns(table)

    def relation(self, table: str | None, columns: Sequence[str]) -> Relation:
        """The same columns, and no rows."""
        found = self._data.relation(table, columns)
        known = {one.name: getattr(found, one.name) for one in fields(found)}
        return _NoRows(**{**known, "engine": _NoEngine(found.engine.dialect)})


class _NoEngine:
    """Runs nothing: a rehearsal that gets this far would read rows."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def run(self, sql: str) -> Any:
        """Never."""
        raise BadInput("this method reads rows themselves, so there is no plan of it.")


@dataclass(frozen=True, slots=True)
class _NoRows(Relation):
    """A relation in which every count is nought."""

    def sums(self, keys: Sequence[Any] = (), values: Sequence[Any] = ()) -> Sums:
        """A statement that needs no engine."""
        return _NoSums(self.rows, tuple(keys), tuple(values), self.max_rows, self.copies)


@dataclass(frozen=True, slots=True)
class _NoSums(Sums):
    """Noughts in the right shapes; they take no memory."""

    def run(self, engine: Any) -> list[NDArray[Any]]:
        """The number of rows, and the sums."""
        return [np.broadcast_to(np.int64(0), (self.cells,)) for _ in range(1 + len(self.values))]

    def run_sets(self, engine: Any, sets: Sequence[Sequence[int]]) -> list[list[NDArray[Any]]]:
        """The same for each choice of keys."""
        return [
            _NoSums(self.rows, tuple(self.keys[i] for i in one), self.values, self.max_rows, self.copies).run(engine)
            for one in sets
        ]
