"""AIM: measures where the model is worst, within the spend, and keeps what the schema says of every row."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister.data.schema import Schema
from cloister.privacy.errors import BadInput
from cloister.synth.domain.coarsening import ladder_of, smoothed
from cloister.synth.domain.resolution import Resolution

ROWS = 4000
_g = np.random.default_rng(21)
A = _g.integers(0, 6, ROWS)
B = (A + _g.integers(0, 2, ROWS)) % 6
C = ((A + B) % 2 + (_g.random(ROWS) < 0.1)) % 2
N = np.clip(np.round(A * 12 + _g.normal(0, 6, ROWS)), 0, 80).astype(np.int64)
TABLE = pa.table({"a": A, "b": B, "c": C, "n": N, "id": [f"x{i}" for i in range(ROWS)]})
COLUMNS = {
    "a": {"type": "integer", "bounds": [0, 5], "nullable": False},
    "b": {"type": "integer", "bounds": [0, 5], "nullable": False},
    "c": {"type": "integer", "categories": [0, 1], "nullable": False},
    "n": {"type": "integer", "bounds": [0, 80], "nullable": False},
    "id": {"type": "text", "nullable": False},
}


def opened(folder, rows=TABLE, budget=None, **table):
    schema = Schema.load({"unit": "row", "tables": {"things": {"columns": COLUMNS, **table}}})
    return cl.open(rows, schema=schema, budget=budget or cl.rho(100), ledger=folder)


def gap(table, columns):
    """Half the L1 distance between the real and the synthetic marginal."""
    real, made = table.domain.encode(TABLE), table.cells()
    positions = [table.domain.names.index(name) for name in columns]
    shape = [table.domain.axes[position].size for position in positions]
    found, true = np.zeros(shape), np.zeros(shape)
    np.add.at(found, tuple(made[:, position] for position in positions), 1 / len(made))
    np.add.at(true, tuple(real[:, position] for position in positions), 1 / len(real))
    return 0.5 * float(np.abs(found - true).sum())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return cl.synth.aim(opened(tmp_path_factory.mktemp("aim")), spend=cl.rho(2), rows=ROWS, bins=20)


def test_what_three_columns_have_to_do_with_each_other_is_found(made):
    assert gap(made, ("a", "b", "c")) < 0.06
    assert gap(made, ("a", "n")) < 0.12


def test_it_is_better_than_independent_columns(made, tmp_path):
    floor = cl.synth.independent(opened(tmp_path), spend=cl.rho(2), rows=ROWS, bins=20)
    assert gap(made, ("a", "b", "n")) < 0.5 * gap(floor, ("a", "b", "n"))


def test_measurements_say_why(made):
    assert all("in " in words and "cells" in words for words in made.made.chosen)
    assert any("farthest" in one.why for one in made.made.measured)


@pytest.mark.parametrize("spend", [cl.rho("0.5"), cl.epsilon("0.5"), cl.epsilon(1, delta="1e-9")])
def test_every_kind_of_spend_is_charged_exactly(tmp_path, spend):
    data = opened(tmp_path, budget=cl.epsilon(1) if spend.is_pure else cl.rho(10))
    table = cl.synth.aim(data, spend=spend, rows=50, columns=["a", "b", "c"])
    assert data.account.spent.amount == table.loss.amount
    assert table.receipt.body["parameters"]


def test_a_workload_says_what_matters(tmp_path):
    table = cl.synth.aim(
        opened(tmp_path), spend=cl.rho(1), rows=100, columns=["a", "b", "c", "n"], workload={("a", "n"): 1.0}
    )
    assert {words.partition(" in ")[0] for words in table.made.chosen} == {"a and n"}


def test_errors_of_a_workload_are_told(tmp_path):
    asked = {("a", "n", "b"): 1.0}
    table = cl.synth.aim(opened(tmp_path), spend=cl.rho(1), rows=100, columns=["a", "b", "c", "n"], workload=asked)
    told = {tuple(one["columns"]): one["error"] for one in table.side["expected error"]["marginals"]}
    assert 0 < told["a", "b", "n"] <= 1
    assert ("a", "c", "n") not in told


def test_a_wrong_workload_is_said_before_the_charge(tmp_path):
    data = opened(tmp_path)
    with pytest.raises(BadInput, match="workload"):
        cl.synth.aim(data, spend=cl.rho(1), workload=[("a", "nothing")])
    assert not data.account.spent.amount


def test_rules_of_the_schema_hold_in_every_row(tmp_path):
    rules = {"never": [{"a": 0, "n": {"from": 30}}, {"b": [4, 5], "c": 1}], "determines": ["a -> b"]}
    data = opened(tmp_path, never=rules["never"][:1], determines=rules["determines"])
    table = cl.synth.aim(data, spend=cl.rho("0.05"), rows=20_000)
    frame = table.to_pandas()
    assert not ((frame["a"] == 0) & (frame["n"] >= 30)).any()
    assert (frame.groupby("a")["b"].nunique() == 1).all()
    assert frame["id"].is_unique


def test_the_model_stays_within_its_size(tmp_path):
    table = cl.synth.aim(opened(tmp_path), spend=cl.rho(1), rows=10, most_cells=300)
    assert sum(belief.size for belief in table.made.model.beliefs) <= 300


def test_people_with_several_rows_are_protected_together(tmp_path):
    schema = Schema.load(
        {
            "unit": {"name": "person", "max_rows": 2},
            "tables": {"things": {"unit": "person", "columns": {name: COLUMNS[name] for name in ("a", "b", "c")}}},
        }
    )
    rows = TABLE.select(["a", "b", "c"]).append_column("person", pa.array(np.arange(ROWS) // 3))
    data = cl.open(rows, schema=schema, budget=cl.rho(10), ledger=tmp_path)
    table = cl.synth.aim(data, spend=cl.rho(1))
    # Three rows of each person count for two.
    assert len(table) == pytest.approx(ROWS * 2 / 3, rel=0.05)
    assert str(table.unit) == "one person (at most 2 rows)"


def test_progress_rises_to_the_end(tmp_path):
    told = []
    cl.synth.aim(
        opened(tmp_path),
        spend=cl.rho("0.1"),
        rows=10,
        columns=["a", "b"],
        progress=lambda share, word: told.append(share),
    )
    assert told == sorted(told)
    assert told[0] == 0.0
    assert told[-1] == 1.0


def test_coarser_levels_are_made_of_finer_ones(made):
    domain, singles = made.domain, [one for one in made.made.measured if one.why == "every column"]
    resolution = Resolution.of(domain, singles, ROWS, 3.0)
    for position in range(len(domain.shape)):
        for finer, coarser in zip(resolution.maps[position], resolution.maps[position][1:], strict=False):
            together = {}
            for one, other in zip(finer.tolist(), coarser.tolist(), strict=True):
                assert together.setdefault(one, other) == other
        maps = zip(resolution.maps[position], resolution.inside[position], strict=True)
        assert all(np.bincount(groups, parts).round(9).tolist() == [1.0] * (groups.max() + 1) for groups, parts in maps)
        ladder = ladder_of(
            domain.modelled[position], resolution.base[position], np.ones(resolution.base[position].size)
        )
        assert [groups.max() + 1 <= most for groups, most in zip(ladder, (16, 8, 4, 2), strict=True)] == [True] * 4


def test_refining_keeps_the_distribution(made):
    domain, singles = made.domain, [one for one in made.made.measured if one.why == "every column"]
    resolution = Resolution.of(domain, singles, ROWS, 3.0)
    factors: dict = {}
    resolution.refine((0, 3), 2, factors)
    coarse = np.exp(factors[(0,)])
    resolution.refine((0,), 0, factors)
    fine = np.exp(factors[(0,)])
    assert fine.sum() == pytest.approx(coarse.sum(), rel=1e-4)
    assert resolution.level[0] == 0
    assert resolution.level[3] == 2


def test_smoothing_levels_noise_and_keeps_peaks(made):
    axis = made.domain.axis("n")
    true = np.full(axis.size, 100.0)
    true[axis.size // 2] = 5000.0
    noisy = true + np.random.default_rng(0).normal(0, 60, axis.size)
    better = smoothed(axis, noisy, 60.0)
    assert np.abs(better - true).sum() < 0.9 * np.abs(noisy - true).sum()
    assert better[axis.size // 2] > 4500


def test_the_spend_is_used_up_by_steps_that_are_counted(tmp_path):
    data = opened(tmp_path)
    table = cl.synth.aim(data, spend=cl.rho("0.5"), rows=10, columns=["a", "b", "c"])
    steps = table.receipt.body["parameters"]
    chosen = sum(int(one["times"]) for one in steps if one["mechanism"] == "exponential")
    assert chosen == len(table.made.chosen)
    assert table.loss.amount == Fraction(1, 2)


@pytest.mark.parametrize("weight", [math.inf, math.nan, 1e300, 1e-300, 0.0, -1.0])
def test_a_weight_that_makes_choices_meaningless_is_refused_before_the_charge(tmp_path, weight):
    data = opened(tmp_path)
    left = data.left
    with pytest.raises(BadInput, match="a workload's weight is a number from 1e-09"):
        cl.synth.aim(data, spend=cl.rho(1), workload={("a", "b"): weight, ("a", "c"): 1.0})
    assert data.left == left
