"""Halves of the people that a job read, on which its twins are made.

A model or table was made from all people, so nobody is left whom it does not know, to compare its members with. A twin
is made in the same way and at the same spend from a random half; it knows the others as little as if they had never
been there. Which half a person is in follows from a keyed hash of the unit and of a salt of the twin's own: each person
is in or out of each twin by a coin of their own. If people were split in groups, all of a group would share the chance
of the draw, and an attack's scores would look surer than they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cloister.data.private_data import ColumnFacts, PrivateData
from cloister.data.private_table import PrivateTable
from cloister.data.schema import UNIT
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.ledger import Account
from cloister.privacy.loss import Loss
from cloister.privacy.noise import SYSTEM

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Half", "one_row_each", "salts", "unrecorded"]

_FIRST, _SECOND = "01234567", "89abcdef"
_MOST_READ = 1_000_000  # people whose rows are read to draw a sample from


class Half:
    """Half of a dataset's people; generators and estimators take it like any other dataset.

    Args:
        data: the dataset.
        salt: of the twin; another salt is another half.
        second: the other half of this salt.
        account: pays in place of the dataset's.

    Attributes:
        empty: False: a fit on it is no dry run.
    """

    def __init__(self, data: PrivateData, salt: str, *, second: bool = False, account: Account | None = None) -> None:
        self.account, self.reader = account or data.account, None if account else data.reader
        self.version, self.tables, self.empty = data.version, data.tables, False
        self._data, self._salt, self._digits = data, salt, _SECOND if second else _FIRST

    def columns(self, table: str) -> Mapping[str, ColumnFacts]:
        """Return the columns of a table, as in the dataset."""
        return self._data.columns(table)

    def relation(self, table: str | None, columns: Sequence[str]) -> PrivateTable:
        """Return the rows of this half. Nothing is read."""
        rows: PrivateTable = self._data.relation(table, columns)
        return rows.portion(self._digits, self._salt)

    def has(self, table: str, column: str, units: "pa.Array") -> NDArray[np.bool_]:
        """Return which of these units are in this half."""
        import pyarrow.compute as pc

        rows = self.relation(table, (column,))
        one = replace(rows, max_rows=1)
        mine = one.chosen((column,), unit=True).run(rows.engine).column(UNIT)
        return np.asarray(pc.is_in(units, value_set=mine.combine_chunks()).to_numpy(zero_copy_only=False))


def salts(draw: np.random.Generator, count: int) -> list[str]:
    """Return salts of twins, new ones for each attack."""
    return [f"|attack {draw.integers(1 << 62):x} {number}" for number in range(count)]


def one_row_each(
    data: PrivateData, table: str, names: Sequence[str], most: int, draw: np.random.Generator
) -> "tuple[pa.Table, pa.Array | None]":
    """Return one row of each unit, of so many units at most by chance, and the units.

    The units are None where the row is the unit.
    """
    relation = data.relation(table, names)
    counted = relation.engine.run(
        f"SELECT COUNT(*) AS n FROM ({relation.rows.select('1').sql(dialect=relation.engine.dialect, identify=True)}) t"  # noqa: S608
    )
    rows = int(counted.column("n")[0].as_py())
    if rows > _MOST_READ:  # whole people, by their hash
        digits = (_FIRST + _SECOND)[: max(1, 16 * _MOST_READ // rows)]
        relation = relation.portion(digits, salts(draw, 1)[0])
    named = relation.max_rows is not None
    one = replace(relation, max_rows=1) if named else relation
    found = one.chosen(names, unit=True).run(relation.engine)
    kept = found.take(np.sort(draw.permutation(found.num_rows)[:most]))
    return kept.select(names), kept.column(UNIT).combine_chunks() if named else None


def unrecorded(account: Account, spend: Loss) -> PrivacyFilter:
    """Return what pays for a twin: a filter that refuses steps beyond the spend, and charges no account.

    Privacy: none. What a twin says is for the owner, who has the rows.
    """
    price = account.price(spend)
    return PrivacyFilter(account, price, SYSTEM, Loss.nothing(price.measure, price.relation))
