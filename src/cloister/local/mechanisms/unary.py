"""Unary encoding: one bit for each value, each tossed on its own. SUE, OUE, or any p and q."""

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import ClassVar, Self

from cloister.local.base.dyadic import above, exactly
from cloister.local.base.oracle import Kind, Oracle, read_domain, read_loss
from cloister.privacy.errors import BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.number import exp_down

__all__ = ["UnaryEncoding", "bits_law", "bits_ratio", "check_bits", "optimised_bits", "symmetric_bits"]

_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class UnaryEncoding(Oracle):
    """The bit of the true value is 1 with probability p, each other bit with probability q.

    `symmetric` (SUE, basic RAPPOR: p = 1 - q; Erlingsson, Pihur & Korolova 2014) and `optimised` (OUE: p = 1/2;
    Wang et al. 2017) round q up to a short multiple of a power of 1/2. Bits are tossed by the million as chains of
    ANDs and ORs over random words along the binary expansion of q. OUE is best for rare values only: for a
    value of share 1/2 and more, SUE errs less.

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
        """SUE: q = 1/(e^(epsilon/2) + 1), p = 1 - q."""
        return cls(domain, *symmetric_bits(read_loss(loss, cls.name)), loss)

    @classmethod
    def optimised(cls, domain: int, loss: Loss) -> Self:
        """OUE: p = 1/2, q = 1/(e^epsilon + 1)."""
        return cls(domain, *optimised_bits(read_loss(loss, cls.name)), loss)

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


def optimised_bits(amount: Fraction) -> tuple[Fraction, Fraction]:
    """OUE's p and q."""
    return Fraction(1, 2), above(1 / (exp_down(amount) + 1), amount)


def symmetric_bits(amount: Fraction) -> tuple[Fraction, Fraction]:
    """SUE's p and q."""
    q = above(1 / (exp_down(amount / 2) + 1), amount)
    return 1 - q, q


def check_bits(oracle: Oracle) -> None:
    """Read p and q."""
    for field in ("p", "q"):
        object.__setattr__(oracle, field, exactly(getattr(oracle, field), field))
    if oracle.p <= oracle.q:
        raise BadProbability("the bit of the true value must be likelier than the others; otherwise bits tell nothing.")


def bits_law(value: int, domain: int, p: Fraction, q: Fraction) -> tuple[Fraction, ...]:
    """The probability of every setting of the bits, the first value in the lowest bit."""
    ones = [p if place == value else q for place in range(domain)]
    return tuple(
        prod((one if bits >> place & 1 else 1 - one for place, one in enumerate(ones)), start=Fraction(1))
        for bits in range(1 << domain)
    )


def bits_ratio(p: Fraction, q: Fraction) -> Fraction:
    """p (1-q) / ((1-p) q)."""
    return p * (1 - q) / ((1 - p) * q)
