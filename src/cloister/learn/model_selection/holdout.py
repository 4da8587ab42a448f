"""Train/test split by hashed unit id, and an empty dataset for dry runs.

The side of a person follows from a keyed hash of the unit alone: all rows of a person are on one side, independent of
other people's rows, the split cannot be chosen without the owner's secret, and it is the same every time. So a release
about one side reveals nothing about the people of the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import sqlglot
from sqlglot import exp

from cloister.data.private_data import ColumnFacts, PrivateData
from cloister.data.private_table import PrivateTable
from cloister.data.schema import UNIT
from cloister.privacy.errors import BadInput

__all__ = ["Portion", "nobody", "sides"]

_DIGITS = 4


class _Nobody:
    """Engine without tables that returns no rows for every statement, with the columns it selects."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def run(self, sql: str) -> pa.Table:
        """Return no rows, with the selected columns."""
        names = sqlglot.parse_one(sql, read=self.dialect).named_selects  # type: ignore[attr-defined]
        return pa.table({name: pa.array([], type=pa.int64()) for name in names})

    def close(self) -> None:
        """Do nothing."""


class Portion:
    """Dataset restricted to some of its people; estimators accept it like any other dataset.

    Attributes:
        empty: True if it holds no people: a fit on it is a dry run.
    """

    def __init__(self, data: PrivateData, below: int | None, *, inside: bool) -> None:
        self.account, self.reader, self.version = data.account, data.reader, data.version
        self.empty = below is None
        self.tables = replace(data.tables, engine=_Nobody(data.tables.engine.dialect)) if self.empty else data.tables  # type: ignore[arg-type]
        self._data, self._below, self._inside = data, below, inside

    def columns(self, table: str) -> Mapping[str, ColumnFacts]:
        """Return the columns of a table, as in the dataset."""
        return self._data.columns(table)

    def relation(self, table: str | None, columns: Sequence[str]) -> PrivateTable:
        """Return the rows of these people. Nothing is read."""
        rows: PrivateTable = self._data.relation(table, columns)
        if self._below is None:
            return replace(rows, engine=self.tables.engine)
        if rows.max_rows is None:
            raise BadInput(
                "here every row is a unit of its own, and no row can be held back the same way twice. "
                "Train without an evaluation."
            )
        named = exp.Cast(this=exp.column(UNIT, quoted=True), to=exp.DataType.build("TEXT"))
        hashed = exp.MD5(this=exp.DPipe(this=exp.Literal.string(f"{rows.secret}|held back|"), expression=named))
        limit = exp.Literal.string(f"{self._below:0{_DIGITS}x}")
        return rows.where((exp.LT if self._inside else exp.GTE)(this=hashed, expression=limit))


def sides(data: PrivateData, one_in: int) -> tuple[Portion, Portion]:
    """Split into all people but about one in `one_in`, and the rest."""
    below = 16**_DIGITS // one_in
    return Portion(data, below, inside=False), Portion(data, below, inside=True)


def nobody(data: PrivateData) -> Portion:
    """Return the dataset without any people."""
    return Portion(data, None, inside=True)
