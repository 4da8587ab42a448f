"""Columns of a dataset as features of a linear model, and their moments computed in its engine.

A number becomes a feature within [-1, 1] by the bounds of the schema; a boolean or a column with categories becomes one
feature for each value, 1 where the row has it. So every column has at most one unit of length in a row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from sqlglot import exp

from cloister.data.literals import as_double, literal
from cloister.data.schema import UNIT, Column
from cloister.data.statistics import GroupKey, Sums, Value, grid_value
from cloister.data.summaries import axis
from cloister.data.tables import Tables
from cloister.learn.exact import Integers
from cloister.learn.frame import Floats
from cloister.learn.purse import Purse
from cloister.learn.quadratic import Moments, Sensitivity, release_moments
from cloister.learn.survey import root_above
from cloister.privacy.errors import BadInput, BadSchema, NotPrivate
from cloister.privacy.meter import Meter

__all__ = ["Design", "read_design"]

_BITS = 20
_ONE = 2**_BITS
_MOST_FEATURES = 200


@dataclass(frozen=True, slots=True)
class _Feature:
    """One feature: the column it comes from, its SQL, and how numbers are scaled (value - centre) · scale."""

    column: str
    name: str
    sql: exp.Expression
    centre: float = 0.0
    scale: float = 1.0
    indicator: bool = True


@dataclass(frozen=True, slots=True)
class Design:
    """What is learned from what.

    Attributes:
        tables: where rows are.
        table, target: what is predicted.
        classes: the target's public values.
        features: in the order of the coefficients.
    """

    tables: Tables
    table: str
    target: str
    classes: tuple[Any, ...]
    features: tuple[_Feature, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """`age` for a number, `ward=surgery` for a value."""
        return tuple(one.name for one in self.features)

    @property
    def scale(self) -> Floats:
        """Of each feature."""
        return np.array([one.scale for one in self.features])

    @property
    def centre(self) -> Floats:
        """Of each feature."""
        return np.array([one.centre for one in self.features])

    def moments(self, meter: Meter, budget: Purse) -> Moments:
        """Counts, sums and products with noise.

        Privacy: the budget, for the unit of the schema. A row has at most one unit of length for each of m columns;
            a unit has at most so many rows, or parts of more.
        """
        pairs, sums = self._statement()
        d, k = len(self.features), len(self.classes)
        columns = len({one.column for one in self.features})
        rows = sums.sensitivity()  # of the number of rows, in units of 1/unit_weight
        heavy = math.isqrt(columns)  # counts weigh as much as sums, so that they have less noise
        pair_count = columns * (columns + 1) // 2
        reach = Sensitivity(
            lines=root_above((columns + heavy**2) * _ONE**2) * rows,
            lines_l1=(columns + heavy) * _ONE * rows,
            products=root_above(pair_count * _ONE**2) * rows,
            products_l1=pair_count * _ONE * rows,
        )

        def look() -> tuple[Integers, Integers]:
            counts, *found = sums.run(self.tables.engine)
            lines = np.zeros((k, d + 1), dtype=object)
            for j in range(d):
                lines[:, j] = found[j]
            lines[:, -1] = counts.astype(object) * (heavy * _ONE)
            upper = np.zeros((d, d), dtype=object)
            for (i, j), value in zip(pairs, found[d:], strict=True):
                upper[i, j] = int(value.sum())
            for j, one in enumerate(self.features):
                if one.indicator:
                    upper[j, j] = int(found[j].sum())
            return lines.ravel(), upper[np.triu_indices(d)]

        whole = _ONE * sums.unit_weight
        return release_moments(meter, budget, look, reach, (k, d), (1 / (heavy * whole), 1 / whole, 1 / whole))

    def _statement(self) -> tuple[list[tuple[int, int]], Sums]:
        """Sums by class of every feature and of every product that is not known to be zero or the feature itself."""
        pairs = [
            (i, j)
            for i, j in combinations_with_replacement(range(len(self.features)), 2)
            if self.features[i].column != self.features[j].column or not self.features[i].indicator
        ]
        values = [_grid(one.sql) for one in self.features]
        for i, j in pairs:
            left, right = self.features[i].sql.copy(), self.features[j].sql.copy()
            values.append(_grid(exp.Mul(this=exp.Paren(this=left), expression=exp.Paren(this=right))))
        known = self.tables.schema.tables[self.table]
        used = (self.target, *dict.fromkeys(one.column for one in self.features))
        view = exp.Subquery(
            this=self.tables.view(self.table, used),
            alias=exp.TableAlias(this=exp.to_identifier(self.table, quoted=True)),
        )
        key = (
            GroupKey(self.target, exp.column(self.target, quoted=True), self.classes, known.columns[self.target].type),
        )
        rows = exp.select().from_(view)
        if known.unit is None:
            return pairs, Sums(rows, key, tuple(values), None)
        most = min(self.tables.schema.unit.max_rows, known.max_rows or self.tables.schema.unit.max_rows)
        return pairs, Sums(rows.select(exp.column(UNIT, quoted=True)), key, tuple(values), most)


def read_design(
    data: Any, target: str | None, features: Sequence[str] | None, table: str | None, classes: Sequence[Any] | None
) -> Design:
    """Read what a caller named against the schema. Nothing of the rows is looked at."""
    if not getattr(data, "whole", True):  # the statement below reads the table itself, hidden rows and columns too
        raise NotPrivate("this model reads whole tables, and some are seen through a view. Use MixedNB or Ridge.")
    private = {name: one for name, one in data.tables.schema.tables.items() if not one.public}
    name = table or (next(iter(private)) if len(private) == 1 else None)
    if name is None or name not in private:
        raise BadSchema("say which private table to learn from: table='visits'.")
    columns = private[name].columns
    if target is None or target not in columns:
        raise BadInput("say which column of the schema to predict: target='readmitted'.")
    chosen = tuple(features) if features is not None else tuple(_usable(columns, target))
    unknown = [one for one in chosen if one not in columns or one == target]
    if unknown or not chosen:
        raise BadInput("features are columns of the table other than the target, at least one.")
    values = tuple(one for one in axis(columns[target], 65).labels if one is not None)
    if not all(isinstance(one, str | int) for one in values):
        raise BadSchema(f"{target} has no short list of public values. Give it categories in the schema.")
    listed = values if classes is None else tuple(one for one in values if one in set(classes))
    if len(listed) < 2:
        raise BadSchema("a target has at least two public values.")
    made = tuple(one for column in dict.fromkeys(chosen) for one in _features(columns[column]))
    if len(made) > _MOST_FEATURES:
        raise BadSchema(f"{len(made)} features are too many for one statement; {_MOST_FEATURES} are possible.")
    return Design(data.tables, name, target, tuple(sorted(listed)), made)


def _usable(columns: Any, target: str) -> list[str]:
    return [one.name for one in columns.values() if one.name != target and (_is_number(one) or _values(one))]


def _is_number(column: Column) -> bool:
    return column.type in ("integer", "real") and column.bounds is not None


def _values(column: Column) -> tuple[Any, ...]:
    return (False, True) if column.type == "boolean" else tuple(column.categories or ())


def _features(column: Column) -> list[_Feature]:
    sql = exp.column(column.name, quoted=True)
    if _is_number(column):
        low, high = (float(end) for end in column.bounds or (0, 1))  # type: ignore[arg-type]
        centre, scale = (low + high) / 2, 2 / (high - low)
        moved = exp.Paren(this=exp.Sub(this=as_double(sql), expression=literal(centre)))
        scaled = exp.Mul(this=moved, expression=literal(scale))
        return [_Feature(column.name, column.name, exp.Paren(this=scaled), centre, scale, indicator=False)]
    values = _values(column)
    if not values:
        raise BadSchema(f"{column.name} has neither public bounds nor categories. Give them in the schema.")
    zero, one = literal(0.0), literal(1.0)
    return [
        _Feature(
            column.name,
            f"{column.name}={value}",
            exp.Case(
                ifs=[exp.If(this=exp.EQ(this=sql.copy(), expression=literal(value)), true=one.copy())],
                default=zero.copy(),
            ),
        )
        for value in values
    ]


def _grid(sql: exp.Expression) -> Value:
    return grid_value(sql, -1.0, 1.0, _BITS)
