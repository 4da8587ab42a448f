"""A survey's life, its invitations and its intake: what is kept, what is refused and counted, what is promised."""

import asyncio
import hashlib
import json
import os
from datetime import date

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from cloister import local
from cloister.client import survey_wire
from cloister.hub.core.database import now
from cloister.hub.core.models import AuditEntry, Invitation, Submission, Survey
from cloister.hub.surveys import ballots
from cloister.hub.surveys import question as asking
from cloister.hub.surveys import survey as surveys
from cloister.hub.surveys.device import submissions
from cloister.hub.surveys.intake import BadSubmission, Intake
from cloister.hub.surveys.question import SurveyQuestion
from cloister.hub.web.app import create_app
from cloister.local.survey.envelope import pack, unpack
from cloister.privacy.errors import BadForm, BadInput, Denied, NotHere, NotNow, ReceiptRejected
from cloister.privacy.noise import SeededSource
from cloister.privacy.signing import canonical
from cloister.vault import Ballot

FACTS = {"title": "Sleep", "purpose": "To learn how people sleep.", "consent": "I take part of my own will."}
ASKED = [
    {"id": "smoker", "type": "yes_no", "text": "Do you smoke?"},
    {"id": "where", "type": "choice", "text": "Where do you live?", "options": ["town", "village", "farm"]},
    {"id": "tried", "type": "choices", "text": "What did you try?", "options": ["tea", "books", "pills"], "most": 2},
    {"id": "hours", "type": "number", "text": "How long do you sleep?", "low": 0, "high": 24, "unit": "hours"},
    {"id": "rested", "type": "scale", "text": "How rested are you?", "low": 1, "high": 5, "options": ["not", "very"]},
    {"id": "since", "type": "date", "text": "Since when?", "low": "2020-01-01", "high": "2026-12-31", "step": "year"},
]
PERSON = {
    "smoker": ("yes", "strong"),
    "where": ("farm", "light"),
    "tried": (["tea", "books"], "medium"),
    "hours": ("7.5", "strong"),
    "rested": ("4", "strong"),
    "since": (date(2024, 5, 1), "light"),
}


@pytest.fixture
def hub(hospital_hub):
    return hospital_hub.hub


@pytest.fixture
def compose(hospital_hub):
    def make(name="sleep", opened=True, asked=ASKED, **facts):
        with hospital_hub.hub.database.writing() as session:
            made = surveys.create(hospital_hub.hub, session, hospital_hub.ada, name, {**FACTS, "asked": asked, **facts})
            if opened:
                surveys.publish(hospital_hub.hub, session, made)
        return made

    return make


def take(hub, name, raw):
    async def once():
        return await Intake(hub).take(name, raw)

    return asyncio.run(once())


def kept(hub):
    with hub.database.reading() as session:
        return list(session.scalars(sa.select(Submission)))


def refused(hub, survey):
    with hub.database.reading() as session:
        return surveys.sizes(session, survey)[1]


# What is asked.


@pytest.mark.parametrize("told", ASKED, ids=[one["type"] for one in ASKED])
def test_a_question_is_read_and_told_again_without_loss(told):
    asked = SurveyQuestion.read(told)
    assert SurveyQuestion.read(asked.to_json()) == asked
    assert SurveyQuestion.read(json.loads(json.dumps(asked.to_json()))) == asked


@pytest.mark.parametrize("told", ASKED, ids=[one["type"] for one in ASKED])
@pytest.mark.parametrize("lasting", [False, True])
def test_every_question_is_certified_at_every_level_and_costs_what_it_says(told, lasting):
    asked = SurveyQuestion.read(told)
    question = asked.question("sleep", 500, lasting)
    for level, mechanism in zip(asked.levels, question.levels, strict=True):
        local.verify(mechanism)
        for_life = getattr(mechanism, "lifetime", mechanism.loss)
        assert str(for_life.amount) == level.epsilon
    assert local.Question.read(json.loads(json.dumps(question.describe()))) == question


@pytest.mark.parametrize("told", ASKED, ids=[one["type"] for one in ASKED])
def test_more_privacy_and_fewer_people_mean_more_error(told):
    asked = SurveyQuestion.read(told)
    errors = [one.error for one in asked.expected(500)]
    assert errors == sorted(errors, reverse=True)
    assert all(few.error > many.error for few, many in zip(asked.expected(100), asked.expected(10_000), strict=True))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"id": "Smoker", "type": "yes_no", "text": "?"}, "name"),
        ({"id": "a", "type": "essay", "text": "?"}, "type"),
        ({"id": "a", "type": "yes_no", "text": ""}, "text"),
        ({"id": "a", "type": "choice", "text": "?", "options": ["one"]}, "options"),
        ({"id": "a", "type": "choice", "text": "?", "options": ["one", "one"]}, "same"),
        ({"id": "a", "type": "choices", "text": "?", "options": ["a", "b"], "most": 3}, "how many"),
        ({"id": "a", "type": "number", "text": "?", "low": 5, "high": 5}, "bounds"),
        ({"id": "a", "type": "number", "text": "?"}, "lowest"),
        ({"id": "a", "type": "scale", "text": "?", "low": 1, "high": 99}, "scale"),
        ({"id": "a", "type": "date", "text": "?", "low": "2020-01-01", "high": "2021-01-01", "step": "era"}, "period"),
        ({"id": "a", "type": "date", "text": "?", "low": "2020-01-01", "high": "2026-01-01", "step": "day"}, "periods"),
        ({"id": "a", "type": "yes_no", "text": "?", "levels": []}, "levels"),
        ({"id": "a", "type": "yes_no", "text": "?", "levels": "strong 0"}, "epsilon"),
        ({"id": "a", "type": "yes_no", "text": "?", "levels": "a 1\nb 1"}, "differ"),
        ({"id": "a", "type": "yes_no", "text": "?", "mechanism": "magic"}, "does not serve"),
        ({"id": "a", "type": "yes_no", "text": "?", "colour": "red"}, "no field"),
    ],
)
def test_a_question_that_cannot_be_asked_says_what_is_wrong(told, words):
    with pytest.raises(BadForm, match=words):
        SurveyQuestion.read(told)


@pytest.mark.parametrize(
    ("step", "name"),
    [("day", "2024-05-01"), ("week", "2024-04-29"), ("month", "2024-05"), ("quarter", "2024-Q2"), ("year", "2024")],
)
def test_a_day_lies_in_one_of_the_listed_periods(step, name):
    told = {"id": "a", "type": "date", "text": "?", "low": "2023-12-01", "high": "2024-12-31", "step": step}
    assert asking.period(date(2024, 5, 1), step) == name
    assert name in SurveyQuestion.read(told).choices


# Its life.


def test_only_a_draft_can_be_changed(hub, compose):
    survey = compose(opened=False)
    with hub.database.writing() as session:
        surveys.change(hub, session, survey, {"title": "Sleep well", "target": 900})
        surveys.publish(hub, session, survey)
    assert (survey.title, survey.target, survey.state) == ("Sleep well", 900, "open")
    with hub.database.writing() as session, pytest.raises(NotNow):
        surveys.change(hub, session, survey, {"title": "Something else"})


def test_a_draft_is_nobody_elses_business(hub, compose, hospital_hub):
    compose(opened=False)
    with hub.database.reading() as session:
        with pytest.raises(NotHere):
            surveys.find(session, "sleep")
        with pytest.raises(NotHere):
            surveys.find_own(session, "sleep", hospital_hub.ben)
        assert surveys.find_own(session, "sleep", hospital_hub.ada).title == "Sleep"


def test_a_survey_without_questions_is_not_published(hub, compose):
    survey = compose(opened=False, asked=[])
    with hub.database.writing() as session, pytest.raises(BadForm, match="question"):
        surveys.publish(hub, session, survey)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"title": ""}, "title"),
        ({"consent": " "}, "consent"),
        ({"language": "xx"}, "language"),
        ({"target": 3}, "target"),
        ({"target": True}, "target"),
        ({"ends": 12.0}, "future"),
        ({"asked": [ASKED[0], ASKED[0]]}, "same name"),
        ({"asked": "smoker"}, "list"),
    ],
)
def test_facts_that_cannot_be_are_refused(compose, facts, words):
    with pytest.raises(BadForm, match=words):
        compose(opened=False, **facts)


def test_what_happened_is_in_the_audit_log_and_no_answer_is(hub, compose):
    survey = compose()
    take(hub, "sleep", submissions(surveys.public(survey), [PERSON])[0])
    with hub.database.writing() as session:
        surveys.close(hub, session, survey)
    with hub.database.reading() as session:
        about = list(session.scalars(sa.select(AuditEntry).where(AuditEntry.object == "survey/sleep")))
    assert [one.action for one in about] == ["survey.created", "survey.published", "survey.closed"]


# The intake.


def test_a_submission_is_kept_as_reports_and_acknowledged_with_a_signed_receipt(hub, compose):
    survey = compose()
    raw = submissions(surveys.public(survey), [PERSON])[0]
    receipt = take(hub, "sleep", raw)
    body = survey_wire.verify_receipt(json.dumps(receipt), hub.key.public)
    assert body["reports"] == hashlib.sha256("\n".join(sorted(json.loads(raw)["reports"])).encode()).hexdigest()
    assert body["levels"]["smoker"] == "1/2"
    (row,) = kept(hub)
    stored = json.loads(row.reports)
    assert set(stored) == set(PERSON)
    for name, (level, report) in stored.items():
        mechanism = surveys.questions_of(survey)[name].at(level)
        assert len(unpack(report)) == mechanism.width


def test_a_receipt_of_somebody_else_or_changed_is_rejected(hub, compose):
    survey = compose()
    receipt = take(hub, "sleep", submissions(surveys.public(survey), [PERSON])[0])
    changed = {**receipt, "receipt": {**receipt["receipt"], "survey": "wake"}}
    for text in (json.dumps(changed), "{}", "[", json.dumps({**receipt, "signature": "AAAA"})):
        with pytest.raises(ReceiptRejected):
            survey_wire.verify_receipt(text, hub.key.public)


def test_the_same_submission_twice_is_kept_once_and_acknowledged_twice(hub, compose):
    survey = compose()
    raw = submissions(surveys.public(survey), [PERSON])[0]
    first, second = take(hub, "sleep", raw), take(hub, "sleep", raw)
    assert first["receipt"]["reports"] == second["receipt"]["reports"]
    assert len(kept(hub)) == 1
    assert refused(hub, survey) == {"sent again": 1}


def test_a_report_counts_once_however_it_is_sent_again(hub, compose):
    survey = compose()
    one, other = submissions(surveys.public(survey), [PERSON] * 2)
    take(hub, "sleep", one)
    mine, theirs = json.loads(one)["reports"], json.loads(other)["reports"]
    for reports in ([mine[0]], mine[1:], mine[:-1], [*mine[:1], *theirs[1:]]):
        with pytest.raises(BadSubmission, match="replayed"):
            take(hub, "sleep", change_of(one, reports=reports))
    for end in ("\n", "\r\n", "\n\n", "\r"):
        with pytest.raises(BadSubmission, match="malformed"):
            take(hub, "sleep", change_of(one, reports=[*mine[:-1], mine[-1] + end]))
    take(hub, "sleep", change_of(one, reports=mine[::-1]))  # the same submission
    assert len(kept(hub)) == 1
    assert refused(hub, survey) == {"malformed": 4, "replayed": 4, "sent again": 1}
    take(hub, "sleep", other)  # of which nothing was kept when it came with somebody else's report
    assert len(kept(hub)) == 2


def test_envelopes_with_one_id_are_no_two_reports(hub, compose):
    survey = compose()
    raw = submissions(surveys.public(survey), [PERSON])[0]
    first, second, *_ = json.loads(raw)["reports"]
    second = second[:7] + first[7:29] + second[29:]
    assert json.loads(first)["id"] == json.loads(second)["id"]
    with pytest.raises(BadSubmission, match="replayed"):
        take(hub, "sleep", change_of(raw, reports=[first, second]))
    assert kept(hub) == []


def test_nothing_is_kept_of_when_or_in_which_order_people_answered(hub, compose):
    survey = compose()
    sent = submissions(surveys.public(survey), [PERSON] * 20)
    for raw in sent:
        take(hub, "sleep", raw)
    with hub.database.reading() as session:
        table = sa.inspect(session.connection()).get_columns("submissions")
        order = list(session.execute(sa.text("SELECT id FROM submissions")).scalars())
        for name in ("submissions", "seen_reports"):
            with pytest.raises(sa.exc.OperationalError):  # SQLite numbers rows as they come, unless told not to
                session.execute(sa.text(f"SELECT rowid FROM {name}"))
    assert {one["name"] for one in table} == {
        "survey_id",
        "wave",
        "id",
        "reports",
        "batch",
    }  # a batch is what was shown together
    assert order == sorted(order)


def change_of(raw, **changes):
    return json.dumps({**json.loads(raw), **changes}).encode()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda raw: b"{" * 40, "malformed"),
        (lambda raw: b"\xff\xfe", "malformed"),
        (lambda raw: b"[" * 100_000, "malformed"),
        (lambda raw: b" " * 600_000, "oversized"),
        (lambda raw: change_of(raw, version=2), "wrong version"),
        (lambda raw: change_of(raw, wave=2), "wrong wave"),
        (lambda raw: change_of(raw, wave=True), "wrong wave"),
        (lambda raw: change_of(raw, reports=[]), "malformed"),
        (lambda raw: change_of(raw, reports=[1]), "malformed"),
        (lambda raw: change_of(raw, reports=[None, {}]), "malformed"),
        (lambda raw: change_of(raw, name="Ada"), "malformed"),
        (lambda raw: change_of(raw, reports=json.loads(raw)["reports"][:1] * 2), "malformed"),
        (lambda raw: raw.replace(b"sleep.smoker", b"sleep.drinks"), "wrong question"),
        (lambda raw: raw.replace(b'\\"level\\":\\"1/2\\"', b'\\"level\\":\\"9\\"'), "unknown level"),
    ],
)
def test_bad_submissions_are_refused_and_counted_and_nothing_is_kept(hub, compose, spoil, reason):
    survey = compose()
    raw = spoil(submissions(surveys.public(survey), [PERSON])[0])
    with pytest.raises(BadSubmission, match=reason):
        take(hub, "sleep", raw)
    assert refused(hub, survey) == {reason: 1}
    assert kept(hub) == []


def test_seeded_reports_protect_nobody_and_are_refused(hub, compose):
    survey = compose()
    raw = submissions(surveys.public(survey), [PERSON], source=SeededSource(1))[0]
    with pytest.raises(BadSubmission, match="not private"):
        take(hub, "sleep", raw)


def test_a_survey_that_ended_or_was_closed_takes_no_answers(hub, compose):
    survey = compose(ends=now() + 1000)
    raw = submissions(surveys.public(survey), [PERSON])[0]
    with hub.database.writing() as session:
        session.execute(sa.update(Survey).values(ends=now() - 1))
    with pytest.raises(NotNow):
        take(hub, "sleep", raw)
    assert kept(hub) == []


def test_a_survey_that_closes_while_answers_wait_takes_none_of_them(hub, compose):
    survey = compose()
    raw = submissions(surveys.public(survey), [PERSON])[0]

    async def late():
        intake = Intake(hub)
        await intake.survey("sleep")  # remembered as open
        with hub.database.writing() as session:
            surveys.close(hub, session, session.get_one(Survey, survey.id))
        return await intake.take("sleep", raw)

    with pytest.raises(NotNow):
        asyncio.run(late())
    assert kept(hub) == []
    assert refused(hub, survey) == {"too late": 1}


def test_many_at_once_are_all_kept(hub, compose):
    survey = compose()
    sent = submissions(surveys.public(survey), [PERSON] * 300)

    async def crowd():
        intake = Intake(hub)
        return await asyncio.gather(*(intake.take("sleep", raw) for raw in sent))

    assert len(asyncio.run(crowd())) == 300
    assert len(kept(hub)) == 300


def test_a_disk_that_fails_acknowledges_nothing(hub, compose, monkeypatch):
    survey = compose()
    raw = submissions(surveys.public(survey), [PERSON])[0]

    def full(*_):
        raise sa.exc.OperationalError("insert", {}, Exception("disk full"))

    monkeypatch.setattr(Intake, "_write", full)
    with pytest.raises(Exception, match="could not be kept"):
        take(hub, "sleep", raw)
    monkeypatch.undo()
    take(hub, "sleep", raw)
    assert len(kept(hub)) == 1


def test_a_person_may_skip_and_a_wrong_answer_never_leaves_the_device(compose):
    told = surveys.public(compose())
    raw = submissions(told, [{"smoker": ("no", "light")}])[0]
    assert len(json.loads(raw)["reports"]) == 1
    with pytest.raises(BadInput) as refusal:
        submissions(told, [{"where": ("moon", "light")}])
    assert "moon" not in str(refusal.value)


# Invitations.


def voted(hub, survey, link):
    """A device with an invitation: its ballot."""
    secret, _, mark = link.partition("#")[2].partition(".")
    blinded, begun = Ballot.begin(survey.ballot_public, survey.name, str(survey.wave), mark)
    message, signature = begun.finish(ballots.sign(hub, survey, secret, blinded))
    return {"message": pack(message), "signature": pack(signature)}


def test_the_same_answers_in_new_envelopes_are_not_acknowledged_under_a_used_ballot(hub, compose):
    """A receipt is of envelopes: equal reports under new ids were not kept, and would be signed as if they were."""
    survey = compose(invited=True)
    with hub.database.writing() as session:
        (link,) = ballots.invite(hub, session, survey, 1)
    raw = json.loads(submissions(surveys.public(survey), [PERSON], [voted(hub, survey, link)])[0])
    first = take(hub, "sleep", json.dumps(raw).encode())
    assert take(hub, "sleep", json.dumps(raw).encode())["receipt"] == first["receipt"]
    envelopes = [json.loads(envelope) for envelope in raw["reports"]]
    for envelope in envelopes:
        envelope["id"] = pack(os.urandom(len(unpack(envelope["id"]))))
    raw["reports"] = [canonical(envelope).decode() for envelope in envelopes]
    with pytest.raises(NotNow, match="used for other answers"):
        take(hub, "sleep", json.dumps(raw).encode())
    assert len(kept(hub)) == 1


def test_who_is_invited_answers_once_and_nobody_else_does(hub, compose):
    survey = compose(invited=True)
    with hub.database.writing() as session:
        links = ballots.invite(hub, session, survey, 3)
    told = surveys.public(survey)
    mine = voted(hub, survey, links[0])
    raw, other = submissions(told, [PERSON] * 2, [mine] * 2)
    take(hub, "sleep", raw)
    take(hub, "sleep", raw)
    with pytest.raises(NotNow, match="used"):
        take(hub, "sleep", other)
    with pytest.raises(BadSubmission, match="no ballot"):
        take(hub, "sleep", submissions(told, [PERSON])[0])
    assert len(kept(hub)) == 1
    assert refused(hub, survey) == {"ballot used": 1, "no ballot": 1, "sent again": 1}
    with hub.database.reading() as session:
        assert ballots.invitations(session, survey) == (3, 1)


def test_an_invitation_gets_one_ballot_and_the_same_one_again(hub, compose):
    survey = compose(invited=True)
    with hub.database.writing() as session:
        (link,) = ballots.invite(hub, session, survey, 1)
    secret, _, mark = link.partition("#")[2].partition(".")
    blinded, _ = Ballot.begin(survey.ballot_public, "sleep", "1", mark)
    assert ballots.sign(hub, survey, secret, blinded) == ballots.sign(hub, survey, secret, blinded)
    second, _ = Ballot.begin(survey.ballot_public, "sleep", "1", mark)
    for wrong in ((secret, second), ("x" * 43, blinded)):
        with pytest.raises(Denied):
            ballots.sign(hub, survey, *wrong)


def test_a_ballot_of_one_wave_is_none_of_the_next(hub, compose):
    survey = compose(invited=True, lasting=True)
    with hub.database.writing() as session:
        (link,) = ballots.invite(hub, session, survey, 1)
    old = voted(hub, survey, link)
    with hub.database.writing() as session:
        survey = session.get_one(Survey, survey.id)
        surveys.next_wave(hub, session, survey)
    raw = submissions(surveys.public(survey), [PERSON], [old])[0]
    with pytest.raises(BadSubmission, match="no ballot"):
        take(hub, "sleep", raw)
    with pytest.raises(BadInput, match="key"):  # the device itself notices that the key is not the one of its link
        voted(hub, survey, link)
    with pytest.raises(Denied):
        ballots.sign(hub, survey, link.partition("#")[2].partition(".")[0], b"\1" * 256)


def test_links_cannot_be_read_off_the_database_and_lie_in_another_order(hub, compose):
    survey = compose(invited=True)
    with hub.database.writing() as session:
        links = ballots.invite(hub, session, survey, 50)
    hashes = [hashlib.sha256(one.partition("#")[2].partition(".")[0].encode()).hexdigest() for one in links]
    with hub.database.reading() as session:
        rows = list(session.scalars(sa.select(Invitation.id)))
    assert set(rows) == set(hashes)
    assert rows == sorted(hashes) != hashes


# Over HTTP.


def test_a_respondent_needs_no_account_and_is_given_no_cookie(hub, compose):
    compose()
    with TestClient(create_app(hub)) as browser:
        told = browser.get("/s/sleep/survey.json")
        raw = submissions(told.json(), [PERSON])[0]
        taken = browser.post("/s/sleep/answers", content=raw)
        bad = browser.post("/s/sleep/answers", content=b"{}")
        lost = browser.get("/s/nothing/survey.json")
    assert (told.status_code, taken.status_code, bad.status_code, lost.status_code) == (200, 200, 422, 404)
    assert bad.json()["refused"] == "malformed"
    assert survey_wire.verify_receipt(taken.text, hub.key.public)["survey"] == "sleep"
    for answer in (told, taken, bad, lost):
        assert "set-cookie" not in answer.headers


def test_only_modules_of_the_client_are_served(hub):
    with TestClient(create_app(hub)) as browser:
        module = browser.get("/static/local/index.mjs")
        assert module.status_code == 200
        assert module.headers["content-type"] == "text/javascript"
        for path in ("perturb.py", "__init__.py", "../question.py", "%2e%2e/question.py", ""):
            assert browser.get(f"/static/local/{path}").status_code == 404


def test_whoever_sends_too_often_is_slowed_down(hub, compose):
    compose()
    app = create_app(hub)
    app.state.answers.most = 3
    with TestClient(app) as browser:
        codes = [browser.post("/s/sleep/answers", content=b"{}").status_code for _ in range(5)]
    assert codes == [422, 422, 422, 429, 429]
