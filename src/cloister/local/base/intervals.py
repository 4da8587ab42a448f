"""Errors and intervals of estimated shares: an interval holds every share that fits the reports.

    spread = spread_of(mechanism, table, n, shares, values)
    spread.error(shares), spread.interval(shares, "0.95")

An interval is the set of true shares that a test on the reports does not reject. It plugs in no estimate: where few
reports can support a value, often none does, and the variance at the share then estimated is far below the one at the
true share.

    a sum of coins      support counts of pure protocols (Wang et al. 2017): the exact test of every number of people
    known noise         sums of discrete Laplace noise: their exact quantile, or a bound above it
    anything else       the score test (Wilson 1927), with the variance at the share in question and some steps added
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, singledispatch
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.local.base.oracle import Floats, Oracle
from cloister.privacy.errors import BadInput
from cloister.privacy.mechanisms.checks import confidence_left
from cloister.privacy.number import Number

__all__ = ["Spread", "coins", "known_noise", "mixed", "spread_of"]

_FEW = 100.0  # below this variance, counts of randomly chosen people are bounded by coins of the mean probability
_FAR = 8.0  # standard deviations beyond which the mass is negligible
_LISTED_LEFT = 1e-20  # the smallest miss probability for which lists of the noise have enough digits
_NODES, _GONE = 96, 38.0  # of an integral, up to a remainder of e^-38


@dataclass(frozen=True, slots=True)
class Spread:
    """The law of estimated shares around the true ones.

    Attributes:
        n: the number of reports about them.
        flat, slope: the variance of a share at the true share f is flat + slope·f + drawn·f·(1-f).
        step: the distance of neighbouring estimates.
        drawn: the variance added by random selection of the people asked.
        p, q: of each value, where its support count is a sum of coins; None otherwise.
        noise: maps a probability to the reach the noise exceeds with it, where known and not a sum of coins.
        others: further spreads with the same n and step. The variance at f is at most that of each of them.
    """

    n: int
    flat: Floats
    slope: Floats
    step: Floats
    drawn: float = 0.0
    p: Floats | None = None
    q: Floats | None = None
    noise: Callable[[float], float] | None = None
    others: tuple["Spread", ...] = ()

    def variance(self, shares: Floats) -> Floats:
        """Return the variance of estimates at these true shares."""
        own = np.asarray(np.maximum(self.flat + self.slope * shares + self.drawn * shares * (1 - shares), 0.0))
        return np.asarray(np.min([own, *(other.variance(shares) for other in self.others)], axis=0))

    def error(self, shares: Floats) -> Floats:
        """Return standard errors at estimated shares: never below that of a share of one person, or of all but one."""
        edge = min(1 / self.n, 0.5)
        likely, inner = np.clip(shares, 0.0, 1.0), np.clip(shares, edge, 1 - edge)
        return np.asarray(np.sqrt(np.maximum(self.variance(likely), self.variance(inner))))

    def asking(self, share: float) -> "Spread":
        """Return the spread if only a share of the people was asked: n drawn from n/share without replacement."""
        drawn = self.drawn + (1 - share) / self.n
        return replace(self, drawn=drawn, others=tuple(other.asking(share) for other in self.others))

    def interval(self, shares: Floats, confidence: Number) -> tuple[Floats, Floats]:
        """Return the ends of intervals, each with this confidence individually; the estimate is between them."""
        left = float(confidence_left(confidence))
        if self.noise is not None:
            reach = self.noise(left)
            return shares - reach, shares + reach
        low, high = self._score(shares, _normal(left))
        for other in self.others:  # a share fits if its distance is within every bound of the variance
            inner = other._score(shares, _normal(left))
            low, high = np.maximum(low, inner[0]), np.minimum(high, inner[1])
        if self.p is not None and self.q is not None:
            exact = np.ones(len(shares), dtype=bool)
            if self.drawn:
                exact = (self.n * (self.p - self.q)) ** 2 * self.variance(np.clip(shares, 0.0, 1.0)) < _FEW
            if exact.any():
                least, most = self._exact(shares[exact], self.p[exact], self.q[exact], left)
                # Where no share is excluded on a side, the interval ends outside [0, 1], as raw shares may.
                low[exact] = np.where(least > 0, least, np.minimum(low[exact], 0.0))
                high[exact] = np.where(most < 1, most, np.maximum(high[exact], 1.0))
        return np.minimum(low, shares), np.maximum(high, shares)

    def _score(self, shares: Floats, z: float) -> tuple[Floats, Floats]:
        """Return the outer roots of (share ± some steps - f)² = z² · variance at f.

        The steps are half a step, plus a bound on how far the tails of a sum of coins exceed those of a normal law:
        skewness and kurtosis are at most those of a Poisson count of the same variance (Cornish & Fisher 1938).
        """
        ends = []
        deviation = np.maximum(np.sqrt(self.variance(np.clip(shares, 0.0, 1.0))) / self.step, 1.0)
        steps = 0.5 + max(z * z - 1, 0.0) / 6 + max(z**3 - 3 * z, 0.0) / 24 / deviation
        for sign in (-1.0, 1.0):
            moved = shares + sign * self.step * steps
            square = 1 + z * z * self.drawn
            middle = moved + z * z * (self.slope + self.drawn) / 2
            root = np.sqrt(np.maximum(middle**2 - square * (moved**2 - z * z * self.flat), 0.0))
            end = (middle + sign * root) / square
            ends.append(np.minimum(end, moved) if sign < 0 else np.maximum(end, moved))
        return ends[0], ends[1]

    def _exact(self, shares: Floats, p: Floats, q: Floats, left: float) -> tuple[Floats, Floats]:
        """Return Clopper and Pearson's interval, for a support count that is a sum of coins."""
        counts = np.rint(self.n * (q + shares * (p - q)))
        kinds, member = np.unique(np.stack([counts, p, q]), axis=1, return_inverse=True)
        # If the people asked are random too, coins of the mean probability spread at least as much (Hoeffding 1956).
        ends = _one_coin(kinds, self.n, left) if self.drawn else _two_coins(kinds, self.n, left)
        return ends[0][member.ravel()], ends[1][member.ravel()]


def _normal(left: float) -> float:
    """Return the standard deviations that a normal number exceeds, on either side, with this probability."""
    return -NormalDist().inv_cdf(left / 2)


def _one_coin(kinds: Floats, n: int, left: float) -> tuple[Floats, Floats]:
    from scipy.special import betainccinv, betaincinv  # here, because scipy takes longer to import than this package

    count, p, q = kinds
    low = np.where(count > 0, betaincinv(np.maximum(count, 1), n - count + 1, left / 2), 0.0)
    high = np.where(count < n, betainccinv(count + 1, np.maximum(n - count, 1), left / 2), 1.0)
    return (low - q) / (p - q), (high - q) / (p - q)


def _two_coins(kinds: Floats, n: int, left: float) -> tuple[Floats, Floats]:
    """Return the least and the largest number of people that the count does not reject, as shares.

    A number of people is excluded only if the exact probability of such a count, or a more extreme one, is at most half
    of the allowed miss probability. With many people the ends are up to 1/500 of a standard error further out than
    necessary.
    """
    count, p, q = kinds
    # The number of people without the value is the number with it among inverted coins.
    least = _least(count, p, q, n, left / 2)
    most = n - _least(n - count, 1 - q, 1 - p, n, left / 2)
    return least / n, most / n


def _least(count: Floats, p: Floats, q: Floats, n: int, left: float) -> Floats:
    """Return the least number of people for which at least this count has more than this probability."""
    z = max(-NormalDist().inv_cdf(left), 0.0)
    law = coins(p, q, len(p), n)
    start = np.clip(np.floor(law._score((count / n - q) / (p - q), z)[0] * n), 0.0, float(n))
    near = np.ceil((2 + z * z / 2) / (p - q)) + 1
    width = np.maximum(np.floor(0.002 * np.sqrt(law.variance(start / n)) * n), 1.0)
    # Fewer people than `below` + 1 are excluded, and `above` people are not. At the ends this holds without a test.
    below, above = np.full(len(count), -1.0), np.full(len(count), n + 1.0)
    for guess in (start - near, start + near):
        below, above = _narrowed(np.clip(guess, 0.0, float(n)), below, above, count, p, q, n, left)
    while (wide := above - below > width).any():
        middle = np.where(wide, np.floor((below + above) / 2), below)
        below, above = _narrowed(middle, below, above, count, p, q, n, left)
    return np.asarray(np.minimum(below + 1, float(n)))


def _narrowed(
    people: Floats, below: Floats, above: Floats, count: Floats, p: Floats, q: Floats, n: int, left: float
) -> tuple[Floats, Floats]:
    """Return tighter bounds after testing a number between them; known numbers are not tested."""
    open_ones = (people > below) & (people < above)
    few = np.zeros(len(people), dtype=bool)
    few[open_ones] = _at_least(count[open_ones], people[open_ones], n, p[open_ones], q[open_ones]) <= left
    return np.where(open_ones & few, people, below), np.where(open_ones & ~few, people, above)


def _at_least(count: Floats, people: Floats, n: int, p: Floats, q: Floats) -> Floats:
    """Return the probability that `people` coins of probability p and n - `people` of q reach this count.

    The integral of the generating function along a circle through the saddle point (Daniels 1987): its sum over equal
    steps has an error that falls exponentially with their number, and no digits cancel however small the probability.
    Relative errors are near 1e-10 (tests/unit/local/test_intervals.py).
    """
    tails = np.empty(len(count))
    each = max(1, (1 << 18) // _NODES)
    with np.errstate(divide="ignore", under="ignore", over="ignore", invalid="ignore"):
        for i in range(0, len(count), each):
            tails[i : i + each] = _tail(*(part[i : i + each] for part in (count, people, n - people, p, q)))
    return tails


def _tail(count: Floats, people: Floats, others: Floats, p: Floats, q: Floats) -> Floats:
    """Return the same probability for a small batch."""

    def tilted(chance: Floats, by: Floats) -> Floats:
        return np.asarray(chance / (chance + (1 - chance) * np.exp(-by)))

    low, high = np.full(len(count), -18.0), np.full(len(count), math.log(300.0))  # logarithms of the tilt
    for _ in range(45):
        middle = (low + high) / 2
        tilt = np.exp(middle)
        mean = people * tilted(p, tilt) + others * tilted(q, tilt)
        above = mean - count > 1 / np.expm1(tilt)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    tilt = np.exp(high)
    a, b = tilted(p, tilt), tilted(q, tilt)
    variance = people * a * (1 - a) + others * b * (1 - b)
    angle = np.arccos(np.maximum(1 - _GONE / np.maximum(variance, 1.0), -1.0))[:, None] * np.linspace(0, 1, _NODES + 1)
    turn, across = -2 * np.sin(angle / 2) ** 2, np.sin(angle)  # e^(i·angle) - 1
    size, phase = np.zeros_like(angle), -angle * count[:, None]
    for many, chance in ((people, a), (others, b)):
        x, y = chance[:, None] * turn, chance[:, None] * across
        size += many[:, None] * np.log1p(2 * x + x * x + y * y) / 2
        phase += many[:, None] * np.arctan2(y, 1 + x)
    fall = np.exp(-tilt)[:, None]
    real, imaginary = -np.expm1(-tilt)[:, None] - fall * turn, fall * across
    values = np.exp(size) * (np.cos(phase) * real + np.sin(phase) * imaginary) / (real**2 + imaginary**2)
    values[:, 1:-1] *= 2
    generating = people * np.log1p(p * np.expm1(tilt)) + others * np.log1p(q * np.expm1(tilt)) - tilt * count
    chance = np.exp(generating) * values.sum(axis=1) * angle[:, 1] / (2 * math.pi)
    every = people * np.where(people > 0, np.log(p), 0.0) + others * np.where(others > 0, np.log(q), 0.0)
    chance = np.where(count >= people + others, np.exp(every), np.clip(chance, 0.0, 1.0))
    return np.asarray(np.where(count <= 0, 1.0, np.where(count > people + others, 0.0, chance)))


def coins(p: ArrayLike, q: ArrayLike, values: int, n: int) -> Spread:
    """Return the spread of a pure protocol: a report supports its own value with probability p and any other with q."""
    yes, other = (np.broadcast_to(np.asarray(chance, dtype=np.float64), (values,)) for chance in (p, q))
    gain = n * (yes - other) ** 2
    flat, slope = other * (1 - other) / gain, (yes * (1 - yes) - other * (1 - other)) / gain
    return Spread(n, flat, slope, 1 / (n * (yes - other)), p=yes, q=other)


def known_noise(values: int, n: int, scale: float, unit: float) -> Spread:
    """Return the spread of a mean of n reports with discrete Laplace noise of this scale, in steps of 1/unit."""
    each = 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2
    flat, step = np.full(values, each / n / unit**2), np.full(values, 1 / (n * unit))
    return Spread(n, flat, np.zeros(values), step, noise=lambda left: _laplace(scale, n, left) / (n * unit))


@lru_cache(maxsize=256)
def _laplace(scale: float, n: int, left: float) -> float:
    """Return the least reach that a sum of n discrete Laplace draws exceeds with at most this probability.

    The sum is a difference of two negative binomial counts. If it has too many steps to list, four moments decide, and
    a thousandth is added, more than their error. Probabilities too small for lists use Chernoff's bound.
    """
    from scipy.stats import nbinom

    alpha = math.exp(-1 / scale)
    if left < _LISTED_LEFT:
        by = np.linspace(0, 1, 10_001)[1:-1] / scale
        log = n * (2 * np.log1p(-alpha) - np.log1p(-alpha * np.exp(by)) - np.log1p(-alpha * np.exp(-by)))
        return float(np.min((log + math.log(2 / left)) / by))
    sigma = math.sqrt(2 * n * alpha) / (1 - alpha)
    z = _normal(left)
    if sigma > 2_000:
        # Cornish and Fisher: for one draw the fourth cumulant over the squared variance is at most about 3.
        excess = (1 + 4 * alpha + alpha**2) / (2 * alpha) / n
        return (z + excess * (z**3 - 3 * z) / 24) * sigma * 1.001 if n > 30 else _listed(scale, n, left, sigma)
    size = math.ceil(n * alpha / (1 - alpha) + 2 * _FAR * sigma + 60 / -math.log(alpha)) + 1
    start = max(0, math.floor(n * alpha / (1 - alpha) - 2 * _FAR * sigma))
    law = nbinom.pmf(np.arange(start, size), n, 1 - alpha)
    both = np.convolve(law, law[::-1])
    middle = len(law) - 1
    beyond = 2 * np.cumsum(both[:middle:-1])[::-1]  # the probability of more than 0, 1, 2 … steps, from the far end
    return float(np.count_nonzero(beyond > left))


def _listed(scale: float, n: int, left: float, sigma: float) -> float:
    """Return the reach on a coarser grid: noise of a large scale is nearly continuous."""
    coarse = 2_000 / sigma
    return (_laplace(scale * coarse, n, left) + 1) / coarse


def mixed(parts: Sequence[Spread], weights: Floats, drawn: float, left: float, *, alike: bool = True) -> Spread:
    """Return the spread of a weighted mean of shares from several groups.

    The variance of a group depends on its own share f_g. If the groups are not alike, only Σ w_g·f_g = f is known. The
    largest Σ w_g²·slope_g·f_g is then found by filling up the groups with the largest w_g·slope_g first. As a function
    of f it is concave: the least of as many lines as there are groups.

    Args:
        parts: of each group.
        weights: public ones that add up to 1.
        drawn: the variance added by random assignment to groups.
        left: the miss probability of the intervals: noise with heavier tails counts for more.
        alike: whether all groups have the same true shares, but for chance.
    """
    z = _normal(left)

    def flat(part: Spread) -> Floats:
        return part.flat if part.noise is None else np.full(len(part.flat), (part.noise(left) / z) ** 2)

    spread = Spread(
        sum(part.n for part in parts),
        np.asarray(sum(w * w * flat(part) for w, part in zip(weights, parts, strict=True))),
        np.asarray(sum(w * w * part.slope for w, part in zip(weights, parts, strict=True))),
        np.max([w * part.step for w, part in zip(weights, parts, strict=True)], axis=0),
        drawn + sum(float(w) ** 2 * part.drawn for w, part in zip(weights, parts, strict=True)),
    )
    if alike or len(parts) == 1:
        return spread
    slopes = np.stack([w * part.slope for w, part in zip(weights, parts, strict=True)])
    order = np.argsort(-slopes, axis=0)
    slopes, filled = np.take_along_axis(slopes, order, axis=0), np.cumsum(weights[order], axis=0)
    # The line of each group begins where those before it are full: at the sum of their weights.
    starts = np.concatenate([np.zeros((1, slopes.shape[1])), filled[:-1]])
    reached = np.concatenate([np.zeros((1, slopes.shape[1])), np.cumsum(slopes * weights[order], axis=0)[:-1]])
    lines = [
        replace(spread, flat=spread.flat + most - slope * start, slope=slope)
        for slope, start, most in zip(slopes, starts, reached, strict=True)
    ]
    return replace(lines[0], others=tuple(lines[1:]))


@singledispatch
def spread_of(
    mechanism: Oracle, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    """Return the spread of estimated shares. Mechanisms whose support counts are not sums of coins register their own.

    Args:
        mechanism: the public facts.
        table: its counts.
        n: the number of reports about the shares.
        shares: as estimated.
        values: the values of the shares; None for the whole domain.
    """
    if type(mechanism).variance is not Oracle.variance:
        raise BadInput(f"no law of estimates is known for a {type(mechanism).__name__}.")
    return coins(float(mechanism.p), float(mechanism.q), len(shares), n)
