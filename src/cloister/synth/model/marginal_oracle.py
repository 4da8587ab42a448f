"""Queries to a model: its expectation of columns that need not be in one clique.

asked = MarginalOracle(model)
asked.marginal((0, 3))            # rows in each cell of the domain; common parts of several queries are computed once
asked.at((0, 3), cells)           # in some cells only, of columns that have too many to list
asked.weighed((0, 3), weights)    # one number: the sum over rows of the product of their cells' weights
"""

import math
from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.synth.domain.axis import Cells
from cloister.synth.domain.domain import Positions
from cloister.synth.measure.marginals import Floats

if TYPE_CHECKING:
    from cloister.synth.model.inference import Model

__all__ = ["LARGEST", "MarginalOracle"]


LARGEST = 5_000_000  # cells of a table: generators make no query that needs a larger one
_KEPT = 10_000  # larger tables are recomputed when needed again
einsum: Any = np.einsum  # numpy's types do not know its form with lists of axes


class MarginalOracle:
    """A model prepared for several queries."""

    def __init__(self, model: "Model") -> None:
        self.model = model
        tree = model.tree
        self.children: list[list[int]] = [[] for _ in tree.cliques]
        for i, parent in enumerate(tree.parents):
            if parent >= 0:
                self.children[parent].append(i)
        self.below: list[frozenset[int]] = [frozenset()] * len(tree.cliques)
        for i in range(len(tree.cliques) - 1, -1, -1):
            columns = set(tree.cliques[i]) - set(tree.separators[i])
            self.below[i] = frozenset(columns.union(*(self.below[child] for child in self.children[i])))
        self.conditional = [_conditional(model, i) for i in range(len(tree.cliques))]
        self.known: dict[tuple[int, frozenset[int]], tuple[Positions, Floats]] = {}

    def joint(self, positions: Positions) -> Floats:
        """Return the probability of each cell of some columns, in ascending order."""
        parts = self._parts(positions)
        columns, table = parts[0]
        for more, other in parts[1:]:  # components of the tree that share nothing are independent
            columns, table = (*columns, *more), np.multiply.outer(table, other)
        return np.transpose(table, np.argsort(columns))

    def cells(self, positions: Positions) -> int:
        """Return the size of the largest table that a query about these columns needs."""
        return max(self._size(positions), self.part_cells(positions))

    def part_cells(self, positions: Positions) -> int:
        """Return the size of the largest table for `at` and `weighed`, which never join independent components."""
        wanted = frozenset(positions)
        if self.model.tree.home(positions, self.model.shape) >= 0:
            return self._size(wanted)
        return max(self._largest(root, wanted & self.below[root]) for root in self._roots(wanted))

    def marginal(self, positions: Positions) -> Floats:
        """Return the expected rows in each cell of some columns of the domain, in ascending order."""
        table = self.joint(positions) * self.model.total
        for side, column in enumerate(positions):
            grain = self.model.grains[column]
            if grain.size < len(grain.cells):
                sides = [-1 if k == side else 1 for k in range(len(positions))]
                table = table.take(grain.cells, axis=side) * grain.shares.reshape(sides)
        return table

    def at(self, positions: Positions, cells: Sequence[Cells]) -> Floats:
        """Return the expected rows in some cells of the domain only; for each column, the cells."""
        answer, where = np.full(len(cells[0]), self.model.total), dict(zip(positions, cells, strict=True))
        for columns, table in self._parts(positions):
            answer *= table[tuple(self.model.grains[column].cells[where[column]] for column in columns)]
        for column, some in where.items():
            answer *= self.model.grains[column].shares[some]
        return answer

    def weighed(self, positions: Positions, weights: Sequence[Floats]) -> float:
        """Return the expected sum over rows of the product of their cells' weights."""
        answer, by_column = self.model.total, dict(zip(positions, weights, strict=True))
        for columns, table in self._parts(positions):
            for column in reversed(columns):
                grain = self.model.grains[column]
                table = table @ np.bincount(grain.cells, grain.shares * by_column[column], minlength=grain.size)
            answer *= float(table)
        return answer

    def _parts(self, positions: Positions) -> list[tuple[Positions, Floats]]:
        """Return probabilities in the model's cells: a table for each component of the tree, and its columns."""
        tree, wanted = self.model.tree, frozenset(positions)
        home = tree.home(positions, self.model.shape)
        if home >= 0:
            axes = tuple(i for i, column in enumerate(tree.cliques[home]) if column not in wanted)
            return [(tuple(sorted(wanted)), np.asarray(self.model.beliefs[home].sum(axis=axes)))]
        return [self._collect(root, wanted & self.below[root]) for root in self._roots(wanted)]

    def _roots(self, wanted: frozenset[int]) -> list[int]:
        return [i for i, parent in enumerate(self.model.tree.parents) if parent < 0 and wanted & self.below[i]]

    def _size(self, positions: Iterable[int]) -> int:
        return math.prod(self.model.shape[column] for column in positions)

    def _largest(self, i: int, wanted: frozenset[int]) -> int:
        """Return the size of the largest table of `_collect`."""
        separators = self.model.tree.separators
        below = {child: wanted & self.below[child] for child in self.children[i] if wanted & self.below[child]}
        later = [separators[child] for child in list(below)[1:]]
        size = self._size(wanted.union(separators[i], *later))
        return max([size, *(self._largest(child, some) for child, some in below.items())])

    def _collect(self, i: int, wanted: frozenset[int]) -> tuple[Positions, Floats]:
        """Return P(wanted columns at or below a clique | its separator), over the separator and those columns."""
        if (i, wanted) in self.known:
            return self.known[i, wanted]
        tree = self.model.tree
        clique, separator = tree.cliques[i], tree.separators[i]
        below = [child for child in self.children[i] if wanted & self.below[child]]
        parts = [self._collect(child, wanted & self.below[child]) for child in below]
        needed = (wanted & set(clique)).union(separator, *(tree.separators[child] for child in below))
        axes = tuple(k for k, column in enumerate(clique) if column not in needed)
        columns: Positions = tuple(column for column in clique if column in needed)
        table = self.conditional[i].sum(axis=axes) if axes else self.conditional[i]
        for k, (more, other) in enumerate(parts):
            later = {column for rest, _ in parts[k + 1 :] for column in rest}
            columns, table = _product((columns, table), (more, other), wanted.union(separator, later))
        if table.size <= _KEPT:
            self.known[i, wanted] = columns, table
        return columns, table


def _product(
    left: tuple[Positions, Floats], right: tuple[Positions, Floats], kept: Set[int]
) -> tuple[Positions, Floats]:
    """Multiply two tables, and sum over the columns that are not kept."""
    both = tuple(dict.fromkeys((*left[0], *right[0])))
    columns = tuple(column for column in both if column in kept)
    # Axes by their index in this product: numpy supports 52 of them, and a table may have more columns.
    axis = {column: i for i, column in enumerate(both)}
    ours, others, result = ([axis[column] for column in part] for part in (left[0], right[0], columns))
    return columns, einsum(left[1], ours, right[1], others, result, optimize=True)


def _conditional(model: "Model", i: int) -> Floats:
    belief, separator = model.beliefs[i], model.tree.separators[i]
    if not separator:
        return belief
    clique = model.tree.cliques[i]
    shared = belief.sum(axis=tuple(k for k, column in enumerate(clique) if column not in separator), keepdims=True)
    return np.asarray(np.divide(belief, shared, out=np.zeros_like(belief), where=shared > 0))
