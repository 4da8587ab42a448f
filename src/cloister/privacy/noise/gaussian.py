"""Discrete Gaussian noise.

Canonne, Kamath & Steinke 2020, algorithm 3, over whole arrays: a discrete Laplace draw of scale t = floor(sigma) + 1
is kept with probability e^(-z²/(2 sigma²)), z = |draw| - sigma²/t. The exponent is bounded from both sides in int64.
Many draws of one large scale are made by tiles (`gaussian_tiles.py`), which is thirty times as fast.
"""

from typing import Any

import numpy as np

from cloister.privacy.noise import draws
from cloister.privacy.noise.bernoulli_exp import below_exp
from cloister.privacy.noise.draws import Bools, Index, Integers, Whole, draw, pick, read, redraw
from cloister.privacy.noise.gaussian_exponent import SLACK, exponent, exponent_facts
from cloister.privacy.noise.gaussian_tiles import tiles_for
from cloister.privacy.noise.laplace import propose_laplace
from cloister.privacy.noise.source import SYSTEM, Size, Source

__all__ = ["discrete_gaussian"]

_LIMIT = 2**55  # so that the Laplace draws stay within int64
_MANY = 2**14  # from so many draws on, tiles are worth making


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
    asked = read(sigma, size, "sigma", 0)
    if asked.lone and asked.count >= _MANY and (tiles := tiles_for(asked.p, asked.q)) is not None:
        return tiles.draw(asked.count, source or SYSTEM).reshape(asked.shape)
    return draw(asked, source or SYSTEM, draws.gaussian, _gaussian_array, _LIMIT)


def _gaussian_array(p: Whole, q: Whole, count: int, source: Source) -> Integers:
    facts = exponent_facts(p, q) if isinstance(p, int) and isinstance(q, int) else _facts_of_each(p, q)

    def propose(index: Index, m: int) -> tuple[Integers, Bools]:
        scale, shift, centre, divisor = (pick(fact, index) for fact in facts)
        drawn, accepted = propose_laplace(scale, 1, m, source)
        whole, part = exponent(np.abs(drawn), shift, centre, divisor)

        def exact(i: int) -> tuple[int, int]:
            a, b, t = _at(pick(p, index), i) ** 2, _at(pick(q, index), i) ** 2, _at(scale, i)
            return (abs(int(drawn[i])) * t * b - a) ** 2, 2 * a * b * t * t

        accepted &= below_exp(whole, part, SLACK, exact, source)
        return drawn, accepted

    return redraw(count, propose)


def _facts_of_each(p: Whole, q: Whole) -> tuple[Integers, ...]:
    each = [exponent_facts(a, b) for a, b in zip(np.atleast_1d(p).tolist(), np.atleast_1d(q).tolist(), strict=True)]
    return tuple(np.array(each, dtype=np.int64).T)


def _at(value: Whole, i: int) -> int:
    return value if isinstance(value, int) else int(value[i])
