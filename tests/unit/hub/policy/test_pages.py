"""The policy's pages and calls: the owner edits, others read without names, everybody learns why."""

import re

import pytest
from fastapi.testclient import TestClient

from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Organisation, Person, Version
from cloister.hub.core.settings import Settings
from cloister.hub.core.signed_state import sign_version
from cloister.hub.policy import versions
from cloister.hub.users import sessions, tokens
from cloister.hub.web.app import create_app
from cloister.privacy.loss import epsilon

PAGE = """# Who may do what
dataset: visits
purposes: [health-research]
budget: {lifetime: {epsilon: 2, delta: 1e-7}, per_user: {rho: 0.05}}
reviewers: [second@clinic.example]
roles:
  analysts:
    who: {people: [ann@uni.example, hidden@uni.example]}
    may: [see schema, query]
    tables: {visits: {columns: [ward], rows: "age > 17"}}
  guests: {who: {organisations: [University]}, by_request: true, may: [query]}
"""
SCHEMA = """unit: row
tables:
  visits:
    columns:
      ward: {type: text, categories: [a, b]}
      age: {type: integer, bounds: [0, 100]}
"""


@pytest.fixture
def hub(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub", requests_per_minute=10_000)) as made:
        with made.database.writing() as session:
            university = Organisation(name="University", country="AT")
            session.add(university)
            people = {
                name: Person(
                    verified=1.0, email=email, name=name, roles=["data user", "data owner"], organisation=university
                )
                for name, email in (("Owner", "owner@clinic.example"), ("Ann", "ann@uni.example"))
            }
            people["Stranger"] = Person(
                verified=1.0, email="stranger@else.example", name="Stranger", roles=["data owner"]
            )
            session.add_all(people.values())
            session.flush()
            dataset = Dataset(
                name="visits",
                title="Visits",
                owner_id=people["Owner"].id,
                budget=epsilon(2, delta="1e-7").to_json(),
            )
            session.add(dataset)
            session.flush()
            version = Version(dataset_id=dataset.id, number=1, schema=SCHEMA, state="ready", declared={}, source={})
            sign_version(made, dataset, version)
            session.add(version)
            session.flush()
            versions.publish(made, session, people["Owner"], dataset, PAGE)
        made.people = people
        yield made


@pytest.fixture
def browser(hub):
    app = create_app(hub)

    def signed_in(name):
        client = TestClient(app, follow_redirects=True)
        with hub.database.writing() as session:
            secret, kept = sessions.begin(session, hub.settings, hub.people[name], complete=True)
        client.cookies.set("cloister-session", secret)
        client.csrf = kept.csrf
        return client

    return signed_in


def post(client, path, **form):
    return client.post(path, data={"csrf": client.csrf, **form})


def test_the_owner_sees_the_page_to_edit(browser):
    answer = browser("Owner").get("/datasets/visits/policy")
    assert answer.status_code == 200
    assert "# Who may do what" in answer.text
    assert "hidden@uni.example" in answer.text
    assert "Publish what the form says" in answer.text


def test_others_read_what_it_says_and_no_names(browser):
    answer = browser("Ann").get("/datasets/visits/policy")
    assert answer.status_code == 200
    assert "2 people, you among them" in answer.text
    assert "hidden@uni.example" not in answer.text
    assert "age" not in re.sub("<[^>]*>", "", answer.text).replace("page", "").lower()
    assert "a part of the tables" in answer.text
    assert "<textarea" not in answer.text


def test_the_owner_reads_the_rules_in_words_too(browser):
    answer = browser("Owner").get("/datasets/visits/policy")
    assert "visits: the columns ward, only rows where age &gt; 17" in answer.text


def test_whoever_has_no_role_finds_nothing(browser):
    for path in ("policy", "policy/1", "why"):
        assert browser("Stranger").get(f"/datasets/visits/{path}").status_code == 404
    assert browser("Ann").get("/datasets/nothing/policy").status_code == 404


def test_a_stranger_is_asked_to_sign_in(hub):
    client = TestClient(create_app(hub), follow_redirects=False)
    assert client.get("/datasets/visits/policy").headers["location"].startswith("/sign-in")
    assert client.get("/api/datasets/visits/policy").status_code == 401


def test_publishing_from_the_editor(browser):
    owner = browser("Owner")
    changed = PAGE.replace("0.05", "0.04")
    answer = post(owner, "/datasets/visits/policy", text=changed, after="1", action="publish")
    assert "Policy 2 is published" in answer.text
    version = owner.get("/datasets/visits/policy/2").text
    assert "<del>- budget: {lifetime: {epsilon: 2, delta: 1e-7}, per_user: {rho: 0.05}}</del>" in version
    assert "<ins>+ budget: {lifetime: {epsilon: 2, delta: 1e-7}, per_user: {rho: 0.04}}</ins>" in version


def test_checking_publishes_nothing_and_tells_notes(browser, hub):
    text = PAGE.replace("may: [query]", "may: [qeury]")
    answer = post(browser("Owner"), "/datasets/visits/policy", text=text, after="1", action="check")
    assert "not published yet" in answer.text
    assert "Did you mean query?" in answer.text
    with hub.database.reading() as session:
        assert versions.newest(session, session.get(Dataset, 1)).number == 1


@pytest.mark.parametrize("action", ["check", "publish"])
def test_every_problem_is_shown_beside_what_was_typed(browser, action):
    text = PAGE.replace("columns: [ward]", "columns: [wart]")
    answer = post(browser("Owner"), "/datasets/visits/policy", text=text, after="1", action=action)
    assert answer.status_code == 422
    assert "there is no column wart" in answer.text
    assert "columns: [wart]" in answer.text


def test_the_lifetime_is_refused_with_its_reason(browser):
    text = PAGE.replace("epsilon: 2", "epsilon: 3")
    answer = post(browser("Owner"), "/datasets/visits/policy", text=text, after="1", action="publish")
    assert answer.status_code == 422
    assert "stays so" in answer.text


def test_tests_run_on_the_page(browser):
    tests = "cases: [{given: {person: ann@uni.example, purpose: epidemiology}, operation: query, expect: %s}]"
    owner = browser("Owner")
    good = post(owner, "/datasets/visits/policy", text=PAGE, after="1", action="test", tests=tests % "allowed")
    assert "Every test passes" in good.text
    bad = post(owner, "/datasets/visits/policy", text=PAGE, after="1", action="test", tests=tests % "denied")
    assert "expected denied, but it is allowed" in bad.text


def test_publishing_from_the_form(browser, hub):
    form = {
        "after": "1",
        "purposes": ["health-research", "public-health"],
        "per_user": "rho 0.03",
        "role": ["1", "2", "3"],
        "role-1-name": "analysts",
        "role-1-was": "analysts",
        "role-1-may": "see schema, query, profile",
        "role-1-people": "ann@uni.example",
        "role-3-name": "",
    }
    answer = post(browser("Owner"), "/datasets/visits/policy/form", **form)
    assert "Policy 2 is published" in answer.text
    with hub.database.reading() as session:
        policy, _ = versions.current(hub, session, session.get(Dataset, 1))
    assert policy.purposes == ("health-research", "public-health")
    assert [role.name for role in policy.roles] == ["analysts"]
    assert policy.roles[0].tables["visits"].rows == "age > 17"


def test_only_the_owner_changes_it(browser, hub):
    for name in ("Ann", "Stranger"):
        for path in ("/datasets/visits/policy", "/datasets/visits/policy/form"):
            answer = post(browser(name), path, text=PAGE, after="1", action="publish")
            assert answer.status_code == 404
        assert browser(name).get("/datasets/visits/policy/1").status_code == 404
    with hub.database.reading() as session:
        assert versions.newest(session, session.get(Dataset, 1)).number == 1


def test_a_post_without_its_token_changes_nothing(browser):
    owner = browser("Owner")
    answer = owner.post("/datasets/visits/policy", data={"text": PAGE, "after": "1", "action": "publish"})
    assert answer.status_code == 403


# Why?


def test_why_names_the_rule_and_every_reason(browser):
    answer = browser("Ann").get("/datasets/visits/why?operation=query&purpose=epidemiology")
    assert "Query for epidemiology is allowed by role analysts of policy 1" in answer.text
    assert "epidemiology is part of health-research" in answer.text
    assert "the columns ward, only some rows, by columns you do not see" in answer.text
    denied = browser("Ann").get("/datasets/visits/why?operation=profile&purpose=marketing").text
    assert "is denied by purposes of policy 1" in denied
    assert "it may not profile" in denied
    assert "hidden@uni.example" not in denied


def test_why_shows_the_way_to_ask_for_access(browser, hub):
    with hub.database.writing() as session:
        versions.publish(
            hub, session, hub.people["Owner"], session.get(Dataset, 1), PAGE.replace("ann@uni.example, ", "")
        )
    answer = browser("Ann").get("/datasets/visits/why?operation=query&purpose=epidemiology").text
    assert "it is given on request, and you have no granted request" in answer
    assert "Ask for access" in answer


def test_what_is_asked_is_shown_as_text(browser):
    answer = browser("Ann").get("/datasets/visits/why", params={"operation": "<script>alert(1)</script>"})
    assert "<script>alert" not in answer.text


# Calls


def calls(hub, name, scopes):
    with hub.database.writing() as session:
        secret = tokens.make(session, hub.people[name], "test", scopes, 1)
    return TestClient(create_app(hub), headers={"authorization": f"Bearer {secret}"})


def test_a_program_reads_publishes_and_asks_why(hub):
    owner, ann = calls(hub, "Owner", ["read", "share"]), calls(hub, "Ann", ["read"])
    assert owner.get("/api/datasets/visits/policy").json()["text"] == PAGE
    seen = ann.get("/api/datasets/visits/policy").json()
    assert (seen["number"], seen["text"], seen["purposes"]) == (1, None, ["health-research"])
    assert "hidden" not in str(seen)
    body = {"text": PAGE.replace("0.05", "0.04"), "after": 1}
    checked = owner.put("/api/datasets/visits/policy", json=body | {"publish": False}).json()
    assert checked["number"] is None
    assert any("residency" in note for note in checked["notes"])
    assert owner.put("/api/datasets/visits/policy", json=body).json()["number"] == 2
    assert owner.put("/api/datasets/visits/policy", json=body).status_code == 409
    why = ann.get("/api/datasets/visits/why?operation=query&purpose=epidemiology").json()
    assert (why["allowed"], why["rule"], why["policy"]) == (True, "analysts", 2)
    assert why["reasons"]


def test_a_program_needs_the_scope_and_the_dataset(hub):
    body = {"text": PAGE}
    assert calls(hub, "Owner", ["read"]).put("/api/datasets/visits/policy", json=body).status_code == 403
    assert calls(hub, "Ann", ["share"]).put("/api/datasets/visits/policy", json=body).status_code == 404
    assert calls(hub, "Stranger", ["read"]).get("/api/datasets/visits/policy").status_code == 404
    assert calls(hub, "Stranger", ["read"]).get("/api/datasets/visits/why").status_code == 404
    bad = calls(hub, "Owner", ["share"]).put("/api/datasets/visits/policy", json={"text": "dataset: visits"})
    assert (bad.status_code, bad.json()["code"]) == (422, "CLO-505")
