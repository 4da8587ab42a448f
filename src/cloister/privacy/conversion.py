"""Convert between privacy measures, always rounded conservatively.

Three measures: pure epsilon, rho of zero-concentrated privacy (zCDP), and (epsilon, delta).

    pure epsilon ──exact──► rho = epsilon²/2 ──numeric, rounded up──► (epsilon, delta)
                                      ▲──────numeric, rounded down───────┘

Bun & Steinke 2016, Prop. 1.4 for the first arrow; Canonne, Kamath & Steinke 2020, Prop. 12 for the second: a Rényi
divergence of at most D at one order alpha > 1 gives, for every epsilon,

    ln delta = (alpha-1)(D - epsilon) + s(alpha),     s(alpha) = (alpha-1) ln(1 - 1/alpha) - ln alpha.

zCDP is D = alpha·rho at every order, and **any** order gives a valid answer. So floats only search for a good order;
the answer at that order is then computed in rationals, with logarithms rounded outward. No float error affects a claim.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from cloister.privacy.number import exp_up, log_down, log_up, rounded_down, rounded_up

__all__ = [
    "delta_of_renyi",
    "delta_of_rho",
    "epsilon_of_renyi",
    "epsilon_of_rho",
    "rho_of_epsilon",
    "rho_within",
]

# No delta is reported below this, so that it stays a positive float.
_LEAST_DELTA = Fraction(1, 10**300)


def rho_of_epsilon(epsilon: Fraction) -> Fraction:
    """Return the rho that a pure epsilon implies: epsilon²/2, exactly."""
    return epsilon * epsilon / 2


def delta_of_rho(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return the smallest delta known for rho-zCDP at this epsilon, rounded up."""
    if rho == 0:
        return Fraction(0)
    log_rho, goal = _log(rho), float(min(epsilon, Fraction(10**300)))
    # The best order makes the derivative (2 alpha - 1) rho + ln(1 - 1/alpha) - epsilon vanish.
    order = _root(lambda t: 2 * _exp(t + log_rho) + _exp(log_rho) - math.log1p(_exp(-t)) - goal)
    return delta_of_renyi(order, order * rho, epsilon)


def epsilon_of_rho(rho: Fraction, delta: Fraction) -> Fraction:
    """Return the smallest epsilon known such that rho-zCDP implies (epsilon, delta), rounded up.

    >>> float(epsilon_of_rho(Fraction(1, 10), Fraction(1, 10**6)))
    2.141938928386
    """
    if rho == 0:
        return Fraction(0)
    log_rho, log_delta = _log(rho), _log(delta)
    # With the derivative zero, epsilon drops out: (alpha-1)² rho + ln alpha = -ln delta.
    order = _root(lambda t: _exp(2 * t + log_rho) + math.log1p(_exp(t)) + log_delta)
    return epsilon_of_renyi(order, order * rho, delta)


def rho_within(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest rho known such that rho-zCDP implies (epsilon, delta), rounded down.

    >>> float(rho_within(Fraction(1), Fraction(1, 10**6)))
    0.02435597035953...
    """
    log_delta, goal = _log(delta), float(min(epsilon, Fraction(10**300)))
    # Here rho drops out: (2 alpha - 1)(-ln delta - ln alpha)/(alpha-1)² + ln(1 - 1/alpha) = epsilon, falling in alpha.
    order = _root(
        lambda t: goal + math.log1p(_exp(-t)) + (2 * _exp(-t) + _exp(-2 * t)) * (log_delta + math.log1p(_exp(t)))
    )
    rho = (epsilon - (_slack(order) - log_down(delta)) / (order - 1)) / order
    return rounded_down(max(rho, Fraction(0)))


def epsilon_of_renyi(order: Fraction, divergence: Fraction, delta: Fraction) -> Fraction:
    """Return the epsilon that a Rényi divergence at one order > 1 implies at this delta, rounded up."""
    epsilon = divergence + (_slack(order) - log_down(delta)) / (order - 1)
    return rounded_up(max(epsilon, Fraction(0)))


def delta_of_renyi(order: Fraction, divergence: Fraction, epsilon: Fraction) -> Fraction:
    """Return the delta that a Rényi divergence at one order > 1 implies at this epsilon, rounded up."""
    log_delta = (order - 1) * (divergence - epsilon) + _slack(order)
    if log_delta >= 0:
        return Fraction(1)
    return max(rounded_up(exp_up(max(log_delta, Fraction(-700)))), _LEAST_DELTA)


@lru_cache(maxsize=1024)
def _slack(order: Fraction) -> Fraction:
    """Return s(alpha), rounded up."""
    if order < 10**6:
        return (order - 1) * log_up((order - 1) / order) - log_down(order)
    # ln(1 - x) <= -x - x²/2: at these orders this is closer than fifty digits of the left side.
    return -(order - 1) / order * (1 + 1 / (2 * order)) - log_down(order)


def _root(rising: Callable[[float], float]) -> Fraction:
    """Return the order 1 + e^t at which a rising function of t crosses zero, to float accuracy."""
    low, high = -50.0, 690.0
    for _ in range(64):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return 1 + Fraction(math.exp(high))


def _log(value: Fraction) -> float:
    return float(log_up(value))


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))
