"""Attacks of a dataset, for its owner alone. Whoever calls this has checked with `owned` that the user is the owner."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, undefer

from cloister.hub.approvals.requests import may_decide
from cloister.hub.core.database import now
from cloister.hub.core.keys import seal, unseal
from cloister.hub.core.models import Attack, Dataset, Job, Output, Person, Request
from cloister.hub.core.signed_state import require_unpaused
from cloister.hub.datasets.datasets import owned
from cloister.hub.jobs import queue
from cloister.hub.jobs.external_tables.submission import HANDED
from cloister.privacy.errors import CloisterError, NotHere, NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = [
    "MOST_KEPT",
    "UNDER_WAY",
    "AttackFacts",
    "Target",
    "attacks",
    "cancel",
    "find",
    "remove",
    "report_of",
    "seal_facts",
    "seal_report",
    "start",
    "targets",
    "title_of",
]

UNDER_WAY = ("queued", "running")
MOST_KEPT = 100  # attacks of one dataset
_MOST_TARGETS = 200
_LEAST_NUMBER, _NUMBERS = 10_000_000, 90_000_000
_KEPT = ("train", "synthesise")  # jobs whose result is attacked
_WORDS = {"train": "Model", "synthesise": "Synthetic table", "anonymise": "Anonymised release"}


@dataclass(frozen=True, slots=True)
class Target:
    """Something that an owner may attack.

    Attributes:
        job_id: the job that made it.
        kind: the type of the job: train, synthesise or anonymise.
        title: what it is, in words.
        person: who asked for it.
        created: when they did.
        held: True if others still look at it before the person gets it.
        request_id: the request by which they look, for an anonymised release.
        problem: why it cannot be attacked now; empty if it can.
    """

    job_id: int
    kind: str
    title: str
    person: str
    created: float
    held: bool = False
    request_id: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AttackFacts:
    """One attack.

    Attributes:
        number: its number.
        job_id: the job whose result is attacked.
        title: what that is, in words.
        state: queued, running, done, failed or cancelled.
        progress: the share done.
        stage: the current step.
        created, finished: when it was started, and when it ended.
        facts: what it found in short, or what went wrong; empty while it is under way.
    """

    number: int
    job_id: int
    title: str
    state: str
    progress: float
    stage: str
    created: float
    finished: float | None
    facts: Mapping[str, Any]

    @property
    def under_way(self) -> bool:
        """Return True if it is queued or running."""
        return self.state in UNDER_WAY


# Targets


def targets(hub: "Hub", session: Session, dataset: Dataset, owner: Person) -> list[Target]:
    """Return what the owner may attack, newest first.

    A held release is listed if the owner looks at it as a reviewer; one that they asked for themself only once it is
    released: they would learn whether it could be made.
    """
    kept = sa.select(Job).where(
        Job.dataset_id == dataset.id,
        Job.state == "done",
        Job.kind.in_(_KEPT),
        Job.result.is_not(None),
    )
    found = [_of_job(job) for job in session.scalars(kept.order_by(Job.id.desc()).limit(_MOST_TARGETS))]
    outputs = sa.select(Output).where(Output.dataset_id == dataset.id, Output.sealed.is_not(None))
    for output in session.scalars(outputs.order_by(Output.job_id.desc()).limit(_MOST_TARGETS)):
        target = _of_output(hub, session, output, owner)
        found += [] if target is None else [target]
    return sorted(found, key=lambda target: -target.job_id)


def _of_job(job: Job) -> Target:
    title = f"{_WORDS.get(job.kind, 'Job')} {job.id}"
    if job.kind == "train":
        title += f": {job.parameters.get('estimator', '')}"
        if job.parameters.get("target"):
            title += f" for {job.parameters['target']}"
    else:
        title += f": {job.parameters.get('method', '')}" + (", uploaded" if job.parameters.get(HANDED) else "")
    problem = ""
    if job.kind == "train" and not job.parameters.get("target"):
        problem = "It predicts nothing, and these attacks ask a model for predictions."
    return Target(job.id, job.kind, title, job.person.name, job.created, problem=problem)


def _of_output(hub: "Hub", session: Session, output: Output, owner: Person) -> Target | None:
    job = output.job
    wanted = sa.select(Request).where(Request.job_id == job.id, Request.kind == "output").order_by(Request.id.desc())
    request = session.scalars(wanted.limit(1)).first()
    held = output.released is None
    if held and (
        request is None
        or request.state != "open"
        or job.state != queue.CHECKING
        or not may_decide(hub, session, owner, request)
    ):
        return None
    title = f"{_WORDS['anonymise']} {job.id}: {job.parameters.get('models', '')}"
    number = None if request is None else request.id
    return Target(job.id, job.kind, title, job.person.name, job.created, held, number)


def title_of(job: Job) -> str:
    """Return what is attacked, in words."""
    return _of_job(job).title if job.kind != "anonymise" else f"{_WORDS['anonymise']} {job.id}"


# Attacks


def attacks(hub: "Hub", session: Session, dataset: Dataset) -> list[AttackFacts]:
    """Return all attacks of a dataset, newest first."""
    wanted = sa.select(Attack).where(Attack.dataset_id == dataset.id).order_by(Attack.created.desc(), Attack.id.desc())
    return [_facts(hub, dataset, attack) for attack in session.scalars(wanted)]


def find(hub: "Hub", session: Session, dataset: Dataset, number: int) -> AttackFacts:
    """Return one attack.

    Raises:
        NotHere: the dataset has none of that number.
    """
    return _facts(hub, dataset, _attack(session, dataset, number))


def report_of(hub: "Hub", session: Session, dataset: Dataset, number: int) -> dict[str, Any]:
    """Return the findings of an attack that is done: see `package.py`.

    Raises:
        NotHere: there is none, or it is not done.
    """
    attack = _attack(session, dataset, number, undefer(Attack.report))
    if attack.state != "done" or attack.report is None:
        raise NotHere("this attack has no findings.")
    report: dict[str, Any] = json.loads(unseal(hub.keys.data_key(dataset), attack.report, _label(attack, "report")))
    return report


def start(hub: "Hub", owner: Person, name: str, job_id: int) -> int:
    """Queue an attack; return its number.

    Raises:
        NotHere: this user does not own such a dataset, or there is nothing of that number that they may attack.
        NotNow: another attack on this dataset is under way, it is paused, or too many attacks are kept.
    """
    with hub.database.writing() as session:
        dataset = owned(session, name, owner)
        target = next((one for one in targets(hub, session, dataset, owner) if one.job_id == job_id), None)
        if target is None:
            raise NotHere(f"job {job_id} has left nothing here that can be attacked.")
        if target.problem:
            raise NotNow(f"{target.title} is not attacked. {target.problem} Choose another.")
        require_unpaused(hub, dataset)
        rows = session.execute(sa.select(Attack.id, Attack.state).where(Attack.dataset_id == dataset.id)).all()
        running = [number for number, state in rows if state in UNDER_WAY]
        if running:
            raise NotNow(f"attack {running[0]} on this dataset is under way. Wait until it is done, or cancel it.")
        if len(rows) >= MOST_KEPT:
            raise NotNow(f"{MOST_KEPT} attacks are kept for a dataset. Remove some that you no longer need.")
        attack = Attack(id=_new_number(session), dataset_id=dataset.id, job_id=job_id, state="queued", created=now())
        session.add(attack)
        session.flush()
        hub.audit.write(session, owner.id, "attack.begun", f"job/{job_id}", dataset=name)
        return attack.id


def cancel(hub: "Hub", owner: Person, name: str, number: int) -> None:
    """Stop an attack that is under way; a worker that runs it notices at its next step."""
    with hub.database.writing() as session:
        attack = _attack(session, owned(session, name, owner), number)
        if attack.state not in UNDER_WAY:
            raise NotNow(f"attack {number} has ended: it is {attack.state}.")
        attack.state, attack.stage, attack.finished = "cancelled", "", now()


def remove(hub: "Hub", owner: Person, name: str, number: int) -> None:
    """Delete an attack with its findings; one under way is stopped."""
    with hub.database.writing() as session:
        session.delete(_attack(session, owned(session, name, owner), number))


def _new_number(session: Session) -> int:
    """Return a number by chance: numbers in a row would tell an owner how many attacks others have started."""
    while True:
        number = _LEAST_NUMBER + secrets.randbelow(_NUMBERS)
        if session.get(Attack, number) is None:
            return number


def _attack(session: Session, dataset: Dataset, number: int, *options: Any) -> Attack:
    attack = session.get(Attack, number, options=options) if 0 < number < 2**31 else None
    if attack is None or attack.dataset_id != dataset.id:
        raise NotHere("there is no such attack.")
    return attack


# Sealing


def seal_facts(hub: "Hub", dataset: Dataset, attack: Attack, facts: Mapping[str, Any]) -> bytes:
    """Seal what an attack found in short, or what went wrong."""
    return seal(hub.keys.data_key(dataset), json.dumps(facts, allow_nan=False).encode(), _label(attack, "facts"))


def seal_report(hub: "Hub", dataset: Dataset, attack: Attack, report: Mapping[str, Any]) -> bytes:
    """Seal the findings of an attack."""
    return seal(hub.keys.data_key(dataset), json.dumps(report, allow_nan=False).encode(), _label(attack, "report"))


def _facts(hub: "Hub", dataset: Dataset, attack: Attack) -> AttackFacts:
    content, problem = b"{}", ""
    if attack.facts is not None:
        try:
            content = unseal(hub.keys.data_key(dataset), attack.facts, _label(attack, "facts"))
        except CloisterError as error:  # one that was changed in the database must not hide the others
            why = str(error).removeprefix(f"{error.code}: ")
            problem = f"what it found cannot be opened: {why} Remove it, and start it again."
    facts: dict[str, Any] = {"problem": problem} if problem else json.loads(content)
    return AttackFacts(
        attack.id,
        attack.job_id,
        title_of(attack.job),
        attack.state,
        attack.progress,
        attack.stage,
        attack.created,
        attack.finished,
        facts,
    )


def _label(attack: Attack, part: str) -> str:
    return f"{part} of attack {attack.id} on job {attack.job_id}"
