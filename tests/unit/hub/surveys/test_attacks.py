"""Attacks on surveys: what a stranger sends, what a researcher writes, what a reader of results could be misled by."""

import asyncio
import json

import pytest
from fastapi.testclient import TestClient

from cloister import local
from cloister.hub.surveys import ballots, results
from cloister.hub.surveys import survey as surveys
from cloister.hub.surveys.device import submissions
from cloister.hub.surveys.intake import BadSubmission, Intake, read
from cloister.hub.surveys.question import SurveyQuestion
from cloister.hub.web.app import create_app
from cloister.local import Question, cross, scale_mean
from cloister.local.survey.envelope import pack
from cloister.privacy.errors import BadForm, NotNow
from cloister.vault import Ballot

FACTS = {"title": "Sleep", "purpose": "To learn.", "consent": "I agree."}
SMOKER = {"id": "smoker", "type": "yes_no", "text": "Do you smoke?"}
HOURS = {"id": "hours", "type": "number", "text": "How long?", "low": 0, "high": 24}
EVIL = "\"'><script>alert(1)</script>{{ 7 * 7 }}<!--"
REASONS = {
    *("oversized", "malformed", "wrong version", "wrong wave", "wrong question", "unknown level", "wrong mechanism"),
    *("out of domain", "not private", "no ballot"),
}


@pytest.fixture
def hub(hospital_hub):
    return hospital_hub.hub


@pytest.fixture
def compose(hospital_hub):
    def make(asked=(SMOKER,), **facts):
        with hospital_hub.hub.database.writing() as session:
            told = {**FACTS, **facts, "asked": list(asked)}
            made = surveys.create(hospital_hub.hub, session, hospital_hub.ada, "sleep", told)
            surveys.publish(hospital_hub.hub, session, made)
        return made

    return make


def take(hub, raw):
    async def once():
        return await Intake(hub).take("sleep", raw)

    return asyncio.run(once())


def good(survey, **said):
    return json.loads(submissions(surveys.public(survey), [said or {"smoker": ("yes", "light")}])[0])


# What a stranger sends.


def changed(sent, **change):
    return json.dumps({**sent, **change}).encode()


ATTACKS = {
    "deep": lambda sent: b'{"version":1,"wave":1,"reports":' + b"[" * 200_000,
    "deep envelope": lambda sent: changed(sent, reports=['{"id":' + "[" * 400]),
    "long number": lambda sent: b'{"version":1,"wave":' + b"9" * 6000 + b',"reports":["x"]}',
    "not a number": lambda sent: b'{"version":NaN,"wave":Infinity,"reports":["x"]}',
    "wave is true": lambda sent: changed(sent, wave=True),
    "wave is a list": lambda sent: changed(sent, wave=[1]),
    "surrogates": lambda sent: changed(sent, reports=["\ud800" + sent["reports"][0]]),
    "surrogate in the id": lambda sent: changed(
        sent, reports=[sent["reports"][0].replace('"id":"', '"id":"\ud800', 1)]
    ),
    "zero bytes": lambda sent: b"\0" * 1000,
    "no text at all": lambda sent: b"\xff\xfe\xfd",
    "reports are numbers": lambda sent: changed(sent, reports=[1]),
    "reports are lists": lambda sent: changed(sent, reports=[[sent["reports"][0]]]),
    "reports are an object": lambda sent: changed(sent, reports={"0": sent["reports"][0]}),
    "the same question twice": lambda sent: changed(sent, reports=sent["reports"] * 2),
    "many": lambda sent: changed(sent, reports=sent["reports"] * 5000),
    "one field more": lambda sent: changed(sent, who="me"),
    "a field twice": lambda sent: changed(sent, reports=[sent["reports"][0].replace("{", '{"version":1,', 1)]),
    "level is a list": lambda sent: changed(sent, reports=[sent["reports"][0].replace('"level":"2"', '"level":[]')]),
    "too long": lambda sent: b" " * (600 * 1024),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_whatever_is_sent_is_refused_for_one_of_few_reasons(compose, attack):
    survey = compose()
    raw = attack(good(survey))
    with pytest.raises(BadSubmission) as refusal:
        read(survey, raw)
    assert refusal.value.reason in REASONS


@pytest.mark.parametrize(
    "ballot",
    [
        *(None, 1, [], {}, {"message": "\ud800"}),
        {"message": 1, "signature": 2},
        {"message": "AA", "signature": "AA"},
        {"message": pack(bytes(300_000)), "signature": pack(bytes(256))},
    ],
)
def test_a_ballot_of_any_form_is_refused_as_none(compose, ballot):
    survey = compose(invited=True)
    with pytest.raises(BadSubmission, match="no ballot"):
        read(survey, changed(good(survey), ballot=ballot))


def test_one_invitation_is_no_two_answers_even_with_a_second_signature_on_the_same_ballot(hub, compose):
    survey = compose(invited=True)
    with hub.database.writing() as session:
        link = ballots.invite(hub, session, survey, 1)[0]
    secret, mark = link.partition("#")[2].split(".")
    blinded, state = Ballot.begin(survey.ballot_public, "sleep", "1", mark)
    message, signature = state.finish(ballots.sign(hub, survey, secret, blinded))
    paper = {"message": pack(message), "signature": pack(signature)}
    take(hub, changed(good(survey), ballot=paper))
    with pytest.raises(NotNow, match="used"):
        take(hub, changed(good(survey, smoker=("no", "strong")), ballot=paper))


@pytest.mark.parametrize("blinded", [b"", bytes(256), b"\xff" * 256, bytes([1]) * 255, bytes([1]) * 257])
def test_what_is_no_blinded_ballot_does_not_use_up_an_invitation(hub, compose, blinded):
    survey = compose(invited=True)
    with hub.database.writing() as session:
        link = ballots.invite(hub, session, survey, 1)[0]
    secret, mark = link.partition("#")[2].split(".")
    with pytest.raises(BadForm, match="no ballot"):
        ballots.sign(hub, survey, secret, blinded)
    proper, state = Ballot.begin(survey.ballot_public, "sleep", "1", mark)
    state.finish(ballots.sign(hub, survey, secret, proper))


def test_who_answers_while_the_next_wave_begins_is_told_so_and_not_that_the_survey_is_over(hub, compose):
    survey = compose(lasting=True)

    async def late():
        intake = Intake(hub)
        await intake.survey("sleep")  # remembered for a second
        with hub.database.writing() as session:
            surveys.next_wave(hub, session, surveys.find(session, "sleep"))
        return await intake.take("sleep", json.dumps(good(survey)).encode())

    with pytest.raises(BadSubmission, match="wrong wave"):
        asyncio.run(late())
    with hub.database.reading() as session:
        assert surveys.sizes(session, survey, 1) == (0, {"too late": 1})


def test_a_respondent_who_is_signed_in_gets_the_same_page_as_a_stranger(hub, compose):
    compose()
    with TestClient(create_app(hub)) as browser:
        pages = [
            browser.get(path, headers=headers).content
            for path in ("/s/sleep", "/s/sleep/survey.json")
            for headers in ({}, {"cookie": "cloister-session=somebody; __Host-cloister-session=somebody"})
        ]
    assert pages[0] == pages[1]
    assert pages[2] == pages[3]


def test_questions_are_certified_before_the_event_loop_needs_them(hub, compose):
    """Certifying takes seconds where there are many questions: every other request would wait for it."""
    survey = compose()
    surveys._collection.cache_clear()
    surveys._asked.cache_clear()
    intake = Intake(hub)
    asyncio.run(intake.survey("sleep"))
    misses = surveys._collection.cache_info().misses, surveys._asked.cache_info().misses
    read(survey, json.dumps(good(survey)).encode())
    assert (surveys._collection.cache_info().misses, surveys._asked.cache_info().misses) == misses


# What a researcher writes.


@pytest.mark.parametrize("levels", [[5], [None], [["strong"]], [{"name": None, "epsilon": 1}], [[["a"], "1"]], 7, [{}]])
def test_levels_of_any_form_are_refused_with_a_sentence(levels):
    with pytest.raises(BadForm):
        SurveyQuestion.read({**SMOKER, "levels": levels})


@pytest.mark.parametrize("high", ["0.1234567890123456789", "1e-300", "99999999999999999999", "9007199254740993"])
def test_bounds_that_no_browser_reads_exactly_are_refused_while_composing(high):
    with pytest.raises(BadForm, match="digits"):
        SurveyQuestion.read({**HOURS, "high": high})


def test_an_epsilon_that_no_browser_reads_is_refused_while_composing():
    with pytest.raises(BadForm, match="digits"):
        SurveyQuestion.read({**SMOKER, "levels": [{"name": "odd", "epsilon": "0." + "123456789" * 50}]})


def test_no_level_is_called_like_those_who_skipped():
    with pytest.raises(BadForm, match="skipped"):
        SurveyQuestion.read({**SMOKER, "levels": "skipped 1\nlight 2"})


def test_what_a_researcher_writes_is_text_on_the_respondents_page(hub, compose):
    asked = [
        {**SMOKER, "text": EVIL, "help": EVIL},
        {"id": "where", "type": "choice", "text": EVIL, "options": [EVIL, "b"]},
        {"id": "many", "type": "choice", "text": EVIL, "options": [EVIL, *(f"o{one}" for one in range(20))]},
        {"id": "tried", "type": "choices", "text": EVIL, "options": [EVIL, "b"], "most": 1},
        {"id": "rested", "type": "scale", "text": EVIL, "low": 1, "high": 5, "options": [EVIL, "very"]},
        {**HOURS, "text": EVIL, "unit": "\"'><script>"},
    ]
    compose(asked, title=EVIL, about=EVIL, purpose=EVIL, consent=EVIL)
    with TestClient(create_app(hub)) as browser:
        page = browser.get("/s/sleep")
        told = browser.get("/s/sleep/survey.json")
    assert "<script>alert" not in page.text
    assert "\"'><script>" not in page.text
    assert "49" not in page.text.partition("<main")[2].partition("data-words")[0]
    assert page.text.count("<script") == 1
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert told.headers["content-type"] == "application/json"
    assert told.headers["x-content-type-options"] == "nosniff"


# What a reader could be misled by.


@pytest.mark.parametrize("few", [2, 3, 10])
def test_the_mean_of_a_scale_is_not_sure_of_itself_because_few_reports_are_alike(few):
    stars = Question("stars", [local.DirectEncoding.for_loss(5, local.epsilon(2))])
    found = scale_mean(stars, [("2", bytes([4]))] * few)
    assert found.interval[1] - found.interval[0] > 1


@pytest.mark.parametrize("name", ["raw", "low", "high", "projected", "first", "second"])
def test_a_question_may_be_called_like_a_column_of_its_cross_table(name):
    first, second = (
        Question(one, [local.DirectEncoding.for_loss(2, local.epsilon(2))], ["a", "b"]) for one in (name, "other")
    )
    told = cross(first, second, [("2", bytes([place % 2]), "2", bytes([place % 3 > 0])) for place in range(60)])
    cells = told.to_json()["cells"]
    assert [(one["first"], one["second"]) for one in cells] == [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")]
    assert [one["raw"] for one in cells] == pytest.approx(told.raw.ravel().tolist())


def test_estimates_of_two_moments_give_a_single_report_away_and_the_results_say_so(hospital_hub, answered):
    """The amplified epsilon is that of one publication: who has two subtracts, and is left with one report."""
    hub, asked = hospital_hub.hub, [{**SMOKER, "levels": "light 2"}]

    def found_now(survey):
        with hub.database.reading() as session:
            return results.read(hub, session, surveys.find_own(session, "sleep", survey.owner))

    first = found_now(answered(asked, [{"smoker": ("yes", "light")}] * 200))
    second = found_now(answered(asked, [{"smoker": ("yes", "light")}]))
    sums = [one.about("smoker").rows()[1]["raw"] * one.n for one in (first, second)]
    fresh = [one["smoker"] for one in second.people]
    for one in first.people:
        fresh.remove(one["smoker"])
    [(level, report)] = fresh
    alone = local.scores(second.questions["smoker"].at(level), [report])[0, 1]
    assert sums[1] - sums[0] == pytest.approx(float(alone), abs=1e-6)
    told = second.about("smoker").to_json()["published"]
    assert told["epsilon"] < float(told["local"]) / 2
    assert "published once" in told["of"]
