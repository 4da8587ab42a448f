"""Private tables for models: rows in an engine, the public facts of their columns, and their unit.

    relation = ds.relation("visits", ["age", "ward"])      # through a policy's view, if there is one
    relation.sums([relation.key("ward")])                  # bounded sums, computed where the rows are
    relation.chosen(["age", "ward"])                       # the rows themselves, a bounded number of each unit

Privacy: nothing here is private yet. A relation bounds the contribution of one unit; noise must be added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.engines.engine import Engine
from cloister.data.schema import UNIT, Column, internal, is_reserved
from cloister.data.statistics import GroupKey, Sums, Value
from cloister.privacy.errors import BadSchema
from cloister.privacy.mechanisms import Sensitivity

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ChosenRows", "PrivateTable", "values_of"]


def values_of(column: Column) -> tuple[Any, ...]:
    """Return the public values of a column with few values."""
    listed = (False, True) if column.type == "boolean" else tuple(column.categories or ())
    if not listed:
        raise BadSchema(f"{column.name} has no public values. Give it categories in the schema.")
    return listed


@dataclass(frozen=True, slots=True)
class PrivateTable:
    """Rows in an engine.

    Attributes:
        engine: where they are.
        rows: a query to which projections are added; it has a column `UNIT` if there is a unit column.
        columns: the public facts of the columns used, as the view shows them.
        max_rows: number of rows a unit counts for; None where the unit is the row.
        copies: number of times a row can occur, where the unit is the row.
        table: its name.
        clipped: the numeric columns that a view keeps within their bounds, to the last bit.
        secret: the owner's key for choosing among the rows of a unit, so that the choice cannot be manipulated.
    """

    engine: Engine
    rows: exp.Select
    columns: Mapping[str, Column]
    max_rows: int | None
    copies: int = 1
    table: str = ""
    clipped: frozenset[str] = frozenset()
    secret: str = field(default="", repr=False)

    def sums(self, keys: Sequence[GroupKey] = (), values: Sequence[Value] = ()) -> Sums:
        """Return a statement of sums over all rows."""
        return Sums(self.rows, tuple(keys), tuple(values), self.max_rows, self.copies)

    def tables(self, sets: Sequence[Sequence[GroupKey]], values: Sequence[Value] = ()) -> list[list[NDArray[Any]]]:
        """Return the number of rows and the sums over all groups, for each choice of keys.

        Computing the weights of units is slow, so one statement computes them once. Plain rows are counted faster
        one choice at a time.

        Privacy: reads rows. The caller has charged for it.
        """
        if self.max_rows is None or len(sets) < 2:
            return [self.sums(keys, values).run(self.engine) for keys in sets]
        every = list({key.name: key for keys in sets for key in keys}.values())
        places = [[[group_key.name for group_key in every].index(key.name) for key in keys] for keys in sets]
        return self.sums(every, values).run_sets(self.engine, places)

    def chosen(self, names: Sequence[str], *, unit: bool = False) -> "ChosenRows":
        """Return some columns of the rows themselves, and with `unit` also that of the unit, which is as secret."""
        return ChosenRows(self.rows, tuple(names), self.max_rows, self.secret, unit and self.max_rows is not None)

    def portion(self, digits: str, salt: str = "") -> "PrivateTable":
        """Return the units (or rows) whose keyed hash begins with one of these hexadecimal digits.

        The sixteen portions of one digit are disjoint and hold all rows. Rows of one unit are in one portion. Portions
        of another salt are independent of these.
        """
        names = [UNIT] if self.max_rows is not None else list(self.columns)
        hashed = _keyed_hash(f"{self.secret}{salt}", [exp.column(name, quoted=True) for name in names])
        first = exp.Substring(this=hashed, start=exp.Literal.number(1), length=exp.Literal.number(1))
        columns = [exp.column(name, quoted=True) for name in self.columns]
        rows = exp.select().from_(_named(self.rows.select(*columns), internal("whole")))
        if self.max_rows is not None:
            rows = rows.select(exp.column(UNIT, quoted=True))
        listed = [exp.Literal.string(digit) for digit in digits]
        chosen = (
            exp.EQ(this=first, expression=listed[0]) if len(listed) == 1 else exp.In(this=first, expressions=listed)
        )
        return replace(self, rows=rows.where(chosen))

    def where(self, condition: exp.Expression) -> "PrivateTable":
        """Return the rows that satisfy a condition on single rows."""
        return replace(self, rows=self.rows.where(condition.copy()))

    def with_columns(self, named: Mapping[str, exp.Expression]) -> "PrivateTable":
        """Add columns to the rows, each computed once for each row. `schema.internal` makes their names."""
        # An engine would read a column of the same name in place of the new one, unclipped.
        assert all(is_reserved(name) and name not in self.columns for name in named)
        columns = [exp.column(name, quoted=True) for name in self.columns]
        added = [exp.alias_(sql.copy(), name, quoted=True) for name, sql in named.items()]
        rows = exp.select().from_(_named(self.rows.select(*columns, *added), internal("with")))
        if self.max_rows is not None:
            rows = rows.select(exp.column(UNIT, quoted=True))
        return replace(self, rows=rows)

    @property
    def rows_each(self) -> int:
        """Return the largest number of rows of one unit."""
        return self.copies if self.max_rows is None else self.max_rows

    @property
    def whole(self) -> int:
        """Return the weight of a whole row: sums are multiples of one such part."""
        return self.sums().unit_weight

    @property
    def most(self) -> Sensitivity:
        """Return the largest total weight of all rows of one unit."""
        return self.sums().sensitivity()

    def key(self, name: str, values: Sequence[Any] | None = None) -> GroupKey:
        """Return groups by the public values of a column, or by a given subset of them."""
        column = self.columns[name]
        listed = values_of(column) if values is None else tuple(values)
        return GroupKey(name, exp.column(name, quoted=True), listed, column.type)


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Rows of a relation, at most `most` of each unit.

    A unit with more rows keeps those whose keyed hash is smallest: the choice depends on no other unit's rows, and
    cannot be manipulated without the secret. (Weights, as in sums, do not help where a method needs rows.)

    Attributes:
        rows: as in `PrivateTable`.
        names: the columns that are read.
        most: rows a unit keeps; None where the unit is the row.
        unit: True if the column of the unit is read too.
    """

    rows: exp.Select
    names: tuple[str, ...]
    most: int | None
    secret: str = field(repr=False)
    unit: bool = False

    def sql(self, dialect: str) -> str:
        """Return the statement."""
        columns = [exp.column(name, quoted=True) for name in self.names]
        rows = self.rows.select(*(column.copy() for column in columns))
        if self.most is None:
            return rows.sql(dialect=dialect, identify=True)
        # Rows with equal hashes are (almost surely) equal: order them by value, not by their place in the engine.
        order = [
            exp.Ordered(this=_keyed_hash(self.secret, columns)),
            *(exp.Ordered(this=column.copy()) for column in columns),
        ]
        row_number = exp.Window(
            this=exp.RowNumber(),
            partition_by=[exp.column(UNIT, quoted=True)],
            order=exp.Order(expressions=order),
        )
        read = [*columns, *([exp.column(UNIT, quoted=True)] if self.unit else [])]
        numbered = exp.select(
            *(column.copy() for column in read), exp.alias_(row_number, internal("place"), quoted=True)
        )
        numbered = numbered.from_(_named(rows, internal("in")))
        within = exp.LTE(this=exp.column(internal("place"), quoted=True), expression=exp.Literal.number(self.most))
        query = (
            exp.select(*(column.copy() for column in read)).from_(_named(numbered, internal("numbered"))).where(within)
        )
        return query.sql(dialect=dialect, identify=True)

    def run(self, engine: Engine) -> "pa.Table":
        """Return the rows, in no order.

        Privacy: reads rows, and returns them unchanged. The caller has charged for it, and adds noise.
        """
        return engine.run(self.sql(engine.dialect))


def _keyed_hash(secret: str, columns: Sequence[exp.Expression]) -> exp.Expression:
    """Return the hash of a secret and the values of some columns."""
    hashed: exp.Expression = exp.Literal.string(secret)
    for column in columns:
        text = exp.Cast(this=column.copy(), to=exp.DataType.build("TEXT"))
        filled = exp.Coalesce(this=text, expressions=[exp.Literal.string("~")])
        hashed = exp.DPipe(this=hashed, expression=exp.DPipe(this=exp.Literal.string("|"), expression=filled))
    return exp.MD5(this=hashed)


def _named(query: exp.Query, name: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
