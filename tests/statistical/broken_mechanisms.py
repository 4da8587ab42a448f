"""A zoo of broken mechanisms, each beside its honest twin.

Every entry claims the same loss for both. The broken one makes a mistake that people have made; an audit that cannot
tell it from the honest one is worth nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.attack import Batched
from cloister.attack.mechanisms.floating import orders_that_differ
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.noise import Grid, SeededSource, Source, discrete_gaussian, discrete_laplace

Draw = Callable[[Any, int, Source], Any]


@dataclass(frozen=True, slots=True)
class Twins:
    """A broken mechanism and an honest one with the same claim: `draw(data, n, source)` returns n outputs."""

    name: str
    broken: Draw
    honest: Draw
    left: Any
    right: Any
    claim: Loss

    def mechanism(self, which: str, seed: int) -> Batched:
        draw, source = getattr(self, which), SeededSource(f"{self.name} {which} {seed}")
        return Batched(lambda data, n: draw(data, n, source))


def _numpy(source: Source) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(source.bytes(8)))


def count(scale: Any) -> Draw:
    return lambda data, n, source: data + discrete_laplace(scale, n, source)


def counts(scale: Any) -> Draw:
    return lambda data, n, source: np.asarray(data) + discrete_laplace(scale, (n, len(data)), source)


def gaussian(sigma: Any) -> Draw:
    return lambda data, n, source: data + discrete_gaussian(sigma, n, source)


def one_noise_for_all_cells(data: Any, n: int, source: Source) -> Any:
    return np.asarray(data) + discrete_laplace(1, (n, 1), source)


def clipped_noise(data: int, n: int, source: Source) -> Any:
    return data + np.clip(discrete_laplace(1, n, source), -4, 4)


def float_laplace(data: float, n: int, source: Source) -> Any:
    return _numpy(source).laplace(data, 1.0, n)


def laplace_on_a_grid(data: float, n: int, source: Source) -> Any:
    grid = Grid(20)
    return grid.decode(int(grid.encode([data], 0, 1)[0]) + discrete_laplace(grid.sensitivity(0, 1), n, source))


def choice(law: Callable[[Any], Any]) -> Draw:
    return lambda data, n, source: _numpy(source).choice(len(law(data)), size=n, p=law(data))


def randomised_response(others: int) -> Callable[[int], Any]:
    """Three answers; the truth with probability e / (e + others)."""
    keep = math.e / (math.e + others)
    return lambda truth: [keep if answer == truth else (1 - keep) / 2 for answer in range(3)]


def exponential(rate: float) -> Callable[[Any], Any]:
    def law(scores: Any) -> Any:
        weights = np.exp(rate * np.asarray(scores, dtype=float))
        return weights / weights.sum()

    return law


def grid_of_the_largest_row(data: Any, n: int, source: Source) -> Any:
    step = max(data)
    return step * (round(sum(data) / step) + discrete_laplace(1, n, source))


def grid_of_the_public_bound(data: Any, n: int, source: Source) -> Any:
    return 10 * (round(sum(data) / 10) + discrete_laplace(1, n, source))


def winner_with_its_score(data: Any, n: int, source: Source) -> Any:
    noisy = counts(1)(data, n, source)
    return np.column_stack((noisy.argmax(axis=1), noisy.max(axis=1)))


def winner(data: Any, n: int, source: Source) -> Any:
    return counts(1)(data, n, source).argmax(axis=1)


def above_threshold(threshold: int, limit: int, threshold_scale: int, query_scale: int) -> Draw:
    """Sparse vector: 1 above, 0 below, -1 once `limit` queries were above. A scale of 0 means no noise."""

    def draw(data: Any, n: int, source: Source) -> Any:
        bar = threshold + (discrete_laplace(threshold_scale, (n, 1), source) if threshold_scale else 0)
        above = (counts(query_scale)(data, n, source) >= bar).astype(int)
        return np.where(above.cumsum(axis=1) - above < limit, above, -1)

    return draw


def always_the_same_noise(data: int, n: int, source: Source) -> Any:
    return np.full(n, data + discrete_laplace(1, source=SeededSource(0)))


def float_sum_then_rounded(data: Any, n: int, source: Source) -> Any:
    return int(np.cumsum(data)[-1]) + discrete_laplace(1, n, source)


def sum_on_a_grid(data: Any, n: int, source: Source) -> Any:
    grid, bounds = Grid(4), (2**40, 2**40 + 1)
    scale = grid.sensitivity(*bounds, "replace-one")
    return grid.total(grid.encode(data, *bounds)) + discrete_laplace(scale, n, source)


def wishart(data: Any, n: int, source: Source) -> Any:
    """X'X plus Wishart noise of 3 degrees of freedom (d + 1 for d = 2) and scale 3 / (2 epsilon)."""
    factors = _numpy(source).normal(0, math.sqrt(1.5), (n, 3, 2))
    return np.asarray(data) + np.einsum("nik,nij->nkj", factors, factors)


def laplace_covariance(data: Any, n: int, source: Source) -> Any:
    """Upper triangle on a grid of 2^-10; a row of norm 1 moves it by at most 3/2 in L1."""
    upper = np.round(np.asarray(data)[[0, 0, 1], [0, 1, 1]] * 2**10).astype(int)
    return upper + discrete_laplace(3 * 2**9, (n, 3), source)


def noise_for_this_table_only(data: Any, n: int, source: Source) -> Any:
    """A maximum with noise to the gap that this table happens to have (local sensitivity)."""
    rows = sorted(data)
    return rows[-1] + discrete_laplace(max(rows[-1] - rows[-2], 1), n, source)


def noise_for_every_table(data: Any, n: int, source: Source) -> Any:
    """The same with noise to the public bound of 10."""
    return max(data) + discrete_laplace(10, n, source)


def small_counts_hidden(data: int, n: int, source: Source) -> Any:
    return np.zeros(n, dtype=int) if data < 5 else count(1)(data, n, source)


def small_answers_hidden(data: int, n: int, source: Source) -> Any:
    noisy = count(1)(data, n, source)
    return np.where(noisy < 5, 0, noisy)


_EARLY, _LATE = orders_that_differ()
_REPLACE = epsilon(1, relation="replace-one")
_SOLO, _CROWD = [1] + [0] * 9, [0] + [1] * 9
_MISPLACED, _RIGHT = math.sqrt(2 * math.log(1.25 + 1e-5)), math.sqrt(2 * math.log(1.25 / 1e-5))

ZOO = [
    Twins("half the noise", count("1/2"), count(1), 0, 1, epsilon(1)),
    Twins("half the sigma", gaussian(5), gaussian(10), 0, 10, rho("1/2")),
    Twins("sensitivity of a count for a sum up to 10", count(1), count(10), 0, 10, epsilon(1)),
    Twins("one noise for all cells", one_noise_for_all_cells, counts(1), [7, 7, 7], [8, 7, 7], epsilon(1)),
    Twins("truncated tails", clipped_noise, count(1), 0, 1, epsilon(1)),
    Twins("float laplace", float_laplace, laplace_on_a_grid, 0.0, 1.0, epsilon(1)),
    Twins(
        "randomised response off by one",
        choice(randomised_response(1)),
        choice(randomised_response(2)),
        0,
        1,
        epsilon(1),
    ),
    Twins("grid of the largest row", grid_of_the_largest_row, grid_of_the_public_bound, [8, 3], [9, 3], _REPLACE),
    Twins(
        "exponential without the factor 2", choice(exponential(1)), choice(exponential(0.5)), _SOLO, _CROWD, epsilon(1)
    ),
    Twins("noisy max with its score", winner_with_its_score, winner, [0] * 10, [1] * 10, epsilon(1)),
    Twins(
        "sparse vector, threshold without noise",
        above_threshold(3, 1, 0, 2),
        above_threshold(3, 1, 2, 4),
        [0] * 20,
        [1] * 20,
        epsilon(1),
    ),
    Twins(
        "sparse vector, answers not counted",
        above_threshold(0, 12, 2, 4),
        above_threshold(0, 12, 2, 48),
        [1, 0] * 12,
        [0, 1] * 12,
        epsilon(1),
    ),
    Twins(
        "gaussian, delta misplaced",
        gaussian(round(1000 * _MISPLACED)),
        gaussian(round(1000 * _RIGHT)),
        0,
        1000,
        epsilon(1, delta="1e-5"),
    ),
    Twins("the same seed every time", always_the_same_noise, count(1), 0, 1, epsilon(1)),
    Twins("overlapping parts called disjoint", counts(1), counts(3), [5, 5, 5], [6, 6, 6], epsilon(1)),
    Twins("float sum rounded afterwards", float_sum_then_rounded, sum_on_a_grid, _EARLY, _LATE, _REPLACE),
    Twins("laplace for a distance in L2", counts(3), counts(9), [0] * 9, [1] * 9, epsilon(1)),
    Twins("wishart noise", wishart, laplace_covariance, [[0, 0], [0, 0]], [[1, 0], [0, 0]], epsilon(1)),
    Twins(
        "noise for this table only", noise_for_this_table_only, noise_for_every_table, [0, 0, 9], [0, 9, 9], _REPLACE
    ),
    Twins("small counts hidden before the noise", small_counts_hidden, small_answers_hidden, 4, 5, epsilon(1)),
]
