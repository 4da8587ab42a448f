"""Exact numbers: rationals from any input; logarithms, powers, roots and printed limits rounded to a chosen side."""

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

from cloister.privacy.errors import BadNumber

__all__ = [
    "Number",
    "exp_down",
    "exp_up",
    "limits_text",
    "log_down",
    "log_up",
    "lower_text",
    "number_text",
    "percent_limits",
    "places_for",
    "rational",
    "rounded_down",
    "rounded_up",
    "show",
    "sqrt_up",
    "upper_text",
]

Number = int | str | Decimal | Fraction | float

_LONG = Context(prec=800)  # a double has at most 767 digits
_MOST_PLACES = 12

# Longer numbers are refused: '1e999999999' would fill the memory.
_MOST_DIGITS = 1_000
_MOST_BITS = math.ceil(_MOST_DIGITS * math.log2(10))

# Decimal's ln, exp and sqrt are correctly rounded at 50 digits. For |ln x| and |x| up to 1e5 the errors (argument and
# result) stay below 1e-44, so an outward guard of 1e-40 covers them ten thousand times.
_PRECISE = Context(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN)
_GUARD = Fraction(1, 10**40)
# Below e^-1000 a power is small enough; its exact digits would only be long.
_DEEPEST = Fraction(-1000)


def rational(value: object, name: str = "number") -> Fraction:
    """Return the exact rational that the caller means.

    A float is taken by its shortest decimal form, so that ten times 0.1 is one.

    >>> rational(0.1), rational("1/3"), rational(2)
    (Fraction(1, 10), Fraction(1, 3), Fraction(2, 1))
    """
    if isinstance(value, np.floating):
        value = str(value)  # the shortest form of its own precision: float32(0.1) is 0.1 too
    elif isinstance(value, np.integer) and value.dtype.kind in "iu":  # in numpy, durations are integers
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal | Fraction | float):
        raise BadNumber(f"{name} must be an int, str, Decimal, Fraction or float, got a {type(value).__name__}.")
    try:
        if _is_too_long(value):
            raise ValueError
        return Fraction(float.__repr__(value) if isinstance(value, float) else value)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise BadNumber(
            f"{name} must be a finite number of at most {_MOST_DIGITS} digits, got {_glimpse(value)}. "
            "Write it like 1, '0.1' or '1/3'."
        ) from None


def _is_too_long(value: Number) -> bool:
    """Return True if the exact value would be too long; decided before it is built."""
    if isinstance(value, str):
        exponent = value.lower().partition("e")[2]
        return len(value) > 2 * _MOST_DIGITS + 10 or (exponent != "" and abs(int(exponent)) > _MOST_DIGITS)
    if isinstance(value, Decimal):
        digits = len(value.as_tuple().digits)
        return value.is_finite() and max(digits, abs(value.adjusted())) > _MOST_DIGITS
    if isinstance(value, float):
        return False
    return max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS


def _glimpse(value: object) -> str:
    try:
        return f"{value!r:.40}"
    except ValueError:  # Python refuses to print integers of more than 4,300 digits
        return "one too long to print"


def rounded_up(value: float | Fraction, digits: int = 12) -> Fraction:
    """Round up to a decimal of about this many significant digits (never fewer)."""
    return _rounded(Fraction(value), digits, math.ceil)


def rounded_down(value: float | Fraction, digits: int = 12) -> Fraction:
    """Round down to a decimal of about this many significant digits (never fewer)."""
    return _rounded(Fraction(value), digits, math.floor)


def _rounded(value: Fraction, digits: int, to_integer: Callable[[Fraction], int]) -> Fraction:
    if value == 0:
        return value
    # The decimal exponent is off by one at most, which only decides whether one digit more is kept.
    exponent = math.floor((value.numerator.bit_length() - value.denominator.bit_length()) * 0.30103)
    unit = Fraction(10) ** (exponent - digits)
    return to_integer(value / unit) * unit


def log_up(value: Fraction) -> Fraction:
    """Return ln(value), rounded up by at most 1e-39."""
    return Fraction(_PRECISE.ln(_decimal(value))) + _GUARD


def log_down(value: Fraction) -> Fraction:
    """Return ln(value), rounded down by at most 1e-39."""
    return Fraction(_PRECISE.ln(_decimal(value))) - _GUARD


def exp_up(value: Fraction) -> Fraction:
    """Return e^value, rounded up, for values above -1000 by at most 1e-39 of itself."""
    return Fraction(_PRECISE.exp(_decimal(max(value, _DEEPEST)))) * (1 + _GUARD)


def exp_down(value: Fraction) -> Fraction:
    """Return e^value, rounded down, for values above -1000 by at most 1e-39 of itself."""
    return Fraction(_PRECISE.exp(_decimal(value))) * (1 - _GUARD) if value >= _DEEPEST else Fraction(0)


def sqrt_up(value: Fraction) -> Fraction:
    """Return the square root, rounded up by at most 1e-39 of itself."""
    return Fraction(_PRECISE.sqrt(_decimal(value))) * (1 + _GUARD)


def _decimal(value: Fraction) -> Decimal:
    return _PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator))


def show(value: Fraction, digits: int = 6) -> str:
    """Format a rational for display: exact if it is a short decimal, otherwise rounded and marked.

    >>> show(Fraction(1, 10)), show(Fraction(1, 10**6)), show(Fraction(1, 3))
    ('0.1', '1e-06', '≈0.333333')
    """
    exact = _as_decimal(value)
    if exact is not None and len(exact) <= digits + 3 and (value == 0 or abs(value) >= Fraction(1, 10**4)):
        return exact
    # Beyond the floats' range, decimals print the same number.
    near = float(value) if 1e-300 < abs(value) < 1e300 else _decimal(value)
    short = f"{near:.{digits}g}"
    return short if Fraction(short) == value else f"≈{short}"


def places_for(low: float, high: float) -> int:
    """Return the number of decimals that shows an interval with two digits of its width; if it has none, all digits."""
    width = high - low
    if width > 0:
        return max(0, math.ceil(math.log10(20) - math.log10(width))) if math.isfinite(width) else 0
    exponent = _as_written(low).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def limits_text(low: float, high: float, places: int) -> tuple[str, str]:
    """Format the limits of an interval, the lower rounded down and the upper up: what is printed holds the interval.

    >>> limits_text(0.1299, 0.1301, 2), limits_text(-0.4, 0.4, 0)
    (('0.12', '0.14'), ('-1', '1'))
    """
    return number_text(low, places, ROUND_FLOOR), number_text(high, places, ROUND_CEILING)


def percent_limits(low: float, high: float, places: int) -> tuple[str, str]:
    """Format the limits of a share in percent, without the sign; rounded outwards.

    >>> percent_limits(0.07, 0.1201, 0)
    ('7', '13')
    """
    lower, upper = (_as_written(limit) * 100 for limit in (low, high))
    return number_text(lower, places, ROUND_FLOOR), number_text(upper, places, ROUND_CEILING)


def upper_text(value: float, digits: int = 3) -> str:
    """Format an upper bound with this many digits, rounded up.

    >>> upper_text(0.12341), upper_text(2.5, 1), upper_text(1.5e-9, 1)
    ('0.124', '3', '2e-09')
    """
    return _side(value, digits, ROUND_CEILING)


def lower_text(value: float, digits: int = 3) -> str:
    """Format a lower bound with this many digits, rounded down."""
    return _side(value, digits, ROUND_FLOOR)


def _side(value: float, digits: int, rounding: str) -> str:
    number = _as_written(value)
    rounded = Context(prec=digits, rounding=rounding).plus(number) if number.is_finite() else number
    return f"{float(rounded):,.{digits}g}"


def number_text(value: float | Decimal, places: int, rounding: str = ROUND_HALF_UP) -> str:
    """Format a number with this many decimals; with an exponent if there would be more than twelve."""
    number = _as_written(value)
    if not number.is_finite():
        return f"{value:f}"
    rounded = number.quantize(Decimal(1).scaleb(-places), rounding, _LONG)
    rounded = rounded.copy_abs() if rounded.is_zero() else rounded  # no -0
    return f"{rounded:,f}" if places <= _MOST_PLACES else f"{rounded.normalize(_LONG):e}"


def _as_written(value: float | Decimal) -> Decimal:
    """Return a number as Python writes it: 0.3 is not less than 0.3."""
    return Decimal(value) if isinstance(value, int | Decimal) else Decimal(repr(float(value)))


def _as_decimal(value: Fraction) -> str | None:
    """Return the finite decimal expansion, or None if it has more than 30 places."""
    for places in range(31):
        scaled = value * 10**places
        if scaled.denominator == 1:
            whole, rest = divmod(abs(scaled.numerator), 10**places)
            sign = "-" if value < 0 else ""
            return f"{sign}{whole}.{rest:0{places}d}" if places else f"{sign}{whole}"
    return None


# Roots, logarithms and exponentials at 60 digits, for the parameters of mechanisms.

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
    root = math.isqrt(n * d << 2 * shift)  # sqrt(n/d) = sqrt(n d)/d
    return Fraction(root, d << shift), Fraction(root + 1, d << shift)


def short_above(scale: Fraction) -> Fraction:
    """Return a scale that samples quickly: unchanged if its terms are short, else rounded up in the twelfth digit."""
    return scale if max(scale.numerator, scale.denominator) < _SHORT else rounded_up(scale)
