"""Authorise one job: user, dataset, purpose, tables, cost.

    require_open ─► decide without tables ─► tables that the user may see ─► tables of the job ─► decide

The gateway authorises a request before it is planned and once its cost is known; a worker authorises the job when it is
claimed and again in the transaction of the charge. Both use this module, so both apply the same rules.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.data.schema import Schema
from cloister.hub.accounting.activity import TABLES
from cloister.hub.approvals.visibility import subject_of
from cloister.hub.core.database import now
from cloister.hub.core.models import Dataset, Job, Person, Request, Version
from cloister.hub.core.signed_state import require_unpaused
from cloister.hub.datasets.datasets import newest
from cloister.hub.jobs.dataset_pool import twins
from cloister.hub.jobs.job_types import JobType, Planned, kind_of
from cloister.hub.jobs.job_types.job_type import OfModel
from cloister.hub.policy import decision_log, versions, views
from cloister.hub.policy.anonymised import Protection
from cloister.hub.policy.decide import Environment, Subject, Verdict, decide, shown_tables
from cloister.hub.policy.policy import SEE_SCHEMA, Policy
from cloister.hub.policy.views import TableView
from cloister.privacy.errors import CloisterError, NotHere, NotNow
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = [
    "ASKED",
    "BASIS",
    "DECISION",
    "JobContext",
    "JobRequest",
    "authorise",
    "StoredRequest",
    "basis_of",
    "facts_of",
    "job_request",
    "narrowed",
    "open_job_context",
    "plan_for",
    "require_open",
    "require_same_tables",
    "shows_all",
]

BASIS = "planned on"  # in a job's plan
ASKED = "asked"  # in a job's plan: the digest of the request as it was sent
DECISION = "decision"  # in the plan of a refused job: the number of the decision in the audit log


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Input of a decision on a job.

    Attributes:
        policy: the dataset's current policy.
        number: the version of the policy.
        subject: the requesting user, as the policy sees them.
        kind: the job type.
        purpose: the stated purpose.
        environment: the time and place.
    """

    policy: Policy
    number: int
    subject: Subject
    kind: JobType
    purpose: str
    environment: Environment

    def decide(
        self,
        tables: Collection[str] = (),
        loss: Loss | None = None,
        protection: Protection | None = None,
        show: str = "",
    ) -> Verdict:
        """Return the policy's verdict on these tables, this cost and protection, and this output of a model."""
        request = (self.subject, self.kind.operation, self.purpose, self.environment)
        return decide(self.policy, self.number, *request, tables=tables, loss=loss, protection=protection, show=show)


def authorise(
    request: JobRequest,
    schema: Schema,
    parameters: Mapping[str, Any],
    loss: Loss | None = None,
    require: Callable[[Verdict], None] = Verdict.require,
) -> tuple[tuple[str, ...], Verdict]:
    """Decide on a job; return its tables, and the verdict with the view that it gets of them.

    Args:
        request: the request.
        schema: the schema of the whole dataset.
        parameters: the job's parameters, as its type has read them.
        loss: the cost, if known.
        require: called with each verdict; raises if it is a refusal.

    Raises:
        Denied: the policy refuses.
    """
    # First without the tables: what is refused there must not name them.
    require(request.decide())
    visible = shown_tables(
        request.policy, request.subject, request.kind.operation, request.purpose, request.environment
    )
    tables = tuple(request.kind.tables(narrowed(schema, visible), parameters))
    verdict = request.decide(tables, loss)
    require(verdict)
    return tables, verdict


def require_open(hub: "Hub", dataset: Dataset, person: Person) -> None:
    """Refuse work on a deleted or paused dataset, or for a user whose account is closed.

    Raises:
        NotHere: the dataset was deleted.
        NotNow: it is paused, or the account is closed.
    """
    if dataset.deleted is not None:
        raise NotHere("there is no such dataset any more. Nothing was spent.")
    require_unpaused(hub, dataset)
    if not person.active:
        raise NotNow("the account of the person who asked is closed. Nothing was spent.")


def require_same_tables(hub: "Hub", session: Session, dataset: Dataset, version: Version) -> None:
    """Refuse work on tables of which a newer version is ready by now: rows may have been withdrawn there.

    Raises:
        NotNow: there is a newer version.
        SealBroken: the newest version is not what the hub signed, or is missing.
    """
    current = newest(hub, session, dataset)
    if (current.id, current.signature) != (version.id, version.signature):
        raise NotNow(
            f"a newer version of the tables of {dataset.name} became ready while this was on its way. Nothing was "
            "spent. Plan it again."
        )


def narrowed(schema: Schema, shown: Collection[str] | None) -> Schema:
    """Return a schema with the tables that a user may see, named in lower case; None: all of them."""
    if shown is None:
        return schema
    return replace(schema, tables={name: table for name, table in schema.tables.items() if name.lower() in shown})


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """Request of a job as its row holds it: who asks, for what, and the digest by which its client knows the answer."""

    person: int
    kind: str
    purpose: str
    parameters: Mapping[str, Any]
    asked: str

    @staticmethod
    def of(job: Job) -> "StoredRequest":
        """Return that of a stored job."""
        return StoredRequest(job.person_id, job.kind, job.purpose, job.parameters, str(job.plan.get(ASKED, "")))


def basis_of(hub: "Hub", version: Version, tables: Collection[str], verdict: Verdict, request: StoredRequest) -> str:
    """Return a keyed digest of a request, and of what it reads: the signed version, the tables' names, their view.

    It is keyed because a view holds hidden names and rules, which could be guessed and tried against a plain digest;
    and so that nobody who writes to the database can have another question run, and labelled as the answer to this one.
    Reviewers approve a plan that was made on this basis. A job whose basis has changed is refused before the charge.
    """
    view = (
        None
        if verdict.view is None
        else {name: asdict(table_view) for name, table_view in sorted(verdict.view.items())}
    )
    facts = {
        "version": version.id,
        "signature": version.signature,
        "tables": sorted(tables),
        "view": view,
        "request": asdict(request),
    }
    return hub.keys.mac(json.dumps(facts, sort_keys=True, default=dict).encode(), "basis of a plan")


def shows_all(view: Mapping[str, TableView] | None, schema: Schema, tables: Collection[str]) -> bool:
    """Return True if a view shows these tables unchanged."""
    visible = views.visible(schema, view)
    return all(name in visible and views.shows_all(visible[name], schema.tables[name]) for name in tables)


def plan_for(hub: "Hub", session: Session, reader: Person, job: Job, environment: Environment) -> dict[str, Any]:
    """Return the part of a job's plan that a reader may see, whether requester, owner or reviewer.

    The digest of its basis is for the hub alone. The engine's statements name columns, categories and rules that the
    question does not hold: they are for the owner, and for anyone who sees the job's tables whole.
    """
    plan = {name: value for name, value in (job.plan or {}).items() if name not in (BASIS, ASKED, DECISION)}
    if plan.get("statements") and not _sees_statements(hub, session, reader, job, environment):
        plan["statements"] = []
    return plan


def _sees_statements(hub: "Hub", session: Session, reader: Person, job: Job, environment: Environment) -> bool:
    dataset = job.dataset
    if reader.id == dataset.owner_id:
        return True
    schema, tables = versions.schema_of(hub, session, dataset), job.plan.get(TABLES)
    try:
        policy, number = versions.current(hub, session, dataset)
        operation = kind_of(job.kind).operation
    except CloisterError:
        return False
    if schema is None or not isinstance(tables, list):
        return False
    subject = subject_of(session, dataset, reader)
    job_verdict = decide(policy, number, subject, operation, job.purpose, environment, tables=tables)
    schema_verdict = decide(policy, number, subject, SEE_SCHEMA, "", environment)
    return all(verdict.allowed and shows_all(verdict.view, schema, tables) for verdict in (job_verdict, schema_verdict))


# A claimed job: decided before its tables are opened, and again in the transaction before the ledger is charged


@dataclass(slots=True)
class JobContext:
    """Job with all inputs of its decision.

    Attributes:
        tables: the tables it reads.
        verdict: the policy's newest verdict: that of the charge, or of the opening if nothing was charged. The job sees
            its view, which both must share.
        request: the input of the verdict at the opening.
        refused: the policy's refusal right before the charge, if it refused; for the audit log.
    """

    hub: "Hub"
    job: Job
    kind: JobType
    dataset: Dataset
    person: Person
    version: Version
    planned: Planned
    tables: tuple[str, ...]
    verdict: Verdict
    request: JobRequest
    refused: Verdict | None = None

    def require_protection(self, protection: Protection) -> None:
        """Refuse a release whose models are weaker than the current policy requires.

        Raises:
            Denied: the policy now refuses.
        """
        self.request.decide(self.tables, _cost(self.planned), protection).require()

    def again(self, session: Session, job: Job) -> Policy:
        """Decide again, right before the charge, or before a free result is written; return the policy with its limits.

        Raises:
            Denied: the policy now refuses.
            NotNow: the tables or the user's view have changed, or more approvals are required than given.
            SealBroken: the newest version of the tables is not what the hub signed, or is missing.
        """
        request = job_request(self.hub, session, job, job.dataset, job.person, self.kind)
        require_same_tables(self.hub, session, job.dataset, self.version)
        verdict = request.decide(self.tables, _cost(self.planned))
        self.refused = None if verdict.allowed else verdict
        verdict.require()
        if verdict.view != self.verdict.view:
            raise NotNow("the policy was changed while this job was on its way. Nothing was spent. Plan it again.")
        if verdict.needs and verdict.needs > (agreed := _agreed(session, job)):
            raise NotNow(
                f"the policy asks {verdict.needs} people to agree to this by now, and {agreed} have. "
                "Nothing was spent. Submit it again."
            )
        self.verdict = verdict  # the label states the terms under which the charge was made
        return request.policy


def open_job_context(hub: "Hub", job: Job) -> JobContext:
    """Load a claimed job, and decide on it by the current policy.

    Raises:
        Denied: the policy now refuses; the audit log records it.
        NotNow: the dataset is paused, or the job would read other data than it was planned on.
        SealBroken: the version of its tables is not what the hub signed, or not the newest.
    """
    kind, planned = kind_of(job.kind), Planned.from_json(job.plan)
    dataset, person = job.dataset, job.person  # as they were when the job was claimed, a moment ago
    require_open(hub, dataset, person)
    with hub.database.reading() as session:
        version = newest(hub, session, dataset)
        schema = twins(hub).get(dataset, version, person).data.schema  # public: no table is opened before the verdict
        request = job_request(hub, session, job, dataset, person, kind)
        if isinstance(kind, OfModel) and kind.resolve(session, dataset.id, person.id, job.parameters) != job.parameters:
            raise NotNow("the model is another by now. Nothing was spent. Plan it again.")

    def require(verdict: Verdict) -> None:
        decision_log.require(hub, person, dataset.name, verdict, decision_log.STOPPED, **facts_of(job, planned))

    tables, verdict = authorise(request, schema, job.parameters, _cost(planned), require)
    if job.plan.get(BASIS) != basis_of(hub, version, tables, verdict, StoredRequest.of(job)):
        raise NotNow(
            "the tables, what the policy shows of them, or the request have changed since this was planned. Nothing "
            "was spent. Plan it again."
        )
    return JobContext(hub, job, kind, dataset, person, version, planned, tables, verdict, request)


def job_request(hub: "Hub", session: Session, job: Job, dataset: Dataset, person: Person, kind: JobType) -> JobRequest:
    """Return the input of a decision on a stored job, by the policy in force.

    Raises:
        NotNow: the dataset is paused, or the requester's account is closed.
    """
    require_open(hub, dataset, person)
    policy, number = versions.current(hub, session, dataset)
    return JobRequest(policy, number, subject_of(session, dataset, person), kind, job.purpose, _environment(job))


def facts_of(job: Job, planned: Planned) -> dict[str, Any]:
    """Return the facts of a job that are recorded with a decision on it."""
    return {"job": job.id, "kind": job.kind, "cost": planned.own}


def _cost(planned: Planned) -> Loss | None:
    return planned.own if planned.own.amount else None


def _environment(job: Job) -> Environment:
    return Environment(now(), job.environment.get("country", ""), job.environment.get("network", ""))


def _agreed(session: Session, job: Job) -> int:
    """Return how many reviewers have agreed to this job."""
    granted = sa.select(Request.needs).where(
        Request.job_id == job.id, Request.kind == "release", Request.state == "granted"
    )
    return session.scalar(granted.order_by(Request.needs.desc()).limit(1)) or 0
