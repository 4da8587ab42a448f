"""Arrays of coins that are True with probability e^(-x).

One uniform number of 31 bits is compared with a two-sided integer bound on e^(-x). About one toss in ten million
falls between the bounds; it is continued exactly as a `Toss`, from the bits already drawn.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.noise import draws
from cloister.privacy.noise.draws import Bools, Integers, Toss, Whole, draw, exp_bounds, pick, read
from cloister.privacy.noise.source import SYSTEM, Size, Source, words

__all__ = ["BITS", "SHORT", "bernoulli_exp", "below_exp", "coins", "exp_low", "split_ratio"]

BITS = 31
_ONE = 1 << BITS


def _table(step_bits: int, entries: int) -> Integers:
    """Return lower bounds of 2^31 e^(-i / 2^step_bits), each less than 2 below the exact value."""
    return np.array([exp_bounds(i, 1 << step_bits, 64)[0] >> (64 - BITS) for i in range(entries)], dtype=np.int64)


# e^(-23) < 2^(-31): from the 23rd on the lower bound is zero.
_WHOLE = np.append(_table(0, 23), 0)
_EIGHTHS = _table(8, 256)
_SIXTEENTHS = _table(16, 256)
# Three table entries (< 2 each), three products and the last linear step (< 1 each) make less than this many units.
SHORT = 10


def bernoulli_exp(x: object, size: Size | None = None, source: Source | None = None) -> Any:
    """Draw coins that are True with probability exactly e^(-x), for a rational x >= 0."""
    request = read(x, size, "x", 0, 2**4000)
    return draw(request, source or SYSTEM, draws.bernoulli_exp, _bernoulli_exp_array, 2**62)


def coins(p: NDArray[Any], q: int, source: Source) -> Bools:
    """Draw one coin of probability e^(-p/q) for each integer p of any size."""
    if p.dtype == np.int64 and q < 2**62:
        return _bernoulli_exp_array(p, q, len(p), source)
    return np.array([draws.bernoulli_exp(int(numerator), q, source) for numerator in p], dtype=bool)


def _bernoulli_exp_array(p: Whole, q: Whole, count: int, source: Source) -> Bools:
    whole, part = split_ratio(p, q)
    whole, part = np.broadcast_to(whole, count), np.broadcast_to(part, count)
    return below_exp(whole, part, 8, lambda i: (int(pick(p, i)), int(pick(q, i))), source)  # type: ignore[arg-type]


def split_ratio(p: Whole, q: Whole) -> tuple[Integers, Integers]:
    """Return p/q as whole part and 31 further bits, rounded down by less than 8 units. Integers below 2^62."""
    whole, rest = np.divmod(np.asarray(p, dtype=np.int64), q)
    # Shift both so that the divisor keeps about 31 bits: numerator down, divisor up, so the quotient is never above.
    shift = np.maximum(np.frexp(np.asarray(q, dtype=np.float64))[1] - (62 - BITS), 0).astype(np.int64)
    return whole, np.asarray(((rest >> shift) << BITS) // ((q >> shift) + (shift > 0)))


def below_exp(
    whole: Integers, part: Integers, slack: int, exact: Callable[[int], tuple[int, int]], source: Source
) -> Bools:
    """Return, for each x, True if a fresh uniform number is below e^(-x).

    Args:
        whole, part: x is in [whole + part/2^31, whole + (part + slack)/2^31).
        slack: largest excess of x over whole and part, in units of 2^-31.
        exact: the exact x at an index, as a ratio, for the few tosses that need it.
        source: the source of bits.
    """
    low = exp_low(whole, part)
    tossed = (words(len(low), np.uint32, source) >> np.uint32(1)).astype(np.int64)
    answer = tossed < low - slack
    unsure = np.flatnonzero((tossed < low + SHORT) & ~answer)
    for i in unsure.tolist():
        answer[i] = Toss(source, int(tossed[i]), BITS).below_exp(*exact(i))
    return np.asarray(answer)


def exp_low(whole: Integers, part: Integers) -> Integers:
    """Return lower bounds of 2^31 e^(-x) for x = whole + part/2^31, each less than `SHORT` below."""
    low = _WHOLE[np.minimum(whole, len(_WHOLE) - 1)]
    low = low * _EIGHTHS[part >> 23] >> BITS
    low = low * _SIXTEENTHS[(part >> 15) & 255] >> BITS
    return np.asarray(low * (_ONE - (part & 0x7FFF)) >> BITS)
