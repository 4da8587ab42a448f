"""Rows that a job read, for an attack on its result: the same version of the tables, through the same view.

A job's plan holds a keyed digest of the version and of the view that it was made on. An attack takes members from the
newest tables, so it runs only if those, seen as the requester saw them, have that digest: else others would be called
members than those that the job read.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.data.schema import Schema
from cloister.dataset import Dataset
from cloister.hub.approvals.visibility import granted_roles
from cloister.hub.core.models import Job, Request, Version
from cloister.hub.core.signed_state import require_unpaused
from cloister.hub.jobs.authorise import BASIS, JobRequest, StoredRequest, authorise, basis_of
from cloister.hub.jobs.dataset_pool import ClosedBook, DatasetPool, PersonReleases, dataset_for_person
from cloister.hub.jobs.external_tables.submission import HANDED
from cloister.hub.jobs.job_types import kind_of
from cloister.hub.policy import versions
from cloister.hub.policy.conditions import Environment, Grant
from cloister.hub.policy.decide import Subject
from cloister.hub.policy.views import TableView
from cloister.privacy.errors import CloisterError, NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["opened", "replaced", "view_of"]

View = Mapping[str, TableView] | None


def replaced(title: str) -> NotNow:
    """Return the error for a result whose rows are no longer those of the newest tables."""
    return NotNow(
        f"the tables, or what the policy shows of them, have changed since {title} was made, so the attack would take "
        "other rows for those that it was made from. Have it made again, then attack the new one."
    )


@contextmanager
def opened(hub: "Hub", pool: DatasetPool, job: Job, version: Version, view: View) -> Iterator[Dataset]:
    """Open the rows as a job saw them. The dataset can be charged by nobody."""
    dataset = job.dataset
    require_unpaused(hub, dataset)  # the pool may have it open still
    kept = pool.get(dataset, version, dataset.owner)
    with kept.lock, closing(kept.data.tables.again()) as tables:
        received = PersonReleases(hub, dataset.id, dataset.owner_id)
        # With the dataset's own rules in place of an account of the owner: none is opened for an attack.
        yield dataset_for_person(kept, kept.rules, view, ClosedBook(hub.ledger), received, "attack", tables)


def view_of(hub: "Hub", session: Session, job: Job, schema: Schema, version: Version, title: str) -> View:
    """Return the view that a job read its rows through.

    Raises:
        NotNow: it cannot be told any more, or other tables are the newest by now.
    """
    if job.parameters.get(HANDED):  # made by the owner, from all rows
        if version.created > job.created:
            raise replaced(title)
        return None
    request = StoredRequest.of(job)
    for wanted in _requests(hub, session, job):
        try:
            tables, verdict = authorise(wanted, schema, job.parameters)
        except CloisterError:  # not by this policy, or not with these roles
            continue
        if job.plan.get(BASIS) == basis_of(hub, version, tables, verdict, request):
            return verdict.view
    raise replaced(title)


def _requests(hub: "Hub", session: Session, job: Job) -> Iterator[JobRequest]:
    """Yield the requests that may have been decided on: by the policy of then or of now, with the roles of each."""
    dataset, person = job.dataset, job.person
    then = sa.select(Request.role, Request.purpose).where(
        Request.kind == "access",
        Request.person_id == person.id,
        Request.dataset_id == dataset.id,
        Request.state.in_(("granted", "revoked", "expired")),
        Request.created < job.created,
    )
    once = {Grant(role, purpose) for role, purpose in session.execute(then)}
    here = Environment(job.created, job.environment.get("country", ""), job.environment.get("network", ""))
    policy, page = versions.version(hub, session, dataset, job.policy_number)
    policies = [(policy, page.number)]
    current = versions.current(hub, session, dataset)
    policies += [] if current[1] == job.policy_number else [current]
    for policy, number in policies:
        for grants in (granted_roles(session, person, dataset), once):
            subject = Subject.of(person, grants)
            yield JobRequest(policy, number, subject, kind_of(job.kind), job.purpose, here)
