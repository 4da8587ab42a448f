"""Optimised local hashing, OLH: hash your value into few buckets with a hash of your own, then direct encoding."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from cloister.local.base.dyadic import WORD, exactly, threshold, word_above
from cloister.local.base.oracle import Kind, Oracle, read_domain, read_loss
from cloister.privacy.errors import BadInput, BadLoss, BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.number import exp_down

__all__ = ["LocalHashing", "best_buckets", "digits_for", "is_prime", "lie_for"]

# The collector counts every (hash, bucket) pair that can arrive, in one table of at most this size, and walks it
# digits · buckets times.
_LARGEST_TABLE = 1 << 24
_LARGEST_WALK = 1 << 27


@dataclass(frozen=True, slots=True)
class LocalHashing(Oracle):
    """Each report names a hash function, drawn for it alone, and a bucket: the hashed value's own, or another.

    The family is linear over a prime number g of buckets: h(x) = sum of a_i x_i mod g, where x_i are the digits of x
    in base g and the seed is the vector a. Two values differ in a digit, so they meet with probability exactly 1/g.
    A rare value is then supported with probability exactly 1/g too, and the closed form holds without any "random
    enough". The family is as small as it can be (g^digits, near the domain's size), so the collector sums all of a
    million reports in one table and decodes it digit by digit: the fast form of Cormode, Maddock & Maple 2021 without
    its loss, close to the projective geometry of Feldman et al. 2022.

    Privacy: pure, for every seed, keep / lie <= e^epsilon exactly. The seed does not depend on the value.

    >>> from cloister.local import epsilon
    >>> olh = LocalHashing.for_loss(1024, epsilon(1))
    >>> olh.buckets, olh.digits, olh.bits
    (3, 7, 13)
    """

    name: ClassVar[str] = "local-hashing"
    kind: ClassVar[Kind] = "number"
    formula: ClassVar[str] = "(e^ε-1+g)² / (n (e^ε-1)² (g-1)) for a rare value: near 4e^ε / (n (e^ε-1)²)"

    domain: int
    buckets: int
    lie: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name)
        read_loss(self.loss, self.name)
        object.__setattr__(self, "lie", exactly(self.lie, "lie"))
        if not is_prime(self.buckets):
            raise BadInput("buckets must be prime, so that two values meet with probability exactly 1/buckets.")
        if not _fits(self.domain, self.buckets):
            raise BadInput(
                f"{self.domain:,} values in {self.buckets} buckets need a table of {self.outputs:,} counts, "
                "too many to decode quickly. Use fewer buckets, CountMeanSketch or HeavyHitters."
            )
        if self.p <= self.lie:
            raise BadProbability("the value's own bucket must be likelier than others; otherwise reports tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, loss: Loss, buckets: int | None = None) -> Self:
        """With the prime number of buckets of least variance (near e^epsilon + 1), or a given one."""
        amount = read_loss(loss, cls.name)
        size = read_domain(domain, cls.name)
        if buckets is None:
            buckets = best_buckets(float(amount), lambda g: _fits(size, g))
        return cls(domain, buckets, lie_for(amount, buckets), loss)

    @property
    def digits(self) -> int:
        """How many digits a value has in base `buckets`, and a seed too."""
        return digits_for(self.domain, self.buckets)

    @property
    def seeds(self) -> int:
        """How many hash functions there are."""
        return int(self.buckets**self.digits)

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from the lie
        """The probability that a report supports its true value."""
        return 1 - (self.buckets - 1) * self.lie

    @property
    def q(self) -> Fraction:  # type: ignore[override]  # follows from the family
        """The probability that a report supports another value: exactly 1/buckets."""
        return Fraction(1, self.buckets)

    @property
    def bits(self) -> int:
        """How many bits one answer takes: seed and bucket."""
        return (self.outputs - 1).bit_length()

    @property
    def outputs(self) -> int:
        """How many different reports there are: seed · buckets + bucket."""
        return self.seeds * self.buckets

    @property
    def thresholds(self) -> tuple[int, int]:
        """A word below the first keeps the bucket; the rest is shared out in runs of the second."""
        return threshold(self.p), threshold(self.lie)

    def hashed(self, seed: int, value: int) -> int:
        """The bucket of a value under a seed: the sum of the products of their digits, lowest first."""
        total = 0
        while value:
            total += (seed % self.buckets) * (value % self.buckets)
            seed, value = seed // self.buckets, value // self.buckets
        return total % self.buckets

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this value."""
        each = Fraction(1, self.seeds)
        return tuple(
            each * (self.p if bucket == self.hashed(seed, value) else self.lie)
            for seed in range(self.seeds)
            for bucket in range(self.buckets)
        )

    def largest_ratio(self) -> Fraction:
        """Two values that meet in no bucket: keep / lie."""
        return self.p / self.lie


def _fits(domain: int, buckets: int) -> bool:
    digits = digits_for(domain, buckets)
    table = buckets ** (digits + 1)
    return bool(table <= _LARGEST_TABLE and (digits - 1) * table * buckets + table <= _LARGEST_WALK)


def lie_for(amount: Fraction, buckets: int) -> Fraction:
    """The probability of each wrong bucket: 1/(e^epsilon + buckets - 1), rounded up to a multiple of 2^-64."""
    return Fraction(word_above(1 / (exp_down(amount) + buckets - 1)), WORD)


def digits_for(domain: int, base: int) -> int:
    """How many digits the values below `domain` need."""
    count, reach = 1, base
    while reach < domain:
        count, reach = count + 1, reach * base
    return count


def best_buckets(amount: float, fits: Callable[[int], bool]) -> int:
    """The prime of least variance among those that fit: they lie around e^epsilon + 1."""
    excess = math.expm1(min(amount, 25.0))
    primes = [g for g in range(2, 4096) if is_prime(g)]
    fitting = [g for g in primes if fits(g)]
    if not fitting:
        raise BadLoss("no number of buckets fits this domain. Use CountMeanSketch or HeavyHitters.")
    return min(fitting, key=lambda g: (excess + g) ** 2 / (g - 1))


def is_prime(number: int) -> bool:
    """Whether it is prime; numbers of buckets are small."""
    if not isinstance(number, int) or number < 2:
        return False
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))
