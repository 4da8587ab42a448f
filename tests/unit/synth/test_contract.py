"""What every generator of synthetic tables keeps, whatever it does: one suite, many members."""

import json
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats  # noqa: F401  # it draws while it is imported, and a test below forbids drawing

import cloister as cl
from cloister import synth
from cloister.privacy.errors import BadInput, BadLoss, OverBudget
from cloister.privacy.loss import Loss, Relation
from cloister.synth.pipeline import PipelineRun

from .people import BUILDING, BY_PERSON, BY_ROW, opened, people

SMALL = ["ward", "building", "age", "cost", "back", "note"]
# Few columns and bins, so that the whole suite is quick.
GENERATORS: dict[str, dict[str, Any]] = {
    "m_way": {},
    "independent": {"columns": [*SMALL, "admitted"]},
    "mst": {},
    "aim": {"rounds": 3},
    "privbayes": {},
    "mixture": {"fits": 2},
    "mwem": {"rounds": 7},
    "mggm": {"bins": 16, "group_size": 300},
    "ron_gauss": {"bins": 16, "label": "ward"},
}
TYPES = {
    "ward": pa.string(),
    "building": pa.string(),
    "age": pa.int64(),
    "cost": pa.float64(),
    "admitted": pa.date32(),
    "back": pa.bool_(),
    "note": pa.string(),
}
SPEND = cl.rho("0.5")


@pytest.fixture(scope="module", params=GENERATORS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="module")
def real() -> pa.Table:
    return people(1000)


@pytest.fixture(scope="module")
def table(name, folder, real):
    """One table of each generator, looked at from all sides; with it what was left of the budget at each look."""
    ds = opened(folder / name, real)
    before, spent = ds.left, []
    with pytest.MonkeyPatch.context() as patch:
        engine = type(ds.tables.engine)
        run = engine.run
        patch.setattr(engine, "run", lambda self, sql: (spent.append(before - ds.left), run(self, sql))[1])
        made = make(name, ds)
    return made, [*spent, before - ds.left], ds.account.book.key.public


def make(name: str, ds: Any, **more: Any) -> synth.SyntheticTable:
    options = {"spend": SPEND, "columns": SMALL, "bins": 6, **GENERATORS[name], **more}
    return getattr(synth, name)(ds, **options)


def test_a_release_without_rows_names_every_cell_of_its_counts(table):
    made, _, _ = table
    released = PipelineRun(made, (), ()).representation()
    assert json.loads(json.dumps(released)) == released
    assert [one["counts"] for one in released] == [one.counts.tolist() for one in made.made.measured]
    for marginal, one in zip(made.made.measured, released, strict=True):
        assert tuple(map(len, one["cells"])) == marginal.counts.shape
        assert np.broadcast_to(one["standard error"], marginal.counts.shape).min() > 0
        for name, merged in zip(one["columns"], one["cells"], strict=True):
            split = [label for cell in merged for label in cell.split(" or ")]
            assert sorted(split) == sorted(made.domain.axis(name).labels()), "a merged cell does not say of what"


def test_the_charge_is_the_spend_and_stands_before_the_first_look(table):
    made, spent, key = table
    assert len(spent) > 1
    assert set(spent) == {SPEND}
    assert made.loss == SPEND
    made.receipt.verify(key)


def test_an_epsilon_with_a_delta_costs_no_more_than_it_says(name, tmp_path, real):
    ds = opened(tmp_path, real)
    before = ds.left
    made = make(name, ds, spend=cl.epsilon(1, delta="1e-6"), rows=20)
    assert len(made) == 20
    assert (before - ds.left).amount == made.loss.amount > 0
    assert made.loss.measure == "rho"


def test_what_is_refused_reads_nothing_and_draws_nothing(name, tmp_path, real, monkeypatch):
    ds = opened(tmp_path, real, budget=cl.rho("0.1"))
    looked: list[str] = []
    monkeypatch.setattr(type(ds.tables.engine), "run", lambda self, sql: looked.append(sql))
    monkeypatch.setattr("cloister.synth.run.np.random.default_rng", lambda seed: looked.append("drawn"))
    before = ds.left
    with pytest.raises(OverBudget, match="is left"):
        make(name, ds)
    for wrong in ({"rows": 0}, {"rows": True}, {"rows": 2.5}, {"columns": ["nobody"]}, {"bins": 0}):
        with pytest.raises(BadInput):
            make(name, ds, spend=cl.rho("0.01"), **wrong)
    with pytest.raises(BadLoss, match="add/remove"):
        make(name, ds, spend=Loss("rho", Fraction(1, 100), relation=Relation.REPLACE_ONE))
    with pytest.raises(BadInput):
        make(name, real)
    assert looked == []
    assert ds.left == before


def test_the_number_of_rows_is_estimated_and_not_read(name, tmp_path, table, real):
    made = table[0]
    assert made.made.model.total == pytest.approx(real.num_rows, rel=0.1)
    assert len(made) == round(made.made.model.total)
    empty = make(name, opened(tmp_path, real.slice(0, 0)))
    assert 1 <= len(empty) < 400
    assert empty.to_arrow().schema == made.to_arrow().schema


def test_no_row_breaks_what_the_schema_declares(table):
    made = table[0]
    for rows in (made.to_arrow(), made.sample(3000)):
        frame = rows.to_pandas()
        assert not ((frame.ward == "maternity") & (frame.age >= 60)).any()
        assert (frame.groupby("ward").building.nunique() == 1).all()
        assert frame.age.between(0, 89).all()
        assert frame.cost.dropna().between(0, 100).all()
        assert frame[["ward", "building", "age", "back"]].notna().all(axis=None)
    assert {one: BUILDING[one] for one in frame.ward.unique()} == dict(zip(frame.ward, frame.building, strict=True))


def test_types_are_the_schema_s_and_missing_values_occur_where_they_may(table, real):
    made = table[0]
    rows = made.sample(4000)
    assert {one.name: one.type for one in rows.schema} == {one: TYPES[one] for one in rows.column_names}
    assert rows["cost"].null_count / 4000 == pytest.approx(0.1, abs=0.05)
    for column in rows.column_names:
        assert column == "cost" or rows[column].null_count == 0
    assert not set(rows["note"].to_pylist()) & set(real["note"].to_pylist()), "names were copied"
    assert len(set(rows["note"].to_pylist())) == 4000
    if "admitted" in rows.column_names:
        days = rows["admitted"].to_pylist()
        assert date(2025, 1, 1) <= min(days)
        assert max(days) <= date(2025, 12, 31)


def test_columns_can_be_fixed(table):
    made = table[0]
    rows = made.sample(400, given={"ward": "surgery", "age": {"from": 60}}).to_pandas()
    assert (rows.ward == "surgery").all()
    assert (rows.building == "north").all()
    assert (rows.age >= 53).mean() > 0.99  # the bin that holds 60 counts whole
    with pytest.raises(BadInput):
        made.sample(10, given={"ward": "maternity", "age": {"from": 70}})
    with pytest.raises(BadInput):
        made.sample(10, given={"note": "patient 1"})


def test_neighbouring_tables_have_the_same_plan(name, tmp_path, table, real):
    """What is asked, charged and shown: a row more changes nothing but numbers."""
    odd = {**real.slice(0, 1).to_pylist()[0], "age": 89, "ward": "maternity"}
    more = pa.concat_tables([real, pa.Table.from_pylist([odd], real.schema)])
    one, other = table[0], make(name, opened(tmp_path, more))
    seen = [
        (made.to_arrow().schema, made.domain.names, *(made.receipt.body[word] for word in ("request", "loss", "unit")))
        for made in (one, other)
    ]
    assert seen[0] == seen[1]


def test_a_seed_repeats_rows_and_marks_them_not_private(name, tmp_path, table, real):
    made = table[0]
    assert made.private
    one, same = (make(name, opened(tmp_path / str(i), real), random_state="x") for i in range(2))
    keep = [column for column in one.to_arrow().column_names if column != "note"]  # pseudonyms are always fresh
    assert one.to_arrow().select(keep) == same.to_arrow().select(keep)
    assert one.to_arrow().select(keep) != made.to_arrow().select(keep)
    assert not one.private
    assert "NOT PRIVATE" in str(one)
    assert one.side["private"] is False


def test_people_with_several_rows_are_protected_as_one_and_a_pure_spend_is_paid_purely(name, tmp_path, real):
    ds = opened(tmp_path, real, BY_PERSON, budget=cl.epsilon(10))
    made = make(name, ds, spend=cl.epsilon(4), rows=30)
    assert made.side["unit"] == str(BY_PERSON.unit) != str(BY_ROW.unit)
    assert ds.left == cl.epsilon(6)
    assert "gaussian" not in made.mechanism
    assert "person" not in made.to_arrow().column_names


def test_the_side_file_tells_what_was_paid_and_how_wrong_answers_may_be(table, tmp_path):
    made = table[0]
    position = made.to_parquet(tmp_path / "rows.parquet")
    told = json.loads(position.read_text(encoding="utf-8"))
    assert isinstance(made, cl.Release)
    assert made.value is made.to_arrow()
    assert told["method"] == made.parameters["method"]
    assert told["loss"] == SPEND.to_json()
    assert told["neighbours"] == "add/remove"
    assert told["receipt"] is not None
    assert told["measured"]
    errors = [one["error"] for one in told["expected error"]["marginals"]]
    assert errors
    assert all(error is not None and 0 <= error <= 1 for error in errors)


def test_rows_look_like_the_real_ones(table, real):
    made = table[0]
    drawn, true = made.sample(6000).to_pandas(), real.to_pandas()
    wards = [frame.ward.value_counts(normalize=True) for frame in (drawn, true)]
    assert np.abs(wards[0].sub(wards[1], fill_value=0)).sum() / 2 < 0.12
    assert drawn.age.mean() == pytest.approx(true.age.mean(), abs=6)
    assert drawn.cost.mean() == pytest.approx(true.cost.mean(), abs=8)
