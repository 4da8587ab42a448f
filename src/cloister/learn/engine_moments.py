"""Second moments of a dataset's columns, computed in its engine: numbers, and one indicator for each category.

The matrix Z'Z is put together from few statements: products of numbers in one; for each column with categories the sums
of numbers by category; for each two such columns the number of rows of each pair. Every row is put on the grid before
it is multiplied, so DuckDB, PostgreSQL and Spark give the same integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np
from sqlglot import exp

from cloister.data.statistics import Value
from cloister.learn.moments import Floats, Reach
from cloister.learn.relation import Relation, check_filled, is_number, scaled_cell, values_of
from cloister.privacy.errors import BadSchema

__all__ = ["EngineDesign"]

BITS = 15
ONE = 2**BITS


@dataclass(frozen=True, slots=True)
class EngineDesign:
    """Columns of a dataset as features: a number within [-1/2, 1/2], a category as one indicator for each value.

    Attributes:
        relation: the rows.
        features: names of columns, in order.
        target: the column to predict, a number; None for none.
        fill: what stands for NULL in numbers.
    """

    relation: Relation
    features: tuple[str, ...]
    target: str | None = None
    fill: float | None = None

    def check(self) -> None:
        """Refuse columns that cannot be features. From public facts alone."""
        for name in self.features:
            check_filled(self.relation.columns[name], self.fill)
        if self.target is not None:
            if not is_number(self.relation.columns[self.target]):
                raise BadSchema(f"{self.target} is no number with public bounds, so it cannot be the target here.")
            check_filled(self.relation.columns[self.target], None)

    @property
    def names(self) -> list[str]:
        """`age` for a number, `ward=surgery` for a category."""
        return [name if value is None else f"{name}={value}" for name, value in self._parts()]

    @property
    def centre(self) -> Floats:
        """A feature's value is (column - centre) · scale; indicators are as they are."""
        return np.array([0.0 if value is not None else sum(self._ends(name)) / 2 for name, value in self._parts()])

    @property
    def scale(self) -> Floats:
        """See centre."""
        widths = [1.0 if value is not None else np.subtract(*self._ends(name)[::-1]) for name, value in self._parts()]
        return np.asarray(1 / np.array(widths, dtype=np.float64))

    @property
    def reach(self) -> Reach:
        """How far one unit moves the moments. A column has one indicator that is not zero, at most."""
        numbers = sum(is_number(self.relation.columns[name]) for name in self.features)
        ones = len(self.features) - numbers + 1  # the constant too
        half = ONE // 2
        return Reach(
            first=numbers * half + ones * ONE,
            second=numbers * half**2 + ones * ONE**2,
            fourth=numbers * half**4 + ones * ONE**4,
            target=0 if self.target is None else half,
            weight=self.relation.most,
        )

    @property
    def unit(self) -> float:
        """The worth of one in the matrix."""
        return 1.0 / float(ONE**2 * self.relation.whole)

    def matrix(self) -> Any:
        """Z'Z of features, constant and target, as Python integers. Reads rows: call it inside a step."""
        parts = self._parts()
        place = {part: at for at, part in enumerate(parts)}
        constant, size = len(parts), len(parts) + 1 + (self.target is not None)
        whole = np.zeros((size, size), dtype=object)
        numbers = [(name, place[name, None]) for name in self.features if (name, None) in place]
        if self.target is not None:
            numbers.append((self.target, constant + 1))
        groups = [name for name in self.features if (name, None) not in place]
        made = [scaled_cell(self.relation.columns[name], BITS, self.fill) for name, _ in numbers]
        cells = [replace(one, sql=exp.column(f"_cell{i}", quoted=True)) for i, one in enumerate(made)]
        rows = self.relation.with_columns({f"_cell{i}": one.sql for i, one in enumerate(made)})

        def run(keys: Sequence[str], values: Sequence[Value]) -> list[Any]:
            return rows.sums([rows.key(name) for name in keys], values).run(rows.engine)

        def enter(i: int, j: int, total: Any) -> None:
            whole[i, j] = whole[j, i] = int(total)

        pairs = list(combinations_with_replacement(range(len(numbers)), 2))
        count, *found = run((), [*cells, *(_product(cells[i], cells[j]) for i, j in pairs)])
        enter(constant, constant, int(count[0]) * ONE**2)
        for (_, at), total in zip(numbers, found[: len(numbers)], strict=True):
            enter(at, constant, int(total[0]) * ONE)
        for (i, j), total in zip(pairs, found[len(numbers) :], strict=True):
            enter(numbers[i][1], numbers[j][1], total[0])
        for name in groups:
            count, *found = run((name,), cells)
            for k, value in enumerate(values_of(self.relation.columns[name])):
                at = place[name, value]
                enter(at, at, int(count[k]) * ONE**2)
                enter(at, constant, int(count[k]) * ONE**2)
                for (_, other), totals in zip(numbers, found, strict=True):
                    enter(at, other, int(totals[k]) * ONE)
        for left, right in combinations(groups, 2):
            [count] = run((left, right), [])
            sides = [values_of(self.relation.columns[name]) for name in (left, right)]
            for k, total in enumerate(count):
                i, j = divmod(k, len(sides[1]))
                enter(place[left, sides[0][i]], place[right, sides[1][j]], int(total) * ONE**2)
        return whole

    def _parts(self) -> list[tuple[str, Any]]:
        parts: list[tuple[str, Any]] = []
        for name in self.features:
            column = self.relation.columns[name]
            parts += [(name, None)] if is_number(column) else [(name, value) for value in values_of(column)]
        return parts

    def _ends(self, name: str) -> tuple[float, float]:
        low, high = self.relation.columns[name].bounds or (0.0, 1.0)
        return float(low), float(high)  # type: ignore[arg-type]


def _product(left: Value, right: Value) -> Value:
    most = left.reach * right.reach
    return Value(
        exp.Mul(this=exp.Paren(this=left.sql.copy()), expression=exp.Paren(this=right.sql.copy())), -most, most
    )
