"""Margins of sums of noise: compared with the exact law of the sum, computed term by term."""

from fractions import Fraction

import numpy as np
import pytest

from cloister.privacy.loss import epsilon, rho
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace
from cloister.privacy.mechanisms.discrete_gaussian import gaussian_at_least
from cloister.query.noise_sums import margins

REACH = 400
NOISE = [DiscreteGaussian.for_loss(1, rho(one)) for one in ("0.02", "0.5", "2", "6.4", "20", "200")]
NOISE += [DiscreteLaplace.for_loss(1, epsilon(one)) for one in ("0.5", "2", "4.3", "9", "40")]
BETAS = [
    Fraction(1, 3),
    Fraction(1, 40),
    Fraction(1, 2000),
    Fraction(1, 10**5),
    Fraction(1, 10**9),
    Fraction(1, 10**14),
]


def law(mechanism) -> np.ndarray:
    """The probability of each integer from -REACH to REACH."""
    k = np.arange(-REACH, REACH + 1.0)
    gaussian = isinstance(mechanism, DiscreteGaussian)
    size = float(mechanism.sigma if gaussian else mechanism.scale)
    weights = np.exp(-(k**2) / (2 * size * size) if gaussian else -np.abs(k) / size)
    return weights / weights.sum()


@pytest.mark.parametrize("mechanism", NOISE, ids=lambda one: f"{one.name} {one.loss}")
def test_no_margin_is_exceeded_more_often_than_stated(mechanism):
    terms = [1, 2, 5, 16]
    for beta in BETAS:
        found = margins(mechanism, (1.0,), np.array(terms)[:, None], beta)
        for n, margin in zip(terms, found, strict=True):
            exact = law(mechanism)
            for _ in range(n - 1):
                exact = np.convolve(exact, law(mechanism))
            at = np.arange(len(exact)) - len(exact) // 2
            assert exact[at > margin].sum() <= beta * (1 + 1e-9)
            if beta >= Fraction(1, 10**5):  # and it is the least whole number of steps
                assert exact[at > np.ceil(margin) - 1].sum() >= beta * (1 - 1e-3) or margin == 0


@pytest.mark.parametrize("mechanism", NOISE, ids=lambda one: f"{one.name} {one.loss}")
@pytest.mark.parametrize("q", [0, 0.1, 0.37, 0.5, 1])
def test_no_margin_of_a_weighted_sum_is_exceeded_more_often_than_stated(mechanism, q):
    one = law(mechanism)
    two = np.convolve(one, one)
    left, right = np.arange(len(two)) - len(two) // 2, np.arange(len(one)) - len(one) // 2
    value = (1 - q) * left[:, None] - q * right[None, :]  # two nodes below an edge and one above
    chance = two[:, None] * one[None, :]
    for beta in BETAS[:5]:
        (margin,) = margins(mechanism, (1 - q, q, 1.0), np.array([[2, 1, 0]]), beta)
        assert chance[value > margin + 2.0**-10].sum() <= beta * (1 + 1e-9)


def test_margins_of_large_noise_are_those_of_the_normal_law():
    """Of 16 counts of half a weight: twice sigma, and 1.96 of that; rounding up adds less than two per cent."""
    mechanism = DiscreteGaussian.for_loss(2**22, rho("0.1"))
    (margin,) = margins(mechanism, (0.5, 0.5), np.array([[8, 8]]), Fraction(1, 40))
    assert 1 <= margin / (1.959964 * 2 * float(mechanism.sigma)) < 1.02


def test_the_tail_of_large_gaussian_noise_is_an_upper_bound():
    k = np.arange(-50_000, 50_001, 50.0)
    near, far = gaussian_at_least(k, 2.0**14), gaussian_at_least(k, 2.0**14 + 1e-6)
    assert (near <= far * (1 + 1e-9)).all()
    assert (far - near).max() < 5e-5
