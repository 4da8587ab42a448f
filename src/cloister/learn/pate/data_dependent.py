"""Data-dependent loss of noisy votes, sanitised: a report beside the claim, never the claim.

    votes ──► gap of each query ──► Rényi divergence of each at one order ──► smooth upper bound ──► noisy logarithm
                                    Papernot et al. 2018, Theorem 6           one unit moves its logarithm by at most b

Where teachers agree, noise rarely changes a label, so a unit has less effect than the data-independent loss says. How
much less depends on the votes, and is as private as they are. What is published is a smooth upper bound in the sense
of Nissim, Raskhodnikova & Smith 2007 (Definition 2.1), of the divergence itself:

    F(votes) = max over d of exp(-b d) · the largest divergence of any votes that d changes of a unit lead to

F is at least the divergence, and ln F changes by at most b between neighbours. So Gaussian noise on ln F has a public
scale and needs no delta. (Papernot et al., appendix B, add noise scaled by the smooth sensitivity. That scale depends
on the votes, costs a delta that estimators do not have beside a rho, and is not exact on integers.)

A unit changes one vote of each query, so a gap between the two largest counts changes by at most two. The divergence of
a query is bounded by a function of its gap alone, which makes the largest over d changes exact arithmetic.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.frame import Floats
from cloister.learn.base.integer_rows import Integers
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.mechanisms import DiscreteGaussian

__all__ = ["SHARE", "DataDependent", "divergences", "order_for", "published", "smooth_bound"]

SHARE = Fraction(1, 20)  # of the spend, for the publication
_STEPS = 1024  # of the grid of logarithms, for one unit of them
_LEAST = 1e-12  # divergences below it are reported as it: the logarithm needs an end
_ERROR = 0.25  # standard deviation of the noise on the logarithm
_SURE = 2.0  # standard deviations that are added
_HOPED = 4  # by how much the votes may lower the loss, for the choice of the order


@dataclass(frozen=True, slots=True)
class DataDependent:
    """Sanitised data-dependent loss of the labels.

    Attributes:
        order: the order of the Rényi divergence, chosen from public facts.
        divergence: the published upper bound of the labels' divergence at that order; exceeded with a probability of
            about 2 %, by the noise.
        rest: what all else of the fit costs at that order, the publication included.
        delta: the delta at which the epsilon is stated.
    """

    order: float
    divergence: float
    rest: float
    delta: float

    @property
    def epsilon(self) -> float:
        """Return the epsilon of the whole fit at the delta (Mironov 2017, Proposition 3)."""
        return self.divergence + self.rest - math.log(self.delta) / (self.order - 1)

    def __str__(self) -> str:
        return (
            f"not the claim: for these votes about epsilon {self.epsilon:.3g} at delta {self.delta:.3g} (Rényi order "
            f"{self.order:.3g}, labels {self.divergence:.3g}, all else {self.rest:.3g}; sanitised, exceeded with "
            "probability 0.02)"
        )


def order_for(loss: BudgetShare, delta: float) -> float:
    """Return the order that is best at a delta if the votes lower the loss as hoped. Uses public facts alone."""
    return 1 + math.sqrt(_HOPED * -math.log(delta) / float(loss.loss.amount))


def divergences(teachers: int, classes: int, sigma: float, order: float) -> Floats:
    """Return bounds of one query's Rényi divergence, by the gap between its two largest counts: 0 to `teachers`.

    The label is another than the plurality with probability at most q = (classes - 1) exp(-gap² / 4 sigma²): discrete
    Gaussian noise is subgaussian (Canonne, Kamath & Steinke 2020, Corollary 17). Then Papernot et al. 2018, Theorem 6
    with the orders of Proposition 10, and never more than the data-independent order / sigma². Not increasing in the
    gap.
    """
    gaps = np.arange(teachers + 1, dtype=np.float64)
    logs = math.log(max(classes - 1, 1)) - gaps**2 / (4 * sigma**2)  # of q
    plain = order / sigma**2
    bounds = np.array([min(plain, _theorem6(float(log), sigma, order)) for log in logs])
    return np.asarray(np.maximum.accumulate(bounds[::-1])[::-1])


def _theorem6(log_q: float, sigma: float, order: float) -> float:
    """Return the bound for a label that differs from the plurality with probability at most q; infinite if none."""
    if log_q >= 0:
        return math.inf
    second = sigma * math.sqrt(-log_q)
    first = second + 1
    if second <= 1 or order > first:
        return math.inf
    epsilons = first / sigma**2, second / sigma**2
    limit = (second - 1) * epsilons[1] - second * math.log(first / (first - 1) * second / (second - 1))
    inner = (log_q + epsilons[1]) * (second - 1) / second
    if log_q > limit or inner >= 0:
        return math.inf
    log_rest = math.log1p(-math.exp(log_q))
    log_a = log_rest - math.log(-math.expm1(inner))
    log_b = epsilons[0] - log_q / (first - 1)
    total = np.logaddexp(log_rest + (order - 1) * log_a, log_q + (order - 1) * log_b)
    return max(0.0, float(total) / (order - 1))


def smooth_bound(gaps: Integers, bounds: NDArray[np.float64], rate: float) -> float:
    """Return F: the smallest bound of the divergence of all queries whose logarithm moves by `rate` for a change.

    Args:
        gaps: of each query.
        bounds: the divergence of one query by its gap, as `divergences` returns it.
        rate: how much the logarithm may move.

    Privacy: a function of the votes, as private as they are; only `published` may release it.
    """
    known, counts = np.unique(gaps, return_counts=True)
    most, best = float(bounds[0]) * len(gaps), 0.0
    for changes in range(len(bounds) // 2 + 1):
        if math.exp(-rate * changes) * most <= best:  # nothing further away can be more
            break
        near = np.maximum(known - 2 * changes, 0)
        best = max(best, math.exp(-rate * changes) * float(counts @ bounds[near]))
    return max(best, _LEAST)


def published(
    meter: PrivacyFilter,
    budget: BudgetShare,
    counts: Callable[[], Integers],
    *,
    teachers: int,
    sigma: float,
    order: float,
) -> float:
    """Return the noisy upper bound of the labels' divergence.

    Args:
        meter, budget: the filter to charge, and all that the publication may cost: a rho.
        counts: returns the votes of the labelled rows: queries × classes. Called inside a step.
        teachers: number of teachers, public.
        sigma: scale of the noise on the votes.
        order: order of the divergence, public.

    Privacy: the budget. The logarithm of the smooth bound, on a grid of 1/1024 rounded up, moves by at most its rate
        and one step for what floats round. Tested by enumeration in tests/unit/learn/test_pate_data_dependent.py.
    """
    rho = float(budget.loss.amount)
    steps = max(1, math.floor(_ERROR * math.sqrt(2 * rho) * _STEPS))
    noise = DiscreteGaussian.for_loss(steps + 1, budget.loss)

    def logarithm() -> Integers:
        votes = np.sort(np.asarray(counts()), axis=1)
        gaps = votes[:, -1] - votes[:, -2] if votes.shape[1] > 1 else votes[:, -1]
        bounds = divergences(teachers, votes.shape[1], sigma, order)
        bound = smooth_bound(gaps, bounds, steps / _STEPS)
        return np.array([math.ceil(math.log(bound) * _STEPS)], dtype=np.int64)

    noisy = int(np.asarray(meter.release(logarithm, noise))[0])
    return math.exp(min(noisy + _SURE * float(noise.standard_error), 700.0 * _STEPS) / _STEPS)
