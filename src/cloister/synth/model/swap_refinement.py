"""Swap values between sampled rows until 3-way marginals match the model.

A factor over more than three columns was measured as such: its information beyond 3-way marginals (a parity, for
example) is counted too, or swaps that improve the 3-way marginals would destroy it. If such sets are too large for
that, or one clique holds all columns, so that sampling is already right, rows are unchanged.

    settle(cells, model, generator)

Two rows swap their values of one column if that brings the counts of all 3-way marginals closer to the model's
expectation (sum of chi-square distances). One-way marginals are unchanged, and no rule is broken. Sampling alone gets
only the columns within a clique right; swaps remove nearly half of the error that it adds to the others (Adult,
epsilon 1).

Privacy: post-processing of a released model. Randomness may come from numpy; no protection depends on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloister.synth.domain.axis import Cells
from cloister.synth.domain.domain import Positions, Zero

if TYPE_CHECKING:
    from cloister.synth.model.inference import Model
    from cloister.synth.model.latent import LatentClasses

__all__ = ["settle"]

_PASSES = 8
_MOST_SETS, _MOST_CELLS = 2_500, 25_000_000  # 3-way marginals, and cells of all: beyond, rows are unchanged
_LARGEST = 2_000_000  # cells of the table that a query to the model may need
_WORK = 50_000_000  # cells that a pass looks up: of long tables it takes only some rows
_PAIRS, _AT_ONCE = 2_048, 200  # pairs swapped at the same time: at most this many, and one for this many rows


@dataclass(frozen=True, slots=True)
class _Triples:
    """3-way marginals, and larger ones that were measured together, concatenated in flat arrays.

    Attributes:
        positions: the columns of each, padded to the same number.
        strides: the stride of each column in the arrays; 0 for padding.
        starts: the start of each marginal.
        gap: actual minus expected rows of each cell.
        worth: weight of a squared gap in the cell.
    """

    positions: NDArray[np.int64]
    strides: NDArray[np.int64]
    starts: NDArray[np.int64]
    gap: NDArray[np.float32]
    worth: NDArray[np.float32]

    def with_column(self, position: int) -> "_Triples":
        """Return the marginals that hold a column, with that column first."""
        matches = (self.positions == position) & (self.strides > 0)
        chosen = np.flatnonzero(matches.any(axis=1))
        order = np.argsort(~matches[chosen], axis=1, kind="stable")
        positions, strides = (
            np.take_along_axis(each[chosen], order, axis=1) for each in (self.positions, self.strides)
        )
        return _Triples(positions, strides, self.starts[chosen], self.gap, self.worth)

    def others(self, rows: Cells) -> NDArray[np.int64]:
        """Return the index of each row in each marginal, without the first column."""
        indices = np.broadcast_to(self.starts, (len(rows), len(self.starts))).copy()
        for side in range(1, self.positions.shape[1]):
            indices += rows[:, self.positions[:, side]] * self.strides[:, side]
        return indices

    def cost(self, cells: NDArray[np.int64], step: int) -> NDArray[np.float32]:
        """Return the cost of adding (or removing) one row in each cell."""
        return self.worth[cells] * (1 + 2 * step * self.gap[cells])


def settle(cells: Cells, model: "Model | LatentClasses", generator: np.random.Generator) -> None:
    """Swap values between rows, in place, until 3-way marginals are close to the model's expectation."""
    triples = _triples(cells, model)
    if triples is None:
        return
    rows, columns = cells.shape
    pairs = max(1, min(_PAIRS, rows // _AT_ONCE))  # more would all fill the same gap
    taken = min(rows, max(2 * pairs, _WORK // triples.positions.size))
    for _ in range(_PASSES):
        for column in range(columns):
            some = triples.with_column(column)
            rules = [zero for zero in model.zeros if column in zero.positions and len(zero.positions) > 1]
            order = generator.permutation(rows)[:taken]
            for start in range(0, taken, 2 * pairs):
                part = order[start : start + 2 * pairs]
                half = len(part) // 2
                _exchange(cells, column, part[:half], part[half : 2 * half], some, rules)


def _triples(cells: Cells, model: "Model | LatentClasses") -> _Triples | None:
    """Compare the model's 3-way marginals with those of the rows; None if there are too many or too few."""
    shape, rows = [len(grain.cells) for grain in model.grains], len(cells)
    oracle = model.asked()
    sets = _sets(model, oracle, shape) if rows > 1 else []
    sizes = [prod(shape[column] for column in positions) for positions in sets]
    if not sets or sum(sizes) > _MOST_CELLS:
        return None
    steps = [
        tuple(prod(shape[column] for column in positions[i + 1 :]) for i in range(len(positions))) for positions in sets
    ]
    starts = np.cumsum([0, *sizes[:-1]])
    gap, worth = (np.empty(sum(sizes), dtype=np.float32) for _ in range(2))
    for positions, step, start, size in zip(sets, steps, starts, sizes, strict=True):
        expected = oracle.marginal(positions).ravel() * (rows / model.total)
        counts = np.bincount(cells[:, positions] @ np.array(step), minlength=size)
        gap[start : start + size] = counts - expected
        worth[start : start + size] = 1 / (1 + expected)
    columns, strides = (np.zeros((len(sets), max(map(len, sets))), dtype=np.int64) for _ in range(2))
    for i, (members, step) in enumerate(zip(sets, steps, strict=True)):
        columns[i, : len(members)], strides[i, : len(members)] = members, step
    return _Triples(columns, strides, starts, gap, worth)


def _sets(model: "Model | LatentClasses", oracle: Any, shape: Sequence[int]) -> list[Positions]:
    """Return the sets of columns to compare: small triples, and what was measured together; none if too many."""
    if comb(len(shape), 3) > _MOST_SETS:
        return []
    more = _measured_together(model)
    if any(len(positions) == len(shape) or oracle.cells(positions) > _LARGEST for positions in more):
        return []
    return [
        *(positions for positions in combinations(range(len(shape)), 3) if oracle.cells(positions) <= _LARGEST),
        *more,
    ]


def _measured_together(model: "Model | LatentClasses") -> list[Positions]:
    """Return the maximal sets of more than three columns for which the model has a factor."""
    factors = {positions for positions in getattr(model, "factors", ()) if len(positions) > 3}
    return sorted(positions for positions in factors if not any(set(positions) < set(other) for other in factors))


def _exchange(
    cells: Cells,
    column: int,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    some: _Triples,
    rules: Sequence[Zero],
) -> None:
    """Swap one column's values between rows of the first and the second half, where that is an improvement."""
    differ = cells[first, column] != cells[second, column]
    first, second = first[differ], second[differ]
    first_rows, second_rows = cells[first], cells[second]
    first_base, second_base, step = some.others(first_rows), some.others(second_rows), some.strides[:, 0]
    mine, yours = first_rows[:, [column]] * step, second_rows[:, [column]] * step
    out, into = (first_base + mine, second_base + yours), (first_base + yours, second_base + mine)
    cost = sum(some.cost(each, -1) for each in out) + sum(some.cost(each, 1) for each in into)
    better = np.where(first_base == second_base, 0, cost).sum(axis=1) < 0  # rows equal in the other two change nothing
    first_rows[:, column], second_rows[:, column] = cells[second, column], cells[first, column]
    for zero in rules:
        for rows in (first_rows, second_rows):
            better &= zero.allowed[tuple(rows[:, index] for index in zero.positions)]
    cells[first[better], column], cells[second[better], column] = (
        first_rows[better, column],
        second_rows[better, column],
    )
    for each in out:
        np.subtract.at(some.gap, each[better], np.float32(1))
    for each in into:
        np.add.at(some.gap, each[better], np.float32(1))
