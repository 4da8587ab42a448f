"""Conversions between measures, checked in ninety digits.

The reference is the definition itself: ln delta at one order, minimised over orders by ternary search in Decimal.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from cloister.privacy.conversion import (
    delta_of_renyi,
    delta_of_rho,
    epsilon_of_renyi,
    epsilon_of_rho,
    rho_of_epsilon,
    rho_within,
)
from cloister.privacy.number import rational

RHOS = ["1e-15", "1e-6", "0.001", "0.1", "1", "40", "1e6"]
DELTAS = ["1e-300", "1e-12", "1e-6", "0.01", "0.5"]
EPSILONS = ["1e-6", "0.01", "1", "10", "1e4"]


def decimal(value):
    return Decimal(value.numerator) / Decimal(value.denominator)


def log_delta(rho, epsilon, t):
    """Canonne, Kamath & Steinke 2020, Prop. 12, at order 1 + e^t, as printed there."""
    less_one = t.exp()
    order = 1 + less_one
    return less_one * (order * rho - epsilon) - less_one.ln() + order * (less_one / order).ln()


def true_log_delta(rho, epsilon):
    """Its minimum over orders, which falls and then rises."""
    low, high = Decimal(-25), Decimal(45)
    for _ in range(75):
        third = (high - low) / 3
        if log_delta(rho, epsilon, low + third) < log_delta(rho, epsilon, high - third):
            high -= third
        else:
            low += third
    return log_delta(rho, epsilon, (low + high) / 2)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("rho", RHOS)
def test_a_reported_epsilon_is_true_and_nearly_the_smallest(rho, delta):
    r, d = rational(rho), rational(delta)
    found = epsilon_of_rho(r, d)
    with localcontext(prec=90):
        goal = decimal(d).ln()
        assert true_log_delta(decimal(r), decimal(found)) <= goal
        if found > 0:
            assert true_log_delta(decimal(r), decimal(found) * (1 - Decimal("1e-9"))) > goal


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_reported_rho_fits_and_is_nearly_the_largest(epsilon, delta):
    e, d = rational(epsilon), rational(delta)
    found = rho_within(e, d)
    assert found > 0
    with localcontext(prec=90):
        goal = decimal(d).ln()
        assert true_log_delta(decimal(found), decimal(e)) <= goal
        assert true_log_delta(decimal(found) * (1 + Decimal("1e-9")), decimal(e)) > goal
    assert epsilon_of_rho(found, d) <= e * (1 + Fraction(1, 10**10))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("rho", RHOS)
def test_a_reported_delta_is_true_and_nearly_the_smallest(rho, epsilon):
    r, e = rational(rho), rational(epsilon)
    found = delta_of_rho(r, e)
    assert 0 < found <= 1
    with localcontext(prec=90):
        truth = true_log_delta(decimal(r), decimal(e))
        assert decimal(found).ln() >= min(truth, Decimal(0))
        if Fraction(1, 10**300) < found < 1:
            assert decimal(found).ln() <= truth + Decimal("1e-9")


def test_more_rho_costs_more_and_more_delta_costs_less():
    grid = [[epsilon_of_rho(rational(r), rational(d)) for d in DELTAS] for r in RHOS]
    assert all(row == sorted(row, reverse=True) for row in grid)
    assert all(list(column) == sorted(column) for column in zip(*grid, strict=True))


def test_the_classical_conversion_is_never_better():
    for r in RHOS:
        for d in DELTAS:
            classical = float(r) + 2 * math.sqrt(-float(r) * math.log(float(d)))
            assert float(epsilon_of_rho(rational(r), rational(d))) <= classical


@pytest.mark.parametrize(
    ("rho", "delta"), [("1e-900", "1e-900"), ("1e900", "1e-900"), ("1e900", "0.5"), ("1e-900", "0.5")]
)
def test_numbers_beyond_all_floats_are_converted_too(rho, delta):
    r, d = rational(rho), rational(delta)
    assert 0 <= epsilon_of_rho(r, d) <= r + 10**10 * max(r, 1)
    assert 0 < delta_of_rho(r, Fraction(1)) <= 1
    assert rho_within(r, d) >= 0


def test_no_loss_needs_no_epsilon():
    assert epsilon_of_rho(Fraction(0), Fraction(1, 10**6)) == 0
    assert delta_of_rho(Fraction(0), Fraction(1)) == 0


def test_a_delta_large_enough_pays_for_a_small_rho_alone():
    # rho-zCDP is within total variation sqrt(rho/2) (Pinsker), so at delta 1/2 nothing else is needed.
    assert epsilon_of_rho(Fraction(1, 1000), Fraction(1, 2)) == 0


def test_a_pure_epsilon_is_half_its_square():
    assert rho_of_epsilon(Fraction(1, 10)) == Fraction(1, 200)


@pytest.mark.parametrize(
    "order", [Fraction(9, 8), Fraction(2), Fraction(10**6 - 1), Fraction(10**6), Fraction(10**40)], ids=float
)
def test_one_order_gives_a_true_epsilon_and_delta(order):
    divergence, delta = Fraction(1, 3), Fraction(1, 10**6)
    with localcontext(prec=120):
        alpha, one = decimal(order), Decimal(1)
        slack = (alpha - 1) * (one - one / alpha).ln() - alpha.ln()
        truth = max(decimal(divergence) + (slack - decimal(delta).ln()) / (alpha - 1), Decimal(0))
        found = decimal(epsilon_of_renyi(order, divergence, delta))
        assert truth <= found <= truth * (1 + Decimal("1e-11"))
        back = (alpha - 1) * decimal(divergence - 1) + slack
        assert decimal(delta_of_renyi(order, divergence, Fraction(1))).ln() >= back
