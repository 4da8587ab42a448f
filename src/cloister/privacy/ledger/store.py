"""Storage of entries: one append-only table, with the same SQL for every database.

    entries    number, settles, body, hash, signature

Writers take turns: a transaction that may write holds the only lock from its first statement to its commit, so a total
read in it is still valid when the charge is added.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, Protocol

from cloister.privacy.errors import StoreFailed
from cloister.privacy.ledger.entry import Entry

__all__ = ["Dialect", "Store", "Tables", "open_store"]

_CREATE = (
    "CREATE TABLE IF NOT EXISTS entries (number INTEGER PRIMARY KEY, settles INTEGER UNIQUE, body TEXT NOT NULL, "
    "hash TEXT NOT NULL, signature TEXT NOT NULL)"
)
_ENTRY = "SELECT number, settles, body, hash, signature FROM entries "
_PAGE = 1_000


class Dialect(Protocol):
    """The differences between databases."""

    place: str
    mark: str  # placeholder of a parameter
    begin_write: tuple[str, ...]  # starts a transaction and takes the writers' lock
    begin_read: str  # starts a transaction with one snapshot
    failures: tuple[type[Exception], ...]

    def connect(self) -> Any:
        """Return a connection with `execute` and `close`, explicit transactions, and commits that reach the disk."""
        ...


class Tables:
    """The statements of the ledger, inside one transaction."""

    def __init__(self, connection: Any, mark: str) -> None:
        self._connection = connection
        self._mark = mark

    def create(self) -> None:
        """Create the table."""
        self._run(_CREATE)

    def last(self) -> Entry | None:
        """The newest entry."""
        return self._entry(_ENTRY + "ORDER BY number DESC LIMIT 1")

    def hash_of(self, number: int) -> str | None:
        """The hash of the entry of that number."""
        row = self._run("SELECT hash FROM entries WHERE number = ?", number).fetchone()
        return None if row is None else row[0]

    def settlement(self, number: int) -> Entry | None:
        """The commit or void that ended this reserve."""
        return self._entry(_ENTRY + "WHERE settles = ?", number)

    def pages(self, after: int | None = None) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of entries in order and in batches; all of them, or those after a number."""
        after = -(2**31) if after is None else after  # below any number: a row with an invalid one is read too
        while rows := self._run(_ENTRY + "WHERE number > ? ORDER BY number LIMIT ?", after, _PAGE).fetchall():
            yield rows
            after = rows[-1][0]

    def asked(self, digest: str) -> list[Entry]:
        """Return the entries of a request, by its digest. Scans all entries: for recovery only."""
        rows = self._run(_ENTRY + "WHERE body LIKE ? ORDER BY number", f'%"request":"{digest}"%').fetchall()
        return [entry for entry in (Entry.parse(*row) for row in rows) if entry.request == digest]

    def append(self, entry: Entry) -> None:
        """Add an entry."""
        row = (entry.number, entry.settles, entry.body, entry.hash, entry.signature)
        self._run("INSERT INTO entries (number, settles, body, hash, signature) VALUES (?, ?, ?, ?, ?)", *row)

    def _entry(self, statement: str, *values: object) -> Entry | None:
        row = self._run(statement, *values).fetchone()
        return None if row is None else Entry.parse(*row)

    def _run(self, statement: str, *values: object) -> Any:
        return self._connection.execute(statement.replace("?", self._mark), values)


class Store:
    """A database that holds one ledger."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        # Keyed by process too: a connection must never be used, nor closed, by a forked child.
        self._connections: dict[tuple[int, int], Any] = {}

    @contextmanager
    def writing(self) -> Iterator[Tables]:
        """Open an exclusive write transaction; it is on disk when this returns, or has no effect."""
        with self._transaction(self._dialect.begin_write) as tables:
            yield tables

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        """Open a read transaction on one snapshot, while others write."""
        with self._transaction((self._dialect.begin_read,)) as tables:
            yield tables

    @contextmanager
    def _transaction(self, begin: Sequence[str]) -> Iterator[Tables]:
        try:
            connection = self._connection()
            try:
                for statement in begin:
                    connection.execute(statement)
                yield Tables(connection, self._dialect.mark)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(*self._dialect.failures):
                    connection.execute("ROLLBACK")
                raise
        except self._dialect.failures as error:
            self._forget()
            raise StoreFailed(
                f"the ledger at {self._dialect.place} could not be used ({_first_line(error)}). What was reserved "
                "stays reserved; nothing was released. Free disk space or repair the database, then ask again."
            ) from error

    def _connection(self) -> Any:
        me = (os.getpid(), threading.get_ident())
        if me not in self._connections:
            self._connections[me] = self._dialect.connect()
        return self._connections[me]

    def _forget(self) -> None:
        connection = self._connections.pop((os.getpid(), threading.get_ident()), None)
        if connection is not None:
            with suppress(*self._dialect.failures):
                connection.close()

    def close(self) -> None:
        """Close this process's connections; the next use opens them again."""
        for process, thread in list(self._connections):
            if process == os.getpid():
                self._connections.pop((process, thread)).close()


def open_store(place: str | os.PathLike[str], mode: Literal["create", "write", "read"] = "write") -> Store:
    """Open the store at a file path, or at a `postgresql://` address."""
    address = os.fspath(place)
    if address.startswith(("postgresql://", "postgres://")):
        from cloister.privacy.ledger.postgres import Postgres

        return Store(Postgres(address))
    from cloister.privacy.ledger.sqlite import Sqlite

    return Store(Sqlite(address, mode))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
