"""From noisy statistics to answers with intervals. Everything here is post-processing and costs nothing.

Each estimator takes the noisy statistics it needs and returns the answer for every group, with limits that hold the
answer on the capped and clipped rows, each with at least the confidence asked for. Confidences are exact: what a bound
over many groups leaves over of 1 may be less than a double can tell from nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from cloister.privacy.mechanisms import DiscreteGaussian, Numeric
from cloister.query.statistic import Leaves

__all__ = ["Estimate", "Noisy", "Tree", "count", "deviation", "extreme", "mean", "quantile", "total", "variance"]

Floats = NDArray[np.float64]
FAN_OUT = 16


@dataclass(frozen=True, slots=True)
class Noisy:
    """A measured statistic in its own units, and how wrong its noise may have made it.

    Attributes:
        value: the best estimate: as it was measured, or made to agree with others.
        measured: as it was measured.
        mechanism: the noise of the latter.
        unit: the worth of one integer step.
    """

    value: Floats
    measured: Floats
    mechanism: Numeric
    unit: float

    @property
    def standard_error(self) -> float:
        """Of each number."""
        return self.mechanism.standard_error * self.unit

    def margin(self, confidence: Fraction) -> float:
        """Half the width of an interval."""
        return float(self.mechanism.margin(confidence)) * self.unit

    def limits(self, confidence: Fraction) -> tuple[Floats, Floats]:
        """An interval for each number: around what was measured, and as far as the estimate.

        Of what was measured the law is known. An estimate that was put together from several has less variance, but
        another law: sums of Laplace noise are less peaked than one, and where noise is mostly none they rarely are.
        """
        margin = self.margin(confidence)
        return np.minimum(self.measured - margin, self.value), np.maximum(self.measured + margin, self.value)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An answer for every group. Limits are None where theory gives none."""

    value: NDArray[Any]
    low: Floats | None = None
    high: Floats | None = None
    note: str = ""


def count(noisy: Sequence[Noisy], confidence: Fraction) -> Estimate:
    """A number of rows or people: a statistic as it is."""
    low, high = noisy[0].limits(confidence)
    return Estimate(noisy[0].value, low, high)


total = count


def mean(centre: float, low: float, high: float) -> Callable[[Sequence[Noisy], Fraction], Estimate]:
    """centre + sum/count. The limits are the extremes of the ratio when both are within their own limits."""

    def estimate(noisy: Sequence[Noisy], confidence: Fraction) -> Estimate:
        sums, counts = noisy
        each = 1 - (1 - confidence) / 2
        below, above = _ratio(sums.limits(each), counts.limits(each))
        value = centre + sums.value / np.maximum(counts.value, 1)
        return Estimate(
            np.clip(value, low, high), np.clip(centre + below, low, high), np.clip(centre + above, low, high)
        )

    return estimate


def variance(centre: float, half: float, *, sample: bool) -> Callable[[Sequence[Noisy], Fraction], Estimate]:
    """Mean of squares less square of mean, both around a public centre; times n/(n-1) for a sample."""

    def estimate(noisy: Sequence[Noisy], confidence: Fraction) -> Estimate:
        squares, sums, counts = noisy
        each = 1 - (1 - confidence) / 3
        n = np.maximum(counts.value, 2)
        value = squares.value / n - (sums.value / n) ** 2
        square_low, square_high = _ratio(squares.limits(each), counts.limits(each))
        mean_low, mean_high = _ratio(sums.limits(each), counts.limits(each))
        nearest = np.where((mean_low <= 0) & (mean_high >= 0), 0, np.minimum(np.abs(mean_low), np.abs(mean_high)))
        low = square_low - np.maximum(np.abs(mean_low), np.abs(mean_high)) ** 2
        high = square_high - nearest**2
        counts_low = np.maximum(counts.limits(each)[0], 2)
        most, least = (counts_low / (counts_low - 1), 1.0) if sample else (1.0, 1.0)
        grow = n / (n - 1) if sample else 1.0
        widest = half**2 * (2.0 if sample else 1.0)
        return Estimate(
            np.clip(value * grow, 0, widest), np.clip(low * least, 0, widest), np.clip(high * most, 0, widest)
        )

    return estimate


def deviation(of: Callable[[Sequence[Noisy], Fraction], Estimate]) -> Callable[[Sequence[Noisy], Fraction], Estimate]:
    """The root of a variance."""

    def estimate(noisy: Sequence[Noisy], confidence: Fraction) -> Estimate:
        inner = of(noisy, confidence)
        low, high = (None if end is None else np.sqrt(end) for end in (inner.low, inner.high))
        return Estimate(np.sqrt(inner.value), low, high)

    return estimate


def _ratio(top: tuple[Floats, Floats], bottom: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """The extremes of a/b for a within limits and b within limits; unlimited if b may be less than one."""
    least, most = np.maximum(bottom[0], 1e-9), np.maximum(bottom[1], 1e-9)
    low = np.where(top[0] >= 0, top[0] / most, top[0] / least)
    high = np.where(top[1] >= 0, top[1] / least, top[1] / most)
    known = bottom[0] >= 1
    return np.where(known, low, -np.inf), np.where(known, high, np.inf)


# Quantiles


@dataclass(frozen=True, slots=True)
class Tree:
    """Noisy counts of a range, halved and halved again (by sixteen): one array (groups × nodes) a level, top first."""

    levels: tuple[Floats, ...]
    mechanisms: tuple[Numeric, ...]
    leaves: Leaves
    unit: float

    def ranks(self, q: float) -> tuple[Floats, Floats]:
        """For every edge between leaves, the noisy number of rows below it less q of all rows, and its variance."""
        groups, edges = self.levels[0].shape[0], np.arange(self.leaves.count + 1)
        below, variance = np.zeros((groups, len(edges))), np.zeros(len(edges))
        for depth, (level, mechanism) in enumerate(zip(self.levels, self.mechanisms, strict=True)):
            size = FAN_OUT ** (len(self.levels) - 1 - depth)  # leaves under a node
            node = np.minimum(edges // size, level.shape[1])
            first = node // FAN_OUT * FAN_OUT if depth else np.zeros_like(node)
            running = np.concatenate([np.zeros((groups, 1)), np.cumsum(level, axis=1)], axis=1)
            below += running[:, node] - running[:, first]
            noise = mechanism.variance * self.unit * self.unit
            if depth:
                variance += (node - first) * noise
            else:
                everything = level.sum(axis=1, keepdims=True)
                variance += (node * (1 - q) ** 2 + (level.shape[1] - node) * q**2) * noise
        return below - q * everything, variance

    def counts_beyond(self, *, upwards: bool) -> tuple[Floats, Floats]:
        """For every leaf, the noisy number of rows in it and all leaves above (or below) it, and its variance.

        Of the nodes that make up such a range, the fewest are added: near the end that few rows reach, noise is least.
        """
        leaf = np.arange(self.leaves.count)
        rows, variance = np.zeros((self.levels[0].shape[0], len(leaf))), np.zeros(len(leaf))
        for depth, (level, mechanism) in enumerate(zip(self.levels, self.mechanisms, strict=True)):
            node = leaf // FAN_OUT ** (len(self.levels) - 1 - depth)
            first = node // FAN_OUT * FAN_OUT if depth else np.zeros_like(node)
            own = 1 if depth == len(self.levels) - 1 else 0  # a larger node of its own is cut up further below
            if upwards:
                end = np.minimum(first + FAN_OUT, level.shape[1]) if depth else np.full_like(node, level.shape[1])
                low, high = node + 1 - own, end
            else:
                low, high = first, node + own
            running = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(level, axis=1)], axis=1)
            rows += running[:, high] - running[:, low]
            variance += (high - low) * (mechanism.variance * self.unit * self.unit)
        return rows, variance


def quantile(q: float) -> Callable[[Tree, Fraction], Estimate]:
    """The value that a share q of rows stays below. The limits are those that the noise cannot rule out."""

    def estimate(tree: Tree, confidence: Fraction) -> Estimate:
        rank, variance = tree.ranks(q)
        risen = np.maximum.accumulate(rank, axis=1)
        leaf = np.clip((risen < 0).sum(axis=1) - 1, 0, tree.leaves.count - 1)
        # Half a step more: noise of a step or so is no normal law yet.
        margin = np.sqrt(variance) * _sides(tree, confidence) + tree.unit / 2
        possible = (rank[:, :-1] <= margin[:-1]) & (rank[:, 1:] >= -margin[1:])
        last = tree.leaves.count - 1
        some = possible.any(axis=1)
        first = np.where(some, possible.argmax(axis=1), 0)
        final = np.where(some, last - possible[:, ::-1].argmax(axis=1), last)
        if tree.leaves.whole:
            return Estimate(tree.leaves.edge(leaf), tree.leaves.edge(first), tree.leaves.edge(final))
        return Estimate(tree.leaves.edge(leaf + 0.5), tree.leaves.edge(first), tree.leaves.edge(final + 1))

    return estimate


def extreme(*, largest: bool) -> Callable[[Tree, Fraction], Estimate]:
    """The outermost value that some row has for certain, as far as the noise tells.

    The count of rows from each leaf outwards is compared with a margin that all of these counts keep together (a union
    bound over the leaves). So with the stated confidence some row lies at the answer or beyond, and none beyond the
    outer limit. The outer limit is the column's own bound unless the noise is less than a row: few rows are hidden.
    Where no count exceeds its margin the rows cannot be told from none, and the answer is NULL.
    """

    def estimate(tree: Tree, confidence: Fraction) -> Estimate:
        leaves, last = tree.leaves, tree.leaves.count - 1
        beyond, variance = tree.counts_beyond(upwards=largest)
        margin = np.sqrt(variance) * _one_side(tree, (1 - confidence) / 2 / leaves.count)
        some, none = beyond > margin, beyond + margin < tree.unit  # counts are multiples of the unit
        known = some.any(axis=1)
        # From outside: the first leaf with rows beyond, and how many leaves before it surely have none.
        order = slice(None, None, -1) if largest else slice(None)
        inner = np.where(known, some[:, order].argmax(axis=1), last)
        empty = np.minimum(np.where(none.all(axis=1), last, (~none[:, order]).argmax(axis=1)), inner)
        leaf, outer = (last - inner, last - empty) if largest else (inner, empty)
        below, above = np.minimum(leaf, outer), np.maximum(leaf, outer)
        value, low, high = leaves.edge(leaf), leaves.edge(below), leaves.edge(above)
        if not leaves.whole:  # a row of the leaf may lie at its inner edge, and nothing says that one lies further out
            value, high = value if largest else leaves.edge(leaf + 1), leaves.edge(above + 1)
        return Estimate(
            np.where(known, value, np.nan),
            low,
            high,
            note="MIN and MAX hide values of few rows; NULL: the noise hides all",
        )

    return estimate


def _one_side(tree: Tree, beta: Fraction) -> float:
    """How many standard deviations a sum of the tree's noise exceeds with probability at most beta."""
    if all(isinstance(one, DiscreteGaussian) for one in tree.mechanisms):
        return math.sqrt(2 * math.log(1 / beta))  # sub-Gaussian: Canonne, Kamath & Steinke 2020
    return math.log(1 / beta) / math.sqrt(2)  # as in `_sides`


def _sides(tree: Tree, confidence: Fraction) -> float:
    """How many standard deviations a sum of the tree's noise stays within, on each of two sides."""
    beta = (1 - confidence) / 2
    if all(isinstance(one, DiscreteGaussian) for one in tree.mechanisms):
        return float(-ndtri(float(beta))) * (1 + 1e-9)
    # One Laplace noise stays within z deviations but for e^(-sqrt(2) z)/2 on a side, and sums have lighter tails; twice
    # that is allowed, for the discrete law.
    return math.log(1 / beta) / math.sqrt(2)
