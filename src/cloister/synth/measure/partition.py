"""Private micro-aggregation: groups of about k rows, in which no row affects the group of another.

MDAV, the textbook's method, seeds groups with the outermost rows: one row more changes all groups, so that a group's
own small sensitivity does not bound that of the whole. Insensitive micro-aggregation (Domingo-Ferrer & Soria-Comas,
"From t-closeness to differential privacy via data anonymization", 2015; Soria-Comas et al. 2014) forms groups along a
fixed total order instead: one row changes each group by at most one row. It still changes all of them, n/k means at
once.

Here the order is fixed too (cut by cut, one number after the other), but groups end at released medians and not at
exact ranks. The group of a row follows from its own values and from released values, and one row is in one group: it
changes no other group. The price is the noise of the medians; groups hold about k rows, not exactly.

Privacy: every level of cuts is one histogram in which a row is in one cell: a unit moves it by m, in L1 and in L2. The
number of levels follows from a released number of rows and from the noise, which is public.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, log2, sqrt

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.dialect import literal
from cloister.data.private_table import PrivateTable
from cloister.data.statistics import GroupKey
from cloister.privacy.filter import noise_for
from cloister.privacy.loss import Loss
from cloister.synth.domain.coarsening import nonnegative
from cloister.synth.domain.features import ONE, Features
from cloister.synth.measure.marginals import Floats, Measurer

__all__ = ["Leaf", "depth_of", "leaf_key", "partition"]

_MOST_DEPTH = 8
_CELLS = 16  # of a histogram used to find a cut
_CLEAR = 4  # a group must be this many times larger than the error of its median


@dataclass(frozen=True, slots=True)
class Leaf:
    """A group of rows.

    Attributes:
        path: cuts that lead to it: feature, position of the cut in units of 1/ONE, and whether the group is below.
    """

    path: tuple[tuple[int, int, bool], ...] = ()

    def bounds(self, number: int) -> tuple[float, float]:
        """Return the bounds of a feature in this group: low <= value < high."""
        low = max((cut for feature, cut, below in self.path if feature == number and not below), default=-ONE)
        high = min((cut for feature, cut, below in self.path if feature == number and below), default=ONE + 1)
        return low / ONE, high / ONE


def depth_of(survey: Measurer, total: float, size: float, loss: Loss, numbers: Sequence[int]) -> int:
    """Return the number of levels of cuts for groups of about this size, or fewer if noise would determine the cuts."""
    if not numbers or not isfinite(total) or total < 2 * size:
        return 0
    for depth in range(min(_MOST_DEPTH, int(log2(total / size))), 0, -1):
        sigma = survey.noise(loss.split(depth))
        if _CLEAR * sigma * sqrt(_CELLS / 2) <= total / 2 ** (depth - 1):
            return depth
    return 0


def partition(
    survey: Measurer, features: Features, numbers: Sequence[int], depth: int, size: int, loss: Loss, rows: PrivateTable
) -> list[Leaf]:
    """Partition rows into groups by cuts through some features in turn.

    Args:
        survey: the survey that pays.
        features: features of the domain.
        numbers: numeric features, used in turn.
        depth: number of levels of cuts.
        size: target number of rows in a group.
        loss: the loss of all levels together.
        rows: the rows from `features.rows`.

    Privacy: the loss, in equal parts for the levels.
    """
    leaves = [Leaf()]
    for level in range(depth):
        number = numbers[level % len(numbers)]
        line = np.rint(features.coordinates(features.listed[number].position) * ONE).astype(np.int64)
        line = np.union1d(line, [0])  # the position of missing numbers
        counts = _counts(survey, features, leaves, number, line, loss.split(depth), rows)
        leaves = [
            half for leaf, counted in zip(leaves, counts, strict=True) for half in _halves(leaf, number, *counted, size)
        ]
    return leaves


def leaf_key(features: Features, leaves: Sequence[Leaf]) -> GroupKey:
    """Return the group key by which an engine computes the group of a row."""
    sql = _tree(features, list(enumerate(leaves)), 0)
    return GroupKey("group", sql, range(len(leaves)), "integer")


def _tree(features: Features, leaves: Sequence[tuple[int, Leaf]], level: int) -> exp.Expression:
    """Return the comparisons that halve the groups, cut by cut."""
    if len(leaves) == 1:
        return literal(leaves[0][0])
    number, cut, _ = leaves[0][1].path[level]
    below = [leaf for leaf in leaves if leaf[1].path[level][2]]
    above = [leaf for leaf in leaves if not leaf[1].path[level][2]]
    test = exp.LT(this=features.column(number), expression=literal(cut))
    return exp.Case(
        ifs=[exp.If(this=test, true=_tree(features, below, level + 1))], default=_tree(features, above, level + 1)
    )


def _counts(
    survey: Measurer,
    features: Features,
    leaves: Sequence[Leaf],
    number: int,
    line: NDArray[np.int64],
    loss: Loss,
    rows: PrivateTable,
) -> list[tuple[Floats, NDArray[np.int64]]]:
    """Measure a noisy histogram of a feature within each group; return it with the start of each cell."""
    starts = [_starts(leaf, number, line) for leaf in leaves]
    keys = (leaf_key(features, leaves), GroupKey("place", features.column(number), tuple(line.tolist()), "integer"))
    noise = noise_for(survey.most, survey.most, loss)

    def look() -> NDArray[np.int64]:
        exact = np.asarray(rows.sums(keys).run(rows.engine)[0], dtype=np.int64).reshape(len(leaves), len(line))
        parts = [np.add.reduceat(row, np.searchsorted(line, at)) for row, at in zip(exact, starts, strict=True)]
        return np.concatenate(parts)

    noisy = np.asarray(survey.meter.release(look, noise), dtype=np.float64) / survey.whole
    ends = np.cumsum([len(at) for at in starts])
    return list(zip(np.split(noisy, ends[:-1]), starts, strict=True))


def _starts(leaf: Leaf, number: int, line: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the start of each cell of a histogram: at most 16 of equal width, within the group's bounds."""
    low, high = leaf.bounds(number)
    inside = line[(line >= low * ONE) & (line < high * ONE)]
    if not len(inside):
        return line[:1]
    return inside[np.unique(np.linspace(0, len(inside), min(_CELLS, len(inside)), endpoint=False).astype(np.int64))]


def _halves(leaf: Leaf, number: int, counts: Floats, starts: NDArray[np.int64], size: int) -> list[Leaf]:
    """Split a group at its noisy median, or keep it if it is too small for two."""
    total = float(counts.sum())
    if len(starts) < 2 or total < 2 * size:
        return [leaf]
    below = np.cumsum(nonnegative(counts, total))[:-1]
    cut = int(starts[1 + int(np.argmin(np.abs(below - total / 2)))])
    return [Leaf((*leaf.path, (number, cut, True))), Leaf((*leaf.path, (number, cut, False)))]
