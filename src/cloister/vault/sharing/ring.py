"""Arithmetic modulo 2^64 on numpy arrays, additive shares, and bits packed eight to a byte.

numpy's unsigned integers wrap modulo 2^64, which is the ring's arithmetic. A secret is the sum of its shares; all but
one are uniform and independent of it, so any proper subset of them is uniform.
"""

import math

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.noise.source import SYSTEM, Source, words

__all__ = ["BITS", "Bits", "Words", "pack_bits", "reconstruct", "share", "signed", "uniform", "unpack_bits", "wrapping"]

Words = NDArray[np.uint64]
Bits = NDArray[np.uint8]

BITS = 64

# numpy warns when a scalar wraps, and not when an array does. Here wrapping is the arithmetic.
wrapping = np.errstate(over="ignore")


def uniform(shape: tuple[int, ...], source: Source = SYSTEM) -> Words:
    """Draw uniform elements of the ring."""
    return words(math.prod(shape), np.uint64, source).reshape(shape)


@wrapping
def share(values: Words, parties: int, source: Source = SYSTEM) -> list[Words]:
    """Cut values into additive shares, one for each party.

    >>> import numpy as np
    >>> reconstruct(share(np.array([1, 2**64 - 1], dtype=np.uint64), 3))
    array([                   1, 18446744073709551615], dtype=uint64)
    """
    drawn = [uniform(values.shape, source) for _ in range(parties - 1)]
    return [*drawn, values - reconstruct(drawn, values.shape)]


@wrapping
def reconstruct(shares: list[Words], shape: tuple[int, ...] = ()) -> Words:
    """Add all shares of a value."""
    total = np.zeros(shares[0].shape if shares else shape, dtype=np.uint64)
    for part in shares:
        total = total + part
    return total


def signed(values: Words) -> NDArray[np.int64]:
    """Read ring elements as integers from -2^63 to 2^63 - 1."""
    return values.view(np.int64)


def pack_bits(values: Words) -> Bits:
    """Return the bits of words: row i holds bit i of all words, eight words to a byte."""
    flat = np.ascontiguousarray(values.reshape(-1)).astype("<u8")
    bits = np.unpackbits(flat.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    return np.packbits(bits.T, axis=1, bitorder="little")


def unpack_bits(row: Bits, count: int) -> Words:
    """Return the first bits of packed rows as words of 0 or 1."""
    return np.unpackbits(row, axis=-1, count=count, bitorder="little").astype(np.uint64)
