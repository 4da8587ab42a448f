"""Intervals of an evaluation hold as often as they say: accuracies, medians, and gaps between groups."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cloister as cl
from cloister.learn.model_selection.evaluation import Evaluation, Interval, evaluate
from cloister.privacy.noise import SeededSource

RUNS = 100
SPENDS = [cl.rho(10), cl.rho("0.02"), cl.epsilon(20), cl.epsilon("0.5")]


class Noisy:
    """A meter that adds seeded noise and counts nothing."""

    def __init__(self, seed: str) -> None:
        self._source = SeededSource(seed)

    def release(self, look: Any, mechanism: Any) -> Any:
        return mechanism.release(look(), self._source)


class Constant:
    """A model that says the same to everybody."""

    feature_names_in_ = np.array(["x"])

    def __init__(self, answer: float) -> None:
        self._answer, self.classes_ = answer, np.array([0, 1])

    def predict(self, rows: Any) -> Any:
        return np.full(len(rows), self._answer)


@dataclass
class Made:
    """Rows in memory in place of a trial's; truth[g] is the share that is right, or the median, in group g."""

    goal: Any
    groups: Any
    each: int
    ends: tuple[float, float] | None = None

    target, features, group = "c", ("x",), "g"

    @property
    def labels(self) -> tuple[int, ...]:
        return tuple(range(int(self.groups.max()) + 1))

    @property
    def relation(self) -> Any:
        return SimpleNamespace(rows_each=self.each)

    def rows(self) -> Any:
        return {"x": np.zeros(len(self.goal)), "c": self.goal}, self.groups


def shares(seed: int, spend: cl.Loss, people: int, right: list[float], each: int) -> Evaluation:
    """Of people who are right or wrong in all of their rows."""
    chance = np.random.default_rng(seed)
    groups = chance.integers(0, len(right), people)
    groups[: len(right)] = range(len(right))
    hit = chance.random(people) < np.array(right)[groups]
    trial = Made(np.repeat(hit, each).astype(int), np.repeat(groups, each), each)
    return evaluate(Noisy(f"{seed} {spend}"), spend, Constant(1), trial)  # type: ignore[arg-type]


def medians(seed: int, spend: cl.Loss, people: int, scales: list[float], each: int) -> Evaluation:
    """Of people who are equally far from 0 in all of their rows; within 0 to 100."""
    chance = np.random.default_rng(seed)
    groups = chance.integers(0, len(scales), people)
    groups[: len(scales)] = range(len(scales))
    away = chance.exponential(np.array(scales)[groups])
    trial = Made(np.repeat(away, each), np.repeat(groups, each), each, (0.0, 100.0))
    return evaluate(Noisy(f"{seed} {spend}"), spend, Constant(0), trial)  # type: ignore[arg-type]


def hold(figures: list[Interval | None], truth: float) -> bool:
    """Whether no more of the intervals that were given miss the truth than one in twenty and two deviations of that."""
    told = [one for one in figures if one is not None and one.value is not None]
    for one in told:
        assert one.low <= one.value <= one.high  # type: ignore[operator]
    missed = sum(not one.low <= truth <= one.high for one in told)  # type: ignore[operator]
    return missed <= 0.05 * len(told) + 2 * np.sqrt(0.0475 * len(told))


@pytest.mark.parametrize("spend", SPENDS, ids=str)
@pytest.mark.parametrize(("people", "right", "each"), [(60, 0.98, 1), (60, 1.0, 1), (30, 0.5, 1), (400, 0.8, 8)])
def test_accuracies_are_held(spend: cl.Loss, people: int, right: float, each: int) -> None:
    found = [shares(seed, spend, people, [right], each) for seed in range(RUNS)]
    assert hold([one.overall for one in found], right)
    assert hold([one.rows for one in found], people * each)


@pytest.mark.parametrize("spend", SPENDS, ids=str)
@pytest.mark.parametrize("right", [[0.8] * 20, [0.9, 0.9, 0.6], [0.5, 0.99]])
def test_gaps_are_held_whichever_groups_are_best_and_worst(spend: cl.Loss, right: list[float]) -> None:
    found = [shares(seed, spend, 2000, right, 1) for seed in range(RUNS)]
    complete = [one for one in found if all(group.value is not None for group in one.groups.values())]
    assert hold([one.gap for one in complete], max(right) - min(right))
    assert hold([one.chosen_gap for one in complete], 0.0)  # 1 is said to everybody


@pytest.mark.parametrize("spend", SPENDS, ids=str)
@pytest.mark.parametrize(("scales", "each"), [([5.0], 1), ([5.0], 8), ([5.0] * 5, 1), ([1.0, 20.0], 1)])
def test_medians_and_their_gaps_are_held(spend: cl.Loss, scales: list[float], each: int) -> None:
    found = [medians(seed, spend, 500, scales, each) for seed in range(RUNS)]
    for place, scale in enumerate(scales):
        assert hold([one.groups[str(place)] for one in found], scale * np.log(2))
    complete = [one for one in found if all(group.value is not None for group in one.groups.values())]
    if len(scales) > 1:
        assert hold([one.gap for one in complete], (max(scales) - min(scales)) * np.log(2))


@pytest.mark.parametrize("labels", [("a", "missing", None), ("missing", "missing, no entry", None)])
def test_people_without_an_entry_are_a_group_beside_a_category_called_missing(labels: tuple[Any, ...]) -> None:
    class Named(Made):
        @property
        def labels(self) -> tuple[Any, ...]:
            return labels

    groups = np.arange(6000) % 3
    for ends, goal in ((None, (groups != 1).astype(int)), ((0.0, 100.0), np.where(groups == 1, 50.0, 0.0))):
        answer = Constant(1 if ends is None else 0)
        told = evaluate(Noisy("1"), cl.rho(10**4), answer, Named(goal, groups, 1, ends))  # type: ignore[arg-type]
        values = [figure.value for figure in told.groups.values()]
        assert len(values) == 3
        assert abs(values[1] - values[0]) > 0.9
        assert values[2] == pytest.approx(values[0], abs=0.05)
        assert told.gap is not None
        assert told.gap.high > 0.9


def test_intervals_of_many_rows_are_narrow() -> None:
    found = shares(1, cl.rho(1), 20_000, [0.8, 0.9], 1)
    for one in (found.overall, *found.groups.values()):
        assert one.high - one.low < 0.03  # type: ignore[operator]
    assert found.gap is not None
    assert 0.07 < found.gap.low < 0.1 < found.gap.high < 0.13  # type: ignore[operator]
