"""What a worker does between jobs: new versions, expired requests, mail, old results, jobs of dead workers.

Every worker does them; each chore is safe to do twice and by several at once.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sqlalchemy as sa

from cloister.hub.books import activity
from cloister.hub.database import now
from cloister.hub.models import Dataset, Job, Version
from cloister.hub.policy import published
from cloister.hub.requests import deciding, mail
from cloister.hub.store import ingest, upload
from cloister.hub.work import queue
from cloister.hub.work.shelf import Shelf, deleted
from cloister.privacy.errors import CloisterError

if TYPE_CHECKING:
    from cloister.hub.hub import Hub

__all__ = ["Chores", "prepare_versions", "remove_old_results"]

_LOG = logging.getLogger("cloister.hub.work")
_DAY = 86_400


class Chores:
    """Does each chore when it is due.

    Args:
        hub: the hub.
        shelf: the worker's open tables.
    """

    def __init__(self, hub: "Hub", shelf: Shelf) -> None:
        self._hub = hub
        self._due: dict[str, float] = {}
        self._chores: dict[str, tuple[float, Callable[[], object]]] = {
            "recover": (5.0, lambda: queue.recover(hub)),
            "close": (1.0, lambda: _close_gone(hub, shelf)),
            "mail": (5.0, lambda: mail.deliver(hub)),
            "expire": (60.0, lambda: _expire(hub)),
            "retention": (600.0, lambda: remove_old_results(hub)),
            "uploads": (3600.0, lambda: upload.tidy(hub)),
            "audit": (60.0, lambda: hub.audit.keep()),
            "watch": (300.0, lambda: _watch(hub)),
        }

    def do(self) -> None:
        """Whatever is due. What fails is tried again the next time; it never stops the worker."""
        for name, (every_s, chore) in self._chores.items():
            if time.monotonic() < self._due.get(name, 0.0):
                continue
            self._due[name] = time.monotonic() + every_s
            try:
                chore()
            except CloisterError as error:
                _LOG.warning("a chore failed", extra={"facts": {"chore": name, "error": type(error).__name__}})


def prepare_versions(hub: "Hub", progress: Callable[[float, str], None] | None = None) -> int:
    """Make versions ready that wait for it; how many were worked on."""
    waiting = sa.select(Version.id).where(Version.state == "preparing").order_by(Version.created, Version.id)
    with hub.database.reading() as session:
        numbers = list(session.scalars(waiting))
    done = 0
    for number in numbers:
        with _alone(hub, number) as ours:
            if ours:
                ingest.prepare(hub, number, progress)
                done += 1
    return done


@contextmanager
def _alone(hub: "Hub", number: int) -> Iterator[bool]:
    """Whether no other worker prepares the same version: sealing ten gigabytes twice would only cost time."""
    path = hub.folder / "sealed" / f".preparing-{number}"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
        path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _expire(hub: "Hub") -> int:
    with hub.database.writing() as session:
        return deciding.expire(hub, session)


def _watch(hub: "Hub") -> int:
    with hub.database.writing() as session:
        return activity.watch(hub, session)


def _close_gone(hub: "Hub", shelf: Shelf) -> None:
    open_now = shelf.datasets()
    if open_now:
        with hub.database.reading() as session:
            gone = deleted(session, open_now)
        shelf.forget(gone)


def remove_old_results(hub: "Hub") -> int:
    """Take away results that a policy lets be kept for some days only; how many."""
    removed = 0
    with hub.database.reading() as session:
        datasets = list(session.scalars(sa.select(Dataset)))
    for dataset in datasets:
        with hub.database.writing() as session:
            try:
                policy, _ = published.current(hub, session, dataset)
            except CloisterError:
                continue
            if policy.retention_days is None:
                continue
            old = sa.select(Job).where(
                Job.dataset_id == dataset.id,
                Job.result.is_not(None),
                Job.finished < now() - policy.retention_days * _DAY,
            )
            for job in session.scalars(old.limit(500)):
                job.result, job.stage = None, f"its result was kept for {policy.retention_days} days"
                hub.audit.write(session, None, "result.removed", f"job/{job.id}", dataset=dataset.name)
                removed += 1
    return removed
