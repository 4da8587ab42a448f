"""Textbook noise in doubles tells the true answer; noise on a grid does not. The same for sums."""

import math

import numpy as np
import pytest
from scipy import stats

from cloister.attack import Batched, OutputFeature, audit
from cloister.attack.mechanisms.floating import orders_that_differ, reachable, try_to_tell_apart
from cloister.privacy.loss import epsilon
from cloister.privacy.noise import Grid, SeededSource, discrete_laplace

pytestmark = pytest.mark.statistical

# The answers differ by 1 under noise of scale 64: whoever is right more often than this beats the promise.
SCALE = 64.0
EPSILON = 1 / SCALE
PROMISE = math.exp(EPSILON) / (1 + math.exp(EPSILON))


def ours(answer: float, n: int) -> np.ndarray:
    grid, source = Grid(14), SeededSource(f"ours {answer}")
    steps = int(grid.encode([answer], 0, 1000)[0])
    return grid.decode(steps + discrete_laplace(2**14 * 64, n, source))


def test_what_numpy_returned_is_reachable() -> None:
    for answer, scale in ((0.0, 1.0), (1.0, 64.0), (-3.0, 0.25), (1000.0, 64.0)):
        drawn = np.random.default_rng(1).laplace(answer, scale, 20_000)
        assert reachable(drawn, answer, scale).mean() > 0.999


@pytest.mark.parametrize(("left", "right"), [(0.0, 1.0), (10.0, 11.0)])
def test_the_attack_names_the_answer_behind_numpys_laplace(left: float, right: float) -> None:
    generator = np.random.default_rng(2)
    found = try_to_tell_apart(lambda answer, n: generator.laplace(answer, SCALE, n), left, right, SCALE, 5_000)
    assert found.rate > 0.85  # where the promise allows 0.504
    assert stats.binomtest(found.right, found.right + found.wrong, PROMISE, alternative="greater").pvalue < 1e-9
    assert found.wrong <= 0.001 * found.right


@pytest.mark.parametrize(("left", "right"), [(0.0, 1.0), (10.0, 11.0)])
def test_the_attack_is_at_chance_against_noise_on_a_grid(left: float, right: float) -> None:
    found = try_to_tell_apart(ours, left, right, SCALE, 5_000)
    decided = found.right + found.wrong
    assert decided > 1_000  # it does try
    assert stats.binomtest(found.right, decided, PROMISE, alternative="greater").pvalue > 1e-6
    assert abs(found.rate - 0.5) < 0.02


def test_reachability_refutes_numpys_laplace_in_an_audit_and_not_ours() -> None:
    holes = OutputFeature("reachable from 10", lambda rows: reachable(rows[:, 0], 10.0, SCALE))
    generator = np.random.default_rng(3)
    textbook = Batched(lambda answer, n: generator.laplace(answer, SCALE, n))
    claim = epsilon("1/64")
    assert audit(textbook, 10.0, 11.0, claim, n=20_000, confidence=1 - 1e-9, features=[holes]).lower_bound > 1
    assert not audit(Batched(ours), 10.0, 11.0, claim, n=20_000, confidence=1 - 1e-9, features=[holes]).broken


def test_two_orders_of_the_same_rows_have_different_float_sums_and_the_same_grid_total() -> None:
    early, late = orders_that_differ()
    assert sorted(early) == sorted(late)
    assert early.max() - early.min() <= 1  # so one row replaced moves the true sum by at most 1
    assert abs(np.cumsum(early)[-1] - np.cumsum(late)[-1]) > 1_000
    grid, bounds = Grid(8), (2**40, 2**40 + 1)
    assert grid.total(grid.encode(early, *bounds)) == grid.total(grid.encode(late, *bounds))


@pytest.mark.parametrize("claimed", ["0.01", "1"])
def test_the_order_of_a_float_sum_shows_through_the_noise_and_that_of_a_grid_does_not(claimed: str) -> None:
    claim, source = epsilon(claimed, relation="replace-one"), SeededSource("order " + claimed)
    grid, bounds = Grid(8), (2**40, 2**40 + 1)

    def rounded_afterwards(rows: np.ndarray, n: int) -> np.ndarray:
        return int(grid.point(float(np.cumsum(rows)[-1]))) + discrete_laplace(2**8 / claim.amount, n, source)

    def on_the_grid(rows: np.ndarray, n: int) -> np.ndarray:
        steps = grid.sensitivity(*bounds, "replace-one")
        return grid.total(grid.encode(rows, *bounds)) + discrete_laplace(steps / claim.amount, n, source)

    early, late = orders_that_differ()
    assert audit(Batched(rounded_afterwards), early, late, claim, n=20_000, confidence=1 - 1e-9).lower_bound > 5
    assert not audit(Batched(on_the_grid), early, late, claim, n=20_000, confidence=1 - 1e-9).broken
