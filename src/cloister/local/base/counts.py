"""Counts of reports: they stream, add, and record the number of refusals."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce, singledispatch
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats, Oracle, Reports
from cloister.privacy.errors import BadInput

if TYPE_CHECKING:
    from cloister.local.base.projection import Likelihood

__all__ = [
    "Counts",
    "aggregate",
    "chosen",
    "columns",
    "debiased",
    "frequencies",
    "likelihood",
    "no_spare_bits",
    "ones_in",
    "tally",
    "valid",
]

_PIECE = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """The collector's state in place of reports.

    Attributes:
        mechanism: the mechanism of the reports.
        table: additive counts, of a shape that the mechanism defines.
        n: the number of reports counted.
        refused: the number of malformed reports, not counted.
        private: False if any report came from a seeded source.
        kept: True if the table is the reports themselves, as heavy hitters need; then sums append.
    """

    mechanism: Oracle
    table: NDArray[Any]
    n: int
    refused: int = 0
    private: bool = True
    kept: bool = False

    def __add__(self, other: "Counts") -> "Counts":
        if not isinstance(other, Counts):
            return NotImplemented
        if self.mechanism != other.mechanism:
            raise BadInput("counts of different mechanisms cannot be added. Estimate each and use combine().")
        table = np.concatenate((self.table, other.table)) if self.kept else self.table + other.table
        return Counts(
            self.mechanism,
            table,
            self.n + other.n,
            self.refused + other.refused,
            self.private and other.private,
            self.kept,
        )

    def __radd__(self, other: object) -> "Counts":
        return self if other == 0 else NotImplemented  # so that sum() works


@singledispatch
def valid(mechanism: Oracle, data: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the rows an honest device could have sent. Numbers are below `outputs`; others register their own."""
    if mechanism.kind != "number":
        raise BadInput(f"no collector is known for a {type(mechanism).__name__}.")
    return np.asarray(data < np.uint64(mechanism.outputs))


@singledispatch
def tally(mechanism: Oracle, data: NDArray[Any]) -> NDArray[Any]:
    """Return an additive table of well-formed rows. Each mechanism registers its own."""
    raise BadInput(f"no collector is known for a {type(mechanism).__name__}.")


@singledispatch
def frequencies(
    mechanism: Oracle, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    """Return the values (None for the whole domain) and their unbiased shares. Each mechanism registers its own."""
    raise BadInput(f"no collector is known for a {type(mechanism).__name__}.")


@singledispatch
def likelihood(mechanism: Oracle, table: NDArray[Any], people: int) -> "Likelihood | None":
    """Return the likelihood of the table under given shares, for EM; None if the mechanism has none."""
    return None


def aggregate(mechanism: Oracle, reports: Any) -> Counts:
    """Count reports, an array of wire bytes, or any stream of byte strings.

    Malformed, oversized and out-of-domain reports, and reports of another mechanism, are refused and counted.
    """
    if isinstance(reports, Iterator):
        parts = (aggregate(mechanism, part) for part in _batches(reports))
        return reduce(Counts.__add__, parts, aggregate(mechanism, []))
    from cloister.local.base.wire import decode

    if isinstance(reports, Reports):
        if reports.mechanism != mechanism:
            return _counted(mechanism, decode(mechanism, [])[0].data, len(reports), True)
        good = valid(mechanism, reports.data)
        data = reports.data if good.all() else reports.data[good]
        return _counted(mechanism, data, int(len(good) - len(data)), reports.private)
    decoded, refused = decode(mechanism, reports)
    return _counted(mechanism, decoded.data, refused, True)


def _counted(mechanism: Oracle, data: NDArray[Any], refused: int, private: bool) -> Counts:
    kept = bool(getattr(mechanism, "levels", 0))
    return Counts(mechanism, tally(mechanism, data), len(data), refused, private, kept)


def _batches(stream: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(stream)
    while batch := list(islice(iterator, _PIECE)):
        yield batch


def debiased(mechanism: Oracle, supports: NDArray[Any], people: int) -> Floats:
    """Return (count/n - q) / (p - q), Wang et al. 2017."""
    return np.asarray((supports / people - float(mechanism.q)) / float(mechanism.p - mechanism.q))


def chosen(shares: Floats, values: NDArray[np.int64] | None) -> tuple[NDArray[np.int64] | None, Floats]:
    """Return all shares, or those of some values."""
    return values, shares if values is None else shares[values]


# This many rows of ones and zeros add up within a byte, which makes the sums fast.
_ROWS = 255


def ones_in(data: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of 1 bits of each row, eight bytes at a time where rows allow it."""
    if data.shape[1] % 8 == 0 and data.flags.c_contiguous:
        data = data.view(np.uint64)
    return np.asarray(np.bitwise_count(data).sum(axis=1, dtype=np.int64))


def no_spare_bits(data: NDArray[Any], bits: int) -> NDArray[np.bool_]:
    """Return True if the last byte has no bit set beyond the last that counts."""
    return np.asarray(data[:, -1] >> np.uint8(bits % 8) == 0) if bits % 8 else np.ones(len(data), dtype=np.bool_)


def columns(data: NDArray[Any], bits: int) -> NDArray[np.int64]:
    """Return the number of rows with each bit."""
    total = np.zeros(8 * data.shape[1], dtype=np.int64)
    for start in range(0, len(data), _ROWS):
        unpacked = np.unpackbits(data[start : start + _ROWS], axis=1, bitorder="little")
        total += unpacked.sum(axis=0, dtype=np.uint8)
    return total[:bits]
