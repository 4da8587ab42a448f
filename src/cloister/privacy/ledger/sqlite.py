"""The ledger in one SQLite file."""

import sqlite3
from pathlib import Path
from typing import Literal
from urllib.parse import quote

__all__ = ["Sqlite"]

_MODES = {"create": "rwc", "write": "rw", "read": "ro"}


class Sqlite:
    """SQLite with a write-ahead log; a commit returns when the log is on the disk."""

    mark = "?"
    begin_write: tuple[str, ...] = ("BEGIN IMMEDIATE",)
    begin_read = "BEGIN"
    failures: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, path: str, mode: Literal["create", "write", "read"]) -> None:
        self.place = str(Path(path).absolute())
        self._mode = _MODES[mode]

    def connect(self) -> sqlite3.Connection:
        """Return a connection that waits up to a minute for the lock."""
        connection = sqlite3.connect(
            f"file:{quote(self.place)}?mode={self._mode}",
            uri=True,
            timeout=60,
            isolation_level=None,  # transactions are explicit
            check_same_thread=False,  # each thread has its own; only close() comes from another
        )
        if self._mode != "ro":
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        return connection
