"""Mallory's salary between two averages: exact without noise, out of reach with it."""

import statistics
from fractions import Fraction

import pytest

from cloister.attack.queries.differencing import Mean, between, the_missing_one
from cloister.privacy.errors import BadNumber
from cloister.privacy.noise import Grid, SeededSource, discrete_laplace

JANUARY = [290_000, 250_000, 245_000, 240_000, 200_000] + [45_000] * 95
MALLORY = 156_000
FEBRUARY = [*JANUARY, MALLORY]
BOUNDS = (0, 500_000)


def test_two_exact_averages_give_mallorys_salary_away() -> None:
    before, after = (Mean(statistics.mean(salaries), len(salaries)) for salaries in (JANUARY, FEBRUARY))
    assert (before.value, after.value) == (55_000, 56_000)
    assert between(before, after) == MALLORY


def private_average(salaries: list[int], source: SeededSource) -> Mean:
    """A sum within public bounds at epsilon 1, over a head count that everybody knows."""
    grid = Grid(0)
    noise = discrete_laplace(grid.sensitivity(*BOUNDS), source=source)
    return Mean(Fraction(grid.total(grid.encode(salaries, *BOUNDS)) + noise, len(salaries)), len(salaries))


def test_two_private_averages_do_not() -> None:
    source, runs = SeededSource("mallory"), 400
    guesses = [between(private_average(JANUARY, source), private_average(FEBRUARY, source)) for _ in range(runs)]
    far_off = sum(abs(guess - MALLORY) > MALLORY for guess in guesses)
    # Two noises of scale b = 500,000: Pr[|error| > t] = (1 + t/2b) e^(-t/b) = 0.846. Six deviations are 0.108.
    assert 0.738 < far_off / runs < 0.954
    assert statistics.median(abs(guess - MALLORY) for guess in guesses) > 2 * MALLORY


def test_whoever_knows_all_salaries_but_one_knows_that_one_too() -> None:
    assert the_missing_one(Mean(6, 5), [4, 7, 6, "5.5"]) == Fraction("7.5")
    assert the_missing_one(Mean(6, 6), [4, 7, 6, "5.5", 6]) == Fraction("7.5")


def test_all_customers_minus_those_with_a_card_is_the_one_without() -> None:
    everybody, with_card = Mean("12.5", 8), Mean(11, 7)
    assert between(with_card, everybody) == 23


def test_an_average_of_nobody_and_a_wrong_number_of_colleagues_are_refused() -> None:
    with pytest.raises(BadNumber, match="at least one person"):
        between(Mean(1, 0), Mean(1, 1))
    with pytest.raises(BadNumber, match="all but one of 5"):
        the_missing_one(Mean(6, 5), [4, 7])
