"""Privacy loss distributions (PLD): the tightest price of a plan whose steps are fixed beforehand.

The arithmetic is Google's `dp-accounting`, imported only here: it rounds privacy losses up to a grid and convolves.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

from cloister.privacy.accountant.contract import Accountant, Step, checked, chosen_delta, chosen_epsilon
from cloister.privacy.accountant.renyi import RenyiAccountant
from cloister.privacy.accountant.steps import GaussianStep, LaplaceStep
from cloister.privacy.errors import BadScale, MissingExtra, WrongMeasure
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import Number, rounded_up, show

__all__ = ["DistributionAccountant"]

Line = Loss | GaussianStep | LaplaceStep

# Convolving by floating-point Fourier transform leaves errors of about 1e-16 a point; 1e-12 covers a million points of
# mixed sign (measured: tests/unit/test_accounting_oracles.py). Deltas below 1e-10 would drown in that allowance.
_ALLOWANCE = 1e-12
_LEAST_DELTA = Fraction(1, 10**10)
# A divergence of 600 at order 2 is a loss of mean 300 that reaches 550: the arrays fit, and so does e^epsilon.
_LARGEST = 600


@dataclass(frozen=True, slots=True)
class DistributionAccountant(Accountant):
    """Composes privacy loss distributions of (epsilon, delta) losses, Gaussian, Laplace and sampled Gaussian steps.

    Privacy: only for one release whose steps and number are written down before the first row is read. Under adaptive
    choice whoever sees the answers chooses the next distribution, and stopping when the PLD is used up is not a valid
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
        _library()

    def compose(self, what: Loss | Step, count: int = 1) -> Self:
        """The plan with `count` more such steps."""
        checked(what, count, self.relation)
        lines = dict(self.plan)
        line = _line(what)
        lines[line] = lines.get(line, 0) + count
        size = RenyiAccountant(self.relation, orders=(Fraction(2),))
        for step, times in lines.items():
            size = size.compose(step, times)
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
        found = float(self._composed().get_epsilon_for_delta(float(exact) - _ALLOWANCE))
        if not math.isfinite(found):
            raise WrongMeasure(f"this plan has no finite epsilon at delta {show(exact)}. Ask at a larger one.")
        return rounded_up(max(found, 0.0) * (1 + _ALLOWANCE))

    def delta(self, epsilon: Number) -> Fraction:
        """The delta of the whole plan at this epsilon, rounded up."""
        exact = chosen_epsilon(epsilon)
        if not self.plan:
            return Fraction(0)
        # The larger float is the smaller promise, so ask just below.
        found = float(self._composed().get_delta_for_epsilon(min(float(exact), 1e9) * (1 - _ALLOWANCE)))
        return min(rounded_up(max(found, 0.0) + _ALLOWANCE), Fraction(1))

    def _composed(self) -> Any:
        first, *rest = (_distribution(line, self.interval).self_compose(times) for line, times in self.plan)
        for other in rest:
            first = first.compose(other)
        return first


def _line(what: Loss | Step) -> Line:
    """The step in a form whose distribution is known; a mechanism with a pure guarantee counts by that."""
    line = what if isinstance(what, Loss | GaussianStep | LaplaceStep) else what.pure
    if line is None or (isinstance(line, Loss) and line.measure != "epsilon"):
        raise WrongMeasure(
            "only (epsilon, delta) losses, Gaussian, Laplace and sampled Gaussian steps have a known distribution. "
            "Describe the noise as GaussianStep(sigma / sensitivity), or use RenyiAccountant."
        )
    return line


def _distribution(line: Line, interval: float) -> Any:
    """The law of the privacy loss on the pair of outputs that is hardest to tell apart, rounded up."""
    pld = _library()
    known = pld.privacy_loss_distribution
    if isinstance(line, GaussianStep):
        sigma, rate = _below(line.sigma), min(_above(line.rate), 1.0)
        return known.from_gaussian_mechanism(sigma, value_discretization_interval=interval, sampling_prob=rate)
    if isinstance(line, LaplaceStep):
        return known.from_laplace_mechanism(_below(line.scale), value_discretization_interval=interval)
    # Randomised response that also tells everything with probability delta: the worst of all (Kairouz et al. 2015).
    parameters = pld.common.DifferentialPrivacyParameters(_above(line.amount), _above(line.delta))
    return known.from_privacy_parameters(parameters, value_discretization_interval=interval)


def _above(value: Fraction) -> float:
    return math.nextafter(float(value), math.inf) if Fraction(float(value)) < value else float(value)


def _below(value: Fraction) -> float:
    return math.nextafter(float(value), 0.0) if Fraction(float(value)) > value else float(value)


def _library() -> Any:
    try:
        from dp_accounting import pld
    except ImportError:
        raise MissingExtra(
            "privacy loss distributions need dp-accounting. Run pip install 'cloister[accounting]', "
            "or use RenyiAccountant, which needs nothing."
        ) from None
    return pld
