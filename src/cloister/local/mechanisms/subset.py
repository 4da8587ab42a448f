"""Subset selection: report a set of fixed size that contains the true value more often than by chance."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import Bytes, bit_rows, coins, row_width, trim
from cloister.local.base.counts import (
    chosen,
    columns,
    debiased,
    frequencies,
    likelihood,
    no_spare_bits,
    ones_in,
    tally,
    valid,
)
from cloister.local.base.dyadic import WORD, exactly, threshold, word_above
from cloister.local.base.oracle import Floats, Kind, Oracle, read_domain, read_loss
from cloister.local.base.perturb import perturbed, pieces
from cloister.local.base.projection import Likelihood, pairs
from cloister.privacy.errors import BadInput, BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import exp_down

__all__ = ["SubsetSelection"]


@dataclass(frozen=True, slots=True)
class SubsetSelection(Oracle):
    """A uniform set of `size` values that contains the true one with probability p. Ye & Barg 2018; Wang et al. 2019.

    With one value it is direct encoding. Asymptotically no mechanism has a smaller worst-case error.

    Privacy: pure, p (d-k) / ((1-p) k) <= e^epsilon exactly; verified by enumeration for small domains.
    """

    name: ClassVar[str] = "subset-selection"
    kind: ClassVar[Kind] = "bits"
    formula: ClassVar[str] = "q(1-q) / (n (p-q)²), p = k e^ε / (k e^ε+d-k), q = (k-p) / (d-1), k near d / (e^ε+1)"

    domain: int
    size: int
    p: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, 1 << 20)
        read_loss(self.loss, self.name)
        object.__setattr__(self, "p", exactly(self.p, "p"))
        if not isinstance(self.size, int) or not 1 <= self.size < self.domain:
            raise BadInput("size must be a whole number of at least 1 and below the domain.")
        if self.p <= self.q:
            raise BadProbability("the true value must be likelier in a set than others; otherwise sets tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, loss: Loss, size: int | None = None) -> "SubsetSelection":
        """Build it with sets of the size of least error, or a given one; 1 - p is rounded up to a multiple of 2^-64."""
        power = exp_down(read_loss(loss, cls.name))
        d = read_domain(domain, cls.name, 1 << 20)

        def made(k: int) -> "SubsetSelection":
            return SubsetSelection(domain, k, 1 - Fraction(word_above((d - k) / (k * power + d - k)), WORD), loss)

        if size is not None:
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size < d:
                raise BadInput("size must be a whole number of at least 1 and below the domain.")
            return made(size)
        near = math.floor(d / (power + 1))
        return min((made(k) for k in {max(1, near), min(d - 1, near + 1)}), key=lambda candidate: candidate.mse(1))

    @property
    def q(self) -> Fraction:  # type: ignore[override]  # follows from p
        """The probability that a set contains a given other value."""
        return (self.size - self.p) / (self.domain - 1)

    @property
    def bits(self) -> int:
        """The number of bits per report on the wire: one for each value."""
        return self.domain

    @property
    def outputs(self) -> int:
        """The bound of reports as numbers; only those of `size` bits occur."""
        return 1 << self.domain

    def law(self, value: int) -> tuple[Fraction, ...]:
        """Return the probability of every report on this value, sets of another size included (they never occur)."""
        d, k = self.domain, self.size
        chances = [Fraction(0)] * self.outputs
        for subset in combinations(range(d), k):
            with_value = value in subset
            chance = self.p / math.comb(d - 1, k - 1) if with_value else (1 - self.p) / math.comb(d - 1, k)
            chances[sum(1 << member for member in subset)] = chance
        return tuple(chances)

    def largest_ratio(self) -> Fraction:
        """Return the ratio of a set with the value to one without."""
        return self.p * (self.domain - self.size) / ((1 - self.p) * self.size)

    @property
    def start(self) -> Fraction:
        """The probability of the coins that a device corrects to a set: it affects the amount of correction only."""
        return _start(self.domain, self.size)

    def describe(self) -> dict[str, str | int]:
        """Return the public, exact facts, with the coins that a client in another language starts from."""
        return {**Oracle.describe(self), "start": str(self.start)}


@lru_cache(maxsize=256)
def _start(domain: int, size: int) -> Fraction:
    """Return the coins' probability with the least expected correction: adding is cheap, removing is expensive.

    In floats: it affects the running time only.
    """
    rounds = max(3, domain.bit_length() - 2)
    share = size / domain

    def cost(numerator: int) -> float:
        r = numerator / (1 << rounds)
        gap, spread = size - domain * r, math.sqrt(domain * r * (1 - r)) + 1e-9
        z = gap / spread
        density, under = math.exp(-z * z / 2) / math.sqrt(2 * math.pi), 0.5 * math.erfc(-z / math.sqrt(2))
        add = gap * under + spread * density
        return add / (1 - share) + (add - gap) / share

    return Fraction(min(range(1 << rounds), key=cost), 1 << rounds)


@valid.register
def _valid_subset(mechanism: SubsetSelection, data: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(no_spare_bits(data, mechanism.domain) & (ones_in(data) == mechanism.size))


@tally.register
def _counts(mechanism: SubsetSelection, data: NDArray[Any]) -> NDArray[np.int64]:
    return columns(data, mechanism.domain)


@frequencies.register
def _shares(
    mechanism: SubsetSelection, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(debiased(mechanism, table, people), values)


@likelihood.register
def _likelihood(mechanism: SubsetSelection, table: NDArray[Any], people: int) -> Likelihood:
    return pairs(table.astype(np.float64), people, float(mechanism.p), float(mechanism.q))


# Device: a uniform set of fixed size, from coins that are corrected to the size.
#
# Independent coins, given the number of ones, are a uniform set of that size. Adding a uniform missing value, or
# removing a uniform present one, keeps it uniform. So for any probability of the coins, the corrected set is exactly
# uniform; the probability affects only the amount of correction.


_BIT = (1 << np.arange(8)).astype(np.uint8)
# Rows that are slow to correct are deferred until those of a whole population are together: a round for few costs as
# much as for many.
_FEW = 256
_MANY = 1 << 16


@perturbed.register
def subset(mechanism: SubsetSelection, values: NDArray[np.int64], source: Source) -> Bytes:
    """Return packed bits of which exactly `size` are 1: a word for the true value, coins, correction, the true value.

    A set of the right size that happens to contain the true value drops it and gets another instead: given that it was
    there, the others are a uniform set that is one short.
    """
    domain, width, people = mechanism.domain, row_width(mechanism.domain), len(values)
    rows = np.empty((people, width), dtype=np.uint8)
    flat, bases = rows.reshape(-1), np.arange(people) * width
    included = coins(threshold(mechanism.p), people, source)
    gaps = np.empty(people, dtype=np.int32)
    for piece in pieces(people):
        bits = trim(bit_rows(mechanism.start, rows[piece], source), domain)
        gaps[piece] = mechanism.size - included[piece] - _ones(bits)
        _mend(flat, bases[piece], gaps[piece], True, None, domain, source, _FEW)
    for start in range(0, people, _MANY):
        _mend(flat, bases[start : start + _MANY], gaps[start : start + _MANY], False, None, domain, source, _FEW)
    for add in (True, False):
        _mend(flat, bases, gaps, add, None, domain, source)
    at, bit = bases + (values >> 3), _BIT[values & 7]
    before = flat[at]
    flat[at] = np.where(included, before | bit, before & ~bit)
    _mend(flat, bases, ((before & bit) > 0).astype(np.int32), True, values, domain, source)
    return rows


def _mend(
    flat: Bytes,
    bases: NDArray[np.int64],
    gaps: NDArray[np.int32],
    add: bool,
    closed: NDArray[np.int64] | None,
    domain: int,
    source: Source,
    few: int = 1,
) -> None:
    """Set (or clear) the bits each row lacks (or has too many), each uniform among the candidates.

    A row tries one position after another: a word (16 bits if they suffice, else 32), cut to as many bits as the domain
    needs. A position beyond the domain, the closed position of a row, and a bit that already has the right value change
    nothing. In every round a row may try as often as it has gaps, so it never does too much; rows with most gaps come
    first, so that rows that may still try are always the first ones. In place, gaps too; fewer rows than `few` are left
    alone.
    """
    kind: type[np.uint16] | type[np.uint32] = np.uint16 if domain <= 1 << 16 else np.uint32
    mask, last = kind((1 << (domain - 1).bit_length()) - 1), kind(domain - 1)
    sign = 1 if add else -1
    rows = np.flatnonzero(sign * gaps > 0)
    while rows.size >= few:
        left = sign * gaps[rows]
        if left.max() > 1:
            order = np.argsort(-left.astype(np.int16) if domain < 1 << 15 else -left, kind="stable")
            rows, left = rows[order], left[order]
        turns = np.searchsorted(-left, -np.arange(1, int(left[0]) + 1), side="right").tolist()
        base, shut = bases[rows], None if closed is None else closed[rows].astype(kind)
        for count in turns:
            if count < few:
                break
            drawn: NDArray[Any] = np.frombuffer(source.bytes(count * mask.itemsize), dtype=kind)
            position = drawn & mask
            bit = _BIT.take(position & kind(7))
            if mask != last:
                bit *= position <= last
                position = np.minimum(position, last)
            if shut is not None:
                bit *= position != shut[:count]
            at = base[:count] + (position >> kind(3))
            before = flat[at]
            mended = before | bit if add else before & ~bit
            flat[at] = mended
            left[:count] -= mended != before
        gaps[rows] = sign * left
        rows = rows.compress(left > 0)


def _ones(bits: Bytes) -> NDArray[np.int32]:
    """Return the number of 1 bits of each row, eight bytes at a time where rows allow it."""
    words = bits.view(np.uint64) if bits.shape[1] % 8 == 0 else bits
    return np.asarray(np.bitwise_count(words).sum(axis=1, dtype=np.int32))
