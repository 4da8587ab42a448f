"""Policies in the database: signed, numbered, owned, and bound to the budget that was promised."""

import random

import pytest
import sqlalchemy as sa

from cloister.hub.core.hub import Hub
from cloister.hub.core.models import AuditEntry, Dataset, Person, PolicyVersion, Version
from cloister.hub.core.settings import Settings
from cloister.hub.core.signed_state import sign_version
from cloister.hub.policy import versions
from cloister.privacy.errors import BadPolicy, Denied, NotHere, NotNow
from cloister.privacy.loss import epsilon

PAGE = """dataset: visits
purposes: [health-research]
budget: {lifetime: {epsilon: 2, delta: 1e-7}, per_user: {rho: 0.05}}
roles:
  analysts: {who: {roles: [data user]}, may: [see schema, query], tables: {visits: {columns: [ward]}}}
"""
SCHEMA = "unit: row\ntables:\n  visits:\n    columns:\n      ward: {type: text, categories: [a, b]}\n"


@pytest.fixture
def hub(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub")) as made:
        yield made


@pytest.fixture
def world(hub):
    with hub.database.writing() as session:
        owner = Person(verified=1.0, email="owner@clinic.example", name="Owner", roles=["data owner"])
        other = Person(verified=1.0, email="other@clinic.example", name="Other", roles=["data owner"])
        session.add_all([owner, other])
        session.flush()
        dataset = Dataset(name="visits", owner_id=owner.id, budget=epsilon(2, delta="1e-7").to_json())
        session.add(dataset)
        session.flush()
    return owner, other, dataset


def publish(hub, world, text=PAGE, who=0, **more):
    with hub.database.writing() as session:
        return versions.publish(hub, session, world[who], world[2], text, **more)


def current(hub, world):
    with hub.database.reading() as session:
        return versions.current(hub, session, world[2])


def test_without_a_policy_nothing_is_allowed(hub, world):
    with pytest.raises(NotHere, match="nothing is allowed"):
        current(hub, world)


def test_the_newest_version_decides_and_all_are_kept(hub, world):
    assert publish(hub, world) == 1
    assert publish(hub, world, PAGE.replace("0.05", "0.04")) == 2
    policy, number = current(hub, world)
    assert number == 2
    assert str(policy.budget.per_user) == "rho 0.04"
    with hub.database.reading() as session:
        assert [one.number for one in versions.history(session, world[2])] == [2, 1]
        old, kept = versions.version(hub, session, world[2], 1)
        assert (str(old.budget.per_user), kept.text) == ("rho 0.05", PAGE)
        with pytest.raises(NotHere):
            versions.version(hub, session, world[2], 3)


def test_only_the_owner_publishes(hub, world):
    with pytest.raises(Denied):
        publish(hub, world, who=1)
    with pytest.raises(NotHere):
        current(hub, world)


def test_the_lifetime_budget_never_changes(hub, world):
    publish(hub, world)
    with pytest.raises(NotNow, match="the lifetime budget of visits is epsilon 2, delta 1e-07 and stays so"):
        publish(hub, world, PAGE.replace("epsilon: 2", "epsilon: 20"))
    assert current(hub, world)[1] == 1


def test_a_policy_for_another_dataset_is_refused(hub, world):
    with pytest.raises(BadPolicy, match="is for the dataset wards"):
        publish(hub, world, PAGE.replace("dataset: visits", "dataset: wards"))


def test_a_policy_must_fit_the_schema_of_the_data(hub, world):
    with hub.database.writing() as session:
        version = Version(dataset_id=world[2].id, number=1, schema=SCHEMA, state="ready", declared={}, source={})
        sign_version(hub, world[2], version)
        session.add(version)
    publish(hub, world)
    with pytest.raises(BadPolicy, match="there is no column age"):
        publish(hub, world, PAGE.replace("[ward]", "[ward, age]"))


def test_two_who_edit_at_once_do_not_overwrite_each_other(hub, world):
    publish(hub, world, after=0)
    with pytest.raises(NotNow, match="policy 1 of visits was published meanwhile"):
        publish(hub, world, PAGE + "# mine\n", after=0)


@pytest.mark.parametrize("change", [{"text": PAGE.replace("0.05", "5")}, {"number": 7}, {"signature": "AAAA"}])
def test_a_policy_that_was_changed_in_the_database_allows_nothing(hub, world, change):
    publish(hub, world)
    with hub.database.writing() as session:
        session.execute(sa.update(PolicyVersion).values(**change))
    with pytest.raises(BadPolicy, match="not what was published"):
        current(hub, world)


def test_an_old_policy_cannot_stand_in_for_a_newer_one(hub, world):
    publish(hub, world)
    publish(hub, world, PAGE.replace("0.05", "0.04"))
    with hub.database.writing() as session:
        old = session.scalars(sa.select(PolicyVersion).where(PolicyVersion.number == 1)).one()
        session.execute(
            sa.update(PolicyVersion).where(PolicyVersion.number == 2).values(text=old.text, signature=old.signature)
        )
    with pytest.raises(BadPolicy):
        current(hub, world)


def test_publishing_is_written_into_the_audit_log(hub, world):
    publish(hub, world)
    with hub.database.reading() as session:
        entry = session.scalars(sa.select(AuditEntry).where(AuditEntry.action == "policy.published")).one()
        assert (entry.person_id, entry.object, entry.detail["number"]) == (world[0].id, "dataset/visits", 1)


def test_what_is_refused_leaves_no_trace(hub, world):
    with pytest.raises(BadPolicy):
        publish(hub, world, "dataset: visits\n")
    with hub.database.reading() as session:
        assert versions.newest(session, world[2]) is None
        assert session.scalars(sa.select(AuditEntry).where(AuditEntry.action == "policy.published")).all() == []


@pytest.mark.parametrize("alphabet", ["abcdefghijklmnopqrstuvwxyz", "ab", "a"])
@pytest.mark.parametrize("count", [499, 3000, 30_000])
def test_a_difference_of_long_texts_is_told_at_once(within, alphabet, count):
    def text(seed):
        draw = random.Random(seed)
        return "".join("".join(draw.sample(alphabet, len(alphabet))) + "\n" for _ in range(count))

    old, new = "same\n" + text(1) + "end", "same\n" + text(2) + "more\nend"
    lines = within(2, lambda: versions.difference(old, new))
    assert [line for sign, line in lines if sign in " -"] == old.splitlines()
    assert [line for sign, line in lines if sign in " +"] == new.splitlines()
    assert lines[0] == (" ", "same")
    assert lines[-1] == (" ", "end")


def test_a_difference_is_told_line_by_line():
    assert versions.difference("a\nb\n", "a\nc\n") == [(" ", "a"), ("-", "b"), ("+", "c")]
