"""The hybrid mechanism: piecewise or Duchi, by a coin independent of the number."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import Words, tossed
from cloister.local.base.dyadic import WORD, exactly, threshold
from cloister.local.base.number import Bounds, NumberMechanism, Segment
from cloister.local.base.oracle import read_loss
from cloister.local.base.perturb import perturbed
from cloister.local.mechanisms.duchi import Duchi, bit_part, leaning
from cloister.local.mechanisms.piecewise import Piecewise
from cloister.local.mechanisms.window import windowed
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import exp_up

__all__ = ["Hybrid"]

# Below this epsilon Duchi alone is best. Wang et al. 2019, equation 4.
_DUCHI_ALONE = Fraction(61, 100)


@dataclass(frozen=True, slots=True)
class Hybrid(NumberMechanism):
    """Piecewise with probability `share` = 1 - e^(-epsilon/2), Duchi otherwise. Wang et al. 2019 (HM).

    Its worst variance is below both of theirs for every epsilon above 0.61; below, `for_loss` rarely uses Piecewise. A
    device reads two words, 8 bytes each and little-endian: the first decides (Piecewise if it is below share·2^64), the
    second is that mechanism's own. Reports of Piecewise come first, then Duchi's 0 and 1.

    Privacy: pure: the choice reveals nothing, so the larger ratio of the two, <= e^epsilon exactly.
    """

    name: ClassVar[str] = "hybrid"
    formula: ClassVar[str] = "(PM (1-e^(-ε/2)) + Duchi e^(-ε/2)) r² / n, the same for every t"

    low: Fraction
    high: Fraction
    steps: int
    shift: int
    window: int
    q: Fraction
    flip: Fraction
    share: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", exactly(self.share, "share"))
        for field in ("low", "high", "q"):
            object.__setattr__(self, field, getattr(self.piecewise, field))
        object.__setattr__(self, "flip", self.duchi.q)

    @classmethod
    def for_loss(cls, bounds: Bounds, loss: Loss, steps: int | None = None) -> "Hybrid":
        """Build the mechanism with the share of least worst-case variance, a multiple of 2^-64."""
        amount = read_loss(loss, cls.name)
        near = Piecewise.for_loss(bounds, loss, steps)
        bit = Duchi.for_loss(bounds, loss, near.steps)
        share = Fraction(int((1 - 1 / exp_up(amount / 2)) * WORD), WORD) if amount > _DUCHI_ALONE else Fraction(1, WORD)
        return cls(near.low, near.high, near.steps, near.shift, near.window, near.q, bit.q, share, loss)

    @property
    def piecewise(self) -> Piecewise:
        """The piecewise mechanism."""
        return Piecewise(self.low, self.high, self.steps, self.shift, self.window, self.q, self.loss)

    @property
    def duchi(self) -> Duchi:
        """Duchi's mechanism."""
        return Duchi(self.low, self.high, self.steps, self.flip, self.loss)

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return self.steps * self.shift + self.window + 2

    @property
    def parts(self) -> tuple[Segment, ...]:
        """Two runs; a report shows which one it is in."""
        near = self.piecewise.parts[0]._replace(share=self.share)
        return near, bit_part(1 - 2 * self.flip, near.outputs, 1 - self.share)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this grid point."""
        near, bit = self.piecewise.law(value), self.duchi.law(value)
        return tuple(self.share * chance for chance in near) + tuple((1 - self.share) * chance for chance in bit)

    def largest_ratio(self) -> Fraction:
        """Return the larger ratio of the two."""
        return max(self.piecewise.largest_ratio(), self.duchi.largest_ratio())


# Device: one word chooses, one word reports.


@perturbed.register
def hybrid(mechanism: Hybrid, values: NDArray[np.int64], source: Source) -> Words:
    """Return a report of the piecewise mechanism, or, after those, one of Duchi's two."""
    near, bit = mechanism.piecewise, mechanism.duchi
    choice, word = tossed(len(values), source), tossed(len(values), source)
    bits = leaning(threshold(bit.q), bit.rise, values, word).astype(np.uint64)
    chosen = choice < np.uint64(threshold(mechanism.share))
    return np.where(chosen, windowed(near, values, word), np.uint64(near.outputs) + bits)
