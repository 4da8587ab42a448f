"""Periodic tasks of a worker: new versions, attacks, expired requests, mail, old results, jobs of dead workers.

Every worker runs them; each task may run twice and in several workers at once.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from cloister.hub.accounting import activity
from cloister.hub.approvals import decision, mail
from cloister.hub.approvals.requests import drop_ended
from cloister.hub.approvals.visibility import hand_on
from cloister.hub.core import heartbeats
from cloister.hub.core.database import now
from cloister.hub.core.logs import error_facts
from cloister.hub.core.models import Dataset, Job, Output, Version
from cloister.hub.datasets import ingest, upload
from cloister.hub.datasets.datasets import finish_erasing
from cloister.hub.jobs import queue
from cloister.hub.jobs.attacks import running
from cloister.hub.jobs.dataset_pool import DatasetPool, deleted
from cloister.hub.policy import versions
from cloister.privacy.errors import CloisterError

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = [
    "MOST_TRIES",
    "Chores",
    "forgive_try",
    "give_up_version",
    "prepare_versions",
    "remove_old_results",
    "run_attacks",
]

_LOG = logging.getLogger("cloister.hub.jobs")
_DAY = 86_400
MOST_TRIES = 3
_DIED = (
    "the worker ended several times while it prepared these tables, perhaps for lack of memory. Send shorter values, "
    "fewer rows or smaller row groups, or ask the operator what happened, then try again."
)


class Chores:
    """Runs each task when it is due.

    Args:
        hub: the hub.
        pool: the worker's pool of open datasets.
    """

    def __init__(self, hub: "Hub", pool: DatasetPool) -> None:
        self._hub = hub
        self._due: dict[str, float] = {}
        self._chores: dict[str, tuple[float, Callable[[], object]]] = {
            "recover": (5.0, lambda: queue.recover(hub)),
            "close": (1.0, lambda: _close_gone(hub, pool)),
            "mail": (5.0, lambda: mail.deliver(hub)),
            "expire": (60.0, lambda: _expire(hub)),
            "retention": (600.0, lambda: remove_old_results(hub)),
            "uploads": (3600.0, lambda: upload.tidy(hub)),
            "erase": (10.0, lambda: finish_erasing(hub)),
            "audit": (60.0, lambda: hub.audit.keep()),
            "watch": (300.0, lambda: activity.watch(hub)),
        }

    def do(self) -> None:
        """Run the tasks that are due. A failed task is tried again the next time; it never stops the worker."""
        for name, (every_s, chore) in self._chores.items():
            if time.monotonic() < self._due.get(name, 0.0):
                continue
            self._due[name] = time.monotonic() + every_s
            try:
                chore()
            except (CloisterError, sa.exc.SQLAlchemyError) as error:
                _LOG.warning("a chore failed", extra={"facts": {"chore": name, "error": type(error).__name__}})
            except Exception as error:  # one that nobody foresaw must not stop jobs and the other tasks either
                _LOG.error("a chore failed", extra={"facts": {"chore": name, **error_facts(error)}})


def prepare_versions(
    hub: "Hub",
    progress: Callable[[float, str], None] | None = None,
    watched: Callable[[int], AbstractContextManager[object]] = nullcontext,
) -> int:
    """Prepare the next waiting version; return how many were prepared: at most one, so that jobs get their turn.

    Args:
        hub: the hub.
        progress: called with the share done and a short text.
        watched: entered with the version's number while it is prepared.
    """
    waiting = sa.select(Version.id).where(Version.state == "preparing").order_by(Version.created, Version.id)
    with hub.database.reading() as session:
        numbers = list(session.scalars(waiting))
    if not numbers:
        return 0
    with _a_place(hub) as free:
        for number in numbers if free else ():
            with _alone(hub, number) as tries:
                if tries is None:
                    continue
                if tries > MOST_TRIES:
                    ingest.give_up(hub, number, _DIED)
                else:
                    with watched(number):
                        ingest.prepare(hub, number, progress)
            return 1
    return 0


def run_attacks(
    hub: "Hub",
    pool: DatasetPool,
    waited: float = 0.0,
    watched: Callable[[int], AbstractContextManager[object]] = nullcontext,
) -> bool:
    """Run the next attack of an owner; return True if there was one. See `attacks/running.py`."""
    with _a_place(hub) as free:
        return free and running.run_next(hub, pool, waited=waited, watched=watched)


def give_up_version(hub: "Hub", number: int, problem: str) -> None:
    """Mark a version in preparation as failed, with a message for its owner."""
    ingest.give_up(hub, number, problem)
    _tries_file(hub, number).unlink(missing_ok=True)


def forgive_try(hub: "Hub", number: int) -> None:
    """Do not count an attempt that was interrupted through no fault of the version."""
    path = _tries_file(hub, number)
    if path.exists():
        path.write_bytes(b"." * max(0, path.stat().st_size - 1))


def _tries_file(hub: "Hub", number: int) -> Path:
    return hub.folder / "sealed" / f".preparing-{number}"


@contextmanager
def _alone(hub: "Hub", number: int) -> Iterator[int | None]:
    """Return the number of this attempt, unless another worker prepares the same version: sealing takes long.

    An attempt is counted on the disk before it begins: the system may kill a process that takes all its memory.
    """
    path = _tries_file(hub, number)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        os.write(file, b".")
        os.fsync(file)
        yield os.fstat(file).st_size
        path.unlink(missing_ok=True)
    finally:
        os.close(file)


@contextmanager
def _a_place(hub: "Hub") -> Iterator[bool]:
    """Return True if this worker may prepare a version or attack now: of several workers, one is left for jobs."""
    free, file = False, -1
    for number in range(max(1, len(heartbeats.living(hub.folder)) - 1)):
        file = os.open(hub.folder / "sealed" / f".place-{number}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
            break
        except OSError:
            os.close(file)
    try:
        yield free
    finally:
        if free:
            os.close(file)


def _expire(hub: "Hub") -> int:
    with hub.database.writing() as session:
        ended = decision.expire(hub, session)
    with hub.database.writing() as session:
        return ended + drop_ended(hub, session)


def _close_gone(hub: "Hub", pool: DatasetPool) -> None:
    open_now = pool.datasets()
    if open_now:
        with hub.database.reading() as session:
            gone = deleted(session, open_now)
        pool.forget(gone)


def remove_old_results(hub: "Hub") -> int:
    """Remove results whose retention under the policy has ended; return how many."""
    removed = 0
    with hub.database.reading() as session:
        datasets = list(session.scalars(sa.select(Dataset)))
    for dataset in datasets:
        with hub.database.writing() as session:
            try:
                policy, _ = versions.current(hub, session, dataset)
            except CloisterError:
                continue
            if policy.retention_days is None:
                continue
            old = sa.select(Job).where(
                Job.dataset_id == dataset.id,
                Job.result.is_not(None),
                Job.finished < now() - policy.retention_days * _DAY,
            )
            before = now() - policy.retention_days * _DAY
            copies = sa.update(Output).where(Output.dataset_id == dataset.id, Output.released < before)
            session.execute(copies.values(sealed=None))
            for job in list(session.scalars(old.order_by(Job.id).limit(500))):
                session.flush()
                hand_on(session, job.id)
                job.result, job.size, job.stage = None, None, f"its result was kept for {policy.retention_days} days"
                hub.audit.write(session, None, "result.removed", f"job/{job.id}", dataset=dataset.name)
                removed += 1
    return removed
