"""Heartbeats of workers: a small file for each, written every few seconds while its process lives; and their failures.

Files, unlike rows, can be written while the database is locked, and read without waiting for its writers.
"""

import contextlib
import math
from pathlib import Path

from cloister.hub.core.database import now

__all__ = ["LOST_S", "beat", "failures", "last", "living", "note_failure", "tidy"]

LOST_S = 30.0  # a worker that has been silent for this long is assumed dead
_FORGOTTEN_S = 86_400.0
_RECENT_S = 60.0
_FAILURES = ".failures"  # one line for each, with its time
_LONGEST = 64 * 1024


def beat(folder: Path, worker: str) -> None:
    """Record that a worker is alive.

    Args:
        folder: the hub's folder.
        worker: the worker's name.
    """
    workers = folder / "workers"
    workers.mkdir(mode=0o700, exist_ok=True)
    waiting = workers / f".{worker}"
    waiting.write_text(f"{now()}\n", encoding="ascii")
    waiting.replace(workers / worker)


def living(folder: Path) -> list[str]:
    """Return the names of the living workers."""
    return sorted(name for name, time in _beats(folder).items() if time > now() - LOST_S)


def last(folder: Path) -> float | None:
    """Return when any worker was last seen; None if none ever was."""
    return max(_beats(folder).values(), default=None)


def tidy(folder: Path) -> None:
    """Remove workers that ended more than a day ago."""
    beats = _beats(folder)
    newest = max(beats.values(), default=0.0)
    for name, time in beats.items():
        if time < now() - _FORGOTTEN_S and time < newest:  # the newest stays: it shows when there was one
            (folder / "workers" / name).unlink(missing_ok=True)


def note_failure(folder: Path) -> None:
    """Record that a worker's process died or could not do its work. Never raises: the worker must go on."""
    path = folder / "workers" / _FAILURES
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.exists() and path.stat().st_size > _LONGEST:
            path.unlink(missing_ok=True)
        with path.open("a", encoding="ascii") as file:
            file.write(f"{now()}\n")
    except OSError:
        pass


def failures(folder: Path) -> int:
    """Return how often workers failed in the last minute."""
    try:
        lines = (folder / "workers" / _FAILURES).read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return 0
    count = 0
    for line in lines:
        with contextlib.suppress(ValueError):  # half a line, of a process that was killed
            count += float(line) > now() - _RECENT_S
    return count


def _beats(folder: Path) -> dict[str, float]:
    beats = {}
    try:
        paths = [path for path in (folder / "workers").iterdir() if not path.name.startswith(".")]
    except OSError:  # there is no such folder yet
        return {}
    for path in paths:
        with contextlib.suppress(OSError, ValueError):  # removed meanwhile, or no heartbeat: the others count
            time = float(path.read_text(encoding="ascii"))
            if math.isfinite(time):
                beats[path.name] = time
    return beats
