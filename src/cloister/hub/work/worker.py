"""The processes that do the work: a supervisor, and a child that takes one job after another.

    supervisor ── starts the child, reads what it is at from shared memory, kills it if a job takes too long or too much
        │         memory, settles the job it had, starts another
        └─ child ── chores, new versions, jobs; says every few seconds that it is alive

A child may be killed at any moment. What it had is settled at once by its supervisor; if that is gone too, by any other
worker once the lease has run out.
"""

import ctypes
import logging
import multiprocessing
import os
import resource
import signal
import socket
import threading
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cloister.hub.database import now
from cloister.hub.hub import Hub
from cloister.hub.models import Job
from cloister.hub.settings import Settings
from cloister.hub.work import limits, queue
from cloister.hub.work.chores import Chores, prepare_versions
from cloister.hub.work.job import run_job
from cloister.hub.work.place import place_of
from cloister.hub.work.shelf import Shelf
from cloister.privacy.errors import BadName, StoreFailed

__all__ = ["memory_of", "run", "run_worker", "work"]

_LOG = logging.getLogger("cloister.hub.work")
_BUSY_S, _IDLE_S = 0.02, 0.25
_WATCH_S = 0.2
_OWN_MEMORY = 512 * 2**20  # what Python and its libraries take besides the engine
_VERSIONS_EVERY_S = 0.5


def run_worker(settings: Settings, stop: threading.Event | None = None) -> None:
    """Work until told to stop (SIGTERM or SIGINT, or the event): the supervisor.

    Args:
        settings: of the hub; `job_seconds` and `job_memory` limit each job.
        stop: for tests and for whoever runs several supervisors in one process.
    """
    with Hub.open(settings) as hub:
        run(hub, stop)


def run(hub: Hub, stop: threading.Event | None = None) -> None:
    """The same for a hub that is open."""
    settings, stop = hub.settings, stop or _until_signalled()
    context = multiprocessing.get_context("spawn")  # a forked child would share locks and connections
    most = memory_of(settings.job_memory) + _OWN_MEMORY
    while not stop.is_set():
        watch = context.Array(ctypes.c_double, 2, lock=False)  # the job, and since when
        name = f"{socket.gethostname()[:60]}:{os.getpid()}:{os.urandom(4).hex()}"
        child = context.Process(target=_child, args=(settings, name, watch, os.getpid()), daemon=True)
        child.start()
        begun = time.monotonic()
        why = _watched(child, watch, settings, most, stop)
        _settle(hub, name, int(watch[0]), why)
        if not stop.is_set():
            _LOG.warning("a worker's child ended", extra={"facts": {"worker": name, "why": why or "it died"}})
            stop.wait(max(0.0, 1.0 - (time.monotonic() - begun)))  # one that cannot start must not spin


def _watched(child: BaseProcess, watch: Any, settings: Settings, most: int, stop: threading.Event) -> str:
    """Wait until the child ends, or end it; why it was ended, if that was because of its job."""
    while child.is_alive():
        if stop.is_set():
            _terminate(child)
            return ""
        job, since = watch[0], watch[1]
        if job and time.monotonic() - since > settings.job_seconds:
            _kill(child)
            return f"it took longer than {settings.job_seconds:,} seconds"
        if job and _resident(child.pid) > most:
            _kill(child)
            return f"it took more memory than the {settings.job_memory} that a job may have"
        child.join(_WATCH_S)
    return ""


def _settle(hub: Hub, worker: str, job_id: int, why: str) -> None:
    """What becomes of the job that a child had."""
    try:
        if why and job_id:
            _give_up(hub, worker, job_id, why)
        queue.recover(hub, worker)
    except StoreFailed:  # another worker settles it when the lease has run out
        _LOG.warning("the ledger cannot be used", extra={"facts": {"worker": worker}})


def _give_up(hub: Hub, worker: str, job_id: int, why: str) -> None:
    """A job that was ended for what it did would do so again: it is not queued again."""
    with hub.database.writing() as session:
        job = session.get(Job, job_id, with_for_update={"of": Job})
        if job is None or job.worker != worker or job.state not in queue.ACTIVE:
            return
        stands = job.state == "charged" and hub.ledger.charged(job.charge)
        if not stands:
            limits.give_back(session, job.id)
        said = f"The job was stopped: {why}. {'The charge stands.' if stands else 'Nothing was spent.'}"
        job.state, job.problem, job.worker, job.finished = "failed", said, None, now()
        hub.audit.write(session, None, "job.stopped", f"job/{job_id}", why=why, charged=stands)


# The child


def _child(settings: Settings, name: str, watch: Any, parent: int) -> None:
    from cloister.hub.operate import logs

    logs.configure(settings.log_level)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold rows
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    import duckdb  # noqa: F401  now, so that the first job does not wait for them
    import pyarrow.dataset
    import pyarrow.parquet.encryption  # noqa: F401

    with Hub(settings) as hub:
        work(hub, name, stop, watch, parent)


def work(hub: Hub, name: str, stop: threading.Event, watch: Any = None, parent: int | None = None) -> None:
    """Take one job after another until told to stop.

    Args:
        hub: the hub.
        name: this worker's; nobody else's.
        stop: ends it after the job at hand.
        watch: shared with the supervisor: the job, and since when.
        parent: the supervisor; without it the child ends too.
    """
    shelf = Shelf(hub, lambda dataset, version, person: place_of(dataset.trust).open(hub, dataset, version, person))
    chores, wait_s, versions_due = Chores(hub, shelf), _BUSY_S, 0.0
    heart = _Heart(hub, name)
    try:
        while not stop.is_set() and (parent is None or os.getppid() == parent):
            chores.do()
            if time.monotonic() >= versions_due:
                prepare_versions(hub)
                versions_due = time.monotonic() + _VERSIONS_EVERY_S
            job = queue.claim(hub.database, name)
            if job is None:
                stop.wait(wait_s)
                wait_s = min(_IDLE_S, wait_s * 1.2)
                continue
            wait_s = _BUSY_S
            if watch is not None:
                watch[1], watch[0] = time.monotonic(), job.id
            heart.job = job.id
            run_job(hub, job, name, shelf)
            heart.job = 0
            if watch is not None:
                watch[0] = 0
    finally:
        heart.end()
        shelf.close()


class _Heart(threading.Thread):
    """Says every few seconds that a job is still being worked on."""

    def __init__(self, hub: Hub, worker: str) -> None:
        super().__init__(name="heart", daemon=True)
        self._hub, self._worker = hub, worker
        self._end = threading.Event()
        self.job = 0
        self.start()

    def run(self) -> None:
        """Beat until the worker ends."""
        while not self._end.wait(queue.LEASE_S / 6):
            if job := self.job:
                try:
                    queue.heartbeat(self._hub.database, job, self._worker)
                except sa.exc.SQLAlchemyError:
                    _LOG.warning("a heartbeat was lost", extra={"facts": {"job": job}})

    def end(self) -> None:
        """Stop."""
        self._end.set()
        self.join()


# The machine


def memory_of(text: str) -> int:
    """A size such as 2GB or 512MB, in bytes."""
    number, units = text.strip().upper(), {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    units |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
    for unit in sorted(units, key=len, reverse=True):
        if number.endswith(unit) and number.removesuffix(unit).strip().replace(".", "", 1).isdigit():
            return int(float(number.removesuffix(unit)) * units[unit])
    raise BadName(f"CLOISTER_JOB_MEMORY must be a size such as 2GB, got {text!r:.40}.")


def _resident(process: int | None) -> int:
    """How much memory a process has, in bytes; 0 if it is gone."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
        return int(pages[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def _until_signalled() -> threading.Event:
    stop = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: stop.set())
    return stop


def _terminate(child: BaseProcess) -> None:
    """Let it finish the job at hand, for a while."""
    child.terminate()
    child.join(10)
    if child.is_alive():
        _kill(child)


def _kill(child: BaseProcess) -> None:
    child.kill()
    child.join()
