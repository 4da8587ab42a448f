"""Count-mean sketch, on the device: a row of the public table, then the unary encoding of the value's bucket."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.dyadic import threshold
from cloister.local.client.coins import Bytes, bit_rows, coins, tossed
from cloister.local.client.perturb import perturbed, pieces
from cloister.local.client.unary import put, row_width
from cloister.local.mechanisms.sketch import ROW_BYTES, CountMeanSketch
from cloister.privacy.noise.source import Source

__all__ = ["sketch"]


@perturbed.register
def sketch(mechanism: CountMeanSketch, values: NDArray[np.int64], source: Source) -> Bytes:
    """Two bytes for the row, then packed bits: a word for the row (its low bits), one for the true bit, then coins."""
    data = np.empty((len(values), ROW_BYTES + row_width(mechanism.buckets)), dtype=np.uint8)
    for piece in pieces(len(values)):
        own = values[piece]
        rows = tossed(len(own), source) & np.uint64(mechanism.rows - 1)
        true_bits = coins(threshold(mechanism.p), len(own), source)
        data[piece, :ROW_BYTES] = rows.astype("<u2").view(np.uint8).reshape(-1, ROW_BYTES)
        bits = bit_rows(mechanism.q, data[piece, ROW_BYTES:], source)
        put(bits, mechanism.hashed(rows.astype(np.int64), own), true_bits, mechanism.buckets)
    return data
