"""Correlated noise: the stated sensitivity holds for every pattern, noise cancels in prefix sums, nothing is exact."""

import itertools
import math

import numpy as np
import pytest

from cloister.privacy.accountant.banded import BandedNoise, BandedRelease, band_weights, total_sensitivity
from cloister.privacy.accountant.planned import PlannedRelease, solve
from cloister.privacy.errors import BadNumber, OverBudget
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.noise import SeededSource

S = 2**30


def released(bands=4, count=12, coordinates=3, passes=2, spend=None):
    spend = spend or rho("0.5")
    weights = band_weights(bands)
    step = solve(
        spend, steps=1, rate=1, coordinates=coordinates * count, sensitivity=total_sensitivity(S, weights, passes)
    )
    return BandedRelease(PlannedRelease(((step, 1),), spend), weights, count)


def matrix(weights, count):
    return sum(weight * np.eye(count, k=-j) for j, weight in enumerate(weights))


@pytest.mark.parametrize("bands", range(2, 17))
def test_weights_fall_strictly_so_the_inverse_is_stable(bands):
    weights = band_weights(bands)
    assert all(first > then > 0 for first, then in itertools.pairwise(weights))
    inverse = np.linalg.inv(matrix(weights, 200) / weights[0])
    assert np.abs(inverse[:, 0]).max() <= 1
    assert np.abs(inverse[150:, 0]).max() < 0.01


@pytest.mark.parametrize(("bands", "parts", "passes"), [(2, 2, 3), (3, 5, 2), (4, 4, 3)])
def test_no_pattern_of_entries_and_directions_moves_the_sums_further(bands, parts, passes):
    weights, count = band_weights(bands), parts * passes
    whole, bound = matrix(weights, count), total_sensitivity(1000, weights, passes)
    reached = 0.0
    for place in range(parts):
        for signs in itertools.product((1, -1), repeat=passes):
            moved = np.zeros(count)
            moved[place::parts] = 1000 * np.array(signs)
            reached = max(reached, float(np.linalg.norm(whole @ moved)))
    assert reached <= bound
    assert reached > bound - 1  # a pattern with all entries' bands inside reaches it


@pytest.mark.parametrize("spend", [rho("0.5"), epsilon(1, delta="1e-5")], ids=str)
def test_the_price_is_that_of_one_gaussian_release_of_the_total_sensitivity(spend):
    made = released(spend=spend)
    step = made.plan.steps[0][0]
    assert step.sensitivity**2 >= 2 * sum(weight**2 for weight in made.weights) * S**2
    if spend.measure == "rho":
        assert step.sensitivity**2 / (2 * step.sigma**2) <= spend.amount
    assert made.loss == spend


def test_without_noise_the_sums_come_back(monkeypatch):
    monkeypatch.setattr(
        "cloister.privacy.accountant.banded.discrete_gaussian", lambda sigma, size, source: np.zeros(size, np.int64)
    )
    sums = [np.array([t, -t * S, 7], dtype=np.int64) for t in range(12)]
    found = released().release(lambda noise: [noise.release(one) for one in sums], SeededSource(1))
    for one, two in zip(sums, found, strict=True):
        np.testing.assert_allclose(two, one, atol=1e-3, rtol=1e-12)


def test_what_is_released_is_weighted_sums_with_fresh_noise():
    """Multiplied by C again, the results are the weighted sums and independent noise of the stated scale."""
    made = released(bands=5, count=40, coordinates=500)
    sums = np.arange(40 * 500).reshape(40, 500) * S // 1000
    found = np.array(made.release(lambda noise: [noise.release(one) for one in sums], SeededSource(2)))
    noise = matrix(made.weights, 40) @ (found - sums) / float(made.plan.steps[0][0].sigma)
    assert abs(noise.std() - 1) < 0.02
    assert np.abs(np.corrcoef(noise)[np.triu_indices(40, 1)]).max() < 0.25
    np.testing.assert_allclose(noise * float(made.plan.steps[0][0].sigma) % 1, 0, atol=1)


def test_prefix_sums_have_less_noise_than_with_independent_noise_of_the_same_price():
    count, passes, spend = 64, 2, rho("0.5")
    made = released(bands=16, count=count, coordinates=400, passes=passes, spend=spend)
    zeros = np.zeros(400, dtype=np.int64)
    found = np.array(made.release(lambda noise: [noise.release(zeros) for _ in range(count)], SeededSource(3)))
    correlated = np.cumsum(found, axis=0).std(axis=1).mean() / S
    alone = math.sqrt(passes / (2 * float(spend.amount)))  # sigma of each sum
    independent = (alone * np.sqrt(np.arange(1, count + 1))).mean()
    assert correlated < 0.6 * independent


def test_each_sum_is_released_once_in_its_shape():
    noise = BandedNoise((4, 2), 2, 3, 2**30, SeededSource(4))
    zeros = np.zeros(3, dtype=np.int64)
    for wrong in (np.zeros(4, dtype=np.int64), np.zeros(3)):
        with pytest.raises(OverBudget):
            noise.release(wrong)
    first, second = noise.release(zeros), noise.release(zeros)
    assert not np.array_equal(first, second)
    with pytest.raises(OverBudget):
        noise.release(zeros)
    with pytest.raises(OverBudget, match="checkpoint"):
        noise.skip(1)


@pytest.mark.parametrize("bands", [0, 1, 17, 2.0, True, "4"])
def test_other_numbers_of_bands_are_refused(bands):
    with pytest.raises(BadNumber, match="bands is a whole number"):
        band_weights(bands)
