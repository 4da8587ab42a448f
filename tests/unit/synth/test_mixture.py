"""Hidden classes: marginals by brute force, rules, conditions, and a questionnaire."""

from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.privacy.errors import BadInput
from cloister.synth.domain.domain import Zero
from cloister.synth.model import latent
from cloister.synth.model.latent import Block, LatentClasses

RULE = Zero((0, 2), np.array([[True, True], [True, False], [True, True]]))


def small() -> LatentClasses:
    """Three classes over columns of 3, 4 and 2 cells; the first and the last never come as (1, 1)."""
    random = np.random.default_rng(3)
    blocks = (Block((0, 2), (3, 2), np.array([0, 1, 2, 4, 5])), Block((1,), (4,), np.arange(4)))
    chances = tuple(random.dirichlet(np.ones(len(one.cells)), 3) for one in blocks)
    return LatentClasses(np.array([0.5, 0.3, 0.2]), chances, blocks, (3, 4, 2), (RULE,), 1000.0)


def brute(model: LatentClasses) -> np.ndarray:
    """Rows in every cell, one class and one cell after the other."""
    tied = model.blocks[0].cells.tolist()
    joint = np.zeros(model.shape)
    for c, (a, b, k) in product(range(3), product(*map(range, model.shape))):
        if 2 * a + k in tied:
            joint[a, b, k] += model.shares[c] * model.chances[0][c, tied.index(2 * a + k)] * model.chances[1][c, b]
    return model.total * joint


@pytest.mark.parametrize("positions", [one for k in (1, 2, 3) for one in combinations(range(3), k)])
def test_marginals_are_those_of_all_cells_added_up(positions):
    model = small()
    others = tuple(position for position in range(3) if position not in positions)
    assert model.marginal(positions) == pytest.approx(brute(model).sum(axis=others))


def test_rows_come_as_often_as_expected_and_break_no_rule():
    model = small()
    rows = model.draw(40_000, np.random.default_rng(0))
    assert RULE.allowed[rows[:, 0], rows[:, 2]].all()
    found = np.zeros(model.shape)
    np.add.at(found, tuple(rows.T), 1)
    assert np.abs(found / len(rows) - brute(model) / model.total).sum() < 0.01


def test_a_condition_narrows_the_model_and_nothing_else():
    model, allowed = small(), {0: np.array([False, True, True]), 1: np.array([True, False, False, True])}
    rows = model.draw(40_000, np.random.default_rng(1), allowed)
    wanted = brute(model)
    wanted[0], wanted[:, 1:3] = 0, 0
    found = np.zeros(model.shape)
    np.add.at(found, tuple(rows.T), 1)
    assert np.abs(found / len(rows) - wanted / wanted.sum()).sum() < 0.02
    with pytest.raises(BadInput, match="no row of the model meets"):
        model.draw(10, np.random.default_rng(1), {0: np.array([False, True, False]), 2: np.array([False, True])})


NAMES = [f"q{i}" for i in range(12)]
ANSWERS = {"type": "text", "categories": ["a", "b", "c", "d"], "nullable": False}
SCHEMA = {"unit": "row", "tables": {"answers": {"columns": dict.fromkeys(NAMES, ANSWERS)}}}


def answers(rows: int) -> pa.Table:
    """A questionnaire of people of five kinds: every two questions hang together."""
    random = np.random.default_rng(7)
    kinds = random.integers(0, 5, rows)
    usual = random.integers(0, 4, (5, len(NAMES)))
    cells = np.where(random.random((rows, len(NAMES))) < 0.8, usual[kinds], random.integers(0, 4, (rows, len(NAMES))))
    return pa.table({name: np.array(list("abcd"))[cells[:, i]] for i, name in enumerate(NAMES)})


def far(real: pa.Table, made: pa.Table) -> float:
    """The mean half L1 distance over all triples."""
    tables = []
    for rows in (real, made):
        cells = np.column_stack([np.searchsorted(list("abcd"), rows[name].to_numpy()) for name in NAMES])
        every = [cells[:, list(one)] @ [16, 4, 1] for one in combinations(range(len(NAMES)), 3)]
        tables.append(np.array([np.bincount(one, minlength=64) / len(cells) for one in every]))
    return 0.5 * float(np.abs(tables[0] - tables[1]).sum(axis=1).mean())


def test_of_many_columns_that_all_hang_together_classes_make_better_tables_than_a_tree(tmp_path):
    real = answers(4000)
    ds = cl.open(real, schema=SCHEMA, budget=cl.rho(100), ledger=tmp_path)
    told = {"spend": cl.rho("0.02"), "rows": 4000, "random_state": 5}
    mixture, tree = (far(real, getattr(synth, one)(ds, **told).to_arrow()) for one in ("mixture", "mst"))
    assert mixture < 0.6 * tree


def test_columns_of_many_values_are_refused_before_the_charge(tmp_path):
    wide = {"type": "integer", "bounds": [0, 10_000], "nullable": False}
    schema = {"unit": "row", "tables": {"t": {"columns": {"a": wide, "b": wide}}}}
    ds = cl.open(pa.table({"a": [1, 2], "b": [3, 4]}), schema=schema, budget=cl.rho(1), ledger=tmp_path)
    with pytest.raises(BadInput, match=r"columns of few values.*synth\.aim"):
        synth.mixture(ds, spend=cl.rho("0.1"), bins=3000)
    with pytest.raises(BadInput, match="fits is a whole number"):
        synth.mixture(ds, spend=cl.rho("0.1"), fits=0)
    assert ds.left == cl.rho(1)


def test_one_column_needs_no_pairs(tmp_path):
    ds = cl.open(answers(500), schema=SCHEMA, budget=cl.rho(10), ledger=tmp_path)
    made = synth.mixture(ds, spend=cl.rho(2), columns=["q3"], rows=500, fits=1)
    true = np.unique(answers(500)["q3"].to_numpy(), return_counts=True)[1]
    assert np.unique(made.to_arrow()["q3"].to_numpy(), return_counts=True)[1] == pytest.approx(true, abs=12)


def test_what_a_model_cannot_follow_is_in_its_expected_error(tmp_path, monkeypatch):
    """One class is independent columns, whatever was measured of pairs, and however exactly."""
    real = answers(2000)
    ds = cl.open(real, schema=SCHEMA, budget=cl.rho(10**6), ledger=tmp_path)
    monkeypatch.setattr(latent, "_CLASSES", 1)
    made = synth.mixture(ds, spend=cl.rho(10**5), rows=2000, columns=["q0", "q1"], fits=1, random_state=1)
    true = np.zeros((4, 4))
    np.add.at(true, tuple(np.searchsorted(list("abcd"), real[name].to_numpy()) for name in ("q0", "q1")), 1 / 2000)
    off = 0.5 * np.abs(true - np.outer(true.sum(axis=1), true.sum(axis=0))).sum()
    assert made.error(["q0", "q1"]).error == pytest.approx(off, rel=0.2)
    assert off > 0.2
