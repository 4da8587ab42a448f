"""Optimised local hashing, OLH: hash the value into few buckets with a random hash, then direct encoding."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import Words, below, uniform
from cloister.local.base.counts import chosen, debiased, frequencies, likelihood, tally
from cloister.local.base.dyadic import WORD, exactly, threshold, word_above
from cloister.local.base.oracle import Floats, Kind, Oracle, read_domain, read_loss
from cloister.local.base.perturb import perturbed
from cloister.local.base.projection import Likelihood
from cloister.privacy.errors import BadInput, BadLoss, BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import exp_down

__all__ = ["LocalHashing", "best_buckets", "digits_for", "is_prime", "lie_for", "products", "supports"]

# The collector counts every possible (hash, bucket) pair in one table of at most this size, and passes over it
# digits · buckets times.
_LARGEST_TABLE = 1 << 24
_LARGEST_WALK = 1 << 27


@dataclass(frozen=True, slots=True)
class LocalHashing(Oracle):
    """Each report names its own random hash function and a bucket: the hashed value's own, or another.

    The family is linear over a prime number g of buckets: h(x) = sum of a_i x_i mod g, where x_i are the digits of x in
    base g and the seed is the vector a. Two values differ in a digit, so they collide with probability exactly 1/g. A
    rare value is then supported with probability exactly 1/g too, and the closed form holds without assumptions on
    randomness. The family is of minimal size (g^digits, near the domain's size), so the collector sums all of a million
    reports in one table and decodes it digit by digit: the fast form of Cormode, Maddock & Maple 2021 without its loss,
    close to the projective geometry of Feldman et al. 2022.

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
        """Build the mechanism with the prime number of buckets of least variance (near e^epsilon + 1), or given."""
        amount = read_loss(loss, cls.name)
        size = read_domain(domain, cls.name)
        if buckets is None:
            buckets = best_buckets(float(amount), lambda g: _fits(size, g))
        return cls(domain, buckets, lie_for(amount, buckets), loss)

    @property
    def digits(self) -> int:
        """The number of digits of a value, and of a seed, in base `buckets`."""
        return digits_for(self.domain, self.buckets)

    @property
    def seeds(self) -> int:
        """The number of hash functions."""
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
        """The number of bits per report: seed and bucket."""
        return (self.outputs - 1).bit_length()

    @property
    def outputs(self) -> int:
        """The number of different reports: seed · buckets + bucket."""
        return self.seeds * self.buckets

    @property
    def thresholds(self) -> tuple[int, int]:
        """The word thresholds: below the first the bucket is kept; the rest in runs of the second."""
        return threshold(self.p), threshold(self.lie)

    def hashed(self, seed: int, value: int) -> int:
        """Return the bucket of a value under a seed: the sum of the products of their digits, lowest first."""
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
        """Return keep / lie: the ratio for two values that share no bucket."""
        return self.p / self.lie


def _fits(domain: int, buckets: int) -> bool:
    digits = digits_for(domain, buckets)
    table = buckets ** (digits + 1)
    return bool(table <= _LARGEST_TABLE and (digits - 1) * table * buckets + table <= _LARGEST_WALK)


def lie_for(amount: Fraction, buckets: int) -> Fraction:
    """Return the probability of each wrong bucket: 1/(e^epsilon + buckets - 1), rounded up to a multiple of 2^-64."""
    return Fraction(word_above(1 / (exp_down(amount) + buckets - 1)), WORD)


def digits_for(domain: int, base: int) -> int:
    """Return the number of digits of values below `domain`."""
    count, reach = 1, base
    while reach < domain:
        count, reach = count + 1, reach * base
    return count


def best_buckets(amount: float, fits: Callable[[int], bool]) -> int:
    """Return the prime of least variance among those that fit; they are around e^epsilon + 1."""
    excess = math.expm1(min(amount, 25.0))
    primes = [g for g in range(2, 4096) if is_prime(g)]
    fitting = [g for g in primes if fits(g)]
    if not fitting:
        raise BadLoss("no number of buckets fits this domain. Use CountMeanSketch or HeavyHitters.")
    return min(fitting, key=lambda g: (excess + g) ** 2 / (g - 1))


def is_prime(number: int) -> bool:
    """Return True if a number is prime; numbers of buckets are small."""
    if not isinstance(number, int) or number < 2:
        return False
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


# Device: a random seed, then direct encoding of the value's bucket.


@perturbed.register
def _perturb(mechanism: LocalHashing, values: NDArray[np.int64], source: Source) -> Words:
    """Return seed · buckets + bucket: the seed's words first, then one word for the bucket."""
    g = mechanism.buckets
    seeds = uniform(mechanism.seeds, len(values), source)
    bucket = products(seeds, values.astype(np.uint64), mechanism.digits, g)
    return seeds * np.uint64(g) + below(mechanism.thresholds, bucket, g, source)


def products(seeds: Words, values: Words, digits: int, base: int) -> Words:
    """Return the sum of the products of the lowest digits, modulo the base."""
    g, total = np.uint64(base), np.zeros(len(values), dtype=np.uint64)
    for _ in range(digits):
        total += (seeds % g) * (values % g)
        seeds, values = seeds // g, values // g
    return total % g


# Collector: one table of (seed, bucket), decoded digit by digit.


@tally.register
def _counts(mechanism: LocalHashing, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.bincount(data.astype(np.int64), minlength=mechanism.outputs)


@frequencies.register
def _shares(
    mechanism: LocalHashing, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    counts = supports(table, mechanism.buckets, mechanism.digits)[: mechanism.domain]
    return chosen(debiased(mechanism, counts, people), values)


@likelihood.register
def _likelihood(mechanism: LocalHashing, table: NDArray[Any], people: int) -> Likelihood:
    """Return the likelihood: given its seed, a report is a direct encoding of the bucket of the value."""
    g, digits, domain = mechanism.buckets, mechanism.digits, mechanism.domain
    p, lie = float(mechanism.p), float(mechanism.lie)

    def expected(shares: Floats) -> Floats:
        start = np.zeros((g**digits, g))
        start[:domain, 0] = shares
        hashed = walk(start.ravel(), g, digits, -1)
        return np.asarray((lie * shares.sum() + (p - lie) * hashed) / g**digits)

    def back(weights: Floats) -> Floats:
        hit = walk(weights, g, digits, 1).reshape(-1, g)[:domain, 0]
        return np.asarray((lie * weights.sum() + (p - lie) * hit) / g**digits)

    return Likelihood(table.astype(np.float64), expected, back)


def supports(table: NDArray[Any], base: int, digits: int) -> NDArray[Any]:
    """Return each value's number of reports that name its bucket: the sum over seeds a of table[a, a·x mod base]."""
    return walk(table, base, digits, 1, whole=False)


def walk(table: NDArray[Any], base: int, digits: int, sign: int, whole: bool = True) -> NDArray[Any]:
    """Replace each digit a of a seed by a digit x of a value: new[x, r] = sum over a of old[a, r + sign·a·x].

    Digits are independent, so `digits` replacements of base² shifted sums each do the work of base^(2·digits)
    evaluations. With the other sign it is its own transpose. Unless `whole` is set, only r = 0 is computed.
    """
    rows, all_a = np.ascontiguousarray(table.reshape(-1, base).T), np.arange(base)  # a row for each r: long runs
    for left in reversed(range(digits)):
        old = rows.reshape(base, base, -1)  # the highest digit comes first; it is replaced last
        wanted = base if whole or left else 1
        new = np.empty((wanted, old.shape[2], base), dtype=old.dtype)
        for x in range(base):
            for r in range(wanted):
                new[r, :, x] = old[(r + sign * x * all_a) % base, all_a].sum(axis=0, dtype=old.dtype)
        rows = new.reshape(wanted, -1)
    return np.asarray(rows.T.ravel())
