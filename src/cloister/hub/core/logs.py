"""Logs: one line of JSON per event on standard error, the same for every process.

FACTS lists the allowed fields; all others are left out. A line holds the name of an event and facts such as the
pattern of a route, a status or the number of a job; never a path, a query string, a body, SQL, or an error's message,
each of which could hold a private value or a secret.
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

# Fields of a line besides its event: numbers and the hub's own words, never private values.
FACTS = frozenset(
    {"attempt", "code", "count", "error", "exit", "job", "kind", "method", "ms", "person", "place", "port", "process"}
    | {"request", "route", "role", "seconds", "signal", "state", "status", "version", "why", "worker"}
)
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LONGEST = 400


class JsonLines(logging.Formatter):
    """Formatter: one line of JSON with the allowed fields only."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
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
    """Return the event: for the hub's own logs the pattern without arguments; for a library a fixed text.

    Libraries format before they log: their message could hold a question, a path or a value.
    """
    if not isinstance(record.msg, str):
        return type(record.msg).__name__
    ours = record.name.partition(".")[0] == "cloister" or record.name == "uvicorn.error"
    return record.msg[:_LONGEST] if ours else "a library has something to say"


def catch_all() -> None:
    """Log uncaught errors of every thread as lines: their place, never their message."""
    log = logging.getLogger("cloister.hub.ops")
    logging.raiseExceptions = False  # or the logging module itself prints the arguments of a line that fails

    def caught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            log.error("an error that nobody caught", exc_info=(kind, error or kind(), trace))

    sys.excepthook = caught
    sys.unraisablehook = lambda event: caught(event.exc_type, event.exc_value, event.exc_traceback)
    threading.excepthook = lambda failure: caught(failure.exc_type, failure.exc_value, failure.exc_traceback)


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Send every log of this process to a stream, as lines of JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # libraries log only problems
    chosen = _LEVELS.get(level.lower(), logging.INFO)
    for name in ("cloister", "uvicorn.error"):
        logging.getLogger(name).setLevel(chosen)
        logging.getLogger(name).propagate = True
    for name in ("uvicorn", "uvicorn.access", "sqlalchemy", "alembic"):
        logging.getLogger(name).handlers[:] = []
    logging.getLogger("uvicorn.access").disabled = True  # its lines hold paths and query strings


def say(event: str, level: int = logging.INFO, **facts: object) -> None:
    """Log an event of the hub. Facts that are not listed in FACTS are a mistake in the code."""
    unknown = facts.keys() - FACTS
    assert not unknown, unknown
    logging.getLogger("cloister.hub.ops").log(level, event, extra={"facts": facts})


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:_LONGEST]


def _place(error: BaseException) -> str:
    """Return the files and lines an error passed through; never its message."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames))


def error_facts(error: BaseException) -> dict[str, str]:
    """Return an error's type, and the files and lines it passed through; never its message."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    path = " < ".join(f"{_short(frame.filename)}:{frame.lineno}" for frame in reversed(frames))
    return {"error": type(error).__name__, "place": path}


def _short(file: str) -> str:
    return file.rpartition("cloister/")[2] if "/cloister/" in file else "/".join(file.split("/")[-2:])
