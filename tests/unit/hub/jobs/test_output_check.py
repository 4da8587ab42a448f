"""Outputs that people look at: replaced tables, digests that nobody can guess against, files that are erased."""

import hashlib

import pytest
import sqlalchemy as sa

from cloister.client.wire import result_bytes
from cloister.hub import approvals
from cloister.hub.approvals import decision
from cloister.hub.core import restored
from cloister.hub.core.models import AuditEntry, Decision, Job, Output, Person, Request, Upload, Version
from cloister.hub.datasets import datasets
from cloister.hub.jobs import gateway, maintenance, output_check, sealed_output
from cloister.hub.jobs.job_types import KINDS
from cloister.privacy.errors import NotNow

FORM = {"quasi": "age, ward", "sensitive": "stay_days", "models": "k=5, l=2 (stay_days)", "suppression": "10%"}
MAY = "may: [see schema, query, profile]"
BLOCK = 'anonymised: {at_least: "k=5, l=2", suppression_at_most: 10%}\nroles:'


@pytest.fixture
def world(hospital_hub):
    hospital_hub.publish(change=[(MAY, MAY.replace("profile", "profile, anonymise")), ("roles:", BLOCK)])
    return hospital_hub


def submit(world, who="ada", **form):
    order = gateway.JobOrder("visits", "anonymise", {**FORM, **form}, "health-research", world.here)
    return gateway.submit(world.hub, world.people[who], order).id


def checking(world, who="ada", **form):
    job = submit(world, who, **form)
    assert world.work() == ["checking"]
    return job, world.rows(sa.select(Request.id).where(Request.job_id == job))[0]


def seen(world, who, number):
    with world.hub.database.reading() as session:
        return output_check.look(world.hub, session, world.people[who], session.get_one(Request, number))


def vote(world, who, number, agreed=True, reason="Fine."):
    with world.hub.database.writing() as session:
        person, request = session.get_one(Person, world.people[who].id), session.get_one(Request, number)
        digest = session.scalar(sa.select(Output.digest).where(Output.job_id == request.job_id))
        return output_check.decide(world.hub, session, person, request, agreed, reason, digest).state


# Replaced tables


def test_a_file_made_from_replaced_tables_is_not_released(world):
    job, number = checking(world)
    vote(world, "owner", number)
    assert seen(world, "reviewer", number).current
    world.another_version()
    assert not seen(world, "reviewer", number).current
    with pytest.raises(NotNow, match="replaced"):
        vote(world, "reviewer", number)
    assert (world.job(job).state, world.job(job).result) == ("checking", None)
    assert vote(world, "reviewer", number, agreed=False, reason="People withdrew.") == "denied"


def test_nobody_can_be_the_first_to_agree_to_replaced_tables(world):
    _, number = checking(world)
    world.another_version()
    with pytest.raises(NotNow, match="replaced"):
        vote(world, "owner", number)
    assert world.rows(sa.select(Decision)) == []


def test_a_file_whose_tables_were_replaced_while_it_was_made_is_not_held(world, monkeypatch):
    job, run = submit(world), KINDS["anonymise"].run

    def slow(*arguments):
        held = run(*arguments)
        world.another_version()
        return held

    monkeypatch.setattr(type(KINDS["anonymise"]), "run", lambda _, *arguments: slow(*arguments))
    assert world.work() == ["refused"]
    assert "newer version" in world.job(job).problem
    assert world.rows(sa.select(Output)) == []


def test_a_failed_version_is_not_prepared_again_from_tables_that_were_replaced(world):
    with world.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        begun = datasets.new_version(world.hub, session, world.people["owner"], dataset)
        begun.state = "failed"
    world.another_version()
    with world.hub.database.writing() as session, pytest.raises(NotNow, match="replaced"):
        datasets.retry(world.hub, session, world.people["owner"], datasets.find(session, "visits"), begun.number)
    assert [one.state for one in world.rows(sa.select(Version).where(Version.number == begun.number))] == ["failed"]


# Digests


def test_no_digest_outside_the_seal_tests_a_guess_of_the_file(world):
    job, number = checking(world)
    with world.hub.database.reading() as session:
        request = session.get_one(Request, number)
        output = output_check._stored(session, request)
        package = sealed_output.package_of(world.hub, request.dataset, output)
    guesses = [result_bytes(package), result_bytes(package["result"]), seen(world, "owner", number).content]
    guessed = {hashlib.sha256(guess).hexdigest() for guess in guesses}
    vote(world, "owner", number)
    log = " ".join(str(entry.detail) for entry in world.rows(sa.select(AuditEntry)))
    kept = {output.digest, *world.rows(sa.select(Decision.digest)), str(world.job(job).digest)}
    assert output.digest in log
    assert not any(guess in log or guess in kept for guess in guessed)


def test_equal_files_of_two_jobs_have_different_digests(world):
    checking(world, models="k=100000, l=2 (stay_days)")
    checking(world, models="k=100000, l=2 (stay_days)")
    first, second = world.rows(sa.select(Output.digest))
    assert first != second


# Files that are erased


def restore(world):
    """End what a restored copy of this hub would bring back."""
    restored.mark(world.hub.folder, "yesterday")
    restored.finish_restore(world.hub)


def test_a_restore_ends_what_was_being_looked_at_and_erases_its_file(world):
    job, number = checking(world)
    vote(world, "owner", number)
    restore(world)
    assert (world.job(job).state, world.rows(sa.select(Output.sealed))) == ("cancelled", [None])
    assert world.rows(sa.select(Output.facts)) == [None]
    assert seen(world, "reviewer", number) is None
    with pytest.raises(NotNow):
        vote(world, "reviewer", number)


def test_a_restore_keeps_the_copy_of_what_was_released(world):
    job, number = checking(world)
    vote(world, "owner", number)
    vote(world, "reviewer", number)
    restore(world)
    assert world.job(job).state == "done"
    assert world.rows(sa.select(Output.sealed)) != [None]


def test_a_restore_ends_uploads_which_are_in_no_copy(world):
    with world.hub.database.writing() as session:
        session.execute(sa.update(Upload).values(state="complete"))
    restore(world)
    assert set(world.rows(sa.select(Upload.state))) == {"cancelled"}


def test_a_cancelled_output_is_erased_also_if_its_request_has_ended(world):
    job, number = checking(world)
    with world.hub.database.writing() as session:
        session.get_one(Request, number).state = "expired"
    assert seen(world, "owner", number) is None
    gateway.cancel(world.hub, world.people["ada"], job)
    assert world.rows(sa.select(Output.sealed)) == [None]


def test_a_worker_erases_a_file_that_nobody_can_decide_on(world):
    job, number = checking(world)
    other, still = checking(world, models="k=6, l=2 (stay_days)")
    with world.hub.database.writing() as session:
        session.get_one(Request, number).state = "expired"
    maintenance._expire(world.hub)
    assert (world.job(job).state, world.job(other).state) == ("refused", "checking")
    assert world.rows(sa.select(Output.job_id).where(Output.sealed.is_not(None))) == [other]
    assert seen(world, "owner", still).result["rows"]


def test_expiry_ends_requests_and_their_jobs_together(world):
    ended = [checking(world, models=f"k={k}, l=2 (stay_days)") for k in (5, 6)]
    with world.hub.database.writing() as session:
        session.execute(sa.update(Request).values(ends=1.0))
    with world.hub.database.writing() as session:
        assert approvals.expire(world.hub, session) == 2
    states = world.rows(sa.select(Job.state).where(Job.id.in_([job for job, _ in ended])))
    assert (states, world.rows(sa.select(Output.sealed))) == (["refused"] * 2, [None] * 2)


# What the requester learns


def told(world, visits_of, number):
    """Everything that Ada is shown and sent about a request."""
    ada = visits_of(world)("ada")
    pages = [
        ada.get(f"/requests/{number}"),
        ada.get("/requests"),
        ada.get("/notices"),
        ada.get("/datasets/visits/requests"),
    ]
    answers = [ada.api.get(f"/api/requests/{number}"), ada.api.get("/api/requests"), ada.api.get("/api/notices")]
    assert {one.status_code for one in (*pages, *answers)} == {200}
    return " ".join(one.text for one in (*pages, *answers))


def test_the_requester_is_not_told_of_an_agreement_which_says_that_there_is_a_table(world, visits_of):
    _, number = checking(world)
    before = told(world, visits_of, number)
    vote(world, "owner", number, reason="ZZ looks good")
    after = told(world, visits_of, number)
    assert "Nobody has decided yet" in after
    assert not [words for words in ("ZZ looks", "One person agreed") if words in after]
    assert (before.count("agreed"), before.count("Owner")) == (after.count("agreed"), after.count("Owner"))
    assert vote(world, "reviewer", number, agreed=False, reason="YY too fine") == "denied"
    denied = told(world, visits_of, number)
    assert "YY too fine" in denied
    assert "ZZ looks" not in denied
    assert [one.agreed for one in decisions_as_seen(world, "owner", number)] == [True, False]


def test_whoever_gets_the_file_sees_who_agreed_to_it(world, visits_of):
    _, number = checking(world)
    vote(world, "owner", number, reason="ZZ looks good")
    assert vote(world, "reviewer", number) == "granted"
    assert "ZZ looks good" in told(world, visits_of, number)


def decisions_as_seen(world, who, number):
    with world.hub.database.reading() as session:
        return decision.decisions_for(session, world.people[who], session.get_one(Request, number))
