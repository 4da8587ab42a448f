"""The numbers that textbooks print, and those they should have printed."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from cloister.privacy.loss import epsilon
from cloister.privacy.mechanisms import DiscreteLaplace, Exponential, Laplace, NoisyMax, RandomisedResponse
from cloister.privacy.noise import SeededSource

pytestmark = pytest.mark.statistical

OVER_FIFTY = 6_460  # people older than 50 among the 32,561 rows of the UCI Adult training set
MARITAL = {  # all 48,842 rows of UCI Adult
    "Married-civ-spouse": 22_379,
    "Never-married": 16_117,
    "Divorced": 6_633,
    "Separated": 1_530,
    "Widowed": 1_518,
    "Married-spouse-absent": 628,
    "Married-AF-spouse": 37,
}
ALARM = 1e-6


@pytest.mark.parametrize(("amount", "spread"), [("0.1", 14.14), ("0.001", 1414.2)])
def test_a_count_of_people_over_fifty(amount: str, spread: float) -> None:
    made = DiscreteLaplace.for_loss(1, epsilon(amount))
    assert made.standard_error == pytest.approx(spread, rel=1e-3)
    drawn = made.release(np.full(20_000, OVER_FIFTY), SeededSource(1))
    assert drawn.std() == pytest.approx(spread, rel=0.03)
    assert drawn.mean() == pytest.approx(OVER_FIFTY, abs=5 * spread / math.sqrt(20_000))


def test_counts_of_neighbours_never_differ_by_more_than_epsilon() -> None:
    made = DiscreteLaplace.for_loss(1, epsilon("0.1"))
    at = np.arange(OVER_FIFTY - 500, OVER_FIFTY + 500)
    logs = [-np.abs(at - true) / float(made.scale) for true in (OVER_FIFTY, OVER_FIFTY - 1)]
    assert np.abs(logs[0] - logs[1]).max() == pytest.approx(0.1)


def test_an_age_histogram_has_one_noise_for_each_bin() -> None:
    bins = np.array(
        [5_570, 5_890, 6_048, 6_163, 3_967, 2_591, 1_595, 496, 174, 67]
    )  # a shape like Adult's; only the noise is tested
    made = DiscreteLaplace.for_loss(1, epsilon("0.01"))
    assert made.standard_error == pytest.approx(141.42, abs=0.01)
    drawn = made.release(np.tile(bins, (2_000, 1)), SeededSource(2)) - bins
    assert np.corrcoef(drawn.T) == pytest.approx(np.eye(10), abs=0.12)
    assert DiscreteLaplace.for_loss(2, epsilon("0.01", relation="replace-one")).scale == 200


def test_a_mean_salary_is_a_noisy_sum_of_clipped_rows_by_a_noisy_count() -> None:
    """Not the highest salary in the data: that is private. Bounds are public."""
    count, total = DiscreteLaplace.for_loss(1, epsilon("0.5")), Laplace.for_bounds(0, 500_000, epsilon("0.5"))
    assert count.standard_error == pytest.approx(2.8, abs=0.05)
    assert total.standard_error == pytest.approx(math.sqrt(2) * 1_000_000, rel=1e-6)
    by_mean = Laplace.for_bounds(0, 500_000, epsilon(1, relation="replace-one"))  # n public: (U - L)/n
    assert by_mean.standard_error / 103 == pytest.approx(math.sqrt(2) * 500_000 / 103, rel=1e-6)


def test_a_newcomers_salary_hides_in_the_noise() -> None:
    """Two releases of the mean, before and after Mallory joins, gave her 156,000 away when they were exact."""
    salaries = np.full(103, 55_000.0)
    with_mallory = np.append(salaries, 156_000.0)
    assert with_mallory.mean() * 104 - salaries.mean() * 103 == pytest.approx(156_000)
    made, source = Laplace.for_bounds(0, 500_000, epsilon(1)), SeededSource(3)
    sums = [made.grid.total(made.grid.encode(rows, 0, 500_000)) for rows in (with_mallory, salaries)]
    guesses = np.array([made.release(sums[0], source) - made.release(sums[1], source) for _ in range(1_000)])
    assert np.mean(np.abs(guesses - 156_000) > 156_000) > 0.5


def test_the_most_common_marital_status_as_printed() -> None:
    """Count/1000 with sensitivity 1 spends a thousandth of the epsilon that it states: safe, and an artefact."""
    scores = [Fraction(count, 1000) for count in MARITAL.values()]
    made = Exponential.for_loss(1, epsilon(1))
    law = made.probabilities(scores)
    assert law[:4] == pytest.approx([0.9577, 0.0418, 0.00036, 0.00003], abs=6e-5)
    source = SeededSource(4)
    seen = Counter(made.choose(scores, source) for _ in range(10_000))
    observed = [seen[0], seen[1], 10_000 - seen[0] - seen[1]]
    assert stats.chisquare(observed, np.array([law[0], law[1], law[2:].sum()]) * 10_000).pvalue > ALARM
    printed = [9_545, 450, 5]  # the book's own run is an ordinary draw from this law
    assert stats.chisquare(printed, np.array([law[0], law[1], law[2:].sum()]) * 10_000).pvalue > 0.01


def test_the_most_common_marital_status_done_right() -> None:
    for made, scores in (
        (Exponential.for_loss(1, epsilon(1), monotone=True), list(MARITAL.values())),
        (Exponential.for_loss("0.001", epsilon(1)), [Fraction(count, 1000) for count in MARITAL.values()]),
        (NoisyMax.for_loss(1, epsilon(1), monotone=True), list(MARITAL.values())),
    ):
        source = SeededSource(5)
        assert {made.choose(scores, source) for _ in range(200)} == {0}
        law = made.probabilities(scores)
        assert law[0] == pytest.approx(1)
        assert np.isfinite(law).all()


def test_symptoms_one_person_may_have_seven_of() -> None:
    patients = {
        "Alice": {"fever", "cough", "breath"},
        "Bob": {"fever", "cough", "breath", "headache", "diarrhea"},
        "Eve": {"fever", "cough", "fatigue", "sore throat"},
        "Mallory": {"fever", "breath", "fatigue", "sore throat", "diarrhea"},
    }
    symptoms = ["fever", "cough", "breath", "fatigue", "sore throat", "diarrhea", "headache"]  # public
    counts = [sum(one in had for had in patients.values()) for one in symptoms]
    assert counts == [4, 3, 3, 2, 2, 2, 1]
    # Any one count moves by one; the whole histogram by as many as one person may have.
    assert DiscreteLaplace.for_loss(len(symptoms), epsilon(1)).scale == 7
    assert NoisyMax.for_loss(1, epsilon(1), monotone=True).scale == 1
    assert NoisyMax.for_loss(1, epsilon(1)).scale == 2


def test_votes_for_a_sport() -> None:
    votes = [49, 25, 6, 2]
    assert Exponential.for_loss(1, epsilon(1)).probabilities(votes)[0] == pytest.approx(0.999994, abs=1e-6)
    law = Exponential.for_loss(1, epsilon("0.1")).probabilities(votes)
    assert law == pytest.approx([0.661, 0.199, 0.077, 0.063], abs=6e-4)
    source, made = SeededSource(6), Exponential.for_loss(1, epsilon("0.1"))
    seen = Counter(made.choose(votes, source) for _ in range(5_000))
    assert stats.chisquare([seen[i] for i in range(4)], law * 5_000).pvalue > ALARM


def test_ratings_as_proportions_tell_next_to_nothing() -> None:
    """Proportions with sensitivity 1 instead of 1/n: nearly uniform, yet the mode is still the likeliest."""
    shares = ["0.244160", "0.205170", "0.196178", "0.169985", "0.084515", "0.041652", "0.033478", "0.024861"]
    law = Exponential.for_loss(1, epsilon(1)).probabilities([Fraction(share) for share in shares])
    assert law[0] == law.max() == pytest.approx(0.1326, abs=5e-5)
    assert law[-1] == pytest.approx(0.1188, abs=5e-5)


def test_the_spread_of_sequential_releases() -> None:
    """F1, F2, F3 at 0.1, 0.2, 0.3, and the mean of the first two."""
    drawn = {}
    for amount, spread in (("0.1", 14.14), ("0.2", 7.07), ("0.3", 4.71)):
        made = DiscreteLaplace.for_loss(1, epsilon(amount))
        assert made.standard_error == pytest.approx(spread, rel=0.006)
        drawn[amount] = made.release(np.zeros(50_000, dtype=int), SeededSource(amount))
        assert drawn[amount].std() == pytest.approx(spread, rel=0.03)
    assert ((drawn["0.1"] + drawn["0.2"]) / 2).std() == pytest.approx(7.91, rel=0.03)
    assert epsilon("0.1") + epsilon("0.2") == epsilon("0.3")


@pytest.mark.parametrize(
    ("p", "amount"), [("0.5", math.log(3)), ("0.8", math.log(21)), ("0.25", math.log(1 + 1 / 0.75))]
)
def test_the_coin_of_randomised_response(p: str, amount: float) -> None:
    assert float(RandomisedResponse.coin(p).epsilon) == pytest.approx(amount, abs=1e-10)
    assert float(RandomisedResponse.coin(p).epsilon) >= amount


def test_a_survey_of_a_hundred_people_is_unbiased_after_correction() -> None:
    coin = RandomisedResponse.coin("1/2")
    people, surveys = np.arange(100) < 30, 100_000
    answers = coin.release(np.tile(people, (surveys, 1)), SeededSource(7))
    raw = answers.mean(axis=1)
    assert raw.mean() == pytest.approx(0.4, abs=0.001)  # three quarters true: pulled towards one half
    found = 2 * raw - 0.5
    stated = coin.estimate(answers[0])
    assert stated.value == pytest.approx(found[0])
    assert found.mean() == pytest.approx(0.3, abs=5 * stated.standard_error / math.sqrt(surveys))
    assert found.std() == pytest.approx(stated.standard_error, rel=0.02)


def test_uniform_noise_on_a_count_has_no_epsilon() -> None:
    """Noise 0 … 5 on counts n and n - 1: the top output is impossible for n - 1. It is (0, 1/6)-private, no better."""
    here = {7 + k: Fraction(1, 6) for k in range(6)}
    there = {6 + k: Fraction(1, 6) for k in range(6)}
    outputs = here.keys() | there.keys()
    assert any(here.get(one, 0) and not there.get(one, 0) for one in outputs)
    for e in (0, 1, 10):
        delta = sum(
            max(Fraction(0), here.get(one, Fraction(0)) - Fraction(math.exp(e)) * there.get(one, 0)) for one in outputs
        )
        assert delta == Fraction(1, 6)


def test_odds_for_groups() -> None:
    for size, bound in ((10, math.e), (1000, math.exp(100))):
        assert math.exp(epsilon("0.1").group(size).amount) == pytest.approx(bound)


def test_two_steps_of_removal_make_one_replacement() -> None:
    assert epsilon("0.1").as_replace_one() == epsilon("0.2", relation="replace-one")
