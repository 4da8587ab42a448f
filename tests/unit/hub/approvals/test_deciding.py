"""Access and releases are asked for, and decided by the right people, never by oneself."""

import threading

import pytest
import sqlalchemy as sa

from cloister.hub import approvals
from cloister.hub.approvals.decision import comments, decisions
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Job, Notice, Organisation, Person, Request
from cloister.hub.core.settings import Settings
from cloister.hub.policy.conditions import Environment, Grant, Subject
from cloister.hub.policy.decide import decide as policy_decides
from cloister.hub.policy.versions import current, publish
from cloister.privacy.errors import BadForm, Denied, NotHere, NotNow, TooMany
from cloister.privacy.loss import Loss, epsilon, rho

POLICY = """
dataset: visits
purposes: [health-research, quality-assurance]
budget:
  lifetime: {epsilon: 2, delta: 1e-7}
  approvals: [{above: {rho: 0.001}, needs: 1}, {above: {rho: 0.01}, needs: 2}]
reviewers: [second@clinic.example, third@clinic.example]
roles:
  analysts:
    who: {roles: [data user]}
    may: [see schema, query]
    purposes: [health-research]
    by_request: true
  staff:
    who: {people: [owner@clinic.example]}
    may: [see schema]
"""
MAIL = ("owner", "second", "third", "asker", "stranger")


@pytest.fixture
def hub(request, tmp_path):
    """In SQLite, unless a test asks for PostgreSQL too."""
    address = ""
    if getattr(request, "param", "") == "postgres":
        address = request.getfixturevalue("postgres_address")
    with Hub.create(Settings(folder=tmp_path / "hub", database_url=address)) as made:
        yield made


both = pytest.mark.parametrize("hub", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def world(hub):
    """People by name, and a dataset with its policy."""
    with hub.database.writing() as session:
        clinic = Organisation(name="Clinic")
        session.add(clinic)
        people = {
            name: Person(
                verified=1.0,
                email=f"{name}@clinic.example",
                name=name.title(),
                roles=["data user"],
                organisation=clinic,
            )
            for name in MAIL
        }
        session.add_all(people.values())
        session.flush()
        dataset = Dataset(
            name="visits",
            title="Visits",
            owner_id=people["owner"].id,
            organisation_id=clinic.id,
            budget=epsilon(2, delta="1e-7").to_json(),
        )
        session.add(dataset)
        session.flush()
        publish(hub, session, people["owner"], dataset, POLICY)
    return {**people, "visits": dataset}


def told(hub, person):
    with hub.database.reading() as session:
        wanted = sa.select(Notice.text).where(Notice.person_id == person.id).order_by(Notice.id)
        return list(session.scalars(wanted))


def ask(hub, world, who="asker", role="analysts", purpose="health-research", text="A study of stays."):
    with hub.database.writing() as session:
        return approvals.ask_access(hub, session, world[who], world["visits"], role, purpose, text)


def wait_for(hub, world, loss, who="asker", own=None):
    """A job above the threshold, and its request; `own` is its cost to the person who asks, if it is another."""
    costs = {"loss": loss.to_json()} | ({} if own is None else {"own": own.to_json()})
    with hub.database.writing() as session:
        job = Job(
            kind="query",
            dataset_id=world["visits"].id,
            person_id=world[who].id,
            purpose="health-research",
            parameters={"sql": "SELECT COUNT(*) FROM visits"},
            plan={**costs, "lines": [], "errors": [], "statements": [], "notes": []},
            policy_number=1,
            state="waiting",
        )
        session.add(job)
        session.flush()
        session.refresh(job)
        return approvals.ask_release(hub, session, job)


def say(hub, world, who, request, agreed=True, reason="It fits.", **more):
    with hub.database.writing() as session:
        return approvals.decide(hub, session, world[who], request, agreed, reason, **more)


def look(hub, request):
    with hub.database.reading() as session:
        found = session.get(Request, request.id)
        return found.state, (found.job.state if found.job else None)


@both
def test_a_granted_access_gives_the_role_for_its_purpose(hub, world):
    request = ask(hub, world)
    assert look(hub, request) == ("open", None)
    say(hub, world, "owner", request)
    with hub.database.reading() as session:
        granted = approvals.granted_roles(session, world["asker"], world["visits"])
        assert granted == {Grant("analysts", "health-research")}
        assert approvals.granted_roles(session, world["stranger"], world["visits"]) == set()
        policy, number = current(hub, session, world["visits"])
    moment = Environment(now())
    asker = Subject.of(world["asker"], granted)
    assert policy_decides(policy, number, asker, "query", "epidemiology", moment).allowed
    assert not policy_decides(policy, number, asker, "query", "quality-assurance", moment).allowed
    assert not policy_decides(policy, number, Subject.of(world["asker"]), "query", "epidemiology", moment).allowed


def test_everybody_concerned_is_told_and_every_step_is_in_the_audit_log(hub, world):
    request = ask(hub, world)
    for who in ("owner", "second", "third"):
        assert told(hub, world[who]) == ["Asker asks for the role analysts of visits, for health-research."]
    say(hub, world, "second", request)
    assert told(hub, world["asker"]) == ["Your request for the role analysts of visits was granted."]
    assert told(hub, world["stranger"]) == []
    with hub.database.reading() as session:
        steps = hub.audit.search(session, object=f"request/{request.id}")
        assert [(one.action, one.person_id) for one in reversed(steps)] == [
            ("request.asked", world["asker"].id),
            ("request.granted", world["second"].id),
        ]
        assert hub.audit.verify(session) >= 3


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"role": "nobody"}, "cannot be asked for"),
        ({"role": "staff"}, "cannot be asked for"),
        ({"purpose": "marketing"}, "not allowed"),
        ({"purpose": "quality-assurance"}, "not allowed"),  # of the policy, not of the role
        ({"text": "  "}, "say in a sentence"),
    ],
)
def test_what_the_policy_does_not_offer_cannot_be_asked_for(hub, world, changed, words):
    with pytest.raises(BadForm, match=words):
        ask(hub, world, **changed)


def test_the_same_is_not_asked_twice(hub, world):
    request = ask(hub, world)
    with pytest.raises(NotNow, match="open already"):
        ask(hub, world)
    say(hub, world, "owner", request)
    with pytest.raises(NotNow, match="granted already"):
        ask(hub, world)
    ask(hub, world, purpose="epidemiology")


def test_nobody_decides_about_their_own_request_and_strangers_do_not_know_of_it(hub, world):
    request = ask(hub, world, who="owner")
    with pytest.raises(Denied, match="own request"):
        say(hub, world, "owner", request)
    for who in ("asker", "stranger"):
        with pytest.raises(NotHere):
            say(hub, world, who, request)
    assert look(hub, request) == ("open", None)
    say(hub, world, "second", request)
    assert look(hub, request) == ("granted", None)


def test_a_person_alone_with_a_dataset_cannot_ask_themself(hub, world):
    with hub.database.writing() as session:
        publish(
            hub,
            session,
            world["owner"],
            world["visits"],
            POLICY.replace("second@clinic.example, third@clinic.example", "").replace("needs: 2", "needs: 1"),
        )
    with pytest.raises(NotNow, match="nobody but you"):
        ask(hub, world, who="owner")


def test_a_denial_needs_a_reason_and_ends_the_request(hub, world):
    request = wait_for(hub, world, rho("0.005"))
    with pytest.raises(BadForm, match="say why"):
        say(hub, world, "owner", request, agreed=False, reason=" ")
    say(hub, world, "owner", request, agreed=False, reason="Too much.")
    assert look(hub, request) == ("denied", "refused")
    with pytest.raises(NotNow, match="not open"):
        say(hub, world, "second", request)
    assert told(hub, world["asker"]) == ["Your request for a release from visits was denied."]
    with hub.database.reading() as session:
        assert "Nothing was spent" in session.get(Request, request.id).job.problem


def test_a_granted_release_queues_its_job(hub, world):
    request = wait_for(hub, world, rho("0.005"))
    assert look(hub, request) == ("open", "waiting")
    say(hub, world, "third", request)
    assert look(hub, request) == ("granted", "queued")


@both
def test_where_two_are_needed_one_person_cannot_be_both(hub, world):
    request = wait_for(hub, world, rho("0.05"))
    assert request.needs == 2
    say(hub, world, "owner", request)
    assert look(hub, request) == ("open", "waiting")
    with pytest.raises(NotNow, match="somebody else"):
        say(hub, world, "owner", request)
    assert told(hub, world["second"])[-1] == f"Request {request.id} for a release from visits needs 1 more to agree."
    say(hub, world, "second", request)
    assert look(hub, request) == ("granted", "queued")
    with hub.database.reading() as session:
        assert [one.person.name for one in decisions(session, request)] == ["Owner", "Second"]


def test_reviewers_are_told_what_a_release_on_record_costs_the_person_who_asks(hub, world):
    request = wait_for(hub, world, Loss.nothing("rho"), own=rho("0.02"))
    assert request.needs == 2
    assert "costs rho 0.02," in told(hub, world["owner"])[-1]


def test_one_no_is_enough_even_after_a_yes(hub, world):
    request = wait_for(hub, world, rho("0.05"))
    say(hub, world, "owner", request)
    say(hub, world, "second", request, agreed=False, reason="No.")
    assert look(hub, request) == ("denied", "refused")


def test_a_release_that_too_few_may_decide_is_not_asked_for(hub, world):
    # The owner asks, so two of the three remain; without one of them only one does.
    wait_for(hub, world, rho("0.05"), who="owner")
    with hub.database.writing() as session:
        session.get(Person, world["third"].id).active = False
    with pytest.raises(NotNow, match="agreement of 2"):
        wait_for(hub, world, rho("0.05"), who="owner")


def test_the_yes_of_somebody_who_is_no_reviewer_any_more_does_not_count(hub, world):
    request = wait_for(hub, world, rho("0.05"))
    say(hub, world, "third", request)
    with hub.database.writing() as session:
        publish(hub, session, world["owner"], world["visits"], POLICY.replace(", third@clinic.example", ""))
    say(hub, world, "owner", request)
    assert look(hub, request) == ("open", "waiting")
    with pytest.raises(NotHere):
        say(hub, world, "third", request)
    say(hub, world, "second", request)
    assert look(hub, request) == ("granted", "queued")


def test_a_policy_that_became_stricter_counts_at_the_decision(hub, world):
    request = wait_for(hub, world, rho("0.005"))
    assert request.needs == 1
    with hub.database.writing() as session:
        publish(hub, session, world["owner"], world["visits"], POLICY.replace("needs: 1", "needs: 2"))
    say(hub, world, "owner", request)
    assert look(hub, request) == ("open", "waiting")


@both
def test_two_yeses_at_the_same_moment_grant_once(hub, world):
    request = wait_for(hub, world, rho("0.05"))
    failures = []

    def work(who):
        try:
            say(hub, world, who, request)
        except NotNow as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in ("owner", "second", "third")]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert look(hub, request) == ("granted", "queued")
    assert len(failures) == 1
    with hub.database.reading() as session:
        assert len(hub.audit.search(session, action="request.granted")) == 1


@both
def test_an_open_request_expires_and_its_job_is_refused(hub, world):
    access, release = ask(hub, world), wait_for(hub, world, rho("0.005"))
    with hub.database.writing() as session:
        assert approvals.expire(hub, session) == 0
        session.execute(sa.update(Request).values(ends=now() - 1))
    with pytest.raises(NotNow, match="expired"):
        say(hub, world, "owner", access)
    with hub.database.writing() as session:
        assert approvals.expire(hub, session) == 2
    assert look(hub, access) == ("expired", None)
    assert look(hub, release) == ("expired", "refused")
    assert told(hub, world["asker"])[-1] == "Nobody decided in time about your request for a release from visits."


def test_a_granted_access_ends_by_itself(hub, world):
    request = ask(hub, world)
    granted = say(hub, world, "owner", request, days=30)
    assert granted.ends == pytest.approx(now() + 30 * 86400, abs=60)
    with hub.database.writing() as session:
        session.execute(sa.update(Request).values(ends=now() - 1))
    with hub.database.reading() as session:  # at once, not only when a worker has looked
        assert approvals.granted_roles(session, world["asker"], world["visits"]) == set()
    with hub.database.writing() as session:
        approvals.expire(hub, session)
    assert told(hub, world["asker"])[-1] == "Your access has ended: the role analysts of visits."
    with pytest.raises(BadForm, match="1 to 3,650"):
        say(hub, world, "owner", ask(hub, world), days=0)


def test_access_can_be_revoked_and_asked_for_again(hub, world):
    request = ask(hub, world)
    say(hub, world, "owner", request)
    with hub.database.writing() as session:
        with pytest.raises(BadForm, match="say why"):
            approvals.revoke(hub, session, world["owner"], request, "")
        with pytest.raises(Denied):
            approvals.revoke(hub, session, world["asker"], request, "I want to.")
        approvals.revoke(hub, session, world["second"], request, "The study is over.")
    with hub.database.reading() as session:
        assert approvals.granted_roles(session, world["asker"], world["visits"]) == set()
    assert told(hub, world["asker"])[-1] == "What you were granted was revoked: the role analysts of visits."
    ask(hub, world)


@both
def test_a_release_can_be_revoked_only_until_its_job_begins(hub, world):
    early, late = wait_for(hub, world, rho("0.005")), wait_for(hub, world, rho("0.006"))
    say(hub, world, "owner", early)
    say(hub, world, "owner", late)
    with hub.database.writing() as session:
        session.get(Job, late.job_id).state = "running"
    with hub.database.writing() as session:
        approvals.revoke(hub, session, world["owner"], early, "A mistake.")
    with hub.database.writing() as session, pytest.raises(NotNow, match="has begun"):
        approvals.revoke(hub, session, world["owner"], late, "A mistake.")
    assert look(hub, early) == ("revoked", "refused")
    assert look(hub, late) == ("granted", "running")


def test_whoever_asked_may_withdraw_and_nobody_else(hub, world):
    request = wait_for(hub, world, rho("0.005"))
    with hub.database.writing() as session:
        with pytest.raises(Denied):
            approvals.withdraw(hub, session, world["owner"], request)
        approvals.withdraw(hub, session, world["asker"], request)
    assert look(hub, request) == ("withdrawn", "cancelled")
    assert told(hub, world["owner"])[-1].startswith("Asker withdrew request")


@both
def test_a_job_that_was_cancelled_meanwhile_cannot_be_granted(hub, world):
    request = wait_for(hub, world, rho("0.005"))
    with hub.database.writing() as session:
        session.get(Job, request.job_id).state = "cancelled"
    with pytest.raises(NotNow, match="does not wait"):
        say(hub, world, "owner", request)
    with hub.database.writing() as session:
        approvals.close_for(hub, session, session.get(Job, request.job_id))
    assert look(hub, request) == ("withdrawn", "cancelled")


def test_comments_without_an_answer_come_to_an_end(hub, world):
    request = ask(hub, world)
    with hub.database.writing() as session:
        for number in range(10):
            approvals.comment(hub, session, world["asker"], request, f"Please ({number}).")
            session.flush()
        with pytest.raises(TooMany, match="no answer yet"):
            approvals.comment(hub, session, world["asker"], request, "Please.")
        approvals.comment(hub, session, world["second"], request, "Soon.")
        session.flush()
        approvals.comment(hub, session, world["asker"], request, "Thank you.")


def test_comments_are_for_those_concerned_and_stay_out_of_notices_and_log(hub, world):
    request = ask(hub, world)
    with hub.database.writing() as session:
        approvals.comment(hub, session, world["second"], request, "Which wards, MARKED?")
        approvals.comment(hub, session, world["asker"], request, "Cardiology.")
        with pytest.raises(NotHere):
            approvals.comment(hub, session, world["stranger"], request, "Me too.")
        with pytest.raises(BadForm):
            approvals.comment(hub, session, world["asker"], request, "  ")
        assert [one.text for one in comments(session, request)] == ["Which wards, MARKED?", "Cardiology."]
    assert told(hub, world["asker"]) == [f"Second commented on request {request.id}."]
    with hub.database.reading() as session:
        assert hub.audit.search(session, text="MARKED") == []


def test_only_those_concerned_find_a_request(hub, world):
    request = ask(hub, world)
    with hub.database.reading() as session:
        for who in ("asker", "owner", "second", "third"):
            assert approvals.find(hub, session, world[who], request.id).id == request.id
        with pytest.raises(NotHere):
            approvals.find(hub, session, world["stranger"], request.id)
        with pytest.raises(NotHere):
            approvals.find(hub, session, world["owner"], 999)
