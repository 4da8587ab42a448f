"""Scores: what each report says by itself adds up to what all reports say together."""

from typing import Any

import numpy as np
import pytest

from cloister import local
from cloister.local.analysis.scores import scores
from cloister.local.base.mean import estimate as estimate_mean
from cloister.local.mechanisms.padded import PaddedSample
from cloister.local.mechanisms.sets import OneOfSet, SetBits
from cloister.privacy.errors import BadInput
from cloister.privacy.noise import SeededSource

LOSS = local.epsilon("1.5")
CHOICES = {
    "RR": local.RandomisedResponse.for_loss(LOSS),
    "coins": local.RandomisedResponse.coins("0.6", "0.3"),
    "DE": local.DirectEncoding.for_loss(13, LOSS),
    "SUE": local.UnaryEncoding.symmetric(13, LOSS),
    "OUE": local.UnaryEncoding.optimised(13, LOSS),
    "THE": local.ThresholdEncoding.for_loss(13, LOSS),
    "SHE": local.HistogramEncoding.for_loss(13, LOSS),
    "OLH": local.LocalHashing.for_loss(13, LOSS),
    "OLH of many values": local.LocalHashing.for_loss(300, LOSS),
    "HR": local.HadamardResponse.for_loss(13, LOSS),
    "HR in blocks": local.HadamardResponse.for_loss(13, LOSS, blocks=4),
    "SS": local.SubsetSelection.for_loss(13, LOSS),
    "memoised": local.Memoised.direct(5, lifetime=local.epsilon(2), report=local.epsilon(1)),
    "memoised bits": local.Memoised.unary(5, lifetime=local.epsilon(2), report=local.epsilon(1)),
}
SETS = {
    "one of a set": OneOfSet.for_loss(10, 3, LOSS),
    "bits of a set": SetBits.for_loss(10, 3, LOSS),
    "padded hashing": PaddedSample.for_loss(30, 3, LOSS),
    "padded direct": PaddedSample(6, 2, local.DirectEncoding.for_loss(7, LOSS)),
    "padded bits": PaddedSample(6, 2, local.UnaryEncoding.optimised(7, LOSS)),
    "padded subset": PaddedSample(6, 2, local.SubsetSelection.for_loss(7, LOSS)),
}
NUMBERS = {
    "piecewise": local.Piecewise.for_loss(("-1/3", 5), LOSS),
    "Duchi": local.Duchi.for_loss((0, 5), LOSS),
    "hybrid": local.Hybrid.for_loss((0, 5), LOSS),
    "Laplace": local.LaplaceNumber.for_loss((0, 5), LOSS),
    "Duchi of three": local.DuchiVector.for_loss([(0, 1), (-5, 5), (2, 3)], LOSS),
}
SMALL = {
    "RR": local.RandomisedResponse.coins("0.6", "0.3"),
    "DE": local.DirectEncoding.for_loss(4, LOSS),
    "OUE": local.UnaryEncoding.optimised(4, LOSS),
    "THE": local.ThresholdEncoding.for_loss(4, LOSS),
    "OLH": local.LocalHashing.for_loss(7, LOSS),
    "HR": local.HadamardResponse.for_loss(5, LOSS, blocks=2),
    "SS": local.SubsetSelection.for_loss(5, LOSS, size=2),
    "memoised": local.Memoised.direct(4, lifetime=local.epsilon(2), report=local.epsilon(1)),
    "one of a set": OneOfSet.for_loss(4, 2, LOSS),
    "bits of a set": SetBits.for_loss(4, 2, LOSS),
    "padded": PaddedSample(4, 2, local.DirectEncoding.for_loss(5, LOSS)),
    "piecewise": local.Piecewise.for_loss((0, 5), LOSS, steps=5, shift=1),
    "square wave": local.SquareWave.for_loss((0, 5), LOSS),
    "Duchi": local.Duchi.for_loss((0, 5), LOSS, steps=5),
    "hybrid": local.Hybrid.for_loss((0, 5), LOSS, steps=5),
}


def sample(mechanism: Any, n: int = 700, seed: int = 1) -> local.Reports:
    if mechanism in SETS.values():
        values: Any = [set(range(place % 3)) for place in range(n)]
    elif mechanism in NUMBERS.values():
        sides = len(mechanism.ends)
        values = np.linspace(-1, 6, n * sides).reshape((n, sides) if sides > 1 else n)
    else:
        values = np.arange(n) % min(mechanism.domain, 5)
    reports: local.Reports = mechanism.perturb(values, SeededSource(seed))
    return reports


@pytest.mark.parametrize("mechanism", (CHOICES | SETS | NUMBERS).values(), ids=CHOICES | SETS | NUMBERS)
def test_the_mean_of_the_scores_is_the_raw_estimate(mechanism: Any) -> None:
    reports = sample(mechanism)
    found = mechanism.estimate(mechanism.aggregate(reports))
    raw = np.atleast_1d(found.mean) if mechanism in NUMBERS.values() else found.frequencies
    each = scores(mechanism, [row.tobytes() for row in mechanism.encode(reports)])
    assert each.shape == (700, len(raw))
    assert np.allclose(each.mean(axis=0), raw, rtol=1e-12, atol=1e-12)
    assert np.array_equal(each, scores(mechanism, reports))


@pytest.mark.parametrize("mechanism", SMALL.values(), ids=SMALL)
def test_every_score_is_unbiased_for_every_truth_by_its_exact_law(mechanism: Any) -> None:
    inputs = getattr(mechanism, "inputs", range(mechanism.domain))
    places = np.arange(mechanism.outputs, dtype=np.uint64)
    wire = places[:, None].view(np.uint8).reshape(-1, 8)[:, : mechanism.width]
    for value in inputs:
        law = np.array([float(chance) for chance in mechanism.law(value)])
        possible = law > 0  # a set of another size is no report
        expected = law[possible] @ scores(mechanism, np.ascontiguousarray(wire[possible]))
        if isinstance(mechanism, local.NumberMechanism):
            assert expected == pytest.approx([float(mechanism.low) + value], abs=1e-9)
        elif hasattr(mechanism, "most"):
            assert expected == pytest.approx([value >> a & 1 for a in range(mechanism.domain)], abs=1e-9)
        else:
            assert expected == pytest.approx(np.eye(mechanism.domain)[value], abs=1e-9)


def test_a_square_wave_has_an_unbiased_mean() -> None:
    wave = local.SquareWave.for_loss((0, 10), LOSS)
    ages = np.arange(6_000) % 11 * 0.7
    each = scores(wave, wave.perturb(ages, SeededSource(2)))
    points = np.floor(ages + 0.5)
    assert abs(each.mean() - points.mean()) < 4 * each.std() / 6_000**0.5


def test_malformed_reports_and_mechanisms_without_scores_are_refused_in_words() -> None:
    jobs = CHOICES["DE"]
    with pytest.raises(BadInput, match="1 of these reports"):
        scores(jobs, [b"\x01", b"\x63"])
    with pytest.raises(BadInput, match="another mechanism"):
        scores(jobs, sample(CHOICES["HR"]))
    for mechanism, values in (
        (local.CountMeanSketch.for_loss(13, LOSS, buckets=11, rows=4), [1, 2]),
        (local.SampledNumbers.for_loss([(0, 1)] * 4, LOSS), [[0.5] * 4]),
        (local.HeavyHitters.for_loss(LOSS, length=8, chunk=4), [1, 2]),
        (local.PairOrder.for_loss(3, LOSS), [[0, 1, 2]]),
    ):
        with pytest.raises(BadInput, match="scores"):
            scores(mechanism, mechanism.perturb(values))
    with pytest.raises(BadInput, match="Group the values"):
        scores(local.HadamardResponse.for_loss(1 << 27, LOSS), [b"\0\0\0\0"])


def test_scores_of_a_mean_agree_with_the_estimate_of_the_same_parts() -> None:
    hybrid: Any = NUMBERS["hybrid"]
    reports = sample(hybrid, 50)
    assert scores(hybrid, reports).mean() == pytest.approx(estimate_mean(hybrid, hybrid.aggregate(reports)).mean)


def test_a_question_asked_by_square_waves_has_a_mean_and_whole_distributions() -> None:
    age = local.Question("age", [local.SquareWave.for_loss((0, 20), local.epsilon(amount)) for amount in (1, 2)])
    truth = np.arange(4_000) % 5 + 3
    collection = local.Collection([age])
    for place, level in enumerate(age.offered):
        reports = age.at(level).perturb(truth[place::2], SeededSource(place))
        collection.count("age", level, [row.tobytes() for row in age.at(level).encode(reports)])
    found = collection.estimate("age")
    assert abs(found.raw.mean - 5) < 4 * found.raw.standard_error
    assert found.raw.standard_error < 0.5
    each = scores(age.at(2), reports)
    assert found.levels["2"].mean == pytest.approx(each.mean(), rel=1e-12)
    assert set(found.distributions) == {"1", "2"}
    assert found.distributions["2"].frequencies.sum() == pytest.approx(1)
    assert found.distributions["2"].mean == pytest.approx(5, abs=1)
    assert found.poisoning.up > found.poisoning.honest > 0
    assert [row["value"] for row in found.rows()] == ["mean"]
    assert "age: 4,000 reports" in str(found)
