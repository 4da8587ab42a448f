"""Decisions, cancellations and submissions at once in a PostgreSQL: they take turns, and none ends another."""

import threading
import time

import psycopg
import pytest
import sqlalchemy as sa

from cloister.hub.approvals import decision
from cloister.hub.core.models import Job, Person, Request
from cloister.hub.core.notices import tell
from cloister.hub.jobs import gateway

DEAR = "rho 0.04"  # above the policy's threshold: somebody must agree


@pytest.fixture(scope="module")
def address(postgres_server):
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS hub_decisions")
        connection.execute("CREATE DATABASE hub_decisions")
    return postgres_server.replace("/postgres?", "/hub_decisions?")


@pytest.fixture
def world(world_maker, tmp_path, address):
    world = world_maker(tmp_path / "hub", database_url=address)
    yield world
    with world.hub.database.engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    world.hub.close()


def beside(deed):
    """Begin a deed in a thread and give it time to wait for a row; return how it ends."""
    ended = []

    def run():
        try:
            ended.append(deed())
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1.0)

    def end():
        thread.join()
        return ended[0]

    return end


def test_a_decision_and_a_cancellation_take_the_job_and_its_request_in_one_order(world):
    job = world.submit("ada", spend=DEAR)
    number = world.rows(sa.select(Request.id))[0]
    with world.hub.database.writing() as session:
        owner = session.get_one(Person, world.people["owner"].id)
        decision.find(world.hub, session, owner, number, to_change=True)
        cancelled = beside(lambda: gateway.cancel(world.hub, world.people["ada"], job.id))
        session.get_one(Job, job.id, with_for_update={"of": Job, "key_share": True})
    assert getattr(cancelled(), "state", None) == "cancelled"
    assert world.rows(sa.select(Request.state)) == ["withdrawn"]


def test_requests_that_expire_wait_for_a_decision_and_leave_what_it_decided(world):
    first, second = (world.submit("ada", spend=DEAR).id for _ in range(2))
    with world.hub.database.writing() as session:
        session.execute(sa.update(Request).where(Request.job_id == first).values(ends=1.0))
        owner = session.get_one(Person, world.people["owner"].id)
        request = session.scalars(sa.select(Request).where(Request.job_id == second)).one()

        def expire():
            with world.hub.database.writing() as other:
                other.execute(sa.update(Request).where(Request.state == "open").values(ends=1.0))
                return decision.expire(world.hub, other)

        expired = beside(expire)
        decision.decide(world.hub, session, owner, request, True, "")
    assert expired() == 1
    assert world.rows(sa.select(Job.state).where(Job.id == first)) == ["refused"]
    assert world.rows(sa.select(Job.state).where(Job.id == second)) == ["queued"]


def test_a_submission_does_not_end_a_decision_that_tells_the_same_person(world):
    with world.hub.database.writing() as session:
        world.hub.audit.write(session, None, "tested", "hub")
        submitted = beside(lambda: world.submit("ada"))
        tell(world.hub, session, world.people["ada"].id, "Decided.", "/requests/1")
    assert getattr(submitted(), "state", None) == "queued"
