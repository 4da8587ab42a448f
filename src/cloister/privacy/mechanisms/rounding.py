"""Roots, logarithms and exponentials of rationals, rounded conservatively."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

from cloister.privacy.number import rounded_down, rounded_up

__all__ = ["DIGITS", "decimal", "exp_decimal", "log_above", "ratio_within", "root_above", "root_below", "short_above"]

# Decimal's exp and ln are correctly rounded. e^r is transcendental for a rational r != 0, so it never equals a
# rational, and this many digits decide every comparison that can occur.
DIGITS = 60
# Ratios below this go through the samplers' int64 path.
_SHORT = 2**56


def decimal(value: Fraction) -> Decimal:
    """The rational to 60 digits (more if it is huge)."""
    with localcontext() as context:
        context.prec = DIGITS + len(str(value.numerator // value.denominator))
        return Decimal(value.numerator) / Decimal(value.denominator)


def exp_decimal(power: Fraction) -> Decimal:
    """Return e^power to 60 digits, capped at e^1000."""
    with localcontext() as context:
        context.prec = DIGITS
        return decimal(min(power, Fraction(1000))).exp()


def log_above(ratio: Fraction) -> Fraction:
    """Return the natural logarithm, rounded up."""
    with localcontext() as context:
        context.prec = DIGITS
        return rounded_up(Fraction(decimal(ratio).ln()))


def ratio_within(ratio: Fraction, epsilon: Fraction) -> bool:
    """Return True if ratio <= e^epsilon."""
    with localcontext() as context:
        context.prec = DIGITS
        return decimal(ratio).ln() <= decimal(epsilon)


def root_above(square: Fraction | int) -> Fraction:
    """Return the square root: exact if it is rational, otherwise rounded up in the twelfth digit.

    >>> root_above(Fraction(9, 4)), float(root_above(2))
    (Fraction(3, 2), 1.41421356237...)
    """
    below, above = _root(Fraction(square))
    return above if below == above else rounded_up(above)


def root_below(square: Fraction | int) -> Fraction:
    """Return the square root: exact if it is rational, otherwise rounded down in the twelfth digit."""
    below, above = _root(Fraction(square))
    return below if below == above else rounded_down(below)


def _root(square: Fraction) -> tuple[Fraction, Fraction]:
    """Return two rationals that enclose the root, less than 2^-100 of it apart."""
    n, d = square.numerator, square.denominator
    if math.isqrt(n) ** 2 == n and math.isqrt(d) ** 2 == d:
        return (exact := Fraction(math.isqrt(n), math.isqrt(d))), exact
    shift = max(0, 256 - (n * d).bit_length()) // 2
    whole = math.isqrt(n * d << 2 * shift)  # sqrt(n/d) = sqrt(n d)/d
    return Fraction(whole, d << shift), Fraction(whole + 1, d << shift)


def short_above(scale: Fraction) -> Fraction:
    """Return a scale that samples quickly: unchanged if its terms are short, else rounded up in the twelfth digit."""
    return scale if max(scale.numerator, scale.denominator) < _SHORT else rounded_up(scale)
