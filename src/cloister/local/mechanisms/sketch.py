"""Count-mean sketch: a public hash maps a very large domain to few bits."""

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.local.base.coins import Bytes, bit_rows, coins, put, row_width, tossed
from cloister.local.base.counts import columns, frequencies, no_spare_bits, tally, valid
from cloister.local.base.dyadic import threshold
from cloister.local.base.intervals import Spread, spread_of
from cloister.local.base.oracle import Floats, Kind, Oracle, read_domain, read_loss
from cloister.local.base.perturb import perturbed, pieces
from cloister.local.mechanisms.unary import bits_law, bits_ratio, check_bits, optimised_bits
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source

__all__ = ["CountMeanSketch", "folded"]

ROW_BYTES = 2


@dataclass(frozen=True, slots=True)
class CountMeanSketch(Oracle):
    """A random row of a public table of hashes, and the unary encoding of the value's bucket in that row.

    Apple's count-mean sketch (2017) with optimised bits. Row r hashes x to the sum of those coefficients of the row
    whose bit in x is 1, modulo an odd `buckets`. For three different values x, v, w the pairs (x, v) and (x, w) collide
    independently, each with probability exactly 1/buckets over the choice of the table: differences of bits are 0, 1 or
    -1, and 2 is a unit modulo an odd number. The estimate subtracts the expected share of collisions, so it is unbiased
    over the table's choice, and its variance is known. A frequent value that collides with x raises x's estimate in
    that row alone; more rows make that rarer.

    The table follows from `salt`, public text fixed before any answer.

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
        """Build the mechanism with the optimised bits of OUE."""
        return cls(domain, buckets, rows, salt, *optimised_bits(read_loss(loss, cls.name)), loss)

    @property
    def bits(self) -> int:
        """The number of bits per report: 16 for the row, one for each bucket."""
        return 8 * ROW_BYTES + self.buckets

    @property
    def outputs(self) -> int:
        """The bound of reports as numbers: row + 2^16 · bits."""
        return 1 << self.bits

    def hashed(self, rows: ArrayLike, values: ArrayLike) -> NDArray[np.int64]:
        """Return the bucket of each value in its row."""
        return folded(self._table, np.asarray(rows, dtype=np.int64), np.asarray(values, dtype=np.int64), self.buckets)

    @property
    def _table(self) -> NDArray[np.int32]:
        return _table(self.salt, self.rows, self.buckets, (self.domain - 1).bit_length())

    def law(self, value: int) -> tuple[Fraction, ...]:
        """Return the probability of every report on this value; rows that do not exist have none."""
        settings = [bits_law(int(self.hashed(row, value)), self.buckets, self.p, self.q) for row in range(self.rows)]
        chances = [Fraction(0)] * self.outputs
        for row, law in enumerate(settings):
            for bits, chance in enumerate(law):
                chances[row + (bits << 8 * ROW_BYTES)] = chance / self.rows
        return tuple(chances)

    def largest_ratio(self) -> Fraction:
        """Return the ratio: two bits of one row differ, and they are independent."""
        return bits_ratio(self.p, self.q)

    def variance(self, frequencies: ArrayLike, people: int, *, unlisted: float = 0.0) -> Floats:
        """Return the noise variance of the bits plus that of collisions, over the choice of the table.

        Args:
            frequencies: shares of values.
            people: number of reports.
            unlisted: the largest share that a value which is not among these can have. Frequent values count by their
                squares, because their people collide with a value together.
        """
        shares = np.asarray(frequencies, dtype=np.float64)
        p, q, meet = float(self.p), float(self.q), 1 / self.buckets
        loud, quiet = (chance * (1 - chance) / (p - q) ** 2 for chance in (p, q))
        noise = shares * loud + (1 - shares) * (meet * loud + (1 - meet) * quiet)
        # People who share a value and a row collide with x together or not at all.
        squares = np.sum(np.square(np.maximum(shares, 0))) + unlisted**2 - shares**2
        together = np.maximum(squares - (1 - shares) / people, 0) / self.rows
        met = meet * (1 - meet) * ((1 - shares) / people + together)
        return np.asarray((noise / people + met) / (1 - meet) ** 2)

    def mse(self, people: int) -> float:
        """Return the expected squared error of a share if no value is frequent."""
        return float(self.variance(np.zeros(1), people)[0])


def folded(
    table: NDArray[np.int32], rows: NDArray[np.int64], values: NDArray[np.int64], buckets: int
) -> NDArray[np.int64]:
    """Return the sum of the coefficients of the values' 1-bits, byte by byte."""
    total = np.zeros(np.broadcast_shapes(rows.shape, values.shape), dtype=np.int64)
    for byte in range(table.shape[1]):
        total += table[rows, byte, (values >> (8 * byte)) & 255]
    return total % buckets


@lru_cache(maxsize=8)
def _table(salt: str, rows: int, buckets: int, bits: int) -> NDArray[np.int32]:
    """Return, for each row, byte and setting of that byte, the sum of the coefficients of its 1-bits."""
    count = (bits + 7) // 8
    coefficients = _coefficients(f"{salt}|{rows}|{buckets}", rows * 8 * count, buckets).reshape(rows, count, 8)
    settings = (np.arange(256)[:, None] >> np.arange(8)) & 1
    table = (coefficients @ settings.T % buckets).astype(np.int32)
    table.setflags(write=False)
    return table


def _coefficients(text: str, count: int, below: int) -> NDArray[np.int64]:
    """Return uniform integers from SHAKE-256 of a public text: 32-bit words, without those beyond the last full run."""
    stream = hashlib.shake_256(b"cloister count-mean sketch:" + text.encode()).digest(4 * (2 * count + 64))
    drawn = np.frombuffer(stream, dtype="<u4").astype(np.int64)
    fair = (1 << 32) // below * below
    return drawn[drawn < fair][:count] % below


# Device: a row of the public table, then the unary encoding of the value's bucket.


@perturbed.register
def sketch(mechanism: CountMeanSketch, values: NDArray[np.int64], source: Source) -> Bytes:
    """Return two row bytes and packed bits: a word for the row (its low bits), one for the true bit, then coins."""
    data = np.empty((len(values), ROW_BYTES + row_width(mechanism.buckets)), dtype=np.uint8)
    for piece in pieces(len(values)):
        batch = values[piece]
        rows = tossed(len(batch), source) & np.uint64(mechanism.rows - 1)
        true_bits = coins(threshold(mechanism.p), len(batch), source)
        data[piece, :ROW_BYTES] = rows.astype("<u2").view(np.uint8).reshape(-1, ROW_BYTES)
        bits = bit_rows(mechanism.q, data[piece, ROW_BYTES:], source)
        put(bits, mechanism.hashed(rows.astype(np.int64), batch), true_bits, mechanism.buckets)
    return data


# Collector: a table of rows and buckets, read at each value's bucket.


# A domain up to this size is estimated as a whole; of a larger one, the values must be named.
_LISTED = 1 << 20


@valid.register
def _valid(mechanism: CountMeanSketch, data: NDArray[Any]) -> NDArray[np.bool_]:
    return no_spare_bits(data, mechanism.buckets) & (_row(data) < mechanism.rows)


@tally.register
def _counts(mechanism: CountMeanSketch, data: NDArray[Any]) -> NDArray[np.int64]:
    """Return, for each row, its bits' counts, and in the last column its number of reports."""
    table = np.zeros((mechanism.rows, mechanism.buckets + 1), dtype=np.int64)
    rows = _row(data)
    table[:, -1] = np.bincount(rows, minlength=mechanism.rows)
    order = np.argsort(rows.astype(np.uint16), kind="stable")  # sixteen bits are sorted in two passes
    ends = np.cumsum(table[:, -1])
    for row in np.flatnonzero(table[:, -1]).tolist():
        group = np.take(data, order[ends[row] - table[row, -1] : ends[row]], axis=0)
        table[row, :-1] = columns(group[:, ROW_BYTES:], mechanism.buckets)
    return table


@frequencies.register
def _shares(
    mechanism: CountMeanSketch, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    if values is None and mechanism.domain > _LISTED:
        raise BadInput(f"a domain of {mechanism.domain:,} values is not listed. Name the values to estimate.")
    named = np.arange(mechanism.domain) if values is None else values
    p, q, meet = float(mechanism.p), float(mechanism.q), 1 / mechanism.buckets
    unbiased = (table[:, :-1] - table[:, -1:] * q) / (p - q)
    total = np.zeros(len(named))
    for row in range(mechanism.rows):
        total += unbiased[row, mechanism.hashed(row, named)]
    # A value's bucket holds its own people and, on average, 1/buckets of all others.
    return values, np.asarray((total / people - meet) / (1 - meet))


def _row(data: NDArray[Any]) -> NDArray[np.int64]:
    return np.ascontiguousarray(data[:, :ROW_BYTES]).view("<u2").ravel().astype(np.int64)


@spread_of.register
def _spread(
    mechanism: CountMeanSketch, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    """Return the spread: linear in a value's own share, except for people who collide together; see `variance`.

    In a row where all of a frequent value's people collide with it, they move its estimate together, by one large step.
    People whose value is not named may all have the same one. How many they are is known up to the noise.
    """
    likely = np.clip(shares, 0.0, 1.0)
    first, last = (mechanism.variance(np.full(1, share), n)[0] for share in (0.0, 1.0))
    unlisted = 0.0
    if values is not None:
        named, places = np.unique(values, return_index=True)
        if len(named) < mechanism.domain:
            unlisted = max(0.0, 1.0 - float(np.maximum(likely[places] - 3 * np.sqrt(first), 0.0).sum()))
    together = mechanism.variance(likely, n, unlisted=unlisted) - (first + (last - first) * likely)
    p, q, meet = float(mechanism.p), float(mechanism.q), 1 / mechanism.buckets
    step = np.full(len(shares), 1 / (n * (p - q)) + max(likely.max(), unlisted) / mechanism.rows) / (1 - meet)
    return Spread(n, first + np.maximum(together, 0.0), np.full(len(shares), last - first), step)
