"""How a private tree grows: splits chosen level by level, leaves from noisy counts.

    count the classes of every node ──► choose a split in every node ──► next level … ──► count the classes of leaves

The nodes of one level hold different rows, so a level costs what one node costs. A choice by score (learn/splits.py)
costs the same for a thousand candidates as for two; noisy histograms of all features would need noise that grows with
their number. The tree is always full: its shape tells nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cloister.learn.binned import BinnedRows, public_generator
from cloister.learn.bins import Axis
from cloister.learn.exact import Integers, noisy_counts
from cloister.learn.leaves import Level, shares
from cloister.learn.purse import Purse
from cloister.learn.splits import balanced, chooser, gini, weights_of
from cloister.privacy.loss import Loss
from cloister.privacy.meter import Meter

__all__ = ["Tree", "grow"]

# Shares of the spend: all levels' choices, all levels' counts, and the leaves' counts.
_CHOICES, _COUNTS, _LEAVES = Fraction(7, 10), Fraction(1, 10), Fraction(2, 10)
# Where a node's rows times the rate of a choice exceed this, Gini; below, the balanced score.
_PLENTY = 500.0


@dataclass(frozen=True, slots=True)
class Tree:
    """A released tree. The children of node i of a level are 2i and 2i + 1 of the next.

    Attributes:
        axes: the public cells that splits speak of.
        features, cells: of each level, for each node: it asks whether a row's cell of the feature is at most this one
            (an ordered feature) or just this one (a category); rows that say yes go to the first child.
        shares: of each leaf, one column a class.
        rows: about how many each leaf has; empty where that was not released.
    """

    axes: tuple[Axis, ...]
    features: tuple[Integers, ...]
    cells: tuple[Integers, ...]
    shares: NDArray[np.float64]
    rows: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def leaves(self, rows: Integers) -> Integers:
        """The leaf of each row of cells."""
        node = np.zeros(len(rows), dtype=np.int64)
        for features, cells in zip(self.features, self.cells, strict=True):
            node = _step(rows, node, features, cells, self.axes)
        return node

    def rules(self) -> list[str]:
        """Each leaf in words: the way to it, and its class shares."""
        found = []
        for leaf, row in enumerate(self.shares):
            way, depth = [], len(self.features)
            for level in range(depth):
                node, yes = leaf >> (depth - level), not (leaf >> (depth - level - 1)) & 1
                axis, cell = self.axes[self.features[level][node]], int(self.cells[level][node])
                if axis.ordered:
                    way.append(f"{axis.name} {'<' if yes else '≥'} {axis.cuts[cell]:g}")
                else:
                    way.append(f"{axis.name} {'=' if yes else '≠'} {axis.labels()[cell]}")
            found.append(f"{' and '.join(way)}: {', '.join(f'{share:.3f}' for share in row)}")
        return found


def _step(rows: Integers, node: Integers, features: Integers, cells: Integers, axes: Sequence[Axis]) -> Integers:
    asked = rows[np.arange(len(rows)), features[node]]
    ordered = np.array([axis.ordered for axis in axes])[features[node]]
    yes = np.where(ordered, asked <= cells[node], asked == cells[node])
    return np.asarray(2 * node + ~yes)


def grow(
    meter: Meter, budget: Purse, data: BinnedRows, depth: int, share: Fraction, features: int | None = None
) -> Tree:
    """Grow one tree.

    Args:
        meter, budget: pay.
        data: the rows.
        depth: how many splits lie on the way to a leaf.
        share: of the budget.
        features: how many a split may choose from, drawn anew for each; None for all.

    Privacy: that share of the budget: `depth` choices and `depth + 1` counts, each over nodes that share no row.
    """
    assert data.classes is not None
    classes, public = len(data.classes), public_generator(meter.source)
    choice = chooser(budget.part(share * _CHOICES / depth))
    counted, leaf = budget.part(share * _COUNTS / depth), budget.part(share * _LEAVES)
    levels: list[Level] = []
    chosen: list[tuple[Integers, Integers]] = []

    def nodes() -> Integers:
        rows = data.look()[0]
        node = np.zeros(len(rows), dtype=np.int64)
        for one in chosen:
            node = _step(rows, node, *one, data.axes)
        return node

    for level in range(depth):
        levels.append(_counts(meter, counted, data, nodes, 2**level, classes))
        found, rows = shares(levels)
        table = _candidates(data.axes, 2**level, features, public)
        plenty = rows * float(choice.one.epsilon) > _PLENTY
        look = partial(_scores, data, nodes, table, plenty, found)
        picks = np.array([table[i][pick] for i, pick in enumerate(meter.release(look, choice))])
        chosen.append((picks[:, 0], picks[:, 1]))
    levels.append(_counts(meter, leaf, data, nodes, 2**depth, classes))
    return Tree(data.axes, tuple(one[0] for one in chosen), tuple(one[1] for one in chosen), *shares(levels))


def _counts(
    meter: Meter, loss: Loss, data: BinnedRows, nodes: Callable[[], Integers], width: int, classes: int
) -> Level:
    def look() -> Integers:
        place = nodes() * classes + data.look()[1]
        return np.bincount(place, minlength=width * classes).reshape(width, classes).astype(np.int64)

    amount = float(loss.amount)
    return Level(noisy_counts(meter, look, loss), 1 / (2 * amount) if loss.measure == "rho" else 2 / amount**2)


def _candidates(
    axes: Sequence[Axis], width: int, features: int | None, public: np.random.Generator
) -> list[list[tuple[int, int]]]:
    """For each node, the splits it may choose from: public."""
    splits = [[(i, c) for c in range(axis.size - axis.ordered)] for i, axis in enumerate(axes)]
    everything = range(len(axes))
    drawn = [everything if features is None else sorted(public.permutation(len(axes))[:features]) for _ in range(width)]
    return [[one for i in some for one in splits[i]] for some in drawn]


def _scores(
    data: BinnedRows,
    nodes: Callable[[], Integers],
    table: list[list[tuple[int, int]]],
    plenty: NDArray[np.bool_],
    found: NDArray[np.float64],
) -> list[Integers]:
    """The score of every candidate of every node."""
    (rows, labels), node = data.look(), nodes()
    width, classes = found.shape
    weights = weights_of(found)[:, None, :]
    by_split: dict[tuple[int, int], Integers] = {}
    for feature in sorted({one[0] for some in table for one in some}):
        axis = data.axes[feature]
        place = (node * axis.size + rows[:, feature]) * classes + labels
        counts = np.bincount(place, minlength=width * axis.size * classes).reshape(width, axis.size, classes)
        left = counts.cumsum(axis=1)[:, :-1] if axis.ordered else counts
        right = counts.sum(axis=1, keepdims=True) - left
        scores = np.where(plenty[:, None], gini(left, right), balanced(left, right, weights))
        by_split.update({(feature, cell): scores[:, cell] for cell in range(scores.shape[1])})
    return [np.array([by_split[one][i] for one in some], dtype=np.int64) for i, some in enumerate(table)]
