"""What is drawn follows the law that is stated: the right one is accepted, one that is 10 % off is not."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from cloister.lessons.noise import Staircase, Vector
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.mechanisms import (
    AboveThreshold,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    KaryResponse,
    Laplace,
    NoisyMax,
    PermuteAndFlip,
    RandomisedResponse,
    TopK,
)
from cloister.privacy.noise import SeededSource

pytestmark = pytest.mark.statistical

ALARM = 1e-6
N = 200_000
REPLACE = {"relation": "replace-one"}


def fit(seen: Counter, law: dict[object, float]) -> float:
    """The p-value of a chi-square test; outcomes expected fewer than ten times are put together."""
    n = sum(seen.values())
    assert set(seen) <= set(law)
    common = [key for key in law if law[key] * n >= 10]
    observed = [seen[key] for key in common] + [n - sum(seen[key] for key in common)]
    expected = [law[key] * n for key in common] + [n - n * sum(law[key] for key in common)]
    if expected[-1] < 10:
        observed, expected = observed[:-1], np.array(expected[:-1]) * sum(observed[:-1]) / sum(expected[:-1])
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.parametrize(
    "make",
    [
        lambda factor: DiscreteLaplace.for_loss(2, epsilon(Fraction("0.4") / factor)),
        lambda factor: DiscreteGaussian.for_loss(3, rho(Fraction("0.05") / factor**2)),
        lambda factor: Laplace.for_bounds(0, 5, epsilon(1 / factor)),
        lambda factor: Gaussian.for_loss("0.7", rho(Fraction("0.5") / factor**2)),
        lambda factor: Staircase.for_loss(1 * factor, epsilon(1)),
    ],
)
def test_the_spread_and_the_coverage_are_as_stated(make: object) -> None:
    right, less, more = (make(Fraction(factor)) for factor in ("1", "0.9", "1.1"))
    zeros = np.zeros(N) if right.textbook else np.zeros(N, dtype=np.int64)
    noise = np.asarray(right.release(zeros, SeededSource(11)), dtype=float)
    for confidence in (0.5, 0.95, 0.999):
        covered = int((np.abs(noise) <= right.margin(confidence)).sum())
        assert stats.binomtest(covered, N, confidence, alternative="less").pvalue > ALARM  # at least as often as stated
    kurtosis = np.mean(noise**4) / np.mean(noise**2) ** 2
    error = np.sqrt((kurtosis - 1) / N) * right.variance
    off = {kind: abs(np.mean(noise**2) - kind.variance) / error for kind in (right, less, more)}
    assert off[right] < 5 < min(off[less], off[more])


def test_vector_noise_has_its_length_and_no_direction() -> None:
    made, source = Vector.for_loss(1, epsilon("0.5"), dimension=3), SeededSource(12)
    noise = np.array([made.release([0, 0, 0], source) for _ in range(20_000)])
    lengths = np.linalg.norm(noise, axis=1)
    assert stats.kstest(lengths, stats.gamma(3, scale=2).cdf).pvalue > ALARM
    assert stats.kstest(lengths, stats.gamma(3, scale=2.2).cdf).pvalue < ALARM
    assert stats.kstest(noise[:, 1] / lengths, stats.uniform(-1, 2).cdf).pvalue > ALARM  # Archimedes
    assert noise.var(axis=0) == pytest.approx(made.variance, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "more"),
    [(Exponential, {}), (PermuteAndFlip, {}), (NoisyMax, {}), (NoisyMax, {"noise": "geometric"}), (TopK, {"k": 2})],
)
def test_choices_come_as_often_as_stated(kind: type[Exponential], more: dict) -> None:
    scores, source = [7, 5, 5, 1], SeededSource(13)
    right, less, much = (kind.for_loss(1, epsilon(e), **more) for e in ("1", "0.7", "1.4"))
    drawn = (right.choose(scores, source) for _ in range(8_000))
    seen = Counter(tuple(one) if isinstance(one, list) else one for one in drawn)

    def law(mechanism: Exponential) -> dict[object, float]:
        found = mechanism.probabilities(scores)
        return found if isinstance(found, dict) else dict(enumerate(found.tolist()))

    assert fit(seen, law(right)) > ALARM
    assert fit(seen, law(less)) < ALARM
    assert fit(seen, law(much)) < ALARM


def test_transcripts_come_as_often_as_stated() -> None:
    answers, source = [1, 4, 2, 5], SeededSource(14)
    right, less, much = (AboveThreshold.for_loss(1, epsilon(e), threshold=3, positives=2) for e in ("3", "2.2", "4"))
    seen = Counter(tuple(right.release(answers, source)) for _ in range(12_000))
    assert fit(seen, right.probabilities(answers)) > ALARM
    assert fit(seen, less.probabilities(answers)) < ALARM
    assert fit(seen, much.probabilities(answers)) < ALARM


@pytest.mark.parametrize("truth", [0, 1])
def test_yes_and_no_come_as_often_as_stated(truth: int) -> None:
    right, less, more = (RandomisedResponse.for_loss(epsilon(e, **REPLACE)) for e in ("1", "0.9", "1.1"))
    seen = Counter(right.release(np.full(N, truth), SeededSource(15)).tolist())
    laws = [
        dict(zip((False, True), map(float, one.probabilities(bool(truth))), strict=True)) for one in (right, less, more)
    ]
    assert fit(seen, laws[0]) > ALARM > max(fit(seen, laws[1]), fit(seen, laws[2]))


def test_every_lie_is_as_likely_as_the_other() -> None:
    right, less, more = (KaryResponse.for_loss(5, epsilon(e, **REPLACE)) for e in ("1", "0.9", "1.1"))
    seen = Counter(right.release(np.full(N, 3), SeededSource(16)).tolist())
    laws = [dict(enumerate(map(float, one.probabilities(3)))) for one in (right, less, more)]
    assert fit(seen, laws[0]) > ALARM > max(fit(seen, laws[1]), fit(seen, laws[2]))


def test_estimates_are_unbiased_and_as_wide_as_stated() -> None:
    made, source = KaryResponse.for_loss(4, epsilon(1, **REPLACE)), SeededSource(17)
    people = np.repeat([0, 1, 2, 3], [500, 300, 150, 50])
    found = [made.estimate(made.release(people, source)) for _ in range(2_000)]
    values = np.array([one.value for one in found])
    stated = np.mean([one.standard_error for one in found], axis=0)
    assert np.abs(values.mean(axis=0) - [0.5, 0.3, 0.15, 0.05]).max() < 5 * stated.max() / np.sqrt(2_000)
    assert values.std(axis=0) == pytest.approx(stated, rel=0.08)


def test_symmetric_noise_is_independent_above_the_diagonal() -> None:
    made, source = DiscreteGaussian.for_loss(10, rho("0.5")), SeededSource(18)
    noise = np.array([made.release_symmetric(np.zeros((3, 3), dtype=int), source) for _ in range(4_000)])
    upper = noise[:, *np.triu_indices(3)].astype(float)
    assert np.cov(upper.T) == pytest.approx(np.eye(6) * 100, abs=12)
