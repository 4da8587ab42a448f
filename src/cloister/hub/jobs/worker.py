"""Worker processes: a supervisor, and a child that runs one job after another.

    supervisor ── starts the child, reads its current task from shared memory, kills it if a job, a version or a chore
        │         takes too long or too much memory, settles what it had, starts another
        └─ child ── chores, new versions, jobs; a heartbeat every few seconds

A child may be killed at any moment. What it had is settled at once by its supervisor; if that is gone too, by any other
worker once the lease has run out.
"""

import ctypes
import logging
import multiprocessing
import os
import re
import resource
import shutil
import signal
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cloister.data.engines.duckdb import remove_orphaned_spill
from cloister.hub.core import heartbeats
from cloister.hub.core.child_process import memory_of, resident
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.logs import error_facts
from cloister.hub.core.models import Job
from cloister.hub.core.settings import Settings
from cloister.hub.datasets.bounded import OWN_MEMORY
from cloister.hub.jobs import limits, queue
from cloister.hub.jobs.attacks import running
from cloister.hub.jobs.dataset_pool import DatasetPool
from cloister.hub.jobs.maintenance import (
    Chores,
    forgive_try,
    give_up_version,
    prepare_versions,
    run_attacks,
)
from cloister.hub.jobs.runner import run_job
from cloister.hub.jobs.trust_model import trust_model_of

__all__ = ["remove_spilled_rows", "run", "run_worker", "work"]

_LOG = logging.getLogger("cloister.hub.jobs")
_BUSY_S, _IDLE_S = 0.02, 0.25
_WATCH_S = 0.2
_VERSIONS_EVERY_S = 0.5
_ATTACKS_EVERY_S = 0.5
_ATTACK_WAITS_S = 60.0  # while jobs keep the workers busy
_SLOWEST_S = 30.0
_RESTART_S = 1.0
_DAY_S = 86_400.0
_JOB, _VERSION, _CHORES, _ATTACK = 1, 2, 3, 4  # current task of a child; 0: none
_LESS = "Send shorter values, fewer rows or smaller row groups, or ask the operator to raise the limit, then try again."


def run_worker(settings: Settings, stop: threading.Event | None = None) -> None:
    """Run a supervisor until it is stopped by SIGTERM, SIGINT or the event.

    Args:
        settings: the hub's settings; `job_seconds` and `job_memory` limit each job.
        stop: for tests and for several supervisors in one process.
    """
    with Hub.open(settings) as hub:
        run(hub, stop)


def run(hub: Hub, stop: threading.Event | None = None) -> None:
    """Run a supervisor for an open hub."""
    settings, stop = hub.settings, stop or _until_signalled()
    context = multiprocessing.get_context("spawn")  # a forked child would share locks and connections
    most = memory_of(settings.job_memory) + OWN_MEMORY
    remove_spilled_rows()
    heartbeats.tidy(hub.folder)
    while not stop.is_set():
        watch = context.Array(ctypes.c_double, 3, lock=False)  # its task, the task's id, and its start
        name = f"{socket.gethostname()[:60]}:{os.getpid()}:{os.urandom(4).hex()}"
        child = context.Process(target=_child, args=(settings, name, watch, os.getpid()), daemon=True)
        child.start()
        begun = time.monotonic()
        why = _watched(child, watch, settings, most, stop)
        _settle(hub, name, int(watch[0]), int(watch[1]), why, stop.is_set())
        if not stop.is_set():
            _LOG.warning("a worker's child ended", extra={"facts": {"worker": name, "why": why or "it died"}})
            if not why:  # no job or version that exceeded a limit
                heartbeats.note_failure(hub.folder)
            stop.wait(max(0.0, _RESTART_S - (time.monotonic() - begun)))  # one that cannot start must not spin


def _watched(child: BaseProcess, watch: Any, settings: Settings, most: int, stop: threading.Event) -> str:
    """Wait until the child ends, or kill it; return the reason if its task caused it."""
    limits_s = {
        _JOB: settings.job_seconds,
        _VERSION: settings.prepare_seconds,
        _CHORES: settings.job_seconds,
        _ATTACK: settings.job_seconds,
    }
    while child.is_alive():
        if stop.is_set():
            _terminate(child)
            return ""
        doing, since = int(watch[0]), watch[2]
        if doing and time.monotonic() - since > limits_s[doing]:
            _kill(child)
            return f"it took longer than {limits_s[doing]:,} seconds"
        if doing and resident(child.pid) > most:
            _kill(child)
            return f"it took more memory than the {settings.job_memory} that a job may have"
        child.join(_WATCH_S)
    return ""


def _settle(hub: Hub, worker: str, doing: int, number: int, why: str, stopping: bool) -> None:
    """Settle the task of a child that ended.

    A job or version that exceeded a limit would do so again, so it has failed. A version whose child died is prepared
    again, a few times; one that was interrupted because the hub stops has lost no attempt.
    """
    try:
        if why and doing == _JOB:
            _give_up(hub, worker, number, why)
        elif why and doing == _VERSION:
            give_up_version(hub, number, f"the tables could not be prepared: {why}. {_LESS}")
        elif stopping and doing == _VERSION:
            forgive_try(hub, number)
        elif why and doing == _ATTACK:
            running.give_up(hub, number, why)
        elif stopping and doing == _ATTACK:
            running.forgive(hub, number)
        queue.recover(hub, worker)
    except Exception as error:  # another worker settles it when the lease has run out
        _LOG.warning("a job is not settled yet", extra={"facts": {"worker": worker, **error_facts(error)}})


def _give_up(hub: Hub, worker: str, job_id: int, why: str) -> None:
    """Fail a job that exceeded a limit: it would do so again, so it is not queued again."""
    with hub.database.writing() as session:
        job = session.get(Job, job_id, with_for_update={"of": Job, "key_share": True})
        if job is None or job.worker != worker or job.state not in queue.ACTIVE:
            return
        stands = job.state == "charged" and hub.ledger.charged(job.charge)
        if not stands:
            limits.give_back(session, job.id)
        message = f"The job was stopped: {why}. {'The charge stands.' if stands else 'Nothing was spent.'}"
        job.state, job.problem, job.worker, job.finished = "failed", message, None, now()
        hub.audit.write(session, None, "job.stopped", f"job/{job_id}", why=why, charged=stands)


# The child


def _child(settings: Settings, name: str, watch: Any, parent: int) -> None:
    from cloister.hub.core import logs

    logs.configure(settings.log_level)
    logs.catch_all()
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold rows
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    try:
        import duckdb  # noqa: F401  now, so that the first job does not wait for them
        import pyarrow.dataset
        import pyarrow.parquet.encryption  # noqa: F401

        with Hub(settings) as hub:
            work(hub, name, stop, watch, parent)
    except Exception:
        # Not left to multiprocessing, which prints the message: it could quote a statement or a row.
        _LOG.exception("a worker's child failed")
        raise SystemExit(1) from None


def work(hub: Hub, name: str, stop: threading.Event, watch: Any = None, parent: int | None = None) -> None:
    """Run one job after another until stopped. After any error it goes on, later each time.

    Args:
        hub: the hub.
        name: this worker's; unique.
        stop: ends it after the current job.
        watch: shared with the supervisor: the current task, its id, and its start.
        parent: the supervisor; when it ends, the child ends too.
    """
    pool = DatasetPool(
        hub, lambda dataset, version, person: trust_model_of(dataset.trust).open(hub, dataset, version, person)
    )
    chores, wait_s, versions_due, attacks_due, failures = Chores(hub, pool), _BUSY_S, 0.0, 0.0, 0
    idle = False  # no job waited when it last looked
    heart, watched = _Heart(hub, name), _Watch(watch)
    try:
        while not stop.is_set() and (parent is None or os.getppid() == parent):
            try:
                with watched.at(_CHORES):
                    chores.do()
                if time.monotonic() >= versions_due:
                    try:
                        prepare_versions(hub, watched=lambda number: watched.at(_VERSION, number))
                    except sa.exc.SQLAlchemyError:
                        raise
                    except Exception as error:  # jobs still get their turn
                        _note(hub, name, error)
                    versions_due = time.monotonic() + _VERSIONS_EVERY_S
                if time.monotonic() >= attacks_due:  # jobs go first, unless they keep an attack waiting
                    attacks_due = time.monotonic() + _ATTACKS_EVERY_S
                    run_attacks(hub, pool, 0.0 if idle else _ATTACK_WAITS_S, lambda number: watched.at(_ATTACK, number))
                with watched.at(_CHORES):
                    job = queue.claim(hub.database, name, most_each=(len(heartbeats.living(hub.folder)) + 1) // 2 or 1)
                idle = job is None
                if job is None:
                    stop.wait(wait_s)
                    wait_s = min(_IDLE_S, wait_s * 1.2)
                    continue
                wait_s = _BUSY_S
                with watched.at(_JOB, job.id), heart.on(job.id):
                    run_job(hub, job, name, pool)
                failures = 0
            except sa.exc.SQLAlchemyError as error:
                # Locked, or its server restarts. The current job is settled when its lease has run out.
                failures += 1
                facts = {"worker": name, "error": type(error).__name__, "attempt": failures}
                _LOG.warning("the database cannot be used now", extra={"facts": facts})
                stop.wait(min(_SLOWEST_S, _IDLE_S * 2 ** min(failures, 10)))
            except Exception as error:
                failures += 1
                _note(hub, name, error)
                stop.wait(min(_SLOWEST_S, _IDLE_S * 2 ** min(failures, 10)))
    finally:
        heart.end()
        pool.close()


def _note(hub: Hub, worker: str, error: Exception) -> None:
    """Record an error that nobody foresaw, without its message: that could quote a statement or a row."""
    _LOG.error("a worker's task failed", extra={"facts": {"worker": worker, **error_facts(error)}})
    heartbeats.note_failure(hub.folder)


class _Watch:
    """Current task of the child, in memory shared with its supervisor."""

    def __init__(self, shared: Any) -> None:
        self._shared = shared if shared is not None else [0.0, 0.0, 0.0]

    @contextmanager
    def at(self, doing: int, number: int = 0) -> Iterator[None]:
        """Set the current task; if the process is killed meanwhile, the supervisor finds it here."""
        self._shared[2], self._shared[1] = time.monotonic(), number
        self._shared[0] = doing
        try:
            yield
        finally:
            self._shared[0] = 0


class _Heart(threading.Thread):
    """Thread that writes this worker's heartbeat and renews its job's lease every few seconds."""

    def __init__(self, hub: Hub, worker: str) -> None:
        super().__init__(name="heart", daemon=True)
        self._hub, self._worker = hub, worker
        self._end = threading.Event()
        self._job = 0
        self.start()

    @contextmanager
    def on(self, job: int) -> Iterator[None]:
        """Renew a job's lease."""
        self._job = job
        try:
            yield
        finally:
            self._job = 0

    def run(self) -> None:
        """Run until the worker ends."""
        while True:
            try:
                heartbeats.beat(self._hub.folder, self._worker)
                if job := self._job:
                    queue.heartbeat(self._hub.database, job, self._worker)
            except Exception as error:  # without heartbeats other workers would take its jobs
                facts = {"job": self._job, "error": type(error).__name__}
                _LOG.warning("a heartbeat was lost", extra={"facts": facts})
            if self._end.wait(queue.LEASE_S / 6):
                return

    def end(self) -> None:
        """Stop."""
        self._end.set()
        self.join()


# The machine


def remove_spilled_rows() -> int:
    """Remove spill files with rows that a killed process left; return the number of folders.

    The hub no longer spills, but version 0.1.0 did, into folders called cloister-…, without locks.
    """
    removed, long_ago = remove_orphaned_spill(), time.time() - _DAY_S
    for folder in Path(tempfile.gettempdir()).glob("cloister-*"):
        if not re.fullmatch(r"cloister-[a-z0-9_]{8}", folder.name):
            continue
        try:
            facts = folder.lstat()
            spilled = stat.S_ISDIR(facts.st_mode) and all(
                path.name.startswith("duckdb_temp") for path in folder.iterdir()
            )
        except OSError:
            continue
        if spilled and facts.st_uid == os.getuid() and facts.st_mtime < long_ago:
            shutil.rmtree(folder, ignore_errors=True)
            removed += 1
    return removed


def _until_signalled() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _terminate(child: BaseProcess) -> None:
    """Let it finish the current job, for a limited time."""
    child.terminate()
    child.join(10)
    if child.is_alive():
        _kill(child)


def _kill(child: BaseProcess) -> None:
    child.kill()
    child.join()
