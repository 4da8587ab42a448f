"""Duchi's mechanism for one number: a single bit whose probability is a straight line in the number."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import Words, tossed
from cloister.local.base.dyadic import WORD, exactly, threshold, word_above
from cloister.local.base.number import Bounds, NumberMechanism, Segment, grid_steps, read_ends, read_pair, read_steps
from cloister.local.base.oracle import read_loss
from cloister.local.base.perturb import perturbed
from cloister.privacy.errors import BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import exp_down

__all__ = ["Duchi", "bit_part", "rise_of", "leaning"]


@dataclass(frozen=True, slots=True)
class Duchi(NumberMechanism):
    """Report one bit, 1 with probability q at the lower bound, 1 - q at the upper, linear between. Duchi et al. 2018.

    Best for a small epsilon. A device reads one word u of 8 bytes, little-endian, and sends 1 if u < q·2^64 + k·rise,
    where k is its grid point and rise = (1 - 2q)·2^64 / steps, an integer.

    Privacy: pure, (1-q)/q <= e^epsilon exactly; verified by enumeration in tests/unit/local/test_numbers.py.

    >>> from cloister.local import epsilon
    >>> vote = Duchi.for_loss((-1, 1), epsilon(1))
    >>> vote.bits, round(vote.worst_variance, 4)
    (1, 4.6827)
    """

    name: ClassVar[str] = "duchi"
    formula: ClassVar[str] = "(((e^ε+1) / (e^ε-1))² - t²) r² / n"

    low: Fraction
    high: Fraction
    steps: int
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_ends(self)
        read_loss(self.loss, self.name)
        read_steps(self.steps, self.name)
        object.__setattr__(self, "q", exactly(self.q, "q"))
        rise_of(self.q, self.steps)
        self._certify()

    @classmethod
    def for_loss(cls, bounds: Bounds, loss: Loss, steps: int | None = None) -> "Duchi":
        """Build the mechanism with q = 1/(e^epsilon + 1), rounded up so that the grid divides it evenly.

        Args:
            bounds: low and high, public; values beyond them are clipped.
            loss: the loss of one report, replace-one.
            steps: of the grid; default about 32,000, such that integers are grid points.
        """
        amount = read_loss(loss, cls.name)
        steps = read_steps(grid_steps(bounds) if steps is None else steps, cls.name)
        least = word_above(1 / (exp_down(amount) + 1))
        rise = (WORD - 2 * least) // steps // 2 * 2  # an even rise keeps both ends the same distance from 1/2
        return cls(*read_pair(bounds), steps, Fraction(WORD - steps * rise, 2 * WORD), loss)

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from q
        """The probability of a 1 at the upper bound."""
        return 1 - self.q

    @property
    def rise(self) -> int:
        """The increase in words of the probability of a 1 from one grid point to the next."""
        return rise_of(self.q, self.steps)

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return 2

    @property
    def parts(self) -> tuple[Segment, ...]:
        """One run of two reports."""
        return (bit_part(1 - 2 * self.q),)

    def law(self, value: int) -> tuple[Fraction, Fraction]:
        """The probability of 0 and of 1 on this grid point."""
        chance = self.q + Fraction(value * self.rise, WORD)
        return 1 - chance, chance

    def largest_ratio(self) -> Fraction:
        """Return the ratio of one bound against the other."""
        return self.p / self.q

    def describe(self) -> dict[str, str | int]:
        """Return the public, exact facts, with p."""
        return {**NumberMechanism.describe(self), "p": str(self.p)}


def rise_of(q: Fraction, steps: int) -> int:
    """Return the words per step from probability q to 1 - q. Refuse a result that is no positive integer."""
    rise = (1 - 2 * q) * WORD / steps
    if rise <= 0 or rise != math.floor(rise):
        raise BadProbability("the way from q to 1 - q must be so many 2^64ths a step. Use for_loss(), which finds q.")
    return math.floor(rise)


def bit_part(slope: Fraction, start: int = 0, share: Fraction = Fraction(1)) -> Segment:
    """Return the moments of a bit that is 1 with probability (1 + slope·t)/2; its square is the bit itself."""
    mean = Fraction(1, 2), slope / 2
    return Segment(start, 2, share, mean, (*mean, Fraction(0)))


# Device: one word against a threshold that rises with the number.


@perturbed.register
def duchi(mechanism: Duchi, values: NDArray[np.int64], source: Source) -> Words:
    """Return one bit a person."""
    word = tossed(len(values), source)
    return leaning(threshold(mechanism.q), mechanism.rise, values, word).astype(np.uint64)


def leaning(base: int, rise: int, values: NDArray[np.int64], word: Words) -> NDArray[np.bool_]:
    """Return True where a word is below base + rise·value, which stays below 2^64."""
    return np.asarray(word < np.uint64(base) + values.astype(np.uint64) * np.uint64(rise))
