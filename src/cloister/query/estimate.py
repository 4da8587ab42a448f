"""Estimators: from noisy statistics to answers with intervals. All of it is post-processing and costs nothing.

Each estimator takes the noisy statistics it needs and returns the answer for every group, with limits that hold the
answer on the capped and clipped rows, each with at least the requested confidence. Confidences are exact rationals:
after a union bound over many groups, the complement may be too small for a double.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.mechanisms import Numeric
from cloister.query.noise_sums import margins

__all__ = [
    "Estimate",
    "Leaves",
    "Noisy",
    "Tree",
    "between_rows",
    "count",
    "deviation",
    "extreme",
    "mean",
    "quantile",
    "total",
    "variance",
]

Floats = NDArray[np.float64]
FAN_OUT = 16
_NEARLY = 2.0**-10


@dataclass(frozen=True, slots=True)
class Noisy:
    """A measured statistic in its own units, with its noise.

    Attributes:
        value: the best estimate: as measured, or made consistent with others.
        measured: as measured.
        mechanism: the noise of `measured`.
        unit: the value of one integer step.
        rounding: the most that one row is off, since it is rounded to a step.
        rows: the most rows that were added up, as far as that is public.
    """

    value: Floats
    measured: Floats
    mechanism: Numeric
    unit: float
    rounding: float = 0.0
    rows: float = 0.0

    @property
    def standard_error(self) -> float:
        """The standard error of each number."""
        return self.mechanism.standard_error * self.unit

    def margin(self, confidence: Fraction) -> float:
        """Return half the width of an interval."""
        return float(self.mechanism.margin(confidence)) * self.unit

    def limits(self, confidence: Fraction, rows: Any = 0.0) -> tuple[Floats, Floats]:
        """Return an interval for each number, around the measured value and extended to the estimate.

        It allows for the rounding of this many rows.

        The law of the measured value is known. An estimate combined from several has less variance but another law:
        sums of Laplace noise are less peaked, and noise that is mostly zero rarely sums to zero.
        """
        margin = self.margin(confidence) + self.rounding * np.maximum(rows, 0.0)
        return np.minimum(self.measured - margin, self.value), np.maximum(self.measured + margin, self.value)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An answer for every group. Limits are None where theory gives none."""

    value: NDArray[Any]
    low: Floats | None = None
    high: Floats | None = None
    note: str = ""


def count(noisy: Sequence[Noisy], confidence: Fraction) -> Estimate:
    """Estimate a number of rows or people: the statistic itself."""
    low, high = noisy[0].limits(confidence)
    return Estimate(noisy[0].value, low, high)


def total(noisy: Sequence[Noisy], confidence: Fraction) -> Estimate:
    """Estimate a sum: the statistic itself. The limits allow for the rounding of rows."""
    low, high = noisy[0].limits(confidence, noisy[0].rows)
    return Estimate(noisy[0].value, low, high)


def mean(centre: float, low: float, high: float) -> Callable[[Sequence[Noisy], Fraction], Estimate]:
    """Estimate centre + sum/count. The limits are the extremes of the ratio when both are within their own limits."""

    def estimate(noisy: Sequence[Noisy], confidence: Fraction) -> Estimate:
        sums, counts = noisy
        each = 1 - (1 - confidence) / 2
        count_limits = counts.limits(each)
        below, above = _ratio(sums.limits(each, count_limits[1]), count_limits)
        value = centre + sums.value / np.maximum(counts.value, 1)
        return Estimate(
            np.clip(value, low, high), np.clip(centre + below, low, high), np.clip(centre + above, low, high)
        )

    return estimate


def variance(centre: float, half: float, *, sample: bool) -> Callable[[Sequence[Noisy], Fraction], Estimate]:
    """Estimate mean of squares minus square of mean, around a public centre; times n/(n-1) for a sample.

    Where rows weigh less than two together, a sample's n is taken as 2 there.
    """

    def estimate(noisy: Sequence[Noisy], confidence: Fraction) -> Estimate:
        squares, sums, counts = noisy
        each = 1 - (1 - confidence) / 3
        n = np.maximum(counts.value, 1)
        value = squares.value / n - (sums.value / n) ** 2
        count_limits = counts.limits(each)
        square_low, square_high = _ratio(squares.limits(each, count_limits[1]), count_limits)
        mean_low, mean_high = _ratio(sums.limits(each, count_limits[1]), count_limits)
        nearest = np.where((mean_low <= 0) & (mean_high >= 0), 0, np.minimum(np.abs(mean_low), np.abs(mean_high)))
        low = square_low - np.maximum(np.abs(mean_low), np.abs(mean_high)) ** 2
        high = square_high - nearest**2
        counts_low = np.maximum(count_limits[0], 2)
        most, least = (counts_low / (counts_low - 1), 1.0) if sample else (1.0, 1.0)
        grow = np.maximum(n, 2) / (np.maximum(n, 2) - 1) if sample else 1.0
        widest = half**2 * (2.0 if sample else 1.0)
        low, high = np.clip(low * least, 0, widest), np.clip(high * most, 0, widest)
        return Estimate(np.clip(value * grow, low, high), low, high)

    return estimate


def deviation(of: Callable[[Sequence[Noisy], Fraction], Estimate]) -> Callable[[Sequence[Noisy], Fraction], Estimate]:
    """Estimate the root of a variance."""

    def estimate(noisy: Sequence[Noisy], confidence: Fraction) -> Estimate:
        inner = of(noisy, confidence)
        low, high = (None if end is None else np.sqrt(end) for end in (inner.low, inner.high))
        return Estimate(np.sqrt(inner.value), low, high)

    return estimate


def _ratio(top: tuple[Floats, Floats], bottom: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return the extremes of a/b for a and b within limits; unbounded if b may be less than one."""
    least, most = np.maximum(bottom[0], 1e-9), np.maximum(bottom[1], 1e-9)
    low = np.where(top[0] >= 0, top[0] / most, top[0] / least)
    high = np.where(top[1] >= 0, top[1] / least, top[1] / most)
    bounded = bottom[0] >= 1
    return np.where(bounded, low, -np.inf), np.where(bounded, high, np.inf)


# Quantiles


@dataclass(frozen=True, slots=True)
class Leaves:
    """The bottom of a quantile tree: equal bins between public bounds, or single integers.

    Attributes:
        low, high: the limits.
        width: of a leaf.
        count: the number of leaves.
        whole: whether each leaf is a single integer.
        factor: of bins, leaves per one: an engine puts x into leaf ⌊(x - low) · factor⌋, in doubles.
    """

    low: float
    high: float
    width: float
    count: int
    whole: bool
    factor: float = 1.0

    def lower(self, leaf: Any) -> Any:
        """Return a number that is in this leaf, or below all that are; of each leaf in an array."""
        return self.low + leaf if self.whole else _edges(self)[0][leaf]

    def upper(self, leaf: Any) -> Any:
        """Return a number that no number in this leaf exceeds; of each leaf in an array."""
        return self.low + leaf if self.whole else _edges(self)[1][leaf + 1]

    def middle(self, leaf: Any) -> Any:
        """Return the integer of this leaf, or the middle of the bin; of each leaf in an array."""
        return self.low + leaf if self.whole else self.low + (leaf + 0.5) * self.width


@lru_cache(maxsize=64)
def _edges(leaves: Leaves) -> tuple[Floats, Floats]:
    """Return the limits of bins, as an engine has them: of each edge the nearest doubles at and above it.

    `low + leaf · width` is off by a few roundings, and many rows may be at an edge: 0.1 between -0.2 and 0.2. So the
    smallest double that is put into a leaf is searched. Near zero there are too many doubles for that: there the first
    array is below it, and the second above.
    """
    leaf = np.arange(1, leaves.count)
    reach = 16 * np.spacing(max(abs(leaves.low), abs(leaves.high)))
    below, above = (leaves.low + leaf * leaves.width + side * reach for side in (-1, 1))
    for _ in range(80):
        middle = below + (above - below) / 2
        inside = (middle - leaves.low) * leaves.factor >= leaf
        below, above = np.where(inside, below, middle), np.where(inside, middle, above)
    first = np.where(np.nextafter(below, np.inf) >= above, above, below)
    ends = ([leaves.low], [leaves.high])
    return np.concatenate([ends[0], first, ends[1]]), np.concatenate([ends[0], above, ends[1]])


@dataclass(frozen=True, slots=True)
class Tree:
    """Noisy counts over a range split repeatedly (by sixteen): one array (groups × nodes) per level, top first."""

    levels: tuple[Floats, ...]
    mechanisms: tuple[Numeric, ...]
    leaves: Leaves
    unit: float

    @property
    def mechanism(self) -> Numeric:
        """The noise of one count, the same on every level."""
        (noise,) = set(self.mechanisms)
        return noise

    def ranks(self, q: float, beta: Fraction) -> tuple[Floats, Floats]:
        """Return, for every edge between leaves, the noisy row count below it minus q of all rows, and its margin.

        The noise exceeds the margin on each side with probability at most beta.
        """
        groups, edges = self.levels[0].shape[0], np.arange(self.leaves.count + 1)
        below, summed = np.zeros((groups, len(edges))), np.zeros((len(edges), 3), dtype=np.int64)
        for depth, level in enumerate(self.levels):
            size = FAN_OUT ** (len(self.levels) - 1 - depth)  # leaves under a node
            node = np.minimum(edges // size, level.shape[1])
            first = node // FAN_OUT * FAN_OUT if depth else np.zeros_like(node)
            running = np.concatenate([np.zeros((groups, 1)), np.cumsum(level, axis=1)], axis=1)
            below += running[:, node] - running[:, first]
            if depth:
                summed[:, 2] += node - first
            else:
                everything = level.sum(axis=1, keepdims=True)
                summed[:, 0], summed[:, 1] = node, level.shape[1] - node
        return below - q * everything, margins(self.mechanism, (1 - q, q, 1.0), summed, beta) * self.unit

    def counts_beyond(self, beta: Fraction, *, upwards: bool) -> tuple[Floats, Floats]:
        """Return, for every leaf, the noisy row count in it and all leaves above (or below) it, and its margin.

        The noise exceeds the margin on each side with probability at most beta. Each range is summed from
        the fewest nodes, so noise is least near the end that few rows reach.
        """
        leaf = np.arange(self.leaves.count)
        rows, summed = np.zeros((self.levels[0].shape[0], len(leaf))), np.zeros((len(leaf), 1), dtype=np.int64)
        for depth, level in enumerate(self.levels):
            node = leaf // FAN_OUT ** (len(self.levels) - 1 - depth)
            first = node // FAN_OUT * FAN_OUT if depth else np.zeros_like(node)
            included = 1 if depth == len(self.levels) - 1 else 0  # its part of a larger node is split further down
            if upwards:
                end = np.minimum(first + FAN_OUT, level.shape[1]) if depth else np.full_like(node, level.shape[1])
                low, high = node + 1 - included, end
            else:
                low, high = first, node + included
            running = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(level, axis=1)], axis=1)
            rows += running[:, high] - running[:, low]
            summed[:, 0] += high - low
        return rows, margins(self.mechanism, (1.0,), summed, beta) * self.unit


def quantile(q: float, *, before: float = 0.0, after: float = 0.0) -> Callable[[Tree, Fraction], Estimate]:
    """Estimate the value at rank q·n: the smallest that at least a share q of the rows does not exceed.

    The limits are those the noise cannot rule out: below the lower one are fewer rows, and below the upper one are not
    more. Each has half of the error probability, so that also a value between two rows is held, such as a median.

    Args:
        q: the share.
        before, after: how many rows before and after rank q·n another definition may look; see `between_rows`.
    """

    def estimate(tree: Tree, confidence: Fraction) -> Estimate:
        rank, margin = tree.ranks(q, (1 - confidence) / 2)
        margin = margin + tree.unit * _NEARLY  # q of a count is rounded
        risen = np.maximum.accumulate(rank, axis=1)
        last = tree.leaves.count - 1
        leaf = np.clip((risen < 0).sum(axis=1) - 1, 0, last)
        reached, begun = rank[:, 1:] >= -margin[1:] - before, rank[:, :-1] <= margin[:-1] + after
        first = np.where(reached.any(axis=1), reached.argmax(axis=1), 0)
        final = np.where(begun.any(axis=1), last - begun[:, ::-1].argmax(axis=1), last)
        return Estimate(tree.leaves.middle(leaf), tree.leaves.lower(first), tree.leaves.upper(final))

    return estimate


def between_rows(q: float, *, whole_rows: bool) -> dict[str, float]:
    """Return how far before and after rank q·n SQL's PERCENTILE_CONT looks.

    It interpolates the rows 1 + ⌊h⌋ and 1 + ⌈h⌉ of n, for h = q·(n - 1). Up to the former there are at least h + 1/b
    rows, and before the latter at most h + 1 - 1/b, if n is whole and b is the denominator of q. So nothing is to be
    added for the median. Where rows count less than once, the row that reaches rank 1 + ⌈h⌉ may have nearly as much
    weight before it: fewer than h + 2 rows, and more than h up to the other.

    Args:
        q: the share.
        whole_rows: True if every row counts once, so that n is whole.
    """
    if not whole_rows:
        return {"before": q, "after": 2 - q}
    step = 1 / Fraction(repr(float(q))).denominator
    return {"before": max(0.0, q - step), "after": max(0.0, 1 - q - step)}


def extreme(*, largest: bool) -> Callable[[Tree, Fraction], Estimate]:
    """Estimate the outermost value that some row reaches with the stated confidence.

    The row count from each leaf outwards is compared with a margin that holds for all these counts jointly (a union
    bound over the leaves). So with the stated confidence some row is at the answer or beyond, and none is beyond the
    outer limit. The outer limit is the column's own bound unless the noise is less than one row: few rows stay hidden.
    Where no count exceeds its margin, the rows cannot be distinguished from none, and the answer is NULL.
    """

    def estimate(tree: Tree, confidence: Fraction) -> Estimate:
        leaves, last = tree.leaves, tree.leaves.count - 1
        beyond, margin = tree.counts_beyond((1 - confidence) / 2 / leaves.count, upwards=largest)
        some, none = beyond > margin, beyond + margin < tree.unit  # counts are multiples of the unit
        has_rows = some.any(axis=1)
        # From outside: the first leaf with rows beyond it, and the number of leaves before it that are surely empty.
        order = slice(None, None, -1) if largest else slice(None)
        inner = np.where(has_rows, some[:, order].argmax(axis=1), last)
        empty = np.minimum(np.where(none.all(axis=1), last, (~none[:, order]).argmax(axis=1)), inner)
        leaf, outer = (last - inner, last - empty) if largest else (inner, empty)
        below, above = np.minimum(leaf, outer), np.maximum(leaf, outer)
        # A row of the leaf may be at its inner edge, and no evidence places one further out.
        value, low, high = (
            leaves.lower(leaf) if largest else leaves.upper(leaf),
            leaves.lower(below),
            leaves.upper(above),
        )
        return Estimate(
            np.where(has_rows, value, np.nan),
            low,
            high,
            note="MIN and MAX hide values of few rows; NULL: the noise hides all",
        )

    return estimate
