"""Models that somebody else has trained: who may ask them, what it costs them, how much they are shown."""

import json
import re

import numpy as np
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from cloister.hub.core.models import AuditEntry, Job
from cloister.hub.jobs import gateway, predictions
from cloister.hub.jobs.predictions import predict
from cloister.hub.users import sessions
from cloister.hub.web.app import create_app
from cloister.privacy.errors import BadForm, Denied, NotHere, NotNow, OverBudget, TooMany

TRAINED = {"estimator": "MixedNB", "target": "readmitted", "features": "age, ward, stay_days"}
CSV = "age,ward,stay_days\n20,surgery,3\n80,maternity,40\n55,nowhere,\n"
RESEARCHERS = "University]}\n    may: [see schema, query, profile]"
MAY_PREDICT = "University]}\n    may: [see schema, query, train, predict]"
SHOWN = ("joins: any", "joins: any\npredictions: {show: rounded 2, rows_per_day: 10}")


@pytest.fixture
def world(hospital_hub):
    hospital_hub.publish(change=[(RESEARCHERS, MAY_PREDICT), SHOWN])
    return hospital_hub


@pytest.fixture
def trained(world):
    job = world.submit("ada", kind="train", spend="rho 0.02", **TRAINED)
    assert world.work() == ["done"]
    return world.job(job.id)


def asks(world, who, number, **form):
    """The job of a user who asks for a model."""
    order = gateway.JobOrder("visits", "predict", {"model": str(number)}, "health-research", world.here)
    return gateway.submit(world.hub, world.people[who], order)


def charged(world, who, number):
    job = asks(world, who, number)
    assert world.work() == ["done"]
    return world.job(job.id)


def entries(world, action):
    with world.hub.database.reading() as session:
        wanted = sa.select(AuditEntry).where(AuditEntry.action == action).order_by(AuditEntry.number)
        return [(entry.person_id, entry.object, entry.detail) for entry in session.scalars(wanted)]


# What it costs


def test_a_second_user_pays_the_models_loss_once_and_the_dataset_nothing(world, trained):
    whole = world.spent()
    first = charged(world, "ben", trained.id)
    assert world.spent("ben") == world.spent("ada")
    assert world.spent() == whole
    again = charged(world, "ben", trained.id)
    assert world.spent("ben") == world.spent("ada")
    for job in (first, again):
        assert len(predict(world.hub, world.ben, job.id, CSV, "", world.here).answers) == 3
    assert world.spent("ben") == world.spent("ada")


def test_two_requests_for_one_model_are_not_under_way_at_once_so_that_one_is_charged(world, trained):
    first = asks(world, "ben", trained.id)
    with pytest.raises(NotNow, match=f"job {first.id} of yours"):
        asks(world, "ben", trained.id)
    assert asks(world, "ada", trained.id).state == "queued"  # another person's
    assert world.work() == ["done", "done"]
    assert asks(world, "ben", trained.id).state == "queued"
    assert world.work() == ["done"]
    assert world.spent("ben") == world.spent("ada")


def test_the_plan_says_what_ones_own_account_pays_and_the_requester_pays_nothing(world, trained):
    def planned(who):
        order = gateway.JobOrder("visits", "predict", {"model": str(trained.id)}, "health-research", world.here)
        return gateway.plan(world.hub, world.people[who], order)

    assert planned("ben").own == world.spent("ada")
    assert not planned("ben").loss.amount
    assert not planned("ada").own.amount
    own = charged(world, "ada", trained.id)
    assert predict(world.hub, world.ada, own.id, CSV, "full", world.here).policy == "full"


def test_without_a_charge_there_is_no_prediction(world, trained):
    job = asks(world, "ben", trained.id)  # queued, not yet run
    for number in (job.id, trained.id):
        with pytest.raises(NotHere):
            predict(world.hub, world.ben, number, CSV, "", world.here)
    assert entries(world, "model.asked") == []


def test_a_model_beyond_the_users_limit_is_refused_and_nothing_is_charged(world, trained):
    change = [(RESEARCHERS, MAY_PREDICT), SHOWN, ("per_user: {rho: 0.1}", "per_user: {rho: 0.015}")]
    world.publish(change=change)
    with pytest.raises(OverBudget, match="your limit"):
        asks(world, "ben", trained.id)
    assert not world.spent("ben").amount


def test_a_limit_that_shrinks_before_the_charge_refuses_the_job(world, trained):
    asks(world, "ben", trained.id)
    change = [(RESEARCHERS, MAY_PREDICT), SHOWN, ("per_request: {rho: 0.05}", "per_request: {rho: 0.015}")]
    world.publish(change=change)
    assert world.work() == ["refused"]
    assert not world.spent("ben").amount


def test_a_model_above_the_threshold_needs_an_approval_as_a_new_release_would(world, trained):
    change = [(RESEARCHERS, MAY_PREDICT), SHOWN, ("above: {rho: 0.03}", "above: {rho: 0.01}")]
    world.publish(change=change)
    job = asks(world, "ben", trained.id)
    assert world.job(job.id).state == "waiting"
    assert world.work() == []


def test_a_charge_that_a_killed_worker_made_stands_and_is_not_repeated(world, trained):
    job = asks(world, "ben", trained.id)

    class KilledError(BaseException):
        pass

    def step(word):
        if word == "charged":
            raise KilledError

    with pytest.raises(KilledError):
        world.work("dead", step)
    gateway.queue.recover(world.hub, "dead")
    assert world.job(job.id).state == "interrupted"
    assert world.spent("ben") == world.spent("ada")
    assert world.work() == []


# Who may


def test_nobody_may_ask_unless_a_role_may_predict(world, trained):
    world.publish(change=[(RESEARCHERS, MAY_PREDICT.replace(", predict", "")), SHOWN])
    with pytest.raises(Denied, match="it may not predict"):
        asks(world, "ben", trained.id)


def test_every_question_is_decided_anew(world, trained):
    job = charged(world, "ben", trained.id)
    world.publish(change=[(RESEARCHERS, MAY_PREDICT.replace(", predict", "")), SHOWN])
    with pytest.raises(Denied, match="Predict for health-research is denied") as refused:
        predict(world.hub, world.ben, job.id, CSV, "", world.here)
    assert entries(world, "model.asked") == []
    verdict, _ = gateway.recall(world.hub, world.ben, "visits", refused.value.decision, world.here)
    assert (verdict.operation, verdict.allowed) == ("predict", False)
    with world.hub.database.writing() as session:
        session.get(gateway.Dataset, trained.dataset_id).paused = True
    with pytest.raises(NotNow):
        predict(world.hub, world.ben, job.id, CSV, "", world.here)


def test_a_model_does_not_exist_for_a_role_that_sees_less_than_it_learned_from(world, trained):
    may = "    may: [see schema, query, profile]\n"
    juniors = f"{may}    tables: {{visits: {{columns: [ward, age], rows: \"ward <> 'maternity'\"}}}}"
    for view in (
        "{columns: [ward, age, stay_days]}",  # not the target
        "{rows: \"ward <> 'maternity'\"}",
        '{transforms: {age: "FLOOR(age / 10) * 10"}}',
    ):
        narrow = f"    may: [see schema, predict]\n    tables: {{visits: {view}}}"
        world.publish(change=[(RESEARCHERS, MAY_PREDICT), SHOWN, (juniors, narrow)])
        messages = []
        for number in (trained.id, 10**6):
            with pytest.raises(BadForm) as refused:
                asks(world, "cleo", number)
            messages.append(str(refused.value).replace(str(number), "N"))
        assert messages[0] == messages[1]
    shown = "    may: [see schema, predict]\n    tables: {visits: {columns: [ward, age, stay_days, readmitted]}}"
    world.publish(change=[(RESEARCHERS, MAY_PREDICT), SHOWN, (juniors, shown)])
    assert len(predict(world.hub, world.cleo, charged(world, "cleo", trained.id).id, CSV, "", world.here).answers) == 3


def test_jobs_that_left_no_model_and_those_of_other_datasets_are_no_models(world, trained):
    counted = world.submit("ada", spend="rho 0.001")
    grouped = world.submit("ada", kind="train", spend="rho 0.001", estimator="KMeans", features="age", parts="2")
    world.work()
    for number in (counted.id, grouped.id, 10**6):
        with pytest.raises(BadForm, match="no model of a job"):
            asks(world, "ben", number)
    for number in ("", "0", "-1", "x", "1e3", 2**31):
        with pytest.raises(BadForm):
            asks(world, "ben", number)


def test_the_owner_learns_no_prediction_of_a_users_job(world, trained):
    job = charged(world, "ben", trained.id)
    for who in ("owner", "ada", "stranger"):
        with pytest.raises(NotHere):
            predict(world.hub, world.people[who], job.id, CSV, "", world.here)


def test_a_model_that_its_requester_removed_answers_nobody(world, trained):
    job = charged(world, "ben", trained.id)
    asks(world, "ben", trained.id)
    gateway.forget(world.hub, world.ada, trained.id)
    with pytest.raises(NotHere, match="no longer kept"):
        predict(world.hub, world.ben, job.id, CSV, "", world.here)
    assert world.work() != ["done"]
    assert world.spent("ben") == world.spent("ada")


# How much


def test_what_is_shown_is_computed_from_what_the_policy_grants(world, trained):
    job = charged(world, "ben", trained.id)
    full = np.array(predict(world.hub, world.ada, trained.id, CSV, "full", world.here).answers)
    object.__setattr__(world.hub.settings, "predictions_per_day", 100)
    granted = np.round(full, 2)
    told = predict(world.hub, world.ben, job.id, CSV, "rounded 1", world.here)
    np.testing.assert_array_equal(told.answers, np.round(granted, 1))
    assert told.classes == [False, True]
    usual = predict(world.hub, world.ben, job.id, CSV, "", world.here)
    assert (usual.policy, usual.answers) == ("label", [bool(row[1] > row[0]) for row in granted])


@pytest.mark.parametrize("show", ["full", "rounded 3"])
def test_more_than_the_policy_shows_is_refused_with_a_decision_on_record(world, trained, show):
    job = charged(world, "ben", trained.id)
    with pytest.raises(Denied, match=f"rounded 2, for at most 10 rows a day, and {show} is more") as refused:
        predict(world.hub, world.ben, job.id, CSV, show, world.here)
    (person, about, detail) = entries(world, "work.denied")[-1]
    assert (person, about) == (world.ben.id, "dataset/visits")
    assert (detail["rule"], detail["operation"], detail["job"]) == ("predictions", "predict", job.id)
    assert refused.value.decision
    assert entries(world, "model.asked") == []


def test_rows_of_a_day_are_counted_for_each_model_over_all_jobs_about_it(world, trained):
    jobs = [charged(world, "ben", trained.id).id for _ in range(2)]
    for number in (*jobs, jobs[0]):
        predict(world.hub, world.ben, number, CSV, "", world.here)
    with pytest.raises(TooMany, match="answers 10 rows a day, 9 were asked about"):
        predict(world.hub, world.ben, jobs[1], CSV, "", world.here)
    assert len(predict(world.hub, world.ada, trained.id, CSV, "", world.here).answers) == 3
    logged = entries(world, "model.asked")
    assert [about for _, about, _ in logged] == [f"job/{trained.id}"] * 4
    assert logged[0][2]["decision"]["rule"] == "researchers"
    assert "surgery" not in json.dumps(logged)


def test_numbers_are_not_shown_where_the_policy_shows_labels_only(world):
    job = world.submit(
        "ada", kind="train", spend="rho 0.02", estimator="LinearRegression", target="cost", features="age, stay_days"
    )
    world.work()
    mine = charged(world, "ben", job.id)
    told = predict(world.hub, world.ben, mine.id, CSV, "", world.here)
    full = predict(world.hub, world.ada, job.id, CSV, "", world.here)
    assert (told.policy, full.policy) == ("rounded 2", "full")
    assert told.answers == [float(f"{answer:.1e}") for answer in full.answers]
    world.publish(change=[(RESEARCHERS, MAY_PREDICT)])  # the usual rule: labels
    with pytest.raises(Denied, match="and full is more"):
        predict(world.hub, world.ben, mine.id, CSV, "", world.here)


# Somebody who writes to the database


def test_a_model_exchanged_in_the_database_answers_nothing(world, trained):
    other = world.submit("ada", kind="train", spend="rho 0.02", **TRAINED)
    world.work()
    job = charged(world, "ben", trained.id)
    with world.hub.database.writing() as session:
        stored = session.get(Job, job.id)
        asked = {**job.result["asked"], "model": str(other.id), "digest": world.job(other.id).digest}
        stored.result = {**job.result, "asked": asked}
    with pytest.raises(NotHere, match="not what the hub has signed"):
        predict(world.hub, world.ben, job.id, CSV, "", world.here)


def test_a_job_made_free_in_the_database_is_not_run(world, trained):
    job = asks(world, "ben", trained.id)
    with world.hub.database.writing() as session:
        stored = session.get(Job, job.id)
        stored.parameters = {**stored.parameters, "mine": True}
    assert world.work() == ["refused"]
    assert not world.spent("ben").amount


# Files and pages


def browser(world, who):
    with world.hub.database.writing() as session:
        person = session.merge(world.people[who])
        secret = sessions.begin(session, world.hub.settings, person, complete=True)[0]
    return TestClient(create_app(world.hub)), {"cookie": f"cloister-session={secret}"}


def test_a_file_is_read_in_a_process_with_limits_and_answered_on_the_page(world, trained, monkeypatch):
    job = charged(world, "ben", trained.id)
    web, seen = browser(world, "ben")
    page = f"/jobs/{job.id}/predictions"
    assert f'href="{page}"' in web.get(f"/jobs/{job.id}", headers=seen).text
    form = web.get(page, headers=seen).text
    assert "Probabilities, two decimals" in form
    assert "All that the model computes" not in form
    sent = {"csrf": re.search(r'name="csrf" value="([^"]+)"', form)[1], "rows": "", "show": "label"}
    read, whole = [], predictions.run_bounded
    monkeypatch.setattr(
        predictions, "run_bounded", lambda *given, **more: read.append(given[1]) or whole(*given, **more)
    )

    def send(content):
        files = {"file": ("rows.csv", content, "text/csv")}
        return web.post(f"{page}?csrf={sent['csrf']}", data=sent, files=files, headers=seen)

    told = send(b"\xef\xbb\xbf" + CSV.encode())
    assert told.status_code == 200
    assert told.text.count('<td class="number">') == 3
    assert len(read) == 1
    for content, words in (
        (b"\xff\xfe\x00", "UTF-8"),
        (b"age\n1\n", "there is no column"),
        (b"age\n" + b"1\n" * 10_001, "at most 10,000 rows"),
        (b"", "CSV with a header"),
    ):
        wrong = send(content)
        assert wrong.status_code == 422
        assert words in wrong.text.lower().replace("utf-8", "UTF-8").replace("csv", "CSV")
    monkeypatch.setattr(predictions, "LARGEST_FILE", 8)
    with pytest.raises(BadForm, match="at most"):
        predictions.read_file(world.hub, world.ben, b"age\n1\n1\n1\n")


def test_the_page_of_a_refused_question_says_why(world, trained):
    job = charged(world, "ben", trained.id)
    web, seen = browser(world, "ben")
    page = f"/jobs/{job.id}/predictions"
    token = re.search(r'name="csrf" value="([^"]+)"', web.get(page, headers=seen).text)[1]
    refused = web.post(page, data={"csrf": token, "rows": CSV, "show": "full"}, headers=seen)
    assert refused.status_code == 403
    assert "/datasets/visits/why?decision=" in refused.text


def test_the_form_plans_and_says_that_the_dataset_pays_nothing(world, trained):
    web, seen = browser(world, "ben")
    form = web.get("/work/predict/visits", headers=seen).text
    token = re.search(r'name="csrf" value="([^"]+)"', form)[1]
    sent = {"csrf": token, "model": str(trained.id), "purpose": "health-research", "action": "plan"}
    plan = web.post("/work/predict/visits", data=sent, headers=seen)
    assert plan.status_code == 200
    assert "Your account pays" in plan.text
    assert "it has paid for the model" in plan.text
    policy = web.get("/datasets/visits/policy", headers=seen).text
    assert "Answers show at most rounded 2" in policy
