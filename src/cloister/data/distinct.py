"""Statistics of distinct things: units in each group, values of a column, and units with each value.

Privacy: nothing here is private yet. The numbers are exact; noise must be added (privacy.measure). A sensitivity is for
adding or removing one unit.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.engines.engine import Engine
from cloister.data.schema import UNIT, internal
from cloister.data.statistics import IN_LIST, GroupKey, Sums, Value, as_long, named, one_of_values, spread
from cloister.privacy.loss import Relation
from cloister.privacy.mechanisms import Sensitivity

__all__ = ["DistinctPairs", "DistinctUnits"]


@dataclass(frozen=True, slots=True)
class DistinctUnits:
    """The number of units with a row in each group. A unit in more than `max_groups` groups counts less in each."""

    rows: exp.Select
    keys: tuple[GroupKey, ...]
    max_groups: int

    def as_sums(self) -> Sums:
        """Return the equivalent sums over one row per unit and group."""
        keys = [exp.alias_(key.sql.copy(), internal(f"d{i}"), quoted=True) for i, key in enumerate(self.keys)]
        inner = self.rows.copy().select(*keys)
        pairs = exp.select(
            exp.column(UNIT, quoted=True), *(exp.column(internal(f"d{i}"), quoted=True) for i in range(len(self.keys)))
        )
        pairs = pairs.distinct().from_(
            exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(internal("in"), quoted=True)))
        )
        for i, key in enumerate(self.keys):
            if len(key.values) <= IN_LIST:
                pairs = pairs.where(one_of_values(exp.column(internal(f"d{i}"), quoted=True), key.values))
        outer = exp.select(exp.column(UNIT, quoted=True)).from_(
            exp.Subquery(this=pairs, alias=exp.TableAlias(this=exp.to_identifier(internal("pairs"), quoted=True)))
        )
        renamed = tuple(
            GroupKey(key.name, exp.column(internal(f"d{i}"), quoted=True), key.values, key.type)
            for i, key in enumerate(self.keys)
        )
        return Sums(outer, renamed, (), self.max_groups)


@dataclass(frozen=True, slots=True)
class DistinctPairs:
    """For each group, the number of distinct values of a column; without groups, the number of units with each value.

    Weights do not apply here: a value is present or not. So a unit with more than `most` distinct (group, value) pairs
    keeps that many, chosen by a keyed hash of the pair: the choice is deterministic and depends on no other unit's
    rows. Pairs with equal hashes are ordered by their values.

    Attributes:
        rows, keys: as in `Sums`.
        value: the column; a real in its canonical form, or the choice would depend on other people's rows.
        most: pairs a unit keeps; None where the unit is the row.
        secret: keys the hash, so that rows cannot be crafted to be chosen.
    """

    rows: exp.Select
    keys: tuple[GroupKey, ...]
    value: exp.Expression
    most: int | None
    secret: str = field(repr=False)
    copies: int = 1

    unit_weight = 1
    values: tuple[Value, ...] = ()

    @property
    def max_rows(self) -> int | None:
        """Return the number of pairs a unit counts for."""
        return self.most

    @property
    def cells(self) -> int:
        """Return the number of groups."""
        return math.prod(len(key.values) for key in self.keys)

    def sensitivity(self, index: int | None = None) -> Sensitivity:
        """Return the sensitivity of the numbers, over all groups."""
        return Sensitivity(self.copies if self.most is None else self.most, Relation.ADD_REMOVE)

    def sql(self, dialect: str) -> str:
        """Return the statement for the number of distinct values of each group."""
        query, names = self._kept(dialect)
        count = exp.Count(this=exp.Distinct(expressions=[exp.column(internal("x"), quoted=True)]))
        query = exp.select(*names, exp.alias_(as_long(count), internal("n"), quoted=True)).from_(query)
        if names:
            query = query.group_by(*(name.copy() for name in names))
        return query.sql(dialect=dialect, identify=True)

    def units_sql(self, dialect: str) -> str:
        """Return the statement for the values and their numbers of units. Private: a rare value identifies a person."""
        query, _ = self._kept(dialect)
        counted = exp.select(
            exp.column(internal("x"), quoted=True),
            exp.alias_(as_long(exp.Count(this=exp.Star())), internal("n"), quoted=True),
        )
        return counted.from_(query).group_by(exp.column(internal("x"), quoted=True)).sql(dialect=dialect, identify=True)

    def _kept(self, dialect: str) -> tuple[exp.Expression, list[exp.Expression]]:
        names: list[exp.Expression] = [exp.column(internal(f"k{i}"), quoted=True) for i in range(len(self.keys))]
        key_columns = [exp.alias_(key.sql.copy(), internal(f"k{i}"), quoted=True) for i, key in enumerate(self.keys)]
        rows = self.rows.copy().select(*key_columns, exp.alias_(self.value.copy(), internal("x"), quoted=True))
        not_null = exp.Not(this=exp.Is(this=exp.column(internal("x"), quoted=True), expression=exp.Null()))
        if self.most is None:
            inner = (
                exp.select(*names, exp.column(internal("x"), quoted=True))
                .from_(named(rows, internal("in")))
                .where(not_null)
            )
            return named(self._listed(inner), internal("pairs")), names
        unit = exp.column(UNIT, quoted=True)
        pairs = (
            exp.select(unit, *names, exp.column(internal("x"), quoted=True))
            .distinct()
            .from_(named(rows, internal("in")))
            .where(not_null)
        )
        text = exp.DataType.build("TEXT")
        parts = [
            exp.Cast(this=column.copy(), to=text.copy()) for column in (*names, exp.column(internal("x"), quoted=True))
        ]
        joined: exp.Expression = exp.Literal.string(self.secret)
        for part in parts:
            filled = exp.Coalesce(this=part, expressions=[exp.Literal.string("~")])
            joined = exp.DPipe(this=joined, expression=exp.DPipe(this=exp.Literal.string("|"), expression=filled))
        row_number = exp.Window(
            this=exp.RowNumber(),
            partition_by=[unit.copy()],
            order=exp.Order(
                expressions=[
                    exp.Ordered(this=exp.MD5(this=joined)),
                    *(exp.Ordered(this=column.copy()) for column in (*names, exp.column(internal("x"), quoted=True))),
                ]
            ),
        )
        numbered = exp.select(
            *names, exp.column(internal("x"), quoted=True), exp.alias_(row_number, internal("place"), quoted=True)
        )
        numbered = numbered.from_(named(self._listed(pairs), internal("pairs")))
        selected = exp.select(*names, exp.column(internal("x"), quoted=True)).from_(
            named(numbered, internal("numbered"))
        )
        selected = selected.where(
            exp.LTE(this=exp.column(internal("place"), quoted=True), expression=exp.Literal.number(self.most))
        )
        return named(selected, internal("kept")), names

    def _listed(self, query: exp.Select) -> exp.Select:
        for i, key in enumerate(self.keys):
            if len(key.values) <= IN_LIST:
                query = query.where(one_of_values(exp.column(internal(f"k{i}"), quoted=True), key.values))
        return query

    def run(self, engine: Engine) -> list[NDArray[Any]]:
        """Return the number of distinct values of every group.

        Privacy: reads rows. The caller has charged for it.
        """
        return spread(engine.run(self.sql(engine.dialect)), self.keys, self.cells, (internal("n"),))
