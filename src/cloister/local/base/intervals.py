"""How far an estimated share may lie from the true one, and its interval: every share that fits the reports.

    spread = spread_of(mechanism, table, n, shares, values)
    spread.error(shares), spread.interval(shares, "0.95")

An interval is the set of true shares under which reports such as these are no surprise. It plugs in no estimate: where
few reports can support a value, often none does, and the variance at the share that is then estimated is far below the
one at the true share.

    a sum of coins      support counts of pure protocols (Wang et al. 2017): the exact test of every number of people
    known noise         sums of discrete Laplace noise: their exact quantile
    anything else       the score test (Wilson 1927), with the variance at the share in question and half a step added
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

# A count with a larger variance is as good as normal, for any confidence that is asked for.
_NORMAL = 100.0
_FAR = 8.0  # standard deviations beyond which nothing is left


@dataclass(frozen=True, slots=True)
class Spread:
    """The law of estimated shares around the true ones.

    Attributes:
        n: how many reports speak of them.
        flat, slope: the variance of a share at the true share f is flat + slope·f + drawn·f·(1-f).
        step: the distance of neighbouring estimates.
        drawn: what the chance of who was asked adds.
        p, q: of each value, where its count of support is a sum of coins; None otherwise.
        noise: the reach of the noise for a chance to lie beyond it, where that is known and has no coins.
    """

    n: int
    flat: Floats
    slope: Floats
    step: Floats
    drawn: float = 0.0
    p: Floats | None = None
    q: Floats | None = None
    noise: Callable[[float], float] | None = None

    def variance(self, shares: Floats) -> Floats:
        """Of estimates, at these true shares."""
        return np.asarray(np.maximum(self.flat + self.slope * shares + self.drawn * shares * (1 - shares), 0.0))

    def error(self, shares: Floats) -> Floats:
        """Standard errors at estimated shares: never below that of a share of one person, or of all but one."""
        edge = min(1 / self.n, 0.5)
        likely, inner = np.clip(shares, 0.0, 1.0), np.clip(shares, edge, 1 - edge)
        return np.asarray(np.sqrt(np.maximum(self.variance(likely), self.variance(inner))))

    def asking(self, share: float) -> "Spread":
        """The same where only a share of the people was asked: n drawn from n/share, none twice."""
        return replace(self, drawn=self.drawn + (1 - share) / self.n)

    def interval(self, shares: Floats, confidence: Number) -> tuple[Floats, Floats]:
        """Ends of intervals, each with this confidence on its own; the estimate lies between them."""
        left = float(confidence_left(confidence))
        if self.noise is not None:
            reach = self.noise(left)
            return shares - reach, shares + reach
        low, high = self._score(shares, NormalDist().inv_cdf(1 - left / 2))
        if self.p is not None and self.q is not None:
            few = (self.n * (self.p - self.q)) ** 2 * self.variance(np.clip(shares, 0.0, 1.0)) < _NORMAL
            if few.any():
                least, most = self._exact(shares[few], self.p[few], self.q[few], left)
                # Where nothing is excluded on a side, the interval ends beyond what shares can be, as raw shares do.
                low[few] = np.where(least > 0, least, np.minimum(low[few], 0.0))
                high[few] = np.where(most < 1, most, np.maximum(high[few], 1.0))
        return np.minimum(low, shares), np.maximum(high, shares)

    def _score(self, shares: Floats, z: float) -> tuple[Floats, Floats]:
        """The roots of (share ± half a step - f)² = z² · variance at f, the outer ones."""
        ends = []
        for sign in (-1.0, 1.0):
            moved = shares + sign * self.step / 2
            square = 1 + z * z * self.drawn
            middle = moved + z * z * (self.slope + self.drawn) / 2
            root = np.sqrt(np.maximum(middle**2 - square * (moved**2 - z * z * self.flat), 0.0))
            found = (middle + sign * root) / square
            ends.append(np.minimum(found, moved) if sign < 0 else np.maximum(found, moved))
        return ends[0], ends[1]

    def _exact(self, shares: Floats, p: Floats, q: Floats, left: float) -> tuple[Floats, Floats]:
        """Clopper and Pearson's, for a count of which every number of people with the value makes a sum of coins."""
        counts = np.rint(self.n * (q + shares * (p - q)))
        kinds, member = np.unique(np.stack([counts, p, q]), axis=1, return_inverse=True)
        # If who was asked is chance too, coins of the mean probability spread at least as much (Hoeffding 1956).
        ends = _one_coin(kinds, self.n, left) if self.drawn else _two_coins(kinds, self.n, left)
        return ends[0][member.ravel()], ends[1][member.ravel()]


def _one_coin(kinds: Floats, n: int, left: float) -> tuple[Floats, Floats]:
    from scipy.special import betaincinv  # here, because scipy takes longer to import than this room

    count, p, q = kinds
    low = np.where(count > 0, betaincinv(np.maximum(count, 1), n - count + 1, left / 2), 0.0)
    high = np.where(count < n, betaincinv(count + 1, np.maximum(n - count, 1), 1 - left / 2), 1.0)
    return (low - q) / (p - q), (high - q) / (p - q)


def _two_coins(kinds: Floats, n: int, left: float) -> tuple[Floats, Floats]:
    """The least and the largest number of people under which the count is no surprise, by halving, as shares."""
    count, p, q = kinds
    around = coins(p, q, len(p), n)
    around = replace(around, step=4 * around.step)
    far = around._score((count / n - q) / (p - q), NormalDist().inv_cdf(1 - left / 2) + 3)
    first, last = (np.clip(end * n, 0, n) for end in far)
    first, last = np.floor(first), np.ceil(last)

    def halve(fits: Callable[[Floats], NDArray[np.bool_]], rising: bool) -> Floats:
        """The least number of people that fits, if more do too; or the largest, if fewer do."""
        below, above = first - 1, last + 1
        while (above - below > 1).any():
            middle = np.floor((below + above) / 2)
            down = fits(np.clip(middle, first, last)) == rising
            wide = above - below > 1
            below, above = np.where(wide & ~down, middle, below), np.where(wide & down, middle, above)
        return np.clip(above, first, last) if rising else np.clip(below, first, last)

    least = halve(lambda people: 1 - _at_most(count - 1, people, n, p, q) > left / 2, True)
    most = halve(lambda people: _at_most(count, people, n, p, q) > left / 2, False)
    return least / n, most / n


def _at_most(count: Floats, people: Floats, n: int, p: Floats, q: Floats) -> Floats:
    """The chance that so many coins of probability p, and n less so many of q, come to at most this count."""
    from scipy.special import betainc

    size = math.ceil(2 * _FAR * math.sqrt(float((people * p * (1 - p)).max(initial=0.0)))) + 4 * round(_FAR) + 1
    found = np.empty(len(count))
    each = max(1, (1 << 20) // size)
    for start in range(0, len(count), each):
        k, chance, other, most = (one[start : start + each, None] for one in (people, p, q, count))
        own = np.maximum(np.floor(k * chance) - size // 2, 0) + np.arange(size)
        weight, rest = _binomial(own, k, chance), most - own
        # The chance of at most `rest` of the others, from the last one up: one sum, and single chances for the others.
        last = rest[:, -1:]
        inner = np.clip(last, 0, np.maximum(n - k - 1, 0))
        below = np.where(
            last < 0, 0.0, np.where(last >= n - k, 1.0, betainc(np.maximum(n - k - inner, 1), inner + 1, 1 - other))
        )
        single = np.concatenate([np.zeros_like(below), _binomial(rest[:, -2::-1], n - k, other)], axis=1)
        found[start : start + each] = (weight[:, ::-1] * (below + np.cumsum(single, axis=1))).sum(axis=1)
    return found


def _binomial(count: Floats, n: Floats, chance: Floats) -> Floats:
    """The chance of so many among n coins; 0 of what cannot be."""
    from scipy.special import gammaln

    there = (count >= 0) & (count <= n)
    held = np.where(there, count, 0)
    log = gammaln(n + 1) - gammaln(held + 1) - gammaln(n - held + 1)
    return np.asarray(np.exp(log + held * np.log(chance) + (n - held) * np.log1p(-chance)) * there)


def coins(p: ArrayLike, q: ArrayLike, values: int, n: int) -> Spread:
    """Of a pure protocol: a report supports its own value with probability p and any other with q."""
    yes, other = (np.broadcast_to(np.asarray(one, dtype=np.float64), (values,)) for one in (p, q))
    gain = n * (yes - other) ** 2
    flat, slope = other * (1 - other) / gain, (yes * (1 - yes) - other * (1 - other)) / gain
    return Spread(n, flat, slope, 1 / (n * (yes - other)), p=yes, q=other)


def known_noise(values: int, n: int, scale: float, unit: float) -> Spread:
    """Of a mean of n reports with discrete Laplace noise of this scale, which counts in steps of 1/unit."""
    each = 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2
    flat, step = np.full(values, each / n / unit**2), np.full(values, 1 / (n * unit))
    return Spread(n, flat, np.zeros(values), step, noise=lambda left: _laplace(scale, n, left) / (n * unit))


@lru_cache(maxsize=256)
def _laplace(scale: float, n: int, left: float) -> float:
    """The least reach that a sum of n discrete Laplace draws goes beyond with at most this chance.

    It is a difference of two negative binomial counts. Where its steps are too many to list, four moments decide.
    """
    from scipy.stats import nbinom

    alpha = math.exp(-1 / scale)
    sigma = math.sqrt(2 * n * alpha) / (1 - alpha)
    z = NormalDist().inv_cdf(1 - left / 2)
    if sigma > 2_000:
        # Cornish and Fisher: of one draw the fourth cumulant over the squared variance is at most near 3.
        excess = (1 + 4 * alpha + alpha**2) / (2 * alpha) / n
        return (z + excess * (z**3 - 3 * z) / 24) * sigma if n > 30 else _listed(scale, n, left, sigma)
    size = math.ceil(n * alpha / (1 - alpha) + 2 * _FAR * sigma + 60 / -math.log(alpha)) + 1
    start = max(0, math.floor(n * alpha / (1 - alpha) - 2 * _FAR * sigma))
    law = nbinom.pmf(np.arange(start, size), n, 1 - alpha)
    both = np.convolve(law, law[::-1])
    middle = len(law) - 1
    beyond = 2 * np.cumsum(both[:middle:-1])[::-1]  # the chance of more than 0, 1, 2 … steps, from the far end
    return float(np.count_nonzero(beyond > left))


def _listed(scale: float, n: int, left: float, sigma: float) -> float:
    """The same on a coarser line: noise of a large scale is as good as continuous."""
    coarse = 2_000 / sigma
    return (_laplace(scale * coarse, n, left) + 1) / coarse


def mixed(parts: Sequence[Spread], weights: Floats, drawn: float, left: float) -> Spread:
    """Of a weighted mean of shares from several groups.

    Args:
        parts: of each group.
        weights: public ones that add up to 1.
        drawn: what the chance of who was in which adds.
        left: the chance to miss that intervals will be made for: noise whose tails are heavier counts for more.
    """
    z = NormalDist().inv_cdf(1 - left / 2)

    def flat(one: Spread) -> Floats:
        return one.flat if one.noise is None else np.full(len(one.flat), (one.noise(left) / z) ** 2)

    return Spread(
        sum(one.n for one in parts),
        np.asarray(sum(w * w * flat(one) for w, one in zip(weights, parts, strict=True))),
        np.asarray(sum(w * w * one.slope for w, one in zip(weights, parts, strict=True))),
        np.max([w * one.step for w, one in zip(weights, parts, strict=True)], axis=0),
        drawn + sum(float(w) ** 2 * one.drawn for w, one in zip(weights, parts, strict=True)),
    )


@singledispatch
def spread_of(
    mechanism: Oracle, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    """The spread of estimated shares. Mechanisms whose counts of support are no sums of coins register their own.

    Args:
        mechanism: the public facts.
        table: its counts.
        n: how many reports speak of the shares.
        shares: as estimated.
        values: those that they are of; None for the whole domain.
    """
    if type(mechanism).variance is not Oracle.variance:
        raise BadInput(f"no law of estimates is known for a {type(mechanism).__name__}.")
    return coins(float(mechanism.p), float(mechanism.q), len(shares), n)
