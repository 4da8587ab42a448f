"""Bounded statistics: integer sums by group, computed in the engine, with each person's contribution bounded.

Counts, sums, cross products, histograms, marginals and the leaves of quantile trees have one form: for each group,
the sum over rows of a few integers within public limits. One statement computes them exactly, in any engine.

The contribution bound is a weight, not a choice of rows. A person with n > m rows has each of them counted m/n times
(in units of 1/G, G = 2^20, rounded down). This is the mean of choosing m rows at random, with less variance, without a
secret, and equal in every engine. Rounding loses less than n/(mG) of a person's contribution: 1 % at 10,000 m rows.
As n · floor(Gm/n) <= Gm, one person adds at most m · max|value| to all groups together.

    WITH rows AS (…), heavy AS (SELECT unit, COUNT(*) AS held FROM rows GROUP BY unit HAVING COUNT(*) > m)
    SELECT key…, SUM(weight), SUM(weight * value)… FROM rows LEFT JOIN heavy USING (unit) GROUP BY key…

Privacy: nothing here is private yet. The sums are exact; noise must be added (privacy.measure). These functions
guarantee the sensitivity they state, for adding or removing one unit. The sensitivity carries its neighbour relation,
and no mechanism accepts it with a loss for another relation.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.dialect import Dialect, as_double, canonical, dialect_of, literal
from cloister.data.engines.engine import Engine
from cloister.data.schema import UNIT, internal
from cloister.privacy.errors import BadBounds, BadSchema
from cloister.privacy.loss import Relation
from cloister.privacy.mechanisms import Sensitivity

__all__ = [
    "WEIGHT",
    "GroupKey",
    "Known",
    "Sums",
    "Value",
    "grid_value",
    "whole_value",
]

WEIGHT = 2**20  # weight of a whole row where the unit is a person; rows may weigh less
_LARGEST = 2**42  # times a weight it fits into 63 bits; the sum of 2^63 such rows has 38 digits
# Long lists of text are slow to search; groups that are not listed are left out afterwards anyway.
IN_LIST = 50


@dataclass(frozen=True, slots=True)
class Value:
    """An integer for each row, within public limits; NULL adds nothing.

    Attributes:
        sql: the expression, over the columns of the rows.
        low, high: its limits; `grid_value` and `whole_value` clip to them, so they hold whatever the expression gives.
    """

    sql: exp.Expression
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high or max(abs(self.low), abs(self.high)) > _LARGEST:
            raise BadBounds("a value needs low <= high, both within 42 bits. Use a coarser grid or narrower bounds.")

    @property
    def reach(self) -> int:
        """Return the largest absolute value that one row adds."""
        return max(abs(self.low), abs(self.high))

    def total(self, name: str, weight: str | None, dialect: str) -> str:
        """Return the sum over all rows as SQL, where the value is called `name`."""
        return _total(name if weight is None else f"{weight} * {name}", dialect)


@dataclass(frozen=True, slots=True)
class Known(Value):
    """One for each row where an expression is not NULL."""

    low: int = 0
    high: int = 1

    def total(self, name: str, weight: str | None, dialect: str) -> str:
        """Return the number of rows that are not NULL, as SQL."""
        if weight is None:
            return f"CAST(COUNT({name}) AS BIGINT)"
        return _total(f"CASE WHEN {name} IS NULL THEN 0 ELSE {weight} END", dialect)


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A public list of groups: the expression for a row's group, and every accepted value."""

    name: str
    sql: exp.Expression
    values: Sequence[Any]
    type: str

    def __post_init__(self) -> None:
        if not self.values:
            raise BadSchema(f"group {self.name} has no values. List them in the schema or in the query.")
        object.__setattr__(self, "sql", canonical(self.sql, self.type))


def grid_value(
    sql: exp.Expression, low: float, high: float, exponent: int, centre: float = 0.0, *, clipped: bool = False
) -> Value:
    """Return a real expression rounded to multiples of 2^-exponent, relative to a public centre.

    floor((x - centre) · 2^exponent + 1/2), clipped: rounding happens row by row, before anything is summed.
    If the grid is coarser than 1, half a step is added first: a tiny x times the factor would underflow, which is an
    error in PostgreSQL. `clipped` states that a view already keeps it within low and high.
    """
    step = 2.0**exponent
    ends = [math.floor((end - centre) * step + 0.5) for end in (low, high)]
    # Clip first: values beyond 64 bits must not reach the cast, nor FLOOR, which in Spark is a cast too. All later
    # steps are monotone, rounding included, so no result is beyond the images of the limits.
    moved: exp.Expression = as_double(sql)
    if not clipped:
        moved = _clipped(moved, literal(float(low)), literal(float(high)))
    if centre:
        moved = exp.Paren(this=exp.Sub(this=moved, expression=literal(centre)))
    if step >= 1:
        scaled: exp.Expression = exp.Add(this=exp.Mul(this=moved, expression=literal(step)), expression=literal(0.5))
    else:
        raised = exp.Paren(this=exp.Add(this=moved, expression=literal(0.5 / step)))
        scaled = exp.Mul(this=raised, expression=literal(step))
    return Value(as_long(exp.Floor(this=scaled)), ends[0], ends[1])


def whole_value(sql: exp.Expression, low: int, high: int, *, clipped: bool = False) -> Value:
    """Return an integer expression, clipped to its limits unless a view already keeps it within them."""
    if clipped:
        return Value(sql.copy(), low, high)
    return Value(_clipped(exp.Paren(this=sql.copy()), literal(low), literal(high)), low, high)


@dataclass(frozen=True, slots=True)
class Sums:
    """For each group, the number of rows and the sums of some values.

    Attributes:
        rows: FROM and WHERE, a query to which projections are added; it has a column `UNIT` if there is a unit column.
        keys: the groups; without keys there is one total.
        values: the values summed besides the number of rows.
        max_rows: largest number of rows a unit counts for; None where the unit is the row.
        copies: number of times a row can occur in `rows`, where the unit is the row.
    """

    rows: exp.Select
    keys: tuple[GroupKey, ...]
    values: tuple[Value, ...]
    max_rows: int | None
    copies: int = 1

    @property
    def unit_weight(self) -> int:
        """Return the weight of a whole row: results are multiples of 1/unit_weight."""
        return 1 if self.max_rows is None else WEIGHT

    @property
    def cells(self) -> int:
        """Return the number of groups."""
        return math.prod(len(key.values) for key in self.keys)

    def sensitivity(self, index: int | None = None) -> Sensitivity:
        """Return the L1 sensitivity, over all groups, of the sums of value `index` (None: the number of rows).

        The L2 sensitivity is equal: all of a person's rows may be in one group.
        """
        reach = 1 if index is None else self.values[index].reach
        rows = self.copies if self.max_rows is None else self.max_rows
        return Sensitivity(reach * self.unit_weight * rows, Relation.ADD_REMOVE)

    def sql(self, dialect: str) -> str:
        """Return the statement."""
        names = [dialect_of(dialect).name(internal(f"k{i}")) for i in range(len(self.keys))]
        return self._statement(dialect, names, f" GROUP BY {', '.join(names)}" if names else "")

    def sets_sql(self, dialect: str, sets: Sequence[Sequence[int]]) -> str:
        """Return one statement for several choices of keys, given by index: the weights of units are computed once."""
        names = [dialect_of(dialect).name(internal(f"k{i}")) for i in range(len(self.keys))]
        listed = ", ".join(f"({', '.join(names[i] for i in members)})" for members in sets)
        which = [f"GROUPING({name}) AS {dialect_of(dialect).name(internal(f'g{i}'))}" for i, name in enumerate(names)]
        return self._statement(dialect, [*names, *which], f" GROUP BY GROUPING SETS ({listed})")

    def _statement(self, dialect: str, columns: Sequence[str], grouped: str) -> str:
        say = dialect_of(dialect)
        keys = [exp.alias_(key.sql, internal(f"k{i}"), quoted=True) for i, key in enumerate(self.keys)]
        values = [exp.alias_(value.sql, internal(f"v{i}"), quoted=True) for i, value in enumerate(self.values)]
        rows = self.rows.select(*keys, *values)
        if not rows.expressions:  # a bare number of rows
            rows = rows.select(exp.alias_(exp.Literal.number(1), internal("row"), quoted=True))
        weight, source = self._weight(say)
        sums = [f"{_total(weight, dialect)} AS {say.name(internal('n'))}"]
        for i in range(len(self.values)):
            total = self.values[i].total(say.name(internal(f"v{i}")), weight, dialect)
            sums.append(f"{total} AS {say.name(internal(f's{i}'))}")
        # Read rows twice instead of copying them, unless units would have to be joined twice. Spark decides by itself.
        hint = "" if dialect == "spark" or _joins_people(rows) else "NOT MATERIALIZED "
        parts = [f"{say.name(internal('rows'))} AS {hint}({rows.sql(dialect, identify=True)})"]
        if self.max_rows is not None:
            parts.append(f"{say.name(internal('heavy'))} AS ({_heavy(self.max_rows, say)})")
        return f"WITH {', '.join(parts)} SELECT {', '.join([*columns, *sums])} FROM {source}{grouped}"  # noqa: S608

    def _weight(self, say: Dialect) -> tuple[str | None, str]:
        """Return the weight of a row, and the FROM clause that has it."""
        rows, heavy, count = (say.name(internal(name)) for name in ("rows", "heavy", "held"))
        if self.max_rows is None:
            return None, rows
        most = say.constant(float(WEIGHT * self.max_rows))
        part = f"CAST(FLOOR({most} / CAST({count} AS {say.double})) AS BIGINT)"
        weight = f"CASE WHEN {count} IS NULL THEN {WEIGHT} ELSE {part} END"
        joined = f"{rows} LEFT JOIN {heavy} ON {rows}.{say.name(UNIT)} = {heavy}.{say.name(internal('person'))}"
        return weight, joined

    def run(self, engine: Engine) -> list[NDArray[Any]]:
        """Return the numbers of rows and the sums, one array over all groups each, in the order of the keys' values.

        Privacy: reads rows. The caller has charged for it.
        """
        return spread(engine.run(self.sql(engine.dialect)), self.keys, self.cells, self._names)

    def run_sets(self, engine: Engine, sets: Sequence[Sequence[int]]) -> list[list[NDArray[Any]]]:
        """Return the results of `run` for each choice of keys, from one statement.

        Privacy: reads rows. The caller has charged for it. The sensitivity holds for each choice.
        """
        return [
            spread(result, keys, math.prod(len(key.values) for key in keys), self._names)
            for keys, result in self._each(engine, sets)
        ]

    def run_occupied(self, engine: Engine, sets: Sequence[Sequence[int]]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Return, for each choice of keys, the indices of groups with rows in rising order, and their numbers of rows.

        For choices with more groups than fit into memory: only groups with rows are listed.

        Privacy: as `run_sets`. The set of groups with rows is as secret as the rows.
        """
        answers = []
        for keys, result in self._each(engine, sets):
            index, listed = _places(result, keys)
            numbers = integers(result.column(self._names[0]))[listed]
            order = np.argsort(index[listed], kind="stable")
            answers.append((index[listed][order], numbers[order]))
        return answers

    def _each(self, engine: Engine, sets: Sequence[Sequence[int]]) -> Iterator[tuple[tuple[GroupKey, ...], pa.Table]]:
        """Yield the rows of the result for each choice of keys, with its keys as k0, k1, …."""
        if len(sets) == 1 and list(sets[0]) == list(range(len(self.keys))):  # all of them: an ordinary statement
            yield self.keys, engine.run(self.sql(engine.dialect))
            return
        table = engine.run(self.sets_sql(engine.dialect, sets))
        grouping = np.array([integers(table.column(internal(f"g{i}"))) for i in range(len(self.keys))])
        for members in sets:
            left_out = np.array([[0 if i in members else 1] for i in range(len(self.keys))])
            some = table.filter(pa.array((grouping == left_out).all(axis=0)))
            columns = [*(some.column(internal(f"k{i}")) for i in members), *(some.column(name) for name in self._names)]
            named = pa.table(columns, names=[*(internal(f"k{i}") for i in range(len(members))), *self._names])
            yield tuple(self.keys[i] for i in members), named

    @property
    def _names(self) -> tuple[str, ...]:
        return (internal("n"), *(internal(f"s{i}") for i in range(len(self.values))))


def spread(table: pa.Table, keys: Sequence[GroupKey], cells: int, names: Sequence[str]) -> list[NDArray[Any]]:
    """Return columns of a result, one entry per group in the order of the keys' values; groups without rows are 0."""
    index, listed = _places(table, keys)
    answers = []
    for name in names:
        numbers = integers(table.column(name))[listed]
        answer = np.zeros(cells, dtype=numbers.dtype)
        answer[index[listed]] = numbers
        answers.append(answer)
    return answers


def _places(table: pa.Table, keys: Sequence[GroupKey]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the group index of each line of a result, and whether the group is a listed one."""
    index, listed = np.zeros(table.num_rows, dtype=np.int64), np.ones(table.num_rows, dtype=bool)
    for i, key in enumerate(keys):
        code, inside = _codes(table.column(internal(f"k{i}")), key)
        index = index * len(key.values) + code
        listed &= inside
    return index, listed


def _joins_people(rows: exp.Select) -> bool:
    """Return True if private tables are joined, which is by their units."""
    return any(column.name == UNIT for join in rows.find_all(exp.Join) for column in join.find_all(exp.Column))


def named(query: exp.Query, name: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))


def as_long(sql: exp.Expression) -> exp.Expression:
    return exp.Cast(this=sql, to=exp.DataType.build("BIGINT"))


def integers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of exact sums as int64, or as Python integers if one does not fit; NULL is zero."""
    array = pc.fill_null(column, pa.scalar(0, column.type)).combine_chunks()
    if not pa.types.is_decimal(array.type):
        return np.asarray(array.cast(pa.int64()).to_numpy(zero_copy_only=False))
    if array.type.scale == 0 and array.type.bit_width == 128:
        # 128-bit integers, little end first: if the upper half only repeats the sign, the lower half is the number.
        halves = np.frombuffer(array.buffers()[1], dtype=np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
        low, high = halves[0::2], halves[1::2]
        if (high == low >> np.int64(63)).all():
            return low.copy()
    return np.array([int(number) for number in array.to_pylist()], dtype=object)


def _codes(column: pa.ChunkedArray, key: GroupKey) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the index of each value in the key's list, and whether it is in the list."""
    if isinstance(key.values, range) and key.values.step == 1:
        present = np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), dtype=bool)
        index = np.asarray(pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)) - key.values.start
        inside = present & (index >= 0) & (index < len(key.values))
        return np.where(inside, index, 0), inside
    kinds = {
        "integer": pa.int64(),
        "text": pa.string(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
        "real": pa.float64(),
    }
    values = [value + 0.0 if isinstance(value, float) else value for value in key.values]
    listed = pa.array(values, type=kinds[key.type])
    index = pc.index_in(column.cast(kinds[key.type]), value_set=listed)
    in_list = np.asarray(pc.is_valid(index).to_numpy(zero_copy_only=False), dtype=bool)
    return np.asarray(pc.fill_null(index, 0).to_numpy(zero_copy_only=False), dtype=np.int64), in_list


def _heavy(max_rows: int, say: Dialect) -> str:
    """Return the statement for units with more rows than they count for, and their numbers of rows."""
    unit, person, count = say.name(UNIT), say.name(internal("person")), say.name(internal("held"))
    rows = say.name(internal("rows"))
    return f"SELECT {unit} AS {person}, COUNT(*) AS {count} FROM {rows} GROUP BY {unit} HAVING COUNT(*) > {max_rows}"  # noqa: S608


def _total(summed: str | None, dialect: str) -> str:
    """Return an exact sum as SQL; of None, the number of rows."""
    if summed is None:
        return "CAST(COUNT(*) AS BIGINT)"
    # DuckDB and PostgreSQL sum 64-bit integers in more than 64 bits; Spark needs a cast.
    inner = f"CAST({summed} AS DECIMAL(38, 0))" if dialect == "spark" else summed
    return f"CAST(SUM({inner}) AS DECIMAL(38, 0))"


def one_of_values(column: exp.Expression, values: Sequence[Any]) -> Any:
    present = [value for value in values if value is not None]
    test: Any = exp.In(this=column, expressions=[literal(value) for value in present]) if present else exp.false()
    if None in values:
        test = exp.or_(test, exp.Is(this=column.copy(), expression=exp.Null()))
    return test


def _clipped(sql: exp.Expression, low: exp.Expression, high: exp.Expression) -> exp.Expression:
    """Clip to limits. NULL stays NULL; NaN, which every engine sorts above all numbers, becomes the upper limit.

    DuckDB passes a batch on unchanged if all its rows are within the limits; LEAST and GREATEST cost it twice as much.
    """
    below, above = exp.LT(this=sql.copy(), expression=low.copy()), exp.GT(this=sql.copy(), expression=high.copy())
    return exp.Case(ifs=[exp.If(this=below, true=low), exp.If(this=above, true=high)], default=sql.copy())
