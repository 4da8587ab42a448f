"""Each sampler draws from the law it names: the right scale passes, 10 % less and 10 % more both fail."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare, norm

from cloister.privacy.noise import (
    SeededSource,
    bernoulli,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    exponential_choice,
    geometric,
    noisy_max,
    permute_and_flip,
    uniform,
)

pytestmark = pytest.mark.statistical

N = 200_000
# A right sampler fails one of these with probability below 1e-9; seeds are fixed, so it fails never or always.
ALARM = 1e-9


def laplace_cdf(k, scale):
    ratio = np.exp(-1 / scale)
    return np.where(k < 0, np.exp(k / scale) / (1 + ratio), 1 - np.exp(-(k + 1) / scale) / (1 + ratio))


def geometric_cdf(k, scale):
    return np.where(k < 0, 0.0, 1 - np.exp(-(k + 1.0) / scale))


def gaussian_cdf(k, sigma):
    if sigma > 100:  # the sum differs from the integral by e^(-2 pi² sigma²)
        return norm.cdf((k + 0.5) / sigma)
    support = np.arange(-int(12 * sigma + 12), int(12 * sigma + 12) + 1)
    weights = np.exp(-(support**2) / (2 * sigma**2))
    total = np.cumsum(weights) / weights.sum()
    return total[np.clip(np.asarray(k) - support[0], 0, len(support) - 1).astype(int)]


LAWS = {discrete_laplace: laplace_cdf, discrete_gaussian: gaussian_cdf, geometric: geometric_cdf}


def fit(draws, cdf, scale):
    """p-value of a chi-square over about forty bins that reach into both tails."""
    edges = np.unique(np.round(np.quantile(draws, np.r_[1e-4, 1e-3, np.linspace(0.01, 0.99, 37), 0.999, 0.9999])))
    edges = edges.astype(np.int64)
    cells = np.diff(np.r_[0, [(draws <= edge).sum() for edge in edges], len(draws)])
    expected = np.diff(np.r_[0.0, cdf(edges, scale), 1.0]) * len(draws)
    keep = expected > 4
    cells, expected = np.r_[cells[keep], cells[~keep].sum()], np.r_[expected[keep], expected[~keep].sum()]
    keep = expected > 0
    assert cells[~keep].sum() == 0
    return chisquare(cells[keep], expected[keep]).pvalue


@pytest.mark.parametrize("scale", ["0.3", "1", "7/3", "10", "1e6", "123456.789"])
@pytest.mark.parametrize("sampler", LAWS, ids=lambda sampler: sampler.__name__)
def test_the_law_is_right_and_ten_percent_off_is_noticed(sampler, scale):
    draws = sampler(scale, N, SeededSource(f"{sampler.__name__} {scale}"))
    exact = float(Fraction(scale))
    assert fit(draws, LAWS[sampler], exact) > ALARM
    assert fit(draws, LAWS[sampler], exact * 0.9) < ALARM
    assert fit(draws, LAWS[sampler], exact * 1.1) < ALARM


@pytest.mark.parametrize("sampler", LAWS, ids=lambda sampler: sampler.__name__)
def test_tails_are_neither_cut_nor_fat(sampler):
    """Beyond 6 Laplace scales (4 sigmas) as many draws as there should be, on each side."""
    far = 400 if sampler is discrete_gaussian else 600
    draws = sampler(100, 5 * N, SeededSource(sampler.__name__))
    expected = (1 - LAWS[sampler](np.array([far]), 100.0)[0]) * len(draws)
    assert expected > 25
    sides = [(draws > far).sum()] + ([] if sampler is geometric else [(draws < -far).sum()])
    for count in sides:
        assert abs(count - expected) < 6.2 * np.sqrt(expected)


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
def test_many_scales_in_one_call_each_follow_their_own_law(sampler):
    scales = np.tile(np.array(["0.3", "5", "40000"], dtype=object), N // 3)
    draws = sampler(scales, source=SeededSource("mixed"))
    for scale in ("0.3", "5", "40000"):
        assert fit(draws[scales == scale], LAWS[sampler], float(scale)) > ALARM


def test_large_scales_follow_the_same_law_in_python_integers():
    """At 2^70 the draws are Python integers; divided by 2^60 they are nearly a discrete Laplace of scale 1024."""
    draws = np.array([int(x) >> 60 for x in discrete_laplace(2**70, 20_000, SeededSource("large"))])
    assert fit(draws, laplace_cdf, 1024.0) > ALARM
    assert fit(draws, laplace_cdf, 1024.0 * 1.1) < ALARM


def frequencies(outcomes, k):
    return np.bincount(np.asarray(outcomes, dtype=int), minlength=k)


def test_uniform_integers_are_uniform():
    for below in (2, 3, 7, 10, 1000):
        assert chisquare(frequencies(uniform(below, N, SeededSource(below)), below)).pvalue > ALARM
    assert chisquare(frequencies(uniform(3 * 2**60, N, SeededSource(1)) >> 60, 3)).pvalue > ALARM


@pytest.mark.parametrize("p", ["1/3", "0.5", "0.001", "999/1000"])
def test_coins_have_their_probability(p):
    heads = bernoulli(p, N, SeededSource(p)).sum()
    expected = float(Fraction(p)) * N
    assert abs(heads - expected) < 6.2 * np.sqrt(expected * (1 - float(Fraction(p))))


@pytest.mark.parametrize("x", ["0.001", "1/3", "1", "2.5", "7", f"{2**61}/{2**61 - 1}"])
def test_exponential_coins_have_their_probability(x):
    heads = bernoulli_exp(x, N, SeededSource(x)).sum()
    p = np.exp(-float(Fraction(x)))
    assert abs(heads - p * N) < 6.2 * np.sqrt(p * (1 - p) * N)


SCORES = [0, 1, 3, 4]


def permute_and_flip_law(flips):
    """By inclusion and exclusion over which of the others also show heads."""
    law = np.zeros(len(flips))
    for subset in range(1, 2 ** len(flips)):
        members = [i for i in range(len(flips)) if subset >> i & 1]
        chance = np.prod([flips[i] if i in members else 1 - flips[i] for i in range(len(flips))])
        law[members] += chance / len(members)
    return law


def noisy_max_law(scale):
    support = np.arange(-400, 401)
    ratio = np.exp(-1 / scale)
    pmf = (1 - ratio) / (1 + ratio) * np.exp(-np.abs(support) / scale)
    below = [
        np.cumsum(np.r_[0.0, pmf])[np.clip(support + SCORES[i] - SCORES[j] + 400 + (j > i), 0, 801)]
        for i in range(4)
        for j in range(4)
    ]
    return np.array([(pmf * np.prod([below[4 * i + j] for j in range(4) if j != i], axis=0)).sum() for i in range(4)])


CHOICES = {
    "exponential": (lambda s: exponential_choice(SCORES, "1/2", s), np.exp(np.array(SCORES) / 2)),
    "permute and flip": (
        lambda s: permute_and_flip(SCORES, "1/2", s),
        permute_and_flip_law(np.exp((np.array(SCORES) - 4) / 2)),
    ),
    "noisy max": (lambda s: noisy_max(SCORES, 2, source=s), noisy_max_law(2.0)),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_follow_their_law_and_no_other(name):
    choose, weights = CHOICES[name]
    source = SeededSource(name)
    counts = frequencies([choose(source) for _ in range(20_000)], 4)
    law = weights / weights.sum()
    assert chisquare(counts, law * 20_000).pvalue > ALARM
    for _, other in (CHOICES[key] for key in CHOICES if key != name):
        assert chisquare(counts, other / other.sum() * 20_000).pvalue < ALARM
