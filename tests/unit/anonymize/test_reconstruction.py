import numpy as np
import pytest

from cloister.anonymize.operations.noise import Noise, perturb
from cloister.anonymize.operations.reconstruction import reconstruct, reconstruct_values
from cloister.privacy.errors import BadBounds, BadNumber

LAWS = [
    Noise("normal", 15),
    Noise("uniform", 30),
    Noise("laplace", 12),
    Noise("uniform", 0.5, "multiplicative"),
    Noise("lognormal", 0.3, "multiplicative"),
]


def two_humps(count):
    rng = np.random.default_rng(1)
    return np.concatenate([rng.normal(30, 5, count * 6 // 10), rng.normal(70, 5, count * 4 // 10)]).clip(1, 100)


@pytest.mark.parametrize("noise", LAWS, ids=str)
def test_the_distribution_behind_noise_is_reconstructed(noise):
    values = two_humps(20_000)
    noisy = perturb({"x": values}, "x", noise, random_state=2)
    estimate = reconstruct(noisy, "x", noise, bounds=(0, 100), bins=25)
    truth = np.histogram(values, estimate.edges)[0] / len(values)
    blurred = np.histogram(noisy.rows["x"].to_numpy(), estimate.edges)[0] / len(values)
    assert np.abs(estimate.probabilities - truth).sum() < 0.5 * np.abs(blurred - truth).sum()
    assert np.abs(estimate.cdf(estimate.edges) - np.concatenate([[0], truth.cumsum()])).max() < 0.06
    assert estimate.probabilities.sum() == pytest.approx(1)
    assert estimate.mean == pytest.approx(values.mean(), abs=1)
    assert estimate.deviation == pytest.approx(values.std(), rel=0.05)
    assert estimate.cdf(estimate.quantile(0.3)) == pytest.approx(0.3)


def test_a_round_is_bayes_rule_summed_over_the_noisy_values():
    noise, noisy = Noise("normal", 10), np.array([12.0, 38.0, 41.0, 77.0])
    estimate = reconstruct_values(noisy, noise, bounds=(0, 80), bins=800, most_rounds=1)
    grid = (np.arange(800) + 0.5) * 80 / 800
    densities = noise.distribution.pdf(noisy[:, None] - grid[None, :])
    expected = (densities / densities.sum(axis=1, keepdims=True)).mean(axis=0)
    assert estimate.rounds == 1
    assert np.abs(estimate.probabilities - expected).sum() < 0.02


def test_the_rounds_stop_when_the_noisy_values_are_explained():
    values = np.random.default_rng(3).uniform(0, 100, 5000)
    noise = Noise("normal", 2)
    noisy = noise.apply(values, np.random.default_rng(4))
    estimate = reconstruct_values(noisy, noise, bounds=(0, 100), bins=20)
    assert estimate.reason in ("fitted", "settled")
    assert estimate.rounds < 500
    assert reconstruct_values(noisy, noise, bounds=(0, 100), most_rounds=1, tolerance=1e-12).rounds <= 1


def test_nulls_are_left_out_and_wrong_options_refused():
    rows = {"x": [1.0, None, 3.0]}
    assert reconstruct(rows, "x", LAWS[0], bounds=(0, 5)).count == 2
    with pytest.raises(BadBounds):
        reconstruct(rows, "x", LAWS[0], bounds=(5, 0))
    with pytest.raises(BadNumber):
        reconstruct(rows, "x", LAWS[0], bounds=(0, 5), bins=1)
    with pytest.raises(BadNumber, match="no value"):
        reconstruct_values(np.array([np.nan]), LAWS[0], bounds=(0, 5))
