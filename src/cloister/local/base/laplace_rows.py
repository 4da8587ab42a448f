"""Discrete Laplace noise on the device: for one person in an order that any language can reproduce.

One person's draws are made in sequence by `privacy.noise.draws.laplace`. For a scale p/q in lowest terms, each reads
random bytes in this order, all numbers little-endian:

    1. remainder   ceil(b/8) bytes, b the bits of p - 1, of which the highest b bits count; again while not below p
    2. coin        of probability e^(-remainder/p): no bytes if the remainder is 0, else a toss; if it fails, back to 1
    3. quotient    one toss U: the largest k with U < e^(-k)
    4. sign        1 byte, negative if its highest bit is 1; size = (remainder + p·quotient) div q; if that is 0 and
                   negative, back to 1

A toss reads 8 bytes as 64 binary places of a uniform number, and 8 more below them whenever the bounds of
`privacy.noise.draws.exp_bounds` at so many places do not decide. `laplace.mjs` does the same in JavaScript.

Several people's draws have the same law but use arrays: faster, and in a different order.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.noise import discrete_laplace
from cloister.privacy.noise.draws import laplace
from cloister.privacy.noise.source import Source

__all__ = ["laplace_rows"]


def laplace_rows(scale: Fraction, people: int, each: int, source: Source) -> NDArray[np.int64]:
    """Return one row a person of `each` integers k, with probability proportional to e^(-|k|/scale)."""
    if people == 1:
        drawn = [laplace(scale.numerator, scale.denominator, source) for _ in range(each)]
        return np.array([drawn], dtype=np.int64)
    return np.asarray(discrete_laplace(scale, (people, each), source), dtype=np.int64)
