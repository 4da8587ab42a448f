"""Count-mean sketch: a public hash folds a very large domain into few bits."""

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.local.base.oracle import Floats, Kind, Oracle, read_domain, read_loss
from cloister.local.mechanisms.unary import bits_law, bits_ratio, check_bits, optimised_bits
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss

__all__ = ["CountMeanSketch", "folded"]

ROW_BYTES = 2


@dataclass(frozen=True, slots=True)
class CountMeanSketch(Oracle):
    """A row of a public table of hashes, drawn at random, and the unary encoding of the value's bucket in that row.

    Apple's count-mean sketch (2017) with optimised bits. Row r hashes x to the sum of those coefficients of the row
    whose bit in x is 1, modulo an odd `buckets`. For three different values x, v, w the pairs (x, v) and (x, w) meet
    independently, each with probability exactly 1/buckets over the choice of the table: differences of bits are
    0, 1 or -1, and 2 is a unit modulo an odd number. The estimate subtracts the expected share of meetings, so it is
    unbiased over the table's choice, and its variance is known. A heavy value that meets x lifts x's estimate in that
    row alone; more rows make that rarer.

    The table follows from `salt`, public text fixed before anybody answers.

    Privacy: pure, p (1-q) / ((1-p) q) <= e^epsilon exactly; the row does not depend on the value.
    """

    name: ClassVar[str] = "count-mean-sketch"
    kind: ClassVar[Kind] = "bits"
    formula: ClassVar[str] = "(m/(m-1))² (4e^ε/(n (e^ε-1)²) + (1/n + Σf²/R)/m) for a rare value, m buckets, R rows"

    domain: int
    buckets: int
    rows: int
    salt: str
    p: Fraction
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name)
        read_loss(self.loss, self.name)
        if not isinstance(self.buckets, int) or self.buckets < 3 or not self.buckets % 2 or self.buckets > 1 << 16:
            raise BadInput("buckets must be an odd number of at least 3, at most 65,535.")
        if not isinstance(self.rows, int) or self.rows & (self.rows - 1) or not 1 <= self.rows <= 1 << 16:
            raise BadInput("rows must be a power of two, at most 65,536: a row is drawn from as many random bits.")
        check_bits(self)
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, loss: Loss, buckets: int = 1023, rows: int = 256, salt: str = "") -> Self:
        """With the optimised bits of OUE."""
        return cls(domain, buckets, rows, salt, *optimised_bits(read_loss(loss, cls.name)), loss)

    @property
    def bits(self) -> int:
        """How many bits one answer takes: 16 for the row, one for each bucket."""
        return 8 * ROW_BYTES + self.buckets

    @property
    def outputs(self) -> int:
        """Reports as numbers are below this: row + 2^16 · bits."""
        return 1 << self.bits

    def hashed(self, rows: ArrayLike, values: ArrayLike) -> NDArray[np.int64]:
        """The bucket of each value in its row."""
        return folded(self._table, np.asarray(rows, dtype=np.int64), np.asarray(values, dtype=np.int64), self.buckets)

    @property
    def _table(self) -> NDArray[np.int32]:
        return _table(self.salt, self.rows, self.buckets, (self.domain - 1).bit_length())

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this value; rows that do not exist have none."""
        settings = [bits_law(int(self.hashed(row, value)), self.buckets, self.p, self.q) for row in range(self.rows)]
        chances = [Fraction(0)] * self.outputs
        for row, law in enumerate(settings):
            for bits, chance in enumerate(law):
                chances[row + (bits << 8 * ROW_BYTES)] = chance / self.rows
        return tuple(chances)

    def largest_ratio(self) -> Fraction:
        """Two bits of one row differ, and they are independent."""
        return bits_ratio(self.p, self.q)

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """Noise of the bits, plus what meets a value in its bucket, over the choice of the table.

        Frequent values count by their squares, so they should be among those given.
        """
        shares = np.asarray(frequencies, dtype=np.float64)
        p, q, meet = float(self.p), float(self.q), 1 / self.buckets
        loud, quiet = (chance * (1 - chance) / (p - q) ** 2 for chance in (p, q))
        noise = shares * loud + (1 - shares) * (meet * loud + (1 - meet) * quiet)
        # Those who share a value and a row meet x together or not at all.
        squares = np.sum(np.square(np.maximum(shares, 0))) - shares**2
        together = np.maximum(squares - (1 - shares) / people, 0) / self.rows
        met = meet * (1 - meet) * ((1 - shares) / people + together)
        return np.asarray((noise / people + met) / (1 - meet) ** 2)

    def mse(self, people: int) -> float:
        """The expected squared error of a share if nobody's value is frequent."""
        return float(self.variance(np.zeros(1), people)[0])


def folded(
    table: NDArray[np.int32], rows: NDArray[np.int64], values: NDArray[np.int64], buckets: int
) -> NDArray[np.int64]:
    """The sum of the coefficients of the values' 1-bits, byte by byte."""
    total = np.zeros(np.broadcast_shapes(rows.shape, values.shape), dtype=np.int64)
    for place in range(table.shape[1]):
        total += table[rows, place, (values >> (8 * place)) & 255]
    return total % buckets


@lru_cache(maxsize=8)
def _table(salt: str, rows: int, buckets: int, bits: int) -> NDArray[np.int32]:
    """For each row, byte and setting of that byte: the sum of the coefficients of its 1-bits."""
    count = (bits + 7) // 8
    coefficients = _coefficients(f"{salt}|{rows}|{buckets}", rows * 8 * count, buckets).reshape(rows, count, 8)
    settings = (np.arange(256)[:, None] >> np.arange(8)) & 1
    table = (coefficients @ settings.T % buckets).astype(np.int32)
    table.setflags(write=False)
    return table


def _coefficients(text: str, count: int, below: int) -> NDArray[np.int64]:
    """Uniform integers from SHAKE-256 of a public text: 32-bit words, those beyond the last full run left out."""
    stream = hashlib.shake_256(b"cloister count-mean sketch:" + text.encode()).digest(4 * (2 * count + 64))
    drawn = np.frombuffer(stream, dtype="<u4").astype(np.int64)
    fair = (1 << 32) // below * below
    return drawn[drawn < fair][:count] % below
