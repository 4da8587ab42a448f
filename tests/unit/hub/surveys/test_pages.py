"""Surveys in the browser of whoever composes them: every page, every form, without scripts; and for nobody else."""

import csv
import io
import re

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from cloister.client import survey_wire
from cloister.client.survey_wire import REPORTS
from cloister.hub.core.models import AuditEntry, Invitation, Person, Survey
from cloister.hub.surveys import draft as composing
from cloister.hub.users import sessions
from cloister.hub.web.app import create_app
from cloister.privacy.errors import UploadRefused

FACTS = {
    "title": "Sleep and work",
    "purpose": "To learn how people sleep.",
    "consent": "Of my own will.",
    "language": "en",
    "target": "400",
}
LEVELS = "strong 0.5\nlight 2"
WHERE = {"type": "choice", "text": "Where do you live?", "options": "town\nvillage\nfarm", "levels": LEVELS}
SMOKER = {"type": "yes_no", "text": "Do you smoke?", "levels": LEVELS}
MIXED = [
    {"id": "smoker", "type": "yes_no", "text": "Do you <b>smoke</b>?"},
    {"id": "where", "type": "choice", "text": "Where?", "options": ["town", "farm"]},
    {"id": "hours", "type": "number", "text": "How long?", "low": 0, "high": 24, "unit": "hours"},
    {"id": "rested", "type": "scale", "text": "How rested?", "low": 1, "high": 5},
    {"id": "tried", "type": "choices", "text": "What?", "options": ["tea", "sport"], "most": 2},
    {"id": "since", "type": "date", "text": "Since?", "low": "2020-01-01", "high": "2025-12-31", "step": "month"},
]


def people(n):
    said = {"smoker": "no", "where": "town", "hours": "7", "rested": "4", "tried": ["tea"], "since": "2024-05"}
    return [{name: (one, ("strong", "light")[at % 2]) for name, one in said.items()} for at in range(n)]


class Visit:
    def __init__(self, world, app, person):
        self.web, self.csrf = TestClient(app, follow_redirects=False), ""
        if person is not None:
            with world.hub.database.writing() as session:
                secret, kept = sessions.begin(session, world.hub.settings, person, complete=True)
            self.csrf = kept.csrf
            self.web.headers["cookie"] = f"cloister-session={secret}"

    def get(self, path, status=200):
        answer = self.web.get(path)
        assert answer.status_code == status, answer.text[-600:]
        return answer

    def post(self, path, status=303, **sent):
        answer = self.web.post(path, data={**sent, "csrf": self.csrf})
        assert answer.status_code == status, answer.text[-600:]
        return answer


@pytest.fixture
def visit(hospital_hub):
    app = create_app(hospital_hub.hub)

    def as_person(name="ada"):
        return Visit(hospital_hub, app, hospital_hub.people[name] if name else None)

    return as_person


@pytest.fixture
def draft(visit):
    here = visit()
    assert here.post("/surveys/new", **FACTS).headers["location"] == "/surveys/sleep-and-work"
    return here


def survey(world, name="sleep-and-work"):
    (found,) = world.rows(sa.select(Survey).where(Survey.name == name))
    return found


def log(world):
    return [(one.action, one.detail) for one in world.rows(sa.select(AuditEntry)) if one.action.startswith("survey.")]


# Composing.


def test_the_page_of_a_long_draft_computes_each_expected_error_once_and_in_a_process_of_its_own(
    draft, hospital_hub, monkeypatch
):
    here, base = draft, "/surveys/sleep-and-work"
    levels = [{"name": f"l{at}", "epsilon": f"0.{at + 1}"} for at in range(6)]
    facts = {"type": "scale", "low": 1, "high": 7, "levels": levels}
    asked = [{"id": f"q{at}", "text": f"Question {at}?", **facts} for at in range(6)]
    with hospital_hub.hub.database.writing() as session:
        session.execute(sa.update(Survey).values(asked=asked))
    with monkeypatch.context() as here_alone:
        here_alone.setattr(composing, "expected", lambda *_: pytest.fail("computed in the process that serves pages"))
        first = here.get(base).text
    assert first.count("<strong>±") == 36
    monkeypatch.setattr(composing, "run_bounded", lambda *_, **__: pytest.fail("computed again"))
    assert here.get(base).text.count("<strong>±") == 36
    with hospital_hub.hub.database.writing() as session:  # one more is computed here, since it is one
        session.execute(sa.update(Survey).values(asked=[*asked, {"id": "new", "text": "New?", **facts}]))
    assert here.get(base).text.count("<strong>±") == 42


def test_a_draft_whose_expected_errors_take_too_long_can_be_edited_all_the_same(draft, monkeypatch):
    def slow(*_):
        raise UploadRefused("it took too long.")

    here, base = draft, "/surveys/sleep-and-work"
    here.post(f"{base}/add", **WHERE)
    monkeypatch.setattr(composing, "expected_all", slow)
    page = here.get(base).text
    assert "not computed now" in page
    assert f'action="{base}/questions/live/delete"' in page


def test_a_survey_is_composed_by_plain_forms_one_question_at_a_time(draft, hospital_hub):
    here, base = draft, "/surveys/sleep-and-work"
    assert "No question yet" in here.get(base).text
    for kind in ("yes_no", "choice", "choices", "scale", "date", "number"):
        assert "Levels a person may choose from" in here.get(f"{base}/add?type={kind}").text
    here.get(f"{base}/add?type=essay", 404)
    here.post(f"{base}/add", **WHERE)
    here.post(f"{base}/add", **SMOKER)
    here.post(f"{base}/add", type="scale", text="How rested?", low="1", high="5", first="not", last="very")
    assert [one["id"] for one in survey(hospital_hub).asked] == ["live", "smoke", "rested"]
    assert survey(hospital_hub).asked[2]["options"] == ["not", "very"]
    here.post(f"{base}/questions/smoke/move", where="up")
    here.post(f"{base}/questions/smoke/move", where="up")  # the first stays the first
    here.post(f"{base}/questions/rested/delete")
    assert [one["id"] for one in survey(hospital_hub).asked] == ["smoke", "live"]
    edited = here.get(f"{base}/questions/live").text
    assert "town\nvillage\nfarm</textarea>" in edited
    here.post(f"{base}/questions/live", **{**WHERE, "id": "home", "options": "town\nfarm"})
    assert survey(hospital_hub).asked[1]["options"] == ["town", "farm"]
    assert [one["id"] for one in survey(hospital_hub).asked] == ["smoke", "home"]
    text = here.get(base).text
    assert re.search(r"strong <strong>±\s\d+\.\d\spoints</strong>", text)
    here.get(f"{base}/questions/nothing", 404)
    here.post(f"{base}/questions/nothing/move", 404, where="up")
    here.post(f"{base}/questions/home/move", 422, where="away")


def test_a_form_with_a_mistake_comes_back_with_what_was_written(draft):
    base = "/surveys/sleep-and-work"
    text = draft.post(f"{base}/add", 422, **{**WHERE, "options": "town", "help": "Only one"}).text
    assert 'role="alert"' in text
    assert "2 to 400" in text
    assert "Only one" in text
    assert "Where do you live?" in text
    text = draft.post("/surveys/new", 422, **{**FACTS, "title": "", "name": "other-one"}).text
    assert "other-one" in text
    text = draft.post(base, 422, **{**FACTS, "target": "3", "purpose": "Another"}).text
    assert "Another" in text
    for ends in ("2020-01-01", "9999-12-31", "soon"):
        draft.post(base, 422, **FACTS, ends=ends)
    draft.post("/surveys/new", 422, **FACTS)  # the same name
    draft.post("/surveys/new", 422, **FACTS, name="new")


def test_what_error_to_expect_is_told_without_scripts_and_before_it_is_saved(draft, hospital_hub):
    text = draft.post("/surveys/sleep-and-work/add", 200, **WHERE, action="look").text
    assert "± 3 points" in text
    assert "direct encoding" in text
    assert "Where do you live?" in text
    assert survey(hospital_hub).asked == []


def test_facts_are_kept_and_shown_again(draft, hospital_hub):
    changed = {**FACTS, "title": "Rest", "ends": "2030-06-30", "invited": "yes", "lasting": "yes", "about": "Hello"}
    draft.post("/surveys/sleep-and-work", **changed)
    kept = survey(hospital_hub)
    assert (kept.title, kept.invited, kept.lasting, kept.about) == ("Rest", True, True, "Hello")
    text = draft.get("/surveys/sleep-and-work").text
    assert 'value="2030-06-30"' in text
    assert text.count("checked") == 2


def test_publishing_says_what_becomes_fixed_and_asks_to_be_sure(draft, hospital_hub):
    base = "/surveys/sleep-and-work"
    draft.post(f"{base}/add", **SMOKER)
    assert "for good" in draft.get(f"{base}/publish").text
    draft.post(f"{base}/publish", 422)
    assert survey(hospital_hub).state == "draft"
    draft.post(f"{base}/publish", sure="yes")
    assert survey(hospital_hub).state == "open"
    text = draft.get(base).text
    assert "/s/sleep-and-work" in text
    draft.get(f"{base}/publish", 409)
    for path in ("add", "questions/smoke"):
        draft.get(f"{base}/{path}", 409)
    draft.post(f"{base}/add", 409, **WHERE)
    draft.post(base, 409, **FACTS)
    draft.post(f"{base}/close")
    draft.post(f"{base}/close", 409)
    assert [one for one, _ in log(hospital_hub)][-2:] == ["survey.published", "survey.closed"]


def test_invitations_are_handed_over_once_as_a_file(draft, hospital_hub):
    base = "/surveys/sleep-and-work"
    draft.post(base, **FACTS, invited="yes")
    draft.post(f"{base}/add", **SMOKER)
    draft.post(f"{base}/invitations", 409, count="3")
    draft.post(f"{base}/publish", sure="yes")
    answer = draft.post(f"{base}/invitations", 200, count="25")
    links = [row["link"] for row in csv.DictReader(io.StringIO(answer.text))]
    assert len(set(links)) == 25
    assert all(f"/s/sleep-and-work#{''}" in one for one in links)
    assert answer.headers["cache-control"] == "no-store"
    assert len(hospital_hub.rows(sa.select(Invitation))) == 25
    assert "25 links were made; 0 of them took a ballot" in draft.get(base).text
    assert not any(one in draft.get(base).text for one in links)
    for wrong in ("0", "x", "100001", ""):
        draft.post(f"{base}/invitations", 422, count=wrong)
    assert ("survey.invited", {"count": 25}) in log(hospital_hub)


def test_a_preview_shows_every_question_and_sends_nothing(visit, answered):
    answered(MIXED, people(1))
    text = visit().get("/surveys/sleep/preview").text
    for words in ("Up to 2.", "A day from 2020-01-01", "A number from 0 to 24 hours", "or skip"):
        assert words in text
    assert text.count('<fieldset class="card" disabled>') == 6
    assert "<b>smoke" not in text


# Results.


def test_results_say_in_words_what_was_found_and_how_far_to_trust_it(visit, answered):
    answered(MIXED, people(120), target=500)
    here = visit()
    here.get("/surveys/sleep/receipt")  # waits for the guarantee, for which the page does not
    text = here.get("/surveys/sleep/results").text
    for words in (
        "120 people have answered, of 500 hoped for.",
        "would say yes",
        "The mean is about",
        "made-up",
        "no signs of made-up reports",
        "Levels compared: p =",
        "As exact as",
        "trusts the operator of this hub",
        "It does not hold against the hub itself",
        "strong 60",
        "skipped 0",
        "Projected",
    ):
        assert words in text, words
    assert "<b>smoke" not in text
    assert text.count('<img src="/surveys/sleep/results/') == 6


def test_every_finding_has_a_picture_in_every_look(visit, answered):
    answered(MIXED, people(40))
    here = visit()
    looks = ("", "?theme=dark&size=narrow", "?size=half")
    for one, look in zip(MIXED, looks * 2, strict=True):
        drawn = here.get(f"/surveys/sleep/results/{one['id']}.svg{look}")
        assert drawn.headers["content-type"] == "image/svg+xml"
        assert drawn.text.startswith("<svg")
    assert here.get("/surveys/sleep/results/smoker.svg").text.count('aria-roledescription="rule mark"') == 2
    here.get("/surveys/sleep/results/nothing.svg", 404)
    here.get("/surveys/sleep/results/smoker.svg?wave=2", 404)


def test_a_survey_without_answers_has_a_page_and_no_pictures(visit, answered):
    answered(MIXED, [])
    here = visit()
    assert here.get("/surveys/sleep/results").text.count("There are no answers to this question to show yet.") == 6
    here.get("/surveys/sleep/results/smoker.svg", 404)
    assert "Nobody" not in here.get("/surveys/sleep/model").text
    assert "nobody has answered both" in here.get("/surveys/sleep/results?first=smoker&second=where").text.lower()


def test_a_draft_has_no_results(draft):
    for path in ("results", "model", "beside", "reports", "estimates", "receipt"):
        draft.get(f"/surveys/sleep-and-work/{path}", 409)


def test_a_cross_table_states_that_it_comes_from_matched_reports(visit, answered):
    answered(MIXED, people(120))
    here = visit()
    text = here.get("/surveys/sleep/results?first=smoker&second=where").text
    assert "From matched reports: 120 people answered both" in text
    assert "Cross-table" in text
    assert here.get("/surveys/sleep/cross.svg?first=smoker&second=where").text.startswith("<svg")
    text = here.get("/surveys/sleep/results?first=smoker&second=hours").text
    assert "Mean of hours by smoker" in text
    assert here.get("/surveys/sleep/cross.svg?first=smoker&second=hours").text.startswith("<svg")
    assert 'role="alert"' in here.get("/surveys/sleep/results?first=smoker&second=smoker").text
    here.get("/surveys/sleep/cross.svg?first=smoker&second=smoker", 422)
    here.get("/surveys/sleep/cross.svg?first=smoker&second=nothing", 404)


def test_a_model_card_shows_the_line_to_beat_and_answers_a_form(visit, answered):
    answered(MIXED, people(120))
    here = visit()
    text = here.get("/surveys/sleep/model?label=smoker&feature=where&feature=rested").text
    assert "Line to beat" in text
    assert "How often each answer to “where” is given" in text
    text = here.get("/surveys/sleep/model?label=smoker&feature=where&a-where=town").text
    assert "This is about people like these" in text
    for wrong in ("label=hours&feature=where", "label=smoker", "label=smoker&feature=x", "label=smoker&feature=smoker"):
        assert 'role="alert"' in here.get(f"/surveys/sleep/model?{wrong}").text
    assert "no such choice" in here.get("/surveys/sleep/model?label=smoker&feature=where&a-where=moon").text


def test_downloads_are_files_and_written_to_the_log(visit, answered, hospital_hub):
    answered(MIXED, people(30))
    here = visit()
    assert here.get("/surveys/sleep/reports").text.count("\n") == 31
    assert here.get("/surveys/sleep/reports?kind=json").json()["form"] == REPORTS
    assert "standard error" in here.get("/surveys/sleep/estimates").text
    assert here.get("/surveys/sleep/estimates?kind=json").json()["people"] == 30
    here.get("/surveys/sleep/reports?kind=xml", 422)
    answer = here.get("/surveys/sleep/receipt")
    assert survey_wire.verify_receipt(answer.content, hospital_hub.hub.key.public)["people"] == 30
    assert 'filename="sleep-wave-1.receipt.json"' in answer.headers["content-disposition"]
    actions = [one for one, _ in log(hospital_hub)]
    for action in ("survey.reports.exported", "survey.estimates.exported", "survey.receipt"):
        assert action in actions


def test_waves_are_chosen_on_the_page(visit, answered, hospital_hub):
    answered([MIXED[0]], [{"smoker": ("no", "light")}] * 40, lasting=True)
    here = visit()
    here.post("/surveys/sleep/wave")
    assert "0 people have answered" in here.get("/surveys/sleep/results").text
    assert "40 people have answered" in here.get("/surveys/sleep/results?wave=1").text
    here.get("/surveys/sleep/results?wave=3", 404)
    assert "Wave 2" in here.get("/surveys/sleep/results?wave=1").text


def test_a_survey_is_laid_beside_an_answer_of_the_same_person(visit, answered, hospital_hub):
    job = hospital_hub.submit("ada", spend="rho 0.02")
    assert hospital_hub.work() == ["done"]
    wards = [row[0]["value"] for row in hospital_hub.job(job.id).result["rows"]]
    asked = [{"id": "ward", "type": "choice", "text": "Which ward?", "options": wards}]
    answered(asked, [{"ward": (wards[at % len(wards)], "light")} for at in range(90)])
    here = visit()
    assert f"job={job.id}" in here.get("/surveys/sleep/beside").text
    text = here.get(f"/surveys/sleep/beside?question=ward&job={job.id}").text
    for words in ("Survey: local", "Release: central", "ρ 0.02", "ε 0.5", "different people"):
        assert words in text
    assert here.get(f"/surveys/sleep/beside.svg?question=ward&job={job.id}").text.startswith("<svg")
    assert 'role="alert"' in here.get("/surveys/sleep/beside?question=ward&job=999").text
    here.get("/surveys/sleep/beside.svg?question=ward&job=999", 404)


# For nobody else.


def test_others_find_nothing_and_strangers_are_asked_to_sign_in(visit, answered, hospital_hub):
    answered(MIXED, people(10))
    paths = ("", "/preview", "/publish", "/results", "/results/smoker.svg", "/cross.svg?first=smoker&second=where")
    paths += ("/model", "/beside", "/beside.svg", "/reports", "/estimates", "/receipt", "/add", "/questions/smoker")
    for path in paths:
        visit("ben").get(f"/surveys/sleep{path}", 404)
        visit("owner").get(f"/surveys/sleep{path}", 404)
        assert visit(None).get(f"/surveys/sleep{path}", 303).headers["location"].startswith("/sign-in")
    for path in ("", "/publish", "/close", "/wave", "/invitations", "/add", "/questions/smoker",
                 "/questions/smoker/move", "/questions/smoker/delete"):  # fmt: skip
        sent = {**FACTS, **SMOKER, "sure": "yes", "count": "2", "where": "up"}
        visit("ben").post(f"/surveys/sleep{path}", 404, **sent)
    assert survey(hospital_hub, "sleep").state == "open"
    assert "How people sleep" not in visit("ben").get("/surveys").text
    assert "How people sleep" in visit("ada").get("/surveys").text


def test_somebody_without_a_role_composes_nothing(visit, hospital_hub):
    with hospital_hub.hub.database.writing() as session:
        auditor = Person(email="auditor@hub.example", name="Auditor", roles=["auditor"])
        session.add(auditor)
    hospital_hub.people["auditor"] = auditor
    here = visit("auditor")
    here.get("/surveys/new", 403)
    here.post("/surveys/new", 403, **FACTS)
    assert 'href="/surveys"' not in here.get("/").text
    assert 'href="/surveys"' in visit("ada").get("/").text
