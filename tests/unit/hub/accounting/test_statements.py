"""Statements agree with the ledger, and say loudly when the hub's own tables do not."""

import sqlite3
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from cloister.hub.accounting import statements
from cloister.hub.accounting.statements import charges_of
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Job, Person, Spent
from cloister.hub.core.settings import Settings
from cloister.hub.policy.conditions import Environment
from cloister.privacy.errors import LedgerBroken
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.signing import fingerprint

BUDGET = epsilon(2, delta="1e-7")
HERE = Environment(0.0, "", "")


@pytest.fixture
def hub(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub")) as made:
        yield made


@pytest.fixture
def world(hub):
    with hub.database.writing() as session:
        people = {
            name: Person(verified=1.0, email=f"{name}@x.example", name=name.title(), roles=[])
            for name in ("ann", "bob", "own")
        }
        session.add_all(people.values())
        session.flush()
        dataset = Dataset(name="visits", owner_id=people["own"].id, budget=BUDGET.to_json())
        session.add(dataset)
    hub.ledger.open_account("visits", BUDGET)
    return {**people, "visits": dataset}


def spend(hub, world, who, loss, purpose="research", *, own=None, finish="commit", book=True, say=None):
    """A job as a worker leaves it: set aside, charged in one entry for dataset and person, done."""
    person = world[who]
    with hub.database.writing() as session:
        job = Job(
            kind="query",
            dataset_id=world["visits"].id,
            person_id=person.id,
            purpose=purpose,
            parameters={},
            policy_number=1,
            state="charged",
            loss=(say or loss).to_json(),
        )
        session.add(job)
        session.flush()
        request = f"job {job.id}"
        job.charge = fingerprint(request)
        zero = Loss.nothing("rho").to_json()
        if book:
            facts = {"own": (own or loss).to_json(), "total": zero, "own_total": zero, "purpose": purpose}
            ids = {"dataset_id": job.dataset_id, "person_id": person.id, "job_id": job.id}
            session.add(Spent(loss=loss.to_json(), **ids, **facts))
    account = hub.ledger.open_account("visits", BUDGET, f"person-{person.id}")
    debits = [(account, own or loss)]
    if loss.amount:
        debits.insert(0, (hub.ledger.account("visits"), loss))
    charge = hub.ledger.reserve(debits, request)
    if finish == "void":
        charge.void()
    elif finish == "commit":
        charge.look()
        charge.commit()
    with hub.database.writing() as session:
        session.get(Job, job.id).state = "done" if finish == "commit" else "interrupted"
    return job


def owner(hub, world):
    with hub.database.reading() as session:
        return statements.for_owner(hub, session, session.get(Dataset, world["visits"].id))


def test_an_owner_sees_who_spent_what_for_which_purpose_and_what_is_left(hub, world):
    spend(hub, world, "ann", rho("0.01"), "research")
    spend(hub, world, "ann", rho("0.02"), "education")
    spend(hub, world, "bob", rho("0.005"), "research", finish="none")
    found = owner(hub, world)
    assert found.problems == ()
    assert found.balance.spent == rho("0.035")
    assert [(one.label, one.loss, one.count) for one in found.by_person] == [
        ("Ann", rho("0.03"), 2),
        ("Bob", rho("0.005"), 1),
    ]
    assert [(one.label, one.loss) for one in found.by_purpose] == [
        ("education", rho("0.02")),
        ("research", rho("0.015")),
    ]
    assert [one.label for one in found.by_month] == [datetime.now(UTC).strftime("%Y-%m")]
    assert [(one.person, one.purpose, one.state, one.what) for one in found.lines] == [
        ("Bob", "research", "charged", "query"),
        ("Ann", "education", "released", "query"),
        ("Ann", "research", "released", "query"),
    ]
    assert found.share == pytest.approx(float(rho("0.035").amount / found.balance.rules.cap.amount))
    assert sum(one.share for one in found.by_person) == pytest.approx(found.share)


def test_what_was_given_back_is_not_counted(hub, world):
    spend(hub, world, "ann", rho("0.01"))
    spend(hub, world, "ann", rho("0.02"), finish="void", say=Loss.nothing("rho"))
    found = owner(hub, world)
    assert found.problems == ()
    assert found.balance.spent == rho("0.01")
    assert len(found.lines) == 1


def test_new_entries_are_read_on_without_reading_the_old_ones_again(hub, world):
    spend(hub, world, "ann", rho("0.01"), finish="none")
    assert len(owner(hub, world).lines) == 1
    spend(hub, world, "bob", rho("0.01"))
    assert len(owner(hub, world).lines) == 2
    assert charges_of(hub) is charges_of(hub)


def test_a_user_sees_their_own_spends_over_all_datasets(hub, world):
    spend(hub, world, "ann", rho("0.01"))
    spend(hub, world, "ann", Loss.nothing("rho"), own=rho("0.02"))  # told from the record: the dataset pays nothing
    spend(hub, world, "bob", rho("0.005"))
    with hub.database.reading() as session:
        (mine,) = statements.for_user(hub, session, world["ann"], HERE)
        assert statements.for_user(hub, session, world["own"], HERE) == []
    assert mine.dataset == "visits"
    assert mine.spent == rho("0.03")
    assert [one.loss for one in mine.lines] == [rho("0.02"), rho("0.01")]
    assert mine.left is None  # no policy speaks of this person: what others spend is not told


def test_a_charge_that_no_job_asked_for_is_shown_loudly(hub, world):
    hub.ledger.account("visits").reserve(rho("0.01"), "somebody else's")
    found = owner(hub, world)
    assert any("no job of this hub asked for it" in one for one in found.problems)
    assert found.lines[0].person == "nobody named"


def test_a_job_that_says_it_paid_and_did_not_is_shown_loudly(hub, world):
    job = spend(hub, world, "ann", rho("0.01"))
    with hub.database.writing() as session:
        session.get(Job, job.id).charge = fingerprint("nothing")
    found = owner(hub, world)
    assert any(f"Job {job.id} says that it cost rho 0.01" in one for one in found.problems)


def test_a_job_that_says_another_cost_is_shown_loudly(hub, world):
    job = spend(hub, world, "ann", rho("0.01"), say=rho("0.001"))
    assert owner(hub, world).problems == (
        f"Job {job.id} says that it cost rho 0.001, and the ledger charged rho 0.01.",
    )


def test_a_charge_that_the_limits_do_not_count_is_shown_loudly(hub, world):
    job = spend(hub, world, "ann", rho("0.01"), book=False)
    assert owner(hub, world).problems == (
        f"Job {job.id} was charged rho 0.01, and nothing was set aside for it: limits count too little.",
    )


def test_a_write_off_is_not_a_mismatch(hub, world):
    spend(hub, world, "ann", rho("0.01"))
    hub.ledger.write_off(hub.ledger.account("visits"))
    found = owner(hub, world)
    assert found.problems == ()
    assert found.lines[0].what == "write-off"
    assert found.share == 1.0


def test_a_changed_ledger_gives_no_statement(hub, world):
    spend(hub, world, "ann", rho("0.01"))
    hub.ledger.close()
    with sqlite3.connect(hub.settings.ledger) as connection:
        connection.execute("UPDATE entries SET body = replace(body, '1/100', '1/200')")
    connection.close()
    with hub.database.reading() as session, pytest.raises(LedgerBroken):
        statements.for_owner(hub, session, session.get(Dataset, world["visits"].id))


def test_a_dataset_without_charges_has_an_empty_statement(hub, world):
    found = owner(hub, world)
    assert (found.lines, found.problems, found.share) == ((), (), 0.0)
    with hub.database.writing() as session:
        session.add(Dataset(name="other", owner_id=world["own"].id, budget=BUDGET.to_json()))
    with hub.database.reading() as session:
        other = session.scalar(sa.select(Dataset).where(Dataset.name == "other"))
        assert statements.for_owner(hub, session, other).balance is None
