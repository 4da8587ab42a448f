"""Uniform integers, and coins of rational probability."""

from typing import Any

import numpy as np

from cloister.privacy.errors import BadScale
from cloister.privacy.noise import draws
from cloister.privacy.noise.draws import Bools, Index, Integers, Whole, draw, pick, read, redraw
from cloister.privacy.noise.source import SYSTEM, Size, Source, words

__all__ = ["bernoulli", "uniform", "uniform_array"]

_LIMIT = 2**62


def uniform(below: object, size: Size | None = None, source: Source | None = None) -> Any:
    """Draw uniform integers in [0, below).

    >>> from cloister.privacy.noise import SeededSource
    >>> bool(uniform(6, 1000, SeededSource(1)).max() == 5)
    True
    """
    request = read(below, size, "below", 1)
    if np.any(np.asarray(request.q) != 1):
        raise BadScale("below must be a whole number.")
    return draw(
        request,
        source or SYSTEM,
        lambda p, _q, s: draws.uniform(p, s),
        lambda p, _q, count, s: uniform_array(p, count, s),
        _LIMIT,
    )


def bernoulli(probability: object, size: Size | None = None, source: Source | None = None) -> Any:
    """Draw coins that are True with exactly the given rational probability."""
    request = read(probability, size, "probability", 0, 1)
    return draw(request, source or SYSTEM, draws.bernoulli, _bernoulli_array, _LIMIT)


def _bernoulli_array(p: Whole, q: Whole, count: int, source: Source) -> Bools:
    return np.asarray(uniform_array(q, count, source) < p)


def uniform_array(below: Whole, count: int, source: Source) -> Integers:
    """Draw uniform int64 in [0, below), below < 2^62."""

    def propose(index: Index, m: int) -> tuple[Integers, Bools]:
        n = pick(below, index)
        drawn = (words(m, np.uint64, source) >> np.uint64(1)).astype(np.int64)
        # The last, incomplete run of remainders below 2^63 would favour small ones: draw again there.
        fair = (2**63 - 1) // n * n
        return drawn % n, np.asarray(drawn < fair)

    return redraw(count, propose)
