"""Logs: one line of JSON for each thing that happened, on standard error, for every process alike.

What may be said is listed here; everything else is left out. A line holds the name of an event and facts such as the
pattern of a route, a status or the number of a job; never a path, a query string, a body, SQL, or an error's message,
each of which could hold a value of somebody's data or a secret.
"""

import json
import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

__all__ = ["FACTS", "JsonLines", "catch_all", "configure", "say", "error_facts"]

# What a line may say beside its event. Numbers and words of our own, never of somebody's data.
FACTS = frozenset(
    {"attempt", "code", "count", "error", "exit", "job", "kind", "method", "ms", "person", "place", "port", "process"}
    | {"request", "route", "role", "seconds", "signal", "state", "status", "version", "why", "worker"}
)
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LONGEST = 400


class JsonLines(logging.Formatter):
    """A record as one line of JSON, cut down to what may be said."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "log": record.name,
            "event": _event(record),
            "process": record.process,
        }
        facts = getattr(record, "facts", None)
        if isinstance(facts, Mapping):
            line |= {name: _plain(value) for name, value in facts.items() if name in FACTS}
        if record.exc_info and record.exc_info[1] is not None:
            line |= {"error": type(record.exc_info[1]).__name__, "place": _place(record.exc_info[1])}
        return json.dumps(line, ensure_ascii=False)


def _event(record: logging.LogRecord) -> str:
    """What happened: our own pattern without what is filled in; of a library only that it spoke up.

    Libraries format before they log: what they say could be a question, a path or a value.
    """
    if not isinstance(record.msg, str):
        return type(record.msg).__name__
    ours = record.name.partition(".")[0] == "cloister" or record.name == "uvicorn.error"
    return record.msg[:_LONGEST] if ours else "a library has something to say"


def catch_all() -> None:
    """Write errors that nobody caught as lines like all others, in every thread: where they were, not what they say."""
    log = logging.getLogger("cloister.hub.ops")
    logging.raiseExceptions = False  # or the logging module itself prints the arguments of a line that fails

    def caught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            log.error("an error that nobody caught", exc_info=(kind, error or kind(), trace))

    sys.excepthook = caught
    sys.unraisablehook = lambda told: caught(told.exc_type, told.exc_value, told.exc_traceback)
    threading.excepthook = lambda told: caught(told.exc_type, told.exc_value, told.exc_traceback)


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Send every log of this process there, as lines of JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # libraries speak up when something is wrong
    chosen = _LEVELS.get(level.lower(), logging.INFO)
    for name in ("cloister", "uvicorn.error"):
        logging.getLogger(name).setLevel(chosen)
        logging.getLogger(name).propagate = True
    for name in ("uvicorn", "uvicorn.access", "sqlalchemy", "alembic"):
        logging.getLogger(name).handlers[:] = []
    logging.getLogger("uvicorn.access").disabled = True  # its lines hold paths and query strings


def say(event: str, level: int = logging.INFO, **facts: object) -> None:
    """A line of our own; facts that are not listed in FACTS are a mistake in the code."""
    unknown = facts.keys() - FACTS
    assert not unknown, unknown
    logging.getLogger("cloister.hub.ops").log(level, event, extra={"facts": facts})


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:_LONGEST]


def _place(error: BaseException) -> str:
    """The files and lines an error passed; never what it says."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames))


def error_facts(error: BaseException) -> dict[str, str]:
    """An error's type, and the files and lines it passed; never what it says."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    path = " < ".join(f"{_short(frame.filename)}:{frame.lineno}" for frame in reversed(frames))
    return {"error": type(error).__name__, "place": path}


def _short(file: str) -> str:
    return file.rpartition("cloister/")[2] if "/cloister/" in file else "/".join(file.split("/")[-2:])
