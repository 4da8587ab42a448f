"""Timing: a call whose time depends on the input is told apart, one that does not is not."""

import itertools

import pytest

from cloister.attack.queries.timing import timing
from cloister.privacy.errors import BadInput
from cloister.privacy.noise import SeededSource


class Clock:
    """A clock that goes on by as much as the calls take, with noise."""

    def __init__(self) -> None:
        self.now, self.source = 0.0, SeededSource("clock")

    def __call__(self) -> float:
        return self.now

    def take(self, seconds: float) -> None:
        self.now += seconds * (1 + float(self.source.floats(1)[0]))


@pytest.mark.parametrize("slower", ["left", "right"])
def test_a_time_that_depends_on_the_input_tells_it(slower):
    clock = Clock()
    found = timing(lambda data: clock.take(3 if data == slower else 1), "left", "right", runs=200, clock=clock)
    assert found.learned
    assert found.roc.auc > 0.99
    assert found.success > 0.95


def test_equal_times_tell_nothing():
    clock = Clock()
    found = timing(lambda data: clock.take(1), 0, 1, runs=400, clock=clock)
    assert not found.learned
    assert 0.4 < found.roc.auc < 0.6


def test_both_inputs_are_asked_equally_often_and_take_turns():
    asked = []
    timing(asked.append, 0, 1, runs=20, clock=itertools.count().__next__)
    assert asked.count(0) == asked.count(1) == 23
    assert all({asked[place], asked[place + 1]} == {0, 1} for place in range(0, 46, 2))
    assert asked[0] != asked[2]


def test_progress_ends_at_the_last_pairs():
    told = []
    timing(
        lambda data: None, 0, 1, runs=21, clock=itertools.count().__next__, progress=lambda *facts: told.append(facts)
    )
    assert told[-1] == (1.0, "21 of 21 pairs of calls")


@pytest.mark.parametrize("runs", [9, True, 2.5])
def test_a_number_of_runs_is_checked(runs):
    with pytest.raises(BadInput, match="runs"):
        timing(lambda data: None, 0, 1, runs=runs)
