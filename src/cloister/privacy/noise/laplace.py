"""Geometric and discrete Laplace noise.

Canonne, Kamath & Steinke 2020, algorithm 2, over whole arrays: a value of scale p is p·quotient + remainder, whose
remainder is uniform, kept with probability e^(-remainder/p), and whose quotient is geometric with ratio 1/e.
"""

from typing import Any

import numpy as np

from cloister.privacy.noise import draws
from cloister.privacy.noise.bernoulli_exp import below_exp, split_ratio
from cloister.privacy.noise.draws import Bools, Integers, Toss, Whole, draw, exp_bounds, pick, read, redraw
from cloister.privacy.noise.source import SYSTEM, Size, Source, words
from cloister.privacy.noise.uniform import uniform_array

__all__ = ["discrete_laplace", "geometric", "propose_laplace"]

# With p below this, p·quotient stays within int64 for any quotient that 2^4 tosses in a row could give.
_LIMIT = 2**56

# floor(2^32 e^(-k)) for k = 24 … 1, ascending. The first is 0, so a toss of 0 is never decided by the table alone.
_QUOTIENTS = np.array([exp_bounds(k, 1, 96)[0] >> 64 for k in range(24, 0, -1)], dtype=np.uint32)


def geometric(scale: object, size: Size | None = None, source: Source | None = None) -> Any:
    """Draw integers k >= 0 with probability (1 - e^(-1/scale)) e^(-k/scale)."""
    return draw(read(scale, size, "scale", 0), source or SYSTEM, draws.geometric, _geometric_array, _LIMIT)


def discrete_laplace(scale: object, size: Size | None = None, source: Source | None = None) -> Any:
    """Draw integers k with probability proportional to e^(-|k|/scale).

    Args:
        scale: a positive int, str or Fraction (a float is taken by its shortest decimal form), or an array of them.
        size: a number of draws, or a shape; None gives one Python integer.
        source: the source of bits; the operating system, except in lessons and tests.

    Returns:
        int64, or an object array of Python integers if a value does not fit.

    Privacy: added to an integer statistic of L1 sensitivity D this is (D/scale)-differentially private.
        Audited in tests/statistical/test_mechanism_audits.py.

    >>> from cloister.privacy.noise import SeededSource
    >>> discrete_laplace("2.5", 4, SeededSource(1)).dtype
    dtype('int64')
    """
    return draw(read(scale, size, "scale", 0), source or SYSTEM, draws.laplace, _laplace_array, _LIMIT)


def _geometric_array(p: Whole, q: Whole, count: int, source: Source) -> Integers:
    return redraw(count, lambda index, m: _propose(pick(p, index), pick(q, index), m, source))


def _laplace_array(p: Whole, q: Whole, count: int, source: Source) -> Integers:
    return redraw(count, lambda index, m: propose_laplace(pick(p, index), pick(q, index), m, source))


def propose_laplace(p: Whole, q: Whole, m: int, source: Source) -> tuple[Integers, Bools]:
    """Return discrete Laplace draws of scale p/q, and a mask of those accepted."""
    size, accepted = _propose(p, q, m, source)
    negative = words(m, np.uint8, source) & np.uint8(1)
    accepted &= (size > 0) | (negative == 0)  # zero has one sign only
    return np.where(negative, -size, size), accepted


def _propose(p: Whole, q: Whole, m: int, source: Source) -> tuple[Integers, Bools]:
    """Return geometric draws of scale p/q, and a mask of those accepted."""
    remainder = uniform_array(p, m, source)
    whole, part = split_ratio(remainder, p)
    accepted = below_exp(whole, part, 8, lambda i: (int(remainder[i]), p if isinstance(p, int) else int(p[i])), source)
    return (remainder + p * _quotients(m, source)) // q, accepted


def _quotients(m: int, source: Source) -> Integers:
    """Draw geometric integers with ratio 1/e: the largest k with U < e^(-k)."""
    tossed = words(m, np.uint32, source)
    position = np.searchsorted(_QUOTIENTS, tossed, side="right")
    quotient = len(_QUOTIENTS) - position
    # A toss equal to a rounded threshold may be on either side of the true one.
    for i in np.flatnonzero(_QUOTIENTS[position - 1] == tossed).tolist():
        toss, k = Toss(source, int(tossed[i]), 32), 0
        while toss.below_exp(k + 1, 1):
            k += 1
        quotient[i] = k
    return quotient
