"""Some of a dataset's people: those a model learns from, those it is tried on, or nobody.

Who belongs where follows from a keyed hash of the unit alone: all rows of a person are on one side, nobody else's rows
matter, nobody can arrange it without the owner's secret, and it is the same every time. So whatever is released about
one side says nothing about the people of the other.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from cloister.data.private_table import PrivateTable
from cloister.data.schema import UNIT
from cloister.privacy.errors import BadInput

__all__ = ["Portion", "nobody", "sides"]

_DIGITS = 4


class _Nobody:
    """An engine that answers every statement with no rows, of whatever columns it names. It has no tables."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def run(self, sql: str) -> pa.Table:
        """Nothing, in the right shape."""
        names = sqlglot.parse_one(sql, read=self.dialect).named_selects  # type: ignore[attr-defined]
        return pa.table({name: pa.array([], type=pa.int64()) for name in names})

    def close(self) -> None:
        """There is nothing to let go of."""


class Portion:
    """A dataset with some of its people; to an estimator a dataset like any other.

    Attributes:
        empty: whether nobody is in it: a fit on it is a rehearsal.
    """

    def __init__(self, data: Any, below: int | None, *, inside: bool) -> None:
        self.account, self.reader, self.version = data.account, data.reader, data.version
        self.empty = below is None
        self.tables = replace(data.tables, engine=_Nobody(data.tables.engine.dialect)) if self.empty else data.tables
        self._data, self._below, self._inside = data, below, inside

    def columns(self, table: str) -> Any:
        """The columns of a table, as the dataset has them."""
        return self._data.columns(table)

    def relation(self, table: str | None, columns: Sequence[str]) -> PrivateTable:
        """The rows of these people. Nothing is read."""
        found: PrivateTable = self._data.relation(table, columns)
        if self._below is None:
            return replace(found, engine=self.tables.engine)
        if found.max_rows is None:
            raise BadInput(
                "here every row is a unit of its own, and no row can be held back the same way twice. "
                "Train without an evaluation."
            )
        named = exp.Cast(this=exp.column(UNIT, quoted=True), to=exp.DataType.build("TEXT"))
        hashed = exp.MD5(this=exp.DPipe(this=exp.Literal.string(f"{found.secret}|held back|"), expression=named))
        limit = exp.Literal.string(f"{self._below:0{_DIGITS}x}")
        return found.where((exp.LT if self._inside else exp.GTE)(this=hashed, expression=limit))


def sides(data: Any, one_in: int) -> tuple[Portion, Portion]:
    """Everybody but about one in so many; and those."""
    below = 16**_DIGITS // one_in
    return Portion(data, below, inside=False), Portion(data, below, inside=True)


def nobody(data: Any) -> Portion:
    """The same dataset without anybody in it."""
    return Portion(data, None, inside=True)
