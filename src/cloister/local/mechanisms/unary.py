"""Unary encoding: one bit for each value, each perturbed independently. SUE, OUE, or any p and q."""

import math
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import Bytes, bit_rows, coins, put, row_width
from cloister.local.base.counts import (
    chosen,
    columns,
    debiased,
    frequencies,
    likelihood,
    no_spare_bits,
    tally,
    valid,
)
from cloister.local.base.dyadic import above, exactly, threshold
from cloister.local.base.oracle import Floats, Kind, Oracle, read_domain, read_loss
from cloister.local.base.perturb import perturbed, pieces
from cloister.local.base.projection import Likelihood, pairs
from cloister.privacy.errors import BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import Number, exp_down, rational, show

__all__ = [
    "UnaryEncoding",
    "bits_law",
    "bits_ratio",
    "check_bits",
    "optimised_bits",
    "symmetric_bits",
    "ThresholdEncoding",
]

_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class UnaryEncoding(Oracle):
    """The bit of the true value is 1 with probability p, each other bit with probability q.

    `symmetric` (SUE, basic RAPPOR: p = 1 - q; Erlingsson, Pihur & Korolova 2014) and `optimised` (OUE: p = 1/2; Wang et
    al. 2017) round q up to a short multiple of a power of 1/2. Bits are drawn in bulk as chains of ANDs and ORs over
    random words along the binary expansion of q. OUE is best for rare values only: for a value of share 1/2 and more,
    SUE has less error.

    Privacy: pure, p (1-q) / ((1-p) q) <= e^epsilon exactly; verified by enumeration for small domains.

    >>> from cloister.local import epsilon
    >>> oue = UnaryEncoding.optimised(1024, epsilon(1))
    >>> oue.p, round(float(oue.q), 3), oue.bits
    (Fraction(1, 2), 0.269, 1024)
    """

    name: ClassVar[str] = "unary-encoding"
    kind: ClassVar[Kind] = "bits"
    formula: ClassVar[str] = "q(1-q) / (n (p-q)²), rare values: OUE 4e^ε / (n (e^ε-1)²), SUE e^(ε/2) / (n (e^(ε/2)-1)²)"

    domain: int
    p: Fraction
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, _LARGEST)
        read_loss(self.loss, self.name)
        check_bits(self)
        self._certify()

    @classmethod
    def symmetric(cls, domain: int, loss: Loss) -> Self:
        """Build SUE: q = 1/(e^(epsilon/2) + 1), p = 1 - q."""
        return cls(domain, *symmetric_bits(read_loss(loss, cls.name)), loss)

    @classmethod
    def optimised(cls, domain: int, loss: Loss) -> Self:
        """Build OUE: p = 1/2, q = 1/(e^epsilon + 1)."""
        return cls(domain, *optimised_bits(read_loss(loss, cls.name)), loss)

    @property
    def bits(self) -> int:
        """The number of bits per report."""
        return self.domain

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return 1 << self.domain

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this value."""
        return bits_law(value, self.domain, self.p, self.q)

    def largest_ratio(self) -> Fraction:
        """Return the ratio: two bits differ between two values, and they are independent."""
        return bits_ratio(self.p, self.q)


def optimised_bits(amount: Fraction) -> tuple[Fraction, Fraction]:
    """Return OUE's p and q."""
    return Fraction(1, 2), above(1 / (exp_down(amount) + 1), amount)


def symmetric_bits(amount: Fraction) -> tuple[Fraction, Fraction]:
    """Return SUE's p and q."""
    q = above(1 / (exp_down(amount / 2) + 1), amount)
    return 1 - q, q


def check_bits(oracle: Oracle) -> None:
    """Read p and q."""
    for field in ("p", "q"):
        object.__setattr__(oracle, field, exactly(getattr(oracle, field), field))
    if oracle.p <= oracle.q:
        raise BadProbability("the bit of the true value must be likelier than the others; otherwise bits tell nothing.")


def bits_law(value: int, domain: int, p: Fraction, q: Fraction) -> tuple[Fraction, ...]:
    """Return the probability of every setting of the bits, the first value in the lowest bit."""
    chances = [p if index == value else q for index in range(domain)]
    return tuple(
        prod((chance if bits >> index & 1 else 1 - chance for index, chance in enumerate(chances)), start=Fraction(1))
        for bits in range(1 << domain)
    )


def bits_ratio(p: Fraction, q: Fraction) -> Fraction:
    """Return p (1-q) / ((1-p) q)."""
    return p * (1 - q) / ((1 - p) * q)


# Histogram encoding with thresholding, THE: noisy one-hot values, of which only "above theta" is reported.


@dataclass(frozen=True, slots=True)
class ThresholdEncoding(Oracle):
    """The report of SHE, cut at theta: bit i is 1 if component i plus Laplace noise of scale 2/epsilon exceeds it.

    The outcome has probability p = 1 - e^(epsilon (theta-1)/2)/2 for the true value and q = e^(-epsilon theta/2)/2 for
    the others (Wang et al. 2017); the device draws exactly these bits, so no noise of infinite precision is needed. The
    textbook's constants are wrong away from theta = 1 (spec E-02).

    Privacy: pure, p (1-q) / ((1-p) q) <= e^epsilon exactly (and strictly: the cut discards information already
    charged).

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
        """Build the mechanism with the theta of least variance, or a given one between 0 and 1."""
        amount = read_loss(loss, cls.name)
        cut = best_theta(amount) if theta is None else _read_cut(theta)
        return cls(domain, cut, *_bits_at(cut, amount), loss)

    @property
    def bits(self) -> int:
        """The number of bits per report."""
        return self.domain

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return 1 << self.domain

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this value."""
        return bits_law(value, self.domain, self.p, self.q)

    def largest_ratio(self) -> Fraction:
        """Return the ratio: two bits differ between two values, and they are independent."""
        return bits_ratio(self.p, self.q)


def _read_cut(theta: Number) -> Fraction:
    cut = rational(theta, "theta")
    if not 0 <= cut <= 1:
        raise BadProbability(f"theta must lie between 0 and 1, got {show(cut)}. Leave it out for the best one.")
    return cut


def _bits_at(cut: Fraction, amount: Fraction) -> tuple[Fraction, Fraction]:
    """Return p and q. 1 - p and q are both rounded up: each brings the two laws closer."""

    def half(power: Fraction) -> Fraction:
        return above(1 / exp_down(power) / 2, amount) if power else Fraction(1, 2)

    return 1 - half(amount * (1 - cut) / 2), half(amount * cut / 2)


def best_theta(amount: Fraction) -> Fraction:
    """Return the theta in [1/2, 1] of least variance for a rare value, to four places; rounding costs no privacy."""
    e = max(float(amount), 1e-6)  # theta is the same below; differences would have no digits left

    def variance(theta: float) -> float:
        p, q = 1 - math.exp(e * (theta - 1) / 2) / 2, math.exp(-e * theta / 2) / 2
        return q * (1 - q) / (p - q) ** 2

    low, high = 0.5, 1.0
    for _ in range(60):  # the variance has one minimum here; ternary search
        third = (high - low) / 3
        if variance(low + third) < variance(high - third):
            high -= third
        else:
            low += third
    return Fraction(round(low * 10_000), 10_000)


# Device: one word for the true bit, then coins for all others.


@perturbed.register
def unary(mechanism: UnaryEncoding | ThresholdEncoding, values: NDArray[np.int64], source: Source) -> Bytes:
    """Return packed bits, the first value in the lowest bit of the first byte; bits beyond the domain are 0."""
    width = row_width(mechanism.domain)
    rows = np.empty((len(values), width), dtype=np.uint8)
    for piece in pieces(len(values)):
        batch = values[piece]
        true_bits = coins(threshold(mechanism.p), len(batch), source)
        put(bit_rows(mechanism.q, rows[piece], source), batch, true_bits, mechanism.domain)
    return rows


# Collector, for subset selection too: column sums of packed bits.


Unary = UnaryEncoding | ThresholdEncoding


@valid.register
def _valid(mechanism: UnaryEncoding | ThresholdEncoding, data: NDArray[Any]) -> NDArray[np.bool_]:
    return no_spare_bits(data, mechanism.domain)


@tally.register
def _counts(mechanism: Unary, data: NDArray[Any]) -> NDArray[np.int64]:
    return columns(data, mechanism.domain)


@frequencies.register
def _shares(
    mechanism: Unary, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(debiased(mechanism, table, people), values)


@likelihood.register
def _likelihood(mechanism: Unary, table: NDArray[Any], people: int) -> Likelihood:
    return pairs(table.astype(np.float64), people, float(mechanism.p), float(mechanism.q))
