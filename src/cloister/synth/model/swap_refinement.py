"""Rows that were drawn, settled: values change places until triples of columns come as often as the model expects.

A set of more than three columns that a model has a factor of was measured as such: what it holds beyond its triples (a
parity, say) is counted beside them, or exchanges that suit the triples would undo it. If such sets are too large for
that, or one clique holds all columns and rows were drawn from it as they should be, rows stay as they were drawn.

    settle(cells, model, generator)

Two rows exchange their values of one column whenever that brings the counts of all triples closer to what the model
expects (chi-square distances, added up). Columns by themselves stay as they are, and no rule is broken. Drawing gets
only those columns right that a clique holds together; this takes away nearly half of what it adds to the error of the
others (Adult, epsilon 1).

Privacy: post-processing of a released model. Randomness may come from numpy; nobody is protected by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cloister.synth.domain.axis import Cells
from cloister.synth.domain.domain import Places, Zero

if TYPE_CHECKING:
    from cloister.synth.model.inference import Model
    from cloister.synth.model.latent import LatentClasses

__all__ = ["settle"]

_PASSES = 8
_MOST_SETS, _MOST_CELLS = 2_500, 25_000_000  # triples, and cells of all: beyond, rows stay as they were drawn
_LARGEST = 2_000_000  # cells of the table that a question to the model may need
_WORK = 50_000_000  # cells that a pass looks up: of long tables it takes only some rows
_PAIRS, _AT_ONCE = 2_048, 200  # pairs that exchange at the same time: at most so many, and one for so many rows


@dataclass(frozen=True, slots=True)
class _Triples:
    """Marginals of three columns, or of more that were measured together, one after the other in flat arrays.

    Attributes:
        places: the columns of each, filled up to the same number.
        strides: how far apart in the arrays neighbours of each column lie; 0 for what only fills up.
        starts: where each begins.
        gap: rows that a cell has above those that it should.
        worth: of a squared gap in the cell.
    """

    places: NDArray[np.int64]
    strides: NDArray[np.int64]
    starts: NDArray[np.int64]
    gap: NDArray[np.float32]
    worth: NDArray[np.float32]

    def with_column(self, place: int) -> "_Triples":
        """Those that hold a column, in which it comes first."""
        own = (self.places == place) & (self.strides > 0)
        here = np.flatnonzero(own.any(axis=1))
        order = np.argsort(~own[here], axis=1, kind="stable")
        places, strides = (np.take_along_axis(each[here], order, axis=1) for each in (self.places, self.strides))
        return _Triples(places, strides, self.starts[here], self.gap, self.worth)

    def others(self, rows: Cells) -> NDArray[np.int64]:
        """Where each row lies in each marginal, but for the first column."""
        found = np.broadcast_to(self.starts, (len(rows), len(self.starts))).copy()
        for side in range(1, self.places.shape[1]):
            found += rows[:, self.places[:, side]] * self.strides[:, side]
        return found

    def cost(self, cells: NDArray[np.int64], step: int) -> NDArray[np.float32]:
        """What it costs to put one row more (or less) into each cell."""
        return self.worth[cells] * (1 + 2 * step * self.gap[cells])


def settle(cells: Cells, model: "Model | LatentClasses", generator: np.random.Generator) -> None:
    """Let rows exchange values, in place, until triples come about as often as the model expects."""
    triples = _triples(cells, model)
    if triples is None:
        return
    rows, columns = cells.shape
    pairs = max(1, min(_PAIRS, rows // _AT_ONCE))  # more would all fill the same gap
    taken = min(rows, max(2 * pairs, _WORK // triples.places.size))
    for _ in range(_PASSES):
        for place in range(columns):
            some = triples.with_column(place)
            rules = [zero for zero in model.zeros if place in zero.places and len(zero.places) > 1]
            order = generator.permutation(rows)[:taken]
            for start in range(0, taken, 2 * pairs):
                part = order[start : start + 2 * pairs]
                half = len(part) // 2
                _exchange(cells, place, part[:half], part[half : 2 * half], some, rules)


def _triples(cells: Cells, model: "Model | LatentClasses") -> _Triples | None:
    """What the model expects of triples, beside what the rows have; nothing if that is too much or too little."""
    shape, rows = [len(grain.cells) for grain in model.grains], len(cells)
    if rows < 2 or comb(len(shape), 3) > _MOST_SETS:
        return None
    asked, more = model.asked(), _measured_together(model)
    if any(len(places) == len(shape) or asked.cells(places) > _LARGEST for places in more):
        return None
    sets = [*(places for places in combinations(range(len(shape)), 3) if asked.cells(places) <= _LARGEST), *more]
    sizes = [prod(shape[place] for place in places) for places in sets]
    if not sets or sum(sizes) > _MOST_CELLS:
        return None
    steps = [tuple(prod(shape[place] for place in places[i + 1 :]) for i in range(len(places))) for places in sets]
    starts = np.cumsum([0, *sizes[:-1]])
    gap, worth = (np.empty(sum(sizes), dtype=np.float32) for _ in range(2))
    for places, step, start, size in zip(sets, steps, starts, sizes, strict=True):
        expected = asked.marginal(places).ravel() * (rows / model.total)
        found = np.bincount(cells[:, places] @ np.array(step), minlength=size)
        gap[start : start + size] = found - expected
        worth[start : start + size] = 1 / (1 + expected)
    columns, strides = (np.zeros((len(sets), max(map(len, sets))), dtype=np.int64) for _ in range(2))
    for i, (one, step) in enumerate(zip(sets, steps, strict=True)):
        columns[i, : len(one)], strides[i, : len(one)] = one, step
    return _Triples(columns, strides, starts, gap, worth)


def _measured_together(model: "Model | LatentClasses") -> list[Places]:
    """Sets of more than three columns that the model has a factor of; none that lies in another."""
    factors = {places for places in getattr(model, "factors", ()) if len(places) > 3}
    return sorted(one for one in factors if not any(set(one) < set(other) for other in factors))


def _exchange(
    cells: Cells, place: int, first: NDArray[np.int64], second: NDArray[np.int64], some: _Triples, rules: Sequence[Zero]
) -> None:
    """Rows of the first half exchange one column's values with those of the second, where that is better."""
    differ = cells[first, place] != cells[second, place]
    first, second = first[differ], second[differ]
    own, other = cells[first], cells[second]
    here, there, step = some.others(own), some.others(other), some.strides[:, 0]
    mine, yours = own[:, [place]] * step, other[:, [place]] * step
    out, into = (here + mine, there + yours), (here + yours, there + mine)
    cost = sum(some.cost(each, -1) for each in out) + sum(some.cost(each, 1) for each in into)
    better = np.where(here == there, 0, cost).sum(axis=1) < 0  # rows alike in the other two change nothing
    own[:, place], other[:, place] = cells[second, place], cells[first, place]
    for zero in rules:
        for rows in (own, other):
            better &= zero.allowed[tuple(rows[:, one] for one in zero.places)]
    cells[first[better], place], cells[second[better], place] = own[better, place], other[better, place]
    for each in out:
        np.subtract.at(some.gap, each[better], np.float32(1))
    for each in into:
        np.add.at(some.gap, each[better], np.float32(1))
