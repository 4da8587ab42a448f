"""Subset selection, on the device: a uniform set of fixed size, from coins that are mended to the size.

Independent coins, given how many came up, are a uniform set of that size. Adding a uniform missing value, or removing a
uniform present one, keeps it uniform. So whatever the coins' probability, the mended set is exactly uniform; the
probability only decides how much there is to mend.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.client.coins import Bytes, bit_coins, coins
from cloister.local.client.perturb import perturbed, pieces
from cloister.local.client.unary import put, row_width, trim
from cloister.local.dyadic import threshold
from cloister.local.oracles.subset import SubsetSelection
from cloister.privacy.noise.source import Source

__all__ = ["subset"]

_BIT = (1 << np.arange(8)).astype(np.uint8)


@perturbed.register
def subset(mechanism: SubsetSelection, values: NDArray[np.int64], source: Source) -> Bytes:
    """Packed bits of which exactly `size` are 1: a word for the true value, coins for all, the mending, the true value.

    A set of the wanted size that happens to hold the true value gives it up and gets another instead: given that it
    was there, the others are a uniform set that is one short.
    """
    domain, width = mechanism.domain, row_width(mechanism.domain)
    rows = np.empty((len(values), width), dtype=np.uint8)
    start = _start(domain, mechanism.size)
    for piece in pieces(len(values)):
        own = values[piece]
        people = np.arange(len(own))
        included = coins(threshold(mechanism.p), len(own), source)
        count = len(own) * width
        bits = (bit_coins(start, count, source) if start else np.zeros(count, np.uint8)).reshape(-1, width)
        trim(bits, domain)
        missing = mechanism.size - included - np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
        _mend(bits, np.flatnonzero(missing > 0), missing, True, None, domain, source)
        _mend(bits, np.flatnonzero(missing < 0), -missing, False, None, domain, source)
        held = (bits[people, own >> 3] >> (own & 7).astype(np.uint8) & 1).astype(np.bool_)
        put(bits, own, included, domain)
        _mend(bits, np.flatnonzero(held), np.ones(len(own), dtype=np.int64), True, own, domain, source)
        rows[piece] = bits
    return rows


def _mend(
    bits: Bytes,
    rows: NDArray[np.intp],
    gaps: NDArray[np.int64],
    add: bool,
    closed: NDArray[np.int64] | None,
    domain: int,
    source: Source,
) -> None:
    """Set (or clear) as many bits of each row as it has gaps, each uniform among those that can be. In place.

    One place a row and round is tried: a word (16 bits if they suffice, else 32), cut to as many bits as the domain
    needs. A place beyond the domain, the closed place of a row, and a bit that is as wanted already change nothing.
    """
    flat, left, base = bits.reshape(-1), gaps[rows].astype(np.int32), rows * bits.shape[1]
    kind: type[np.uint16] | type[np.uint32] = np.uint16 if domain <= 1 << 16 else np.uint32
    mask, last = kind((1 << (domain - 1).bit_length()) - 1), kind(domain - 1)
    shut = None if closed is None else closed[rows].astype(kind)
    turn = 0
    while left.size:
        drawn: NDArray[Any] = np.frombuffer(source.bytes(left.size * mask.itemsize), dtype=kind)
        place = drawn & mask
        bit = _BIT[place & kind(7)]
        bit *= left > 0
        if mask != last:
            bit *= place <= last
            place = np.minimum(place, last)
        if shut is not None:
            bit *= place != shut
        at = base + (place >> kind(3))
        held = flat[at]
        mended = held | bit if add else held & ~bit
        flat[at] = mended
        left -= mended != held
        turn += 1
        if turn % 4 == 0 or left.size < 64:
            stay = np.flatnonzero(left)
            left, base = left[stay], base[stay]
            shut = None if shut is None else shut[stay]


@lru_cache(maxsize=256)
def _start(domain: int, size: int) -> Fraction:
    """The coins' probability with the least expected mending: too few are cheap to add, too many dear to remove.

    In floats: it decides the cost and nothing else.
    """
    rounds = max(3, domain.bit_length() - 2)
    share = size / domain

    def cost(numerator: int) -> float:
        r = numerator / (1 << rounds)
        gap, spread = size - domain * r, math.sqrt(domain * r * (1 - r)) + 1e-9
        z = gap / spread
        density, under = math.exp(-z * z / 2) / math.sqrt(2 * math.pi), 0.5 * math.erfc(-z / math.sqrt(2))
        add = gap * under + spread * density
        return add / (1 - share) + (add - gap) / share

    return Fraction(min(range(1 << rounds), key=cost), 1 << rounds)
