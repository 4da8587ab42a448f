"""The staged pipeline: what each stage knows, verdicts that are all kept, rows drawn again from what was released."""

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.privacy.errors import BadInput
from cloister.synth.model.gaussian import GaussianModel
from cloister.synth.pipeline import Pipeline, PrivacyTest, k_anonymous, within_loss

from .people import opened, people

OPTIONS = {"columns": ["ward", "back"]}


@pytest.fixture
def ds(tmp_path):
    return opened(tmp_path, people(300))


def test_a_pipeline_keeps_its_stages_and_verdicts(ds):
    tests = [within_loss(cl.rho(1), ds.account.book.key.public), k_anonymous(["ward"], 2)]
    run = Pipeline(synth.mst, tests, options=OPTIONS).run(ds, spend=cl.rho(1), rows=200)
    assert run.passed
    assert [one.name for one in run.stages] == ["outliers", "range", "model", "rows", "test"]
    assert [one.knew for one in run.stages if one.knew.startswith("rows")] == ["rows, paid for"]
    assert len(run.verdicts) == 2
    assert "passed" in str(run)
    assert run.to_json()["verdicts"][0]["passed"] is True


def test_rows_are_drawn_again_from_the_released_model_and_the_charge_stands(ds):
    before, seen = ds.left, []

    def never(table):
        seen.append(table.to_arrow())
        return False, "it never does"

    run = Pipeline(synth.mst, [PrivacyTest("never", never)], tries=4, options=OPTIONS).run(ds, spend=cl.rho(1))
    assert not run.passed
    assert [one.draw for one in run.verdicts] == [1, 2, 3, 4]
    assert any(one != seen[0] for one in seen[1:])
    assert before - ds.left == cl.rho(1), "another draw is paid again, or a failed test is refunded"
    assert run.table.to_arrow() is seen[-1]


def test_a_pipeline_stops_at_the_first_draw_that_passes(ds):
    answers = iter([(False, "no"), (True, "yes")])
    run = Pipeline(synth.mst, [PrivacyTest("second", lambda table: next(answers))], tries=9, options=OPTIONS).run(
        ds, spend=cl.rho(1)
    )
    assert run.passed
    assert [one.passed for one in run.verdicts] == [False, True]


def test_a_loss_is_not_mended_by_drawing_again(ds):
    run = Pipeline(synth.mst, [within_loss(cl.rho("0.5"))], tries=5, options=OPTIONS).run(ds, spend=cl.rho(1))
    assert [one.draw for one in run.verdicts] == [1]
    assert not run.passed
    seeded = Pipeline(synth.mst, [within_loss(cl.rho(2))], options={**OPTIONS, "random_state": 1})
    (verdict,) = seeded.run(ds, spend=cl.rho(1)).verdicts
    assert "protects nobody" in verdict.reason
    (other,) = Pipeline(synth.mst, [within_loss(cl.epsilon(1))], options=OPTIONS).run(ds, spend=cl.rho(1)).verdicts
    assert not other.passed


def test_a_receipt_of_another_owner_fails(ds, tmp_path):
    stranger = opened(tmp_path / "other", people(20)).account.book.key.public
    run = Pipeline(synth.mst, [within_loss(cl.rho(1), stranger)], options=OPTIONS).run(ds, spend=cl.rho(1))
    assert run.verdicts[0].reason == "its receipt does not hold"


@pytest.mark.parametrize("generator", [synth.independent, synth.mst])
def test_what_is_shared_can_be_rows_or_what_they_were_drawn_from(ds, generator):
    run = Pipeline(generator, options=OPTIONS).run(ds, spend=cl.rho(1))
    ward = run.representation()[0]
    assert ward["columns"] == ["ward"]
    assert ward["cells"] == [["cardiology", "maternity", "surgery"]]
    assert len(ward["counts"]) == 3
    assert ward["standard error"] > 0
    assert run.passed, "no test is no failure"


def test_rare_combinations_are_found():
    with pytest.raises(BadInput):
        k_anonymous([], 3)
    with pytest.raises(BadInput):
        k_anonymous(["ward"], 0)
    with pytest.raises(BadInput):
        Pipeline(synth.mst, tries=0)


def test_a_table_with_a_rare_row_is_not_k_anonymous(ds):
    table = synth.mst(ds, spend=cl.rho(1), rows=50, columns=["age"])
    assert k_anonymous(["age"], 1).check(table)[0]
    assert not k_anonymous(["age"], 40).check(table)[0]


# Models of them draw rows of which few or none are possible.
NARROW = {
    "unit": "row",
    "tables": {
        "data": {
            "never": [
                {"a": {"from": 1}, "b": {"from": 1}},
                {"a": {"below": 1}, "b": {"from": 1}},
                {"a": {"from": 1}, "b": {"below": 1}},
                {"c": {"from": 1}},
            ],
            "columns": {name: {"type": "integer", "bounds": [0, 100], "nullable": False} for name in "abc"},
        }
    },
}


@pytest.fixture
def narrow(tmp_path):
    random = np.random.default_rng(0)
    rows = pa.table({name: random.integers(50, 100, 1000) for name in "abc"})
    with cl.open({"data": rows}, schema=NARROW, budget=cl.epsilon(1000), ledger=tmp_path / "narrow") as data:
        yield data


@pytest.mark.parametrize("generator", [synth.mggm, synth.ron_gauss])
@pytest.mark.parametrize("test", [k_anonymous(["a"], 1), k_anonymous(["zz"], 2)], ids=["few", "no such column"])
def test_a_table_that_was_paid_for_comes_back_though_no_row_can_be_drawn(narrow, generator, test, monkeypatch):
    draw, options = GaussianModel.draw, {"reviewed": False}

    def failing(self, rows, generator, given=None):
        return 1 / 0 if rows == 500 else draw(self, rows, generator, given)

    monkeypatch.setattr(GaussianModel, "draw", failing)
    run = Pipeline(generator, [test], tries=3, options=options).run(narrow, spend=cl.epsilon(10), rows=500)
    assert len(run.table) == 0
    assert run.table.made.measured
    assert run.table.left_out in run.stages[3].did
    assert not run.passed
    assert [one.draw for one in run.verdicts] == [1, 2, 3]
    assert "ZeroDivisionError" in run.table.side["rows left out"]


@pytest.mark.parametrize("check", [lambda table: 1 / 0, lambda table: None, lambda table: (True,)])
def test_a_test_that_raises_or_answers_nothing_has_failed_and_loses_no_table(ds, check):
    run = Pipeline(synth.mst, [PrivacyTest("odd", check)], tries=2, options=OPTIONS).run(ds, spend=cl.rho(1), rows=20)
    assert not run.passed
    assert [one.draw for one in run.verdicts] == [1, 2]
    assert "could not be carried out" in run.verdicts[0].reason
    assert len(run.table) == 20


def test_a_pipeline_of_two_tables_is_refused_before_the_charge():
    with pytest.raises(BadInput, match="two_tables"):
        Pipeline(synth.two_tables)
