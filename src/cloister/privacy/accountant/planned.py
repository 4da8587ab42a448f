"""A release whose noisy steps and their number are fixed before the first row is read, and the noise for its loss.

    plan = solve(spend, steps=1000, rate="1/64", coordinates=26_010)     sigma for the loss
    PlannedRelease(plan.steps, spend)                                    the mechanism that a ledger charges once

The loss is an (epsilon, delta), priced through privacy loss distributions, in which sampling counts; or a rho, in which
it does not: amplification by sampling is lost at the large orders of zCDP.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.accountant.events import DiscreteGaussianStep
from cloister.privacy.accountant.lower_bound import lower_epsilon
from cloister.privacy.accountant.pld import DistributionAccountant
from cloister.privacy.accountant.rounded_gaussian import divergence, total_variation
from cloister.privacy.errors import BadInput, BadLoss, BadScale, OverBudget, WrongMeasure
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import checks
from cloister.privacy.noise import SYSTEM, Source, discrete_gaussian
from cloister.privacy.noise.source import fork_count
from cloister.privacy.number import Number, rational, root_above, rounded_up

__all__ = ["NoiseSteps", "PlannedRelease", "Steps", "interval_for", "lower_price", "price", "solve"]

Steps = tuple[tuple[DiscreteGaussianStep, int], ...]  # a step, and how often it occurs

# Rounding losses to a grid of interval h adds about T h² to epsilon (measured; tests/unit/privacy/test_planned.py).
_SHARE = 1 / 2000
_FINEST, _COARSEST = 1e-5, 1e-2
_AHEAD = 2**16  # integers of noise that are drawn at once


@dataclass(frozen=True, slots=True)
class PlannedRelease:
    """One release that consists of planned steps of discrete Gaussian noise.

    A mechanism: a ledger charges the whole loss once, and the steps then draw their noise from `NoiseSteps`. Fewer
    steps than planned are private too (the others could be added and ignored).

    Args:
        steps: the steps, and how often each occurs; in this order.
        loss: an (epsilon, delta), or a rho; checked.

    Privacy: the loss, for one unit added or removed, if every unit enters the sample of a step independently with the
        step's rate and moves the step's integers by at most its sensitivity in L2.
    """

    name: ClassVar[str] = "planned-discrete-gaussian"
    textbook: ClassVar[bool] = False

    steps: Steps
    loss: Loss
    facts: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        _check(self.loss)
        if not self.steps or not price(self.steps, self.loss) <= self.loss.amount:
            raise BadLoss(f"these steps cost more than {self.loss}. Find their noise with solve().")

    @property
    def relation(self) -> Relation:
        """The neighbour relation of the loss."""
        return self.loss.relation

    @property
    def pure(self) -> None:
        """Gaussian noise has no pure guarantee."""

    @property
    def zcdp(self) -> Loss:
        """The loss as a rho, with its delta."""
        return self.loss.as_rho()

    def rdp(self, alpha: float) -> float:
        """Return the sum of the steps' divergences, without amplification."""
        alpha = checks.order(alpha)
        return math.fsum(step.rdp(alpha) * times for step, times in self.steps) * (1 + 2.0**-40)

    def parameters(self) -> dict[str, str]:
        """Public, exact parameters for a receipt."""
        lines = [
            f"{times} × sigma {step.sigma}, sensitivity {step.sensitivity}, rate {step.rate}, "
            f"integers {step.coordinates}"
            for step, times in self.steps
        ]
        return {"steps": "; ".join(lines), "loss": str(self.loss), **dict(self.facts)}

    def release(self, statistic: Callable[["NoiseSteps"], Any], source: Source | None = None) -> Any:
        """Carry the steps out.

        Args:
            statistic: a function that gets the noise of the steps, and returns what was made of noisy integers alone.
            source: the source of random bits.
        """
        return statistic(NoiseSteps(self.steps, source or SYSTEM))


@dataclass(slots=True)
class NoiseSteps:
    """The noise of planned steps, in order; each is used once.

    Noise does not depend on data, so that of short vectors is drawn for several steps at once. It stays in memory: no
    checkpoint holds it, and a forked process draws its own.

    Attributes:
        source: the source of random bits, for samples too.
        done: steps used so far.
    """

    steps: Steps
    source: Source
    done: int = 0
    _ahead: Any = field(default=(), init=False, repr=False)  # noise of the next steps, one in each row
    _drawn: Any = field(default=None, init=False, repr=False)  # the step it is for, and the process that drew it

    def skip(self, count: int) -> None:
        """Count steps as used whose noisy results exist already, in a checkpoint."""
        self.done += count

    def release(self, integers: NDArray[np.int64]) -> NDArray[Any]:
        """Return the integers with the noise of the next step.

        Raises:
            OverBudget: if all planned steps are used, or the next one is for another number of integers.
        """
        step = self._next()
        if step is None or integers.shape != (step.coordinates,) or integers.dtype != np.int64:
            raise OverBudget("the plan of this release has no such step left. Nothing more can be released under it.")
        noise = self._noise(step)
        self.done += 1
        noise += integers  # in place: this noise has no other use
        return noise

    def _noise(self, step: DiscreteGaussianStep) -> NDArray[Any]:
        owner = step, fork_count()
        if not len(self._ahead) or self._drawn != owner:
            left = sum(times for _, times in self.steps) - self.done
            size = min(left, max(1, _AHEAD // step.coordinates)), step.coordinates
            self._ahead, self._drawn = discrete_gaussian(step.sigma, size, self.source), owner
        noise: NDArray[Any] = self._ahead[0]
        self._ahead = self._ahead[1:]
        return noise

    def _next(self) -> DiscreteGaussianStep | None:
        before = 0
        for step, times in self.steps:
            before += times
            if self.done < before:
                return step
        return None


def price(steps: Steps, loss: Loss) -> Fraction:
    """Return the epsilon of planned steps at the loss's delta, or their rho, rounded up."""
    if loss.measure == "rho":
        return sum((step.zcdp.amount * times for step, times in steps), start=Fraction(0))
    return _epsilon(steps, loss.delta)


def solve(
    spend: Loss, *, steps: int, rate: Number, coordinates: int, sensitivity: int, also: Steps = ()
) -> DiscreteGaussianStep:
    """Return the step of least noise whose repetition is within a loss, the same each time.

    Args:
        spend: an (epsilon, delta), or a rho.
        steps: the number of steps.
        rate: the probability with which a unit enters the sample of a step.
        coordinates: the number of integers that each step releases.
        sensitivity: the L2 norm of a unit's integers, at most.
        also: further steps under the same loss.

    Returns:
        A step whose sigma is a whole number. The price is within a thousandth of the spend.
    """
    _check(spend)
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= 10**7:
        raise BadInput(f"steps is a whole number from 1 to 10,000,000, got {steps!r:.40}.")

    def made(multiplier: float) -> DiscreteGaussianStep:
        sigma = math.ceil(rounded_up(Fraction(multiplier)) * sensitivity)
        return DiscreteGaussianStep(sigma, sensitivity, coordinates, rate)

    if spend.measure == "rho":
        left = spend.amount - price(also, spend)
        if left <= 0:
            raise BadLoss("nothing is left for the steps. Spend more.")
        sigma = math.ceil(root_above(Fraction(sensitivity**2 * steps) / (2 * left)))
        return DiscreteGaussianStep(sigma, sensitivity, coordinates, rate)
    return made(_multiplier(spend, steps, rational(rate, "rate"), coordinates, sensitivity, also))


@lru_cache(maxsize=256)
def _multiplier(spend: Loss, steps: int, rate: Fraction, coordinates: int, sensitivity: int, also: Steps) -> float:
    """Return the noise multiplier at which the price is just below the spend."""

    def excess(multiplier: float) -> float:
        sigma = math.ceil(rounded_up(Fraction(multiplier)) * sensitivity)
        plan = ((DiscreteGaussianStep(sigma, sensitivity, coordinates, rate), steps), *also)
        try:
            return math.log(max(float(_epsilon(plan, spend.delta)), 1e-12) / target)
        except (BadLoss, BadScale, WrongMeasure):  # so little noise that no float holds its price
            return 50.0

    target = float(spend.amount)
    low, high = 0.0, max(1.0, math.sqrt(steps * float(rate) ** 2) / target)
    below, above = 50.0, excess(high)
    while above > 0:
        low, below, high = high, above, high * 2
        if high > 1e8:
            raise BadLoss(
                "no noise keeps these steps within this spend. Take fewer steps, spend more, or a larger delta."
            )
        above = excess(high)
    # Bisection in the logarithm, with the secant's point once both ends are near.
    for _ in range(60):
        if above > -1e-3 or high - low < 1e-6 * high:
            break
        middle = math.sqrt(max(low, high / 4) * high)
        if below < 3 and low > 0:
            share = below / (below - above + 5e-4)
            middle = low * (high / low) ** min(max(share, 0.02), 0.98)
        value = excess(middle)
        if value > 0:
            low, below = middle, value
        else:
            high, above = middle, value
    return high


def lower_price(steps: Steps, loss: Loss) -> float:
    """Return an epsilon (or a rho) that these steps do cost, for the worst neighbours; `price` is the upper bound.

    The noise that is drawn is as near to normal noise from below as from above: what its distance can move delta by is
    added to delta first. A rho is exact without sampling; with sampling its part below the price is not bounded, so 0.
    """
    if loss.measure == "rho":
        return float(price(steps, loss)) if all(step.rate == 1 for step, _ in steps) else 0.0
    upper = float(price(steps, loss))
    apart = total_variation(
        sum((divergence(step.sigma) * step.coordinates * times for step, times in steps), start=Fraction(0))
    )
    delta = float(loss.delta) * (1 + 2.0**-50) + apart * (1 + math.exp(min(upper, 700.0)))
    plan = [(step.continuous, times) for step, times in steps]
    interval = max(interval_for(steps, float(loss.delta)) / 3, _FINEST)  # the lower bound is five times as far away
    return min(lower_epsilon(plan, delta, interval), upper)


@lru_cache(maxsize=1024)
def _epsilon(steps: Steps, delta: Fraction) -> Fraction:
    plan = DistributionAccountant(interval=interval_for(steps, float(delta)))
    for step, times in steps:
        plan = plan.compose(step, times)
    return plan.epsilon(delta)


def interval_for(steps: Sequence[tuple[DiscreteGaussianStep, int]], delta: float) -> float:
    """Return the grid of privacy losses at which rounding adds about a two-thousandth to epsilon."""
    # The central limit of the plan: sampled steps are about Gaussian of parameter mu (Bu, Dong, Long & Su 2020).
    squared = 0.0
    for step, times in steps:
        inverse = min(float(step.sensitivity / step.sigma) ** 2, 50.0)
        squared += times * float(step.rate) ** 2 * math.expm1(inverse)
    mu = math.sqrt(squared)
    epsilon = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) / 2
    count = sum(times for _, times in steps)
    fine = min(math.sqrt(_SHARE * max(epsilon, 1e-6) / count), max(epsilon, 1e-6) / 50)
    return min(max(fine, _FINEST), _COARSEST)


def _check(loss: Loss) -> None:
    if not isinstance(loss, Loss) or loss.relation is not Relation.ADD_REMOVE:
        raise BadLoss("steps are planned for an add/remove loss. Write epsilon(1, delta='1e-6') or rho('0.1').")
    if (loss.measure == "epsilon") != bool(loss.delta):
        raise BadLoss(
            f"Gaussian noise needs an epsilon with a delta, or a plain rho, got {loss}. "
            "Write spend=epsilon(1, delta='1e-6')."
        )
