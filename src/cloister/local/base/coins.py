"""Coins of dyadic probability: one word against a threshold, or packed bits in bulk."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.noise.source import Source, words

__all__ = ["Bytes", "Words", "below", "bit_coins", "bit_rows", "coins", "put", "row_width", "tossed", "trim", "uniform"]

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

# Number of random bytes drawn at a time for several people's bits. More would not fit the cache, and the allocator
# would request every block from the system again, which takes longer than filling it.
_DRAW = 96 << 10


def tossed(count: int, source: Source) -> Words:
    """Return uniform 64-bit words, each read as 8 little-endian bytes."""
    return words(count, np.uint64, source)


def coins(probability: int, count: int, source: Source) -> NDArray[np.bool_]:
    """Return True with probability exactly probability/2^64, below 1: one word each."""
    return tossed(count, source) < np.uint64(probability)


def below(shares: tuple[int, int], own: Words, buckets: int, source: Source) -> Words:
    """Direct encoding: return `own` if a word is below shares[0], else another bucket, in runs of shares[1] words.

    The others are counted upwards from `own`, modulo the number of buckets.
    """
    keep, run = (np.uint64(share) for share in shares)
    word = tossed(len(own), source)
    kept = word < keep
    other = (own + np.uint64(1) + (word - keep) // run) % np.uint64(buckets)  # wraps where kept, and is not used there
    return np.where(kept, own, other)


def uniform(limit: int, count: int, source: Source) -> Words:
    """Return uniform numbers in 0 … limit - 1: a word modulo the limit, redrawn in the last, incomplete run."""
    fair = (1 << 64) // limit * limit
    drawn = tossed(count, source).copy()
    if fair < 1 << 64:
        while (again := np.flatnonzero(drawn >= np.uint64(fair))).size:
            drawn[again] = tossed(again.size, source)
    return drawn % np.uint64(limit)


def bit_coins(probability: Fraction, count: int, source: Source) -> Bytes:
    """Return 8·count bits, each 1 with exactly this probability a/2^k: k rounds of `count` random bytes.

    From the lowest binary digit of a to the highest: OR with a random byte where it is 1 turns each bit's probability
    x into (1 + x)/2, AND where it is 0 into x/2. A fraction in lowest terms begins with a 1, and 0 OR r is r.
    """
    numerator, rounds = probability.numerator, probability.denominator.bit_length() - 1
    bits = words(count, np.uint8, source).copy()
    for digit in range(1, rounds):
        fresh = words(count, np.uint8, source)
        (np.bitwise_or if numerator >> digit & 1 else np.bitwise_and)(bits, fresh, out=bits)
    return bits


def bit_rows(probability: Fraction, rows: Bytes, source: Source) -> Bytes:
    """Fill each row with such bits, a few people at a time; with probability 0 all are 0. In place."""
    if not probability:
        rows[:] = 0
        return rows
    width = rows.shape[1]
    step = max(1, _DRAW // width)
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        some[:] = bit_coins(probability, len(some) * width, source).reshape(-1, width)
    return rows


def row_width(bits: int) -> int:
    """Return the number of bytes that hold `bits` bits."""
    return (bits + 7) // 8


def put(bits: Bytes, places: NDArray[np.int64], ones: NDArray[np.bool_], count: int) -> Bytes:
    """Set each row's bit at its index, and clear the bits beyond `count`. In place."""
    row, byte, mask = np.arange(len(bits)), places >> 3, (np.uint8(1) << (places & 7).astype(np.uint8))
    cleared = bits[row, byte] & ~mask
    bits[row, byte] = np.where(ones, cleared | mask, cleared)
    return trim(bits, count)


def trim(bits: Bytes, count: int) -> Bytes:
    """Clear the bits beyond `count`. In place."""
    if count % 8:
        bits[:, -1] &= np.uint8((1 << count % 8) - 1)
    return bits
