"""A table of a dataset as a model sees it: columns with what is public of them, and sums made in the engine.

Rows never leave the engine: a model asks for integers by group (`data.statistics.Sums`), and noise is added to those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from cloister.data.literals import as_double, literal
from cloister.data.schema import UNIT, Column
from cloister.data.statistics import GroupKey, Sums, Value, grid_value
from cloister.privacy.errors import BadInput, BadSchema

__all__ = ["Relation", "check_filled", "is_number", "read_relation", "scaled_cell", "values_of"]


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows in an engine.

    Attributes:
        engine: where they are.
        rows: a query to which projections are added; it gives `_unit` if there is a unit column.
        columns: what is public of those that are used.
        max_rows: how many rows a unit counts for; None where the unit is the row.
        copies: how often a row can occur, where the unit is the row.
    """

    engine: Any
    rows: exp.Select
    columns: Mapping[str, Column]
    max_rows: int | None
    copies: int = 1

    def sums(self, keys: Sequence[GroupKey] = (), values: Sequence[Value] = ()) -> Sums:
        """A statement over all rows."""
        return Sums(self.rows, tuple(keys), tuple(values), self.max_rows, self.copies)

    def with_columns(self, named: Mapping[str, exp.Expression]) -> "Relation":
        """The same rows with further columns, each computed once for each row."""
        shown = [exp.column(name, quoted=True) for name in self.columns]
        made = [exp.alias_(sql.copy(), name, quoted=True) for name, sql in named.items()]
        inner = self.rows.select(*shown, *made)
        view = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("_with", quoted=True)))
        rows = exp.select().from_(view)
        if self.max_rows is not None:
            rows = rows.select(exp.column(UNIT, quoted=True))
        return replace(self, rows=rows)

    @property
    def whole(self) -> int:
        """What a whole row counts: sums are multiples of one such part."""
        return self.sums().unit_weight

    @property
    def most(self) -> int:
        """What all rows of one unit count together, at most."""
        return self.sums().sensitivity()

    def key(self, name: str) -> GroupKey:
        """Groups by the public values of a column."""
        column = self.columns[name]
        return GroupKey(name, exp.column(name, quoted=True), values_of(column), column.type)


def read_relation(data: Any, table: str | None, columns: Sequence[str]) -> Relation:
    """Read what a caller named against the schema, and through the view that a policy gives. No row is looked at."""
    private = [name for name, one in data.tables.schema.tables.items() if not one.public]
    name = table or (private[0] if len(private) == 1 else None)
    if name is None or name not in private:
        raise BadSchema("say which private table to learn from: table='visits'.")
    found = data._table(name, frozenset(one.lower() for one in columns))
    unknown = [one for one in columns if one not in found.columns or found.columns[one].unit]
    if unknown:
        raise BadSchema(f"there is no column {name}.{unknown[0]} to learn from. Look at the schema.")
    view = exp.Subquery(this=found.sql.copy(), alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
    rows = exp.select().from_(view)
    facts = {one: _column(one, found.columns[one]) for one in columns}
    if found.by_row:
        return Relation(data.tables.engine, rows, facts, None, found.copies)
    most = min(data.tables.schema.unit.max_rows, found.most or data.tables.schema.unit.max_rows)
    return Relation(data.tables.engine, rows.select(exp.column(UNIT, quoted=True)), facts, most)


def _column(name: str, term: Any) -> Column:
    """What is public of a column, after what was found about it."""
    if term.type == "boolean" or (term.type in ("text", "integer") and term.values is not None):
        listed = None if term.type == "boolean" else tuple(term.values)
        return Column(name, term.type, categories=listed, nullable=term.nullable)
    if term.type in ("integer", "real") and term.low is not None and term.high is not None:
        kind = int if term.type == "integer" else float
        return Column(name, term.type, (kind(term.low), kind(term.high)), nullable=term.nullable)
    raise BadSchema(f"{name} has neither public bounds nor categories. Give them in the schema.")


def is_number(column: Column) -> bool:
    """Whether it is a number between public bounds."""
    return column.bounds is not None


def values_of(column: Column) -> tuple[Any, ...]:
    """The public values of a column that has few."""
    listed = (False, True) if column.type == "boolean" else tuple(column.categories or ())
    if not listed:
        raise BadSchema(f"{column.name} has no public values. Give it categories in the schema.")
    return listed


def check_filled(column: Column, fill: float | None) -> None:
    """Refuse a column in which numbers may be missing, unless what stands for them is public."""
    if column.nullable and is_number(column) and fill is None:
        raise BadInput(
            f"{column.name} may be NULL. Say nullable: false in the schema, which leaves such rows out, or give fill."
        )


def scaled_cell(column: Column, bits: int, fill: float | None = None) -> Value:
    """A number as an integer: its bounds become ∓2^(bits-1), the middle between them 0."""
    low, high = (float(end) for end in column.bounds or (0, 1))  # type: ignore[arg-type]
    sql: exp.Expression = as_double(exp.column(column.name, quoted=True))
    if column.nullable and fill is not None:
        sql = exp.Coalesce(this=sql, expressions=[literal(float(fill))])
    moved = exp.Paren(this=exp.Sub(this=sql, expression=literal((low + high) / 2)))
    scaled = exp.Paren(this=exp.Mul(this=moved, expression=literal(1 / (high - low))))
    return grid_value(scaled, -0.5, 0.5, bits)
