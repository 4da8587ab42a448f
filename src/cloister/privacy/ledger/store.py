"""Where entries live: one table that is only ever appended to, the same SQL for every database.

    entries    number, settles, body, hash, signature

Writers take turns: a transaction that may write holds the only lock from its first statement to its commit, so a total
that was read is still the total when the charge is added.
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
    """What differs between databases."""

    place: str
    mark: str  # stands for a parameter in a statement
    begin_write: tuple[str, ...]  # starts a transaction and takes the writers' lock
    begin_read: str  # starts a transaction that sees one moment
    failures: tuple[type[Exception], ...]

    def connect(self) -> Any:
        """A connection with `execute` and `close`, that leaves transactions to us and commits to the disk itself."""
        ...


class Tables:
    """The statements of the ledger, inside one transaction."""

    def __init__(self, connection: Any, mark: str) -> None:
        self._connection = connection
        self._mark = mark

    def create(self) -> None:
        """Make the table."""
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
        """The rows of entries in order, some at a time; all of them, or those after a number."""
        after = -(2**31) if after is None else after  # below any number: a row with an impossible one is met too
        while rows := self._run(_ENTRY + "WHERE number > ? ORDER BY number LIMIT ?", after, _PAGE).fetchall():
            yield rows
            after = rows[-1][0]

    def asked(self, digest: str) -> list[Entry]:
        """The entries of a request, by its digest. Looks through all of them: for recovery, not for every day."""
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
        """A transaction that is alone with the ledger; it is on disk when this returns, or never happened."""
        with self._transaction(self._dialect.begin_write) as tables:
            yield tables

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        """A transaction that sees the ledger at one moment, while others go on writing."""
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
    """The store at a file path, or at a `postgresql://` address."""
    address = os.fspath(place)
    if address.startswith(("postgresql://", "postgres://")):
        from cloister.privacy.ledger.postgres import Postgres

        return Store(Postgres(address))
    from cloister.privacy.ledger.sqlite import Sqlite

    return Store(Sqlite(address, mode))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
