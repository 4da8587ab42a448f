r"""Discrete Gaussian noise of a large scale, many at a time: points under the curve, drawn tile by tile.

A point (k, U) that is uniform under the curve U < e^(-k²/(2 sigma²)) has a k of the right law. The plane is cut into
tiles, h = 2^s integers wide and 1/L high. Tiles that are wholly above the curve are never drawn; of tiles wholly below
it, which are 98 %, no U is needed:

    16 random bits ──► a tile ──► s random bits: k within it ──┬──► tile below the curve: accept
                                                               └──► tile cut by the curve: compare U with it, exactly

**The law.** There are 2^16 codes of equal probability. Each tile that reaches below the curve has one, one stands for
the tails, and the rest are rejected. A tile of level i gives each of its h integers with probability 2^-16/h, and
accepts k with probability P[(i + V)/L < e^(-k²/(2 sigma²))] for a uniform V. Summed over the levels of a column of
tiles this is 2^-16 (L/h) e^(-k²/(2 sigma²)): the top tile that has a code is not below the curve's highest point there.

The tails begin X integers from 0, in segments of w integers on both sides. Segment j has probability 2^-(j+1), each of
its 2w integers 2^-(j+2)/w, and k is accepted with probability e^(-k²/(2 sigma²)) / H_j, where H_j = 2^-(j+2) h/(L w) is
at least the curve's height in the segment: at X it is (checked when the tiles are made), and from one segment to the
next the curve falls by a factor of at least e^(-X w/sigma²) <= 1/2. So k has the same 2^-16 (L/h) e^(-k²/(2 sigma²)).

Bounds on the exponential are integers on both sides, as in `bernoulli_exp.py`; a U between them is drawn further.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.noise.bernoulli_exp import BITS, SHORT, exp_low
from cloister.privacy.noise.draws import Bools, Integers, exp_bounds
from cloister.privacy.noise.gaussian_exponent import SLACK, exponent, exponent_facts
from cloister.privacy.noise.source import Source, integer, words

__all__ = ["GaussianTiles", "tiles_for"]

_CODES = 2**16
_LEAST, _MOST = 2**10, 2**38  # scales for which 32 random bits are enough for an integer within a tile
_CUT = 2**10  # codes from here on: a tile cut by the curve, the tails, a rejection
_WORK = 64  # bits of the bounds by which tiles are sorted
_PIECE = 2**16  # draws that are made at once: their arrays stay in the processor's cache
_SPARE = 32  # one draw in so many is spare, to take the place of rejected ones


@dataclass(frozen=True, slots=True)
class GaussianTiles:
    """Tiles under the curve e^(-k²/(2 sigma²)).

    Attributes:
        p, q: sigma as a ratio.
        bits: s; a tile is 2^s integers wide.
        levels: L; a tile is 1/L high.
        ends: columns of tiles on each side; X = ends 2^s.
        codes: for each of 2^16 codes the column of a tile below the curve (negative on the left), or `_CUT` and more.
        cut_columns, cut_levels: the tiles that are cut by the curve.
        exponent: shift and divisor of `_exponent`.
    """

    p: int
    q: int
    bits: int
    levels: int
    ends: int
    codes: NDArray[np.int16]
    cut_columns: Integers
    cut_levels: Integers
    exponent: tuple[int, int]

    def draw(self, count: int, source: Source) -> Integers:
        """Draw integers k with probability proportional to e^(-k²/(2 sigma²)), exactly."""
        if count > _PIECE:
            parts = -(-count // _PIECE)
            ends = [count * part // parts for part in range(parts + 1)]
            drawn = np.empty(count, dtype=np.int64)
            for start, end in pairwise(ends):
                drawn[start:end] = self.draw(end - start, source)
            return drawn
        values, accepted = self._propose(count + count // _SPARE + 8, source)
        while True:
            rejected = np.flatnonzero(~accepted[:count])
            spare = values[count:][accepted[count:]][: len(rejected)]
            values[rejected[: len(spare)]] = spare
            if len(spare) == len(rejected):
                return values[:count]
            left = rejected[len(spare) :]
            more, good = self._propose(2 * len(left) + 8, source)
            accepted = np.ones(count + len(more), dtype=np.bool_)
            accepted[left], accepted[count:] = False, good
            values = np.concatenate([values[:count], more])

    def _propose(self, count: int, source: Source) -> tuple[Integers, Bools]:
        """Return points of random tiles, and a mask of those that are below the curve."""
        codes = self.codes[words(count, np.uint16, source)]
        within = words(count, np.uint32, source) >> np.uint32(32 - self.bits)
        values = codes.astype(np.int64)
        values <<= self.bits
        values += within
        accepted = codes < _CUT
        special = np.flatnonzero(~accepted)
        which = codes[special].astype(np.int64) - _CUT
        cut = which < len(self.cut_columns)
        places, which_cut = special[cut], which[cut]
        values[places] = (self.cut_columns[which_cut] << self.bits) + within[places]
        accepted[places] = self._below(values[places], self.cut_levels[which_cut], source)
        for place in special[which == len(self.cut_columns)].tolist():
            values[place], accepted[place] = self._tail(source)
        return values, accepted

    def _below(self, values: Integers, levels: Integers, source: Source) -> Bools:
        """Return True where U = (level + V)/L is below the curve, for a fresh uniform V each."""
        shift, divisor = self.exponent
        low = exp_low(*exponent(np.abs(values), shift, 0, divisor))
        drawn = (words(len(values), np.uint32, source) >> np.uint32(32 - BITS)).astype(np.int64)
        height = (levels << BITS) + drawn  # U is in [height, height + 1) / (L 2^31)
        below = height < (low - SLACK) * self.levels
        for i in np.flatnonzero((height < (low + SHORT) * self.levels) & ~below).tolist():
            below[i] = self._compare(int(values[i]), int(height[i]), self.levels, BITS, source)
        return np.asarray(below)

    def _compare(self, k: int, height: int, levels: int, bits: int, source: Source) -> bool:
        """Return True if a number U of which height = floor(U levels 2^bits) is known is below the curve at k."""
        p, q = (k * self.q) ** 2, 2 * self.p * self.p
        while True:
            low, high = exp_bounds(p, q, bits)
            if height < low * levels:
                return True
            if height >= high * levels:
                return False
            height, bits = (height << 64) | integer(64, source), bits + 64

    def _tail(self, source: Source) -> tuple[int, bool]:
        """Return a point of the tails, and True if it is below the curve."""
        wide, segment = _tail_bits(self.p, self.q, self.bits, self.ends), 0
        while not integer(1, source):
            segment += 1
        size = (self.ends << self.bits) + (segment << wide) + integer(wide, source)
        k = -1 - size if integer(1, source) else size
        # U = V H_j = V 2^-(segment + 2 + wide - bits) / L
        return k, self._compare(k, integer(64, source), self.levels << (segment + 2 + wide - self.bits), 64, source)


@lru_cache(maxsize=32)
def tiles_for(p: int, q: int) -> GaussianTiles | None:
    """Return the tiles for sigma = p/q; None if it is too small or too large for them."""
    if not _LEAST * q <= p <= _MOST * q:
        return None
    bits = (p // q).bit_length() - 7  # sigma is 64 to 128 columns
    ends = 19 * p // (4 * q << bits) + 1  # 4.75 sigma
    # 2^64 e^(-(column h)²/(2 sigma²)) from both sides, at the edges of columns.
    edges = [exp_bounds((column * q << bits) ** 2, 2 * p * p, _WORK) for column in range(ends + 1)]
    tops, floors = [min(high, 1 << _WORK) for _, high in edges[:-1]], [low for low, _ in edges[1:]]
    levels = _most_levels(tops)
    if edges[ends][1] * levels << (2 + _tail_bits(p, q, bits, ends) - bits) > 1 << _WORK:  # H_0 is below the curve
        return None
    below, above = [levels * floor >> _WORK for floor in floors], _heights(levels, tops)
    whole = np.concatenate([np.repeat(np.arange(ends), below), np.repeat(-1 - np.arange(ends), below)])
    cut = [
        (side, level)
        for column in range(ends)
        for level in range(below[column], above[column])
        for side in (column, -1 - column)
    ]
    codes = np.full(_CODES, _CUT + len(cut) + 1, dtype=np.int16)
    codes[: len(whole)] = whole
    codes[len(whole) : len(whole) + len(cut) + 1] = _CUT + np.arange(len(cut) + 1)
    columns, cut_levels = np.array(cut, dtype=np.int64).T.copy()
    _, shift, _, divisor = exponent_facts(p, q)
    return GaussianTiles(p, q, bits, levels, ends, codes, columns, cut_levels, (shift, divisor))


def _most_levels(tops: list[int]) -> int:
    """Return the largest number of levels whose tiles, and a code for the tails, have codes enough."""
    levels = 1
    for step in (2**bit for bit in range(12, -1, -1)):
        if 2 * sum(_heights(levels + step, tops)) < _CODES:
            levels += step
    return levels


def _heights(levels: int, tops: list[int]) -> list[int]:
    """Return for each column how many of its tiles reach below the curve."""
    return [-(-levels * top >> _WORK) for top in tops]


def _tail_bits(p: int, q: int, bits: int, ends: int) -> int:
    """Return the least number b of bits for which the curve falls to a half within 2^b integers of the tails."""
    b = bits
    while 1000 * (ends << bits << b) * q * q < 694 * p * p:  # X 2^b / sigma² >= ln 2
        b += 1
    return b
