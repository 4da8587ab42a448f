"""Exact numbers: what callers write, and logarithms that err on a chosen side."""

import math
import random
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers

from cloister.privacy.errors import BadNumber
from cloister.privacy.number import (
    exp_down,
    exp_up,
    limits_text,
    log_down,
    log_up,
    lower_text,
    number_text,
    percent_limits,
    places_for,
    rational,
    rounded_down,
    rounded_up,
    show,
    sqrt_up,
    upper_text,
)

PRECISE = Context(prec=90)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (1, Fraction(1)),
        ("0.1", Fraction(1, 10)),
        (" 1/3 ", Fraction(1, 3)),
        ("1e-6", Fraction(1, 10**6)),
        (Decimal("0.30"), Fraction(3, 10)),
        (0.1, Fraction(1, 10)),
        (1e-300, Fraction(1, 10**300)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (np.int64(7), Fraction(7)),
        (-2.5, Fraction(-5, 2)),
    ],
)
def test_a_number_is_what_the_caller_wrote(written, meant):
    assert rational(written) == meant


def test_ten_float_tenths_make_one():
    assert sum(rational(0.1) for _ in range(10)) == 1


@pytest.mark.parametrize(
    "bad",
    [
        float("nan"), float("inf"), -math.inf, Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), np.float64("nan"),
        "", "one", "1/0", "0x10", "1e", "nan", "inf", True, np.True_, None, [1], b"1", 1j, np.timedelta64(5, "s"),
    ],
)  # fmt: skip
def test_what_is_no_finite_number_is_refused_by_name(bad):
    with pytest.raises(BadNumber, match=r"^CLO-101: spend must be"):
        rational(bad, "spend")


@pytest.mark.parametrize(
    "absurd",
    [
        "1e999999999",
        "1e-999999999",
        Decimal("1e999999"),
        1 << 20_000,
        Fraction(1, 10**5000),
        "9" * 3000,
        "1e" + "9" * 900,
    ],
    ids=["large", "small", "decimal", "integer", "fraction", "digits", "exponent"],
)
def test_an_absurdly_long_number_is_refused_at_once(absurd):
    with pytest.raises(BadNumber, match="at most 1000 digits"):
        rational(absurd)


@pytest.mark.parametrize("value", [Fraction(1, 3), Fraction(2, 3) * 10**40, Fraction(1, 7 * 10**200), Fraction(-5, 7)])
@pytest.mark.parametrize("digits", [1, 6, 12])
def test_rounding_goes_outward_by_less_than_a_unit_in_the_last_digit(value, digits):
    down, up = rounded_down(value, digits), rounded_up(value, digits)
    assert down < value < up
    assert up - down <= abs(value) * Fraction(10) ** (1 - digits)


def test_a_short_decimal_is_not_moved_by_rounding():
    assert rounded_up(Fraction(1, 10)) == rounded_down(Fraction(1, 10)) == Fraction(1, 10)
    assert rounded_up(Fraction(0)) == 0


@pytest.mark.parametrize(
    "value", [Fraction(1, 10**900), Fraction(1, 3), 1 - Fraction(1, 10**30), 1 + Fraction(1, 10**30), Fraction(10**900)]
)
def test_logarithms_enclose_the_truth(value):
    truth = Fraction(PRECISE.ln(PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator))))
    assert log_down(value) < truth < log_up(value)
    assert log_up(value) - log_down(value) < Fraction(1, 10**39)


@pytest.mark.parametrize("value", [Fraction(-700), Fraction(-1, 10**20), Fraction(1, 3), Fraction(700), Fraction(0)])
def test_powers_enclose_the_truth(value):
    truth = Fraction(PRECISE.exp(PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator))))
    assert exp_down(value) < truth < exp_up(value)
    assert exp_up(value) - exp_down(value) < truth / 10**39


def test_powers_far_below_one_stay_short_and_on_their_side():
    assert exp_down(Fraction(-(10**9))) == 0
    assert 0 < exp_up(Fraction(-(10**9))) < Fraction(1, 10**400)


@pytest.mark.parametrize("value", [Fraction(2), Fraction(1, 10**300), Fraction(10**300), Fraction(4)])
def test_a_root_squares_to_at_least_the_number(value):
    assert value <= sqrt_up(value) ** 2 <= value * (1 + Fraction(1, 10**38))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(1), "1"),
        (Fraction(-3, 10), "-0.3"),
        (Fraction(1, 10**6), "1e-06"),
        (Fraction(10**12), "1e+12"),
        (Fraction(1, 3), "≈0.333333"),
        (Fraction(123456789, 10**4), "≈12345.7"),
        (Fraction(1, 10**400), "1e-400"),
        (Fraction(10**400, 3), "≈3.33333e+399"),
    ],
)
def test_a_number_is_shown_exactly_or_marked(value, text):
    assert show(value) == text


# Printed limits


def intervals():
    """Intervals of all sizes, around numbers of all sizes."""
    chance = random.Random("intervals")
    for _ in range(3000):
        centre = chance.uniform(-1, 1) * 10 ** chance.uniform(-320, 300)
        half = chance.choice([abs(centre), 1.0]) * 10 ** chance.uniform(-18, 2)
        yield centre - half, centre + half


def read(text):
    return Decimal(text.replace(",", ""))


def test_a_printed_interval_holds_the_interval_and_is_not_much_wider():
    for low, high in intervals():
        places = places_for(low, high)
        below, above = map(read, limits_text(low, high, places))
        value = read(number_text((low + high) / 2, places))
        assert below <= Decimal(repr(low))
        assert above >= Decimal(repr(high))
        assert below <= value <= above
        width = Decimal(repr(high)) - Decimal(repr(low))
        assert float(above - below) <= float(width) * 1.11, (low, high)


@pytest.mark.parametrize("places", [0, 1, 5, 12, 13, 40])
def test_limits_are_rounded_outwards_whatever_the_number_of_decimals(places):
    for low, high in intervals():
        below, above = map(read, limits_text(low, high, places))
        assert below <= Decimal(repr(low)) <= Decimal(repr(high)) <= above


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (2.99807e-07, 3.00176e-07, ("0.00000029980", "0.00000030018")),
        (100.2, 146.1, ("100", "147")),
        (-0.004, 0.004, ("-0.0040", "0.0040")),
        (0.3, 0.3, ("0.3", "0.3")),
        (5.0, 5.0, ("5", "5")),
        (0.0, 0.0, ("0", "0")),
        (0, 12345, ("0", "12,345")),
        (2**60 + 1, 2**60 + 1, (f"{2**60 + 1:,}",) * 2),
        (1e-30, 2e-30, ("1e-30", "2e-30")),
        (5e-324, 5e-324, ("5e-324", "5e-324")),
        (-math.inf, math.inf, ("-inf", "inf")),
        (1.0, math.inf, ("1", "inf")),
        (np.float64(0.25), np.float64(0.5), ("0.25", "0.50")),
    ],
)
def test_limits_are_written_with_the_digits_that_count(low, high, texts):
    assert limits_text(low, high, places_for(low, high)) == texts


@given(floats(min_value=-1e9, max_value=1e9), integers(1, 6))
def test_a_printed_bound_is_never_inside_the_bound(value, digits):
    upper, lower = (float(text(value, digits).replace(",", "")) for text in (upper_text, lower_text))
    assert lower <= value <= upper
    assert upper - lower <= abs(value) * 10 ** (1 - digits) * (1 + 1e-9)


@given(floats(0, 1), floats(0, 1), integers(0, 3))
def test_printed_limits_of_a_share_hold_the_interval(first, second, places):
    low, high = sorted((first, second))
    lower, upper = (Fraction(text) for text in percent_limits(low, high, places))
    assert lower <= 100 * Fraction(repr(low))
    assert 100 * Fraction(repr(high)) <= upper
