"""Discrete Gaussian noise.

Canonne, Kamath & Steinke 2020, algorithm 3, over whole arrays: a discrete Laplace draw of scale t = floor(sigma) + 1
is kept with probability e^(-z²/(2 sigma²)), z = |draw| - sigma²/t. The exponent is bounded from both sides in int64.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from cloister.privacy.noise import draws
from cloister.privacy.noise.bernoulli_exp import below_exp
from cloister.privacy.noise.draws import Bools, Index, Integers, Whole, draw, pick, read, redraw
from cloister.privacy.noise.laplace import propose_laplace
from cloister.privacy.noise.source import SYSTEM, Size, Source

__all__ = ["discrete_gaussian"]

_LIMIT = 2**55  # so that the Laplace draws stay within int64
# Slack of the bound on the exponent, in units of 2^-31; see _exponent.
_SLACK = 4200


def discrete_gaussian(sigma: object, size: Size | None = None, source: Source | None = None) -> Any:
    """Draw integers k with probability proportional to e^(-k²/(2 sigma²)).

    Args:
        sigma: a positive int, str or Fraction (a float is taken by its shortest decimal form), or an array of them.
        size: a number of draws, or a shape; None gives one Python integer.
        source: the source of bits; the operating system, except in lessons and tests.

    Returns:
        int64, or an object array of Python integers if a value does not fit.

    Privacy: added to an integer statistic of L2 sensitivity D this is D²/(2 sigma²)-zCDP.
        Audited in tests/statistical/test_mechanism_audits.py.

    >>> from cloister.privacy.noise import SeededSource
    >>> discrete_gaussian("2.5", (2, 3), SeededSource(1)).shape
    (2, 3)
    """
    return draw(read(sigma, size, "sigma", 0), source or SYSTEM, draws.gaussian, _gaussian_array, _LIMIT)


def _gaussian_array(p: Whole, q: Whole, count: int, source: Source) -> Integers:
    facts = _facts(p, q) if isinstance(p, int) and isinstance(q, int) else _facts_of_each(p, q)

    def propose(index: Index, m: int) -> tuple[Integers, Bools]:
        scale, shift, centre, divisor = (pick(fact, index) for fact in facts)
        drawn, accepted = propose_laplace(scale, 1, m, source)
        whole, part = _exponent(np.abs(drawn), shift, centre, divisor)

        def exact(i: int) -> tuple[int, int]:
            a, b, t = _at(pick(p, index), i) ** 2, _at(pick(q, index), i) ** 2, _at(scale, i)
            return (abs(int(drawn[i])) * t * b - a) ** 2, 2 * a * b * t * t

        accepted &= below_exp(whole, part, _SLACK, exact, source)
        return drawn, accepted

    return redraw(count, propose)


@lru_cache(maxsize=1024)
def _facts(p: int, q: int) -> tuple[int, int, int, int]:
    """Return the constants that the rejection step needs of sigma = p/q.

    These are t; a shift k with 2^23 < sigma 2^k < 2^25; and, rounded down, the centre 2^k sigma²/t and the divisor
    2 sigma² 4^k, plus one (which is between 2^47 and 2^51).
    """
    scale = p // q + 1
    shift = 24 - p.bit_length() + q.bit_length()
    up, down = max(shift, 0), max(-shift, 0)
    centre = (p * p << up) // (q * q * scale << down)
    divisor = (2 * p * p << 2 * up) // (q * q << 2 * down) + 1
    return scale, shift, centre, divisor


def _facts_of_each(p: Whole, q: Whole) -> tuple[Integers, ...]:
    each = [_facts(a, b) for a, b in zip(np.atleast_1d(p).tolist(), np.atleast_1d(q).tolist(), strict=True)]
    return tuple(np.array(each, dtype=np.int64).T)


def _exponent(size: Integers, shift: Whole, centre: Whole, divisor: Whole) -> tuple[Integers, Integers]:
    """Return a lower bound of z²/(2 sigma²), as whole part and 31 bits.

    z 2^k is known to within 1, so the exact value is less than 4 (z 2^k)/divisor above: below 3,500 units of 2^-31
    wherever the exponent is at most 23; beyond that e^(-exponent) is less than one unit. Rounding the last division
    costs at most 40 units more.
    """
    up, down = np.clip(shift, 0, 31), np.maximum(np.negative(shift), 0)
    scaled = (np.minimum(size >> down, np.int64(1) << (31 - up))) << up
    z = np.clip(np.abs(scaled - centre) - 1, 0, 1 << 30)
    whole, rest = np.divmod(z * z, divisor)
    return whole, np.asarray((rest << 11) // ((divisor >> 20) + 1))


def _at(value: Whole, i: int) -> int:
    return value if isinstance(value, int) else int(value[i])
