"""Heavy hitters: the most frequent values of a domain too large to list, found prefix by prefix."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import Words, below, tossed, uniform
from cloister.local.base.counts import frequencies, tally, valid
from cloister.local.base.dyadic import exactly, threshold
from cloister.local.base.oracle import Floats, Kind, Oracle, read_loss
from cloister.local.base.perturb import perturbed
from cloister.local.mechanisms.hashing import best_buckets, digits_for, is_prime, lie_for, products, supports
from cloister.privacy.errors import BadInput, BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source

__all__ = ["HeavyHitters"]

# Decoding one prefix passes digits · buckets times over a table of buckets^(digits+1) counts.
_LARGEST_WALK = 1 << 26


@dataclass(frozen=True, slots=True)
class HeavyHitters(Oracle):
    """Each person reports one prefix of their value by local hashing; the length is random.

    The prefix extending method (Wang, Li & Jha 2019): the collector finds the frequent prefixes of one chunk of bits,
    then the frequent continuations of those by the next chunk, and so on. A value is hashed chunk by chunk (the digits
    of each chunk in base `buckets`), so that all 2^chunk continuations of a prefix are decoded at once. A quarter of
    the remaining people are asked at each level but the last, which decides the ranking.

    Args:
        length: bits of a value; the domain has 2^length values.
        chunk: bits by which a prefix grows.
        buckets: a prime number of hash buckets.
        lie: the probability of each wrong bucket.

    Privacy: pure, each person sends one report of one prefix; keep / lie <= e^epsilon exactly.
    """

    name: ClassVar[str] = "heavy-hitters"
    kind: ClassVar[Kind] = "number"
    formula: ClassVar[str] = "(e^ε-1+g)² / (n_last (e^ε-1)² (g-1)) for a rare value"

    length: int
    chunk: int
    buckets: int
    lie: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_loss(self.loss, self.name)
        object.__setattr__(self, "lie", exactly(self.lie, "lie"))
        if (
            not all(isinstance(bits, int) for bits in (self.length, self.chunk))
            or not 1 <= self.chunk <= self.length <= 32
        ):
            raise BadInput("a value has at most 32 bits, and a chunk at least 1 and at most all of them.")
        if self.length % self.chunk:
            raise BadInput(f"chunks of {self.chunk} bits do not make {self.length}. Choose a divisor.")
        if not is_prime(self.buckets):
            raise BadInput("buckets must be prime, so that two values meet with probability exactly 1/buckets.")
        if not _fits(self.chunk, self.buckets) or self.outputs > 1 << 63:
            raise BadInput("so many buckets make the collector's tables too large. Use fewer, or shorter chunks.")
        if self.p <= self.lie:
            raise BadProbability("the value's own bucket must be likelier than others; otherwise reports tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, loss: Loss, length: int = 32, chunk: int | None = None) -> Self:
        """Build the mechanism with chunks of 16 bits where the best number of buckets allows, else 8, or given."""
        amount = read_loss(loss, cls.name)
        sizes = (16, 8, 4) if amount <= Fraction(5, 2) else (8, 4)
        bits = chunk or next((size for size in sizes if length % size == 0), length)
        g = best_buckets(float(amount), lambda g: _fits(bits, g))
        return cls(length, bits, g, lie_for(amount, g), loss)

    @property
    def domain(self) -> int:  # type: ignore[override]  # follows from the length
        """The number of values."""
        return 1 << self.length

    @property
    def levels(self) -> int:
        """The number of prefix lengths."""
        return self.length // self.chunk

    @property
    def digits(self) -> int:
        """The number of digits of a chunk in base `buckets`."""
        return digits_for(1 << self.chunk, self.buckets)

    def share(self, level: int) -> Fraction:
        """Return the probability that a person is asked for this level's prefix."""
        rest = Fraction(3, 4) ** level
        return rest if level == self.levels - 1 else rest / 4

    def seeds(self, level: int) -> int:
        """Return the number of hash functions of this level."""
        return int(self.buckets ** (self.digits * (level + 1)))

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from the lie
        """The probability that a report supports its true prefix."""
        return 1 - (self.buckets - 1) * self.lie

    @property
    def q(self) -> Fraction:  # type: ignore[override]  # follows from the family
        """The probability that a report supports another prefix: exactly 1/buckets."""
        return Fraction(1, self.buckets)

    @property
    def bits(self) -> int:
        """The number of bits per report: level, seed and bucket."""
        return (self.outputs - 1).bit_length()

    @property
    def outputs(self) -> int:
        """The bound of reports as numbers: level + levels · (seed · buckets + bucket)."""
        return self.levels * self.seeds(self.levels - 1) * self.buckets

    @property
    def thresholds(self) -> tuple[int, int]:
        """The word thresholds: below the first the bucket is kept; the rest in runs of the second."""
        return threshold(self.p), threshold(self.lie)

    def hashed(self, level: int, seed: int, value: int) -> int:
        """Return the bucket of a value's prefix under a seed; its last chunk uses the seed's lowest digits."""
        prefix, total = value >> (self.length - self.chunk * (level + 1)), 0
        for _ in range(level + 1):
            part, prefix = prefix & ((1 << self.chunk) - 1), prefix >> self.chunk
            for _ in range(self.digits):
                total += (seed % self.buckets) * (part % self.buckets)
                seed, part = seed // self.buckets, part // self.buckets
        return total % self.buckets

    def law(self, value: int) -> tuple[Fraction, ...]:
        """Return the probability of every report on this value; shorter prefixes leave numbers unused."""
        chances = [Fraction(0)] * self.outputs
        for level in range(self.levels):
            each = self.share(level) / self.seeds(level)
            for seed in range(self.seeds(level)):
                true_bucket = self.hashed(level, seed, value)
                for bucket in range(self.buckets):
                    chance = self.p if bucket == true_bucket else self.lie
                    chances[level + self.levels * (seed * self.buckets + bucket)] = each * chance
        return tuple(chances)

    def largest_ratio(self) -> Fraction:
        """Return keep / lie: the ratio for two values that share no bucket."""
        return self.p / self.lie

    def mse(self, people: int) -> float:
        """Return the expected squared error of a share, from the people asked at the last level."""
        return Oracle.mse(self, people) / float(self.share(self.levels - 1))


def _fits(chunk: int, buckets: int) -> bool:
    digits = digits_for(1 << chunk, buckets)
    return bool(digits * buckets ** (digits + 2) <= _LARGEST_WALK)


@perturbed.register
def _perturb(mechanism: HeavyHitters, values: NDArray[np.int64], source: Source) -> Words:
    """Return level + levels · (seed · buckets + bucket): words for the level, then the seed, then the bucket.

    People of one level are processed together, from the first level to the last.
    """
    g, levels = mechanism.buckets, mechanism.levels
    ends = np.cumsum([threshold(mechanism.share(level)) for level in range(levels - 1)], dtype=np.uint64)
    level_of = np.searchsorted(ends, tossed(len(values), source), side="right")
    reports = np.empty(len(values), dtype=np.uint64)
    for level in range(levels):
        members = np.flatnonzero(level_of == level)
        prefixes = values[members].astype(np.uint64) >> np.uint64(mechanism.length - mechanism.chunk * (level + 1))
        seeds = uniform(mechanism.seeds(level), members.size, source)
        buckets, rest = np.zeros(members.size, dtype=np.uint64), seeds
        for _ in range(level + 1):
            part = prefixes & np.uint64((1 << mechanism.chunk) - 1)
            buckets += products(rest, part, mechanism.digits, g)
            prefixes, rest = prefixes >> np.uint64(mechanism.chunk), rest // np.uint64(g**mechanism.digits)
        sent = seeds * np.uint64(g) + below(mechanism.thresholds, buckets % np.uint64(g), g, source)
        reports[members] = np.uint64(level) + np.uint64(levels) * sent
    return reports


# Collector: frequent prefixes, then their frequent continuations.


# Number of prefixes continued at each level.
KEPT = 64
# A value is released only if noise alone would raise any value as high in one collection out of a thousand.
_FALSE_ALARM = 1e-3


@valid.register
def _valid(mechanism: HeavyHitters, data: NDArray[Any]) -> NDArray[np.bool_]:
    levels = np.uint64(mechanism.levels)
    limits = [mechanism.seeds(level) * mechanism.buckets for level in range(mechanism.levels)]
    return np.asarray(data // levels < np.array(limits, dtype=np.uint64)[(data % levels).astype(np.int64)])


@tally.register
def _reports(mechanism: HeavyHitters, data: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the reports themselves: the counts needed are known only when the prefixes are."""
    return np.asarray(data, dtype=np.uint64)


@frequencies.register
def _shares(
    mechanism: HeavyHitters, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], Floats]:
    """Return the values found, most frequent first, or the shares of given ones, from the last level."""
    if values is not None:
        return values, _named(mechanism, table, values)
    prefixes, shares = np.zeros(1, dtype=np.int64), np.ones(1)
    for level in range(mechanism.levels):
        reports = _level(mechanism, table, level)
        prefixes, shares = _continued(mechanism, reports, prefixes, level)
    return prefixes, shares


def _continued(
    mechanism: HeavyHitters, reports: NDArray[np.uint64], prefixes: NDArray[np.int64], level: int
) -> tuple[NDArray[np.int64], Floats]:
    """Return the continuations of these prefixes that exceed the noise, most frequent first."""
    if not prefixes.size:
        return prefixes, np.zeros(0)
    longer = (prefixes[:, None] << mechanism.chunk) + np.arange(1 << mechanism.chunk)
    shares = np.stack([_chunk(mechanism, reports, int(prefix), level) for prefix in prefixes]).ravel()
    n, q, gain = max(1, len(reports)), float(mechanism.q), float(mechanism.p - mechanism.q)
    bar = 3 * (q * (1 - q) / n) ** 0.5 / gain
    if level == mechanism.levels - 1:  # it releases values; before it, a superfluous prefix costs only time
        from scipy.stats import binom  # here, because scipy takes longer to import than this package

        # Each report supports a value that nobody has with probability q. With few, the tail is not normal.
        most = binom.isf(_FALSE_ALARM / shares.size, n, q)
        bar = max(bar, ((most + 0.5) / n - q) / gain)
    order = np.argsort(-shares)[: KEPT if level < mechanism.levels - 1 else None]
    order = order[shares[order] > bar]
    return longer.ravel()[order], shares[order]


def _chunk(mechanism: HeavyHitters, reports: NDArray[np.uint64], prefix: int, level: int) -> Floats:
    """Return the shares of all continuations of one prefix.

    The hash of a longer prefix is that of the prefix plus that of its last chunk. So the prefix's part is subtracted
    from the reported bucket, and the remainder is a local hashing of the chunk alone.
    """
    g, digits = mechanism.buckets, mechanism.digits
    size = g**digits
    seeds, buckets = reports // np.uint64(g), (reports % np.uint64(g)).astype(np.int64)
    rest = seeds // np.uint64(size)
    hashed = np.zeros(len(reports), dtype=np.int64)
    for _ in range(level):
        part, prefix = prefix & ((1 << mechanism.chunk) - 1), prefix >> mechanism.chunk
        for _ in range(digits):
            if part % g:
                hashed += (rest % np.uint64(g)).astype(np.int64) * (part % g)
            rest, part = rest // np.uint64(g), part // g
    index = (seeds % np.uint64(size)).astype(np.int64) * g + (buckets - hashed) % g
    table = np.bincount(index, minlength=size * g).astype(np.int32)
    counts = supports(table, g, digits)[: 1 << mechanism.chunk]
    return np.asarray((counts / max(1, len(reports)) - float(mechanism.q)) / float(mechanism.p - mechanism.q))


def _named(mechanism: HeavyHitters, table: NDArray[Any], values: NDArray[np.int64]) -> Floats:
    last = mechanism.levels - 1
    reports = _level(mechanism, table, last)
    shares = [
        _chunk(mechanism, reports, int(value) >> mechanism.chunk, last)[int(value) & ((1 << mechanism.chunk) - 1)]
        for value in values
    ]
    return np.array(shares)


def _level(mechanism: HeavyHitters, table: NDArray[Any], level: int) -> NDArray[np.uint64]:
    levels = np.uint64(mechanism.levels)
    return np.asarray(table[table % levels == np.uint64(level)] // levels)
