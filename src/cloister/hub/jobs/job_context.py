"""Decisions on a job while it runs.

The policy decides before the tables are opened, and again in the transaction before the ledger is charged.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.approvals.visibility import subject_of
from cloister.hub.core.database import now
from cloister.hub.core.models import Dataset, Job, Person, Request, Version
from cloister.hub.datasets.datasets import newest
from cloister.hub.jobs.authorise import JobRequest, authorise, basis_of, require_open
from cloister.hub.jobs.gateway import BASIS, twins
from cloister.hub.jobs.job_types import JobType, Planned, kind_of
from cloister.hub.policy import versions
from cloister.hub.policy.decide import Environment, Verdict
from cloister.hub.policy.policy import Policy
from cloister.privacy.errors import NotNow
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["JobContext", "open_job_context"]


@dataclass(frozen=True, slots=True)
class JobContext:
    """Job with all inputs of its decision.

    Attributes:
        tables: the tables it reads.
        verdict: the policy's verdict when it was opened; the job sees its view.
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

    def again(self, session: Session, job: Job) -> Policy:
        """Decide again, right before the charge; return the policy whose limits apply.

        Raises:
            Denied: the policy now refuses.
            NotNow: the user's view has changed, or more approvals are required than given.
        """
        request = _request(self.hub, session, job, job.dataset, job.person, self.kind)
        verdict = request.decide(self.tables, _cost(self.planned))
        verdict.require()
        if verdict.view != self.verdict.view:
            raise NotNow("the policy was changed while this job was on its way. Nothing was spent. Plan it again.")
        if verdict.needs and verdict.needs > (agreed := _agreed(session, job)):
            raise NotNow(
                f"the policy asks {verdict.needs} people to agree to this by now, and {agreed} have. "
                "Nothing was spent. Hand it in again."
            )
        return request.policy


def open_job_context(hub: "Hub", job: Job) -> JobContext:
    """Load a claimed job, and decide on it by the current policy.

    Raises:
        Denied: the policy now refuses.
        NotNow: the dataset is paused, or the job would read other data than it was planned on.
    """
    kind, planned = kind_of(job.kind), Planned.from_json(job.plan)
    dataset, person = job.dataset, job.person  # as they were when the job was claimed, a moment ago
    require_open(dataset, person)
    with hub.database.reading() as session:
        version = newest(session, dataset)
        schema = twins(hub).get(dataset, version, person).data.schema  # public: no table is opened before the verdict
        request = _request(hub, session, job, dataset, person, kind)
    tables, verdict = authorise(request, schema, job.parameters, _cost(planned))
    if job.plan.get(BASIS) not in (None, basis_of(version, tables, verdict)):
        raise NotNow(
            "the tables, or what the policy shows of them, have changed since this was planned. Nothing was spent. "
            "Plan it again."
        )
    return JobContext(hub, job, kind, dataset, person, version, planned, tables, verdict)


def _request(hub: "Hub", session: Session, job: Job, dataset: Dataset, person: Person, kind: JobType) -> JobRequest:
    require_open(dataset, person)
    policy, number = versions.current(hub, session, dataset)
    return JobRequest(policy, number, subject_of(session, dataset, person), kind, job.purpose, _environment(job))


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
