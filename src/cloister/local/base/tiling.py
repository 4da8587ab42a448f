"""A partition of all 2^64 words among reports: equal shares for the likely ones, smaller ones for the others.

One uniform word then is one report, by one comparison and one division; every probability is an integer number of
words, none is left over, and nothing is redrawn.
"""

import math
from fractions import Fraction

from cloister.local.base.dyadic import WORD, exactly
from cloister.privacy.errors import BadProbability
from cloister.privacy.number import exp_down

__all__ = ["can_tile", "inside", "outside"]


def can_tile(likely: int, others: int) -> bool:
    """Return True if likely·a + others·b = 2^64 has solutions of every size: if no odd number divides both."""
    shared = math.gcd(likely, others)
    return shared & (shared - 1) == 0


def outside(likely: int, others: int, amount: Fraction) -> Fraction:
    """Return the probability q of each other report, such that a likely one is at most e^epsilon times as probable.

    It is the least number of words b with (2^64 - others·b) / likely <= b e^epsilon, or the next larger one for which
    that division leaves no remainder.

    Args:
        likely: the number of likely reports, for every value.
        others: the number of other reports.
        amount: epsilon.
    """
    shared = math.gcd(likely, others)
    unit = likely // shared
    least = math.ceil(WORD / (others + likely * exp_down(amount)))
    rest = WORD // shared * pow(others // shared, -1, unit) % unit
    return Fraction(least + (rest - least) % unit, WORD)


def inside(likely: int, others: int, q: Fraction) -> Fraction:
    """Return the probability p of each likely report. Refuse one that is no integer number of words, or not above q."""
    p = (1 - others * exactly(q, "q")) / likely
    if p <= q or WORD % p.denominator:
        raise BadProbability(
            "q leaves the likely reports no larger probability that is a multiple of 2^-64. "
            "Use for_loss(), which finds one."
        )
    return p
