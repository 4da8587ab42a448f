"""Devices draw from the law that was verified, and estimates err as their closed forms say. Seeds are fixed."""

import gzip
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from cloister import local
from cloister.privacy.noise import SeededSource

pytestmark = pytest.mark.statistical

N = 200_000
ADULT = Path(__file__).parents[3] / "shared" / "data" / "adult" / "adult.data.gz"


def small(amount: str) -> dict[str, local.Oracle]:
    loss = local.epsilon(amount)
    return {
        "RR": local.RandomisedResponse.for_loss(loss),
        "DE": local.DirectEncoding.for_loss(7, loss),
        "SUE": local.UnaryEncoding.symmetric(5, loss),
        "OUE": local.UnaryEncoding.optimised(5, loss),
        "THE": local.ThresholdEncoding.for_loss(5, loss, theta="0.7"),
        "OLH": local.LocalHashing.for_loss(7, loss, buckets=3),
        "HR": local.HadamardResponse.for_loss(7, loss, blocks=1),
        "HR in blocks": local.HadamardResponse.for_loss(7, loss, blocks=2),
        "SS": local.SubsetSelection.for_loss(6, loss, size=2),
        "SS of three": local.SubsetSelection.for_loss(7, loss, size=3),
        "CMS": local.CountMeanSketch.for_loss(6, loss, buckets=3, rows=2),
        "HH": local.HeavyHitters(4, 2, 3, local.LocalHashing.for_loss(4, loss, buckets=3).lie, loss),
    }


def numbers(mechanism: local.Oracle, value: int) -> NDArray[np.int64]:
    """Reports on one value, as the numbers that the wire's bytes spell."""
    reports = mechanism.perturb(np.full(N, value), SeededSource(f"{mechanism.name} {value}"))
    wire = mechanism.encode(reports).astype(np.int64)
    return np.asarray((wire << (8 * np.arange(wire.shape[1]))).sum(axis=1))


def surprise(seen: NDArray[np.int64], law: Any) -> float:
    """The p-value of Pearson's test of reports against a law; a report of probability 0 is an outright miss."""
    chances = np.array([float(chance) for chance in law])
    counts = np.bincount(seen, minlength=len(chances))
    if counts[chances == 0].any():
        return 0.0
    possible = chances > 0
    expected = N * chances[possible]
    assert expected.min() > 5
    statistic = float(np.square(counts[possible] - expected).__truediv__(expected).sum())
    return float(chi2.sf(statistic, possible.sum() - 1))


@pytest.mark.parametrize("name", small("1"))
def test_reports_follow_the_verified_law_and_no_other(name: str) -> None:
    mechanism = small("1")[name]
    value = min(3, mechanism.domain - 1)
    seen = numbers(mechanism, value)
    assert surprise(seen, mechanism.law(value)) > 1e-7
    for other in ("0.9", "1.1"):
        assert surprise(seen, small(other)[name].law(value)) < 1e-7


@pytest.mark.parametrize("name", small("1"))
@pytest.mark.parametrize("value", [0, 1])
def test_the_first_values_follow_their_law_too(name: str, value: int) -> None:
    mechanism = small("1")[name]
    assert surprise(numbers(mechanism, value), mechanism.law(value)) > 1e-7


def test_histogram_noise_has_the_stated_variance_and_moves_by_one() -> None:
    she = local.HistogramEncoding.for_loss(6, local.epsilon(2))
    data = she.perturb(np.full(40_000, 2), SeededSource(5)).data
    assert np.allclose(data.mean(axis=0), np.eye(6)[2], atol=0.05)
    assert np.allclose(data.var(axis=0), she.variance(np.zeros(6), 1), rtol=0.06)


def zipf(domain: int, power: float, people: int) -> NDArray[np.int64]:
    """Values whose shares fall like 1/rank^power, as many as the shares say."""
    weights = 1.0 / np.arange(1, domain + 1) ** power
    counts = np.floor(people * weights / weights.sum()).astype(int)
    counts[0] += people - counts.sum()
    return np.repeat(np.arange(domain), counts)


@pytest.mark.parametrize("amount", ["0.5", "2"])
@pytest.mark.parametrize("name", ["DE", "SUE", "OUE", "THE", "SHE", "OLH", "HR", "SS", "CMS"])
def test_the_squared_error_is_that_of_the_closed_form(name: str, amount: str) -> None:
    domain, people, loss = 256, 500 if name == "SHE" else 5_000, local.epsilon(amount)
    mechanism: local.Oracle = {
        "DE": local.DirectEncoding.for_loss,
        "SUE": local.UnaryEncoding.symmetric,
        "OUE": local.UnaryEncoding.optimised,
        "THE": local.ThresholdEncoding.for_loss,
        "SHE": local.HistogramEncoding.for_loss,
        "OLH": local.LocalHashing.for_loss,
        "HR": local.HadamardResponse.for_loss,
        "SS": local.SubsetSelection.for_loss,
        "CMS": local.CountMeanSketch.for_loss,
    }[name](domain, loss)
    values = zipf(domain, 1.1, people)
    truth = np.bincount(values, minlength=domain) / people
    source, errors = SeededSource(11), []
    for run in range(20):
        if name == "CMS":  # its variance is over the choice of the table
            mechanism = local.CountMeanSketch.for_loss(domain, loss, salt=str(run))
        estimate = mechanism.estimate(mechanism.aggregate(mechanism.perturb(values, source)))
        errors.append(np.square(estimate.frequencies - truth))
    ratio = np.mean(errors) / mechanism.variance(truth, people).mean()
    # 5,120 squared errors: one standard deviation of their mean is 2 %; a scale 10 % off would be 20 % off here.
    assert ratio == pytest.approx(1, abs=0.09)


@pytest.mark.parametrize("name", ["RR", "DE", "OUE", "OLH", "HR", "HR in blocks", "SS"])
def test_intervals_hold_the_truth_as_often_as_they_say(name: str) -> None:
    mechanism = small("1")[name]
    truth = np.zeros(mechanism.domain)
    truth[:2] = 0.75, 0.25
    values = np.repeat([0, 1], [1500, 500])
    source, held = SeededSource(3), []
    for _ in range(400):
        low, high = mechanism.estimate(mechanism.aggregate(mechanism.perturb(values, source)), "0.9").interval
        held.append((low <= truth) & (truth <= high))
    assert np.mean(held, axis=0) == pytest.approx(0.9, abs=0.075)


@pytest.mark.parametrize("method", ["norm-sub", "simplex", "em"])
def test_projected_shares_err_three_times_less_than_raw_local_hashing_on_zipf(method: Any) -> None:
    values = zipf(1024, 1.1, 1_000_000)
    truth = np.bincount(values, minlength=1024) / values.size
    assert gain(values, truth, method) >= 3


@pytest.mark.skipif(not ADULT.exists(), reason="the Adult table is not on this machine")
def test_projected_shares_err_three_times_less_on_the_native_country_of_adult() -> None:
    with gzip.open(ADULT, "rt") as lines:
        countries = [line.split(",")[13].strip() for line in lines if line.strip()]
    names, values = np.unique(countries, return_inverse=True)
    gains = [gain(values, np.bincount(values) / values.size, "norm-sub", seed) for seed in range(20)]
    assert len(names) == 42
    assert np.mean(gains) >= 3


def gain(values: NDArray[Any], truth: NDArray[np.float64], method: Any, seed: int = 1) -> float:
    olh = local.LocalHashing.for_loss(truth.size, local.epsilon(1))
    raw = olh.estimate(olh.aggregate(olh.perturb(values, SeededSource(f"gain {seed}"))))
    better = raw.projected(method)
    return float(np.square(raw.frequencies - truth).sum() / np.square(better.frequencies - truth).sum())


def test_heavy_hitters_are_found_among_four_billion_values() -> None:
    people = 200_000
    ranks = zipf(5_000, 1.5, people)
    values = (ranks * 2_654_435_761 + 12_345) % 2**32
    heavy = local.HeavyHitters.for_loss(local.epsilon(4), chunk=8)
    found = heavy.estimate(heavy.aggregate(heavy.perturb(values, SeededSource(2))))
    assert found.values is not None
    best = (np.arange(8) * 2_654_435_761 + 12_345) % 2**32
    assert set(best[:6]) <= set(found.values[:8].tolist())
    truth = np.array([(ranks == rank).mean() for rank in range(6)])
    named = heavy.estimate(heavy.aggregate(heavy.perturb(values, SeededSource(2))), values=best[:6])
    assert (np.abs(named.frequencies - truth) < 5 * named.standard_error).all()


def test_noise_alone_names_no_heavy_hitter() -> None:
    values = np.arange(100_000) * 42_949 % 2**32
    heavy = local.HeavyHitters.for_loss(local.epsilon(2), chunk=8)
    found = heavy.estimate(heavy.aggregate(heavy.perturb(values, SeededSource(4))))
    assert found.values is not None
    assert found.values.size == 0


def test_a_subset_is_uniform_whatever_its_coins_were() -> None:
    subsets = local.SubsetSelection.for_loss(200, local.epsilon("0.5"))
    data = subsets.perturb(np.full(20_000, 77), SeededSource(9)).data
    ones = np.unpackbits(data, axis=1, bitorder="little")[:, :200].astype(np.int64)
    assert (ones.sum(axis=1) == subsets.size).all()
    others = np.delete(ones, 77, axis=1)
    q = float(subsets.q)
    assert np.abs(others.mean(axis=0) - q).max() < 5.5 * (q * (1 - q) / 20_000) ** 0.5
    assert abs(ones[:, 77].mean() - float(subsets.p)) < 5.5 * 0.5 / 20_000**0.5
    # Pairs come together as often as in a uniform set: neither the coins nor the mending tie places to one another.
    pair = (others[:, 0::2][:, :99] & others[:, 1::2][:, :99]).mean()
    size = subsets.size - float(subsets.p)
    assert pair == pytest.approx(size * (size - 1) / (199 * 198), rel=0.01)


def test_bits_come_up_with_exactly_their_dyadic_probability() -> None:
    from cloister.local.client.coins import bit_coins

    for chance in (Fraction(1, 2), Fraction(5, 16), Fraction(275, 1024), Fraction(1, 256)):
        ones = np.unpackbits(bit_coins(chance, 500_000, SeededSource(8))).mean()
        spread = (float(chance) * (1 - float(chance)) / 4_000_000) ** 0.5
        assert abs(ones - float(chance)) < 5.5 * spread
