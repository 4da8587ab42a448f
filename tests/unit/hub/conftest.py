"""A hub with a hospital in it, made once and copied for every test that asks for it: `hospital_hub`."""

import hashlib
import io
import json
import shutil
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from argon2 import PasswordHasher, Type
from fastapi.testclient import TestClient

from cloister.data.hospital import SCHEMA, hospital
from cloister.data.schema_file import to_yaml
from cloister.hub.approvals.visibility import result_of
from cloister.hub.core.database import Database, now
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Organisation, Person
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import datasets, ingest, upload
from cloister.hub.jobs import gateway, queue
from cloister.hub.jobs.dataset_pool import DatasetPool
from cloister.hub.jobs.runner import run_job
from cloister.hub.policy.conditions import Environment
from cloister.hub.policy.versions import publish
from cloister.hub.users import passwords, sessions, tokens
from cloister.hub.web.app import create_app

POLICY = """
dataset: visits
purposes: [health-research]
budget:
  lifetime: {epsilon: 4, delta: 1e-6}
  per_user: {rho: 0.1}
  per_request: {rho: 0.05}
  approvals: [{above: {rho: 0.03}, needs: 1}]
reviewers: [reviewer@hospital.example]
joins: any
roles:
  researchers:
    who: {organisations: [University]}
    may: [see schema, query, profile]
  juniors:
    who: {people: [cleo@college.example]}
    may: [see schema, query, profile]
    tables: {visits: {columns: [ward, age], rows: "ward <> 'maternity'"}}
"""
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


@dataclass
class World:
    """A hub, its people by first name, and short words for what tests do with them."""

    hub: Hub
    people: dict[str, Person]

    def __getattr__(self, name):
        if name not in self.people:
            raise AttributeError(name)
        return self.people[name]

    @property
    def here(self):
        return Environment(now(), "DE", "127.0.0.1")

    def submit(self, who, sql=COUNT, spend="rho 0.01", *, kind="query", purpose="health-research", **form):
        form = {"sql": sql, "spend": spend, **form} if kind == "query" else {"spend": spend, **form}
        return gateway.submit(self.hub, self.people[who], gateway.JobOrder("visits", kind, form, purpose, self.here))

    def plan(self, who, sql=COUNT, spend="rho 0.01", *, kind="query", purpose="health-research", **form):
        form = {"sql": sql, "spend": spend, **form} if kind == "query" else {"spend": spend, **form}
        return gateway.plan(self.hub, self.people[who], gateway.JobOrder("visits", kind, form, purpose, self.here))

    def pool(self):
        return DatasetPool(self.hub, lambda *asked: datasets.open_for_work(self.hub, *asked))

    def work(self, worker="tester", step=lambda _: None):
        """Be a worker until the queue is empty; how each job ended."""
        pool, ended = self.pool(), []
        while (job := queue.claim(self.hub.database, worker)) is not None:
            ended.append(run_job(self.hub, job, worker, pool, step))
        pool.close()
        return ended

    def job(self, number):
        with self.hub.database.reading() as session:
            job = session.get(gateway.Job, number)
            result = result_of(session, job)
            session.expunge(job)
            job.result = result  # a repeat shows the result that it points to
        return job

    def rows(self, *statement):
        with self.hub.database.reading() as session:
            found = list(session.scalars(*statement))
            for one in found:
                getattr(one, "result", None)  # a job's result is loaded only when it is asked for
            return found

    def publish(self, **changes):
        """A new policy: the same text with some words changed."""
        text = POLICY
        for old, new in changes.get("change", ()):
            assert old in text
            text = text.replace(old, new)
        with self.hub.database.writing() as session:
            dataset = datasets.find(session, "visits")
            return publish(self.hub, session, self.people["owner"], dataset, text)

    def another_version(self):
        """A newer version of the same tables, ready."""
        with self.hub.database.writing() as session:
            dataset = datasets.find(session, "visits")
            schema = datasets.newest(self.hub, session, dataset).schema
            version = datasets.new_version(
                self.hub, session, self.people["owner"], dataset, schema_text=schema, uploads={}
            )
        assert ingest.prepare(self.hub, version.id) == "ready"

    def spent(self, who=None):
        key = "visits" if who is None else f"visits@person-{self.people[who].id}"
        return self.hub.ledger.balance(key).spent

    def dataset(self):
        return self.rows(gateway.sa.select(Dataset))[0]


def build(folder, **settings):
    """A hub with a hospital's visits, an owner, a reviewer, two researchers, a junior and a stranger."""
    with Hub.create(Settings(folder=folder, country="DE", **settings)) as hub:
        people = {}
        with hub.database.writing() as session:
            places = {name: Organisation(name=name, country="DE") for name in ("Hospital", "University", "College")}
            session.add_all(places.values())
            session.flush()
            for first, place, roles in (
                ("owner", "Hospital", ["data owner"]),
                ("reviewer", "Hospital", ["data owner"]),
                ("ada", "University", ["data user"]),
                ("ben", "University", ["data user"]),
                ("cleo", "College", ["data user"]),
                ("stranger", "College", ["data user"]),
            ):
                people[first] = Person(
                    email=f"{first}@{place.lower()}.example",
                    verified=now(),
                    name=first.title(),
                    organisation_id=places[place].id,
                    roles=roles,
                )
                session.add(people[first])
        sink = io.BytesIO()
        pq.write_table(pa.table(hospital(1_500)), sink)
        raw, schema, owner = sink.getvalue(), to_yaml(SCHEMA), people["owner"]
        with hub.database.writing() as session:
            owner = session.get(Person, owner.id)
            dataset = datasets.create(
                hub, session, owner, name="visits", title="Visits", about="", policy_text=POLICY, schema_text=schema
            )
            sent = upload.begin(hub, session, owner, dataset, table="visits", file="visits.parquet", size=len(raw))
        upload.receive(hub, owner, sent.id, 0, raw)
        with hub.database.writing() as session:
            version = datasets.new_version(
                hub, session, owner, dataset, schema_text=schema, uploads={"visits": sent.id}
            )
        assert ingest.prepare(hub, version.id) == "ready"


def open_world(folder, **settings):
    """A hub that was built, with its people. Answers to surveys are shown one by one unless a test says otherwise."""
    hub = Hub.open(Settings(folder=folder, **{"country": "DE", "survey_batch": 1, **settings}))
    with hub.database.reading() as session:
        people = {one.name.lower(): one for one in session.scalars(gateway.sa.select(Person))}
    return World(hub, people)


_MIGRATE = Database.migrate
_HASHER = passwords._hasher


@pytest.fixture(scope="session", autouse=True)
def _quick_hubs(tmp_path_factory):
    """Make a new hub in a fifth of the time: its tables are copied, and passwords are hashed with little work.

    Tests of migrations and of passwords ask for `real_tables` and `real_hashes`.
    """
    template = Database(f"sqlite:///{tmp_path_factory.mktemp('tables') / 'hub.db'}")
    _MIGRATE(template)

    def migrate(self):
        if self.engine.dialect.name != "sqlite" or sa.inspect(self.engine).get_table_names():
            _MIGRATE(self)
            return
        with template.engine.connect() as whole, self.engine.connect() as empty:
            whole.connection.driver_connection.backup(empty.connection.driver_connection)

    little_work = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1, type=Type.ID)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "migrate", migrate)
        patch.setattr(passwords, "_hasher", little_work)
        passwords._nobodys.cache_clear()
        yield
    passwords._nobodys.cache_clear()
    template.close()


@pytest.fixture
def real_tables(monkeypatch):
    """Run every migration."""
    monkeypatch.setattr(Database, "migrate", _MIGRATE)


@pytest.fixture
def real_hashes(monkeypatch):
    """Hash passwords as the product does."""
    monkeypatch.setattr(passwords, "_hasher", _HASHER)
    passwords._nobodys.cache_clear()
    yield
    passwords._nobodys.cache_clear()


@pytest.fixture(scope="session")
def built_hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template") / "hub"
    build(folder)
    return folder


@pytest.fixture
def hospital_hub(built_hub, tmp_path):
    folder = tmp_path / "hub"
    shutil.copytree(built_hub, folder)
    world = open_world(folder)
    yield world
    world.hub.close()


@pytest.fixture
def world_maker():
    """Build and open a hub with other settings."""

    def make(folder, **settings):
        build(folder, **settings)
        return open_world(folder, **settings)

    return make


@pytest.fixture
def answered(hospital_hub):
    """Open a survey of Ada's, and let people answer it: `answered(asked, people, name=…)`.

    The reports are put into the store as the intake would: that it does is tested elsewhere, and takes its time.
    """
    from cloister.hub.core.models import Submission, Survey
    from cloister.hub.surveys import survey as surveys
    from cloister.hub.surveys.device import submissions
    from cloister.local.survey.envelope import canonical

    def row(survey, raw):
        told = [json.loads(one) for one in json.loads(raw)["reports"]]
        kept = {one["question"].partition(".")[2]: [one["level"], one["report"]] for one in told}
        return {"survey_id": survey.id, "wave": survey.wave, "id": hashlib.sha256(raw).hexdigest(),
                "reports": canonical(kept).decode()}  # fmt: skip

    def make(asked, people, name="sleep", who="ada", **facts):
        hub = hospital_hub.hub
        words = {"title": "How people sleep", "purpose": "To learn.", "consent": "I take part of my own will."}
        with hub.database.writing() as session:
            made = session.scalar(gateway.sa.select(Survey).where(Survey.name == name))
            if made is None:
                made = surveys.create(hub, session, hospital_hub.people[who], name, {**words, "asked": asked, **facts})
                surveys.publish(hub, session, made)
            rows = [row(made, raw) for raw in submissions(surveys.public(made), people)]
            if rows:
                session.execute(gateway.sa.insert(Submission), rows)
        return made

    return make


class Visit:
    """Somebody at the pages and at the API."""

    def __init__(self, world, app, person):
        with world.hub.database.writing() as session:
            secret, kept = sessions.begin(session, world.hub.settings, person, complete=True)
            token = tokens.make(session, person, "test", ["read", "work", "share"], 1)
        self._csrf = kept.csrf
        self.web = TestClient(app, follow_redirects=False, headers={"cookie": f"cloister-session={secret}"})
        self.api = TestClient(app, headers={"Authorization": f"Bearer {token}"})

    def get(self, path):
        return self.web.get(path)

    def post(self, path, **sent):
        return self.web.post(path, data={**sent, "csrf": self._csrf})


@pytest.fixture
def visits_of():
    """Sign people of a world in: `visits_of(world)("ada").get("/datasets")`."""

    def of(world):
        app = create_app(world.hub)
        return lambda name: Visit(world, app, world.people[name])

    return of
