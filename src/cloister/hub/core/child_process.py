"""A child process with limits of time and memory, watched by the process that started it.

    parent ── a pipe ── child: does one thing, or one after another
       │
       └─ waits for an answer; says so when the child takes too long or too much memory, or when nobody waits any more.
          Whoever started it then kills it: a child holds nothing that could be lost

What may take too much (a plan, a file that somebody sent) never runs in a process that serves pages.
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
_CARRIED = ("decision", "wait_s")  # what errors say besides their message


class Child:
    """One child process, and this side of its pipe.

    Args:
        target: what the child runs: a function of a module, called with the other side of the pipe and `arguments`.
        arguments: its further arguments.
        memory: how many bytes of memory it may have.
        watch_s: how often time and memory are looked at.
        preload: modules to load before; then the child is forked from a small server that has them. A process without
            them starts afresh. Either has no threads, locks, connections or keys of ours.

    Attributes:
        pipe: this side of its pipe.
    """

    def __init__(
        self,
        target: Callable[..., None],
        *arguments: Any,
        memory: int,
        watch_s: float,
        preload: Sequence[str] = (),
    ) -> None:
        self._memory, self._watch_s = memory, watch_s
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
        """Whether it runs."""
        return self._process.is_alive()

    def wait(self, seconds: float, stop: threading.Event | None = None) -> Ended:
        """Wait until there is something to read, which may be the pipe's end.

        Args:
            seconds: how long at most.
            stop: set when nobody waits for the answer any more.

        Returns:
            `answer`; or which limit was passed; or `stopped`.
        """
        until = time.monotonic() + seconds
        while not self.pipe.poll(self._watch_s):
            if stop is not None and stop.is_set():
                return "stopped"
            if time.monotonic() > until:
                return "time"
            if resident(self._process.pid) > self._memory:
                return "memory"
        return "answer"

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def begin(memory: int | None = None) -> None:
    """Limit the child that calls it: no core dumps, which would hold rows; and so many bytes of memory, if given."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is not None:  # the system is faster than any watch
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def told(error: CloisterError) -> tuple[str, str, dict[str, Any]]:
    """A refusal as it goes through a pipe: its class, its sentence, and what else it says."""
    facts = {name: getattr(error, name) for name in _CARRIED if hasattr(error, name)}
    return type(error).__name__, str(error).removeprefix(f"{error.code}: "), facts


def error_of(name: str, said: str, facts: dict[str, Any]) -> CloisterError | None:
    """The refusal that was told, as if it were made here; None if its class is none of ours."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, CloisterError)):
        return None
    error = kind(said)
    for fact, value in facts.items():
        setattr(error, fact, value)
    return error


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
