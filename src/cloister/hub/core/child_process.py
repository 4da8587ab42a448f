"""Child process with limits of time and memory, watched by the process that started it.

    parent ── a pipe ── child: runs one task, or several in sequence
       │
       └─ waits for an answer; reports when the child takes too long or too much memory, or when the caller is gone.
          The parent then kills the child, which holds nothing that could be lost

Work without a known bound (a plan, an uploaded file) never runs in a process that serves pages.
"""

import multiprocessing
import resource
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any, Literal

from cloister.privacy import errors
from cloister.privacy.errors import BadName, CloisterError

__all__ = ["Child", "begin", "error_of", "memory_of", "resident", "told"]

Ended = Literal["answer", "time", "memory", "stopped"]
_CARRIED = ("decision", "wait_s")  # attributes of errors besides their message


class Child:
    """One child process, and the parent's end of its pipe.

    Args:
        target: the function that the child runs, called with the other end of the pipe and `arguments`.
        arguments: further arguments of the function.
        memory: the memory limit in bytes.
        watch_s: the interval at which time and memory are checked.
        preload: modules to load first; then the child is forked from a small server that has them. A process without
            them starts afresh. Neither has threads, locks, connections or keys of the parent.

    Attributes:
        pipe: the parent's end of its pipe.
    """

    def __init__(
        self,
        target: Callable[..., None],
        *arguments: Any,
        memory: int,
        watch_s: float,
        preload: Sequence[str] = (),
    ) -> None:
        self._memory, self._watch_s, self._begun = memory, watch_s, time.monotonic()
        context: ForkServerContext | SpawnContext = multiprocessing.get_context("spawn")
        if preload:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(list(preload))
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, *arguments), daemon=True, name=target.__module__)
        self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        """Return True if it runs."""
        return self._process.is_alive()

    def wait(self, seconds: float, stop: threading.Event | None = None, *, in_all: bool = False) -> Ended:
        """Wait until there is something to read, which may be the pipe's end.

        Args:
            seconds: the time limit.
            stop: set when the caller no longer waits for the answer.
            in_all: the limit counts from the start of the child, for one that gives several answers.

        Returns:
            `answer`; or the limit that was exceeded; or `stopped`.
        """
        until = seconds + (self._begun if in_all else time.monotonic())
        if in_all and time.monotonic() > until:  # also if it has more to say
            return "time"
        while not self.pipe.poll(self._watch_s):
            if stop is not None and stop.is_set():
                return "stopped"
            if time.monotonic() > until:
                return "time"
            if resident(self._process.pid) > self._memory:
                return "memory"
        return "answer"

    def kill(self) -> None:
        """Kill it at once."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def begin(memory: int | None = None) -> None:
    """Limit the calling child: no core dumps, which would hold rows; and this many bytes of memory, if given."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is not None:  # the system enforces this faster than any watch
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def told(error: CloisterError) -> tuple[str, str, dict[str, Any]]:
    """Return an error as it goes through a pipe: class, message and attributes."""
    facts = {name: getattr(error, name) for name in _CARRIED if hasattr(error, name)}
    return type(error).__name__, str(error).removeprefix(f"{error.code}: "), facts


def error_of(name: str, said: str, facts: dict[str, Any]) -> CloisterError | None:
    """Rebuild an error from the pipe; None if its class is not one of ours."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, CloisterError)):
        return None
    error = kind(said)
    for fact, value in facts.items():
        setattr(error, fact, value)
    return error


def memory_of(text: str) -> int:
    """Return a size such as 2GB or 512MB in bytes."""
    number, units = text.strip().upper(), {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    units |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
    for unit in sorted(units, key=len, reverse=True):
        if number.endswith(unit) and number.removesuffix(unit).strip().replace(".", "", 1).isdigit():
            return int(float(number.removesuffix(unit)) * units[unit])
    raise BadName(f"CLOISTER_JOB_MEMORY must be a size such as 2GB, got {text!r:.40}.")


def resident(process: int | None) -> int:
    """Return the resident memory of a process in bytes; 0 if it has ended."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
        return int(pages[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
