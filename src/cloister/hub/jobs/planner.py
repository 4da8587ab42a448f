"""Plans made in child processes, with limits of time and memory.

    web process ── a few children, kept warm ── each makes one plan after another
        │
        └─ watches the one that plans: kills it when it takes too long or too much memory, or when the client has
           disconnected; then starts another

A query is a text of up to 20,000 characters, and a model or a synthetic table may have many columns: the time of a plan
is not known beforehand. In a child it blocks neither pages nor other users' plans. One user has at most half of the
children at a time; further plans of theirs wait.
"""

import asyncio
import logging
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import sqlalchemy as sa

from cloister.hub.core.child_process import Child, begin, error_of, memory_of, told
from cloister.hub.core.hub import Hub
from cloister.hub.core.logs import error_facts
from cloister.hub.core.models import Person
from cloister.hub.core.settings import Settings
from cloister.hub.jobs import gateway
from cloister.hub.jobs.gateway import JobOrder, Passed
from cloister.privacy.errors import BadForm, CloisterError, NotNow, StoreFailed, TooMany

__all__ = ["PlanRequest", "Planner"]

_LOG = logging.getLogger("cloister.hub.jobs")
_WATCH_S = 0.05
_GONE_S = 0.25  # how often to check that the client still waits
_START_S = 120.0  # how long a child may take to start on a busy machine
_MOST_WAITING = 32  # plans of one user, running and waiting


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Request for a plan, as a child gets it."""

    person_id: int
    order: JobOrder


class Planner:
    """Child processes of one web process.

    Args:
        settings: the hub's settings; `plan_processes`, `plan_seconds` and `plan_memory` are the limits.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._count = max(1, settings.plan_processes)
        self._idle: list[_Plans] = [_Plans(settings)]  # one is started at once; the others when needed
        self._threads = ThreadPoolExecutor(self._count, "planner")
        self._places = asyncio.Semaphore(self._count)
        self._of_person: dict[int, asyncio.Semaphore] = {}
        self._under_way: Counter[int] = Counter()

    async def ask(self, asked: PlanRequest, gone: Callable[[], Awaitable[bool]]) -> Passed:
        """Make a plan.

        Args:
            asked: the request.
            gone: returns True if the client has disconnected; then the plan is stopped.

        Raises:
            CloisterError: what the gateway refuses, as it refuses it.
            BadForm: the plan takes too long, or too much memory.
            TooMany: this user has too many plans running, or all children are busy for too long.
        """
        who = asked.person_id
        if self._under_way[who] >= _MOST_WAITING:
            raise TooMany(f"{_MOST_WAITING} plans of yours are under way. Wait until some are made.", wait_s=5)
        self._under_way[who] += 1
        mine = self._of_person.setdefault(who, asyncio.Semaphore(max(1, self._count // 2)))
        try:
            try:
                async with asyncio.timeout(2 * self._settings.plan_seconds):
                    await mine.acquire()
                    try:
                        await self._places.acquire()
                    except BaseException:
                        mine.release()
                        raise
            except TimeoutError:
                raise TooMany("everybody who makes plans is busy. Try again in a moment.", wait_s=10) from None
            try:
                return await self._made(asked, gone)
            finally:
                self._places.release()
                mine.release()
        finally:
            self._under_way[who] -= 1
            if not self._under_way[who]:
                del self._under_way[who]
                self._of_person.pop(who, None)

    async def _made(self, request: PlanRequest, gone: Callable[[], Awaitable[bool]]) -> Passed:
        stop = threading.Event()
        watch = asyncio.create_task(_watch(gone, stop))
        child = self._idle.pop() if self._idle else _Plans(self._settings)
        try:
            answer = await asyncio.shield(
                asyncio.get_running_loop().run_in_executor(self._threads, self._with, child, request, stop)
            )
        except asyncio.CancelledError:
            stop.set()
            raise
        finally:
            watch.cancel()
        return _read(answer)

    def _with(self, child: "_Plans", request: PlanRequest, stop: threading.Event) -> tuple[str, Any]:
        try:
            return child.ask(request, stop)
        finally:
            self._idle.append(child if child.alive else _Plans(self._settings))

    def close(self) -> None:
        """End the children."""
        for child in self._idle:
            child.kill()
        self._threads.shutdown(wait=False)


async def _watch(gone: Callable[[], Awaitable[bool]], stop: threading.Event) -> None:
    while not await gone():
        await asyncio.sleep(_GONE_S)
    stop.set()


def _read(answer: tuple[str, Any]) -> Passed:
    word, value = answer
    if word == "passed":
        passed: Passed = value
        return passed
    if word == "refused":
        raise error_of(*value) or RuntimeError(f"planning failed: {value[0]}")
    if word == "limit":
        raise BadForm(f"{value} Ask for less at once: fewer columns, bins, groups or subqueries.")
    if word == "busy":
        raise StoreFailed("the hub's database is busy. Try again in a moment.")
    if word == "died":
        raise StoreFailed("the process that made this plan has ended. Try again in a moment.")
    if word == "gone":
        raise NotNow("nobody waits for this plan any more.")
    raise RuntimeError(f"planning failed: {value}")  # unexpected; the child has logged where


class _Plans:
    """Child that makes plans, one after another."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._child = Child(_child, settings, memory=memory_of(settings.plan_memory), watch_s=_WATCH_S)
        self._ready = False

    @property
    def alive(self) -> bool:
        """Return True if it can take a request."""
        return self._child.alive

    def ask(self, asked: PlanRequest, stop: threading.Event) -> tuple[str, Any]:
        """Return its answer; or ("limit", …), ("gone", …), ("failed", …) or ("died", …) if there is none."""
        try:
            if not self._ready:
                if (word := self._answer(_START_S, stop))[0] != "ready":
                    self.kill()
                    return word if word[0] == "gone" else ("failed", "the child did not start")
                self._ready = True
            self._child.pipe.send(asked)
            answer = self._answer(self._settings.plan_seconds, stop)
        except (EOFError, OSError):
            answer = "died", ""  # by a signal, or for lack of memory
        if answer[0] in ("limit", "gone", "failed", "died"):
            self.kill()
        if answer[0] == "limit":
            _LOG.warning("a plan was stopped", extra={"facts": {"kind": asked.order.kind, "person": asked.person_id}})
        return answer

    def _answer(self, seconds: float, stop: threading.Event) -> tuple[str, Any]:
        ended = self._child.wait(seconds, stop)
        if ended == "stopped":
            return "gone", ""
        if ended == "time":
            return "limit", f"this takes longer than {seconds:g} seconds to plan."
        if ended == "memory":
            return "limit", f"this takes more memory to plan than the {self._settings.plan_memory} that a plan may."
        answer: tuple[str, Any] = self._child.pipe.recv()
        return answer

    def kill(self) -> None:
        """Kill it at once."""
        self._child.kill()


# In the child


def _child(pipe: Connection, settings: Settings) -> None:
    from cloister.hub.core import logs

    logs.configure(settings.log_level)
    begin()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the web process decides
    with Hub(settings) as hub:
        try:
            pipe.send(("ready", None))
            if not pipe.poll(1.0):  # some plans need modules that load slowly: load them before a user waits
                _load()
            while True:
                pipe.send(_answered(hub, pipe.recv()))
        except (EOFError, OSError):  # the web process is gone
            return


def _load() -> None:
    import cloister.hub.jobs.job_types.train.training
    import cloister.learn
    import cloister.synth.planning  # noqa: F401


def _answered(hub: Hub, request: PlanRequest) -> tuple[str, Any]:
    try:
        with hub.database.reading() as session:
            person = session.get_one(Person, request.person_id)
        passed = gateway.pass_gate(hub, person, request.order)
    except CloisterError as error:
        return "refused", told(error)
    except sa.exc.OperationalError:
        return "busy", ""
    except (UnicodeError, OverflowError, RecursionError):
        return "refused", ("BadForm", "a number or a text in it is too long, or holds a sign that cannot be read.", {})
    except MemoryError:
        return "limit", "this takes more memory to plan than a plan may have."
    except Exception as error:
        facts = error_facts(error)
        _LOG.error("unforeseen %s at %s", *facts.values(), extra={"facts": facts})
        return "failed", facts["error"]
    return "passed", passed
