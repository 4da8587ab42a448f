"""Columns as numbers between -1 and 1, for generators that work with means and covariances.

    numbers, dates, few integers    the middle of a cell, between the public bounds; missing values are 0
    categories, booleans            an indicator for each cell but one
    numbers that may be NULL        one more number, 1 where the value is missing; it has a sum and no products

Where the shares of a column's cells were released, a number is replaced by its rank (nine tenths of it: all rows
below, and half of those in the same cell), so that a column with a long tail has a spread too; categories too rare
for a covariance have no indicator.

All are whole multiples of 1/1024, computed by comparisons in the engine: sums and products are exact in every engine.

Privacy: public facts and released shares only. Each column of a row has one nonzero number, and none is beyond ±1,
whatever the shares are: the sensitivities of means and covariances follow from this.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.dialect import literal
from cloister.data.private_data import PrivateData
from cloister.data.private_table import PrivateTable
from cloister.data.schema import Column, internal
from cloister.data.statistics import Value
from cloister.privacy.errors import BadInput
from cloister.synth.domain.axis import Axis
from cloister.synth.domain.domain import Domain, Positions, read_domain
from cloister.synth.measure.marginals import Floats

__all__ = ["ONE", "Feature", "Features", "check_features"]

ONE = 1024  # represents the number one
_MOST = 150
_NAME = internal("feature")
_RANKED = 0.9


@dataclass(frozen=True, slots=True)
class Feature:
    """One number per row.

    Attributes:
        position: index of its column among the modelled columns.
        cell: the category it indicates; None for a number.
    """

    position: int
    cell: int | None = None


@dataclass(frozen=True)
class Features:
    """The features of a domain's rows.

    Attributes:
        domain: public cells.
        shares: released shares of each column's cells; None where cells are equally spaced.
        least: the share of rows that a category needs for an indicator, where shares are known.
    """

    domain: Domain
    shares: tuple[Floats, ...] | None = None
    least: float = 0.0

    @cached_property
    def listed(self) -> tuple[Feature, ...]:
        """Return all features, column after column."""
        features: list[Feature] = []
        for column, axis in enumerate(self.domain.modelled):
            if self.numeric(column):
                features.append(Feature(column))
            else:
                cells = [cell for cell in range(axis.size) if cell != self.reference(column)]
                if self.shares is not None:
                    cells = [cell for cell in cells if self.shares[column][cell] >= self.least]
                features += [Feature(column, cell) for cell in cells]
        return tuple(features)

    def reference(self, position: int) -> int:
        """Return the category without an indicator: the most frequent one, if that is known."""
        if self.shares is None:
            return self.domain.modelled[position].size - 1
        return int(np.argmax(self.shares[position]))

    @cached_property
    def gaps(self) -> Positions:
        """Return the numbers that may be missing."""
        axes = self.domain.modelled
        return tuple(column for column, axis in enumerate(axes) if axis.nullable and self.numeric(column))

    def numeric(self, position: int) -> bool:
        """Return True if a column is represented by a number."""
        axis = self.domain.modelled[position]
        return axis.ordered and axis.known > 2

    def of(self, positions: Sequence[int]) -> list[int]:
        """Return the indices of the features of some columns."""
        return [i for i, feature in enumerate(self.listed) if feature.position in positions]

    def cells(self, position: int) -> list[int]:
        """Return the categories of a column that have indicators."""
        return [feature.cell for feature in self.listed if feature.position == position and feature.cell is not None]

    def coordinates(self, position: int) -> Floats:
        """Return the coordinate of each cell of a number between -1 and 1, as the engine computes it."""
        return self._line(position) / ONE

    def _line(self, column: int) -> NDArray[np.int64]:
        """Return the coordinates in units of 1/ONE, ascending."""
        size = self.domain.modelled[column].known
        even = (2 * np.arange(size) - (size - 1)) * (ONE // (size - 1))
        if self.shares is None:
            return even
        shares = self.shares[column][:size]
        shares = shares / shares.sum() if shares.sum() > 0 else np.full(size, 1 / size)
        rank = ONE * (2 * np.cumsum(shares) - shares - 1)
        # A tenth of the uniform spacing: empty cells do not coincide.
        return np.clip(np.rint(_RANKED * rank + (1 - _RANKED) * even), -ONE, ONE).astype(np.int64)

    def rows(self, relation: PrivateTable, positions: Sequence[int] | None = None) -> PrivateTable:
        """Return the rows with the features of some columns (all unless given) as further columns."""
        wanted = range(len(self.domain.modelled)) if positions is None else positions
        named = {f"{_NAME}{i}": self._sql(self.listed[i]) for i in self.of(wanted)}
        for index in (gap for gap in self.gaps if gap in wanted):
            column = exp.column(self.domain.modelled[index].name, quoted=True)
            absent = exp.Is(this=column, expression=exp.Null())
            named[f"{_NAME}_gap{index}"] = exp.Case(ifs=[exp.If(this=absent, true=literal(ONE))], default=literal(0))
        long = exp.DataType.build("BIGINT")  # products of shorter ones would overflow, which is an error
        extended = relation.with_columns({name: exp.Cast(this=sql, to=long.copy()) for name, sql in named.items()})
        # They are ordinary columns from here on, so that more can be computed from them.
        ours = {name: Column(name, "integer", (-ONE, ONE), nullable=False) for name in named}
        return replace(extended, columns={**extended.columns, **ours})

    def value(self, number: int) -> Value:
        """Return a feature of such rows."""
        return Value(self.column(number), -ONE, ONE)

    def gap(self, position: int) -> Value:
        """Return the indicator that a number of such rows is missing."""
        return Value(exp.column(f"{_NAME}_gap{position}", quoted=True), 0, ONE)

    def product(self, left: int, right: int) -> Value:
        """Return the product of two features."""
        return Value(exp.Mul(this=self.column(left), expression=self.column(right)), -(ONE**2), ONE**2)

    def column(self, number: int) -> exp.Column:
        """Return the column that holds a feature."""
        return exp.column(f"{_NAME}{number}", quoted=True)

    def _sql(self, feature: Feature) -> exp.Expression:
        axis = self.domain.modelled[feature.position]
        if feature.cell is not None:
            return exp.Case(ifs=[exp.If(this=_is_cell(axis, feature.cell), true=literal(ONE))], default=literal(0))
        line = self._line(feature.position).tolist()
        if axis.values is not None:
            branches = [exp.If(this=_is_cell(axis, i), true=literal(at)) for i, at in enumerate(line)]
            return exp.Case(ifs=branches, default=literal(0))
        cells = [exp.If(this=literal(i), true=literal(at)) for i, at in enumerate(line)]
        return exp.Case(this=exp.Paren(this=axis.key().sql), ifs=cells, default=literal(0))


def _is_cell(axis: Axis, cell: int) -> exp.Expression:
    column = exp.column(axis.name, quoted=True)
    if cell >= axis.known:
        return exp.Is(this=column, expression=exp.Null())
    if axis.values is None:
        return exp.EQ(this=exp.Paren(this=axis.key().sql), expression=literal(cell))
    return exp.EQ(this=column, expression=literal(axis.values[cell]))


def check_features(
    data: PrivateData, table: str | None, columns: Sequence[str] | None, bins: Any, label: str | None = None
) -> Features:
    """Refuse columns without a covariance before any charge. From public facts only."""
    domain, _ = read_domain(data, table=table, columns=columns, bins=bins)
    features = Features(domain)
    if any(name.lower().startswith(_NAME) for name in domain.names):
        raise BadInput(f"a column cannot be called {_NAME}… here. Give it another name.")
    if any(axis.known > ONE for axis in domain.modelled):
        raise BadInput(f"a column has at most {ONE} cells here. Give fewer bins.")
    if not 1 <= len(features.listed) <= _MOST:
        raise BadInput(
            f"{len(features.listed)} numbers and categories are too many for a covariance of all pairs; {_MOST} are "
            "the most. Name fewer columns."
        )
    named = isinstance(label, str) and label in domain.positions
    if label is not None and not (named and not features.numeric(domain.positions[label])):
        raise BadInput("label is a modelled column with categories.")
    return features
