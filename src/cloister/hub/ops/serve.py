"""Processes of a hub: several for pages, several for jobs, under one command.

    cloister hub serve ─┬─ web      … all accept from one socket
                        ├─ web
                        ├─ worker   … take jobs from the queue
                        └─ worker

A process that dies is started again. On SIGTERM or Ctrl-C web processes finish their requests and workers their jobs;
a process that needs longer than the grace period is killed, which loses nothing: jobs are in the database and charges
in the ledger. If this command itself is killed, its children end too.
"""

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cloister.hub.core import logs
from cloister.hub.core.hub import Hub
from cloister.hub.core.settings import Settings
from cloister.hub.ops.ledger_heads import check_receipts
from cloister.privacy.errors import CloisterError, Unavailable

__all__ = ["environment_of", "serve", "work"]

_GRACE_S = 25.0
_TOO_SOON_S = 5.0  # a process that lives shorter than this is restarted more slowly
_SLOWEST_S = 30.0


@dataclass(slots=True)
class _Child:
    """Process that should be running."""

    role: str
    command: list[str]
    process: "subprocess.Popen[bytes] | None" = None
    begun: float = 0.0
    not_before: float = 0.0
    failures: int = 0


class Supervisor:
    """Keeps processes running until it is stopped."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stop = threading.Event()
        self._environment = {**os.environ, **environment_of(settings)}
        self._children: list[_Child] = []
        # Nothing is ever written: the children detect when the writing end is closed.
        self._alive_read, self._alive_write = os.pipe()

    def run(self, web: int, workers: int) -> int:
        """Start all processes, watch them, end them; return the exit code."""
        listening = _listen(self.settings) if web else None
        shared = [self._alive_read] + ([listening.fileno()] if listening else [])
        metrics = self.settings.folder / "metrics"
        if web:
            shutil.rmtree(metrics, ignore_errors=True)  # metrics of processes that have ended
            metrics.mkdir(mode=0o700)
            self._environment["PROMETHEUS_MULTIPROC_DIR"] = str(metrics.resolve())
        mine = [sys.executable, "-m", "cloister.hub.ops.process"]
        alive = str(self._alive_read)
        fd = str(listening.fileno()) if listening else ""
        self._children = [_Child("web", [*mine, "web", alive, fd]) for _ in range(web)]
        self._children += [_Child("worker", [*mine, "worker", alive]) for _ in range(workers)]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        logs.say("hub started", port=listening.getsockname()[1] if listening else None, count=web + workers)
        while not self._stop.wait(0.2):
            for child in self._children:
                self._tend(child, shared)
        return self._end()

    def _tend(self, child: _Child, shared: list[int]) -> None:
        moment = time.monotonic()
        if child.process is not None and child.process.poll() is not None:
            lived = moment - child.begun
            child.failures = child.failures + 1 if lived < _TOO_SOON_S else 0
            child.not_before = moment + min(_SLOWEST_S, 0.2 * 2**child.failures)
            facts = {"role": child.role, "exit": child.process.returncode, "seconds": round(lived, 1)}
            logs.say("process ended", logging.WARNING, **facts)
            child.process = None
        if child.process is None and moment >= child.not_before:
            child.process = subprocess.Popen(  # noqa: S603
                child.command,
                env=self._environment,
                pass_fds=shared,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process, which then ends the others in order
            )
            child.begun = moment

    def _end(self) -> int:
        logs.say("hub stopping")
        running = [child.process for child in self._children if child.process is not None]
        for process in running:
            process.terminate()
        until = time.monotonic() + _GRACE_S
        for process in running:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        logs.say("hub stopped")
        return 0


def serve(settings: Settings) -> int:
    """Serve pages and run jobs until stopped."""
    logs.configure(settings.log_level)
    logs.catch_all()
    _begin(settings)
    if settings.exposed:
        why = "CLOISTER_ADDRESS is not https: passwords and cookies travel in clear. Put a proxy with TLS before it."
        logs.say("plain http beyond this machine", logging.WARNING, why=why)
    return Supervisor(settings).run(max(1, settings.web_processes), max(0, settings.worker_processes))


def work(settings: Settings, count: int = 1) -> int:
    """Run jobs only, for machines that serve no pages."""
    logs.configure(settings.log_level)
    logs.catch_all()
    _begin(settings)
    return Supervisor(settings).run(0, max(1, count))


def _begin(settings: Settings) -> None:
    """Check that there is a hub, migrate its tables, and check its ledger against its own receipts."""
    os.umask(0o077)
    with Hub.open(settings) as hub:
        try:
            check_receipts(hub)
        except CloisterError as error:  # the pages are served all the same: they show what happened
            logs.say("the ledger refuses to spend", logging.ERROR, code=error.code)


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the settings as environment variables."""
    plain: dict[str, str] = {}
    for field in fields(Settings):
        value: Any = getattr(settings, field.name)
        if value != field.default:
            text = "yes" if value is True else "no" if value is False else str(value)
            plain[f"CLOISTER_{field.name.upper()}"] = text
    plain["CLOISTER_FOLDER"] = str(Path(settings.folder).resolve())
    return plain


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise Unavailable(
            f"cannot listen on {settings.host}:{settings.port} ({error.strerror}). Choose another CLOISTER_PORT."
        ) from None
    listening.listen(1024)
    listening.set_inheritable(True)
    return listening
