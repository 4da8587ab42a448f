"""Hadamard response, on the device: one word chooses the codeword."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.client.coins import Words, tossed
from cloister.local.client.perturb import perturbed
from cloister.local.mechanisms.hadamard import HadamardResponse
from cloister.privacy.noise.source import Source

__all__ = ["hadamard"]


@perturbed.register
def hadamard(mechanism: HadamardResponse, values: NDArray[np.int64], source: Source) -> Words:
    """block · order + column.

    The first half · inside words belong to the columns of +1 of the value's row, in ascending order of the column
    without its deciding bit; then come the columns of -1 in the same order; then the other blocks, upwards from the
    value's own and round the end.
    """
    order, blocks, (inside, outside) = mechanism.order, mechanism.blocks, mechanism.thresholds
    half = order // 2
    own = values.astype(np.uint64)
    home, row = own % np.uint64(blocks), np.uint64(1) + own // np.uint64(blocks)
    word = tossed(len(values), source)
    likely = word < np.uint64(half * inside)
    # Wraps where likely, and is not used there.
    rest = (word - np.uint64(half * inside)) // np.uint64(outside)
    near = likely | (rest < np.uint64(half))
    index = np.where(likely, word // np.uint64(inside), rest)
    column = _column(np.where(near, index, np.uint64(0)), row, ~likely)
    far = rest - np.uint64(half)
    block = (home + np.uint64(1) + far // np.uint64(order)) % np.uint64(blocks)
    there = block * np.uint64(order) + far % np.uint64(order)
    return np.where(near, home * np.uint64(order) + column, there)


def _column(index: Words, row: Words, odd: NDArray[np.bool_]) -> Words:
    """The index-th column whose bits in common with the row are even (or odd) in number.

    The row's lowest bit decides the parity, so it is left out of the index and set as needed.
    """
    low = row & (~row + np.uint64(1))
    under = low - np.uint64(1)
    column = ((index & ~under) << np.uint64(1)) | (index & under)
    parity = (np.bitwise_count(column & row) & np.uint8(1)).astype(np.bool_)
    return np.where(parity != odd, column | low, column)
