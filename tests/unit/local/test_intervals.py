"""Intervals of shares hold at least as often as they say: for many people as for few, and at every confidence."""

from contextlib import suppress
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.stats import binom

from cloister import local
from cloister.local.base.intervals import _at_least, _laplace, coins
from cloister.local.mechanisms.direct import DirectEncoding
from cloister.privacy.errors import BadProbability
from cloister.privacy.noise import SeededSource

CONFIDENCES = ["0.5", "0.9", "0.95", "0.99", "0.999", "0.999999", "0.999999999"]


def missed(p: float, q: float, n: int, people: int, confidence: str) -> float:
    """The exact chance that the interval misses the share of so many people."""
    mean, far = n * q + people * (p - q), 12 * np.sqrt(n * q * (1 - q) + people * p * (1 - p) + 1) + 60
    counts = np.arange(max(0, int(mean - far)), min(n, int(mean + far)) + 1)
    own, other = binom.pmf(np.arange(people + 1), people, p), binom.pmf(np.arange(n - people + 1), n - people, q)
    law = np.convolve(own, other)[counts]
    low, high = coins(p, q, len(counts), n).interval((counts / n - q) / (p - q), confidence)
    return float(law[(people / n < low - 1e-12) | (people / n > high + 1e-12)].sum())


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize(
    ("size", "amount", "n", "shares"),
    [
        (10, "1", 1000, [0, 0.1, 0.5, 1]),
        (10, "1", 20_000, [0, 0.01, 0.3]),
        (2, "8", 5000, [0.01, 0.1, 0.5, 0.99]),
        (2, "0.1", 3000, [0, 0.5, 1]),
        (1000, "8", 400_000, [0]),
    ],
)
def test_intervals_of_many_people_hold_at_every_confidence(size, amount, n, shares, confidence):
    mechanism = DirectEncoding.for_loss(size, local.epsilon(amount))
    p, q = float(mechanism.p), float(mechanism.q)
    for share in shares:
        assert missed(p, q, n, round(n * share), confidence) <= 1 - float(Fraction(confidence)) + 1e-15


def test_the_interval_of_the_case_that_was_found_holds_through_the_public_calls():
    mechanism = local.DirectEncoding.for_loss(10, local.epsilon(1))
    p, q, n, people = float(mechanism.p), float(mechanism.q), 1000, 100
    law = np.convolve(binom.pmf(np.arange(people + 1), people, p), binom.pmf(np.arange(n - people + 1), n - people, q))
    for confidence in ("0.99", "0.999999"):
        miss = 0.0
        for count in np.flatnonzero(law > 1e-12):
            rest = np.full(9, (n - count) // 9)
            rest[0] += n - count - rest.sum()
            counts = local.Counts(mechanism, np.concatenate([[count], rest]), n)
            low, high = (end[0] for end in mechanism.estimate(counts, confidence=confidence).interval)
            miss += law[count] * (not low - 1e-12 <= people / n <= high + 1e-12)
        assert miss <= 1 - float(confidence)


@pytest.mark.parametrize("confidence", ["0.95", "0.999999", f"{1 - Fraction(1, 10**40)}"])
def test_many_people_make_no_interval_wider_than_it_must_be(confidence):
    from scipy.stats import norm

    z = -norm.ppf(float(1 - Fraction(confidence)) / 2)
    for size, amount, n in ((10, "1", 10**6), (100, "4", 10**7)):
        mechanism = DirectEncoding.for_loss(size, local.epsilon(amount))
        p, q, shares = float(mechanism.p), float(mechanism.q), np.array([0.1, 0.5])
        low, high = coins(p, q, 2, n).interval(shares, confidence)
        error = np.sqrt((shares * p * (1 - p) + (1 - shares) * q * (1 - q)) / n) / (p - q)
        assert (high - low) / (2 * z * error) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("scale", [0.5, 20.0, 300.0, 5000.0])
@pytest.mark.parametrize("n", [1, 31, 40, 1000])
def test_the_reach_of_laplace_noise_is_gone_beyond_no_more_often_than_stated(scale, n):
    """Against the same integral that is exact for coins, with the generating function of the noise."""
    reaches = []
    for left in (0.9, 0.5, 0.1, 0.05, 1e-3, 1e-6, 1e-12, 1e-19, 1e-25, 1e-100):
        reaches.append(_laplace(scale, n, left))
        assert _beyond(scale, n, int(reaches[-1]) + 1) <= left * (1 + 1e-8)
    assert reaches == sorted(reaches)
    assert _beyond(scale, n, int(0.98 * _laplace(scale, n, 1e-3)) - 1) > 1e-3  # and it is no farther than it need be


def _beyond(scale: float, n: int, count: int) -> float:
    """The chance that a sum of n draws of discrete Laplace noise is at least so far off, on either side."""
    alpha = np.exp(-1 / scale)

    def law(s):
        return n * (2 * np.log1p(-alpha) - np.log(1 - alpha * np.exp(s)) - np.log(1 - alpha * np.exp(-s)))

    low, high = 1e-12 / scale, (1 - 1e-12) / scale
    for _ in range(200):
        by = (low + high) / 2
        up, down = alpha * np.exp(by), alpha * np.exp(-by)
        far = n * (up / (1 - up) - down / (1 - down)) - count > 1 / np.expm1(by)
        low, high = (low, by) if far else (by, high)
    up, down = alpha * np.exp(low), alpha * np.exp(-low)
    deviation = np.sqrt(n * (up / (1 - up) ** 2 + down / (1 - down) ** 2))
    # Of few draws the integrand falls slowly: all of the circle then, with its steps closer near the real line.
    x = np.linspace(0, np.arcsinh(min(np.pi, 2000 / scale) * deviation * 50), 20_001)
    angle = np.sinh(x) / (deviation * 50)
    s = low + 1j * angle
    value = (np.exp(law(s) - s * count - (law(low) - low * count)) / (1 - np.exp(-s))).real * np.cosh(x)
    value[[0, -1]] /= 2
    return float(2 * np.exp(law(low) - low * count) * value.sum() * x[1] / (deviation * 50) / np.pi)


def _exactly(count: int, people: int, n: int, p: Fraction, q: Fraction) -> Fraction:
    def law(size: int, chance: Fraction) -> list[Fraction]:
        return [comb(size, k) * chance**k * (1 - chance) ** (size - k) for k in range(size + 1)]

    own, others = law(people, p), law(n - people, q)
    return sum((a * b for i, a in enumerate(own) for j, b in enumerate(others) if i + j >= count), Fraction(0))


def test_the_chance_of_a_count_is_exact_to_ten_digits_however_small_it_is():
    random = np.random.default_rng(1)
    seen = []
    for _ in range(150):
        n = int(random.choice([1, 2, 3, 7, 20, 50]))
        p = Fraction(str(random.choice([0.3, 0.5, 0.9, 0.999])))
        q = p * Fraction(str(random.choice([1e-9, 0.01, 0.2, 0.9])))
        people, count = (int(one) for one in random.integers(0, n + 1, 2))
        true = float(_exactly(count, people, n, p, q))
        one = np.ones(1)
        found = float(_at_least(count * one, people * one, n, float(p) * one, float(q) * one)[0])
        assert found == pytest.approx(true, rel=1e-10 if true < 0.6 else 1e-5)
        seen.append(true)
    assert min(seen) < 1e-100


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("amount", ["1e-17", "1e-12", "1e-6"])
def test_tiny_losses_are_refused_in_words_or_carried_out(amount):
    loss = local.epsilon(amount)
    for make in (
        lambda: local.ThresholdEncoding.for_loss(7, loss),
        lambda: local.advise(7, loss, 100),
        lambda: local.HadamardResponse.for_loss(10, loss),
        lambda: local.HadamardResponse.for_loss(50, loss),
    ):
        with suppress(BadProbability):
            make()


@pytest.mark.parametrize(("levels", "groups"), [
    (["3", "6"], [(1000, 0), (0, 9000)]), (["2", "4"], [(400, 100), (0, 4500)]),
    (["1", "2", "4"], [(500, 0), (0, 500), (500, 500)]),
])  # fmt: skip
def test_weights_by_people_hold_where_levels_were_chosen_by_the_answer(levels, groups):
    """The variance of a level is that at its own share, which is far from the one of all people."""
    mechanisms = [local.DirectEncoding.for_loss(10, local.epsilon(level)) for level in levels]
    truth = sum(group[0] for group in groups) / sum(map(sum, groups))
    runs, held = 300, 0
    for run in range(runs):
        estimates = []
        for at, (mechanism, (with_it, without)) in enumerate(zip(mechanisms, groups, strict=True)):
            values = np.concatenate([np.zeros(with_it, int), 1 + np.arange(without) % 9])
            reports = mechanism.perturb(values, SeededSource(f"{levels} {run} {at}"))
            estimates.append(mechanism.estimate(mechanism.aggregate(reports)))
        found = local.combine(estimates, "people")
        held += found.interval[0][0] <= truth <= found.interval[1][0]
    assert held / runs >= 0.92


def test_few_reports_make_no_heavy_hitter_of_a_value_that_nobody_has():
    """A count that expects one report is not normal: a bar of so many standard errors let false values through."""
    mechanism = local.HeavyHitters.for_loss(local.epsilon(4), 8)
    false = 0
    for run in range(100):
        values = np.random.default_rng(run).permutation(mechanism.domain)[:60]  # everybody another one
        reports = mechanism.perturb(values, SeededSource(f"hitters {run}"))
        false += bool(len(mechanism.estimate(mechanism.aggregate(reports)).values))
    assert false <= 2  # one in a thousand is allowed, and 12 in a hundred were shown


@pytest.mark.parametrize("named", [[12345], [7, 12345]])
def test_the_interval_of_a_sketch_holds_whichever_values_are_named(named):
    held, domain = 0, 2**30
    for repeat in range(200):
        sketch = local.CountMeanSketch.for_loss(domain, local.epsilon(6), 31, 8, salt=f"table {repeat}")
        people = np.full(400, 7)  # a frequent value collides with the one asked about in a quarter of all tables
        people[:80] = 100 + np.arange(80) * 1_000_003 % (domain - 100)
        reports = sketch.perturb(people, source=SeededSource(f"sketch {repeat}"))
        estimate = sketch.estimate(sketch.aggregate(reports), "0.95", values=named)
        low, high = (end[named.index(12345)] for end in estimate.interval)
        held += low <= 0.0 <= high
    assert held >= 0.95 * 200
