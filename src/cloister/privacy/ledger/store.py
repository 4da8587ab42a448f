"""Where entries live: two tables, the same SQL for every database.

    entries    number, settles, body, hash, signature      the truth, only ever appended to
    accounts   key, opened, latest                         a cache: the entries that opened and last changed an account

Writers take turns: a transaction that may write holds the only lock from its first statement to its commit, so a total
that was read is still the total when the charge is added.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Literal, Protocol

from cloister.privacy.errors import StoreFailed
from cloister.privacy.ledger.entry import Entry

__all__ = ["Dialect", "Store", "Tables", "open_store"]

_CREATE = (
    "CREATE TABLE IF NOT EXISTS entries (number INTEGER PRIMARY KEY, settles INTEGER UNIQUE, body TEXT NOT NULL, "
    "hash TEXT NOT NULL, signature TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS accounts (key TEXT PRIMARY KEY, opened INTEGER NOT NULL, latest INTEGER NOT NULL)",
)
_ENTRY = "SELECT number, settles, body, hash, signature FROM entries "
_PAGE = 1_000
_parsed = lru_cache(maxsize=256)(Entry.parse)  # the same few rows are read for every charge


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
        """Make the two tables."""
        for statement in _CREATE:
            self._run(statement)

    def last(self) -> Entry | None:
        """The newest entry."""
        return self._entry(_ENTRY + "ORDER BY number DESC LIMIT 1")

    def entry(self, number: int) -> Entry | None:
        """The entry of that number."""
        return self._entry(_ENTRY + "WHERE number = ?", number)

    def hash_of(self, number: int) -> str | None:
        """The hash of the entry of that number."""
        row = self._run("SELECT hash FROM entries WHERE number = ?", number).fetchone()
        return None if row is None else row[0]

    def settlement(self, number: int) -> Entry | None:
        """The commit or void that ended this reserve."""
        return self._entry(_ENTRY + "WHERE settles = ?", number)

    def pages(self) -> Iterator[list[tuple[Any, ...]]]:
        """All rows of entries in order, some at a time."""
        after = -(2**31)  # below any number, so that a row with an impossible number is met too
        while rows := self._run(_ENTRY + "WHERE number > ? ORDER BY number LIMIT ?", after, _PAGE).fetchall():
            yield rows
            after = rows[-1][0]

    def append(self, entry: Entry) -> None:
        """Add an entry."""
        row = (entry.number, entry.settles, entry.body, entry.hash, entry.signature)
        self._run("INSERT INTO entries (number, settles, body, hash, signature) VALUES (?, ?, ?, ?, ?)", *row)

    def accounts(self) -> dict[str, tuple[int, int]]:
        """Every account, with the numbers of the entry that opened it and of the latest that changed it."""
        rows = self._run("SELECT key, opened, latest FROM accounts ORDER BY key").fetchall()
        return {key: (opened, latest) for key, opened, latest in rows}

    def account(self, key: str) -> tuple[int, int] | None:
        """The same for one account."""
        row = self._run("SELECT opened, latest FROM accounts WHERE key = ?", key).fetchone()
        return None if row is None else (row[0], row[1])

    def changed(self, key: str, number: int) -> None:
        """Note that this entry changed an account, or opened it."""
        if self._run("UPDATE accounts SET latest = ? WHERE key = ?", number, key).rowcount == 0:
            self._run("INSERT INTO accounts (key, opened, latest) VALUES (?, ?, ?)", key, number, number)

    def _entry(self, statement: str, *values: object) -> Entry | None:
        row = self._run(statement, *values).fetchone()
        return None if row is None else _parsed(*row)

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
