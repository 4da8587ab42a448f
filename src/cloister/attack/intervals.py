"""Epsilons that a claim allows, and bounds from sample counts by Clopper and Pearson, which hold for every n."""

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.discrete_gaussian import normal_delta

__all__ = ["Floats", "TradeoffCurve", "at_least", "at_most", "curve", "epsilon_at_least", "epsilon_of_shift"]

Floats = NDArray[np.float64]

# Where the curve of a rho is tested: from the bulk of the outputs into their tails.
_DELTAS = ("0.3", "0.1", "0.03", "0.01", "0.003", "1e-3", "1e-4", "1e-5")
_STRIPS = 24  # that bound a region of two probabilities; more are hardly sharper, and slower


class TradeoffCurve(NamedTuple):
    """The epsilons that a claim allows, each at its delta."""

    deltas: Floats
    epsilons: Floats

    def strain(self, bounds: Floats) -> Floats:
        """Return bounds on epsilon divided by the allowed epsilon; above 1 the claim is false."""
        return np.asarray(bounds / np.maximum(self.epsilons, 1e-300))


@lru_cache(maxsize=64)
def curve(claim: Loss) -> TradeoffCurve:
    """Return one point for an epsilon; for a rho several points of the (epsilon, delta) curve it implies."""
    if claim.measure == "epsilon":
        return TradeoffCurve(np.array([float(claim.delta)]), np.array([float(claim.amount)]))
    implied = [claim.as_epsilon(delta=delta) for delta in _DELTAS if float(delta) + claim.delta < 1]
    return TradeoffCurve(np.array([float(x.delta) for x in implied]), np.array([float(x.amount) for x in implied]))


def at_least(count: ArrayLike, n: int, level: float) -> Floats:
    """Return a number that exceeds the true probability with probability at most `level`."""
    from scipy.special import betaincinv  # here, because scipy takes longer to import than this package

    k = np.asarray(count, dtype=np.float64)
    return np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, level), 0.0)


def at_most(count: ArrayLike, n: int, level: float) -> Floats:
    """Return a number that falls below the true probability with probability at most `level`."""
    from scipy.special import betainccinv

    k = np.asarray(count, dtype=np.float64)
    return np.where(k < n, betainccinv(k + 1, np.maximum(n - k, 1), level), 1.0)


def epsilon_at_least(
    often: ArrayLike, seldom: ArrayLike, n: int, level: float, deltas: Floats, *, others: int | None = None,
    strips: int = _STRIPS,
) -> Floats:  # fmt: skip
    """Return lower bounds on epsilon, one row per event and one column per delta.

    Pr[S] <= e^epsilon Pr'[S] + delta, so epsilon >= ln((Pr[S] - delta) / Pr'[S]). The two counts are independent, so
    pairs of probabilities for which the product of their two Clopper-Pearson p-values is small are ruled out together
    (Fisher 1932): minus the logarithm of that product is at most a Gamma variable of shape 2. Two intervals of half the
    level each would rule out less. What is left is bounded over strips, rounded against the bound. It holds
    with probability 1 - level for any number of deltas, since it does not depend on delta.

    Args:
        often: counts of the event on the side where it is likelier.
        seldom: counts on the other side.
        n: samples of the first side.
        level: the risk.
        deltas: the deltas of the bounds.
        others: samples of the other side; n unless given.
        strips: few are quicker and a little less sharp.
    """
    from scipy.special import gammainccinv

    total = float(gammainccinv(2, level))
    cuts = np.linspace(0, total, strips + 1)
    a, b = (np.atleast_1d(np.asarray(side, dtype=np.float64)) for side in (often, seldom))
    least = np.full((len(a), len(deltas)), np.inf)
    for lower, upper in pairwise(cuts):
        low, high = at_least(a, n, np.exp(-upper)), at_most(b, others or n, np.exp(lower - total))
        excess = np.maximum(low[:, None] - deltas, 0.0)
        with np.errstate(divide="ignore"):
            np.minimum(least, np.log(excess / high[:, None]), out=least)
    return np.asarray(np.maximum(least, 0.0))


def epsilon_of_shift(shift: float, delta: float) -> float:
    """Return the epsilon at a delta of Gaussian noise with means so many deviations apart (Balle & Wang 2018)."""
    if not 0 < shift < float("inf") or not 0 < delta < 1:
        return 0.0 if shift < float("inf") and (shift <= 0 or delta >= 1) else float("inf")
    low, high = 0.0, shift**2 / 2 + shift * 40
    if normal_delta(1 / shift, low) <= delta:
        return 0.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if normal_delta(1 / shift, middle) > delta else (low, middle)
    return low
