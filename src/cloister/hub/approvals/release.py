"""Asking for a release: a job whose cost is above the policy's threshold waits until enough people agree."""

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
    """Ask for a job that the gateway has stored as `waiting`, in the same transaction.

    Raises:
        NotNow: fewer people than the policy asks for may decide about it.
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
    """What the plan says that the job costs the dataset."""
    planned = job.plan.get("loss")
    return None if planned is None else Loss.from_json(planned)


def needs_now(hub: "Hub", session: Session, job: Job) -> int:
    """How many people the newest policy wants to agree to this job: by what it costs whoever asks.

    That is never less than it costs the dataset, and it is what the policy is asked about while the job runs.
    """
    told = job.plan.get("own") or job.plan.get("loss")
    own = None if told is None else Loss.from_json(told)
    return needed_for(current_policy(hub, session, job.dataset), own) if own is not None and own.amount else 0


def let_go(session: Session, job: Job) -> None:
    """The release was granted: the job may run.

    Raises:
        NotNow: it does not wait any more.
    """
    if not _move(session, job, "waiting", "queued"):
        raise NotNow(f"job {job.id} does not wait for a decision any more: it is {job.state}.")


def turn_away(session: Session, job: Job, why: str, *, state: str = "refused", was: str = "waiting") -> bool:
    """The release was denied, or nobody decided: the job ends, and nothing was spent. False if it does not wait."""
    if not _move(session, job, was, state):
        return False
    job.problem, job.finished = why, now()
    return True


def _move(session: Session, job: Job, old: str, new: str) -> bool:
    # Compared and changed in one statement: a worker or a cancel may be faster.
    moved = sa.update(Job).where(Job.id == job.id, Job.state == old).values(state=new).returning(Job.id)
    done = session.execute(moved, execution_options={"synchronize_session": False}).first() is not None
    session.refresh(job, ["state"])
    return done


def close_for(hub: "Hub", session: Session, job: Job) -> None:
    """The job was cancelled by whoever asked: its open request is closed with it."""
    wanted = sa.select(Request).where(Request.job_id == job.id, Request.state == "open").with_for_update(of=Request)
    for request in session.scalars(wanted):
        request.state = "withdrawn"
        hub.audit.write(session, job.person_id, "request.withdrawn", f"request/{request.id}", job=job.id)
