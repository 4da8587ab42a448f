"""The ledger in a PostgreSQL database: one ledger for each database (or schema, by the address's search_path)."""

from types import ModuleType
from typing import Any

from cloister.privacy.errors import MissingExtra

__all__ = ["Postgres"]

_LOCK = 0x636C6F6973746572  # "cloister": any constant, if all writers use the same


class Postgres:
    """PostgreSQL; writers take turns by an advisory lock that ends with their transaction."""

    mark = "%s"
    # The lock is its own statement: the ones after it see everything committed before it was granted.
    begin_write: tuple[str, ...] = ("BEGIN ISOLATION LEVEL READ COMMITTED", f"SELECT pg_advisory_xact_lock({_LOCK})")
    begin_read = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

    def __init__(self, address: str) -> None:
        self._driver = _psycopg()
        self._address = address
        self.place = address.partition("?")[0].rpartition("@")[2]  # no user, no password: it appears in messages
        self.failures: tuple[type[Exception], ...] = (self._driver.Error,)

    def connect(self) -> Any:
        """Return a connection whose commits wait for the disk, whatever the server's default."""
        connection = self._driver.connect(self._address, autocommit=True)
        connection.execute("SET synchronous_commit = on")
        return connection


def _psycopg() -> ModuleType:
    try:
        import psycopg
    except ImportError:
        raise MissingExtra("a ledger in PostgreSQL needs psycopg. Run: pip install 'cloister[postgres]'") from None
    return psycopg
