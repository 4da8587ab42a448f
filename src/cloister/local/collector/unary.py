"""Unary encoding, thresholded histograms and subset selection, at the collector: sums of columns of packed bits."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats
from cloister.local.collector.counts import frequencies, likelihood, tally, valid
from cloister.local.collector.direct import chosen, debiased
from cloister.local.collector.projection import Likelihood, pairs
from cloister.local.mechanisms.subset import SubsetSelection
from cloister.local.mechanisms.threshold import ThresholdEncoding
from cloister.local.mechanisms.unary import UnaryEncoding

__all__ = ["columns", "no_spare_bits"]

Unary = UnaryEncoding | ThresholdEncoding | SubsetSelection
# So many rows of ones and zeros add up within a byte, which is what makes the sums quick.
_ROWS = 255


@valid.register
def _valid(mechanism: UnaryEncoding | ThresholdEncoding, data: NDArray[Any]) -> NDArray[np.bool_]:
    return no_spare_bits(data, mechanism.domain)


@valid.register
def _valid_subset(mechanism: SubsetSelection, data: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(no_spare_bits(data, mechanism.domain) & (_ones(data) == mechanism.size))


@tally.register
def _counts(mechanism: Unary, data: NDArray[Any]) -> NDArray[np.int64]:
    return columns(data, mechanism.domain)


@frequencies.register
def _shares(
    mechanism: Unary, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(debiased(mechanism, table, people), values)


@likelihood.register
def _likelihood(mechanism: Unary, table: NDArray[Any], people: int) -> Likelihood:
    return pairs(table.astype(np.float64), people, float(mechanism.p), float(mechanism.q))


def _ones(data: NDArray[Any]) -> NDArray[np.int64]:
    """How many bits of each row are 1; eight bytes at a time where rows allow it."""
    if data.shape[1] % 8 == 0 and data.flags.c_contiguous:
        data = data.view(np.uint64)
    return np.asarray(np.bitwise_count(data).sum(axis=1, dtype=np.int64))


def no_spare_bits(data: NDArray[Any], bits: int) -> NDArray[np.bool_]:
    """Whether the last byte has no bit beyond the last that counts."""
    return np.asarray(data[:, -1] >> np.uint8(bits % 8) == 0) if bits % 8 else np.ones(len(data), dtype=np.bool_)


def columns(data: NDArray[Any], bits: int) -> NDArray[np.int64]:
    """How many rows have each bit."""
    total = np.zeros(8 * data.shape[1], dtype=np.int64)
    for start in range(0, len(data), _ROWS):
        ones = np.unpackbits(data[start : start + _ROWS], axis=1, bitorder="little")
        total += ones.sum(axis=0, dtype=np.uint8)
    return total[:bits]
