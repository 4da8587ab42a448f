"""Duchi's mechanism for several numbers at once: one bit each, drawn jointly at one epsilon."""

import math
from dataclasses import dataclass
from fractions import Fraction
from operator import mul
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import Bytes, tossed
from cloister.local.base.counts import columns, no_spare_bits, tally, valid
from cloister.local.base.dyadic import WORD, exactly, threshold
from cloister.local.base.number import Bounds, NumberMechanism, Segment, read_pair, read_steps
from cloister.local.base.oracle import Kind, read_loss
from cloister.local.base.perturb import perturbed, pieces
from cloister.local.base.tiling import inside, outside
from cloister.local.mechanisms.duchi import bit_part, leaning
from cloister.privacy.errors import BadBounds, BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source

__all__ = ["DuchiVector", "read_pairs"]

_MOST = 20
_STEPS = 1 << 15


@dataclass(frozen=True, slots=True)
class DuchiVector(NumberMechanism):
    """Signs for all coordinates, likely to agree with the true ones in more than half. Duchi et al. 2018, corrected.

    Each coordinate is first rounded to a sign, at random and without bias. Then one of the 2^d vectors of signs is
    sent: with probability p if it agrees with them in more than half of the coordinates, with q otherwise. For an even
    d a vector can agree in exactly half. The text counts these ties to both sides, and the listing leaves them out of
    one without counting: both cost more than they state (spec E-03). Here they are among the unlikely, and counted; a
    tie carries no information about any coordinate, so this has less error than ties among the likely ones.

    A device reads d words for the rounding (sign 1 if the word is below base + k·rise), and one word u that chooses
    the agreements: vector number u div P if u < likely·P, else number likely + (u - likely·P) div Q, in the order of
    `agreements`: more agreements first, then as binary numbers, the first coordinate in the lowest bit.

    Privacy: pure for all coordinates together, p/q <= e^epsilon exactly; verified by enumeration for small d.
    """

    name: ClassVar[str] = "duchi-vector"
    kind: ClassVar[Kind] = "bits"
    formula: ClassVar[str] = "(B² - t²) r² / n, B = (e^ε P + 2^d-P) / ((e^ε-1) C(d-1, ⌊d/2⌋)), P vectors agree in most"

    pairs: tuple[tuple[Fraction, Fraction], ...]
    steps: int
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", read_pairs(self.pairs))
        if len(self.pairs) > _MOST:
            raise BadInput(f"{self.name} takes at most {_MOST} numbers; for more use SampledNumbers.")
        read_loss(self.loss, self.name)
        read_steps(self.steps, self.name)
        object.__setattr__(self, "q", exactly(self.q, "q"))
        self._certify()

    @classmethod
    def for_loss(cls, bounds: tuple[Bounds, ...] | list[Bounds], loss: Loss, steps: int = _STEPS) -> "DuchiVector":
        """Build the mechanism for all pairs of bounds; q is rounded up to a multiple of 2^-64."""
        amount, pairs = read_loss(loss, cls.name), read_pairs(bounds)
        likely = _likely(len(pairs))
        return cls(pairs, steps, outside(likely, (1 << len(pairs)) - likely, amount), loss)

    @property
    def ends(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """The bounds of each coordinate."""
        return self.pairs

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self.pairs)

    @property
    def likely(self) -> int:
        """The number of sign vectors that agree with a given one in more than half of the coordinates."""
        return _likely(self.size)

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from q
        """The probability of each vector that agrees in more than half."""
        return inside(self.likely, self.outputs - self.likely, self.q)

    @property
    def rise(self) -> int:
        """Words per step by which the rounding's probability grows: even, and such that the top stays below 2^64."""
        return (WORD - 1) // self.steps // 2 * 2

    @property
    def base(self) -> int:
        """Words at the lower bound."""
        return (WORD - self.steps * self.rise) // 2

    @property
    def bits(self) -> int:
        """The number of bits per report: one a coordinate."""
        return self.size

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return 1 << self.size

    @property
    def agreements(self) -> list[int]:
        """All vectors of agreements, as numbers, in the order in which words choose them."""
        return sorted(range(self.outputs), key=lambda bits: (-bits.bit_count(), bits))

    @property
    def parts(self) -> tuple[Segment, ...]:
        """Every coordinate's bit leans by (p - q)·C(d-1, ⌊d/2⌋) towards its sign."""
        lean = (self.p - self.q) * math.comb(self.size - 1, self.size // 2)
        return (bit_part(lean * Fraction(self.steps * self.rise, WORD)),)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on these grid points: the first is value mod (steps + 1), and so on."""
        points = [value // (self.steps + 1) ** axis % (self.steps + 1) for axis in range(self.size)]
        chances = [self.base + self.rise * point for point in points]  # in words, as everything after it
        signs = [
            math.prod(chance if bits >> axis & 1 else WORD - chance for axis, chance in enumerate(chances))
            for bits in range(self.outputs)
        ]
        words = self._words
        return tuple(
            Fraction(
                sum(chance * words[self.size - (rounded ^ report).bit_count()] for rounded, chance in enumerate(signs)),
                WORD ** (self.size + 1),
            )
            for report in range(self.outputs)
        )

    def largest_ratio(self) -> Fraction:
        """Return the ratio of full agreement with a corner of the box to none, rounding included."""
        slip, d, words = self.base, self.size, self._words
        slips = [math.comb(d, i) * slip**i * (WORD - slip) ** (d - i) for i in range(d + 1)]
        return Fraction(sum(map(mul, slips, reversed(words))), sum(map(mul, slips, words)))

    def describe(self) -> dict[str, str | int]:
        """Return the public, exact facts."""
        facts = {**NumberMechanism.describe(self), "p": str(self.p)}
        facts["pairs"] = "; ".join(f"{low} {high}" for low, high in self.pairs)
        return facts

    @property
    def _words(self) -> list[int]:
        """The number of words of each vector that agrees in 0, 1, … coordinates."""
        p, q = threshold(self.p), threshold(self.q)
        return [p if 2 * agreeing > self.size else q for agreeing in range(self.size + 1)]


def read_pairs(bounds: object) -> tuple[tuple[Fraction, Fraction], ...]:
    """Return bounds of at least two coordinates: pairs, or the text of a description, such as "0 1; 17 90"."""
    if isinstance(bounds, str):
        bounds = [tuple(pair.split()) for pair in bounds.split(";")]
    if not isinstance(bounds, tuple | list) or len(bounds) < 2:
        raise BadBounds("several numbers need a list of at least two pairs of bounds, low and high.")
    return tuple(read_pair(pair) for pair in bounds)


def _likely(size: int) -> int:
    return sum(math.comb(size, agreeing) for agreeing in range(size // 2 + 1, size + 1))


@perturbed.register
def _perturb(mechanism: DuchiVector, values: NDArray[np.int64], source: Source) -> Bytes:
    """Return packed bits, the first coordinate in the lowest bit of the first byte."""
    size, likely = mechanism.size, np.uint64(mechanism.likely)
    order = np.array(mechanism.agreements, dtype=np.uint32)
    p, q = (np.uint64(threshold(chance)) for chance in (mechanism.p, mechanism.q))
    rows = np.empty((len(values), mechanism.width), dtype=np.uint8)
    for piece in pieces(len(values)):
        points = values[piece]
        positive = leaning(mechanism.base, mechanism.rise, points, tossed(points.size, source).reshape(points.shape))
        signs = (positive.astype(np.uint32) << np.arange(size, dtype=np.uint32)).sum(axis=1, dtype=np.uint32)
        word = tossed(len(points), source)
        # The second quotient wraps where the first is taken, and is clipped to the list.
        other = np.minimum(likely + (word - likely * p) // q, np.uint64(len(order) - 1))
        agree = order[np.where(word < likely * p, word // p, other)]
        sent = ~(signs ^ agree) & np.uint32(mechanism.outputs - 1)
        rows[piece] = sent.astype("<u4").view(np.uint8).reshape(-1, 4)[:, : mechanism.width]
    return rows


@valid.register
def _valid_signs(mechanism: DuchiVector, data: NDArray[Any]) -> NDArray[np.bool_]:
    return no_spare_bits(data, mechanism.size)


@tally.register
def _signs(mechanism: DuchiVector, data: NDArray[Any]) -> NDArray[Any]:
    counts = columns(data, mechanism.size).tolist()
    return np.array([[[len(data), count, count]] for count in counts], dtype=object)
