"""Asking and deciding in the browser and over HTTP."""

import re

import pytest
from fastapi.testclient import TestClient

from cloister.hub.users import tokens
from cloister.hub.web.app import create_app
from cloister.privacy.errors import Denied

BY_REQUEST = """  guests:
    who: {roles: [data user]}
    may: [see schema, query]
    by_request: true
"""


@pytest.fixture
def world(hospital_hub):
    hospital_hub.publish(change=[("roles:\n  researchers", f"roles:\n{BY_REQUEST}  researchers")])
    return hospital_hub


@pytest.fixture
def visit(world, visits_of):
    return visits_of(world)


def asked(visit, who="stranger"):
    sent = {"role": "guests", "purpose": "health-research", "text": "To count <b>visits</b>."}
    answer = visit(who).post("/datasets/visits/requests", **sent)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def test_access_is_asked_for_granted_used_and_revoked(world, visit):
    stranger, owner = visit("stranger"), visit("owner")
    assert "Ask for this role" in stranger.get("/datasets/visits/requests").text
    path = asked(visit)
    assert "Nobody decides about their own request" in stranger.get(path).text
    assert "Waiting for you" in owner.get("/requests").text
    shown = owner.get(path).text
    assert "To count &lt;b&gt;visits&lt;/b&gt;." in shown
    assert "Your decision" in shown
    assert owner.post(f"{path}/comment", text="Which ones?").status_code == 303
    assert "Which ones?" in stranger.get(path).text
    assert owner.post(f"{path}/decide", word="agree", days="30", reason="").status_code == 303
    assert "granted" in stranger.get(path).text
    assert world.submit("stranger").state == "queued"
    assert owner.post(f"{path}/revoke", reason="It is over.").status_code == 303
    assert "revoked" in stranger.get("/requests").text
    with pytest.raises(Denied):
        world.submit("stranger")


def test_notices_lead_to_the_request_and_are_marked_as_read(world, visit):
    path = asked(visit)
    owner = visit("owner")
    text = owner.get("/notices").text
    assert "Stranger asks for the role guests of visits" in text
    assert 'class="count"' in text
    number = next(one["id"] for one in owner.api.get("/api/notices").json() if one["link"] == path)
    answer = owner.post(f"/notices/{number}")
    assert answer.headers["location"] == path
    assert [one["read"] for one in owner.api.get("/api/notices").json() if one["id"] == number] == [True]
    assert visit("ada").post(f"/notices/{number}").status_code == 404
    asked(visit, "cleo")
    assert owner.post("/notices/read").status_code == 303
    assert 'class="count"' not in owner.get("/notices").text
    assert owner.api.get("/api/notices").json()[0]["read"] is True


def test_a_reviewer_sees_plan_cost_and_expected_error_of_a_release(world, visit):
    job = world.submit("ada", spend="rho 0.04")
    assert job.state == "waiting"
    reviewer = visit("reviewer")
    assert "Waiting for you" in reviewer.get("/requests").text
    text = reviewer.get("/requests/1").text
    for word in ("ρ 0.04", "Expected error", "GROUP BY ward", "health-research"):
        assert word in text
    assert "What the engine will run" not in text  # the reviewer is in no role that sees the tables
    assert visit("ada").post("/requests/1/decide", word="agree").status_code == 403
    assert visit("ben").get("/requests/1").status_code == 404
    assert reviewer.post("/requests/1/decide", word="agree").status_code == 303
    assert world.work() == ["done"]


def test_a_denial_needs_a_reason_and_the_work_does_not_run(world, visit):
    job = world.submit("ada", spend="rho 0.04")
    owner = visit("owner")
    assert owner.post("/requests/1/decide", word="deny", reason="").status_code == 422
    assert owner.post("/requests/1/decide", word="deny", reason="Ask for less.").status_code == 303
    assert world.work() == []
    assert world.job(job.id).state == "refused"
    assert "Ask for less." in visit("ada").get("/requests/1").text


def test_whoever_asked_withdraws(world, visit):
    path = asked(visit)
    assert visit("owner").post(f"{path}/withdraw").status_code == 403
    assert visit("stranger").post(f"{path}/withdraw").status_code == 303
    assert "Withdraw" not in visit("stranger").get(path).text


def test_strangers_learn_nothing_of_requests(world, visit):
    path = asked(visit)
    for who in ("ada", "ben", "cleo"):
        assert visit(who).get(path).status_code == 404
        for verb in ("decide", "comment", "withdraw", "revoke"):
            sent = {"word": "agree", "text": "x", "reason": "x"}
            assert visit(who).post(f"{path}/{verb}", **sent).status_code == 404
        assert visit(who).api.get(f"/api{path}").status_code == 404
        assert visit(who).api.post(f"/api{path}/decision", json={"agreed": True}).status_code == 404
    assert visit("owner").get("/requests/99999999999").status_code == 404
    assert visit("owner").get("/datasets/nothing/requests").status_code == 404


def test_the_whole_way_over_http(world, visit):
    body = {"dataset": "visits", "role": "guests", "purpose": "health-research", "text": "To count."}
    made = visit("stranger").api.post("/api/requests", json=body)
    assert made.status_code == 201
    number = made.json()["id"]
    owner = visit("owner").api
    assert [one["id"] for one in owner.get("/api/requests").json()["waiting"]] == [number]
    assert owner.post(f"/api/requests/{number}/comments", json={"text": "Why?"}).status_code == 201
    decided = owner.post(f"/api/requests/{number}/decision", json={"agreed": True, "days": 10})
    assert decided.json()["state"] == "granted"
    assert [one["person"] for one in decided.json()["decisions"]] == ["Owner"]
    assert [one["text"] for one in decided.json()["comments"]] == ["Why?"]
    again = owner.post(f"/api/requests/{number}/decision", json={"agreed": True})
    assert again.status_code == 409
    revoked = owner.post(f"/api/requests/{number}/revoke", json={"text": "Over."})
    assert revoked.json()["state"] == "revoked"
    assert visit("stranger").api.get(f"/api/requests/{number}").json()["state"] == "revoked"
    assert visit("stranger").api.post("/api/requests", json={**body, "role": "kings"}).status_code == 422
    second = visit("stranger").api.post("/api/requests", json=body).json()["id"]
    assert visit("stranger").api.post(f"/api/requests/{second}/withdraw").json()["state"] == "withdrawn"


def test_a_token_without_the_scope_decides_nothing(world, visit):
    asked(visit)
    with world.hub.database.writing() as session:
        token = tokens.make(session, session.merge(world.owner), "test", ["read", "work"], 1)
    client = TestClient(create_app(world.hub), headers={"Authorization": f"Bearer {token}"})
    assert client.post("/api/requests/1/decision", json={"agreed": True}).status_code == 403


def test_whoever_has_no_role_is_told_why_and_may_ask_only_where_there_is_a_role_to_ask_for(world, visit):
    refused = visit("stranger").get("/work/query/visits")
    assert refused.status_code == 403
    decision = re.search(r"/datasets/visits/why\?decision=\d+", refused.text)[0]
    assert visit("stranger").get(decision).status_code == 200
    assert "Ask for access" in visit("stranger").get("/datasets/visits").text
    seen = "  guests:\n    who: anyone\n    may: [see schema]\n"
    world.publish(change=[("roles:\n  researchers", f"roles:\n{seen}  researchers")])
    assert "Ask for access" not in visit("stranger").get("/datasets/visits").text
