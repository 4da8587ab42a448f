"""Work on uploaded files and on long texts in a child process with limits on memory and time.

A few hundred bytes can unpack to more than a machine's memory. Web processes serve all users, so they never unpack:
they start a child, watch it, and read plain JSON from it. A child that exceeds a limit is killed, and the caller gets
an error.
"""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from cloister.hub.core.child_process import Child, begin, error_of, memory_of, told
from cloister.hub.core.settings import Settings
from cloister.privacy.errors import CloisterError, TooMany, UploadRefused

__all__ = ["OWN_MEMORY", "run_bounded", "steps_bounded"]

OWN_MEMORY = 512 * 2**20  # memory of Python and its libraries besides an engine
SECONDS = 60.0
_AT_ONCE = threading.BoundedSemaphore(2)
_LINE = 4  # callers waiting or running: each one holds a thread that serves pages
_PATIENCE_S = 20.0
_CALLERS: Counter[object] = Counter()
_LOCK = threading.Lock()
_WATCH_S = 0.02
_LARGEST = 64 * 2**20  # of an answer
_PRELOADED = [
    "cloister.hub.datasets.schema_draft",
    "cloister.hub.jobs.external_tables.check",
    "cloister.hub.jobs.output_risk",
    "cloister.hub.jobs.predictions",
    "cloister.hub.policy.text.check",
    "cloister.hub.surveys.draft",
]


def run_bounded(
    settings: Settings,
    work: Callable[..., Any],
    *arguments: Any,
    seconds: float | None = None,
    caller: object = None,
) -> Any:
    """Run a function in a child process and return its result as JSON carries it.

    Args:
        settings: `job_memory` limits its memory.
        work: a module-level function, which the child imports.
        arguments: its arguments.
        seconds: the time limit.
        caller: the user; each has at most one running in a process.

    Raises:
        UploadRefused: it took too long or too much memory, or its process died.
        TooMany: the caller has one running, or all places were taken for too long.
        CloisterError: as raised by the function.
    """
    with _in_line(caller):
        return _run(settings, work, arguments, SECONDS if seconds is None else seconds)


def steps_bounded(
    settings: Settings,
    work: Callable[..., Iterator[Any]],
    *arguments: Any,
    seconds: float,
    caller: object = None,
) -> Iterator[Any]:
    """Run a generator in a child process, and yield what it yields, as JSON carries it, until a limit ends it.

    Args:
        settings: `job_memory` limits its memory.
        work: a module-level generator function, which the child imports.
        arguments: its arguments.
        seconds: the time limit of all steps together.
        caller: the user; each has at most one running in a process.

    Raises:
        UploadRefused: it took too long or too much memory, or its process died; what was yielded before stands.
        TooMany: the caller has one running, or all places were taken for too long.
        CloisterError: as raised by the function.
    """
    with _in_line(caller), _a_place():
        most = memory_of(settings.job_memory) + OWN_MEMORY
        child = Child(_steps, most, work, arguments, memory=most, watch_s=_WATCH_S, preload=_PRELOADED)
        try:
            while "end" not in (answer := _step(child, seconds)):
                if "error" in answer:
                    raise error_of(*answer["error"]) or UploadRefused(answer["error"][1])
                yield answer["answer"]
        finally:
            child.kill()


def _step(child: Child, seconds: float) -> dict[str, Any]:
    ended = child.wait(seconds, in_all=True)
    if ended == "time":
        raise UploadRefused(f"the {seconds:.0f} seconds for it were over.")
    if ended == "memory":
        raise UploadRefused("it took more memory than there is for it.")
    try:
        answer: dict[str, Any] = json.loads(child.pipe.recv_bytes(_LARGEST))
    except (EOFError, OSError, ValueError, RecursionError):
        raise UploadRefused("it took more memory than there is for it.") from None
    return answer


def _steps(pipe: Connection, most: int, work: Callable[..., Iterator[Any]], arguments: tuple[Any, ...]) -> None:
    _ready(most)
    try:
        for step in work(*arguments):
            pipe.send_bytes(json.dumps({"answer": step}).encode())
        last: dict[str, Any] = {"end": True}
    except CloisterError as error:
        last = {"error": told(error)}
    except Exception as error:  # its message could quote a row
        last = {"error": ["UploadRefused", f"it could not be read ({type(error).__name__}).", {}]}
    pipe.send_bytes(json.dumps(last).encode())


@contextmanager
def _a_place() -> Iterator[None]:
    if not _AT_ONCE.acquire(timeout=_PATIENCE_S):
        raise TooMany("others are having their files and texts read. Try again in a minute.")
    try:
        yield
    finally:
        _AT_ONCE.release()


@contextmanager
def _in_line(caller: object) -> Iterator[None]:
    """Refuse at once if too many wait or the caller already does: each waiting caller holds a thread of the pages."""
    with _LOCK:
        if caller is not None and _CALLERS[caller]:
            raise TooMany("a file or text of yours is being read. Wait until that is done.")
        if _CALLERS.total() >= _LINE:
            raise TooMany("others are having their files and texts read. Try again in a minute.")
        _CALLERS[caller] += 1
    try:
        yield
    finally:
        with _LOCK:
            _CALLERS[caller] -= 1
            if not _CALLERS[caller]:
                del _CALLERS[caller]


def _run(settings: Settings, work: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Any:
    with _a_place():
        most = memory_of(settings.job_memory) + OWN_MEMORY
        child = Child(_child, most, work, arguments, memory=most, watch_s=_WATCH_S, preload=_PRELOADED)
        try:
            answer = _answer(child, seconds)
        finally:
            child.kill()
    if "error" in answer:
        raise error_of(*answer["error"]) or UploadRefused(answer["error"][1])
    return answer["answer"]


def _answer(child: Child, seconds: float) -> dict[str, Any]:
    ended = child.wait(seconds)
    if ended == "time":
        raise UploadRefused(f"reading it took longer than {seconds:.0f} seconds. Send a smaller one.")
    if ended == "memory":
        raise UploadRefused("reading it took more memory than there is for it. Send a smaller one.")
    try:
        answer: dict[str, Any] = json.loads(child.pipe.recv_bytes(_LARGEST))
    except (EOFError, OSError, ValueError, RecursionError):
        raise UploadRefused("it could not be read within the memory there is for it. Send a smaller one.") from None
    return answer


def _child(pipe: Connection, most: int, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    _ready(most)
    try:
        answer: dict[str, Any] = {"answer": work(*arguments)}
    except CloisterError as error:
        answer = {"error": told(error)}
    except Exception as error:  # its message could quote a row
        answer = {"error": ["UploadRefused", f"it could not be read ({type(error).__name__}).", {}]}
    pipe.send_bytes(json.dumps(answer).encode())


def _ready(most: int) -> None:
    from cloister.hub.core import logs

    logs.catch_all()
    os.umask(0o077)
    begin(most + 2**30)
