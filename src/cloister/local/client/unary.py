"""Unary encoding and thresholded histograms, on the device: one word for the true bit, then coins for all others."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.dyadic import threshold
from cloister.local.client.coins import Bytes, bit_rows, coins
from cloister.local.client.perturb import perturbed, pieces
from cloister.local.mechanisms.threshold import ThresholdEncoding
from cloister.local.mechanisms.unary import UnaryEncoding
from cloister.privacy.noise.source import Source

__all__ = ["put", "row_width", "trim", "unary"]


@perturbed.register
def unary(mechanism: UnaryEncoding | ThresholdEncoding, values: NDArray[np.int64], source: Source) -> Bytes:
    """Packed bits, the first value in the lowest bit of the first byte; bits beyond the domain are 0."""
    width = row_width(mechanism.domain)
    rows = np.empty((len(values), width), dtype=np.uint8)
    for piece in pieces(len(values)):
        own = values[piece]
        true_bits = coins(threshold(mechanism.p), len(own), source)
        put(bit_rows(mechanism.q, rows[piece], source), own, true_bits, mechanism.domain)
    return rows


def row_width(bits: int) -> int:
    """Bytes for so many bits."""
    return (bits + 7) // 8


def put(bits: Bytes, places: NDArray[np.int64], ones: NDArray[np.bool_], count: int) -> Bytes:
    """Set each row's bit at its place, and clear what lies beyond `count` bits. In place."""
    row, byte, mask = np.arange(len(bits)), places >> 3, (np.uint8(1) << (places & 7).astype(np.uint8))
    held = bits[row, byte] & ~mask
    bits[row, byte] = np.where(ones, held | mask, held)
    return trim(bits, count)


def trim(bits: Bytes, count: int) -> Bytes:
    """Clear what lies beyond `count` bits. In place."""
    if count % 8:
        bits[:, -1] &= np.uint8((1 << count % 8) - 1)
    return bits
