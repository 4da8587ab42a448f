"""Faults of noise, selection, the sparse vector technique and floating point."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cloister.attack.mechanisms.floating import orders_that_differ
from cloister.attack.zoo.twins import Draw, Twins, generator, of_kind
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.noise import Grid, SeededSource, Source, discrete_gaussian, discrete_laplace

__all__ = ["MECHANISMS", "count", "counts", "gaussian"]


def count(scale: Any) -> Draw:
    """Return a number plus Laplace noise."""
    return lambda data, n, source: data + discrete_laplace(scale, n, source)


def counts(scale: Any) -> Draw:
    """Return numbers plus Laplace noise, independent for each."""
    return lambda data, n, source: np.asarray(data) + discrete_laplace(scale, (n, len(data)), source)


def gaussian(sigma: Any) -> Draw:
    """Return a number plus Gaussian noise."""
    return lambda data, n, source: data + discrete_gaussian(sigma, n, source)


def _one_noise_for_all_cells(data: Any, n: int, source: Source) -> Any:
    return np.asarray(data) + discrete_laplace(1, (n, 1), source)


def _cut_noise(data: int, n: int, source: Source) -> Any:
    return data + np.clip(discrete_laplace(1, n, source), -4, 4)


def _float_laplace(data: float, n: int, source: Source) -> Any:
    return generator(source).laplace(data, 1.0, n)


def _laplace_on_a_grid(data: float, n: int, source: Source) -> Any:
    grid = Grid(20)
    return grid.decode(int(grid.encode([data], 0, 1)[0]) + discrete_laplace(grid.sensitivity(0, 1), n, source))


def _choice(law: Callable[[Any], Any]) -> Draw:
    return lambda data, n, source: generator(source).choice(len(law(data)), size=n, p=law(data))


def _randomised_response(others: int) -> Callable[[int], Any]:
    """Return the law of three answers: the truth with probability e / (e + others)."""
    keep = math.e / (math.e + others)
    return lambda truth: [keep if answer == truth else (1 - keep) / 2 for answer in range(3)]


def _exponential(rate: float) -> Callable[[Any], Any]:
    def law(scores: Any) -> Any:
        weights = np.exp(rate * np.asarray(scores, dtype=float))
        return weights / weights.sum()

    return law


def _grid_of_the_largest_row(data: Any, n: int, source: Source) -> Any:
    step = max(data)
    return step * (round(sum(data) / step) + discrete_laplace(1, n, source))


def _grid_of_the_public_bound(data: Any, n: int, source: Source) -> Any:
    return 10 * (round(sum(data) / 10) + discrete_laplace(1, n, source))


def _winner_with_its_score(data: Any, n: int, source: Source) -> Any:
    noisy = counts(1)(data, n, source)
    return np.column_stack((noisy.argmax(axis=1), noisy.max(axis=1)))


def _winner(data: Any, n: int, source: Source) -> Any:
    return counts(1)(data, n, source).argmax(axis=1)


def _above_threshold(threshold: int, limit: int, threshold_scale: int, query_scale: int) -> Draw:
    """Return the sparse vector technique: 1 above, 0 below, -1 after `limit` queries above. Scale 0 is no noise."""

    def draw(data: Any, n: int, source: Source) -> Any:
        bar = threshold + (discrete_laplace(threshold_scale, (n, 1), source) if threshold_scale else 0)
        above = (counts(query_scale)(data, n, source) >= bar).astype(int)
        return np.where(above.cumsum(axis=1) - above < limit, above, -1)

    return draw


def _always_the_same_noise(data: int, n: int, source: Source) -> Any:
    return np.full(n, data + discrete_laplace(1, source=SeededSource(0)))


def _float_sum_then_rounded(data: Any, n: int, source: Source) -> Any:
    return int(np.cumsum(data)[-1]) + discrete_laplace(1, n, source)


def _sum_on_a_grid(data: Any, n: int, source: Source) -> Any:
    grid, bounds = Grid(4), (2**40, 2**40 + 1)
    scale = grid.sensitivity(*bounds, "replace-one")
    return grid.total(grid.encode(data, *bounds)) + discrete_laplace(scale, n, source)


def _wishart(data: Any, n: int, source: Source) -> Any:
    """Return X'X plus Wishart noise of 3 degrees of freedom (d + 1 for d = 2) and scale 3 / (2 epsilon)."""
    factors = generator(source).normal(0, math.sqrt(1.5), (n, 3, 2))
    return np.asarray(data) + np.einsum("nik,nij->nkj", factors, factors)


def _laplace_covariance(data: Any, n: int, source: Source) -> Any:
    """Return the upper triangle on a grid of 2^-10; a row of norm 1 moves it by at most 3/2 in L1."""
    upper = np.round(np.asarray(data)[[0, 0, 1], [0, 1, 1]] * 2**10).astype(int)
    return upper + discrete_laplace(3 * 2**9, (n, 3), source)


def _noise_for_this_table_only(data: Any, n: int, source: Source) -> Any:
    """Return a maximum with noise to the gap that this table happens to have."""
    rows = sorted(data)
    return rows[-1] + discrete_laplace(max(rows[-1] - rows[-2], 1), n, source)


def _noise_for_every_table(data: Any, n: int, source: Source) -> Any:
    return max(data) + discrete_laplace(10, n, source)


_EARLY, _LATE = orders_that_differ()
_REPLACE = epsilon(1, relation="replace-one")
_SOLO, _CROWD = [1] + [0] * 9, [0] + [1] * 9
_MISPLACED, _RIGHT = math.sqrt(2 * math.log(1.25 + 1e-5)), math.sqrt(2 * math.log(1.25 / 1e-5))


_twins = of_kind("mechanism")


MECHANISMS: tuple[Twins, ...] = (
    _twins(
        "half the noise",
        "The scale of Laplace noise is sensitivity / epsilon; here it is half of that.",
        count("1/2"), count(1), 0, 1, epsilon(1),
    ),
    _twins(
        "half the sigma",
        "Sigma is sensitivity / sqrt(2 rho); here it is half of that.",
        gaussian(5), gaussian(10), 0, 10, rho("1/2"),
    ),
    _twins(
        "sensitivity of a count for a sum",
        "A sum of values up to 10 gets the noise of a count.",
        count(1), count(10), 0, 10, epsilon(1),
    ),
    _twins(
        "one noise for all cells",
        "A single draw is added to every cell, so that differences of cells are exact.",
        _one_noise_for_all_cells, counts(1), [7, 7, 7], [8, 7, 7], epsilon(1),
    ),
    _twins(
        "truncated tails",
        "Noise is cut at four scales, so that some outputs are possible on one side only.",
        _cut_noise, count(1), 0, 1, epsilon(1),
    ),
    _twins(
        "Laplace noise in floats",
        "Doubles that one input reaches the other never does; noise on a public grid has no such gaps.",
        _float_laplace, _laplace_on_a_grid, 0.0, 1.0, epsilon(1),
        reference="Mironov 2012, On significance of the least significant bits",
    ),
    _twins(
        "randomised response off by one",
        "The probability of the truth is e / (e + 1) for three answers; it must be e / (e + 2).",
        _choice(_randomised_response(1)), _choice(_randomised_response(2)), 0, 1, epsilon(1),
    ),
    _twins(
        "grid of the largest row",
        "The grid is the largest value in the data, which outputs show.",
        _grid_of_the_largest_row, _grid_of_the_public_bound, [8, 3], [9, 3], _REPLACE,
    ),
    _twins(
        "exponential mechanism without the factor 2",
        "Scores move in both directions, so the rate is epsilon / (2 sensitivity).",
        _choice(_exponential(1)), _choice(_exponential(0.5)), _SOLO, _CROWD, epsilon(1),
    ),
    _twins(
        "noisy maximum with its score",
        "The winner is free of the other scores; its noisy score is another release.",
        _winner_with_its_score, _winner, [0] * 10, [1] * 10, epsilon(1),
        reference="Dwork & Roth 2014, section 3.3",
    ),
    _twins(
        "sparse vector without noise on the threshold",
        "The threshold of the sparse vector technique needs noise too.",
        _above_threshold(3, 1, 0, 2), _above_threshold(3, 1, 2, 4), [0] * 20, [1] * 20, epsilon(1),
        reference="Lyu, Su & Li 2017, Understanding the sparse vector technique",
    ),
    _twins(
        "sparse vector without counting the answers",
        "The noise of queries does not grow with the number of answers above the threshold.",
        _above_threshold(0, 12, 2, 4), _above_threshold(0, 12, 2, 48), [1, 0] * 12, [0, 1] * 12, epsilon(1),
        reference="Lyu, Su & Li 2017, Understanding the sparse vector technique",
    ),
    _twins(
        "delta at the wrong place of a formula",
        "Sigma is sqrt(2 ln(1.25 + delta)) instead of sqrt(2 ln(1.25 / delta)).",
        gaussian(round(1000 * _MISPLACED)), gaussian(round(1000 * _RIGHT)), 0, 1000, epsilon(1, delta="1e-5"),
    ),
    _twins(
        "the same seed every time",
        "A generator that starts from a constant adds the same noise to every answer.",
        _always_the_same_noise, count(1), 0, 1, epsilon(1),
    ),
    _twins(
        "overlapping parts called disjoint",
        "A person who is in three parts pays once instead of three times.",
        counts(1), counts(3), [5, 5, 5], [6, 6, 6], epsilon(1),
    ),
    _twins(
        "float sum rounded afterwards",
        "The order of rows moves a sum of doubles by more than its sensitivity; integers have no such order.",
        _float_sum_then_rounded, _sum_on_a_grid, _EARLY, _LATE, _REPLACE,
        reference="Casacuberta et al. 2022, Widespread underestimation of sensitivity",
    ),
    _twins(
        "Laplace noise for a distance in L2",
        "Laplace noise is scaled to the L1 distance of neighbours, which is up to sqrt(d) times larger.",
        counts(3), counts(9), [0] * 9, [1] * 9, epsilon(1),
    ),
    _twins(
        "Wishart noise on a covariance matrix",
        "Wishart noise is positive definite, so the smallest eigenvalue shows the data.",
        _wishart, _laplace_covariance, [[0, 0], [0, 0]], [[1, 0], [0, 0]], epsilon(1),
    ),
    _twins(
        "noise for this table only",
        "Noise is scaled to the change that this table allows instead of any table.",
        _noise_for_this_table_only, _noise_for_every_table, [0, 0, 9], [0, 9, 9], _REPLACE,
        reference="Nissim, Raskhodnikova & Smith 2007, Smooth sensitivity",
    ),
)  # fmt: skip
