"""Three projections to the simplex (non-negative shares that add up to 1), and one for shares of sets."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cloister.local.base.oracle import Floats

__all__ = ["Likelihood", "capped", "em", "norm_sub", "pairs", "simplex"]


class Likelihood(NamedTuple):
    """Counts of outcomes, and their probabilities given shares.

    Attributes:
        seen: the count of each outcome.
        expected: maps shares to the probability of each outcome.
        back: its transpose, from a weight for each outcome to one for each value.
    """

    seen: Floats
    expected: Callable[[Floats], Floats]
    back: Callable[[Floats], Floats]


def norm_sub(shares: Floats) -> Floats:
    """Return the nearest point of the simplex: one number is subtracted from all, and negative results become 0.

    Norm-Sub of Wang et al. 2020 repeats that step; sorting finds its limit directly (Duchi et al. 2008).
    """
    return simplex(shares, np.ones_like(shares))


def simplex(shares: Floats, variances: Floats) -> Floats:
    """Return the point of the simplex with the least sum of squares over variances: a more certain share moves less.

    It is max(share - t·variance, 0) for the t at which they add up to 1; that sum is piecewise linear in t.
    """
    weight = np.maximum(variances / max(float(variances.max()), 1e-300), 1e-12)
    order = np.argsort(-shares / weight)  # a share stays above 0 while t < share/weight
    totals, weights = np.cumsum(shares[order]), np.cumsum(weight[order])
    shifts = (totals - 1.0) / weights
    last = np.flatnonzero(shares[order] / weight[order] > shifts)[-1]
    clipped = np.maximum(shares - shifts[last] * weight, 0.0)
    return np.asarray(clipped / clipped.sum())


def em(likelihood: Likelihood, start: Floats, rounds: int = 3000, tolerance: float = 1e-3) -> Floats:
    """Return the most likely shares, by expectation maximisation from a start that excludes no value.

    Each round multiplies a share by its value's relative likelihood of the observed outcomes; the likelihood never
    falls. It ends when a round raises the log-likelihood by less than `tolerance`: the effect of noise on it is of the
    order of 1.
    """
    shares = 0.9 * start + 0.1 / len(start)
    before = -np.inf
    for _ in range(rounds):
        expected = np.maximum(likelihood.expected(shares), 1e-300)
        reached = float(likelihood.seen @ np.log(expected))
        shares = shares * likelihood.back(likelihood.seen / expected)
        shares /= shares.sum()
        if reached - before < tolerance:
            break
        before = reached
    return np.asarray(shares)


def capped(shares: Floats, most: int) -> Floats:
    """Return the nearest shares that are each in [0, 1] and together at most `most`.

    They are min(max(share - t, 0), 1) for the least t >= 0 with which they add up to at most `most`; the sum falls with
    t, so bisection finds it.
    """
    clipped = np.clip(shares, 0.0, 1.0)
    if clipped.sum() <= most:
        return np.asarray(clipped)
    low, high = 0.0, float(shares.max())
    for _ in range(100):
        middle = (low + high) / 2
        if np.clip(shares - middle, 0.0, 1.0).sum() > most:
            low = middle
        else:
            high = middle
    return np.asarray(np.clip(shares - high, 0.0, 1.0))


def pairs(counts: Floats, people: int, p: float, q: float) -> Likelihood:
    """Return the likelihood of support counts alone, when a report supports its value with p and another with q.

    Each value's count is treated separately (a composite likelihood): outcomes are "supported" and "not" for every
    value.
    """
    size = len(counts)

    def expected(shares: Floats) -> Floats:
        hit = q * shares.sum() + (p - q) * shares
        return np.concatenate((hit, shares.sum() - hit)) / size

    def back(weights: Floats) -> Floats:
        hit, miss = weights[:size], weights[size:]
        return np.asarray((hit.sum() * q + miss.sum() * (1 - q) + (p - q) * (hit - miss)) / size)

    return Likelihood(np.concatenate((counts, people - counts)), expected, back)
