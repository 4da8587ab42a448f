"""Durable job queue in the database.

    waiting ─► queued ─► running ─► charged ─► done
                 ▲          │          │
                 └──────────┴──────────┘  a worker died, and nothing was charged
                                       └─► interrupted: charged, no result; the charge stands, it never runs again
    also refused (policy, limit or budget), failed, cancelled; an anonymised release is `checking` before it is done

A job is claimed by a conditional UPDATE, so two workers never have the same one. `charged` is committed before the
ledger is charged: a job found there after a crash is looked up in the ledger by the digest of its request.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import Database, now
from cloister.hub.core.models import Job, Person
from cloister.hub.core.settings import Settings
from cloister.hub.jobs import limits
from cloister.privacy.errors import NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = [
    "ACTIVE",
    "CHECKING",
    "ENDED",
    "LEASE_S",
    "MOST_ATTEMPTS",
    "claim",
    "finish",
    "heartbeat",
    "largest_result",
    "mine",
    "recover",
    "require_space",
]

ACTIVE = ("running", "charged")
CHECKING = "checking"  # it has run, and people look at its output: see jobs/output_check.py
ENDED = ("done", "refused", "failed", "cancelled", "interrupted")
LEASE_S = 30.0  # a worker that has been silent for this long is assumed dead
MOST_ATTEMPTS = 3

_PENDING = ("waiting", "queued", *ACTIVE, CHECKING)

_STANDS = "The worker stopped after the charge. The charge stands, and this job does not run again; start a new one."
_GIVEN_UP = "The worker stopped several times while it ran this job, before anything was charged. Ask the operator."


def largest_result(settings: Settings) -> int:
    """Return the most bytes that one result may have."""
    return min(settings.result_mb, settings.results_mb) * 10**6


def require_space(session: Session, settings: Settings, person_id: int, largest: int) -> None:
    """Refuse a job whose result might not find space: whatever is charged can be kept.

    Jobs under way count with the most that their results may have. The caller writes it as `Job.size` of the new job.

    Args:
        session: a transaction of `database.writing()`.
        settings: the hub's settings.
        person_id: the user.
        largest: the most bytes that the result may have.

    Raises:
        NotNow: it might not fit beside the results that are kept, and those under way.
    """
    if session.get_bind().dialect.name == "postgresql":  # SQLite has one writer anyway
        session.execute(sa.select(Person.id).where(Person.id == person_id).with_for_update(key_share=True))
    sizes = sa.select(sa.func.sum(sa.func.coalesce(Job.size, 0)), sa.func.count() - sa.func.count(Job.size))
    sizes = sizes.where(Job.person_id == person_id)
    kept = session.execute(sizes.where(Job.state == "done")).one()[0] or 0
    known, unknown = session.execute(sizes.where(Job.state.in_(_PENDING))).one()
    pending = (known or 0) + unknown * largest_result(settings)  # unknown: submitted to an older version
    if kept + pending + max(1, largest) <= settings.results_mb * 10**6:
        return
    wait = "Wait until your jobs under way are done, or remove" if pending else "Remove"
    raise NotNow(
        f"the result might not find space: {settings.results_mb:,} MB of results are kept for one person, yours take "
        f"{_mb(kept)}, jobs under way may add {_mb(pending)}, and this one {_mb(largest)}. {wait} some results on "
        "their pages."
    )


def _mb(size: int) -> str:
    return f"{size / 10**6:,.3g} MB"


def claim(database: Database, worker: str, most_each: int | None = None) -> Job | None:
    """Claim the next job: of the user with the fewest running, then of the one served longest ago; oldest first.

    Args:
        database: the hub's database.
        worker: the unique name of the claiming worker.
        most_each: the number of one user's jobs that may run at once; None: any number.
    """
    with database.reading() as session:  # an idle worker must not block writers
        if session.scalar(sa.select(Job.id).where(Job.state == "queued").limit(1)) is None:
            return None
    taken: dict[str, Any] = {"state": "running", "worker": worker, "attempts": Job.attempts + 1, "stage": ""}
    with database.writing() as session:
        taken |= {"heartbeat": now(), "started": now(), "progress": 0.0}
        for _ in range(5):  # in PostgreSQL another worker may have been faster
            number = session.scalar(_next(most_each))
            if number is None:
                return None
            if _update(session, sa.update(Job).where(Job.id == number, Job.state == "queued"), taken):
                return session.get(Job, number)
    return None


def _next(most_each: int | None) -> sa.Select[int]:
    queued = (
        sa.select(Job.person_id.label("person"), sa.func.min(Job.id).label("job"))
        .where(Job.state == "queued")
        .group_by(Job.person_id)
        .subquery()
    )
    running = (
        sa.select(sa.func.count())
        .select_from(Job)
        .where(Job.person_id == queued.c.person, Job.state.in_(ACTIVE))
        .correlate(queued)
        .scalar_subquery()
    )
    served = (
        sa.select(Job.started)
        .where(Job.person_id == queued.c.person, Job.started.is_not(None))
        .order_by(Job.started.desc())
        .limit(1)
        .correlate(queued)
        .scalar_subquery()
    )
    wanted = sa.select(queued.c.job)
    if most_each is not None:
        wanted = wanted.where(running < most_each)
    return wanted.order_by(running, sa.func.coalesce(served, 0.0), queued.c.job).limit(1)


def heartbeat(database: Database, job_id: int, worker: str, progress: float | None = None, stage: str = "") -> bool:
    """Record that the job is still running, and its progress; return True if it is still this worker's."""
    changes: dict[str, Any] = {"heartbeat": now()}
    if progress is not None:
        changes |= {"progress": max(0.0, min(progress, 1.0)), "stage": stage[:200]}
    with database.writing() as session:
        return _update(session, mine(job_id, worker), changes)


def mine(job_id: int, worker: str) -> sa.Update:
    """Return an UPDATE of a job that this worker has."""
    return sa.update(Job).where(Job.id == job_id, Job.worker == worker, Job.state.in_(ACTIVE))


def finish(session: Session, job_id: int, worker: str, state: str, **changes: Any) -> bool:
    """End a job in the caller's transaction; return True if it was still this worker's."""
    ended: dict[str, Any] = {"state": state, "finished": now(), "worker": None, "stage": "", **changes}
    if state == "done":
        ended["progress"] = 1.0
    return _update(session, mine(job_id, worker), ended)


def recover(hub: "Hub", worker: str | None = None) -> int:
    """Settle the jobs of dead workers; return how many there were.

    Args:
        hub: the hub.
        worker: the dead worker; None: every worker whose lease has run out.
    """
    lost = sa.select(Job.id).where(Job.state.in_(ACTIVE))
    if worker is not None:
        lost = lost.where(Job.worker == worker)
    else:
        lost = lost.where(sa.func.coalesce(Job.heartbeat, 0.0) < now() - LEASE_S)
    with hub.database.reading() as session:
        numbers = list(session.scalars(lost))
    return sum(_settle(hub, number, worker) for number in numbers)


def _settle(hub: "Hub", number: int, worker: str | None) -> bool:
    """Queue a job again if nothing was charged for it; else end it."""
    with hub.database.writing() as session:
        job = session.get(Job, number, with_for_update={"of": Job, "key_share": True})
        expired = job is not None and (job.heartbeat or 0.0) < now() - LEASE_S
        if job is None or job.state not in ACTIVE or (job.worker != worker if worker else not expired):
            return False  # another worker was faster, or the worker was only slow
        was = job.state
        if was == "charged" and hub.ledger.charged(job.charge):
            job.state, job.problem, job.finished = "interrupted", _STANDS, now()
        else:
            limits.give_back(session, job.id)
            job.charge = ""
            if job.cancel:
                job.state, job.finished = "cancelled", now()
            elif job.attempts >= MOST_ATTEMPTS:
                job.state, job.problem, job.finished = "failed", _GIVEN_UP, now()
            else:
                job.state, job.started = "queued", None
        job.worker, job.stage = None, ""
        hub.audit.write(session, None, "job.recovered", f"job/{number}", was=was, now=job.state)
    return True


def _update(session: Session, update: sa.Update, changes: Mapping[str, Any]) -> bool:
    done: Any = session.execute(update.values(**changes), execution_options={"synchronize_session": False})
    return bool(done.rowcount == 1)
