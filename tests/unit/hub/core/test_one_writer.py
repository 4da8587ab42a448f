"""Transactions that write take turns, in PostgreSQL as in SQLite: what one has checked is still so when it writes."""

import threading
import time

import pytest
import sqlalchemy as sa

from cloister.hub import approvals
from cloister.hub.core.models import Dataset, Person, PolicyVersion, Request, Survey
from cloister.hub.datasets import datasets
from cloister.hub.jobs import gateway, queue
from cloister.hub.jobs.predictions import predict
from cloister.hub.jobs.runner import run_job
from cloister.hub.policy.versions import publish
from cloister.hub.surveys import survey as surveys
from cloister.privacy.errors import BadForm, NotNow, TooMany

MAY = "may: [see schema, query, profile]"
SURVEY = {
    "title": "Sleep",
    "purpose": "To learn.",
    "consent": "I take part.",
    "asked": [{"id": "q", "type": "yes_no", "text": "Do you sleep well?"}],
}


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request, tmp_path, world_maker):
    settings = {}
    if request.param == "postgresql":
        settings["database_url"] = request.getfixturevalue("postgres_address")
    world = world_maker(tmp_path / "hub", **settings)
    yield world
    world.hub.close()


def test_a_ledger_in_the_same_database_is_used_while_a_transaction_writes(world_maker, tmp_path, postgres_address):
    world = world_maker(tmp_path / "hub", database_url=postgres_address, ledger_url=postgres_address)
    with world.hub.database.writing() as session:
        world.hub.audit.write(session, None, "tested", "hub")
        datasets.pause(world.hub, session, world.owner, datasets.find(session, "visits"), True)
        datasets.pause(world.hub, session, world.owner, datasets.find(session, "visits"), False)
    job = world.submit("ada")
    assert world.work() == ["done"]
    assert world.spent("ada").amount
    assert world.job(job.id).state == "done"
    world.hub.close()


def beside(*deeds):
    """Begin deeds in threads and give them time to come to a lock; return a function that returns how they end."""
    ended = [None] * len(deeds)

    def run(place, deed):
        try:
            ended[place] = deed()
        except Exception as error:
            ended[place] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(deeds)]
    for thread in threads:
        thread.start()
    time.sleep(1.5)

    def end():
        for thread in threads:
            thread.join()
        return ended

    return end


def at_once(world, *deeds):
    """Begin deeds while another transaction writes: each has checked what it can before any of them writes."""
    with world.hub.database.writing() as session:
        world.hub.audit.write(session, None, "tested", "hub")
        end = beside(*deeds)
    return end()


def changed(world, *changes):
    text = world.rows(sa.select(PolicyVersion.text).order_by(PolicyVersion.number.desc()))[0]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    "change",
    [[(MAY, "may: [see schema]")], [("per_request: {rho: 0.05}", "per_request: {rho: 0.001}")]],
    ids=["role", "limit"],
)
def test_a_job_is_decided_by_the_policy_that_is_published_while_it_waits_for_its_turn(world, change):
    pool = world.pool()
    world.submit("ben")
    run_job(world.hub, queue.claim(world.hub.database, "worker"), "worker", pool)  # its tables stay open
    world.submit("ada", "SELECT AVG(age) AS age FROM visits")
    job = queue.claim(world.hub.database, "worker")
    text = changed(world, *change)
    with world.hub.database.writing() as session:
        publish(world.hub, session, world.owner, datasets.find(session, "visits"), text)
        end = beside(lambda: run_job(world.hub, job, "worker", pool))
    assert end() == ["refused"]
    assert world.job(job.id).policy_number == 2
    assert not world.spent("ada").amount
    pool.close()


def test_questions_to_a_model_that_come_at_once_keep_to_the_days_limit(world):
    world.publish(
        change=[
            (f"University]}}\n    {MAY}", "University]}\n    may: [see schema, query, train, predict]"),
            ("joins: any", "joins: any\npredictions: {show: label, rows_per_day: 2}"),
        ]
    )
    form = {"estimator": "MixedNB", "target": "readmitted", "features": "age"}
    trained = world.submit("ada", kind="train", **form)
    assert world.work() == ["done"]
    order = gateway.JobOrder("visits", "predict", {"model": str(trained.id)}, "health-research", world.here)
    asked = gateway.submit(world.hub, world.ben, order)
    assert world.work() == ["done"]
    rows = "age\n20\n80\n"
    predict(world.hub, world.ada, trained.id, rows, "", world.here)  # whatever is loaded first is loaded now
    ended = at_once(world, *[lambda: predict(world.hub, world.ben, asked.id, rows, "", world.here)] * 4)
    assert sum(isinstance(one, TooMany) for one in ended) == 3, ended


def a_draft(world, name="sleep", **facts):
    with world.hub.database.writing() as session:
        owner = session.get_one(Person, world.ada.id)
        survey = surveys.create(world.hub, session, owner, name, {**SURVEY, **facts})
    surveys.prepare(world.hub, survey)


def on_survey(world, deed, name="sleep"):
    def run():
        with world.hub.database.writing() as session:
            return deed(world.hub, session, surveys.find_own(session, name, world.ada))

    return run


def test_a_survey_that_is_published_and_changed_at_once_asks_what_its_mechanisms_are_for(world):
    a_draft(world)
    other = [{"id": "q", "type": "choice", "text": "Why not?", "options": ["noise", "pain", "light"]}]
    end = at_once(
        world,
        on_survey(world, surveys.publish),
        on_survey(world, lambda hub, session, survey: surveys.change(hub, session, survey, {"asked": other})),
    )
    survey = world.rows(sa.select(Survey))[0]
    described = [surveys._described(one, "sleep", survey.target, False) for one in surveys.asked_of(survey)]
    assert survey.state == "open"
    assert survey.questions == described, end


def test_a_survey_is_published_once_and_its_waves_follow_each_other(world):
    a_draft(world, lasting=True, invited=True)
    ended = at_once(world, *[on_survey(world, surveys.publish)] * 2)
    assert sorted(map(type, ended), key=str) == sorted([type(None), NotNow], key=str)
    at_once(world, *[on_survey(world, surveys.next_wave)] * 2)
    assert world.rows(sa.select(Survey.wave)) == [3]
    at_once(world, on_survey(world, surveys.close), on_survey(world, surveys.next_wave))
    assert world.rows(sa.select(Survey.state)) == ["closed"]


def test_what_two_make_under_one_name_is_made_once_and_refused_in_words(world):
    text = changed(world, ("dataset: visits", "dataset: twice"))
    with world.hub.database.reading() as session:
        schema = datasets.newest(world.hub, session, datasets.find(session, "visits")).schema

    def make():
        with world.hub.database.writing() as session:
            owner = session.get_one(Person, world.owner.id)
            facts = {"title": "", "about": "", "policy_text": text, "schema_text": schema}
            datasets.create(world.hub, session, owner, name="twice", **facts)

    def another():
        with world.hub.database.writing() as session:
            dataset = datasets.find(session, "visits")
            datasets.new_version(world.hub, session, world.owner, dataset, schema_text=schema, uploads={})

    def compose():
        with world.hub.database.writing() as session:
            owner = session.get_one(Person, world.ada.id)
            surveys.create(world.hub, session, owner, "sleep", SURVEY)

    for deed, refusal in ((make, BadForm), (another, NotNow), (compose, BadForm)):
        ended = at_once(world, deed, deed)
        assert sorted(map(type, ended), key=str) == sorted([type(None), refusal], key=str), ended


def test_the_same_access_asked_for_twice_at_once_is_asked_for_once(world):
    world.publish(change=[("  juniors:", "  guests:\n    by_request: true\n    may: [query]\n  juniors:")])

    def ask():
        with world.hub.database.writing() as session:
            person, dataset = session.get_one(Person, world.ben.id), datasets.find(session, "visits")
            approvals.ask_access(world.hub, session, person, dataset, "guests", "health-research", "To learn.")

    at_once(world, ask, ask)
    assert len(world.rows(sa.select(Request))) == 1


def test_nothing_is_added_to_a_dataset_that_is_deleted_at_once(world):
    text = changed(world)

    def delete():
        with world.hub.database.writing() as session:
            datasets.delete(world.hub, session, world.owner, datasets.find(session, "visits"))

    def change():
        with world.hub.database.writing() as session:
            publish(world.hub, session, world.owner, datasets.find(session, "visits"), text)

    at_once(world, delete, change)
    deleted, numbers = world.rows(sa.select(Dataset.deleted))[0], world.rows(sa.select(PolicyVersion.number))
    assert deleted is not None
    with world.hub.database.reading() as session:
        log = [entry.action for entry in world.hub.audit.search(session, object="dataset/visits")]
    # Newest first: a policy may have been published before, and never after.
    assert log.index("dataset.deleted") < log.index("policy.published"), numbers
