"""Devices draw from the law that was verified, and estimates err as their closed forms say. Seeds are fixed."""

import gzip
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chi2

from cloister import local
from cloister.local.base.counts import Counts
from cloister.local.base.intervals import mixed, spread_of
from cloister.local.base.mean import uneven
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
    from cloister.local.base.coins import bit_coins

    for chance in (Fraction(1, 2), Fraction(5, 16), Fraction(275, 1024), Fraction(1, 256)):
        ones = np.unpackbits(bit_coins(chance, 500_000, SeededSource(8))).mean()
        spread = (float(chance) * (1 - float(chance)) / 4_000_000) ** 0.5
        assert abs(ones - float(chance)) < 5.5 * spread


# How often intervals hold: for few people too, for rare values, and at any epsilon.

EPSILONS = ["0.1", "1", "3", "5", "8", "12"]


def pure(amount: str) -> list[local.Oracle]:
    """Every mechanism whose reports support a value with probability p if it is the answer, and with q if not."""
    loss = local.epsilon(amount)
    half = local.epsilon(Fraction(amount) / 2)
    return [
        local.RandomisedResponse.for_loss(loss),
        local.RandomisedResponse.coins("0.9", "0.2"),
        local.DirectEncoding.for_loss(14, loss),
        local.UnaryEncoding.symmetric(10, loss),
        local.UnaryEncoding.optimised(10, loss),
        local.ThresholdEncoding.for_loss(10, loss),
        local.LocalHashing.for_loss(50, loss),
        local.SubsetSelection.for_loss(20, loss),
        local.HadamardResponse.for_loss(10, loss, blocks=1),
        local.OneOfSet.for_loss(10, 3, loss),
        local.SetBits.for_loss(10, 3, loss),
        local.PaddedSample.for_loss(10, 3, loss),
        local.Memoised.direct(5, lifetime=loss, report=half),
        local.Memoised.unary(5, lifetime=loss, report=half),
    ]


def supports(p: float, q: float, n: int, people: int) -> NDArray[np.float64]:
    """The law of the count of support of a value that so many of n have."""
    own, other = (binom.pmf(np.arange(k + 1), k, chance) for k, chance in ((people, p), (n - people, q)))
    return np.convolve(own, other)


def coverages(mechanism: local.Oracle, n: int, confidence: str) -> dict[int, float]:
    """The exact chance that the interval of a share holds it, for several numbers of people who have the value."""
    p, q = float(mechanism.p), float(mechanism.q)
    counts = np.arange(n + 1)
    shares = (counts / n - q) / (p - q)
    many = np.zeros(getattr(mechanism, "outputs", 1) if isinstance(mechanism, local.HadamardResponse) else 1)
    if isinstance(mechanism, local.RandomisedResponse):  # yes, which is the second of its two values
        found = [spread_of(mechanism, many, n, np.array([1 - one, one]), None) for one in shares]
        ends = [one.interval(np.array([1 - s, s]), confidence) for one, s in zip(found, shares, strict=True)]
        low, high = (np.array([end[side][1] for end in ends]) for side in (0, 1))
    else:
        low, high = spread_of(mechanism, many, n, shares, None).interval(shares, confidence)
    assert (low <= shares).all()
    assert (shares <= high).all()
    asked = sorted({0, 1, 2, 3, n // 10, n // 2, n - 1, n} & set(range(n + 1)))
    holds = {k: (low <= k / n + 1e-12) & (k / n <= high + 1e-12) for k in asked}
    return {k: float(supports(p, q, n, k)[held].sum()) for k, held in holds.items()}


@pytest.mark.parametrize("amount", EPSILONS)
def test_exact_intervals_hold_at_least_as_often_as_they_say(amount: str) -> None:
    for mechanism in pure(amount):
        for n, confidence in product((1, 2, 3, 10, 40, 150), ("0.95", "0.99")):
            for people, held in coverages(mechanism, n, confidence).items():
                assert held >= float(confidence) - 1e-3, (mechanism.name, n, people, confidence, held)


def test_intervals_of_many_reports_are_not_wider_than_they_need_be() -> None:
    for mechanism in pure("2"):
        if isinstance(mechanism, local.RandomisedResponse):
            continue
        p, q, n = float(mechanism.p), float(mechanism.q), 200_000
        shares = np.array([0.0, 0.1, 0.5, 1.0])
        many = np.zeros(getattr(mechanism, "outputs", 1) if isinstance(mechanism, local.HadamardResponse) else 1)
        low, high = spread_of(mechanism, many, n, shares, None).interval(shares, "0.95")
        error = np.sqrt((shares * p * (1 - p) + (1 - shares) * q * (1 - q)) / n) / (p - q)
        assert (high - low) / (2 * 1.96 * error) == pytest.approx(1, abs=0.05)


def held(mechanism: local.Oracle, tables: list[NDArray[Any]], truth: NDArray[Any], n: int) -> NDArray[np.float64]:
    """How often 95 % intervals hold each share, over tables of counts."""
    found = []
    for table in tables:
        low, high = mechanism.estimate(Counts(mechanism, table, n)).interval
        found.append((low <= truth + 1e-12) & (truth <= high + 1e-12))
    return np.asarray(np.mean(found, axis=0))


def enough(seen: NDArray[np.float64], runs: int, stated: float = 0.95) -> bool:
    """Whether the least of several frequencies could be of intervals that hold as often as stated: 4.5 sigma."""
    return bool(seen.min() >= stated - 4.5 * np.sqrt(stated * (1 - stated) / runs))


@pytest.mark.parametrize("amount", EPSILONS)
@pytest.mark.parametrize("people", [[1], [1, 1], [1, 0, 2], [3, 0, 0, 0, 47], [90, 10, 0, 60, 0, 40]])
def test_hadamard_codes_in_blocks_hold_as_often_as_they_say(amount: str, people: list[int]) -> None:
    random, runs = np.random.default_rng(5), 150
    for blocks in (2, 4):
        mechanism = local.HadamardResponse.for_loss(12, local.epsilon(amount), blocks=blocks)
        laws = [np.array([float(one) for one in mechanism.law(v)]) for v in range(len(people))]
        n, truth = sum(people), np.array(people + [0] * (12 - len(people))) / sum(people)
        parts = [random.multinomial(k, law / law.sum(), size=runs) for k, law in zip(people, laws, strict=True)]
        assert enough(held(mechanism, list(sum(parts)), truth, n), runs), (blocks, people)


@pytest.mark.parametrize("amount", EPSILONS)
@pytest.mark.parametrize("n", [1, 2, 3, 20, 300])
def test_histograms_hold_as_often_as_they_say(amount: str, n: int) -> None:
    random, runs, mechanism = np.random.default_rng(6), 400, local.HistogramEncoding.for_loss(4, local.epsilon(amount))
    stop = 1 - np.exp(-1 / float(mechanism.scale))
    noise = random.negative_binomial(n, stop, (runs, 4)) - random.negative_binomial(n, stop, (runs, 4))
    truth = np.array([1.0, 0, 0, 0])
    assert enough(held(mechanism, list(noise + (n * truth).astype(int)), truth, n), runs)


@pytest.mark.parametrize("amount", ["1", "4", "8"])
@pytest.mark.parametrize("people", [[1], [1, 1, 1], [2, 98], [5, 60, 135]])
def test_sketches_hold_as_often_as_they_say_over_the_choice_of_the_table(amount: str, people: list[int]) -> None:
    runs, seen, source = 150, [], SeededSource(f"sketch {amount} {people}")
    truth = np.array(people + [0] * (20 - len(people))) / sum(people)
    values = np.repeat(np.arange(len(people)), people)
    for run in range(runs):
        mechanism = local.CountMeanSketch.for_loss(20, local.epsilon(amount), buckets=31, rows=4, salt=str(run))
        low, high = mechanism.estimate(mechanism.aggregate(mechanism.perturb(values, source))).interval
        seen.append((low <= truth + 1e-12) & (truth <= high + 1e-12))
    assert enough(np.mean(seen, axis=0), runs)


@pytest.mark.parametrize("amount", ["1", "4", "8"])
@pytest.mark.parametrize("rare", [1, 3])
def test_named_values_of_heavy_hitters_hold_as_often_as_they_say(amount: str, rare: int) -> None:
    mechanism = local.HeavyHitters.for_loss(local.epsilon(amount), length=8, chunk=4)
    runs, seen, source = 150, [], SeededSource(f"heavy {amount} {rare}")
    values = np.repeat([7, 200, 90], [rare, 40, 60 - rare])
    truth = np.array([rare, 40, 0]) / 100
    for _ in range(runs):
        counts = mechanism.aggregate(mechanism.perturb(values, source))
        low, high = mechanism.estimate(counts, values=[7, 200, 3]).interval
        seen.append((low <= truth + 1e-12) & (truth <= high + 1e-12))
    assert enough(np.mean(seen, axis=0), runs)


LEVELS = [("0.5", "4"), ("1", "8"), ("3", "6")]


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize(("n", "people"), [(2, 1), (4, 1), (40, 2), (200, 3), (200, 100)])
@pytest.mark.parametrize("weights", ["variance", "people"])
def test_mixed_levels_hold_as_often_as_they_say(levels: Any, n: int, people: int, weights: Any) -> None:
    random, runs = np.random.default_rng(8), 4000
    for kind in (local.OneOfSet, local.SetBits):
        groups = [kind.for_loss(10, 3, local.epsilon(one)) for one in levels]
        first = random.hypergeometric(people, n - people, n // 2, size=runs)  # who chose which level, by lot
        shares, parts, each = [], [], n // 2
        for mechanism, own in zip(groups, (first, people - first), strict=True):
            p, q = float(mechanism.p), float(mechanism.q)
            counts = random.binomial(own, p) + random.binomial(each - own, q)
            shares.append((counts / each - q) / (p - q))
            parts.append(spread_of(mechanism, np.zeros(1), each, shares[-1], None))
        share = np.array([1.0, 1.0] if weights == "people" else [1 / one.mse(each) for one in groups])
        share /= share.sum()
        found = sum(w * one for w, one in zip(share, shares, strict=True))
        low, high = mixed(parts, share, uneven(share, [each, each]), 0.05).interval(found, "0.95")
        seen = np.mean((low <= people / n + 1e-12) & (people / n <= high + 1e-12))
        assert enough(np.array([seen]), runs), (kind, seen)


@pytest.mark.parametrize("amount", ["1", "4", "8"])
@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize(("n", "people"), [(4, 1), (40, 2), (400, 3), (400, 150)])
def test_questions_that_some_were_asked_hold_as_often_as_they_say(
    amount: str, share: float, n: int, people: int
) -> None:
    random, runs, seen = np.random.default_rng(9), 2000, []
    for mechanism in (
        local.UnaryEncoding.optimised(10, local.epsilon(amount)),
        local.DirectEncoding.for_loss(10, local.epsilon(amount)),
    ):
        p, q, asked = float(mechanism.p), float(mechanism.q), int(n * share)
        own = random.hypergeometric(people, n - people, asked, size=runs)
        counts = random.binomial(own, p) + random.binomial(asked - own, q)
        shares = (counts / asked - q) / (p - q)
        low, high = spread_of(mechanism, np.zeros(1), asked, shares, None).asking(share).interval(shares, "0.95")
        seen.append(np.mean((low <= people / n + 1e-12) & (people / n <= high + 1e-12)))
    assert enough(np.array(seen), runs)


def test_a_rare_choice_that_nobody_reported_lies_in_its_interval() -> None:
    """The case that was found: three of 200 chose it, and often no report names it."""
    for kind, amount, people in ((local.OneOfSet, "5", 3), (local.OneOfSet, "8", 2), (local.SetBits, "8", 2)):
        mechanism = kind.for_loss(10, 3, local.epsilon(amount))
        table = np.zeros(11 if kind is local.OneOfSet else 10, dtype=np.int64)
        estimate = mechanism.estimate(Counts(mechanism, table, 200))
        assert estimate.frequencies[9] < 0
        assert estimate.interval[1][9] >= people / 200
        assert estimate.standard_error[9] >= float(np.sqrt(mechanism.variance(np.array([1 / 200]), 200))[0]) * 0.999
