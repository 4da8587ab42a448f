"""Second moments of a dataset's columns, computed in its engine: numbers, and one indicator for each category.

The matrix Z'Z is assembled from few tables: one of products of numbers; for each categorical column the sums of
numbers by category; for each pair of such columns the number of rows of each combination (`Relation.tables`). Every
row is rounded to the grid before it is multiplied, so DuckDB, PostgreSQL and Spark give the same integers.

For a regression the target is one more number. For classes it is one more categorical column: the rows of the matrix
for its indicators are the sums of each class.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import numpy as np
from sqlglot import exp

from cloister.data.dialect import literal
from cloister.data.schema import internal
from cloister.data.statistics import Value
from cloister.learn.base.inputs import Box
from cloister.learn.base.integer_rows import Integers
from cloister.learn.base.private_data import (
    Part,
    PrivateTable,
    check_filled,
    check_names,
    ends_of,
    is_number,
    names_of,
    parts_of,
    scaled_cell,
    values_of,
)
from cloister.learn.linear_model.moments import (
    ClassMoments,
    Floats,
    Reach,
    Sensitivity,
    release_class_moments,
    whole_root,
)
from cloister.privacy.errors import BadSchema
from cloister.privacy.filter import BudgetShare, PrivacyFilter

__all__ = ["EngineDesign", "class_design", "class_moments"]

BITS = 15
ONE = 2**BITS
_MOST_FEATURES = 500
Entry = tuple[int, int, int]  # of the matrix: row, column, value


@dataclass(frozen=True, slots=True)
class EngineDesign:
    """Columns of a dataset as features: a number between ∓edge, a category as one indicator for each value.

    Attributes:
        relation: the rows.
        features: names of columns, in order.
        target: the column to predict, a number; None for none.
        fill: replaces NULL in numbers.
        edge: largest absolute value of a scaled number, relative to the 2^15 of an indicator: one half, or one.
    """

    relation: PrivateTable
    features: tuple[str, ...]
    target: str | None = None
    fill: float | None = None
    edge: int = ONE // 2

    def check(self) -> None:
        """Refuse columns that cannot be features. Uses public facts alone."""
        for name in self.features:
            check_filled(self.relation.columns[name], self.fill)
        check_names(self.parts)
        if len(self.names) > _MOST_FEATURES:
            raise BadSchema(f"{len(self.names)} features are too many to multiply; {_MOST_FEATURES} are possible.")
        if self.target is not None:
            if not is_number(self.relation.columns[self.target]):
                raise BadSchema(f"{self.target} is no number with public bounds, so it cannot be the target here.")
            check_filled(self.relation.columns[self.target], None)

    @property
    def names(self) -> list[str]:
        """Return the feature names: `age` for a number, `ward=surgery` for a category."""
        return names_of(self.parts)

    @property
    def parts(self) -> list[Part]:
        """Return column, value and type of each feature."""
        return parts_of(self.relation.columns[name] for name in self.features)

    @property
    def centre(self) -> Floats:
        """Return the centre of each feature: its value is (column - centre) · scale; indicators are unchanged."""
        ends = [(0.0, 0.0) if value is not None else self._ends(name) for name, value in self._parts()]
        return np.array([(low + high) / 2 for low, high in ends])

    @property
    def scale(self) -> Floats:
        """Return the scale of each feature; see `centre`."""
        ends = [(0.0, 1.0) if value is not None else self._ends(name) for name, value in self._parts()]
        reach = [1.0 if value is not None else 2 * self.edge / ONE for _, value in self._parts()]
        return np.array([far / (high - low) for far, (low, high) in zip(reach, ends, strict=True)])

    @property
    def box(self) -> Box:
        """Return the public bounds of the features."""
        ends = [(0.0, 1.0) if value is not None else self._ends(name) for name, value in self._parts()]
        return Box(np.array([low for low, _ in ends]), np.array([high for _, high in ends]))

    @property
    def reach(self) -> Reach:
        """Return the sensitivity of the moments to one unit. At most one indicator of a column is nonzero."""
        numbers, categories = self.kinds
        indicators = categories + 1  # with the constant
        return Reach(
            first=numbers * self.edge + indicators * ONE,
            second=numbers * self.edge**2 + indicators * ONE**2,
            fourth=numbers * self.edge**4 + indicators * ONE**4,
            target=0 if self.target is None else self.edge,
            weight=self.relation.most,
        )

    @property
    def kinds(self) -> tuple[int, int]:
        """Return the number of numeric and of categorical columns."""
        numbers = sum(is_number(self.relation.columns[name]) for name in self.features)
        return numbers, len(self.features) - numbers

    @property
    def unit(self) -> float:
        """Return the real value of one in the matrix."""
        return 1.0 / float(ONE**2 * self.relation.whole)

    def matrix(self) -> Any:
        """Return Z'Z of features, constant and target, as Python integers. Reads rows: call it inside a step."""
        parts = self._parts()
        positions = {part: at for at, part in enumerate(parts)}
        constant, size = len(parts), len(parts) + 1 + (self.target is not None)
        gram = np.zeros((size, size), dtype=object)
        numbers = [(name, positions[name, None]) for name in self.features if (name, None) in positions]
        if self.target is not None:
            numbers.append((self.target, constant + 1))
        groups = [name for name in self.features if (name, None) not in positions]
        bits = self.edge.bit_length()
        scaled = [scaled_cell(self.relation, name, bits, self.fill) for name, _ in numbers]
        cells = [replace(value, sql=exp.column(internal(f"cell{i}"), quoted=True)) for i, value in enumerate(scaled)]
        rows = self.relation.with_columns({internal(f"cell{i}"): value.sql for i, value in enumerate(scaled)})
        at = [where for _, where in numbers]
        for i, j, total in (
            *_of_numbers(rows, cells, at, constant),
            *self._of_groups(rows, groups, cells, at, positions, constant),
            *self._of_pairs(rows, groups, positions),
        ):
            gram[i, j] = gram[j, i] = total
        return gram

    def _of_groups(
        self,
        rows: PrivateTable,
        groups: Sequence[str],
        cells: Sequence[Value],
        at: Sequence[int],
        positions: Mapping[tuple[str, Any], int],
        constant: int,
    ) -> Iterator[Entry]:
        """Yield the counts of each category, and the sums of numbers by category."""
        tables = rows.tables([[rows.key(name)] for name in groups], cells)
        for name, (count, *sums) in zip(groups, tables, strict=True):
            for k, value in enumerate(values_of(self.relation.columns[name])):
                index, total = positions[name, value], int(count[k]) * ONE**2
                yield index, index, total
                yield index, constant, total
                yield from ((index, other, int(totals[k]) * ONE) for other, totals in zip(at, sums, strict=True))

    def _of_pairs(
        self, rows: PrivateTable, groups: Sequence[str], positions: Mapping[tuple[str, Any], int]
    ) -> Iterator[Entry]:
        """Yield the counts of each combination of two columns' categories."""
        both = list(combinations(groups, 2))
        tables = rows.tables([[rows.key(name) for name in pair] for pair in both], [])
        for (left, right), [count] in zip(both, tables, strict=True):
            first, second = (values_of(self.relation.columns[name]) for name in (left, right))
            for (value, other), total in zip(product(first, second), count, strict=True):
                yield positions[left, value], positions[right, other], int(total) * ONE**2

    def _parts(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value, _ in self.parts]

    def _ends(self, name: str) -> tuple[float, float]:
        return ends_of(self.relation.columns[name])


def class_moments(
    meter: PrivacyFilter,
    budget: BudgetShare,
    relation: PrivateTable,
    features: tuple[str, ...],
    target: str,
    classes: Sequence[Any],
    fill: float | None = None,
) -> ClassMoments:
    """Release counts and sums by class, and products of all features, with noise.

    Privacy: the budget, for the unit of the relation. Rows of no listed class are left out. A row adds to its class's
        line a number within the edge or a one for each column, and its weight; the rows of a unit are bounded in number
        or in total weight. Products as in `Reach`.
    """
    design = class_design(relation, features, target, classes, fill)
    with_target = replace(design, features=(*features, target))
    numbers, categories = design.kinds
    d, k, rows = len(design.names), len(classes), relation.most
    heavy = math.isqrt(len(features))  # counts are weighted like sums, so that they have less noise
    line = numbers * design.edge**2 + categories * ONE**2 + (heavy * ONE) ** 2
    first, second = numbers * design.edge + categories * ONE, line - (heavy * ONE) ** 2
    fourth = numbers * design.edge**4 + categories * ONE**4
    reach = Sensitivity(
        lines=whole_root(line) * ONE * rows,
        lines_l1=(first + heavy * ONE) * ONE * rows,
        products=whole_root(-(-(second**2 + fourth) // 2)) * rows,
        products_l1=-(-(first**2 + second) // 2) * rows,
    )

    def look() -> tuple[Integers, Integers]:
        gram = with_target.matrix()
        places = slice(d, d + k)
        counts = gram[places, places].diagonal() * heavy
        lines = np.column_stack([gram[places, :d], counts])
        return lines.ravel(), gram[:d, :d][np.triu_indices(d)]

    unit = 1 / (ONE**2 * relation.whole)
    return release_class_moments(meter, budget, look, reach, (k, d), (unit / heavy, unit, unit))


def class_design(
    relation: PrivateTable, features: tuple[str, ...], target: str, classes: Sequence[Any], fill: float | None
) -> EngineDesign:
    """Build a classifier's features, numbers between -1 and 1, on rows of the listed classes, from public facts."""
    listed = exp.In(this=exp.column(target, quoted=True), expressions=[literal(value) for value in classes])
    column = replace(relation.columns[target], bounds=None, categories=tuple(classes))
    if column.type == "boolean":
        column = relation.columns[target]
    rows = replace(relation.where(listed), columns={**relation.columns, target: column})
    design = EngineDesign(rows, features, None, fill, edge=ONE)
    design.check()
    return design


def _of_numbers(rows: PrivateTable, cells: Sequence[Value], at: Sequence[int], constant: int) -> Iterator[Entry]:
    """Yield the number of rows, the sums of numbers, and the sums of their products."""
    pairs = list(combinations_with_replacement(range(len(cells)), 2))
    [(count, *sums)] = rows.tables([[]], [*cells, *(_product(cells[i], cells[j]) for i, j in pairs)])
    yield constant, constant, int(count[0]) * ONE**2
    yield from ((where, constant, int(totals[0]) * ONE) for where, totals in zip(at, sums[: len(at)], strict=True))
    yield from ((at[i], at[j], int(totals[0])) for (i, j), totals in zip(pairs, sums[len(at) :], strict=True))


def _product(left: Value, right: Value) -> Value:
    most = left.reach * right.reach
    return Value(
        exp.Mul(this=exp.Paren(this=left.sql.copy()), expression=exp.Paren(this=right.sql.copy())), -most, most
    )
