"""Requests for a release: a job above the policy's cost threshold waits until enough reviewers agree."""

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.approvals.access import OPEN_DAYS
from cloister.hub.approvals.reviewers import current_policy, reviewers
from cloister.hub.core.database import now
from cloister.hub.core.models import Job, Request
from cloister.hub.core.notices import tell
from cloister.hub.policy.cost import needs as needed_for
from cloister.privacy.errors import NotNow
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["ask_release", "close_for", "let_go", "needs_now", "turn_away"]


def ask_release(hub: "Hub", session: Session, job: Job) -> Request:
    """Ask for approval of a job that the gateway has stored as `waiting`, in the same transaction.

    Raises:
        NotNow: fewer reviewers than the policy requires may decide on it.
    """
    needs = max(1, needs_now(hub, session, job))
    deciding = [one for one in reviewers(hub, session, job.dataset) if one.id != job.person_id]
    if len(deciding) < needs:
        raise NotNow(
            f"this release needs the agreement of {needs} besides you, and the policy names {len(deciding)} who may "
            "decide. Ask for less, or ask the owner to name reviewers."
        )
    request = Request(
        kind="release",
        dataset_id=job.dataset_id,
        person_id=job.person_id,
        job_id=job.id,
        purpose=job.purpose,
        needs=needs,
        ends=now() + OPEN_DAYS * 86400,
    )
    session.add(request)
    session.flush()
    cost = str(loss_of(job))
    hub.audit.write(
        session,
        job.person_id,
        "request.asked",
        f"request/{request.id}",
        dataset=job.dataset.name,
        job=job.id,
        cost=cost,
        needs=needs,
        purpose=job.purpose,
    )
    for one in deciding:
        said = f"{job.person.name} asks for a release from {job.dataset.name} that costs {cost}, for {job.purpose}."
        tell(hub, session, one.id, said, f"/requests/{request.id}")
    return request


def loss_of(job: Job) -> Loss | None:
    """Return the planned cost of the job to the dataset."""
    planned = job.plan.get("loss")
    return None if planned is None else Loss.from_json(planned)


def needs_now(hub: "Hub", session: Session, job: Job) -> int:
    """Return how many approvals the newest policy requires for this job, by its cost to the requester.

    That is never less than its cost to the dataset, and it is the cost on which the policy decides while the job runs.
    """
    told = job.plan.get("own") or job.plan.get("loss")
    own = None if told is None else Loss.from_json(told)
    return needed_for(current_policy(hub, session, job.dataset), own) if own is not None and own.amount else 0


def let_go(session: Session, job: Job) -> None:
    """Queue the job of a granted release.

    Raises:
        NotNow: it no longer waits.
    """
    if not _move(session, job, "waiting", "queued"):
        raise NotNow(f"job {job.id} does not wait for a decision any more: it is {job.state}.")


def turn_away(session: Session, job: Job, why: str, *, state: str = "refused", was: str = "waiting") -> bool:
    """End the job of a denied or expired release; nothing was spent. Return False if it does not wait."""
    if not _move(session, job, was, state):
        return False
    job.problem, job.finished = why, now()
    return True


def _move(session: Session, job: Job, old: str, new: str) -> bool:
    # Compared and changed in one statement: a worker or a cancellation may come first.
    moved = sa.update(Job).where(Job.id == job.id, Job.state == old).values(state=new).returning(Job.id)
    done = session.execute(moved, execution_options={"synchronize_session": False}).first() is not None
    session.refresh(job, ["state"])
    return done


def close_for(hub: "Hub", session: Session, job: Job) -> None:
    """Close the open request of a job that its requester cancelled."""
    wanted = sa.select(Request).where(Request.job_id == job.id, Request.state == "open").with_for_update(of=Request)
    for request in session.scalars(wanted):
        request.state = "withdrawn"
        hub.audit.write(session, job.person_id, "request.withdrawn", f"request/{request.id}", job=job.id)
