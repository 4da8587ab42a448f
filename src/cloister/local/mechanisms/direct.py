"""Direct encoding, also generalised or k-ary randomised response: say your value, or any other, all alike."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from cloister.local.base.dyadic import WORD, exactly, threshold, word_above
from cloister.local.base.oracle import Kind, Oracle, read_domain, read_loss
from cloister.privacy.errors import BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.number import exp_down

__all__ = ["DirectEncoding"]

# Of a larger domain each value would have so few of the 2^64 words that rounding up would drown the truth.
_LARGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class DirectEncoding(Oracle):
    """The truth with probability p, each other value with probability q. Kairouz, Bonawitz & Ramage 2016.

    One 64-bit word u decides: below p·2^64 the truth, else the other value number (u - p·2^64) div (q·2^64), counted
    upwards from the truth and round the end. No value has probability 0, which the textbook's listing 4.7 (spec E-01)
    gets wrong.

    Privacy: pure, p/q <= e^epsilon exactly; verified by enumeration in tests/unit/test_local_verify.py.

    >>> from cloister.local import epsilon
    >>> jobs = DirectEncoding.for_loss(14, epsilon(5))
    >>> round(float(jobs.p), 4), round(float(jobs.q), 5), jobs.bits
    (0.9195, 0.0062, 4)
    """

    name: ClassVar[str] = "direct-encoding"
    kind: ClassVar[Kind] = "number"
    formula: ClassVar[str] = "(d-2+e^ε) / (n (e^ε-1)²) for a rare value"

    domain: int
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, _LARGEST)
        read_loss(self.loss, self.name)
        object.__setattr__(self, "q", exactly(self.q, "q"))
        if self.p <= self.q:
            raise BadProbability("the truth must be likelier than any other value; otherwise reports tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, loss: Loss) -> Self:
        """q = 1/(e^epsilon + domain - 1), rounded up to a multiple of 2^-64."""
        power = exp_down(read_loss(loss, cls.name))
        return cls(domain, Fraction(word_above(1 / (power + read_domain(domain, cls.name, _LARGEST) - 1)), WORD), loss)

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from q
        """The probability of the truth."""
        return 1 - (self.domain - 1) * self.q

    @property
    def bits(self) -> int:
        """How many bits one answer takes."""
        return (self.domain - 1).bit_length()

    @property
    def outputs(self) -> int:
        """How many different reports there are."""
        return self.domain

    @property
    def thresholds(self) -> tuple[int, int]:
        """A word below the first tells the truth; the rest is shared out in runs of the second."""
        return threshold(self.p), threshold(self.q)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this value."""
        return tuple(self.p if report == value else self.q for report in range(self.domain))

    def largest_ratio(self) -> Fraction:
        """p/q."""
        return self.p / self.q
