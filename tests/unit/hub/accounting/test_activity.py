"""What is far from somebody's past is told to the owner, with reasons; what is usual is not."""

import pytest
import sqlalchemy as sa

from cloister.hub.accounting.activity import ALERT_AT, ActivityEvent, profile, profiles, watch
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Job, Notice, Person, Spent
from cloister.hub.core.settings import Settings
from cloister.privacy.loss import Loss, epsilon, rho

DAY = 86_400
NOON = 20_000 * DAY + 12 * 3600  # a day at twelve


def office(days=30, a_day=4, at=NOON, spent=0.001):
    """Four requests a day around noon, for a month, about one table."""
    table = frozenset({"visits"})
    return [
        ActivityEvent(at - day * DAY - hour * 1800, spent=spent, tables=table)
        for day in range(2, days + 2)
        for hour in range(a_day)
    ]


def named(found):
    return {one.name for one in found.signals}


def test_a_usual_day_scores_nothing():
    today = [ActivityEvent(NOON - hour * 1800, spent=0.001, tables=frozenset({"visits"})) for hour in range(4)]
    found = profile([*office(), *today], NOON)
    assert (found.score, found.signals, found.alert) == (0.0, (), False)
    assert found.requests == 4
    assert found.usual == pytest.approx(4, rel=0.1)
    assert sum(found.hours) == 124
    assert found.tables == ("visits",)


def test_a_night_of_many_refused_requests_about_new_tables_raises_an_alert():
    night = [
        ActivityEvent(NOON - 10 * 3600 + minute * 60, refused=minute % 2 == 0, spent=0.005, tables=frozenset({"staff"}))
        for minute in range(40)
    ]
    found = profile([*office(), *night], NOON)
    assert named(found) == {"requests", "spending", "refusals", "hours", "tables"}
    assert found.alert
    assert found.score == pytest.approx(sum(one.points for one in found.signals), abs=0.1)
    assert any("20 requests were refused" in one.sentence for one in found.signals)


def test_no_single_signal_raises_an_alert():
    many = [ActivityEvent(NOON - minute, spent=0.000005, tables=frozenset({"visits"})) for minute in range(500)]
    found = profile([*office(), *many], NOON)
    assert named(found) == {"requests"}
    assert found.score < ALERT_AT


def test_a_newcomer_has_no_past_to_differ_from():
    first = [ActivityEvent(NOON - minute, spent=0.001) for minute in range(30)]
    found = profile(first, NOON)
    assert named(found) <= {"spending"}
    assert not found.alert
    greedy = profile(
        [*first, *(ActivityEvent(NOON - minute, refused=True) for minute in range(20)), ActivityEvent(NOON, spent=0.5)],
        NOON,
    )
    assert greedy.alert
    assert named(greedy) == {"spending", "refusals"}


def test_other_datasets_count_only_by_number():
    trawl = [ActivityEvent(NOON - number, elsewhere=number + 100) for number in range(6)]
    found = profile([*office(), *trawl, ActivityEvent(NOON - 9 * DAY, elsewhere=100)], NOON)
    (signal,) = found.signals
    assert signal.sentence == "5 other datasets were asked for the first time on the same day."


def test_the_same_events_give_the_same_score_whatever_their_order():
    events = [*office(), *(ActivityEvent(NOON - minute * 60, refused=True) for minute in range(20))]
    assert profile(events, NOON) == profile(events[::-1], NOON)


@pytest.fixture
def hub(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub")) as made:
        yield made


@pytest.fixture
def world(hub):
    budget = epsilon(2, delta="1e-7")
    with hub.database.writing() as session:
        people = [Person(verified=1.0, email=f"{name}@x.example", name=name.title()) for name in ("own", "ann", "bob")]
        session.add_all(people)
        session.flush()
        sets = [Dataset(name=name, owner_id=people[0].id, budget=budget.to_json()) for name in ("visits", "visits2")]
        session.add_all(sets)
    return *people, *sets


def ask(hub, person, dataset, created, state="done", loss=None):
    with hub.database.writing() as session:
        facts = {"kind": "query", "purpose": "research", "parameters": {"sql": "SELECT 1"}, "policy_number": 1}
        job = Job(dataset_id=dataset.id, person_id=person.id, state=state, created=created, **facts)
        session.add(job)
        session.flush()
        if loss is not None:
            zero, text = Loss.nothing("rho").to_json(), loss.to_json()
            rest = {"total": zero, "own_total": zero, "purpose": "research", "time": created}
            ids = {"dataset_id": dataset.id, "person_id": person.id, "job_id": job.id}
            session.add(Spent(loss=text, own=text, **ids, **rest))


def deny(hub, person, dataset, times):
    for _ in range(times):
        hub.audit.record(person.id, "work.denied", f"dataset/{dataset.name}", operation="query")


def notices(hub, person):
    with hub.database.reading() as session:
        return list(session.scalars(sa.select(Notice.text).where(Notice.person_id == person.id)))


def test_an_owner_is_told_once_a_day_about_each_person(hub, world):
    own, ann, bob, visits, visits2 = world
    ask(hub, ann, visits, now(), loss=rho("0.03"))
    deny(hub, ann, visits, 20)
    ask(hub, bob, visits, now(), loss=rho("0.0001"))
    deny(hub, bob, visits2, 2)
    assert watch(hub) == 1
    assert watch(hub) == 0
    assert watch(hub, now() + 2 * DAY) == 0
    assert len(notices(hub, own)) == 1
    assert notices(hub, own)[0].startswith("Ann uses visits in an unusual way (score ")
    with hub.database.reading() as session:
        (entry,) = hub.audit.search(session, action="activity.alert")
        assert entry.detail["person"] == ann.id
        assert "refused" in entry.detail["why"]


def test_profiles_list_the_most_unusual_first_and_keep_datasets_apart(hub, world):
    _, ann, bob, visits, visits2 = world
    ask(hub, bob, visits, now())
    deny(hub, ann, visits, 12)
    deny(hub, bob, visits2, 12)
    with hub.database.reading() as session:
        found = profiles(session, visits)
        assert [(person.name, one.refused) for person, one in found] == [("Ann", 12), ("Bob", 0)]
        assert found[0][1].score > found[1][1].score == 0


def test_the_owners_own_requests_raise_no_alert(hub, world):
    own, _, _, visits, _ = world
    ask(hub, own, visits, now(), loss=rho("0.03"))
    deny(hub, own, visits, 30)
    assert watch(hub) == 0
