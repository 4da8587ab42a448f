"""The demo: whole, the same twice, on the real gateway and worker, and never inside somebody's hub."""

import shutil

import numpy as np
import pytest
import sqlalchemy as sa

from cloister.hub.core import models
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.settings import Settings
from cloister.hub.jobs import gateway
from cloister.hub.ops.demo import PASSWORD, PEOPLE, make_demo
from cloister.hub.policy.decide import Environment
from cloister.hub.users import accounts, tokens
from cloister.hub.users.sign_in import sign_in
from cloister.privacy.errors import NotNow
from cloister.privacy.ledger import verify
from cloister.privacy.loss import rho


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    settings = Settings(folder=tmp_path_factory.mktemp("demo") / "demo")
    return settings, make_demo(settings)


@pytest.fixture
def hub(made):
    with Hub.open(made[0]) as opened:
        yield opened


def counts(hub):
    with hub.database.reading() as session:
        tables = (models.Person, models.Dataset, models.Version, models.Job, models.Request, models.Token)
        return [session.scalar(sa.select(sa.func.count()).select_from(table)) for table in tables]


def test_everybody_can_sign_in_with_the_printed_password(hub, made):
    for one in PEOPLE:
        sign_in(hub, email=one.email, password=PASSWORD, address="127.0.0.1")
        with hub.database.reading() as session:
            assert accounts.find(session, one.email).roles == list(one.roles)
        assert one.email in made[1].sheet()
    assert PASSWORD in made[1].sheet()


def test_its_work_went_through_the_gateway_and_a_worker(hub):
    with hub.database.reading() as session:
        jobs = session.scalars(sa.select(models.Job).order_by(models.Job.id)).all()
        assert [job.state for job in jobs] == ["done"] * 5 + ["waiting"]
        assert {job.kind for job in jobs} == {"query", "profile"}
        assert all(job.problem == "" for job in jobs)
        actions = {entry.action for entry in hub.audit.search(session, most=1000)}
    assert {"work.denied", "tables.opened", "job.submitted", "dataset.created"} <= actions


def test_the_same_question_of_another_person_costs_the_dataset_nothing(hub):
    with hub.database.reading() as session:
        again = session.get(models.Job, 3)
    assert again.loss["amount"] == "0"
    assert hub.ledger.account("visits").spent == rho("0.005") + rho("0.001") + rho("0.004") + rho("0.01")


def test_the_first_answers_are_useful(hub):
    """Every number of the tour is a few per cent off at most, and so is the release that waits for its owner."""
    from cloister.client.wire import answer_from_json

    with hub.database.reading() as session:
        with_result = [sa.orm.undefer(models.Job.result)]
        jobs = {number: session.get(models.Job, number, options=with_result) for number in (1, 2, 4, 6)}
    for number, columns in ((1, ("visits", "stay")), (2, ("patients",)), (4, ("visits",))):
        table = answer_from_json(jobs[number].result["answer"]).value
        for name in columns:
            value, low, high = (np.asarray(table.column(name + end), dtype=float) for end in ("", "_low", "_high"))
            assert ((high - low) / 2 < 0.1 * value).all()
    (_, error), *_ = jobs[6].plan["errors"]
    assert float(error.removeprefix("± ")) < 0.05 * 50_000_000  # a ward's cost of a year is 50 million or more


def test_its_books_hold(hub):
    report = verify(hub.settings.ledger, hub.key.public, hub.ledger.head)
    assert report.ok
    with hub.database.reading() as session:
        assert hub.audit.verify(session) > 20


def test_one_request_is_granted_and_one_waits(hub):
    with hub.database.reading() as session:
        wanted = sa.select(models.Request).where(models.Request.kind == "access").order_by(models.Request.id)
        assert [request.state for request in session.scalars(wanted)] == ["granted", "open"]


def test_adas_token_works(hub, made):
    with hub.database.reading() as session:
        person, scopes = tokens.find(session, made[1].token)
        assert person.id == accounts.find(session, "ada@uni.example").id
    assert set(scopes) == {"read", "work"}


def test_a_researcher_may_ask_for_an_anonymised_table_and_two_people_can_look_at_it(hub):
    environment = Environment(time=now(), country="AT", network="127.0.0.1")
    with hub.database.reading() as session:
        ada = accounts.find(session, "ada@uni.example")
    order = gateway.JobOrder("visits", "anonymise", {"models": "k=10, l=3"}, "health-research", environment)
    planned = gateway.plan(hub, ada, order)
    assert planned.blocked == ""
    assert "2 people look at the file before you get it" in planned.notes
    assert planned.protection.quasi == ("age", "admitted")
    assert planned.protection.label == "k=10, l=3 (ward)"


def test_made_twice_it_is_the_same(hub, made):
    before = counts(hub)
    assert make_demo(made[0]) == made[1]
    assert counts(hub) == before


def test_what_was_not_finished_is_finished_the_next_time(made, tmp_path):
    shutil.copytree(made[0].folder, tmp_path / "copy")
    settings = Settings(folder=tmp_path / "copy")
    (settings.folder / "demo-token").write_text("")  # as if it had been killed before its last step
    again = make_demo(settings)
    assert again.token.startswith("clo_")
    assert again.token != made[1].token


def test_a_hub_that_is_no_demo_is_left_alone(tmp_path):
    settings = Settings(folder=tmp_path / "hub")
    with Hub.create(settings) as real:
        with pytest.raises(NotNow):
            make_demo(settings)
        assert counts(real)[0] == 0
