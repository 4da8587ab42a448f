"""Ledger, card, audit log and activity in the browser and over HTTP: who sees what, and that it is true."""

import json
import sqlite3

import pytest
from fastapi.testclient import TestClient

from cloister.cli import main
from cloister.hub.core.models import Dataset, Person
from cloister.hub.core.trail import verify_export
from cloister.hub.users import sessions, tokens
from cloister.hub.web.app import create_app
from cloister.hub.web.pages.subject import card_link
from cloister.privacy.ledger import Head, verify
from cloister.privacy.loss import rho


class Visit:
    """Somebody at the pages and at the API."""

    def __init__(self, world, app, person):
        self._app, self._csrf = app, ""
        self.web = TestClient(app, follow_redirects=False)
        if person is not None:
            with world.hub.database.writing() as session:
                secret, kept = sessions.begin(session, world.hub.settings, person, complete=True)
                self._token = tokens.make(session, person, "test", ["read", "work", "share"], 1)
            self._csrf = kept.csrf
            self.web.headers["cookie"] = f"cloister-session={secret}"

    def get(self, path):
        return self.web.get(path)

    def post(self, path, **sent):
        return self.web.post(path, data={**sent, "csrf": self._csrf})

    def api(self, path):
        return TestClient(self._app, headers={"Authorization": f"Bearer {self._token}"}).get(path)


@pytest.fixture
def world(hospital_hub):
    with hospital_hub.hub.database.writing() as session:
        for name, roles in (("Auditor", ["auditor"]), ("Operator", ["operator"])):
            session.add(Person(verified=1.0, email=f"{name.lower()}@hub.example", name=name, roles=roles))
        session.flush()
    with hospital_hub.hub.database.reading() as session:
        for name in ("auditor", "operator"):
            found = session.query(Person).filter(Person.email == f"{name}@hub.example").one()
            hospital_hub.people[name] = found
    return hospital_hub


@pytest.fixture
def visit(world):
    app = create_app(world.hub)

    def as_person(name=None):
        return Visit(world, app, world.people[name] if name else None)

    return as_person


@pytest.fixture
def spent(world):
    """Ada and Ben have asked; so the ledger has something to show."""
    world.submit("ada", spend="rho 0.02")
    world.submit("ben", sql="SELECT COUNT(*) AS n FROM visits", spend="rho 0.01")
    assert world.work() == ["done", "done"]
    return world


def test_an_owner_sees_who_spent_what(spent, visit):
    text = visit("owner").get("/datasets/visits/ledger").text
    for word in ("Who spent what", "Ada", "Ben", "health-research", "ρ 0.03", "ρ 0.02"):
        assert word in text
    assert "do not agree" not in text
    found = visit("owner").api("/api/datasets/visits/ledger").json()
    assert found["problems"] == []
    assert {one["label"]: one["loss"]["amount"] for one in found["by_person"]} == {"Ada": "1/50", "Ben": "1/100"}
    assert [one["state"] for one in found["spends"]] == ["released", "released"]


def test_a_mismatch_is_shown_loudly(spent, visit):
    spent.hub.ledger.account("visits").reserve(rho("0.001"), "by somebody with the key")
    text = visit("owner").get("/datasets/visits/ledger").text
    assert 'role="alert"' in text
    assert "do not agree" in text
    assert "no job of this hub asked for it" in text


def test_a_user_sees_the_total_and_their_own_spends_only(spent, visit):
    text = visit("ada").get("/datasets/visits/ledger").text
    assert "Your spends" in text
    assert "Ben" not in text
    assert "ρ 0.03" in text
    assert [one["person"] for one in visit("ada").api("/api/datasets/visits/ledger").json()["spends"]] == ["Ada"]
    assert "ben" not in visit("ada").get("/datasets/visits/ledger.csv").text.lower()
    mine = visit("ada").get("/ledger").text
    assert "ρ 0.02" in mine
    assert "whole ledger" not in mine
    (own,) = visit("ada").api("/api/ledger").json()
    assert own["spent"]["amount"] == "1/50"


def test_a_stranger_and_an_operator_find_no_ledger(spent, visit):
    for who in ("stranger", "operator"):
        for path in ("/datasets/visits/ledger", "/datasets/visits/ledger.csv", "/datasets/visits/ledger/month.svg"):
            assert visit(who).get(path).status_code == 404
        assert visit(who).api("/api/datasets/visits/ledger").status_code == 404
    for who in ("stranger", "operator", "owner"):
        assert visit(who).get("/ledger/copy").status_code == 403
        assert visit(who).post("/ledger/verify").status_code == 403
        assert visit(who).api("/api/ledger/verify").status_code == 403
    assert visit().get("/datasets/visits/ledger").headers["location"].startswith("/sign-in")


def test_the_pictures_and_the_spreadsheet_are_drawn_from_the_same_figures(spent, visit):
    for side in ("person", "purpose", "month"):
        answer = visit("owner").get(f"/datasets/visits/ledger/{side}.svg")
        assert answer.headers["content-type"] == "image/svg+xml"
        assert answer.text.startswith("<svg")
    assert visit("owner").get("/datasets/visits/ledger/secrets.svg").status_code == 404
    rows = visit("owner").get("/datasets/visits/ledger.csv").text.splitlines()
    assert len(rows) == 3
    assert "Ada" in rows[1]
    assert "1/50" in rows[1]


def test_a_name_in_a_spreadsheet_is_no_formula(spent, visit):
    with spent.hub.database.writing() as session:
        session.get(Person, spent.ada.id).name = "=HYPERLINK(1)"
    assert "'=HYPERLINK(1)" in visit("owner").get("/datasets/visits/ledger.csv").text


def test_an_auditor_verifies_and_takes_a_copy_that_the_offline_verifier_accepts(spent, visit, tmp_path, capsys):
    auditor = visit("auditor")
    shown = auditor.post("/ledger/verify").text
    assert "The ledger holds" in shown
    assert "visits@person-" in shown
    assert ">NO<" not in shown
    copy, head = auditor.get("/ledger/copy"), auditor.get("/ledger/head").text
    (tmp_path / "copy.db").write_bytes(copy.content)
    report = verify(tmp_path / "copy.db", spent.hub.key.public, Head.parse(head))
    assert report.ok
    assert {one.rules.key: one.spent for one in report.balances}["visits"] == rho("0.03")
    with pytest.raises(SystemExit) as ended:
        main(
            ["ledger", "verify", str(tmp_path / "copy.db"), "--key", str(spent.hub.key.public), "--head", head.strip()]
        )
    assert ended.value.code == 0
    assert auditor.api("/api/ledger/verify").json()["ok"] is True


def test_an_auditor_sees_a_ledger_that_was_changed(spent, visit):
    spent.hub.ledger.close()
    with sqlite3.connect(spent.hub.settings.ledger) as connection:
        connection.execute("UPDATE entries SET body = replace(body, '1/50', '1/99')")
    connection.close()
    assert visit("auditor").api("/api/ledger/verify").json()["bad_entry"] is not None


def test_an_auditor_sees_totals_and_no_answers(spent, visit):
    text = visit("auditor").get("/datasets/visits/ledger").text
    assert "Ada" in text
    assert 'href="/jobs/' not in text
    assert visit("auditor").get("/jobs/1").status_code == 404


def test_the_card_speaks_of_the_live_total(spent, visit, hospital_hub):
    text = visit("ada").get("/datasets/visits/subject").text
    assert "fifty-fifty" in text
    assert "What is not promised" in text
    assert "owner@hospital.example" in text
    assert "ρ 0.03" in text
    before = text
    spent.submit("ada", sql="SELECT AVG(age) FROM visits", spend="rho 0.02")
    spent.work()
    assert "ρ 0.05" in visit("ada").get("/datasets/visits/subject").text != before


def test_before_anything_is_released_the_card_says_so(world, visit):
    assert "Nothing has been released" in visit("owner").get("/datasets/visits/subject").text


def test_a_person_in_the_data_reads_the_card_with_its_link_and_nobody_else_without(world, visit):
    path = card_link(world.hub, "visits").removeprefix(world.hub.settings.address)
    stranger = visit()
    assert "If you are in" in stranger.get(path).text
    assert card_link(world.hub, "visits").split("key=")[1] in visit("owner").get("/datasets/visits/subject").text
    assert "key=" not in stranger.get(path).text
    # Without the key one cannot tell whether there is such a dataset.
    for name in ("visits", "nothing"):
        for key in ("", "?key=", "?key=" + "0" * 32, "?key=%F0%9F%92%A9"):
            answer = stranger.get(f"/datasets/{name}/subject{key}")
            assert (answer.status_code, answer.headers["location"].split("?")[0]) == (303, "/sign-in")
    assert visit("stranger").get("/datasets/visits/subject").status_code == 404
    assert visit("auditor").get("/datasets/visits/subject").status_code == 200


def test_the_audit_log_is_for_auditors_and_operators(spent, visit):
    for who, status in (("auditor", 200), ("operator", 200), ("owner", 403), ("ada", 403)):
        assert visit(who).get("/audit").status_code == status
        assert visit(who).get("/audit/export").status_code == status
        assert visit(who).post("/audit/verify").status_code == status
        assert visit(who).api("/api/audit").status_code == status
        assert visit(who).api("/api/audit/export").status_code == status
    assert visit().get("/audit").status_code == 303


def test_the_log_is_searched_by_person_action_object_day_and_word(spent, visit):
    auditor = visit("auditor")
    assert "job.submitted" in auditor.get("/audit?action=job.").text
    found = auditor.get("/audit?person=ada@university.example&action=job.submitted").text
    assert found.count("<td>job.submitted</td>") == 1
    assert "Nothing is found" in auditor.get("/audit?person=nobody").text
    assert "Nothing is found" in auditor.get("/audit?until=2000-01-01").text
    assert auditor.get("/audit?since=yesterday").status_code == 422
    assert auditor.get("/audit?text=%00&before=99999999999").status_code == 200
    numbers = [one["number"] for one in auditor.api("/api/audit?most=3").json()]
    assert numbers == sorted(numbers, reverse=True)
    assert auditor.api(f"/api/audit?before={numbers[-1]}&most=1").json()[0]["number"] == numbers[-1] - 1
    assert auditor.api("/api/audit?most=0").status_code == 422


def test_the_log_is_verified_and_exported_with_a_signed_head(spent, visit, tmp_path):
    auditor = visit("auditor")
    assert "The log holds" in auditor.post("/audit/verify").text
    (tmp_path / "log.jsonl").write_bytes(auditor.get("/audit/export").content)
    count = verify_export(tmp_path / "log.jsonl", spent.hub.key.public)
    assert count == len((tmp_path / "log.jsonl").read_text().splitlines()) - 2
    assert auditor.api("/api/audit/verify").json()["ok"] is True
    reads = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()[1:-1]]
    assert "audit.exported" in [one["action"] for one in reads]


def test_no_answer_is_in_the_log(spent, visit):
    released = spent.job(1).result["rows"][0][1]["value"]
    text = visit("auditor").get("/audit/export").text
    assert f'"{released}"' not in text
    assert f":{released}," not in text


def test_the_owner_sees_activity_and_pauses_the_dataset_there(spent, visit):
    owner = visit("owner")
    text = owner.get("/datasets/visits/activity").text
    for word in ("Ada", "Ben", "job.submitted", "Pause this dataset"):
        assert word in text
    assert owner.post("/datasets/visits/activity/pause", paused="yes").status_code == 303
    with spent.hub.database.reading() as session:
        assert session.query(Dataset).one().paused
    assert "Open it again" in owner.get("/datasets/visits/activity").text
    owner.post("/datasets/visits/activity/pause", paused="no")
    with spent.hub.database.reading() as session:
        assert not session.query(Dataset).one().paused


def test_nobody_else_sees_activity_or_presses_the_switch(spent, visit):
    for who in ("ada", "stranger", "operator", "auditor", "reviewer"):
        assert visit(who).get("/datasets/visits/activity").status_code == 404
        assert visit(who).post("/datasets/visits/activity/pause", paused="yes").status_code == 404
    with spent.hub.database.reading() as session:
        assert not session.query(Dataset).one().paused
