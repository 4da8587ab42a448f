"""A tree of pairs: spanning, strongest first, and charged to the last part."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister.data.schema import Schema

ROWS = 3000
_g = np.random.default_rng(11)
A = _g.integers(0, 4, ROWS)
B = np.where(_g.random(ROWS) < 0.9, A, _g.integers(0, 4, ROWS))
C = np.where(_g.random(ROWS) < 0.8, B, _g.integers(0, 4, ROWS))
D = _g.integers(0, 3, ROWS)
TABLE = pa.table({"a": A, "b": B, "c": C, "d": D})
COLUMNS = {
    name: {"type": "integer", "bounds": [0, 2 if name == "d" else 3], "nullable": False}
    for name in ("a", "b", "c", "d")
}
SCHEMA = Schema.load({"unit": "row", "tables": {"things": {"columns": COLUMNS}}})


def opened(folder, rows=TABLE):
    return cl.open(rows, schema=SCHEMA, budget=cl.rho(100), ledger=folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return cl.synth.mst(opened(tmp_path_factory.mktemp("mst")), spend=cl.rho(2), rows=ROWS)


def test_the_tree_spans_all_columns_and_has_the_strong_pairs(made):
    pairs = {tuple(words.split(" and ")) for words in made.made.chosen}
    assert len(pairs) == 3
    assert {"a", "b", "c", "d"} == {name for pair in pairs for name in pair}
    assert {("a", "b"), ("b", "c")} <= pairs


def test_pairs_of_the_tree_look_like_the_real_ones(made):
    cells = made.cells()
    for x, y, real in ((0, 1, (A, B)), (1, 2, (B, C))):
        found, true = np.zeros((4, 4)), np.zeros((4, 4))
        np.add.at(found, (cells[:, x], cells[:, y]), 1)
        np.add.at(true, real, 1)
        assert 0.5 * np.abs(found - true).sum() / ROWS < 0.05


def test_what_the_tree_implies_is_there_too(made):
    cells = made.cells()
    agree = float((cells[:, 0] == cells[:, 2]).mean())
    assert agree == pytest.approx(float((A == C).mean()), abs=0.05)


def test_the_review_says_how_good_it_is(made):
    assert made.made.review.ways[1] < 0.05


@pytest.mark.parametrize("spend", [cl.rho("0.5"), cl.epsilon("0.5"), cl.epsilon(1, delta="1e-9")])
def test_every_kind_of_spend_is_charged_exactly(tmp_path, spend):
    budget = cl.epsilon(1) if spend.is_pure else cl.rho(10)
    data = cl.open(TABLE, schema=SCHEMA, budget=budget, ledger=tmp_path)
    table = cl.synth.mst(data, spend=spend, rows=10)
    assert data.account.spent.amount == table.loss.amount
    steps = table.receipt.body["parameters"]
    assert sum(int(one["times"]) for one in steps if one["mechanism"] == "exponential") == 3


def test_one_column_needs_no_tree(tmp_path):
    table = cl.synth.mst(opened(tmp_path), spend=cl.rho("0.5"), rows=10, columns=["a"])
    assert table.made.chosen == []
    assert table.to_arrow().column_names == ["a"]


def test_an_empty_table_gives_rows_too(tmp_path):
    table = cl.synth.mst(opened(tmp_path, TABLE.slice(0, 0)), spend=cl.rho("0.5"), rows=25)
    assert len(table) == 25


def test_the_number_of_rows_is_bought_if_it_is_not_given(tmp_path):
    table = cl.synth.mst(opened(tmp_path), spend=cl.rho(5))
    assert len(table) == pytest.approx(ROWS, rel=0.02)
    assert table.loss.amount == Fraction(5)
