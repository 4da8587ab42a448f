"""One-run audits: valid for true claims, and sharp for false ones."""

import math

import numpy as np
import pytest
from scipy import stats

from cloister import epsilon, rho
from cloister.attack.intervals import epsilon_of_shift
from cloister.attack.mechanisms.audit_one_run import (
    audit_one_run,
    epsilon_from_guesses,
    shift_from_guesses,
    shift_from_scores,
)
from cloister.privacy.errors import BadInput, BadLoss, BadNumber, BadProbability
from cloister.privacy.mechanisms import DiscreteGaussian, KaryResponse
from cloister.privacy.noise import SeededSource


def answered(amount, seed, canaries=1000, guesses=None, claim=None):
    """Audit randomised response of a known epsilon: the hardest mechanism there is."""
    law = KaryResponse.for_loss(2, epsilon(amount, relation="replace-one"))
    source = SeededSource(f"answers {seed}")
    return audit_one_run(
        lambda inside: np.array([law.release(int(one), source) for one in inside]), lambda model: model, canaries,
        claim or epsilon(amount), guesses=guesses, source=SeededSource(f"coins {seed}"),
    )  # fmt: skip


@pytest.mark.parametrize("amount", [1, 4])
def test_a_true_claim_survives_and_a_false_one_is_refuted(amount):
    assert sum(answered(amount, seed).broken for seed in range(20)) <= 3
    assert answered(amount, 0, claim=epsilon(amount / 4)).broken


@pytest.mark.parametrize(("amount", "least"), [(1, 0.5), (4, 2.2), (8, 4.0)])
def test_a_thousand_canaries_prove_much_of_the_loss(amount, least):
    bounds = [answered(amount, seed, guesses=800).lower_bound for seed in range(5)]
    assert least <= np.median(bounds) <= amount


def test_the_bound_without_delta_is_that_of_a_binomial():
    # All of r right: e^epsilon/(1 + e^epsilon) = 0.05^(1/r).
    chance = 0.05 ** (1 / 100)
    exact = math.log(chance / (1 - chance))
    assert math.isclose(epsilon_from_guesses(100, 100, 100, 0.0, 0.95), exact, rel_tol=1e-9)
    assert epsilon_from_guesses(50, 100, 100, 0.0, 0.95) == 0
    assert epsilon_from_guesses(100, 100, 1000, 1e-5, 0.95) < exact


def test_a_rho_is_audited_through_its_curve():
    law = DiscreteGaussian.for_loss(1, rho(2))
    draw = SeededSource("noise")

    def train(inside):
        return inside.astype(np.int64) + law.release(np.zeros(1000, dtype=np.int64), draw)

    true = audit_one_run(train, lambda model: model, 1000, rho(2), source=SeededSource(3))
    assert true.verdict == "holds"
    false = audit_one_run(train, lambda model: model, 1000, rho("0.02"), guesses=100, source=SeededSource(3))
    assert false.verdict == "broken"
    assert "of 100 guesses right, 1000 canaries" in str(false)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"canaries": 5}, BadNumber),
        ({"guesses": 1}, BadNumber),
        ({"confidence": 1}, BadProbability),
        ({"claim": 1}, BadLoss),
        ({"score": lambda model: [1.0]}, BadInput),
    ],
)
def test_wrong_arguments_are_refused(changed, error):
    told = {"train": lambda inside: inside, "score": lambda model: model, "canaries": 20, "claim": epsilon(1)}
    with pytest.raises(error):
        audit_one_run(**(told | changed))


def ideal_guesses(shift, guesses, draw, canaries=1000):
    """Right guesses of the best attacker on canaries that lie under Gaussian noise each by itself."""
    inside = draw.integers(0, 2, canaries).astype(bool)
    order = np.argsort(inside * shift + draw.normal(size=canaries))
    low, high = order[: guesses // 2], order[canaries - guesses // 2 :]
    return int((~inside[low]).sum() + inside[high].sum())


@pytest.mark.parametrize("shift", [0.25, 1.0, 2.0])
def test_the_bound_along_the_gaussian_curve_is_above_the_truth_no_more_often_than_stated(shift):
    draw, above = np.random.default_rng(7), 0
    for _ in range(300):
        above += shift_from_guesses(ideal_guesses(shift, 200, draw), 200, 1000, 0.8) > shift
    assert above <= stats.binom.isf(1e-6, 300, 0.2)


@pytest.mark.parametrize(("eps", "least"), [(4, 2.0), (8, 3.5)])
def test_the_gaussian_curve_shows_half_of_a_large_epsilon_with_a_thousand_canaries(eps, least):
    low, high = 1e-3, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of_shift(middle, 1e-5) < eps else (low, middle)
    draw = np.random.default_rng(11)
    shown = [
        epsilon_of_shift(shift_from_guesses(ideal_guesses(low, 100, draw), 100, 1000, 0.95), 1e-5) for _ in range(20)
    ]
    assert least <= np.median(shown) <= eps


@pytest.mark.parametrize("shift", [0.0, 0.25, 1.0, 3.0])
def test_the_bound_from_normal_scores_is_above_the_truth_no_more_often_than_stated(shift):
    draw, above = np.random.default_rng(17), 0
    for _ in range(2_000):
        inside = draw.integers(0, 2, 200).astype(bool)
        scores = inside * shift + draw.normal(size=200)
        above += shift_from_scores(scores[inside], scores[~inside], 0.9) > shift
    assert above <= stats.binom.isf(1e-6, 2_000, 0.1)


@pytest.mark.parametrize(("eps", "least"), [(1, 0.4), (4, 2.0), (8, 3.5)])
def test_normal_scores_of_a_thousand_canaries_show_most_of_epsilon(eps, least):
    low, high = 1e-3, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of_shift(middle, 1e-5) < eps else (low, middle)
    draw, source = np.random.default_rng(19), SeededSource("normal scores")
    noisy = lambda inside: inside * low + draw.normal(size=1000)  # noqa: E731
    claim = epsilon(eps, delta="1e-5")
    found = [
        audit_one_run(noisy, lambda model: model, 1000, claim, family="normal scores", source=source)
        for _ in range(100)
    ]
    assert least <= np.median([one.lower_bound for one in found]) <= eps
    assert sum(one.broken for one in found) <= stats.binom.isf(1e-6, 100, 0.05)


@pytest.mark.parametrize(("canaries", "shift"), [(10, 0.0), (10, 2.0), (12, 1.0)])
def test_the_bound_from_a_few_normal_scores_is_above_the_truth_no_more_often_than_stated(canaries, shift):
    draw, above = np.random.default_rng(23), 0
    inside = np.arange(canaries) < canaries // 2
    for _ in range(20_000):
        scores = inside * shift + draw.normal(size=canaries)
        above += shift_from_scores(scores[inside], scores[~inside], 0.95) > shift
    assert above <= stats.binom.isf(1e-6, 20_000, 0.05)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_normal_scores_are_finite(wrong):
    for where in range(2):
        sides = [[1.0, 2.0, 3.0], [0.0, 1.0, 0.5]]
        sides[where][0] = wrong
        with pytest.raises(BadInput, match="finite"):
            shift_from_scores(*sides, 0.95)


def test_scores_without_noise_show_everything_or_nothing():
    assert shift_from_scores([1, 1], [0, 0], 0.95) == math.inf
    assert shift_from_scores([0, 0], [0, 0], 0.95) == shift_from_scores([0, 0], [1, 1], 0.95) == 0
    assert shift_from_scores([5], [0, 1], 0.95) == 0  # one score has no variance


def test_the_family_is_named_or_refused():
    draw = np.random.default_rng(3)
    noisy = lambda inside: inside * 3.0 + draw.normal(size=len(inside))  # noqa: E731
    found = audit_one_run(noisy, lambda model: model, 500, epsilon(2, delta="1e-5"), family="gaussian", guesses=100)
    assert found.broken
    assert not audit_one_run(noisy, lambda model: model, 500, epsilon(30, delta="1e-5"), family="gaussian").broken
    assert found.finding("noise").broken
    with pytest.raises(BadInput, match="family"):
        audit_one_run(noisy, lambda model: model, 500, epsilon(2), family="laplace")


def test_no_guess_that_is_wrong_refutes_no_shift():
    assert shift_from_guesses(50, 100, 1000, 0.95) == 0
    assert shift_from_guesses(100, 100, 1000, 0.95) > 1
