"""Cuts that are bought inside the spend: where rows are, within the bounds, and paid for."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.data.schema import Schema
from cloister.privacy.errors import BadBounds, BadInput, BadSchema
from cloister.synth.domain.axis import Axis
from cloister.synth.domain.cuts import quantile_cuts

from .people import opened, people
from .transcripts import moved, recorded, replayed

WIDE = Schema.load(
    {
        "unit": "row",
        "tables": {
            "pay": {
                "columns": {
                    "wage": {"type": "real", "bounds": [0, 10000], "nullable": False},
                    "years": {"type": "integer", "bounds": [0, 100], "nullable": False},
                    "kind": {"type": "text", "categories": ["a", "b"], "nullable": False},
                }
            }
        },
    }
)


def pay(rows: int = 3000) -> pa.Table:
    generator = np.random.default_rng(2)
    years = generator.integers(20, 30, rows)
    wage = 900 + 40 * years + generator.normal(0, 60, rows)
    return pa.table({"wage": wage, "years": years, "kind": np.where(years > 25, "a", "b")})


def test_bought_cuts_lie_where_rows_are_and_cost_what_they_say(tmp_path):
    ds = cl.open(pay(), schema=WIDE, budget=cl.rho(100), ledger=tmp_path)
    plain = synth.mst(ds, spend=cl.rho(1), bins=8, rows=3000, random_state=1)
    assert ds.left == cl.rho(99)
    made = synth.mst(ds, spend=cl.rho(1), bins=synth.PrivateCuts(8), rows=3000, random_state=1)
    assert ds.left == cl.rho(98)
    assert made.made.chosen[0] == "cuts of wage, years"
    inner = np.array(made.domain.axis("wage").ends[1:-1])
    assert ((inner > 1400) & (inner < 2400)).mean() > 0.6
    assert made.domain.axis("wage").ends[0] == 0
    assert made.domain.axis("wage").ends[-1] == 10000
    spread = [float(np.std(one.to_arrow()["wage"].to_numpy())) for one in (plain, made)]
    assert abs(spread[1] - 130) < abs(spread[0] - 130), "bins at quantiles are no better than equal ones"


@pytest.mark.parametrize(
    "name", ["histogram", "m_way", "independent", "privbayes", "mixture", "mwem", "mggm", "ron_gauss", "aim"]
)
def test_every_generator_takes_bought_cuts(name, tmp_path):
    ds = cl.open(pay(500), schema=WIDE, budget=cl.rho(100), ledger=tmp_path)
    own: dict[str, Any] = {"column": "wage"} if name == "histogram" else {}
    made = getattr(synth, name)(ds, spend=cl.rho(1), bins=synth.PrivateCuts(6), rows=50, **own)
    assert len(made) == 50
    assert ds.left == cl.rho(99)


def test_rules_of_the_schema_hold_with_bought_cuts_too(tmp_path):
    made = synth.mst(opened(tmp_path, people(500)), spend=cl.rho(1), bins=synth.PrivateCuts(7), rows=2000)
    frame = made.to_pandas()
    assert not ((frame.ward == "maternity") & (frame.age >= 60)).any()


def test_one_row_moves_the_histograms_by_no_more_than_their_noise(tmp_path, monkeypatch):
    rows = people(200)
    first, other = opened(tmp_path / "a", rows), opened(tmp_path / "b", rows.slice(1))
    bins = synth.PrivateCuts(5, share="1/4")
    _, run = recorded(monkeypatch, lambda: synth.independent(first, spend=cl.rho(9), bins=bins, rows=5))
    _, more = replayed(monkeypatch, run, lambda: synth.independent(other, spend=cl.rho(9), bins=bins, rows=5))
    assert all(moved(one, two) <= 1 for one, two in zip(run.steps, more.steps, strict=True))
    assert run.steps[0].mechanism.loss.amount <= cl.rho("9/4").amount
    assert run.spent["rho"] <= 9


def test_quantiles_that_coincide_are_one():
    axis = Axis("x", "real", ends=tuple(float(i) for i in range(11)))
    counts = np.zeros(10)
    counts[3] = 1000
    cuts = quantile_cuts(axis, counts, 1.0, 5)
    assert cuts[0] == 3
    assert cuts[-1] == 4
    whole = Axis("n", "integer", ends=tuple(float(i) for i in range(11)))
    few = Axis("n", "integer", values=tuple(range(10)))
    for one in (whole, few):
        assert quantile_cuts(one, np.ones(10) * 50, 1.0, 7) == [2, 4, 6, 8]
        assert len(quantile_cuts(one, counts, 1.0, 5)) >= 2
        assert quantile_cuts(one, np.ones(10), 50.0, 7) == [2, 4, 6, 8], "noise alone says nothing"


@pytest.mark.parametrize("wrong", [{"bins": 2}, {"bins": True}, {"share": "1"}, {"share": 0}])
def test_impossible_cuts_are_refused(wrong):
    with pytest.raises(BadBounds):
        synth.PrivateCuts(**wrong)


def test_a_condition_that_all_bought_bins_meet_is_answered_and_not_refused_after_the_charge(tmp_path):
    # Of three equal bins of wages only the first is below 3,000; all that are bought lie where rows are, below it.
    ds = cl.open(pay(), schema=WIDE, budget=cl.rho(100), ledger=tmp_path)
    asked = [{"wage": {"below": 3000}}, {"wage": {"below": 3000}, "kind": "a"}]
    told = {"workload": asked, "bins": synth.PrivateCuts(3), "columns": ["wage", "kind"], "random_state": 1}
    made = synth.mwem(ds, spend=cl.rho(20), rows=3000, **told)
    assert made.domain.axis("wage").cells_of(asked[0]["wage"]).all()
    assert len(made.side["expected error"]["queries"]) == 2
    kinds = made.to_arrow()["kind"].to_pylist()
    assert abs(kinds.count("a") - pay()["kind"].to_pylist().count("a")) < 150
    with pytest.raises(BadInput, match="some cells meet"):  # what is known before the charge is refused before it
        synth.mwem(ds, spend=cl.rho(20), workload=[{"wage": {"from": 0}}], bins=synth.PrivateCuts(3))
    assert ds.left == cl.rho(80)


def test_a_rule_over_three_numbers_does_not_lose_the_spend_of_bought_cuts(tmp_path):
    generator = np.random.default_rng(0)
    columns = {name: {"type": "integer", "bounds": [0, 1000], "nullable": False} for name in "abc"}
    never = [{name: {"from": 900} for name in "abc"}]
    schema = {"unit": "row", "tables": {"t": {"columns": columns, "never": never}}}
    table = pa.table({name: generator.integers(0, 1000, 300) for name in "abc"})
    with cl.open(table, schema=schema, budget=cl.rho(10), ledger=tmp_path) as ds:
        frame = synth.mst(ds, spend=cl.rho(1), rows=500, bins=synth.PrivateCuts(8)).to_pandas()
        assert not (frame >= 900).all(axis=1).any()
        assert ds.left == cl.rho(9)
        # What the cuts can come to is counted before the charge, whatever they turn out to be.
        with pytest.raises(BadSchema, match="a rule under never speaks of"):
            synth.mst(ds, spend=cl.rho(1), rows=50, bins=synth.PrivateCuts(158))
        assert ds.left == cl.rho(9)
