"""Hadamard response: one of few codewords, likelier if it belongs to your value's half of a Hadamard code."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from cloister.local.base.dyadic import WORD, exactly, threshold, word_above
from cloister.local.base.oracle import Floats, Kind, Oracle, read_domain, read_loss
from cloister.privacy.errors import BadInput, BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.number import exp_down

__all__ = ["HadamardResponse"]


@dataclass(frozen=True, slots=True)
class HadamardResponse(Oracle):
    """A codeword of a Hadamard code in blocks. Acharya, Sun & Zhang 2019.

    Value v lives in block v mod blocks, in row j = 1 + v div blocks of a Hadamard matrix of order `order`. A report
    is a codeword: a block and a column. Those columns of v's block where row j is +1 are likelier, each with
    probability `inside`; all other codewords have probability `outside`. Two rows agree in exactly half of the
    columns, so the columns of +1 minus those of -1 estimate the share without bias, and a fast Walsh-Hadamard
    transform of the counts does that for all values at once. One block is best for a small epsilon, more for a large.

    Privacy: pure, inside / outside <= e^epsilon exactly; verified by enumeration.
    """

    name: ClassVar[str] = "hadamard-response"
    kind: ClassVar[Kind] = "number"
    formula: ClassVar[str] = "((e^ε+1)F + 2(1-F)) (e^ε-1+2B) / (n (e^ε-1)²), F the share of the value's block, B blocks"

    domain: int
    blocks: int
    outside: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, 1 << 28)
        read_loss(self.loss, self.name)
        object.__setattr__(self, "outside", exactly(self.outside, "outside"))
        if not isinstance(self.blocks, int) or self.blocks < 1 or self.blocks & (self.blocks - 1):
            raise BadInput("blocks must be a power of two: 1, 2, 4 and so on.")
        if self.inside <= self.outside:
            raise BadProbability("a value's own half must be likelier than the rest; otherwise reports tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, loss: Loss, blocks: int | None = None) -> "HadamardResponse":
        """With the number of blocks of least error, or a given one; `outside` is rounded up to a multiple of 2^-64."""
        power = exp_down(read_loss(loss, cls.name))
        size = read_domain(domain, cls.name, 1 << 28)

        def made(count: int) -> "HadamardResponse":
            order = _order(size, count)
            weight = Fraction(order, 2) * (power + 2 * count - 1)
            return HadamardResponse(domain, count, Fraction(word_above(1 / weight), WORD), loss)

        if blocks is not None:
            return made(blocks)
        return min((made(1 << k) for k in range((size - 1).bit_length())), key=lambda made: made.mse(1))

    @property
    def order(self) -> int:
        """The order of the Hadamard matrix: the columns of a block."""
        return _order(self.domain, self.blocks)

    @property
    def inside(self) -> Fraction:
        """The probability of each codeword of the value's half: a multiple of 2^-64, as the half is a power of two."""
        return Fraction(2, self.order) - (2 * self.blocks - 1) * self.outside

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from outside
        """The probability that a report lies in its value's half."""
        return self.inside * (self.order // 2)

    @property
    def q(self) -> Fraction:  # type: ignore[override]  # follows from outside
        """The probability that it lies in the half of a value of another block; with one block, of any other value."""
        return self.outside * (self.order // 2) if self.blocks > 1 else Fraction(1, 2)

    @property
    def bits(self) -> int:
        """How many bits one answer takes."""
        return (self.outputs - 1).bit_length()

    @property
    def outputs(self) -> int:
        """How many codewords there are: block · order + column."""
        return self.blocks * self.order

    @property
    def thresholds(self) -> tuple[int, int]:
        """How many of the 2^64 words belong to each codeword inside, and to each outside."""
        return threshold(self.inside), threshold(self.outside)

    def place(self, value: int) -> tuple[int, int]:
        """The block and the row of a value."""
        return value % self.blocks, 1 + value // self.blocks

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this value."""
        home, row = self.place(value)
        return tuple(
            self.inside if block == home and (row & column).bit_count() % 2 == 0 else self.outside
            for block in range(self.blocks)
            for column in range(self.order)
        )

    def largest_ratio(self) -> Fraction:
        """inside / outside."""
        return self.inside / self.outside

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """The variance of each estimated share; values of one block disturb one another more than the others.

        A report counts +1, -1 or 0 for a value; its square is 1 if it fell into the value's block.
        """
        shares = np.asarray(frequencies, dtype=np.float64)
        half, inside, outside = self.order // 2, float(self.inside), float(self.outside)
        if len(shares) == self.domain:
            block = np.arange(self.domain) % self.blocks
            mass = np.bincount(block, weights=shares, minlength=self.blocks)[block]
        else:  # the average over a domain, when only some shares are given
            mass = np.full(len(shares), 1 / self.blocks)
        gain = float(half * (self.inside - self.outside))
        square = mass * half * (inside + outside) + (1 - mass) * 2 * half * outside
        return np.asarray((square - shares * gain**2) / (people * gain**2))


def _order(domain: int, blocks: int) -> int:
    """The least power of two above the number of values in a block: row 0, all +1, is not used."""
    return 1 << (-(-domain // blocks)).bit_length()
