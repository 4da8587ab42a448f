"""Privacy loss distributions (PLD): the tightest price of a plan whose steps are fixed beforehand.

The arithmetic is Google's `dp-accounting`, imported only here: it rounds privacy losses up to a grid and convolves.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np

from cloister.privacy.accountant.contract import Accountant, Step, checked, chosen_delta, chosen_epsilon
from cloister.privacy.accountant.events import DiscreteGaussianStep, GaussianStep, LaplaceStep
from cloister.privacy.accountant.renyi import RenyiAccountant
from cloister.privacy.accountant.rounded_gaussian import divergence, total_variation
from cloister.privacy.errors import BadScale, MissingExtra, WrongMeasure
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import DiscreteGaussian, Gaussian
from cloister.privacy.number import Number, rounded_up, show

__all__ = ["DistributionAccountant", "convolution_error", "pld_library"]

Line = Loss | DiscreteGaussianStep | GaussianStep | LaplaceStep | DiscreteGaussian

# Convolving by floating-point Fourier transform leaves errors of about 1e-16 a point; 1e-12 covers a million points of
# mixed sign. Deltas below 1e-10 would be dominated by it.
_ALLOWANCE = 1e-12
# The transform is raised to the power of the number of steps, which multiplies its relative error, about 2^-53, by that
# number. What adds up of it over the points of a tail is about 2^-54 a step (measured for up to 10^6 steps against the
# exact Gaussian: tests/unit/privacy/test_accounting_oracles.py); 2^-49 a step is taken.
_EACH_STEP = 2.0**-49
_LEAST_DELTA = Fraction(1, 10**10)
# Up to this sigma the discrete law is summed point by point.
_WIDEST = 2**14
# A divergence of 600 at order 2 is a loss of mean 300 that reaches 550: the arrays fit, and so does e^epsilon.
_LARGEST = 600


@dataclass(frozen=True, slots=True)
class DistributionAccountant(Accountant):
    """An accountant that composes privacy loss distributions.

    Steps are (epsilon, delta) losses, Gaussian, Laplace and sampled Gaussian noise.

    Discrete Gaussian noise on single integers (`DiscreteGaussian.for_loss(..., scalar=True)`) has its own distribution,
    with sigma up to 16,384 steps. Integer vectors, whole or sampled, are `DiscreteGaussianStep`: the distribution of
    rounded normal noise, and the distance from it in delta.

    Privacy: only for one release whose steps and number are fixed before the first row is read. Under adaptive choice
    the analyst who sees the answers chooses the next distribution, and stopping when the PLD is used up is not a valid
    filter. So the result enters a ledger as one (epsilon, delta): `accountant.loss(delta)`.

    Args:
        relation: the neighbours of every step.
        interval: the grid to which privacy losses are rounded up; finer is tighter and slower.

    >>> plan = DistributionAccountant().compose(GaussianStep(1, rate="0.01"), count=1000)
    >>> round(float(plan.epsilon(1e-5)), 3)
    1.828
    """

    relation: Relation = Relation.ADD_REMOVE
    interval: float = 1e-4
    plan: tuple[tuple[Line, int], ...] = ()  # sorted, so that the order of composing cannot matter

    def __post_init__(self) -> None:
        if not (isinstance(self.interval, float) and 1e-5 <= self.interval <= 1):
            raise BadScale(f"interval is a step in epsilon, a float from 1e-5 to 1.0, got {self.interval!r:.40}.")
        pld_library()

    def compose(self, what: Loss | Step, count: int = 1) -> Self:
        """Return the plan with `count` more such steps."""
        checked(what, count, self.relation)
        lines = dict(self.plan)
        line = _line(what)
        lines[line] = lines.get(line, 0) + count
        size = RenyiAccountant(self.relation, orders=(Fraction(2),))
        for step, times in lines.items():
            size = size.compose(step.continuous if isinstance(step, DiscreteGaussianStep) else step, times)
        if (size.curve[0] or 0) > _LARGEST:
            raise BadScale(
                "this plan loses more than floats can hold, and promises nothing. Use more noise or fewer steps."
            )
        return replace(self, plan=tuple(sorted(((k, v) for k, v in lines.items() if v), key=repr)))

    def epsilon(self, delta: Number) -> Fraction:
        """The epsilon of the whole plan at this delta, rounded up."""
        exact = chosen_delta(delta, least=_LEAST_DELTA if self.plan else Fraction(0))
        if not self.plan:
            return Fraction(0)
        error = self._error()
        left = float(exact) - error
        if left <= 0:
            raise WrongMeasure(
                f"this many steps have no finite epsilon at delta {show(exact)}: it is within the rounding errors of "
                f"their composition, {error:.1g}. Ask at a larger one."
            )
        composed, apart = self._composed(), self._apart()
        estimate = max(float(composed.get_epsilon_for_delta(left)), 0.0)
        if apart and math.isfinite(estimate):
            left = float(exact) - error - _moved(apart, estimate)
            estimate = max(float(composed.get_epsilon_for_delta(left)), 0.0) if left > 0 else math.inf
        # The library's search adds a float step a million times and may end about 1e-9 too low; its delta does not.
        steps = [Fraction(0), *(Fraction(2**k, 10**11) for k in range(60))] if math.isfinite(estimate) else []
        for answer in (rounded_up(Fraction(estimate * (1 + _ALLOWANCE)) + step) for step in steps):
            if _delta(composed, answer, error) + Fraction(_moved(apart, float(answer))) <= exact:
                return answer
        raise WrongMeasure(f"this plan has no finite epsilon at delta {show(exact)}. Ask at a larger one.")

    def delta(self, epsilon: Number) -> Fraction:
        """The delta of the whole plan at this epsilon, rounded up."""
        exact = chosen_epsilon(epsilon)
        if not self.plan:
            return Fraction(0)
        moved = _moved(self._apart(), float(exact))
        return min(_delta(self._composed(), exact, self._error()) + rounded_up(moved), Fraction(1))

    def _error(self) -> float:
        return convolution_error(sum(times for _, times in self.plan))

    def _apart(self) -> float:
        """Return the total variation between the noise that is drawn and the noise whose distribution is composed."""
        total = sum(
            (divergence(line.sigma) * line.coordinates * times for line, times in self.plan
             if isinstance(line, DiscreteGaussianStep)),
            start=Fraction(0),
        )  # fmt: skip
        return total_variation(total) if total else 0.0

    def _composed(self) -> Any:
        # The library bounds tails by moments of many orders and takes the best; one that overflows is never the best.
        with np.errstate(over="ignore"):
            first, *rest = (_distribution(line, self.interval).self_compose(times) for line, times in self.plan)
            for other in rest:
                first = first.compose(other)
        return first


def _moved(apart: float, epsilon: float) -> float:
    """Return what a total variation adds to delta at this epsilon, rounded up."""
    return apart * (1 + math.exp(min(epsilon, 700.0))) * (1 + 2.0**-50) if apart else 0.0


def convolution_error(steps: int) -> float:
    """Return by how much the composed delta of this many steps can be off, for the roundings of the transform."""
    return _ALLOWANCE + steps * _EACH_STEP


def _delta(composed: Any, epsilon: Fraction, error: float) -> Fraction:
    """The delta of a composed distribution at this epsilon, rounded up."""
    # Delta falls with epsilon, so evaluate just below.
    delta = float(composed.get_delta_for_epsilon(min(float(epsilon), 1e9) * (1 - _ALLOWANCE)))
    return rounded_up(max(delta, 0.0) + error)


def _line(step: Loss | Step) -> Line:
    """Return the step in a form whose distribution is known; a pure mechanism counts by its epsilon."""
    if isinstance(step, Gaussian):
        step = step.steps  # the same noise, on the integers of its grid
    if isinstance(step, DiscreteGaussian):
        if step.scalar and step.sigma <= _WIDEST:
            return step
        raise WrongMeasure(
            "discrete Gaussian noise has a known distribution for single integers (scalar=True) and a sigma of at most "
            f"{_WIDEST} steps. Use RenyiAccountant or ZcdpAccountant; the continuous law would be priced too low."
        )
    if isinstance(step, DiscreteGaussianStep):
        divergence(step.sigma)  # refuses a coarse grid
        return step
    line = step if isinstance(step, Loss | GaussianStep | LaplaceStep) else step.pure
    if line is None or (isinstance(line, Loss) and line.measure != "epsilon"):
        raise WrongMeasure(
            "only (epsilon, delta) losses, Gaussian, Laplace and sampled Gaussian steps have a known distribution. "
            "Use RenyiAccountant, or ZcdpAccountant for a rho."
        )
    return line


def _distribution(line: Line, interval: float) -> Any:
    """Return the privacy loss distribution of the worst-case pair of output laws, rounded up."""
    pld = pld_library()
    distributions = pld.privacy_loss_distribution
    if isinstance(line, DiscreteGaussianStep):
        line = line.continuous
    if isinstance(line, GaussianStep):
        sigma, rate = _below(line.sigma), min(_above(line.rate), 1.0)
        return distributions.from_gaussian_mechanism(sigma, value_discretization_interval=interval, sampling_prob=rate)
    if isinstance(line, DiscreteGaussian):
        # The loss is largest for the largest shift of one integer, as the law is log-concave. The library restricts
        # the noise to a range that holds all but t < 1e-30 of it: delta(epsilon) <= t + its delta(epsilon + ln(1 - t)),
        # and t per step is far within the allowance.
        shift, sigma = math.floor(line.sensitivity) or 1, float(line.sigma)
        reach = math.ceil(12 * sigma) + shift
        return distributions.from_discrete_gaussian_mechanism(
            sigma, shift, truncation_bound=reach, value_discretization_interval=interval
        )
    if isinstance(line, LaplaceStep):
        return distributions.from_laplace_mechanism(_below(line.scale), value_discretization_interval=interval)
    # Randomised response that reveals everything with probability delta is the worst case (Kairouz et al. 2015).
    parameters = pld.common.DifferentialPrivacyParameters(_above(line.amount), _above(line.delta))
    return distributions.from_privacy_parameters(parameters, value_discretization_interval=interval)


def _above(value: Fraction) -> float:
    return math.nextafter(float(value), math.inf) if Fraction(float(value)) < value else float(value)


def _below(value: Fraction) -> float:
    return math.nextafter(float(value), 0.0) if Fraction(float(value)) > value else float(value)


def pld_library() -> Any:
    """Return dp-accounting's package of privacy loss distributions."""
    try:
        from dp_accounting import pld
    except ImportError:
        raise MissingExtra(
            "privacy loss distributions need dp-accounting. Run pip install 'cloister[accounting]', "
            "or use RenyiAccountant, which needs nothing."
        ) from None
    return pld
