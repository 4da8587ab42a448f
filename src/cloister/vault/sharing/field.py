"""Arithmetic modulo the prime 2^61 - 1 on numpy arrays, and additive shares modulo it.

2^61 = 1 modulo the prime, so a product of two 61-bit numbers is folded from its parts without a division.
"""

import math

import numpy as np

from cloister.privacy.noise.source import SYSTEM, Source, words
from cloister.vault.sharing.ring import Words

__all__ = ["PRIME", "add", "from_words", "multiply", "negative", "reconstruct", "share", "signed", "total", "uniform"]

PRIME = (1 << 61) - 1

_P = np.uint64(PRIME)
_BITS = np.uint64(61)
_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)
_FOLD = np.uint64(29)
_FOLDED = np.uint64((1 << 29) - 1)


def from_words(uniform_words: Words) -> Words:
    """Return elements of the field from uniform words; they are uniform up to 2^-61."""
    return _once(uniform_words >> np.uint64(3))


def uniform(shape: tuple[int, ...], source: Source = SYSTEM) -> Words:
    """Draw elements of the field, uniform up to 2^-61."""
    return from_words(words(math.prod(shape), np.uint64, source)).reshape(shape)


def add(left: Words, right: Words) -> Words:
    """Return left + right."""
    return _once(left + right)


def negative(values: Words) -> Words:
    """Return -values."""
    return _once(_P - values)


def multiply(left: Words, right: Words) -> Words:
    """Return left·right.

    >>> import numpy as np
    >>> big = np.array([PRIME - 1], dtype=np.uint64)
    >>> multiply(big, big)
    array([1], dtype=uint64)
    """
    left_high, left_low, right_high, right_low = left >> _HALF, left & _LOW, right >> _HALF, right & _LOW
    low = left_low * right_low
    middle = left_high * right_low + left_low * right_high  # below 2^62
    high = left_high * right_high << np.uint64(3)  # 2^64 is 8
    # middle·2^32 is (middle >> 29)·2^61 and the rest.
    folded = high + (middle >> _FOLD) + ((middle & _FOLDED) << _HALF) + (low & _P) + (low >> _BITS)  # below 2^63
    return _once((folded & _P) + (folded >> _BITS))


def total(values: Words, axis: int | None = None) -> Words:
    """Return the sum over an axis, or over all."""
    high = np.asarray((values >> _HALF).sum(axis=axis, dtype=np.uint64))
    low = np.asarray((values & _LOW).sum(axis=axis, dtype=np.uint64))
    shifted = multiply(_reduced(high), np.uint64(1 << 32) + np.zeros_like(high))
    return add(shifted, _reduced(low))


def share(values: Words, parties: int, source: Source = SYSTEM) -> list[Words]:
    """Cut elements into additive shares modulo the prime."""
    drawn = [uniform(values.shape, source) for _ in range(parties - 1)]
    return [*drawn, add(values, negative(reconstruct(drawn, values.shape)))]


def reconstruct(shares: list[Words], shape: tuple[int, ...] = ()) -> Words:
    """Add all shares of an element."""
    found = np.zeros(shares[0].shape if shares else shape, dtype=np.uint64)
    for part in shares:
        found = add(found, part)
    return found


def signed(values: Words) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
    """Read elements as integers from -2^60 to 2^60."""
    integers = values.astype(np.int64)
    return np.where(integers > PRIME // 2, integers - PRIME, integers)


def _once(values: Words) -> Words:
    """Reduce values up to twice the prime, in the same steps for each."""
    return np.asarray(values - _P * (values >= _P).astype(np.uint64), dtype=np.uint64)


def _reduced(values: Words) -> Words:
    return _once((values & _P) + (values >> _BITS))
