"""Storage: entries in one append-only table, with the same SQL for every database; the newest head in a file outside.

    entries    number, settles, body, hash, signature

Writers take turns: a transaction that may write holds the only lock from its first statement to its commit, so a total
read in it is still valid when the charge is added.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol
from urllib.parse import quote

from cloister.privacy.errors import HeadRejected, MissingExtra, StoreFailed
from cloister.privacy.ledger.chain import Entry, Head

__all__ = ["Dialect", "HeadFile", "Postgres", "Sqlite", "Store", "Tables", "open_store"]


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
        while True:
            # The first page has no lower limit: a row with any invalid number is read too.
            limits, where = ((_PAGE,), "") if after is None else ((after, _PAGE), "WHERE number > ? ")
            rows = self._run(f"{_ENTRY}{where}ORDER BY number LIMIT ?", *limits).fetchall()
            if not rows:
                return
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


# Databases


_MODES = {"create": "rwc", "write": "rw", "read": "ro"}


class Sqlite:
    """One SQLite file with a write-ahead log; a commit returns when the log is on the disk."""

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
        connection.text_factory = _any_text
        return connection


def _any_text(raw: bytes) -> str:
    """Return a stored text, also one that is no UTF-8: no edited row stops a reader, and its check then names it."""
    return raw.decode("utf-8", "surrogateescape")


_LOCK = 0x636C6F6973746572  # "cloister": any constant, if all writers use the same


class Postgres:
    """A PostgreSQL database (or schema, by the address's search_path) with one ledger.

    Writers take turns by an advisory lock that ends with their transaction.
    """

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


def open_store(place: str | os.PathLike[str], mode: Literal["create", "write", "read"] = "write") -> Store:
    """Open the store at a file path, or at a `postgresql://` address."""
    address = os.fspath(place)
    if address.startswith(("postgresql://", "postgres://")):
        return Store(Postgres(address))

    return Store(Sqlite(address, mode))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# The head, outside


_LENGTH = 200


class HeadFile:
    """The head stored outside the ledger: a small file at a path chosen by the owner, best on another disk.

    It is written after the database has committed, so it is never ahead of the true ledger. An older head is harmless:
    the ledger still contains it. A restored older ledger does not contain the stored head.

    The file is one line of fixed length, overwritten in place: it fits into one sector of a disk, which is written
    whole or not at all, needs no new space on a full disk, and can be locked (a lock would be lost with a rename).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    def read(self) -> Head | None:
        """Return the head in the file; None if there is no file or no valid head."""
        if not self.path.exists():
            return None
        with self._locked(os.O_RDONLY, fcntl.LOCK_SH) as file:
            return _parse(file)

    def advance(self, head: Head) -> None:
        """Store this head, unless another process has stored a newer one."""
        self._write(head, only_forward=True)

    def replace(self, head: Head) -> None:
        """Store this head unconditionally: over an invalid head, or one whose ledger the owner wrote off."""
        self._write(head, only_forward=False)

    def _write(self, head: Head, only_forward: bool) -> None:
        with self._locked(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as file:
            stored = _parse(file)
            if stored is None or not only_forward or stored.number < head.number:
                os.pwrite(file, f"{head}".ljust(_LENGTH - 1).encode("ascii") + b"\n", 0)
                os.fdatasync(file)

    @contextmanager
    def _locked(self, mode: int, lock: int) -> Iterator[int]:
        file = None
        try:
            file = os.open(self.path, mode, 0o644)
            fcntl.flock(file, lock)
            yield file
        except OSError as error:
            raise StoreFailed(
                f"the head cannot be kept at {self.path} ({error.strerror}). What was charged stays charged; "
                "nothing was released. Free disk space or repair the path, then ask again."
            ) from None
        finally:
            if file is not None:
                os.close(file)


def _parse(file: int) -> Head | None:
    try:
        return Head.parse(os.pread(file, _LENGTH, 0).decode("ascii"))
    except (HeadRejected, UnicodeDecodeError):
        return None
