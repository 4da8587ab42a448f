"""Rows drawn from a model: as often as expected, in the columns that a clique holds and in the others."""

import numpy as np
import pytest

from cloister.synth.domain.axis import Axis
from cloister.synth.domain.coarsening import smoothed
from cloister.synth.model.sampling import systematic

GENERATOR = np.random.default_rng(3)


def test_values_come_as_often_as_expected_but_for_rounding():
    group = GENERATOR.integers(0, 5, 4000)
    table = GENERATOR.random((5, 7))
    table[2, 3] = 0.0
    drawn = systematic(table, group, GENERATOR, [GENERATOR.integers(0, 9, 4000) for _ in range(5)])
    for one in range(5):
        counts = np.bincount(drawn[group == one], minlength=7)
        expected = table[one] / table[one].sum() * (group == one).sum()
        assert (np.abs(counts - expected) < 1 + 1e-9).all()
    assert not ((group == 2) & (drawn == 3)).any()


def test_values_go_with_other_columns_more_evenly_than_by_chance():
    rows, shares = 20_000, np.array([[0.5, 0.3, 0.15, 0.05]])
    other = GENERATOR.integers(0, 30, rows)
    group = np.zeros(rows, dtype=np.int64)

    def off(*others):
        drawn = systematic(shares, group, GENERATOR, others)
        joint = np.histogram2d(other, drawn, bins=[np.arange(31), np.arange(5)])[0]
        return np.abs(joint - np.bincount(other)[:, None] * shares).sum() / rows

    by_chance = np.mean([off() for _ in range(5)])
    assert off(other) < 0.25 * by_chance
    assert off(other, GENERATOR.integers(0, 3, rows)) < 0.25 * by_chance


def test_a_row_has_each_value_as_often_as_its_group_says():
    group, other = np.zeros(3, dtype=np.int64), np.array([0, 1, 1])
    drawn = np.array([systematic(np.array([[0.2, 0.8]]), group, GENERATOR, [other]) for _ in range(3000)])
    assert drawn.mean(axis=0) == pytest.approx([0.8] * 3, abs=0.04)


def test_no_rows_are_drawn_from_a_model_that_is_asked_for_none():
    assert systematic(np.ones((2, 3)), np.zeros(0, dtype=np.int64), GENERATOR, [np.zeros(0, dtype=np.int64)]).size == 0


def test_bins_of_two_and_of_three_values_are_alike_for_each_value():
    axis = Axis("age", "integer", ends=(*np.linspace(17, 91, 33)[:-1], 90.0))
    true = axis.widths * 400.0
    assert len(set(axis.widths)) == 2
    noisy = true + np.random.default_rng(1).normal(0, 300, axis.size)
    better = smoothed(axis, noisy, 300.0)
    assert np.abs(better - true).sum() < 0.4 * np.abs(noisy - true).sum()
