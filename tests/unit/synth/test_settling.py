"""Rows that exchange values: closer to the model in all triples, the same in every column, and no rule broken."""

from itertools import combinations

import numpy as np
import pytest

from cloister.synth.domain.domain import Zero
from cloister.synth.model import swap_refinement
from cloister.synth.model.inference import Grain, Model, propagate
from cloister.synth.model.junction_tree import junction_tree
from cloister.synth.model.sampling import draw

SHAPE = (4, 5, 3, 6, 4, 2)
SETS = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
ROWS = 3000


def chain(zeros=()):
    factors = np.random.default_rng(8)
    sets = [*SETS, *(zero.positions for zero in zeros)]
    model = Model(SHAPE, junction_tree(SHAPE, sets), {}, tuple(zeros), 500.0, tuple(map(Grain.whole, SHAPE)))
    for pair in SETS:
        model.factors[pair] = factors.normal(0, 1.5, [SHAPE[position] for position in pair])
    model.beliefs = propagate(model)
    return model


def distance(cells, model, positions):
    """Half the L1 distance between rows and what the model expects of them."""
    sides = [SHAPE[position] for position in positions]
    found = np.bincount(np.ravel_multi_index(cells[:, positions].T, sides), minlength=np.prod(sides)) / len(cells)
    return np.abs(found - model.marginal(positions).ravel() / model.total).sum() / 2


def drawn(model, monkeypatch, passes, rows=ROWS):
    monkeypatch.setattr(swap_refinement, "_PASSES", passes)
    return draw(model, rows, np.random.default_rng(4))


def test_triples_come_closer_to_the_model_and_pairs_do_not_go_farther(monkeypatch):
    model = chain()
    before, after = drawn(model, monkeypatch, 0), drawn(model, monkeypatch, 8)
    for size, least in ((3, 0.7), (2, 1.0)):
        sets = list(combinations(range(len(SHAPE)), size))
        was, now = (np.mean([distance(cells, model, positions) for positions in sets]) for cells in (before, after))
        assert now < least * was


def test_columns_by_themselves_stay_as_they_were(monkeypatch):
    model = chain()
    before, after = drawn(model, monkeypatch, 0), drawn(model, monkeypatch, 8)
    assert (before != after).any()
    assert (np.sort(before, axis=0) == np.sort(after, axis=0)).all()


@pytest.mark.parametrize("positions", [(0, 3), (1, 3, 4), (0, 1, 3, 5)])
def test_no_exchange_brings_about_what_never_occurs(monkeypatch, positions):
    """Also of four columns, which no triple shows."""
    allowed = np.random.default_rng(2).random([SHAPE[position] for position in positions]) < 0.7
    cells = drawn(chain([Zero(positions, allowed)]), monkeypatch, 8)
    assert allowed[tuple(cells[:, position] for position in positions)].all()


def test_the_gaps_that_are_kept_are_those_of_the_rows(monkeypatch):
    """What exchanges were weighed by is what a count of the settled rows finds."""
    model = chain()
    cells = drawn(model, monkeypatch, 0)
    kept = []
    real = swap_refinement._triples
    monkeypatch.setattr(swap_refinement, "_triples", lambda *of: kept.append(real(*of)) or kept[0])
    monkeypatch.setattr(swap_refinement, "_PASSES", 3)
    swap_refinement.settle(cells, model, np.random.default_rng(1))
    np.testing.assert_allclose(kept[0].gap, real(cells, model).gap, atol=1e-2)


@pytest.mark.parametrize("rows", [0, 1, 2, 7])
def test_few_rows_are_no_trouble(monkeypatch, rows):
    assert drawn(chain(), monkeypatch, 2, rows).shape == (rows, len(SHAPE))


def test_rows_of_a_table_too_large_to_settle_stay_as_they_were_drawn(monkeypatch):
    model = chain()
    before = drawn(model, monkeypatch, 0)
    monkeypatch.setattr(swap_refinement, "_MOST_CELLS", 100)
    assert (drawn(model, monkeypatch, 8) == before).all()


@pytest.mark.parametrize("columns", [4, 5])
def test_what_was_measured_of_four_columns_is_not_undone(columns):
    """The fourth column is the parity of three, of which no triple tells."""
    positions, shape = (0, 1, 2, 3), (2,) * columns
    odd = np.indices((2,) * 4).sum(axis=0) % 2
    model = Model(shape, junction_tree(shape, [positions]), {}, (), 500.0, tuple(map(Grain.whole, shape)))
    model.factors[positions] = np.where(odd == 0, 0.0, -4.0)
    model.beliefs = propagate(model)
    cells = draw(model, 4000, np.random.default_rng(5))
    expected = 1 / (1 + np.exp(-4))
    assert np.mean(cells[:, :4].sum(axis=1) % 2 == 0) == pytest.approx(expected, abs=0.01)
