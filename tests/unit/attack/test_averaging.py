"""Repeated answers wear the noise off at the rate the textbook says."""

import math

import numpy as np
import pytest

from cloister.attack.queries.averaging import average, noise_left
from cloister.privacy.errors import BadNumber, BadProbability, BadScale
from cloister.privacy.noise import SeededSource, discrete_laplace

FIVE = [2.915, 1.882, 1.292, 4.026, 5.346]


def test_five_answers_give_the_interval_of_the_sample_deviation() -> None:
    found = average(FIVE, confidence=0.9)
    assert found.mean == pytest.approx(3.092, abs=5e-4)
    assert found.interval == pytest.approx((1.534, 4.651), abs=1e-3)


def test_dividing_by_n_instead_of_n_minus_one_would_promise_too_much() -> None:
    narrow = average(FIVE).standard_error * math.sqrt(4 / 5)
    assert (3.092 - 2.1318 * narrow, 3.092 + 2.1318 * narrow) == pytest.approx((1.698, 4.486), abs=5e-3)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    runs, source = 4_000, SeededSource("coverage")
    answers = discrete_laplace(1_000, (runs, 10), source)
    covered = sum(low <= 0 <= high for low, high in (average(row, 0.9).interval for row in answers))
    # Student's interval is a little wide for Laplace tails; it must not be narrow.
    assert 0.88 < covered / runs < 0.94


@pytest.mark.parametrize("count", [1, 10, 100])
def test_the_noise_that_is_left_falls_with_the_root_of_the_number_of_answers(count: int) -> None:
    source = SeededSource(f"left {count}")
    means = discrete_laplace(1_000, (20_000, count), source).mean(axis=1)
    assert means.std() == pytest.approx(noise_left(1_000, count), rel=0.04)


def test_a_hundred_answers_at_the_whole_budget_each_find_the_count() -> None:
    answers = 6_460 + discrete_laplace(10, 100, SeededSource("hundred"))
    found = average(answers, 0.99)
    assert found.interval[0] < 6_460 < found.interval[1]
    assert abs(found.mean - 6_460) < 3 * noise_left(10, 100)


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(BadNumber):
        average([1.0])
    with pytest.raises(BadNumber):
        average([1.0, np.nan])
    with pytest.raises(BadProbability):
        average(FIVE, 1)
    with pytest.raises(BadScale):
        noise_left(0, 3)
    with pytest.raises(BadNumber):
        noise_left(1, 0)
