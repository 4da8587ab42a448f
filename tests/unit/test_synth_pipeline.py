"""The staged pipeline: what each stage knows, verdicts that are all kept, rows drawn again from what was released."""

import pytest

import cloister as cl
from cloister import synth
from cloister.privacy.errors import BadInput
from cloister.synth.pipeline import Pipeline, PrivacyTest, k_anonymous, within_loss

from .synth_people import opened, people

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


def test_what_is_shared_can_be_rows_or_what_they_were_drawn_from(ds):
    run = Pipeline(synth.independent, options=OPTIONS).run(ds, spend=cl.rho(1))
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
