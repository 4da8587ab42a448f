"""Histogram encoding with thresholding, THE: noisy one-hot values, of which only "above theta" is said."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from cloister.local.base.dyadic import above
from cloister.local.base.oracle import Kind, Oracle, read_domain, read_loss
from cloister.local.mechanisms.unary import bits_law, bits_ratio, check_bits
from cloister.privacy.errors import BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.number import Number, exp_down, rational, show

__all__ = ["ThresholdEncoding", "best_theta"]


@dataclass(frozen=True, slots=True)
class ThresholdEncoding(Oracle):
    """The report of SHE, cut at theta: bit i says whether component i plus Laplace noise of scale 2/epsilon exceeds it.

    The comparison's outcome has probability p = 1 - e^(epsilon (theta-1)/2)/2 for the true value and
    q = e^(-epsilon theta/2)/2 for the others (Wang et al. 2017); the device tosses exactly these bits, so no noise of
    infinite precision is needed. The textbook's constants are wrong away from theta = 1 (spec E-02).

    Privacy: pure, p (1-q) / ((1-p) q) <= e^epsilon exactly (and strictly: the cut throws away what it costs).

    >>> from cloister.local import epsilon
    >>> the = ThresholdEncoding.for_loss(1024, epsilon(1))
    >>> round(float(the.theta), 3), round(the.mse(1), 2)
    (0.619, 4.81)
    """

    name: ClassVar[str] = "threshold-encoding"
    kind: ClassVar[Kind] = "bits"
    formula: ClassVar[str] = "(2e^(εθ/2)-1) / (n (1+e^(ε(θ-1/2))-2e^(εθ/2))²) for a rare value"

    domain: int
    theta: Fraction
    p: Fraction
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, 1 << 20)
        read_loss(self.loss, self.name)
        check_bits(self)
        object.__setattr__(self, "theta", _read_cut(self.theta))
        if (self.p, self.q) != _bits_at(self.theta, self.epsilon):
            raise BadProbability("p and q do not follow from theta and the loss. Use for_loss(), which computes them.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, loss: Loss, theta: Number | None = None) -> Self:
        """Cut at the theta of least variance, or at a given one between 0 and 1."""
        amount = read_loss(loss, cls.name)
        cut = best_theta(amount) if theta is None else _read_cut(theta)
        return cls(domain, cut, *_bits_at(cut, amount), loss)

    @property
    def bits(self) -> int:
        """How many bits one answer takes."""
        return self.domain

    @property
    def outputs(self) -> int:
        """How many different reports there are."""
        return 1 << self.domain

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this value."""
        return bits_law(value, self.domain, self.p, self.q)

    def largest_ratio(self) -> Fraction:
        """Two bits differ between two values, and they are independent."""
        return bits_ratio(self.p, self.q)


def _read_cut(theta: Number) -> Fraction:
    cut = rational(theta, "theta")
    if not 0 <= cut <= 1:
        raise BadProbability(f"theta must lie between 0 and 1, got {show(cut)}. Leave it out for the best one.")
    return cut


def _bits_at(cut: Fraction, amount: Fraction) -> tuple[Fraction, Fraction]:
    """p and q. 1 - p and q are both rounded up: each brings the two laws nearer to one another."""

    def half(power: Fraction) -> Fraction:
        return above(1 / exp_down(power) / 2, amount) if power else Fraction(1, 2)

    return 1 - half(amount * (1 - cut) / 2), half(amount * cut / 2)


def best_theta(amount: Fraction) -> Fraction:
    """The cut in [1/2, 1] of least variance for a rare value, to four places; no rounding of it costs privacy."""
    e = max(float(amount), 1e-6)  # the cut is the same below; differences would have no digits left

    def variance(theta: float) -> float:
        p, q = 1 - math.exp(e * (theta - 1) / 2) / 2, math.exp(-e * theta / 2) / 2
        return q * (1 - q) / (p - q) ** 2

    low, high = 0.5, 1.0
    for _ in range(60):  # the variance has one valley here; thirds narrow it down
        third = (high - low) / 3
        if variance(low + third) < variance(high - third):
            high -= third
        else:
            low += third
    return Fraction(round(low * 10_000), 10_000)
