"""Training as a kind of work: what it refuses before a charge, what it costs, what it leaves; locally and in a hub."""

import base64
import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa

import cloister as cl
from cloister import learn
from cloister.data.hospital import SCHEMA, hospital
from cloister.hub.core.models import Job
from cloister.hub.jobs.job_types import KINDS, Planned
from cloister.hub.jobs.job_types.train.form import OFFERS
from cloister.learn import persistence
from cloister.learn.base.payer import DryRun
from cloister.learn.model_selection.candidates import fit_within
from cloister.learn.model_selection.holdout import nobody, sides
from cloister.privacy.errors import BadForm, BadInput, BadLoss, BadSchema, Denied, SealBroken
from cloister.privacy.loss import rho

TRAIN = KINDS["train"]
CLASS = {"target": "readmitted"}
NUMBER = {"target": "cost", "features": "age, stay_days, ward"}
FORMS = {
    name: {"class": CLASS, "number": NUMBER, "": {"features": "age, stay_days, cost"}}[offer.predicts]
    for name, offer in OFFERS.items()
}


@pytest.fixture(scope="module")
def table():
    return pa.table(hospital(1_500))


@pytest.fixture
def data(table, tmp_path):
    with cl.open(table, schema=SCHEMA, budget=rho(1_000), ledger=tmp_path, name="visits") as opened:
        yield opened


def quiet(_share, _words):
    pass


def asked(name="MixedNB", spend="rho 10", **form):
    return TRAIN.parse({"estimator": name, "spend": spend, **FORMS[name], **form})


# The form


def test_a_form_is_read_into_plain_parameters_that_fill_it_in_again():
    read = TRAIN.parse({"estimator": "MixedNB", "target": "ward", "features": ["age", " cost"], "spend": "rho 0.10"})
    assert read["features"] == "age, cost"
    assert read["spend"] == "rho 0.1"
    assert TRAIN.parse(read) == read == json.loads(json.dumps(read))


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"estimator": "Oracle", "target": "ward", "spend": "rho 1"}, BadForm),
        ({"estimator": "MixedNB", "target": "ward"}, BadForm),
        ({"estimator": "MixedNB", "spend": "rho 1"}, BadForm),
        ({"estimator": "PCA", "target": "age", "spend": "rho 1"}, BadForm),
        ({"estimator": "PCA", "spend": "rho 1", "evaluate": "0.2"}, BadForm),
        ({"estimator": "PCA", "spend": "rho 1", "parts": "0"}, BadForm),
        ({"estimator": "MixedNB", "target": "ward", "spend": "much"}, BadLoss),
        ({"estimator": "MixedNB", "target": "ward", "spend": "rho 1", "evaluate": "1"}, BadForm),
        ({"estimator": "MixedNB", "target": "ward", "spend": "rho 1", "group": "ward"}, BadForm),
        ({"estimator": "MixedNB", "target": "ward", "spend": "rho 1", "features": ["a, b"]}, BadForm),
        ({"estimator": "MixedNB", "target": "ward", "spend": "rho 1", "features": [1]}, BadForm),
    ],
)
def test_a_form_that_cannot_be_read_is_refused(form, error):
    with pytest.raises(error):
        TRAIN.parse(form)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"target": "cost"}, "no public list of values to tell apart. Choose ward, stay_days or readmitted"),
        ({"target": "admitted"}, "no public list"),
        ({"target": "patient"}, "no column 'patient' in visits"),
        ({"target": "ward", "features": "age, height"}, "no column 'height'"),
        ({"target": "ward", "features": "ward"}, "other than the target"),
        ({"target": "ward", "features": "admitted"}, "admitted"),
        ({"target": "ward", "evaluate": "0.2", "group": "cost"}, "no groups of it"),
    ],
)
def test_what_cannot_be_learned_is_refused_from_public_facts_with_the_way_out(data, form, words):
    with pytest.raises(BadInput, match=words):
        TRAIN.plan(data, TRAIN.parse({"estimator": "MixedNB", "spend": "rho 1", **form}))
    assert not data.account.spent.amount


def test_a_number_that_may_be_missing_is_no_target_and_no_silent_feature(table, tmp_path):
    columns = {**SCHEMA["tables"]["visits"]["columns"], "cost": {"type": "real", "bounds": [0, 50000]}}
    schema = {**SCHEMA, "tables": {"visits": {**SCHEMA["tables"]["visits"], "columns": columns}}}
    with cl.open(table, schema=schema, budget=rho(1), ledger=tmp_path) as data:
        with pytest.raises(BadSchema, match="Choose age, stay_days or readmitted"):
            TRAIN.plan(data, TRAIN.parse({"estimator": "Ridge", "target": "cost", "spend": "rho 1"}))
        planned = TRAIN.plan(data, TRAIN.parse({"estimator": "Ridge", "target": "age", "spend": "rho 1"}))
        assert "features   ward, stay_days, readmitted" in planned.lines
        assert any("cost and admitted" in note for note in planned.notes)


# Plan and run


@pytest.mark.parametrize("name", OFFERS)
def test_every_estimator_costs_what_was_planned_and_leaves_a_card_and_a_signed_model(data, name):
    parameters = asked(name)
    planned = TRAIN.plan(data, parameters)
    assert not data.account.spent.amount
    assert planned.loss == planned.own == rho(10)
    assert Planned.from_json(json.loads(json.dumps(planned.to_json()))) == planned
    seen = []
    done = TRAIN.run(data, parameters, lambda share, words: seen.append((share, words)))
    assert data.account.spent == planned.loss
    assert len(done.receipts) == 1
    result = json.loads(json.dumps(done.result, allow_nan=False))
    assert result["estimator"] == name
    assert result["audited"]["lower_bound"] <= result["audited"]["allowed"]
    assert [share for share, _ in seen] == sorted(share for share, _ in seen)
    assert any("steps done" in words for _, words in seen)
    model = persistence.unpack(base64.b64decode(result["model"]), result["key"])
    assert type(model).__name__ == name
    assert model.release_.receipt == done.receipts[0]
    assert model.release_.loss == rho(10)
    assert str(model.release_.unit) == result["unit"] == "one patient (at most 8 rows)"


@pytest.mark.parametrize("name", [name for name, offer in OFFERS.items() if offer.predicts])
def test_every_model_that_predicts_is_tried_on_people_it_did_not_learn_from(data, table, name):
    done = TRAIN.run(data, asked(name, evaluate="0.5", group="ward"), quiet)
    assert data.account.spent == rho(10)
    tried = done.result["evaluation"]
    assert abs(tried["rows"]["value"] - table.num_rows / 5) < 200
    assert len(tried["groups"]) == 6
    assert tried["overall"]["low"] <= tried["overall"]["value"] <= tried["overall"]["high"]
    assert tried["gap"]["value"] >= 0
    if OFFERS[name].predicts == "class":
        assert 0.6 < tried["overall"]["value"] <= 1
        assert 0.7 < tried["baseline"]["value"] <= 1
        assert len(tried["chosen"]) == 6
    else:
        assert 100 < tried["overall"]["value"] < 15_000


def test_an_evaluation_tells_the_truth_about_the_people_held_back(data, table):
    """With hardly any noise it is what scikit-learn's score says of the same rows."""
    done = TRAIN.run(data, asked("LinearRegression", spend="rho 900", evaluate="0.5"), quiet)
    model = persistence.unpack(base64.b64decode(done.result["model"]), done.result["key"])
    held = sides(data, 5)[1].relation("visits", ["age", "stay_days", "ward", "cost"])
    rows = held.chosen(["age", "stay_days", "ward", "cost"]).run(held.engine).to_pandas()
    away = model.predict(learn.prepare(model, rows)) - rows["cost"]
    assert done.result["evaluation"]["overall"]["value"] == pytest.approx(float(np.median(np.abs(away))), rel=0.1)
    assert done.result["evaluation"]["rows"]["value"] == pytest.approx(len(rows), rel=0.01)


def test_groups_may_be_few_whole_numbers_and_the_target_itself(data):
    done = TRAIN.run(data, asked("MixedNB", spend="rho 400", evaluate="0.5", group="readmitted"), quiet)
    groups = {one["group"]: one["value"] for one in done.result["evaluation"]["groups"]}
    assert groups["0"] > 0.9 > 0.3 > groups["1"], "nearly nobody is told that they will be back"
    gap = done.result["evaluation"]["gap"]["value"]
    assert gap == pytest.approx(groups["0"] - groups["1"])


def test_the_sides_share_nobody_and_together_are_everybody(data, table):
    names = ["age"]
    learned, held = (one.relation("visits", names) for one in sides(data, 5))
    ids = [set(one.engine.run(one.rows.sql("duckdb")).column("_cl_unit").to_pylist()) for one in (learned, held)]
    assert not ids[0] & ids[1]
    assert ids[0] | ids[1] == set(table.column("patient").to_pylist())
    assert 0.15 < len(ids[1]) / 1500 < 0.25  # a fifth, within 4.8 standard deviations


def test_a_rehearsal_reads_nobody_and_a_portion_with_people_cannot_be_rehearsed_on(data):
    empty = nobody(data)
    assert not hasattr(empty.tables.engine, "tables")
    assert empty.relation("visits", ["age"]).chosen(["age"]).run(empty.tables.engine).num_rows == 0
    with pytest.raises(BadInput):
        fit_within(DryRun(), learn.MixedNB(rho(1)), data, target="ward", features=["age"])
    assert not data.account.spent.amount


def test_rows_that_are_nobodys_cannot_be_held_back(tmp_path):
    schema = {"unit": "row", "tables": {"t": {"columns": {"a": {"type": "integer", "bounds": [0, 1], "nullable": False},
              "b": {"type": "boolean"}}}}}  # fmt: skip
    with cl.open(pa.table({"a": [0, 1] * 50, "b": [True, False] * 50}), schema=schema, budget=rho(9),
                 ledger=tmp_path) as data:  # fmt: skip
        form = {"estimator": "MixedNB", "target": "b", "spend": "rho 1"}
        with pytest.raises(BadInput, match="Leave the evaluation out"):
            TRAIN.plan(data, TRAIN.parse({**form, "evaluate": "0.2"}))
        assert TRAIN.run(data, TRAIN.parse(form), quiet).result["evaluation"] is None


def test_a_plan_says_what_theory_says(data):
    planned = TRAIN.plan(data, asked("LinearRegression", "rho 0.1"))
    assert [text for text, _ in planned.errors] == ["age", "stay_days", "ward=…"]
    assert "if 6,000 rows spread evenly" in planned.notes[0]
    counted = TRAIN.plan(data, asked("MixedNB", "rho 0.1", evaluate="0.2"))
    assert [text for text, _ in counted.errors] == ["rows of a class", "accuracy of the evaluation, noise alone"]
    assert any("No theory says how accurate" in note for note in counted.notes)
    assert "  evaluation rho 0.02" in [line.replace("  ", " ", 0) for line in counted.lines]


@pytest.mark.parametrize("name", [name for name, offer in OFFERS.items() if offer.predicts == "number"])
def test_errors_of_coefficients_are_told_of_models_that_have_some(data, name):
    planned = TRAIN.plan(data, asked(name, "rho 0.1"))
    linear = name in ("LinearRegression", "Ridge")
    assert bool(planned.errors) == linear
    assert any("No theory says how accurate" in note for note in planned.notes) != linear
    assert any("Errors of coefficients" in note for note in planned.notes) == linear


def test_planned_errors_of_coefficients_are_about_the_noise_that_comes(data):
    """Twice the same fit: the coefficients differ by about what the plan said."""
    parameters = asked("LinearRegression", "rho 1")
    planned = {text: float(error.removeprefix("± ").replace(",", "")) for text, error in
               TRAIN.plan(data, parameters).errors}  # fmt: skip
    fits = []
    for _ in range(6):
        done = TRAIN.run(data, parameters, quiet)
        fits.append({one["feature"]: one["value"] for one in done.result["coefficients"]})
    spread = float(np.std([one["stay_days"] for one in fits], ddof=1)) * 1.96
    assert planned["stay_days"] / 12 < spread < planned["stay_days"] * 12


def test_a_changed_model_is_not_loaded(data):
    done = TRAIN.run(data, asked(), quiet)
    whole = base64.b64decode(done.result["model"])
    with pytest.raises(SealBroken):
        persistence.unpack(whole.replace(b"class_count_", b"class_caunt_"), done.result["key"])


def test_a_model_sees_what_its_reader_sees(data):
    narrow = data.through({"visits": "SELECT ward, FLOOR(age / 50) * 50 AS age FROM visits WHERE ward <> 'maternity'"})
    form = {"estimator": "MixedNB", "target": "ward", "spend": "rho 400", "evaluate": "0.5"}
    done = TRAIN.run(narrow, TRAIN.parse(form), quiet)
    assert done.result["features"] == ["age"]
    shares = {bar["label"]: bar["value"] for bar in done.result["columns"][0]["bars"]}
    assert shares["maternity"] < 0.01 < shares["surgery"]
    with pytest.raises(BadSchema, match="no column 'stay_days'"):
        TRAIN.plan(narrow, TRAIN.parse({**form, "features": "stay_days"}))


# In a hub


def submit(world, who="ada", spend="rho 0.02", **form):
    form = {"estimator": "MixedNB", "target": "readmitted", **form}
    return world.submit(who, kind="train", spend=spend, **form)


@pytest.fixture
def world(hospital_hub):
    hospital_hub.publish(change=[("researchers:\n    who: {organisations: [University]}\n    may: [see schema, query, "
                                  "profile]", "researchers:\n    who: {organisations: [University]}\n    may: [see "
                                  "schema, query, profile, train]"),
                                 ("may: [see schema, query, profile]\n    tables",
                                  "may: [see schema, query, profile, train]\n    tables")])  # fmt: skip
    return hospital_hub


def test_a_hub_trains_for_those_whom_the_policy_lets_train(world):
    job = submit(world, evaluate="0.25", group="ward")
    assert world.work() == ["done"]
    done = world.job(job.id)
    assert done.loss == rho("0.02").to_json()
    assert world.spent() == world.spent("ada") == rho("0.02")
    assert done.result["evaluation"]["measure"] == "accuracy"
    assert done.result["key"] == str(world.hub.key.public)
    assert done.result["label"]


def test_whoever_may_only_query_does_not_train(hospital_hub):
    with pytest.raises(Denied):
        submit(hospital_hub)
    assert not hospital_hub.spent().amount


def test_a_junior_trains_on_the_columns_and_rows_they_see(world):
    with pytest.raises(BadSchema, match="no column 'readmitted'"):
        submit(world, "cleo")
    submit(world, "cleo", target="ward")
    assert world.work() == ["done"]
    job = world.rows(sa.select(Job).options(sa.orm.undefer(Job.result)))[-1]
    assert job.result["features"] == ["age"]


def test_above_the_threshold_a_model_waits_for_an_approval(world):
    job = submit(world, spend="rho 0.04")
    assert world.job(job.id).state == "waiting"
    assert world.work() == []
    assert not world.spent().amount


def test_a_job_that_is_charged_and_then_killed_stays_charged_and_is_not_run_again(world):
    class Killed(BaseException):
        pass

    def die(step):
        if step == "charged":
            raise Killed

    job = submit(world)
    with pytest.raises(Killed):
        world.work(step=die)
    assert world.spent() == rho("0.02")
    assert world.work("another") == []
    assert world.job(job.id).state == "charged"


def test_a_pure_spend_is_charged_once_and_stays_within_its_plan(world):
    planned = world.plan("ada", kind="train", spend="epsilon 0.1", estimator="MixedNB", target="readmitted",
                         evaluate="0.2")  # fmt: skip
    assert planned.loss == rho(Fraction(1, 200))
    submit(world, spend="epsilon 0.1", evaluate="0.2")
    assert world.work() == ["done"]
    assert world.spent() == planned.loss
