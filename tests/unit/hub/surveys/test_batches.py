"""Answers are shown in batches: whoever looks after every answer cannot tell whose it is."""

import asyncio
import csv
import io
import itertools
import json
import re

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from cloister.hub.core.models import SeenReport, Survey
from cloister.hub.surveys import ballots, results
from cloister.hub.surveys import survey as surveys
from cloister.hub.surveys.device import submissions
from cloister.hub.surveys.intake import BadSubmission, Intake
from cloister.hub.users import tokens
from cloister.hub.web.app import create_app
from cloister.local.survey.envelope import pack
from cloister.vault import Ballot

BATCH = 20
SMOKER = {"id": "smoker", "type": "yes_no", "text": "Do you smoke?", "levels": "light 2"}
HOME = {"id": "where", "type": "choice", "text": "Where?", "options": ["town", "farm"], "levels": "light 2"}
FACTS = {"title": "Sleep", "purpose": "To learn.", "consent": "I agree.", "asked": [SMOKER, HOME]}


@pytest.fixture
def world(world_maker, tmp_path):
    made = world_maker(tmp_path / "hub", survey_batch=BATCH, requests_per_minute=10**6, answers_per_minute=10**6)
    yield made
    made.hub.close()


@pytest.fixture
def web(world):
    with world.hub.database.writing() as session:
        secret = tokens.make(session, world.ada, "t", ["read", "work"], 3)
    return TestClient(create_app(world.hub), headers={"Authorization": f"Bearer {secret}"})


def compose(world, **facts):
    with world.hub.database.writing() as session:
        made = surveys.create(world.hub, session, world.ada, "sleep", {**FACTS, **facts})
        surveys.publish(world.hub, session, made)
    return made


def one_answer(survey, said):
    return submissions(surveys.public(survey), [{"smoker": (said, "light"), "where": ("farm", "light")}])[0]


def send(world, raw):
    async def once():
        return await Intake(world.hub).take("sleep", raw)

    return asyncio.run(once())


def seen(world, web):
    """Everything that the collector can look at, as text, without what changes by itself."""
    told = {
        path: web.get(f"/api/surveys/{path}").text
        for path in ("sleep", "sleep/results", "sleep/reports", "sleep/reports?kind=csv", "sleep/receipt",
                     "sleep/cross?first=smoker&second=where")
    }  # fmt: skip
    told["list"] = web.get("/api/surveys").text
    with world.hub.database.reading() as session:
        survey = session.scalar(sa.select(Survey))
        told["ballots"] = str(ballots.invitations(session, survey, world.hub.settings.survey_batch)[1])
        told["sizes"] = str(surveys.shown_sizes(world.hub, session, survey))
    told["sleep/receipt"] = re.sub(r'"signature": "[^"]*"', "", told["sleep/receipt"])
    return told


def shown(world):
    with world.hub.database.reading() as session:
        return results.read(world.hub, session, session.scalar(sa.select(Survey))).n


def test_looking_after_every_answer_tells_nothing_until_a_batch_is_full(world, web):
    survey = compose(world, invited=True)
    with world.hub.database.writing() as session:
        links = ballots.invite(world.hub, session, session.merge(survey), BATCH + 3)
    before = seen(world, web)
    for place, link in enumerate(links, 1):
        secret, mark = link.partition("#")[2].split(".")
        blinded, state = Ballot.begin(survey.ballot_public, "sleep", "1", mark)
        signed = ballots.sign(world.hub, survey, secret, blinded)
        raw = json.loads(one_answer(survey, "yes" if place % 2 else "no"))
        message, signature = state.finish(signed)
        send(world, json.dumps({**raw, "ballot": {"message": pack(message), "signature": pack(signature)}}).encode())
        after = seen(world, web)
        if place % BATCH:
            assert after == before, place
        else:
            assert json.loads(after["sleep/reports"])["reports"] != json.loads(before["sleep/reports"])["reports"]
            assert len(json.loads(after["sleep/reports"])["reports"]) == BATCH
        before = after


def test_answers_that_wait_are_shown_together_once_they_are_enough(world, web):
    survey = compose(world)
    for _ in range(BATCH + 7):  # nobody looks meanwhile
        send(world, one_answer(survey, "yes"))
    assert json.loads(web.get("/api/surveys").text)["surveys"][0]["people"] == BATCH + 7
    assert shown(world) == BATCH + 7
    rows = list(csv.reader(io.StringIO(web.get("/api/surveys/sleep/reports?kind=csv").text)))
    assert len(rows) == 1 + BATCH + 7


@pytest.mark.parametrize("looks", [["sleep"], ["sleep", "sleep/results"], [""], ["", "sleep/results", "sleep"]])
def test_no_two_pages_that_count_people_tell_a_single_answer(world, web, looks):
    """One page said the batches that are full, another the answers behind them: their difference was one person."""
    survey, counts = compose(world), [0]
    for answer in range(3 * BATCH + 5):
        send(world, one_answer(survey, "yes"))
        path = looks[answer % len(looks)]
        told = web.get(f"/api/surveys/{path}").json() if path else web.get("/api/surveys").json()["surveys"][0]
        if told["people"] != counts[-1]:
            counts.append(told["people"])
    assert counts[-1] >= 2 * BATCH
    assert all(after - before >= BATCH for before, after in itertools.pairwise(counts)), counts


def test_closing_after_one_more_answer_does_not_show_it_alone(world, web):
    survey = compose(world)
    for _ in range(BATCH):
        send(world, one_answer(survey, "yes"))
    before = web.get("/api/surveys/sleep/reports").text
    send(world, one_answer(survey, "no"))
    assert web.post("/api/surveys/sleep/close").status_code == 200
    assert web.get("/api/surveys/sleep/reports").text == before
    assert shown(world) == BATCH


def test_the_next_wave_does_not_show_the_last_answer_of_the_one_before_alone(world, web):
    survey = compose(world, lasting=True)
    send(world, one_answer(survey, "no"))
    assert web.post("/api/surveys/sleep/wave").status_code == 200
    assert web.get("/api/surveys/sleep/results?wave=1").json()["people"] == 0


def test_refused_submissions_are_counted_in_steps_while_the_wave_is_open(world, web):
    compose(world)
    for _ in range(BATCH - 1):
        assert TestClient(create_app(world.hub)).post("/s/sleep/answers", content=b"{}").status_code == 422
    assert web.get("/api/surveys/sleep").json()["refused"] == {}
    TestClient(create_app(world.hub)).post("/s/sleep/answers", content=b"{}")
    assert web.get("/api/surveys/sleep").json()["refused"] == {"malformed": BATCH}
    TestClient(create_app(world.hub)).post("/s/sleep/answers", content=b"{}")
    assert web.get("/api/surveys/sleep").json()["refused"] == {"malformed": BATCH}
    web.post("/api/surveys/sleep/close")
    assert web.get("/api/surveys/sleep").json()["refused"] == {"malformed": BATCH + 1}


def test_many_who_look_at_once_make_one_batch(world):
    from concurrent.futures import ThreadPoolExecutor

    survey = compose(world)
    for _ in range(BATCH + 1):
        send(world, one_answer(survey, "yes"))
    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(lambda _: shown(world), range(12))) == {BATCH + 1}


def test_in_postgresql_a_submission_is_kept_once_with_the_ids_of_its_reports(world_maker, tmp_path, postgres_address):
    """The driver does not tell how many rows an INSERT wrote: a first submission was taken for a repeated one."""
    world = world_maker(tmp_path / "hub", database_url=postgres_address)
    survey = compose(world)
    first = one_answer(survey, "yes")
    for _ in range(2):
        assert send(world, first)["receipt"]["survey"] == "sleep"
    with world.hub.database.reading() as session:
        taken, refused = surveys.sizes(session, survey)
        assert (taken, refused) == (1, {"sent again": 1})
        assert session.scalar(sa.select(sa.func.count()).select_from(SeenReport)) == 2
    other = json.loads(one_answer(survey, "no"))
    other["reports"][0] = json.loads(first)["reports"][0]
    with pytest.raises(BadSubmission, match="replayed"):
        send(world, json.dumps(other).encode())
    world.hub.close()
