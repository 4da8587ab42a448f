"""Hadamard response: one of few codewords, likelier if it is in the value's half of a Hadamard code."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.local.base.coins import Words, tossed
from cloister.local.base.counts import chosen, frequencies, likelihood, tally
from cloister.local.base.dyadic import WORD, exactly, threshold, word_above
from cloister.local.base.intervals import Spread, coins, spread_of
from cloister.local.base.oracle import Floats, Kind, Oracle, read_domain, read_loss
from cloister.local.base.perturb import perturbed
from cloister.local.base.projection import Likelihood
from cloister.privacy.errors import BadInput, BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import exp_down

__all__ = ["HadamardResponse"]


@dataclass(frozen=True, slots=True)
class HadamardResponse(Oracle):
    """A codeword of a Hadamard code in blocks. Acharya, Sun & Zhang 2019.

    Value v is in block v mod blocks, in row j = 1 + v div blocks of a Hadamard matrix of order `order`. A report is a
    codeword: a block and a column. Those columns of v's block where row j is +1 are likelier, each with probability
    `inside`; all other codewords have probability `outside`. Two rows agree in exactly half of the columns, so the
    columns of +1 minus those of -1 estimate the share without bias, and a fast Walsh-Hadamard transform of the counts
    does that for all values at once. One block is best for a small epsilon, more for a large.

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
        """Build it with the best number of blocks, or a given one; `outside` is rounded up to a multiple of 2^-64."""
        power = exp_down(read_loss(loss, cls.name))
        size = read_domain(domain, cls.name, 1 << 28)

        def made(count: int) -> "HadamardResponse":
            order = _order(size, count)
            weight = Fraction(order, 2) * (power + 2 * count - 1)
            return HadamardResponse(domain, count, Fraction(word_above(1 / weight), WORD), loss)

        if blocks is not None:
            return made(blocks)
        return min((made(1 << k) for k in range((size - 1).bit_length())), key=lambda candidate: candidate.mse(1))

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
        """The probability that a report is in its value's half."""
        return self.inside * (self.order // 2)

    @property
    def q(self) -> Fraction:  # type: ignore[override]  # follows from outside
        """The probability that it is in the half of a value of another block; with one block, of any other value."""
        return self.outside * (self.order // 2) if self.blocks > 1 else Fraction(1, 2)

    @property
    def bits(self) -> int:
        """The number of bits per report."""
        return (self.outputs - 1).bit_length()

    @property
    def outputs(self) -> int:
        """The number of codewords: block · order + column."""
        return self.blocks * self.order

    @property
    def thresholds(self) -> tuple[int, int]:
        """The number of the 2^64 words of each codeword inside, and of each outside."""
        return threshold(self.inside), threshold(self.outside)

    def place(self, value: int) -> tuple[int, int]:
        """Return the block and the row of a value."""
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
        """Return inside / outside."""
        return self.inside / self.outside

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """Return the variance of each estimated share. Values of one block add more variance to one another.

        A report counts +1, -1 or 0 for a value; its square is 1 if it is in the value's block.
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
    """Return the least power of two above the number of values in a block: row 0, all +1, is not used."""
    return 1 << (-(-domain // blocks)).bit_length()


# Device: one word chooses the codeword.


@perturbed.register
def hadamard(mechanism: HadamardResponse, values: NDArray[np.int64], source: Source) -> Words:
    """Return block · order + column.

    The first half · inside words belong to the columns of +1 of the value's row, in ascending order of the column
    without its deciding bit; then come the columns of -1 in the same order; then the other blocks, upwards from the
    value's own, modulo their number.
    """
    order, blocks, (inside, outside) = mechanism.order, mechanism.blocks, mechanism.thresholds
    half = order // 2
    codes = values.astype(np.uint64)
    home, row = codes % np.uint64(blocks), np.uint64(1) + codes // np.uint64(blocks)
    word = tossed(len(values), source)
    likely = word < np.uint64(half * inside)
    # Wraps where likely, and is not used there.
    rest = (word - np.uint64(half * inside)) // np.uint64(outside)
    near = likely | (rest < np.uint64(half))
    index = np.where(likely, word // np.uint64(inside), rest)
    column = _column(np.where(near, index, np.uint64(0)), row, ~likely)
    far = rest - np.uint64(half)
    block = (home + np.uint64(1) + far // np.uint64(order)) % np.uint64(blocks)
    elsewhere = block * np.uint64(order) + far % np.uint64(order)
    return np.where(near, home * np.uint64(order) + column, elsewhere)


def _column(index: Words, row: Words, odd: NDArray[np.bool_]) -> Words:
    """Return the index-th column whose common bits with the row are even (or odd) in number.

    The row's lowest bit decides the parity, so it is left out of the index and set as needed.
    """
    low = row & (~row + np.uint64(1))
    under = low - np.uint64(1)
    column = ((index & ~under) << np.uint64(1)) | (index & under)
    parity = (np.bitwise_count(column & row) & np.uint8(1)).astype(np.bool_)
    return np.where(parity != odd, column | low, column)


# Collector: a fast Walsh-Hadamard transform of the counts.


@tally.register
def _counts(mechanism: HadamardResponse, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.bincount(data.astype(np.int64), minlength=mechanism.outputs)


@frequencies.register
def _shares(
    mechanism: HadamardResponse, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    gain = float((mechanism.inside - mechanism.outside) * (mechanism.order // 2))
    block, row = _places(mechanism)
    return chosen(_rows(mechanism, table)[block, row] / (people * gain), values)


@likelihood.register
def _likelihood(mechanism: HadamardResponse, table: NDArray[Any], people: int) -> Likelihood:
    inside, outside = float(mechanism.inside), float(mechanism.outside)
    block, row = _places(mechanism)

    def expected(shares: Floats) -> Floats:
        """Return codeword probabilities: `inside` for values of its block with row +1, (1 + sign)/2 of their shares."""
        placed = np.zeros((mechanism.blocks, mechanism.order))
        placed[block, row] = shares
        agreeing = (placed.sum(axis=1, keepdims=True) + transform(placed)) / 2
        return np.asarray(outside * shares.sum() + (inside - outside) * agreeing).ravel()

    def back(weights: Floats) -> Floats:
        spread = _rows(mechanism, weights)
        within = (spread[block, 0] + spread[block, row]) / 2
        return np.asarray(outside * weights.sum() + (inside - outside) * within)

    return Likelihood(table.astype(np.float64), expected, back)


def _places(mechanism: HadamardResponse) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return every value's block and row, as in HadamardResponse.place."""
    values = np.arange(mechanism.domain)
    return values % mechanism.blocks, 1 + values // mechanism.blocks


def _rows(mechanism: HadamardResponse, table: NDArray[Any]) -> Floats:
    return transform(table.reshape(mechanism.blocks, mechanism.order).astype(np.float64))


def transform(table: Floats) -> Floats:
    """Return the Walsh-Hadamard transform of each row: sums and differences, at doubling distance."""
    rows, order = table.shape
    step = 1
    while step < order:
        pairs = table.reshape(rows, -1, 2, step)
        table = np.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), axis=2)
        step *= 2
    return np.asarray(table.reshape(rows, order))


@spread_of.register
def _spread(
    mechanism: HadamardResponse, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    """Return the spread. With one block, support counts are sums of coins; with more, the block's share matters too.

    A report counts +1, -1 or 0 for a value; its square is 1 if it is in the value's block. The share of people in that
    block is not known: the largest that fits is used.
    """
    half, inside, outside = mechanism.order // 2, float(mechanism.inside), float(mechanism.outside)
    if mechanism.blocks == 1:
        return coins(half * inside, 0.5, len(shares), n)
    gain, near, far = half * (inside - outside), half * (inside + outside), 2 * half * outside
    counts = table.reshape(mechanism.blocks, mechanism.order).sum(axis=1)
    block = coins(near, far, mechanism.blocks, n)
    mass = np.clip(block.interval((counts / n - far) / (near - far), "0.95")[1], 0.0, 1.0)
    mine = mass[(np.arange(mechanism.domain) if values is None else values) % mechanism.blocks]
    flat = (mine * near + (1 - mine) * far) / (n * gain**2)
    return Spread(n, flat, np.full(len(shares), -1 / n), np.full(len(shares), 1 / (n * gain)))
