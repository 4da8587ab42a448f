"""Demo hub: a hospital, a clinic, two researchers, an auditor and an operator, with some jobs done.

Its people do not exist, and its passwords are printed: it is made in a folder of its own, never in that of a hub.
"""

import io
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from cloister.data.hospital import SCHEMA, hospital
from cloister.data.schema_file import to_yaml
from cloister.hub.approvals.decision import comment, decide
from cloister.hub.approvals.requests import ask_access
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Job, Organisation, Person, Request, SavedQuery
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import datasets, ingest, upload
from cloister.hub.jobs import gateway, queue
from cloister.hub.jobs.dataset_pool import DatasetPool
from cloister.hub.jobs.runner import run_job
from cloister.hub.jobs.trust_model import trust_model_of
from cloister.hub.ops import demo_survey
from cloister.hub.ops.demo_survey import make_survey
from cloister.hub.policy.decide import Environment
from cloister.hub.users import accounts, user_actions
from cloister.privacy.errors import Denied, NotNow

__all__ = ["PASSWORD", "PEOPLE", "Demo", "make_demo"]

PASSWORD = "nine quiet herons"  # noqa: S105  of all users, and public: nothing here is secret
_MARK = "demo-token"
_PIECE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Somebody:
    """User of the demo."""

    email: str
    name: str
    organisation: str
    country: str
    roles: tuple[str, ...]
    about: str


PEOPLE = (
    _Somebody("hanna@st-anna.example", "Hanna Steiner", "St. Anna Hospital", "AT", ("data owner",), "shares `visits`"),
    _Somebody("clara@lake.example", "Clara Vogt", "Lake Clinic", "DE", ("data owner",), "shares `check-ups`"),
    _Somebody("ada@uni.example", "Ada Brandt", "University", "AT", ("data user",), "has asked `visits`, runs a survey"),
    _Somebody("ben@uni.example", "Ben Okafor", "University", "AT", ("data user",), "has asked for `check-ups`"),
    _Somebody("iris@audit.example", "Iris Kern", "Audit Office", "AT", ("auditor",), "reads the books"),
    _Somebody("otto@hub.example", "Otto Lang", "Hub Office", "AT", ("operator",), "runs the hub, sees no data"),
)

_VISITS_POLICY = """\
dataset: visits
purposes: [health-research, quality-assurance]
budget:
  lifetime: {epsilon: 3, delta: 1e-6}
  per_user: {rho: 0.08}
  per_request: {rho: 0.05}
  period: {days: 30, rho: 0.15}
  approvals: [{above: {rho: 0.01}, needs: 1}, {above: {rho: 0.03}, needs: 2}]
reviewers: [clara@lake.example]
retention: {days: 730}
anonymised: {at_least: "k=10, l=3", suppression_at_most: 5%, reviewers: 2}
roles:
  researchers:
    who: {roles: [data user], organisations: [University]}
    may: [see schema, query, profile, train, synthesise, anonymise]
    purposes: [health-research]
  own staff:
    who: {organisations: [St. Anna Hospital]}
    may: [see schema, query, profile]
"""
_CHECKUPS_POLICY = """\
dataset: check-ups
purposes: [epidemiology, education]
budget:
  lifetime: {rho: 0.2}
  per_user: {rho: 0.05}
  approvals: [{above: {rho: 0.02}, needs: 1}]
roles:
  guests:
    who: {roles: [data user]}
    may: [see schema, query]
    by_request: true
    tables: {checkups: {columns: [department, age, cost], rows: "age >= 18"}}
"""
_WARDS = "SELECT ward, COUNT(*) AS visits, AVG(stay_days) AS stay FROM visits GROUP BY ward ORDER BY visits DESC"
# Saved for Ada and not run yet: a repeated query is free, and shows neither SQL nor a new receipt.
_GLANCE = "SELECT ward, AVG(age) AS age, AVG(cost) AS cost FROM visits GROUP BY ward ORDER BY cost DESC"
_OLD = "SELECT COUNT(DISTINCT patient) AS patients FROM visits WHERE age >= 65"
_COST = "SELECT ward, SUM(cost) AS cost FROM visits GROUP BY ward"
_MONTHS = "SELECT EXTRACT(MONTH FROM admitted) AS month, COUNT(*) AS visits FROM visits GROUP BY month ORDER BY month"


@dataclass(frozen=True, slots=True)
class Demo:
    """Demo that is ready.

    Attributes:
        folder: where it is stored.
        address: where it is served.
        token: of Ada Brandt, for the Python client.
    """

    folder: Path
    address: str
    token: str

    def sheet(self) -> str:
        """Return addresses, users and passwords as text."""
        width = max(len(person.email) for person in PEOPLE)
        lines = [f"A demo hub in {self.folder}. Everybody's password is: {PASSWORD}", ""]
        lines += [
            f"  {person.email:<{width}}  {person.name}, {person.organisation}: {person.about}" for person in PEOPLE
        ]
        lines += ["", f"Ada's token for the Python client: {self.token}", f"Open {self.address}"]
        return "\n".join([*lines, f"A survey to answer, on a phone too: {self.address}/s/{demo_survey.NAME}"])


def make_demo(settings: Settings) -> Demo:
    """Make the demo in the settings' folder, or use the one that is there. Missing parts are added.

    Raises:
        NotNow: the folder has a hub that is no demo.
    """
    mark = settings.folder / _MARK
    if not (settings.folder / "signing.key").exists():
        hub = Hub.create(settings)
        mark.touch(mode=0o600)
    elif mark.exists():
        hub = Hub.open(settings)
    else:
        raise NotNow(f"{settings.folder} holds a hub that is no demo. Choose another folder.")
    with hub:
        people = {person.email.partition("@")[0]: _person(hub, person) for person in PEOPLE}
        _share(hub, people["hanna"], "visits", "Visits to St. Anna Hospital", _VISITS_ABOUT, _VISITS_POLICY, _visits())
        _share(hub, people["clara"], "check-ups", "Check-ups at Lake Clinic", _CHECKUPS_ABOUT, _CHECKUPS_POLICY, _ups())
        _requests(hub, people)
        _work(hub, people["ada"], people["ben"])
        make_survey(hub, people["ada"])
        if not mark.read_text():
            token = user_actions.make_token(hub, people["ada"], "demo", ("read", "work"), 365)
            mark.write_text(token)
    return Demo(settings.folder, settings.address, mark.read_text())


def _person(hub: Hub, profile: _Somebody) -> Person:
    with hub.database.reading() as session:
        existing = accounts.find(session, profile.email)
        organisation = session.scalar(sa.select(Organisation).where(Organisation.name == profile.organisation))
    if existing is not None:
        return existing
    if organisation is None:
        organisation = user_actions.make_organisation(hub, None, profile.organisation, profile.country)
    secret = user_actions.invite(hub, None, email=profile.email, organisation=organisation.id, roles=profile.roles)
    user_actions.sign_up(
        hub, email=profile.email, name=profile.name, password=PASSWORD, address="127.0.0.1", invitation=secret
    )
    with hub.database.reading() as session:
        person = accounts.find(session, profile.email)
    assert person is not None
    return person


# Data

_VISITS_ABOUT = "Every stay of 2025: ward, age, days, cost. Made up from a fixed seed: nobody is in it."
_CHECKUPS_ABOUT = "Check-ups of one year, given to guests on request. Made up from a fixed seed: nobody is in it."


@dataclass(frozen=True, slots=True)
class _Data:
    """Table and its public facts."""

    name: str
    table: pa.Table
    schema: dict[str, Any]


def _visits() -> _Data:
    """Return a year of a large hospital, with bounds that hold 99 of 100 values: errors are a few per cent."""
    facts = SCHEMA["tables"]["visits"]
    near = {"stay_days": {**facts["columns"]["stay_days"], "bounds": [0, 30]}}
    near["cost"] = {**facts["columns"]["cost"], "bounds": [0, 20000]}
    for role, names in (("quasi-identifier", ("age", "admitted")), ("sensitive", ("ward",))):
        near |= {name: {**facts["columns"][name], "role": role} for name in names}
    table = {**facts, "rows": 220_000, "columns": {**facts["columns"], **near}}
    schema = {"unit": {"name": "patient", "max_rows": 4}, "tables": {"visits": table}}
    return _Data("visits", pa.table(hospital(150_000)), schema)


def _ups() -> _Data:
    source = hospital(30_000, seed="clinic")
    columns = {"patient": "patient", "ward": "department", "age": "age", "cost": "cost", "admitted": "seen"}
    facts = SCHEMA["tables"]["visits"]["columns"]
    table = {new: facts[old] for old, new in columns.items() if old != "patient"}
    schema = {
        "unit": {"name": "patient", "max_rows": 4},
        "tables": {"checkups": {"unit": "patient", "rows": 45_000, "columns": table}},
    }
    return _Data("checkups", pa.table({new: source[old] for old, new in columns.items()}), schema)


def _share(hub: Hub, owner: Person, name: str, title: str, about: str, policy: str, data: _Data) -> None:
    """Create a dataset as its owner does: policy and schema, an upload in pieces, a version, sealed by a worker."""
    schema = to_yaml(data.schema)
    with hub.database.writing() as session:
        dataset = session.scalar(sa.select(Dataset).where(Dataset.name == name))
        if dataset is None:
            dataset = datasets.create(
                hub, session, owner, name=name, title=title, about=about, policy_text=policy, schema_text=schema
            )
        versions = datasets.versions(session, dataset)
    if any(version.state == "ready" for version in versions):
        return
    sink = io.BytesIO()
    pq.write_table(data.table, sink)
    raw = sink.getvalue()
    with hub.database.writing() as session:
        sent = upload.begin(hub, session, owner, dataset, table=data.name, file=f"{data.name}.parquet", size=len(raw))
    for offset in range(0, len(raw), _PIECE):
        upload.receive(hub, owner, sent.id, offset, raw[offset : offset + _PIECE])
    with hub.database.writing() as session:
        version = datasets.new_version(hub, session, owner, dataset, schema_text=schema, uploads={data.name: sent.id})
    state = ingest.prepare(hub, version.id)
    if state != "ready":
        raise NotNow(f"the demo's dataset {name} could not be prepared.")


# Requests and work


def _requests(hub: Hub, people: dict[str, Person]) -> None:
    """Create requests: Ben's was granted, Ada's is open."""
    with hub.database.writing() as session:
        if session.scalar(sa.select(Request.id).where(Request.kind == "access").limit(1)) is not None:
            return
        dataset = datasets.find(session, "check-ups")
        why = "To compare the ages of check-ups in two regions, for a paper."
        request = ask_access(hub, session, people["ben"], dataset, "guests", "epidemiology", why)
        decide(hub, session, people["clara"], request, True, "A clear question, and it fits the consent.")
        why = "For an exercise in my course on medical statistics."
        waiting = ask_access(hub, session, people["ada"], dataset, "guests", "education", why)
        comment(hub, session, people["clara"], waiting, "How many students will see the answers?")


def _work(hub: Hub, ada: Person, ben: Person) -> None:
    with hub.database.reading() as session:
        if session.scalar(sa.select(Job.id).limit(1)) is not None:
            return
    environment = Environment(time=now(), country="AT", network="127.0.0.1")
    for person, name, kind, form, purpose in (
        (ada, "visits", "query", {"sql": _WARDS, "spend": "rho 0.005"}, "health-research"),
        (ada, "visits", "query", {"sql": _OLD, "spend": "rho 0.001"}, "health-research"),
        (ben, "visits", "query", {"sql": _WARDS, "spend": "rho 0.005"}, "epidemiology"),
        (ben, "visits", "query", {"sql": _MONTHS, "spend": "rho 0.004"}, "health-research"),
        (ada, "visits", "profile", {"table": "visits", "spend": "rho 0.01"}, "health-research"),
        (ada, "visits", "query", {"sql": _COST, "spend": "rho 0.02"}, "health-research"),  # waits for an approval
    ):
        gateway.submit(hub, person, gateway.JobOrder(name, kind, form, purpose, environment))
    with suppress(Denied):  # so that there is a refusal with its reasons
        form = {"sql": _OLD, "spend": "rho 0.001"}
        gateway.submit(hub, ben, gateway.JobOrder("visits", "query", form, "marketing", environment))
    with hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        session.add(SavedQuery(person_id=ada.id, dataset_id=dataset.id, name="Wards at a glance", sql=_GLANCE))
    _run_queue(hub)


def _run_queue(hub: Hub) -> None:
    """Run the queue as a worker until it is empty."""
    pool = DatasetPool(
        hub, lambda dataset, version, person: trust_model_of(dataset.trust).open(hub, dataset, version, person)
    )
    worker = f"demo-{os.getpid()}"
    try:
        while (job := queue.claim(hub.database, worker)) is not None:
            run_job(hub, job, worker, pool)
    finally:
        pool.close()
