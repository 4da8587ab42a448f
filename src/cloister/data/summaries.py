"""Statistics for models and synthesisers, by column names: counts, histograms, marginals, sums, products.

Each function turns public facts of the schema into one `Sums`: a statement that every engine runs, and its
sensitivity. Nothing is read until `run`, and nothing is private until noise is added.

    table = marginal(tables, "visits", ["ward", "age"], bins=20)
    exact, = table.sums.run(tables.engine)[:1]       # after the charge: integers over ward × age
    noisy = DiscreteGaussian.for_loss(table.sums.sensitivity(), loss).release(exact)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

from sqlglot import exp

from cloister.data.dialect import as_double, literal, rounded_near_zero
from cloister.data.schema import UNIT, Column
from cloister.data.statistics import GroupKey, Sums, Value, grid_value
from cloister.data.tables import Tables
from cloister.privacy.errors import BadSchema

__all__ = ["Axis", "Summary", "axis", "counts", "cross_products", "histogram", "marginal", "sums"]

_STEP_BITS = 30
_MOST_VALUES = 4096
_FARTHEST = 1e100
_TINY = 1e-100  # a difference from a larger number is zero or at least one unit in its last place


@dataclass(frozen=True, slots=True)
class Axis:
    """One side of a marginal.

    Attributes:
        key: the group expression and its public values.
        labels: the meaning of each value: a category, an integer, or the (low, high) of a bin; None for NULL.
    """

    key: GroupKey
    labels: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A statement and the meaning of its numbers.

    Attributes:
        sums: the statement; its integers are multiples of `1 / sums.unit_weight` rows, or of `step` below.
        axes: the sides of the table of counts, in order.
        terms: the column, or pair of columns, of each sum.
        step: the size of one integer step of a sum.
    """

    sums: Sums
    axes: tuple[Axis, ...] = ()
    terms: tuple[tuple[str, ...], ...] = ()
    step: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table of counts."""
        return tuple(len(axis.labels) for axis in self.axes)


def counts(tables: Tables, table: str) -> Summary:
    """Count the rows."""
    return Summary(_sums(tables, table, (), (), ()))


def histogram(tables: Tables, table: str, column: str, bins: int = 32) -> Summary:
    """Count the rows of each value of a column, or of each of `bins` equal bins between its bounds."""
    return marginal(tables, table, [column], bins)


def marginal(tables: Tables, table: str, columns: Sequence[str], bins: int = 32) -> Summary:
    """Count the rows of each combination of values; numbers with many values are cut into `bins` equal bins.

    A unit changes all cells together by at most its capped number of rows (L1, and L2 too).
    """
    axes = tuple(axis(_column(tables, table, name), bins) for name in columns)
    return Summary(_sums(tables, table, columns, tuple(axis.key for axis in axes), ()), axes)


def sums(tables: Tables, table: str, columns: Sequence[str]) -> Summary:
    """Sum columns, each scaled to [-1, 1] by its public bounds, and count the rows."""
    values = tuple(_grid(_scaled(_column(tables, table, name))) for name in columns)
    terms = tuple((name,) for name in columns)
    return Summary(_sums(tables, table, columns, (), values), (), terms, 2.0**-_STEP_BITS)


def cross_products(tables: Tables, table: str, columns: Sequence[str]) -> Summary:
    """Sum the products of every two columns (a column with itself too), each scaled to [-1, 1] by public bounds.

    This is the upper triangle of X'X, rounded to a grid row by row, in one pass over the rows.
    """
    scaled = {name: _scaled(_column(tables, table, name)) for name in columns}
    pairs = tuple(combinations_with_replacement(columns, 2))
    values = tuple(_grid(exp.Mul(this=scaled[a].copy(), expression=scaled[b].copy())) for a, b in pairs)
    return Summary(_sums(tables, table, columns, (), values), (), pairs, 2.0**-_STEP_BITS)


def axis(column: Column, bins: int) -> Axis:
    """Return the groups of a column: its categories or values if they are few, else equal bins."""
    sql, missing = exp.column(column.name, quoted=True), (None,) if column.nullable else ()
    listed: tuple[Any, ...] | None = None
    if column.categories is not None:
        listed = tuple(column.categories)
    elif column.type == "boolean":
        listed = (False, True)
    elif column.type == "integer" and column.bounds is not None and _width(column) < max(bins, 1):
        first, last_value = (int(end) for end in column.bounds)  # type: ignore[arg-type]
        listed = tuple(range(first, last_value + 1))
    if listed is not None:
        return Axis(GroupKey(column.name, sql, (*listed, *missing), column.type), (*listed, *missing))
    if column.type not in ("integer", "real") or column.bounds is None or not 1 <= bins <= _MOST_VALUES:
        raise BadSchema(f"{column.name} has no public values to count by. Give it categories or bounds in the schema.")
    low, width = _ends(column)[0], _width(column) / bins
    moved = _away(as_double(sql), low, width)
    index = exp.Floor(this=exp.Mul(this=moved, expression=literal(1 / width)))
    last = exp.GT(this=index, expression=literal(float(bins - 1)))
    number = exp.Cast(
        this=exp.Case(ifs=[exp.If(this=last, true=literal(float(bins - 1)))], default=index.copy()),
        to=exp.DataType.build("BIGINT"),
    )
    labels = tuple((low + i * width, low + (i + 1) * width) for i in range(bins))
    return Axis(GroupKey(column.name, number, (*range(bins), *missing), "integer"), (*labels, *missing))


def _sums(
    tables: Tables, table: str, columns: Sequence[str], keys: tuple[GroupKey, ...], values: tuple[Value, ...]
) -> Sums:
    facts = tables.schema.tables[table]
    if facts.public:
        raise BadSchema(f"{table} is public: read it directly.")
    view = exp.Subquery(
        this=tables.view(table, tuple(dict.fromkeys(columns))),
        alias=exp.TableAlias(this=exp.to_identifier(table, quoted=True)),
    )
    rows = exp.select().from_(view)
    if facts.unit is None:
        return Sums(rows, keys, values, None)
    most = min(tables.schema.unit.max_rows, facts.max_rows or tables.schema.unit.max_rows)
    return Sums(rows.select(exp.column(UNIT, quoted=True)), keys, values, most)


def _column(tables: Tables, table: str, name: str) -> Column:
    facts = tables.schema.tables.get(table)
    if facts is None or name not in facts.columns:
        raise BadSchema(f"there is no column {table}.{name} in the schema.")
    return facts.columns[name]


def _scaled(column: Column) -> exp.Expression:
    """Return a number shifted and scaled so that its public bounds become -1 and 1."""
    if column.type not in ("integer", "real") or column.bounds is None:
        raise BadSchema(f"{column.name} is not a number with public bounds. Give them in the schema.")
    low, high = _ends(column)
    half = (high - low) / 2
    moved = _away(as_double(exp.column(column.name, quoted=True)), low + half, half)
    return exp.Paren(this=exp.Mul(this=moved, expression=literal(1 / half)))


def _away(sql: exp.Expression, point: float, width: float) -> exp.Expression:
    """Return the distance of a number from a point. Dividing it by the width must not underflow (see dialect)."""
    difference = exp.Sub(this=sql, expression=literal(point))
    return rounded_near_zero(difference) if width > 1 and abs(point) < _TINY else exp.Paren(this=difference)


def _grid(sql: exp.Expression) -> Value:
    return grid_value(sql, -1.0, 1.0, _STEP_BITS)


def _width(column: Column) -> float:
    low, high = _ends(column)
    return max(high - low, math.ulp(1.0))


def _ends(column: Column) -> tuple[float, float]:
    """Return bounds within which no engine overflows or underflows: PostgreSQL's error would reveal a row."""
    low, high = (float(end) for end in column.bounds or (0, 0))  # type: ignore[arg-type]
    if max(abs(low), abs(high)) > _FARTHEST:
        raise BadSchema(f"{column.name} has bounds beyond 1e100. Give narrower ones in the schema.")
    return low, high
