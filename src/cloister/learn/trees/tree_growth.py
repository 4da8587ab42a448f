"""Growth of a private tree: splits chosen level by level, leaves from noisy counts.

    count the classes of every node ──► choose a split in every node ──► next level … ──► count the classes of leaves

The nodes of one level hold disjoint rows, so a level costs as much as one node. A choice by score
(learn/trees/splits.py) costs the same for a thousand candidates as for two; noisy histograms of all features would need
noise that grows with their number. The tree is always full, so its shape reveals nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.binned_estimator import BinnedRows, public_generator
from cloister.learn.base.bins import BinnedFeature
from cloister.learn.base.integer_rows import Integers, noisy_counts
from cloister.learn.trees.splits import balanced, chooser, gini, weights_of
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.loss import Loss

__all__ = ["Tree", "grow"]


# Class shares of nodes from noisy counts of every level: post-processing.
#
# Counts of a node and of its children were released with independent noise. The best consistent estimates come from
# one pass up and one down (Hay et al. 2010); a node's shares are then shrunk towards its parent's, the more so the
# noisier its count is.


_SPREAD = 0.02  # variance of a child's share around its parent's
_LEAST = 0.01


@dataclass(frozen=True, slots=True)
class TreeLevel:
    """Noisy counts of the nodes of one level.

    Attributes:
        counts: one row per node, one column per class.
        variance: that of the noise on each.
    """

    counts: NDArray[np.float64]
    variance: float


def shares(levels: list[TreeLevel]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the class shares and the number of rows of each node of the last level."""
    counts, variances = _consistent(levels)
    estimate = _within(counts[0] / max(counts[0].sum(), 1.0))
    for level in range(1, len(counts)):
        above = np.repeat(estimate, 2, axis=0)
        rows = np.maximum(counts[level].sum(axis=1, keepdims=True), 1.0)
        classes = above.shape[1]
        noise = variances[level] * ((1 - above) ** 2 + (classes - 1) * above**2)
        doubt = (above * (1 - above) / rows + noise / rows**2).mean(axis=1, keepdims=True)
        trust = _SPREAD / (_SPREAD + doubt)
        estimate = _within(above + trust * (counts[level] / rows - above))
    return estimate, np.maximum(counts[-1].sum(axis=1), 0.0)


def _within(estimate: NDArray[np.float64]) -> NDArray[np.float64]:
    clipped = np.clip(estimate, _LEAST, 1.0)
    return np.asarray(clipped / clipped.sum(axis=1, keepdims=True))


def _consistent(levels: list[TreeLevel]) -> tuple[list[NDArray[np.float64]], list[float]]:
    counts, variances = [levels[-1].counts], [levels[-1].variance]
    for level in reversed(levels[:-1]):
        below, doubt = _pairs(counts[0]).sum(axis=1), 2 * variances[0]
        trust = doubt / (doubt + level.variance)
        counts.insert(0, below + trust * (level.counts - below))
        variances.insert(0, trust * level.variance)
    for i in range(1, len(counts)):
        missing = counts[i - 1] - _pairs(counts[i]).sum(axis=1)
        counts[i] = counts[i] + np.repeat(missing / 2, 2, axis=0)
    return counts, variances


def _pairs(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    return counts.reshape(-1, 2, counts.shape[1])


# Shares of the spend: all levels' choices, all levels' counts, and the leaves' counts.
_CHOICES, _COUNTS, _LEAVES = Fraction(7, 10), Fraction(1, 10), Fraction(2, 10)
# Gini where a node's rows times the rate of a choice exceed this; the balanced score below.
_PLENTY = 500.0


@dataclass(frozen=True, slots=True)
class Tree:
    """Released tree. The children of node i of a level are 2i and 2i + 1 of the next.

    Attributes:
        axes: the public cells of the features.
        features, cells: for each level and node: the test is whether a row's cell of the feature is at most this one
            (an ordered feature) or equal to it (a category); rows that pass go to the first child.
        shares: class shares of each leaf, one column per class.
        rows: approximate number of rows of each leaf; empty where it was not released.
    """

    axes: tuple[BinnedFeature, ...]
    features: tuple[Integers, ...]
    cells: tuple[Integers, ...]
    shares: NDArray[np.float64]
    rows: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def leaves(self, rows: Integers) -> Integers:
        """Return the leaf of each row of cells."""
        node = np.zeros(len(rows), dtype=np.int64)
        for features, cells in zip(self.features, self.cells, strict=True):
            node = _step(rows, node, features, cells, self.axes)
        return node

    def rules(self) -> list[str]:
        """Describe each leaf in words: the path to it, and its class shares."""
        lines = []
        for leaf, row in enumerate(self.shares):
            path, depth = [], len(self.features)
            for level in range(depth):
                node, yes = leaf >> (depth - level), not (leaf >> (depth - level - 1)) & 1
                axis, cell = self.axes[self.features[level][node]], int(self.cells[level][node])
                if axis.ordered:
                    path.append(f"{axis.name} {'<' if yes else '≥'} {axis.cuts[cell]:g}")
                else:
                    path.append(f"{axis.name} {'=' if yes else '≠'} {axis.labels()[cell]}")
            lines.append(f"{' and '.join(path)}: {', '.join(f'{share:.3f}' for share in row)}")
        return lines


def _step(
    rows: Integers, node: Integers, features: Integers, cells: Integers, axes: Sequence[BinnedFeature]
) -> Integers:
    values = rows[np.arange(len(rows)), features[node]]
    ordered = np.array([axis.ordered for axis in axes])[features[node]]
    yes = np.where(ordered, values <= cells[node], values == cells[node])
    return np.asarray(2 * node + ~yes)


def grow(
    meter: PrivacyFilter,
    budget: BudgetShare,
    data: BinnedRows,
    depth: int,
    share: Fraction,
    features: int | None = None,
) -> Tree:
    """Grow one tree.

    Args:
        meter, budget: the privacy filter and the budget to charge.
        data: the rows.
        depth: number of splits on the path to a leaf.
        share: share of the budget.
        features: number of features that a split may choose from, drawn anew for each; None for all.

    Privacy: that share of the budget: `depth` choices and `depth + 1` counts, each over nodes that share no row.
    """
    assert data.classes is not None
    classes, public = len(data.classes), public_generator(meter.source)
    choice = chooser(budget.part(share * _CHOICES / depth))
    counted, leaf = budget.part(share * _COUNTS / depth), budget.part(share * _LEAVES)
    levels: list[TreeLevel] = []
    chosen: list[tuple[Integers, Integers]] = []

    def nodes() -> Integers:
        rows = data.look()[0]
        node = np.zeros(len(rows), dtype=np.int64)
        for split in chosen:
            node = _step(rows, node, *split, data.axes)
        return node

    for level in range(depth):
        levels.append(_counts(meter, counted, data, nodes, 2**level, classes))
        estimate, rows = shares(levels)
        table = _candidates(data.axes, 2**level, features, public)
        plenty = rows * float(choice.one.epsilon) > _PLENTY
        look = partial(_scores, data, nodes, table, plenty, estimate)
        picks = np.array([table[i][pick] for i, pick in enumerate(meter.release(look, choice))])
        chosen.append((picks[:, 0], picks[:, 1]))
    levels.append(_counts(meter, leaf, data, nodes, 2**depth, classes))
    return Tree(data.axes, tuple(split[0] for split in chosen), tuple(split[1] for split in chosen), *shares(levels))


def _counts(
    meter: PrivacyFilter, loss: Loss, data: BinnedRows, nodes: Callable[[], Integers], width: int, classes: int
) -> TreeLevel:
    def look() -> Integers:
        cell = nodes() * classes + data.look()[1]
        return np.bincount(cell, minlength=width * classes).reshape(width, classes).astype(np.int64)

    amount = float(loss.amount)
    return TreeLevel(noisy_counts(meter, look, loss), 1 / (2 * amount) if loss.measure == "rho" else 2 / amount**2)


def _candidates(
    axes: Sequence[BinnedFeature], width: int, features: int | None, public: np.random.Generator
) -> list[list[tuple[int, int]]]:
    """Return the public candidate splits of each node."""
    splits = [[(i, c) for c in range(axis.size - axis.ordered)] for i, axis in enumerate(axes)]
    everything = range(len(axes))
    drawn = [everything if features is None else sorted(public.permutation(len(axes))[:features]) for _ in range(width)]
    return [[split for i in some for split in splits[i]] for some in drawn]


def _scores(
    data: BinnedRows,
    nodes: Callable[[], Integers],
    table: list[list[tuple[int, int]]],
    plenty: NDArray[np.bool_],
    estimate: NDArray[np.float64],
) -> list[Integers]:
    """Return the score of every candidate of every node."""
    (rows, labels), node = data.look(), nodes()
    width, classes = estimate.shape
    weights = weights_of(estimate)[:, None, :]
    by_split: dict[tuple[int, int], Integers] = {}
    for feature in sorted({split[0] for some in table for split in some}):
        axis = data.axes[feature]
        position = (node * axis.size + rows[:, feature]) * classes + labels
        counts = np.bincount(position, minlength=width * axis.size * classes).reshape(width, axis.size, classes)
        left = counts.cumsum(axis=1)[:, :-1] if axis.ordered else counts
        right = counts.sum(axis=1, keepdims=True) - left
        scores = np.where(plenty[:, None], gini(left, right), balanced(left, right, weights))
        by_split.update({(feature, cell): scores[:, cell] for cell in range(scores.shape[1])})
    return [np.array([by_split[split][i] for split in some], dtype=np.int64) for i, some in enumerate(table)]
