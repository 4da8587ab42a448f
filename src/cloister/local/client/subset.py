"""Subset selection, on the device: a uniform set of fixed size, from coins that are mended to the size.

Independent coins, given how many came up, are a uniform set of that size. Adding a uniform missing value, or removing a
uniform present one, keeps it uniform. So whatever the coins' probability, the mended set is exactly uniform; the
probability only decides how much there is to mend.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.dyadic import threshold
from cloister.local.client.coins import Bytes, bit_rows, coins
from cloister.local.client.perturb import perturbed, pieces
from cloister.local.client.unary import row_width, trim
from cloister.local.mechanisms.subset import SubsetSelection
from cloister.privacy.noise.source import Source

__all__ = ["subset"]

_BIT = (1 << np.arange(8)).astype(np.uint8)
# Rows that are slow to mend are left until a whole population's are together: a turn for few costs as much as for many.
_FEW = 256
_MANY = 1 << 16


@perturbed.register
def subset(mechanism: SubsetSelection, values: NDArray[np.int64], source: Source) -> Bytes:
    """Packed bits of which exactly `size` are 1: a word for the true value, coins for all, the mending, the true value.

    A set of the wanted size that happens to hold the true value gives it up and gets another instead: given that it
    was there, the others are a uniform set that is one short.
    """
    domain, width, people = mechanism.domain, row_width(mechanism.domain), len(values)
    rows = np.empty((people, width), dtype=np.uint8)
    flat, bases = rows.reshape(-1), np.arange(people) * width
    included = coins(threshold(mechanism.p), people, source)
    gaps = np.empty(people, dtype=np.int32)
    for piece in pieces(people):
        bits = trim(bit_rows(mechanism.start, rows[piece], source), domain)
        gaps[piece] = mechanism.size - included[piece] - _ones(bits)
        _mend(flat, bases[piece], gaps[piece], True, None, domain, source, _FEW)
    for start in range(0, people, _MANY):
        _mend(flat, bases[start : start + _MANY], gaps[start : start + _MANY], False, None, domain, source, _FEW)
    for add in (True, False):
        _mend(flat, bases, gaps, add, None, domain, source)
    at, bit = bases + (values >> 3), _BIT[values & 7]
    held = flat[at]
    flat[at] = np.where(included, held | bit, held & ~bit)
    _mend(flat, bases, ((held & bit) > 0).astype(np.int32), True, values, domain, source)
    return rows


def _mend(
    flat: Bytes,
    bases: NDArray[np.int64],
    gaps: NDArray[np.int32],
    add: bool,
    closed: NDArray[np.int64] | None,
    domain: int,
    source: Source,
    few: int = 1,
) -> None:
    """Set (or clear) as many bits of each row as it lacks (or has too many), each uniform among those that can be.

    A row tries one place after another: a word (16 bits if they suffice, else 32), cut to as many bits as the domain
    needs. A place beyond the domain, the closed place of a row, and a bit that is as wanted already change nothing.
    In every round a row may try as often as it has gaps, so it never does too much; rows with most gaps come first, so
    that those who still may try are always the first ones. In place, gaps too; fewer rows than `few` are left alone.
    """
    kind: type[np.uint16] | type[np.uint32] = np.uint16 if domain <= 1 << 16 else np.uint32
    mask, last = kind((1 << (domain - 1).bit_length()) - 1), kind(domain - 1)
    sign = 1 if add else -1
    here = np.flatnonzero(sign * gaps > 0)
    while here.size >= few:
        left = sign * gaps[here]
        if left.max() > 1:
            order = np.argsort(-left.astype(np.int16) if domain < 1 << 15 else -left, kind="stable")
            here, left = here[order], left[order]
        turns = np.searchsorted(-left, -np.arange(1, int(left[0]) + 1), side="right").tolist()
        base, shut = bases[here], None if closed is None else closed[here].astype(kind)
        for count in turns:
            if count < few:
                break
            drawn: NDArray[Any] = np.frombuffer(source.bytes(count * mask.itemsize), dtype=kind)
            place = drawn & mask
            bit = _BIT.take(place & kind(7))
            if mask != last:
                bit *= place <= last
                place = np.minimum(place, last)
            if shut is not None:
                bit *= place != shut[:count]
            at = base[:count] + (place >> kind(3))
            held = flat[at]
            mended = held | bit if add else held & ~bit
            flat[at] = mended
            left[:count] -= mended != held
        gaps[here] = sign * left
        here = here.compress(left > 0)


def _ones(bits: Bytes) -> NDArray[np.int32]:
    """How many bits of each row are 1; eight bytes at a time where rows allow it."""
    words = bits.view(np.uint64) if bits.shape[1] % 8 == 0 else bits
    return np.asarray(np.bitwise_count(words).sum(axis=1, dtype=np.int32))
