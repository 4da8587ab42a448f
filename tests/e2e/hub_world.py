"""A hub with everybody in it, for the tests that attack it: two owners, their friends and all who should get nothing.

Two sets of things exist, and a third does not: `visits` belongs to the hospital, whose policy lets the university in;
`lakeside` belongs to the clinic, and nobody else may know of it; `nowhere` names things of the same shape that are not
there. Whoever may not know of a thing must not be able to tell it from one that is not there.
"""

import atexit
import base64
import csv
import hashlib
import io
import json
import random
import re
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from fastapi.testclient import TestClient

from cloister.attack import membership_of_scores
from cloister.hub.approvals import ask_access
from cloister.hub.core import models
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Organisation, Person
from cloister.hub.core.settings import Settings
from cloister.hub.core.signed_state import note_pause
from cloister.hub.datasets import datasets, ingest, upload
from cloister.hub.jobs import gateway, queue
from cloister.hub.jobs.attacks import running, store
from cloister.hub.jobs.attacks.package import packed
from cloister.hub.jobs.dataset_pool import DatasetPool
from cloister.hub.jobs.external_tables.submission import hand_in
from cloister.hub.jobs.runner import run_job
from cloister.hub.jobs.trust_model import trust_model_of
from cloister.hub.policy.conditions import Environment
from cloister.hub.surveys import survey as surveys
from cloister.hub.surveys.device import submissions
from cloister.hub.users import accounts, one_time_links, sessions, tokens
from cloister.hub.users.passwords import seal
from cloister.hub.web.app import create_app

PASSWORD = "eleven green bottles"
PEOPLE = {
    "owner": ("Hospital", ["data owner"]),
    "other": ("Clinic", ["data owner"]),
    "reviewer": ("Board", ["data user"]),
    "ada": ("University", ["data user"]),  # has a role in visits
    "cleo": ("College", ["data user"]),  # sees a part of visits
    "dora": ("Institute", ["data user"]),  # may ask for a role
    "ben": ("College", ["data user"]),  # has nothing
    "operator": ("Office", ["operator"]),
    "auditor": ("Court", ["auditor"]),
    "provider": ("Hospital", ["data provider"]),
    "algorithm": ("Lab", ["algorithm provider"]),
    "friend": ("Society", ["data user"]),  # may ask for a role in lakeside; never visits in these tests
}
VISITORS = tuple(name for name in PEOPLE if name != "friend")
WARDS = ("cardiology", "maternity", "surgery", "oncology")

# Values that stand in the rows and must never stand anywhere else.
MARKS = {
    "text": "Zyx-marked-comment-7741",
    "person": "patient-Qwv-90317",
    "group": "ward-Kjh-secret-5512",
    "number": "918273645",
    "cost": "73310.9771",
    "staff": "staff-Plm-33871",
}

SCHEMA = """\
unit: {name: patient, max_rows: 4}
tables:
  visits:
    unit: patient
    columns:
      ward: {type: text, categories: [cardiology, maternity, surgery, oncology]}
      age: {type: integer, bounds: [0, 110]}
      cost: {type: real, bounds: [0, 5000]}
      comment: {type: text}
  salaries:
    unit: patient
    columns:
      staff: {type: text}
      pay: {type: integer, bounds: [0, 20000]}
"""
_POLICY = """\
dataset: visits
purposes: [health-research]
budget:
  lifetime: {epsilon: 40, delta: 1e-6}
  per_user: {rho: 3, delta: 1e-7}
  per_request: {rho: 2, delta: 1e-7}
  approvals: [{above: {rho: 1, delta: 1e-7}, needs: 1}]
reviewers: [reviewer@board.example]
joins: any
roles:
  researchers:
    who: {organisations: [University]}
    may: [see schema, query, profile, train, predict, synthesise, anonymise]
  juniors:
    who: {people: [cleo@college.example]}
    may: [see schema, query, profile, train, synthesise]
    tables: {visits: {columns: [ward, age], rows: "ward <> 'maternity'"}}
  guests:
    who: {organisations: [Institute]}
    by_request: true
    may: [see schema, query]
"""
_HIDDEN_POLICY = """\
dataset: lakeside
purposes: [health-research]
budget: {lifetime: {epsilon: 5, delta: 1e-6}}
roles:
  self:
    who: {people: [other@clinic.example]}
    may: [see schema, query, profile, train, synthesise]
  friends:
    who: {people: [friend@society.example]}
    by_request: true
    may: [query]
"""
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


@dataclass
class Things:
    """The things of one set, by the names that routes give to the parts of their addresses."""

    name: str
    job: int
    request: int
    saved: int
    token: int
    notice: int
    person: int
    upload: str
    invitation: str
    reset: str
    version: int = 1
    table: str = "visits"
    trained: int = 987_654
    made: int = 987_654
    handed: int = 987_654
    output: int = 987_654
    attack: int = 987_654

    def fill(self, path, number=0):
        """An address from a route's pattern; `number` is what stands for {number}."""
        values = {
            "name": self.name,
            "number": number,
            "upload_id": self.upload,
            "table": self.table,
            "kind": "query",
            "side": "purpose",
            "question": "smoker",
            "file": "table.parquet",
            "secret": self.invitation if path.startswith("/invitation") else self.reset,
        }
        return re.sub(r"\{(\w+)\}", lambda found: str(values[found.group(1)]), path)


@dataclass
class Town:
    """The hub, its people, their keys, and a browser for each."""

    hub: Hub
    people: dict[str, Person]
    web: TestClient
    cookies: dict[str, str] = field(default_factory=dict)
    csrf: dict[str, str] = field(default_factory=dict)
    tokens: dict[tuple[str, str], str] = field(default_factory=dict)
    visits: Things | None = None
    hidden: Things | None = None
    nowhere: Things | None = None

    # Asking

    def ask(self, who, method, path, *, data=None, body=None, accept="text/html", **headers):
        """A request by somebody's browser, with the token that its pages carry."""
        sent = {"accept": accept, **headers}
        if who in self.cookies:
            sent["cookie"] = f"cloister-session={self.cookies[who]}"
            sent.setdefault("x-csrf", self.csrf[who])
        elif method not in ("GET", "HEAD") and not path.startswith("/api/"):
            sent["cookie"] = f"cloister-visit={'v' * 40}"
            sent.setdefault("x-csrf", hashlib.sha256(b"cloister csrf " + b"v" * 40).hexdigest())
        return self.send(method, path, sent, data, body)

    def call(self, who, method, path, *, body=None, scopes="read work share", content=None, **headers):
        """A request by somebody's program, with a token of these scopes."""
        sent = {"accept": "application/json", **headers}
        if who in self.people:
            sent["authorization"] = f"Bearer {self.token(who, scopes)}"
        return self.send(method, path, sent, None, body, content)

    def send(self, method, path, headers, data=None, body=None, content=None):
        """Exactly this request; nothing is remembered from one to the next."""
        self.web.cookies.clear()
        if content is not None:
            return self.web.request(method, path, headers=headers, content=content)
        return self.web.request(method, path, headers=headers, data=data, json=body)

    def token(self, who, scopes="read work share"):
        if (who, scopes) not in self.tokens:
            with self.hub.database.writing() as session:
                self.tokens[who, scopes] = tokens.make(session, self.people[who], "t", scopes.split(), 9)
        return self.tokens[who, scopes]

    def sign_in(self, who, complete=True, name=""):
        with self.hub.database.writing() as session:
            person = session.get_one(Person, self.people[who].id)
            secret, kept = sessions.begin(session, self.hub.settings, person, complete)
        self.cookies[name or who], self.csrf[name or who] = secret, kept.csrf

    # Working

    def submit(self, who, dataset="visits", kind="query", **form):
        form = {"sql": COUNT, "spend": "rho 0.01"} | form if kind == "query" else {"spend": "rho 0.01"} | form
        here = Environment(now(), "DE", "127.0.0.1")
        return gateway.submit(
            self.hub, self.people[who], gateway.JobOrder(dataset, kind, form, "health-research", here)
        )

    def work(self):
        """Be a worker until the queue is empty; how each job ended."""
        worker, ended = f"town-{random.random()}", []
        pool = DatasetPool(
            self.hub, lambda one, version, person: trust_model_of(one.trust).open(self.hub, one, version, person)
        )
        while (job := queue.claim(self.hub.database, worker)) is not None:
            ended.append(run_job(self.hub, job, worker, pool))
        pool.close()
        return ended

    def rows(self, statement):
        with self.hub.database.reading() as session:
            found = list(session.scalars(statement))
            for one in found:
                getattr(one, "result", None)  # a job's result is loaded only when it is asked for
            return found

    # Going back

    def _database(self):
        return self.hub.folder / "hub.db"

    def remember(self):
        """Keep the state, to come back to it after a request that changed something."""
        self._kept = self.hub.folder.with_name(f"{self.hub.folder.name}-kept")
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir()
        for name in ("sealed", "uploads", "keys"):
            shutil.copytree(self.hub.folder / name, self._kept / name)
        with (
            closing(sqlite3.connect(self._database())) as live,
            closing(sqlite3.connect(self._kept / "hub.db")) as kept,
        ):
            live.backup(kept)
        self.mark = self.fingerprint()

    def restore(self):
        """Come back to it."""
        with (
            closing(sqlite3.connect(self._kept / "hub.db")) as kept,
            closing(sqlite3.connect(self._database())) as live,
        ):
            kept.backup(live)
        for name in ("sealed", "uploads", "keys"):
            shutil.copytree(self._kept / name, self.hub.folder / name, dirs_exist_ok=True)
        for dataset in self.rows(sa.select(models.Dataset)):  # the ledger does not go back: it counts on
            note_pause(self.hub, dataset.name, dataset.paused)
        self.mark = self.fingerprint()

    def fingerprint(self):
        """What a refused request must leave as it was: every table but the log, and what counts tries and visits."""
        digest = hashlib.sha256(str(self.hub.ledger.head).encode())
        with self.hub.database.reading() as session:
            for table in models.Base.metadata.sorted_tables:
                if table.name not in ("audit", "sessions", "tries", "tokens"):
                    for row in session.execute(sa.select(table)):
                        digest.update(repr(tuple(row)).encode())
        return digest.hexdigest()


def routes(app):
    """Every route of the application: (method, pattern), taken from the application itself."""
    found = []
    for one in app.routes:
        inner = getattr(one, "original_router", None)
        if inner is not None:
            assert one.include_context.prefix == ""
            found += [(method, route.path) for route in inner.routes for method in sorted(route.methods)]
        elif getattr(one, "methods", None):
            found += [(method, one.path) for method in sorted(one.methods) if method != "HEAD"]
    described = {(method.upper(), path) for path, kinds in app.openapi()["paths"].items() for method in kinds}
    assert described <= set(found)  # so that we notice when the framework keeps its routes elsewhere
    assert len(found) > 90
    return found


def rows_of_visits(seed=7, people=300):
    """A CSV of visits with marked values in it, and some lines that no reader understands."""
    draws = random.Random(seed)
    sink = io.StringIO()
    table = csv.writer(sink)
    table.writerow(["patient", "ward", "age", "cost", "comment"])
    for person in range(people):
        for _ in range(draws.randint(1, 3)):
            facts = [draws.choice(WARDS), draws.randint(0, 100), round(draws.uniform(10, 4000), 2), f"note {person}"]
            table.writerow([f"p{person}", *facts])
    table.writerow([MARKS["person"], MARKS["group"], MARKS["number"], MARKS["cost"], MARKS["text"]])
    text = sink.getvalue() + f'p1,surgery,"{MARKS["text"]},5,{MARKS["person"]}\n{MARKS["group"]}\n'
    return text.encode()


def rows_of_salaries(people=300):
    lines = [f"p{person},clerk,{1000 + person}" for person in range(people)]
    return "\n".join(
        ["patient,staff,pay", *lines, f"{MARKS['person']},{MARKS['staff']},{MARKS['number']}", ""]
    ).encode()


_USUAL = {"requests_per_minute": 10**9, "country": "DE", "login_tries": 5, "survey_batch": 1}


@cache
def _template():
    """Build the town that others are copied from, once in each process."""
    folder = Path(tempfile.mkdtemp(prefix="town-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    town = build(folder / "hub")
    town.hub.close()
    return town


def copied(folder, **settings):
    """Open a copy of the town in a folder, with these settings: a tenth of the work of building one."""
    kept = _template()
    shutil.copytree(kept.hub.folder, folder)
    hub = Hub.open(Settings(folder=folder, **{**_USUAL, **settings}))
    with hub.database.reading() as session:
        people = {name: session.get_one(Person, one.id) for name, one in kept.people.items()}
    web = TestClient(create_app(hub), follow_redirects=False, raise_server_exceptions=False)
    things = (replace(one) for one in (kept.visits, kept.hidden, kept.nowhere))
    return Town(hub, people, web, dict(kept.cookies), dict(kept.csrf), dict(kept.tokens), *things)


def build(folder, **settings):
    """Make the town in a folder."""
    hub = Hub.create(Settings(folder=folder, **{**_USUAL, **settings}))
    people = {}
    with hub.database.writing() as session:
        places = {place: Organisation(name=place, country="DE") for place, _ in PEOPLE.values()}
        session.add_all(places.values())
        session.flush()
        sealed = seal(PASSWORD)
        for name, (place, roles) in PEOPLE.items():
            email, where = f"{name}@{place.lower()}.example", places[place].id
            people[name] = Person(
                email=email, verified=now(), name=name.title(), organisation_id=where, roles=roles, password=sealed
            )
            session.add(people[name])
        session.flush()
        for one in people.values():
            session.refresh(one)
    app = create_app(hub)
    web = TestClient(app, follow_redirects=False, raise_server_exceptions=False)
    town = Town(hub, people, web)
    files = {"visits": rows_of_visits(), "salaries": rows_of_salaries()}
    share(town, "owner", "visits", _POLICY, SCHEMA, files)
    share(town, "other", "lakeside", _HIDDEN_POLICY, SCHEMA, files)
    _things(town)
    _surveys(town)
    for name in VISITORS:
        town.sign_in(name)
    with hub.database.writing() as session:
        ada = session.get_one(Person, people["ada"].id)
        secret, kept = sessions.begin(session, hub.settings, ada, complete=False)
    town.cookies["half"], town.csrf["half"] = secret, kept.csrf  # a password was shown, a code is missing
    return town


def _surveys(town):
    """A survey of each owner, called like the dataset: one that is open and was answered, and a draft."""
    asked = [
        {"id": "smoker", "type": "yes_no", "text": "Do you smoke?"},
        {"id": "where", "type": "choice", "text": "Where do you live?", "options": ["town", "farm"]},
    ]
    words = {"purpose": "To learn.", "consent": "Of my own will.", "asked": asked, "lasting": True}
    with town.hub.database.writing() as session:
        for name, owner in (("visits", "owner"), ("lakeside", "other")):
            made = surveys.create(town.hub, session, town.people[owner], name, {"title": f"Asked by {owner}", **words})
            if name == "visits":
                surveys.publish(town.hub, session, made)
                told, open_one = surveys.public(made), made
    person = {"smoker": ("no", "light"), "where": ("farm", "strong")}
    for raw in submissions(told, [person] * 3):
        answer = town.web.post("/s/visits/answers", content=raw)
        assert answer.status_code == 200, answer.text
    surveys.reveal(town.hub, open_one, 1)  # what is shown is marked when it is first looked at


def share(town, owner, name, policy, schema, files):
    """A dataset, from its policy to a sealed version."""
    hub, person = town.hub, town.people[owner]
    with hub.database.writing() as session:
        dataset = datasets.create(
            hub,
            session,
            person,
            name=name,
            title=f"Title of {name}",
            about=f"About {name}.",
            policy_text=policy,
            schema_text=schema,
        )
    sent = {}
    for table, raw in files.items():
        sent[table] = send(town, owner, dataset, table, raw)
    with hub.database.writing() as session:
        version = datasets.new_version(hub, session, person, dataset, schema_text=schema, uploads=sent)
    assert ingest.prepare(hub, version.id) == "ready"


def send(town, who, dataset, table, raw, file=""):
    """A file into a dataset; the upload's id."""
    with town.hub.database.writing() as session:
        begun = upload.begin(
            town.hub, session, town.people[who], dataset, table=table, file=file or f"{table}.csv", size=len(raw)
        )
    upload.receive(town.hub, town.people[who], begun.id, 0, raw)
    return begun.id


def _things(town):
    hub, people = town.hub, town.people
    jobs = {"visits": town.submit("ada").id, "lakeside": town.submit("other", "lakeside").id}
    form = {"estimator": "MixedNB", "table": "visits", "target": "ward", "features": "age"}
    pairs = (("visits", "ada"), ("lakeside", "other"))
    trained = {name: town.submit(who, name, "train", **form).id for name, who in pairs}
    form = {"method": "independent", "table": "visits", "rows": "40"}
    synthetic = {name: town.submit(who, name, "synthesise", **form).id for name, who in pairs}
    town.submit("ada", sql="SELECT SUM(cost) AS c FROM visits", spend="rho 1.5")  # waits for somebody to agree
    form = {"table": "visits", "quasi": "age", "sensitive": "ward", "models": "k=5", "method": "mondrian"}
    checking = town.submit("ada", kind="anonymise", **form).id  # waits for people to look at it
    assert set(town.work()) == {"done", "checking"}
    made = {}
    for name, asker, owner in (("visits", "ada", "provider"), ("lakeside", "friend", "other")):
        with hub.database.writing() as session:
            dataset = datasets.find(session, name)
            guest, role = ("dora", "guests") if name == "visits" else ("friend", "friends")
            asked = ask_access(hub, session, people[guest], dataset, role, "health-research", "A paper about age.")
            kept = models.SavedQuery(person_id=people[asker].id, dataset_id=dataset.id, name=f"Mine {name}", sql=COUNT)
            told = models.Notice(person_id=people[asker].id, text=f"A word to {asker}.", link="/jobs")
            session.add_all((kept, told))
            tokens.make(session, people[asker], f"{asker} token", ["read"], 9)
            session.flush()
            token = session.scalar(sa.select(models.Token.id).where(models.Token.person_id == people[asker].id))
            operator = people["operator"]
            invited = accounts.invite(
                session, operator, email=f"new-{jobs[name]}@x.example", organisation=None, roles=["data user"]
            )
            reset = one_time_links.make(
                session,
                operator,
                one_time_links.RESET,
                person=people["friend"],
                days=1,
                detail={"second_factor": False},
            )
        begun = send(town, owner, dataset, "visits", rows_of_visits(3, 20))
        made[name] = Things(
            name,
            jobs[name],
            asked.id,
            kept.id,
            token,
            told.id,
            people[asker].id,
            begun,
            invited,
            reset,
            trained=trained[name],
            made=synthetic[name],
            attack=_attack(town, "owner" if name == "visits" else "other", name, trained[name]),
            handed=_hand_in(town, "owner" if name == "visits" else "other", name, synthetic[name]),
        )
    town.visits, town.hidden = made["visits"], made["lakeside"]
    (town.visits.output,) = town.rows(sa.select(models.Request.id).where(models.Request.job_id == checking))
    town.nowhere = Things(
        "nowhere", 987_654, 987_654, 987_654, 987_654, 987_654, 987_654, "0" * 32, "w" * 43, "w" * 43, 987_654, "none"
    )


def _hand_in(town, owner, name, made):
    """A synthetic table that the owner has handed in, as if it had been made elsewhere; its number."""
    with town.hub.database.reading() as session:
        result = session.get_one(models.Job, made).result
    files = base64.b64decode(result["file"]), json.dumps(result["side"]).encode()
    return hand_in(town.hub, town.people[owner], name, *files, str(town.hub.key.public)).id


def _attack(town, owner, name, job):
    """An attack of the owner's on a model that is done, with a finding as if one had been made; its number."""
    number = store.start(town.hub, town.people[owner], name, job)
    finding = membership_of_scores(range(100, 200), range(100))
    running._end(town.hub, number, *packed([finding], {}, "A model"))
    return number


def dump(hub):
    """Everything in the hub's database, as text; bytes as they are and in hexadecimal."""
    lines = []
    with hub.database.reading() as session:
        for table in models.Base.metadata.sorted_tables:
            for row in session.execute(sa.select(table)):
                for value in row:
                    if isinstance(value, bytes):
                        lines += [value.decode("latin-1"), value.hex()]
                    else:
                        lines.append(value if isinstance(value, str) else json.dumps(value, default=str))
    return "\n".join(lines)
