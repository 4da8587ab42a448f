"""Work in the browser: plan, run, see the answer, its pictures and its receipt; and nothing of anybody else's."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
import yaml
from fastapi.testclient import TestClient
from sqlalchemy.orm import undefer

from cloister.data.hospital import SCHEMA, hospital
from cloister.hub.core.hub import Hub
from cloister.hub.core.keys import seal
from cloister.hub.core.models import Job, Person
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import datasets, ingest
from cloister.hub.datasets import upload as uploads
from cloister.hub.jobs import queue
from cloister.hub.jobs.dataset_pool import DatasetPool
from cloister.hub.jobs.runner import run_job
from cloister.hub.jobs.trust_model import trust_model_of
from cloister.hub.users import sessions
from cloister.hub.web.app import create_app
from cloister.privacy.receipt import Receipt

POLICY = """
dataset: visits
purposes: [health-research]
budget:
  lifetime: {epsilon: 20, delta: 1e-7}
  per_user: {rho: 0.9}
  per_request: {rho: 0.6}
  approvals: [{above: {rho: 0.5}, needs: 1}]
roles:
  analysts:
    who: {roles: [data user]}
    may: [see schema, query, profile]
"""
QUERY = {
    "sql": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
    "spend": "rho 0.05",
    "purpose": "health-research",
}


class Browser:
    """Somebody at the pages."""

    def __init__(self, hub: Hub, person: Person, web: TestClient) -> None:
        with hub.database.writing() as session:
            secret, kept = sessions.begin(session, hub.settings, person, complete=True)
        self.csrf, self.web = kept.csrf, web
        self.cookie = {"cookie": f"cloister-session={secret}"}

    def get(self, path: str):
        return self.web.get(path, headers=self.cookie)

    def post(self, path: str, **sent: str):
        return self.web.post(path, data={**sent, "csrf": self.csrf}, headers=self.cookie)


class World:
    """A hub with a hospital's dataset, its owner, a researcher and a stranger."""

    def __init__(self, folder: Path) -> None:
        self.hub = Hub.create(Settings(folder=folder, requests_per_minute=100_000))
        with self.hub.database.writing() as session:
            people = {
                name: Person(verified=1.0, email=f"{name}@x.example", name=name.title(), roles=[role])
                for name, role in (("maria", "data owner"), ("ana", "data user"), ("otto", "operator"))
            }
            session.add_all(people.values())
            session.flush()
            for one in people.values():
                session.refresh(one)
        self.people = people
        self._share(people["maria"])
        web = TestClient(create_app(self.hub), follow_redirects=False, headers={"accept": "text/html"})
        self.maria, self.ana, self.otto = (Browser(self.hub, people[name], web) for name in ("maria", "ana", "otto"))
        place = trust_model_of("curator")
        self.pool = DatasetPool(
            self.hub, lambda dataset, version, person: place.open(self.hub, dataset, version, person)
        )

    def _share(self, owner: Person) -> None:
        schema, sink = yaml.safe_dump(SCHEMA), io.BytesIO()
        pyarrow.csv.write_csv(pa.table(hospital(600)), sink)
        data = sink.getvalue()
        with self.hub.database.writing() as session:
            about = {"name": "visits", "title": "Visits", "about": "", "policy_text": POLICY, "schema_text": schema}
            dataset = datasets.create(self.hub, session, owner, **about)
        with self.hub.database.writing() as session:
            sent = uploads.begin(self.hub, session, owner, dataset, table="visits", file="v.csv", size=len(data))
        uploads.receive(self.hub, owner, sent.id, 0, data)
        with self.hub.database.writing() as session:
            given = {"schema_text": schema, "uploads": {"visits": sent.id}}
            version = datasets.new_version(self.hub, session, owner, dataset, **given)
        assert ingest.prepare(self.hub, version.id) == "ready"

    def run(self) -> Job:
        """Let a worker take the next job."""
        job = queue.claim(self.hub.database, "w1")
        assert job is not None
        run_job(self.hub, job, "w1", self.pool)
        return self.job(job.id)

    def job(self, number: int) -> Job:
        with self.hub.database.reading() as session:
            return session.get_one(Job, number, options=[undefer(Job.result)])

    def ask(self, kind: str = "query", **form: str) -> int:
        """Ana submits; the job's number."""
        answer = self.ana.post(f"/work/{kind}/visits", **(QUERY | form), action="run")
        assert answer.status_code == 303, answer.text
        return int(answer.headers["location"].rpartition("/")[2])

    @property
    def left(self) -> str:
        return str(self.hub.ledger.account("visits").left)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world") / "hub")
    yield made
    made.pool.close()
    made.hub.close()


# Planning.


def test_the_form_is_drawn_from_the_kind_with_what_is_public(world: World) -> None:
    for kind, fields in (("query", ("sql", "spend", "confidence")), ("profile", ("table", "spend", "bins"))):
        answer = world.ana.get(f"/work/{kind}/visits")
        assert answer.status_code == 200
        assert all(f'name="{field}"' in answer.text for field in (*fields, "purpose"))
    assert "stay_days" in answer.text
    assert "Research on health and disease" in answer.text


def test_a_plan_shows_cost_error_and_what_is_left_and_charges_nothing(world: World) -> None:
    before = world.left
    answer = world.ana.post("/work/query/visits", **QUERY, action="plan")
    assert answer.status_code == 200
    assert all(word in answer.text for word in ("ρ 0.05", "Expected error", "± ", "Left for everybody", "Run it"))
    assert "SELECT" in answer.text.partition("What the engine will run")[2]
    assert world.left == before


def test_a_question_that_is_refused_says_why_above_the_form_and_keeps_what_was_typed(world: World) -> None:
    answer = world.ana.post("/work/query/visits", **(QUERY | {"sql": "SELECT ward FROM visits"}), action="plan")
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert "neither grouped" in answer.text
    assert "SELECT ward FROM visits</textarea>" in answer.text
    assert "Run it" not in answer.text


def test_a_purpose_that_is_not_allowed_is_denied_with_a_way_to_the_reasons(world: World) -> None:
    answer = world.ana.post("/work/query/visits", **(QUERY | {"purpose": "marketing"}), action="run")
    assert answer.status_code == 403
    assert "is denied by purposes of policy 1" in why(world, answer.text)


def why(world: World, page: str) -> str:
    """The page behind a refusal's "Why?"."""
    link = re.search(r"/datasets/visits/why[?]decision=\d+", page)
    assert link is not None
    answer = world.ana.get(link[0])
    assert answer.status_code == 200
    return str(answer.text)


def test_why_explains_the_limit_that_refused_and_says_what_it_would_have_cost(world: World) -> None:
    answer = world.ana.post("/work/query/visits", **(QUERY | {"spend": "rho 0.65"}), action="run")
    assert answer.status_code == 403
    told = why(world, answer.text)
    assert "is denied by per_request of policy 1" in told
    assert "one request may cost rho 0.6 here, this one needs rho 0.65" in told
    assert "would cost you rho 0.65" in told
    assert "is allowed by" not in told
    asked = "/datasets/visits/why?operation=query&purpose=health-research&spend="
    assert "is denied by per_request" in world.ana.get(asked + "rho 0.65").text
    assert "is allowed by" in world.ana.get(asked + "rho 0.05").text
    assert "write a loss like" in world.ana.get(asked + "much").text.lower()
    assert world.otto.get("/datasets/visits/why?decision=1").status_code == 404
    assert world.ana.get("/datasets/visits/why?decision=1").status_code == 404


def test_a_plan_above_the_threshold_says_who_must_agree(world: World) -> None:
    answer = world.ana.post("/work/query/visits", **(QUERY | {"spend": "rho 0.55"}), action="plan")
    assert "agreement of 1 person" in answer.text
    assert "Ask for agreement" in answer.text


def test_what_is_typed_comes_back_as_text_never_as_markup(world: World) -> None:
    typed = "</textarea><script>alert(1)</script>\"'"
    answer = world.ana.post("/work/query/visits", **(QUERY | {"sql": typed, "spend": typed}), action="plan")
    assert answer.status_code == 422
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;alert" in answer.text


def test_whoever_may_not_know_of_a_dataset_finds_no_form(world: World) -> None:
    assert world.otto.get("/work/query/visits").status_code == 404
    assert world.otto.post("/work/query/visits", **QUERY, action="run").status_code == 404
    assert world.ana.get("/work/query/nothing").status_code == 404
    assert world.ana.get("/work/nothing/visits").status_code == 404


# Running.


def test_a_job_goes_from_the_form_to_an_answer_with_intervals_and_a_receipt(world: World) -> None:
    number = world.ask()
    waiting = world.ana.get(f"/jobs/{number}")
    assert f'data-job="{number}"' in waiting.text
    assert 'http-equiv="refresh"' in waiting.text
    assert world.run().state == "done"

    shown = world.ana.get(f"/jobs/{number}").text
    assert "cardiology" in shown
    assert "ρ 0.05" in shown
    cell = world.job(number).result["rows"][0][1]
    assert f"{round(cell['value']):,} [" in shown
    assert 'http-equiv="refresh"' not in shown

    receipt = world.ana.get(f"/jobs/{number}/receipt")
    assert "attachment" in receipt.headers["content-disposition"]
    Receipt.parse(receipt.text).verify(world.hub.key.public)
    assert world.ana.get(f"/jobs/{number}/answer.csv").text.splitlines()[0] == "ward,n,n_low,n_high"
    assert "health-research" in world.ana.get(f"/jobs/{number}/label").text


def test_an_answer_has_a_picture_in_light_and_dark_with_a_text(world: World) -> None:
    number = world.ask()
    world.run()
    page = world.ana.get(f"/jobs/{number}").text
    assert "n by ward, with intervals. cardiology: " in page
    light = world.ana.get(f"/jobs/{number}/chart.svg?column=n")
    dark = world.ana.get(f"/jobs/{number}/chart.svg?column=n&theme=dark&size=narrow")
    assert light.headers["content-type"] == "image/svg+xml"
    assert "cardiology" in light.text
    assert light.text != dark.text
    assert world.ana.get(f"/jobs/{number}/chart.svg?column=nothing").status_code == 404


def test_one_number_is_shown_large(world: World) -> None:
    number = world.ask(sql="SELECT COUNT(*) AS n FROM visits")
    world.run()
    assert "answer-one" in world.ana.get(f"/jobs/{number}").text
    assert world.ana.get(f"/jobs/{number}/chart.svg").status_code == 404


def test_a_profile_shows_every_column_with_its_picture(world: World) -> None:
    number = world.ask("profile", table="visits", spend="rho 0.1", bins="5")
    world.run()
    page = world.ana.get(f"/jobs/{number}").text
    for column in SCHEMA["tables"]["visits"]["columns"]:
        assert f"<code>{column}</code>" in page
        assert "<svg" in world.ana.get(f"/jobs/{number}/chart.svg?column={column}").text


def test_a_job_that_waits_for_agreement_says_so_and_can_be_cancelled(world: World) -> None:
    before = world.left
    number = world.ask(spend="rho 0.55")
    page = world.ana.get(f"/jobs/{number}").text
    assert "waiting for somebody to agree" in page
    assert "/requests/" in page
    assert world.ana.post(f"/jobs/{number}/cancel").status_code == 303
    assert world.job(number).state == "cancelled"
    assert "Cancelled" in world.ana.get(f"/jobs/{number}").text
    assert world.left == before


def test_jobs_are_shown_to_their_person_and_the_owner_only(world: World) -> None:
    number = world.ask(sql="SELECT ward, COUNT(*) AS n FROM visits WHERE age > 70 GROUP BY ward")
    world.run()
    for path, owner in (("", 200), ("/receipt", 200), ("/answer.csv", 404), ("/chart.svg", 404), ("/label", 404)):
        assert world.ana.get(f"/jobs/{number}{path}").status_code == 200, path
        assert world.maria.get(f"/jobs/{number}{path}").status_code == owner, path
        assert world.otto.get(f"/jobs/{number}{path}").status_code == 404, path
    assert "Answered for Ana" in world.maria.get(f"/jobs/{number}").text
    assert world.maria.post(f"/jobs/{number}/cancel").status_code == 404
    assert f"/jobs/{number}" in world.ana.get("/jobs").text
    assert f"/jobs/{number}" not in world.otto.get("/jobs").text


def test_a_failure_shows_its_detail_to_the_owner_alone(world: World) -> None:
    number = world.ask(sql="SELECT SUM(cost) AS total FROM visits")
    sealed = next((world.hub.folder / "sealed").rglob("*.parquet"))
    content = sealed.read_bytes()
    world.pool.close()
    try:
        sealed.write_bytes(content[: len(content) // 2])
        assert world.run().state == "failed"
    finally:
        sealed.write_bytes(content)
    with world.hub.database.writing() as session:
        job = session.get_one(Job, number)
        job.owner_detail = seal(world.hub.keys.data_key(job.dataset), b"row ZZMARKZZ", f"job {number}").hex()
    assert "This did not work" in world.ana.get(f"/jobs/{number}").text
    assert "ZZMARKZZ" not in world.ana.get(f"/jobs/{number}").text
    assert "ZZMARKZZ" in world.maria.get(f"/jobs/{number}").text


def test_a_result_whose_time_is_over_leaves_its_receipt(world: World) -> None:
    number = world.ask(sql="SELECT COUNT(*) AS n FROM visits WHERE age > 30")
    world.run()
    with world.hub.database.writing() as session:
        session.get_one(Job, number).result = None
    page = world.ana.get(f"/jobs/{number}")
    assert "The result was removed" in page.text
    assert world.ana.get(f"/jobs/{number}/receipt").status_code == 200
    assert world.ana.get(f"/jobs/{number}/answer.csv").status_code == 404


# Keeping questions.


def test_a_question_is_kept_found_again_and_forgotten(world: World) -> None:
    kept = world.ana.post("/work/query/visits/saved", name="By ward", sql=QUERY["sql"])
    address = kept.headers["location"]
    page = world.ana.get(address).text
    assert "By ward" in page
    assert QUERY["sql"] in page
    assert world.maria.get(address).status_code == 404
    number = address.rpartition("=")[2]
    assert world.maria.post(f"/work/query/visits/saved/{number}/forget").status_code == 404
    world.ana.post(f"/work/query/visits/saved/{number}/forget")
    assert "By ward" not in world.ana.get("/work/query/visits").text


def test_an_earlier_question_is_filled_in_for_whoever_asked_it(world: World) -> None:
    number = world.ask(sql="SELECT AVG(age) AS mean_age FROM visits")
    world.run()
    assert "mean_age FROM visits</textarea>" in world.ana.get(f"/work/query/visits?job={number}").text
    assert "mean_age FROM visits</textarea>" not in world.maria.get(f"/work/query/visits?job={number}").text
