"""What a view hides is nowhere: not in plans, jobs, pages, receipts, schemas or invented rows, and not in a hash."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from cloister.data.schema import Schema
from cloister.hub.core.models import AuditEntry, Dataset, Job, Version
from cloister.hub.datasets import datasets, ingest, upload
from cloister.hub.jobs import gateway
from cloister.hub.jobs.authorise import ASKED
from cloister.hub.policy import versions
from cloister.hub.policy.views import TableView, shows_all, visible_schema
from cloister.privacy.signing import fingerprint

HIDDEN = ("zzsecretcol", "qqvalue", "qqother", "yyhidden", "xxpersoncol", "vvtable", "wwcol", "uuperson")
ROWS = "zzsecretcol = 'qqvalue'"
SCHEMA = """
unit: {name: human, max_rows: 1}
tables:
  people:
    unit: xxpersoncol
    rows: 400
    columns:
      age: {type: integer, bounds: [0, 120], nullable: false}
      grp: {type: text, categories: [a, b], nullable: false}
      human: {type: integer, bounds: [0, 1], nullable: false}
      yyhidden: {type: integer, bounds: [0, 10]}
      zzsecretcol: {type: text, categories: [qqvalue, qqother]}
    never: [{grp: a, yyhidden: 3}]
    determines: [zzsecretcol -> grp]
  vvtable:
    unit: uuperson
    columns:
      wwcol: {type: integer, bounds: [0, 10]}
"""
POLICY = f"""
dataset: hidden
purposes: [health-research]
budget: {{lifetime: {{rho: 4}}}}
joins: any
reviewers: [reviewer@hospital.example]
roles:
  whole:
    who: {{people: [ada@university.example]}}
    may: [see schema, query]
  asking:
    who: {{people: [ben@university.example]}}
    may: [query]
  narrow:
    who: {{people: [cleo@college.example]}}
    may: [see schema, query, profile, train, synthesise]
    tables:
      people:
        columns: [age, grp, human]
        rows: "{ROWS}"
        transforms: {{grp: "CASE WHEN yyhidden > 3 THEN 'a' ELSE 'b' END"}}
"""
QUESTION = "SELECT grp, COUNT(*) AS n, AVG(age) AS years FROM people GROUP BY grp"
WORK = {
    "query": {"sql": QUESTION, "spend": "rho 0.1"},
    "profile": {"table": "people", "spend": "rho 0.1"},
    "train": {"table": "people", "target": "grp", "features": "age, human", "spend": "rho 0.1"},
    "synthesise": {"table": "people", "spend": "rho 0.1"},
}


@pytest.fixture
def world(hospital_hub):
    """A hub with a dataset of which Cleo sees little, Ben is told nothing, and Ada sees everything."""
    n, hub, owner = 400, hospital_hub.hub, hospital_hub.owner
    rows = {
        "people": {
            "xxpersoncol": list(range(n)),
            "age": [k % 100 for k in range(n)],
            "grp": ["a", "b"] * (n // 2),
            "human": [0, 1] * (n // 2),
            "yyhidden": [k % 10 for k in range(n)],
            "zzsecretcol": ["qqvalue", "qqother"] * (n // 2),
        },
        "vvtable": {"uuperson": list(range(n)), "wwcol": [1] * n},
    }
    with hub.database.writing() as session:
        made = datasets.create(
            hub,
            session,
            session.merge(owner),
            name="hidden",
            title="",
            about="",
            policy_text=POLICY,
            schema_text=SCHEMA,
        )
    sent = {}
    for name, columns in rows.items():
        sink = io.BytesIO()
        pq.write_table(pa.table(columns), sink)
        raw = sink.getvalue()
        with hub.database.writing() as session:
            sent[name] = upload.begin(hub, session, owner, made, table=name, file="a.parquet", size=len(raw)).id
        upload.receive(hub, owner, sent[name], 0, raw)
    with hub.database.writing() as session:
        version = datasets.new_version(hub, session, owner, made, schema_text=SCHEMA, uploads=sent)
    assert ingest.prepare(hub, version.id) == "ready"
    return hospital_hub


def found_in(answer):
    text = answer.text if hasattr(answer, "text") else str(answer)
    return [word for word in HIDDEN if word in text]


def asked(kind):
    return {"kind": kind, "form": WORK[kind], "purpose": "health-research"}


@pytest.mark.parametrize("kind", WORK)
def test_no_plan_job_page_or_receipt_shows_what_a_view_hides(kind, world, visits_of):
    cleo = visits_of(world)("cleo")
    planned = cleo.api.post("/api/datasets/hidden/plan", json=asked(kind))
    assert planned.status_code == 200, planned.text
    assert found_in(planned) == []
    assert planned.json()["statements"] == []
    page = cleo.post(f"/work/{kind}/hidden", **WORK[kind], purpose="health-research", action="plan")
    assert page.status_code == 200
    assert found_in(page) == []
    number = cleo.api.post("/api/datasets/hidden/jobs", json=asked(kind)).json()["id"]
    world.work()
    job = cleo.api.get(f"/api/jobs/{number}")
    assert job.json()["state"] == "done", job.json()["problem"]
    assert found_in(job) == []
    assert gateway.BASIS not in job.json()["plan"]  # a hash of the rules: whoever guesses one could try it
    ends = ("receipt", "label", "table.csv", "result.csv", "model", "rows", "side")
    for path in (f"/jobs/{number}", *(f"/{front}jobs/{number}/{end}" for front in ("", "api/") for end in ends)):
        assert found_in(cleo.get(path)) == [], path
        assert found_in(cleo.api.get(path)) == [], path


def test_schema_pages_and_invented_rows_hide_it_too(world, visits_of):
    cleo = visits_of(world)("cleo")
    paths = ["/datasets/hidden", "/datasets/hidden/schema", "/datasets/hidden/policy", "/datasets/hidden/mock/people"]
    paths += [
        "/datasets/hidden/why?operation=query&purpose=health-research",
        *(f"/work/{kind}/hidden" for kind in WORK),
    ]
    paths += ["/jobs", "/ledger", "/datasets/hidden/subject", "/datasets/hidden/tables"]
    for path in paths:
        assert found_in(cleo.get(path)) == [], path
    for path in ("", "/schema", "/policy", "/mock/people", "/why?operation=query&purpose=health-research"):
        assert found_in(cleo.api.get(f"/api/datasets/hidden{path}")) == [], path
    schema = Schema.parse(cleo.api.get("/api/datasets/hidden/schema").json()["schema"])
    assert schema.tables["people"].unit == "human_id"  # the unit's word is a column's name here
    assert schema.problems() == []


def test_a_refusal_does_not_name_it(world, visits_of):
    cleo = visits_of(world)("cleo")
    for column in ("zzsecretcol", "nosuchcol", "xxpersoncol"):
        sql = f"SELECT COUNT(*) FROM people WHERE {column} = 'x'"
        body = {**asked("query"), "form": {"sql": sql, "spend": "rho 0.1"}}
        answer = cleo.api.post("/api/datasets/hidden/plan", json=body)
        assert answer.status_code == 422
        assert set(found_in(answer)) <= {column}


def test_who_sees_the_tables_whole_sees_what_the_engine_runs(world, visits_of):
    ada = visits_of(world)("ada")
    assert "zzsecretcol" not in QUESTION
    shown = ada.api.post("/api/datasets/hidden/plan", json=asked("query")).json()["statements"]
    assert shown
    assert "SELECT" in shown[0]


def test_whoever_may_not_see_the_schema_sees_no_statement(world, visits_of):
    ben = visits_of(world)("ben")
    assert ben.api.post("/api/datasets/hidden/plan", json=asked("query")).json()["statements"] == []


def test_a_job_keeps_no_statement_that_its_asker_may_not_see(world):
    job = gateway.submit(
        world.hub, world.cleo, gateway.JobOrder("hidden", "query", WORK["query"], "health-research", world.here)
    )
    with world.hub.database.reading() as session:
        assert session.scalar(sa.select(Job.plan).where(Job.id == job.id))["statements"] == []


def ask_reviewer(world, who):
    """Publish that every release needs a reviewer, and ask for one."""
    text = POLICY.replace("{{lifetime", "{lifetime").replace(
        "budget: {lifetime: {rho: 4}}", "budget: {lifetime: {rho: 4}, approvals: [{above: nothing, needs: 1}]}"
    )
    with world.hub.database.writing() as session:
        made = session.scalars(sa.select(Dataset).where(Dataset.name == "hidden")).one()
        versions.publish(world.hub, session, world.owner, made, text)
    order = gateway.JobOrder("hidden", "query", WORK["query"], "health-research", world.here)
    return gateway.submit(world.hub, world.people[who], order)


def test_a_reviewer_who_may_not_see_the_schema_is_shown_no_statement(world, visits_of):
    job = ask_reviewer(world, "ada")
    with world.hub.database.reading() as session:
        assert session.get(Job, job.id).plan["statements"]
    reviewer, owner, ada = (visits_of(world)(who) for who in ("reviewer", "owner", "ada"))
    (waiting,) = reviewer.api.get("/api/requests").json()["waiting"]
    assert waiting["plan"]["statements"] == []
    assert waiting["plan"]["lines"]
    number = waiting["id"]
    assert reviewer.api.get(f"/api/requests/{number}").json()["plan"]["statements"] == []
    assert "What the engine will run" not in reviewer.get(f"/requests/{number}").text
    for one in (owner, ada):
        assert one.api.get(f"/api/requests/{number}").json()["plan"]["statements"]
        assert "What the engine will run" in one.get(f"/requests/{number}").text
    assert ada.api.get(f"/api/jobs/{job.id}").json()["plan"]["statements"]


def test_an_asker_whose_view_was_narrowed_since_is_shown_no_statement(world, visits_of):
    job = ask_reviewer(world, "ada")
    with world.hub.database.writing() as session:
        made = session.scalars(sa.select(Dataset).where(Dataset.name == "hidden")).one()
        text = versions.newest(session, made).text.replace("    may: [see schema, query]", "    may: [query]")
        versions.publish(world.hub, session, world.owner, made, text)
    ada = visits_of(world)("ada")
    assert ada.api.get(f"/api/jobs/{job.id}").json()["plan"]["statements"] == []
    assert "What the engine" not in ada.get(f"/jobs/{job.id}").text


def test_no_route_shows_the_digest_of_a_plans_basis_and_it_is_keyed(world, visits_of):
    job = ask_reviewer(world, "cleo")
    with world.hub.database.reading() as session:
        stored = session.get(Job, job.id)
        kept = stored.plan[gateway.BASIS]
        request = {
            "person": stored.person_id,
            "kind": stored.kind,
            "purpose": stored.purpose,
            "parameters": stored.parameters,
            "asked": stored.plan[ASKED],
        }
        version = session.scalars(sa.select(Version).where(Version.dataset_id == job.dataset_id)).one()
    for who in ("cleo", "reviewer", "owner"):
        one = visits_of(world)(who)
        for path in ("/api/requests", "/api/requests/1", "/requests/1", f"/api/jobs/{job.id}", f"/jobs/{job.id}"):
            text = one.api.get(path).text if path.startswith("/api") else one.get(path).text
            assert kept not in text, (who, path)
            assert gateway.BASIS not in text
    grp = "CASE WHEN yyhidden > 3 THEN 'a' ELSE 'b' END"
    view = {"people": {"columns": ["age", "grp", "human"], "rows": ROWS, "transforms": {"grp": grp}}}
    facts = {"version": version.id, "signature": version.signature, "tables": ["people"], "view": view}
    facts["request"] = request
    told = json.dumps(facts, sort_keys=True)
    assert kept == world.hub.keys.mac(told.encode(), "basis of a plan")
    assert kept != fingerprint(told)


def test_a_label_holds_no_plain_digest_of_the_policy(world, visits_of):
    cleo = visits_of(world)("cleo")
    number = cleo.api.post("/api/datasets/hidden/jobs", json=asked("query")).json()["id"]
    world.work()
    label = json.loads(cleo.api.get(f"/api/jobs/{number}").json()["result"]["label"])["label"]
    with world.hub.database.reading() as session:
        made = session.scalars(sa.select(Dataset).where(Dataset.name == "hidden")).one()
        text = versions.newest(session, made).text
        written = [str(one.detail) for one in session.scalars(sa.select(AuditEntry))]
    assert label["hash"] != fingerprint(text)
    assert not any(fingerprint(text) in one for one in written)


@pytest.mark.parametrize(
    ("view", "whole"),
    [
        (TableView(), True),
        (TableView(("XXpersoncol", "age", "grp", "human", "yyhidden", "zzsecretcol")), True),
        (TableView(("age", "grp", "human", "yyhidden", "zzsecretcol")), False),
        (TableView(rows="age > 3"), False),
        (TableView(transforms={"age": "age"}), False),
    ],
)
def test_a_view_is_whole_if_it_shows_all_as_it_is(view, whole):
    assert shows_all(view, Schema.parse(SCHEMA).tables["people"]) is whole


def test_rules_for_synthetic_rows_are_seen_only_with_all_of_their_columns():
    schema = Schema.parse(SCHEMA)
    some = visible_schema(schema, {"people": TableView(("age", "grp", "yyhidden"))}).tables["people"]
    assert (len(some.never), len(some.determines)) == (1, 0)
    made = visible_schema(schema, {"people": TableView(("age", "grp", "yyhidden"), transforms={"grp": "'a'"})})
    assert made.tables["people"].never == ()
