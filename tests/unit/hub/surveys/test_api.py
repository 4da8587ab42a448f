"""Surveys for programs: composed, opened and read over HTTP and with the Python client; for nobody else."""

import socket
import threading
import time

import pytest
import sqlalchemy as sa
import uvicorn
from fastapi.testclient import TestClient

from cloister.client import Client, survey_wire
from cloister.hub.core.models import AuditEntry
from cloister.hub.surveys import survey
from cloister.hub.surveys.question import SurveyQuestion
from cloister.hub.users import tokens
from cloister.hub.web.app import create_app
from cloister.privacy.errors import BadForm, NotHere, NotNow, ReceiptRejected

ASKED = [
    {"id": "smoker", "type": "yes_no", "text": "Do you smoke?"},
    {"id": "where", "type": "choice", "text": "Where?", "options": ["town", "farm"], "levels": [["strong", "0.5"]]},
]
FACTS = {"title": "Sleep", "purpose": "To learn.", "consent": "Of my own will.", "asked": ASKED}
PEOPLE = [{"smoker": ("no", "light"), "where": ("town", "strong")}] * 40


def token(world, who="ada", scopes=("read", "work")):
    with world.hub.database.writing() as session:
        return tokens.make(session, world.people[who], "test", list(scopes), 1)


@pytest.fixture
def call(hospital_hub):
    app = create_app(hospital_hub.hub)

    def made(who="ada", scopes=("read", "work")):
        return TestClient(app, headers={"Authorization": f"Bearer {token(hospital_hub, who, scopes)}"})

    return made


def test_a_survey_is_composed_opened_and_closed_over_http(call):
    web = call()
    made = web.post("/api/surveys", json={"name": "sleep", **FACTS, "target": 300})
    assert made.status_code == 201, made.text
    assert (made.json()["state"], made.json()["people"]) == ("draft", 0)
    changed = web.put("/api/surveys/sleep", json={"title": "Rest", "lasting": True, "ends": None})
    assert changed.json()["title"] == "Rest"
    assert len(changed.json()["asked"]) == 2
    assert web.post("/api/surveys/sleep/publish").json()["open"] is True
    assert web.put("/api/surveys/sleep", json={"title": "Late"}).status_code == 409
    assert web.post("/api/surveys/sleep/wave").json()["wave"] == 2
    assert web.post("/api/surveys/sleep/close").json()["state"] == "closed"
    assert [one["name"] for one in web.get("/api/surveys").json()["surveys"]] == ["sleep"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "x"},
        {"name": "new"},
        {"name": "sleep", "target": 1},
        {"name": "sleep", "ends": 5},
        {"name": "sleep", "language": "tlh"},
        {"name": "sleep", "asked": [{"id": "a", "type": "essay", "text": "?"}]},
        {"name": "sleep", "asked": [*ASKED, ASKED[0]]},
        {"name": "sleep", "colour": "red"},
        {"name": "sleep", "purpose": ""},
    ],
)
def test_a_wrong_survey_is_refused_with_a_sentence(call, wrong):
    answer = call().post("/api/surveys", json={**FACTS, **wrong})
    assert answer.status_code == 422
    assert set(answer.json()) == {"code", "message", "way_out"}


def many(count):
    levels = [{"name": f"l{at}", "epsilon": f"{1000 + 7 * at}/{1001 + count}"} for at in range(6)]
    return [
        {
            "id": f"q{at}",
            "type": "choice",
            "text": "t",
            "options": ["a", "b", *(f"o{k}" for k in range(at))],
            "levels": levels,
        }
        for at in range(count)
    ]


def test_a_long_draft_is_certified_and_opened_in_a_process_of_its_own(call):
    web = call()
    began = time.process_time()
    assert web.post("/api/surveys", json={"name": "long-one", **FACTS, "asked": many(20)}).status_code == 201
    assert web.put("/api/surveys/long-one", json={"asked": many(20)[:18]}).status_code == 200
    assert web.post("/api/surveys/long-one/publish").json()["open"] is True
    assert time.process_time() - began < 2


def test_a_wrong_name_is_refused_before_the_questions_are_certified(call, monkeypatch):
    def never(*_, **__):
        raise AssertionError("questions were read")

    web = call()
    assert web.post("/api/surveys", json={"name": "sleep", **FACTS}).status_code == 201
    assert web.post("/api/surveys/sleep/publish").status_code == 200
    monkeypatch.setattr(survey, "read_bounded", never)
    for name in ("XXX", "sleep"):
        assert web.post("/api/surveys", json={"name": name, **FACTS}).status_code == 422
    assert web.put("/api/surveys/sleep", json={"asked": ASKED}).status_code == 409
    assert web.put("/api/surveys/none", json={"asked": ASKED}).status_code == 404


def test_a_long_draft_counts_in_proportion_to_its_questions(call):
    web = call()
    counted = []
    web.app.state.limiter.check = lambda key, weight=1: counted.append(weight)
    web.post("/api/surveys", json={"name": "long-one", **FACTS, "asked": [{}] * 60})
    assert sum(counted) == 30


def test_days_of_two_centuries_are_listed_once(within):
    told = {"id": "q", "type": "date", "text": "t", "low": "1900-01-01", "high": "2099-12-31", "step": "year"}
    within(3, lambda: SurveyQuestion.read(told))


def test_advice_compares_mechanisms_and_says_what_is_missing(call):
    web = call()
    body = {"question": {"type": "choice", "text": "?", "options": ["a", "b", "c"]}, "people": 1000}
    levels = web.post("/api/surveys/advice", json=body).json()["levels"]
    assert [one["level"] for one in levels] == ["strong", "medium", "light"]
    assert levels[0]["margin"] > levels[2]["margin"]
    errors = [one["error"] for one in levels[0]["candidates"]]
    assert errors == sorted(errors)
    assert levels[0]["error"] == pytest.approx(errors[0])
    assert levels[0]["needed"] > levels[2]["needed"]
    half = web.post("/api/surveys/advice", json={"question": {"type": "choice", "text": "?", "options": "a"}})
    assert half.status_code == 200
    assert "options" in half.json()["problem"]
    number = {"type": "number", "text": "?", "low": 0, "high": 24, "unit": "hours"}
    told = web.post("/api/surveys/advice", json={"question": number}).json()["levels"][0]
    assert told["margin_text"].endswith("hours")
    assert told["needed"] is None


def test_results_and_reports_are_read_and_exports_are_logged(call, answered, hospital_hub):
    answered(ASKED, PEOPLE)
    web = call()
    found = web.get("/api/surveys/sleep/results").json()
    assert found["people"] == 40
    assert found["questions"][0]["published"]["trusted"].startswith("the operator of this hub")
    table = web.get("/api/surveys/sleep/cross?first=smoker&second=where").json()
    assert (table["how"], table["n"]) == ("matched", 40)
    assert len(web.get("/api/surveys/sleep/reports").json()["reports"]) == 40
    assert web.get("/api/surveys/sleep/reports?kind=csv").text.startswith("smoker level,")
    assert (
        survey_wire.verify_receipt(web.get("/api/surveys/sleep/receipt").content, hospital_hub.hub.key.public)["people"]
        == 40
    )
    actions = [one.action for one in hospital_hub.rows(sa.select(AuditEntry))]
    assert actions.count("survey.reports.exported") == 2
    assert "survey.receipt" in actions
    assert web.get("/api/surveys/sleep/results?wave=2").status_code == 404
    assert web.get("/api/surveys/sleep/cross?first=smoker&second=smoker").status_code == 422
    assert web.get("/api/surveys/sleep/cross?first=smoker&second=else").status_code == 404


def test_reading_needs_the_scope_read_and_composing_the_scope_work(call, answered):
    answered(ASKED, [])
    reader, worker = call(scopes=("read",)), call(scopes=("work",))
    assert reader.get("/api/surveys/sleep/results").status_code == 200
    assert reader.post("/api/surveys/sleep/close").status_code == 403
    assert reader.post("/api/surveys", json={"name": "more", **FACTS}).status_code == 403
    assert worker.get("/api/surveys/sleep/results").status_code == 403
    assert worker.post("/api/surveys/sleep/close").status_code == 200


def test_others_are_told_that_there_is_nothing(call, answered):
    answered(ASKED, PEOPLE[:2])
    other = call("ben")
    for path in ("", "/results", "/cross?first=smoker&second=where", "/reports", "/receipt"):
        assert other.get(f"/api/surveys/sleep{path}").status_code == 404
    for path, body in (("/publish", None), ("/close", None), ("/wave", None), ("/invitations", {"count": 1})):
        assert other.post(f"/api/surveys/sleep{path}", json=body).status_code == 404
    assert other.put("/api/surveys/sleep", json={"title": "Mine"}).status_code == 404
    assert other.get("/api/surveys").json() == {"surveys": []}


# With the client.


@pytest.fixture
def client(hospital_hub):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = uvicorn.Config(create_app(hospital_hub.hub), port=port, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    with Client(f"http://127.0.0.1:{port}", token(hospital_hub)) as made:
        yield made
    server.should_exit = True
    thread.join()


def test_the_client_composes_and_reads_a_survey(client, answered, hospital_hub):
    (best, *_) = client.advise_question({"type": "yes_no", "text": "?"}, people=1000)
    assert best["mechanism"] == "randomised-response"
    with pytest.raises(BadForm):
        client.advise_question({"type": "essay"})
    survey = client.create_survey("sleep", title="Sleep", purpose="To learn.", consent="Mine.", asked=ASKED)
    with pytest.raises(NotNow):
        survey.results()
    survey.change(invited=True)
    survey.publish()
    assert len(set(survey.invite(5))) == 5
    assert survey.link.endswith("/s/sleep")
    answered(ASKED, PEOPLE)
    found = survey.results()
    assert found["smoker"].reports == found.people == 40
    assert survey.cross("smoker", "where")["n"] == 40
    again = survey.collection().estimate("sleep.smoker").rows()
    assert again[1]["raw"] == pytest.approx(found["smoker"].estimates[1]["raw"])
    assert survey_wire.verify_receipt(survey.receipt(), hospital_hub.hub.key.public)["people"] == 40
    assert [one["name"] for one in client.surveys()] == ["sleep"]
    assert survey.close()["state"] == "closed"
    with pytest.raises(NotHere):
        client.survey("nothing").results()


def test_with_a_pinned_key_the_receipt_of_a_survey_is_checked(client, answered, hospital_hub, monkeypatch):
    for name in ("sleep", "other"):
        survey = client.create_survey(name, title="Sleep", purpose="To learn.", consent="Mine.", asked=ASKED)
        survey.publish()
    answered(ASKED, PEOPLE)
    client.owner_key = hospital_hub.hub.key.public
    genuine = client.survey("sleep").receipt()
    assert survey_wire.verify_receipt(genuine, client.owner_key)["survey"] == "sleep"
    monkeypatch.setattr(client.transport, "raw", lambda *_: genuine)
    for sent, words in (
        (genuine, "another survey"),
        (genuine.replace(b"Sleep", b"Sloop"), "does not fit"),
        (b'{"receipt": {"form": "cloister-survey-analysis/1"}, "signature": "AAAA"}', "does not fit"),
    ):
        monkeypatch.setattr(client.transport, "raw", lambda *_, sent=sent: sent)
        with pytest.raises(ReceiptRejected, match=words):
            client.survey("other").receipt()
