"""Work on files that somebody sent, in a process of its own with limits on memory and time.

A few hundred bytes can unpack to more than a machine holds. Web processes serve everybody, so they never unpack: they
start a child for it, watch it, and take plain JSON from it. A child that takes too much is killed, and whoever sent the
file is told.
"""

import json
import multiprocessing
import os
import resource
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cloister.hub.settings import Settings
from cloister.privacy import errors
from cloister.privacy.errors import BadName, CloisterError, TooMany, UploadRefused

__all__ = ["OWN_MEMORY", "memory_of", "resident", "run_bounded"]

OWN_MEMORY = 512 * 2**20  # what Python and its libraries take besides an engine
SECONDS = 60.0
_AT_ONCE = threading.BoundedSemaphore(2)
_PATIENCE_S = 20.0
_WATCH_S = 0.02
_LARGEST = 64 * 2**20  # of an answer
_PRELOADED = ["cloister.hub.store.drafts", "cloister.hub.kinds.synthesise.given"]


def run_bounded(settings: Settings, work: Callable[..., Any], *arguments: Any, seconds: float | None = None) -> Any:
    """Run a function in a child process and return what it returns, as JSON carries it.

    Args:
        settings: `job_memory` bounds the memory it may take.
        work: a function of a module, by which the child finds it.
        arguments: its arguments.
        seconds: how long it may take.

    Raises:
        UploadRefused: it took too long or too much memory, or its process died.
        TooMany: others are at it, and none was done in time.
        CloisterError: whatever the function raised of that kind.
    """
    if not _AT_ONCE.acquire(timeout=_PATIENCE_S):
        raise TooMany("others are having their files read. Try again in a minute.")
    try:
        # Children are forked from a small server that has loaded the libraries: no threads, locks or keys of ours.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        ours, theirs = context.Pipe(duplex=False)
        most = memory_of(settings.job_memory) + OWN_MEMORY
        child = context.Process(target=_child, args=(theirs, most, work, arguments), daemon=True)
        child.start()
        theirs.close()
        try:
            answer = _watched(ours, child.pid, most, SECONDS if seconds is None else seconds)
        finally:
            child.kill()
            child.join()
            ours.close()
    finally:
        _AT_ONCE.release()
    if "error" in answer:
        name, said = answer["error"]
        # As if it were raised here; the class is one of ours or nothing.
        kind = getattr(errors, name, UploadRefused)
        raise kind(said) if isinstance(kind, type) and issubclass(kind, CloisterError) else UploadRefused(said)
    return answer["answer"]


def _watched(ours: Connection, process: int | None, most: int, seconds: float) -> dict[str, Any]:
    end = time.monotonic() + seconds
    while not ours.poll(_WATCH_S):
        if time.monotonic() > end:
            raise UploadRefused(f"reading the file took longer than {seconds:.0f} seconds. Send a smaller one.")
        if resident(process) > most:
            raise UploadRefused("reading the file took more memory than there is for it. Send a smaller one.")
    try:
        answer: dict[str, Any] = json.loads(ours.recv_bytes(_LARGEST))
    except (EOFError, OSError, ValueError):
        raise UploadRefused(
            "the file could not be read within the memory there is for it. Send a smaller one."
        ) from None
    return answer


def _child(pipe: Connection, most: int, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    from cloister.hub.operate import logs

    logs.catch_all()
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold rows
    resource.setrlimit(resource.RLIMIT_DATA, (most + 2**30, most + 2**30))  # faster than any watch
    try:
        answer: dict[str, Any] = {"answer": work(*arguments)}
    except CloisterError as error:
        said = str(error).removeprefix(f"{error.code}: ")
        answer = {"error": [type(error).__name__, said]}
    except Exception as error:  # what it says could quote a row
        answer = {"error": ["UploadRefused", f"the file could not be read ({type(error).__name__})."]}
    pipe.send_bytes(json.dumps(answer).encode())


def memory_of(text: str) -> int:
    """A size such as 2GB or 512MB, in bytes."""
    number, units = text.strip().upper(), {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    units |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
    for unit in sorted(units, key=len, reverse=True):
        if number.endswith(unit) and number.removesuffix(unit).strip().replace(".", "", 1).isdigit():
            return int(float(number.removesuffix(unit)) * units[unit])
    raise BadName(f"CLOISTER_JOB_MEMORY must be a size such as 2GB, got {text!r:.40}.")


def resident(process: int | None) -> int:
    """How much memory a process has, in bytes; 0 if it is gone."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
        return int(pages[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
