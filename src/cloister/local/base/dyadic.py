"""Probabilities that a device can toss exactly: multiples of a power of 1/2, rounded to the safe side.

A 64-bit word compared with an integer threshold is such a coin, and so is a chain of ANDs and ORs over random bits. No
word is discarded, so a report takes the same number of random bytes whatever the answer.
"""

import math
from fractions import Fraction

from cloister.privacy.errors import BadProbability
from cloister.privacy.number import Number, rational, show

__all__ = ["WORD", "above", "exactly", "threshold", "word_above"]

WORD = 1 << 64
# above() raises its value by at most epsilon times this share (and 1/1024), which costs less than 0.2 % of the epsilon;
# every further binary digit would cost a random bit for each bit sent.
_SHARE = Fraction(1, 1 << 12)


def word_above(value: Fraction) -> int:
    """Return the least integer n with n/2^64 not below the value."""
    return math.ceil(value * WORD)


def above(value: Fraction, amount: Fraction) -> Fraction:
    """Return the multiple of the largest power of 1/2 that is not below the value and barely above it.

    Args:
        value: a probability.
        amount: the epsilon it serves; a small one keeps more digits.
    """
    share, power = min(amount * _SHARE, Fraction(1, 1 << 10)), 0
    while True:
        rounded = Fraction(math.ceil(value * (1 << power)), 1 << power)
        if rounded <= value * (1 + share):
            return rounded
        power += 1


def exactly(value: Number, name: str) -> Fraction:
    """Return a probability strictly between 0 and 1 that a 64-bit word can toss exactly."""
    exact = rational(value, name)
    if not 0 < exact < 1:
        raise BadProbability(f"{name} must lie strictly between 0 and 1, got {show(exact)}.")
    if WORD % exact.denominator:
        raise BadProbability(
            f"{name} must be a multiple of 2^-64, so that a device can toss it exactly, got {show(exact)}. "
            "Use for_loss(), which rounds to the safe side."
        )
    return exact


def threshold(probability: Fraction) -> int:
    """Return the integer that a uniform 64-bit word is below with exactly this probability."""
    return int(probability * WORD)
