"""All 2^64 words, shared out among reports: so many to each likely one, fewer to each other, and none left over.

Then one uniform word is one report, by one comparison and one division; every probability is a whole number of words,
and nothing is ever drawn twice.
"""

import math
from fractions import Fraction

from cloister.local.base.dyadic import WORD, exactly
from cloister.privacy.errors import BadProbability
from cloister.privacy.number import exp_down

__all__ = ["can_tile", "inside", "outside"]


def can_tile(likely: int, others: int) -> bool:
    """Whether likely·a + others·b = 2^64 has solutions of every size: if no odd number divides both."""
    shared = math.gcd(likely, others)
    return shared & (shared - 1) == 0


def outside(likely: int, others: int, amount: Fraction) -> Fraction:
    """The probability q of each other report, such that a likely one is at most e^epsilon times as probable.

    The least number of words b with (2^64 - others·b) / likely <= b e^epsilon, and from there upwards the first for
    which that division leaves no rest.

    Args:
        likely: how many reports are likely, whatever the value is.
        others: how many are not.
        amount: epsilon.
    """
    shared = math.gcd(likely, others)
    unit = likely // shared
    least = math.ceil(WORD / (others + likely * exp_down(amount)))
    rest = WORD // shared * pow(others // shared, -1, unit) % unit
    return Fraction(least + (rest - least) % unit, WORD)


def inside(likely: int, others: int, q: Fraction) -> Fraction:
    """The probability p of each likely report; refused if it is no whole number of words, or not above q."""
    p = (1 - others * exactly(q, "q")) / likely
    if p <= q or WORD % p.denominator:
        raise BadProbability(
            "q leaves the likely reports no larger probability that is a multiple of 2^-64. "
            "Use for_loss(), which finds one."
        )
    return p
