"""PostgreSQL: rows stay in the server; statements run in read-only transactions."""

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from cloister.data.dialect import dialect_of, family
from cloister.data.engines.engine import DialectName, failing_quietly
from cloister.data.schema import internal
from cloister.privacy.errors import BadSource, MissingExtra

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Postgres"]

_GRACE_S = 10.0  # wait this long after the server's own time limit for its answer
_TABLES = (
    "SELECT c.relname FROM pg_class c WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND pg_table_is_visible(c.oid) "
    "AND c.relnamespace <> ALL (SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema')) "
    "ORDER BY 1"
)
# A domain counts as its base type, an enumeration as text.
_COLUMNS = (
    "SELECT a.attname, CASE t.typtype WHEN 'e' THEN 'enum' WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod) "
    "ELSE format_type(a.atttypid, a.atttypmod) END FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
)
_CHECKED = internal("checked")
# For each encoding of a server the bytes that are no character of UTF-8, in which answers are sent: PostgreSQL would
# fail on them, after the charge. Checked against PostgreSQL 18 in tests/e2e/test_text_of_engines.py. SQL_ASCII keeps
# any bytes, and its functions cut characters apart. Other encodings have several bytes for a character.
_UNREADABLE = {
    "UTF8": "", "SQL_ASCII": "80-ff",
    "LATIN1": "", "LATIN2": "", "LATIN3": "a5 ae be c3 d0 e3 f0", "LATIN4": "", "LATIN5": "", "LATIN6": "",
    "LATIN7": "", "LATIN8": "", "LATIN9": "", "LATIN10": "", "KOI8R": "", "KOI8U": "",
    "ISO_8859_5": "", "ISO_8859_6": "a1-a3 a5-ab ae-ba bc-be c0 db-df f3-ff", "ISO_8859_7": "ae d2 ff",
    "ISO_8859_8": "a1 bf-de fb fc ff",
    "WIN866": "", "WIN874": "81-84 86-90 98-9f db-de fc-ff", "WIN1250": "81 83 88 90 98", "WIN1251": "98",
    "WIN1252": "81 8d 8f 90 9d", "WIN1253": "81 88 8a 8c-90 98 9a 9c-9f aa d2 ff", "WIN1254": "81 8d-90 9d 9e",
    "WIN1255": "81 8a 8c-90 9a 9c-9f ca d9-df fb fc ff", "WIN1256": "",
    "WIN1257": "81 83 88 8a 8c 90 98 9a 9c 9f a1 a5", "WIN1258": "81 8a 8d-90 9a 9d 9e",
}  # fmt: skip


class Postgres:
    """The tables on the search path of a PostgreSQL address.

    Args:
        address: postgresql://user@host/database; add ?options=-csearch_path%3Dclinic for tables in a schema.
            Text that its encoding cannot turn into UTF-8 is missing.
        timeout_s: seconds after which the server cancels a statement. If it does not, the connection is dropped soon
            after: a server that accepts and never answers must not block the caller.
    """

    dialect: ClassVar[DialectName] = "postgres"

    def __init__(self, address: str, timeout_s: float | None = None) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtra("tables in PostgreSQL need psycopg. Run: pip install 'cloister[postgres]'") from None
        self._connect: Callable[..., Any] = psycopg.connect
        self._say, self._lock = dialect_of("postgres"), threading.Lock()
        self._address, self._timeout_ms = address, 0 if timeout_s is None else max(1, round(1000 * timeout_s))
        self._open()

    @failing_quietly("PostgreSQL")
    def _open(self) -> None:
        self._connection = self._connect(self._address, autocommit=True)
        with self._deadline():
            self._connection.execute("SET client_encoding = 'UTF8'")
            self._connection.execute("SET TIME ZONE 'UTC'")
            self._connection.execute("SET standard_conforming_strings = on")
            # Values are written as text to the last digit, whatever the server's setting: rows are chosen by that text.
            self._connection.execute("SET extra_float_digits = 3")
            self._connection.execute("SET DateStyle = 'ISO, YMD'")
            self._connection.execute(f"SET statement_timeout = {self._timeout_ms}")
            self._connection.execute("SET default_transaction_read_only = on")
        encoding = self._connection.info.parameter_status("server_encoding") or ""
        if encoding not in _UNREADABLE:
            self._connection.close()
            raise BadSource(
                f"the database is encoded as {encoding:.60}, which has characters without UTF-8, and reading stops at "
                "them. Restore it into a database of encoding UTF8."
            )
        escaped = re.sub("[0-9a-f]{2}", r"\\x\g<0>", _UNREADABLE[encoding].replace(" ", ""))
        self._unreadable = f"[{escaped}]" if escaped else ""

    @contextmanager
    def _deadline(self) -> Iterator[None]:
        """Drop the connection if the server has not answered some seconds after its own time limit."""
        if not self._timeout_ms:
            yield
            return
        # Shut down and not closed: that wakes the thread which waits for the socket.
        line = socket.socket(fileno=os.dup(self._connection.fileno()))
        timer = threading.Timer(self._timeout_ms / 1000 + _GRACE_S, _shut, [line])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            line.close()

    def _ask(self, sql: str, values: Sequence[str] | None = None) -> tuple[list[Any], list[tuple[Any, ...]]]:
        if self._connection.closed:  # the server was restarted, perhaps
            self._open()
        with self._deadline(), self._connection.transaction():
            self._connection.execute("SET TRANSACTION READ ONLY")
            # A prepared statement is a single statement, and a percent sign in it is literal.
            cursor = self._connection.execute(sql, values, prepare=True)
            return list(cursor.description), cursor.fetchall()

    @failing_quietly("PostgreSQL")
    def tables(self) -> list[str]:
        """Return the tables and views on the search path."""
        with self._lock:
            return [name for (name,) in self._ask(_TABLES)[1]]

    @failing_quietly("PostgreSQL")
    def columns(self, table: str) -> dict[str, str]:
        """Return names and declared types, from the catalogue."""
        with self._lock:
            return dict(self._ask(_COLUMNS, [self._say.name(table)])[1])

    def place(self, table: str) -> str:
        """Return the quoted name, or a subquery without the text that the server's encoding cannot turn into UTF-8."""
        if not self._unreadable:
            return self._say.name(table)
        columns = []
        for name, kind in self.columns(table).items():
            quoted = self._say.name(name)
            if family(kind, self._say) == "text":
                word = self._say.held(quoted)  # a pattern may fail on longer text
                unreadable = f'{word} COLLATE "C" ~ {self._say.text(self._unreadable)}'
                quoted = f"CASE WHEN {unreadable} THEN NULL ELSE {word} END AS {quoted}"
            columns.append(quoted)
        alias = self._say.name(internal("readable"))
        return f"(SELECT {', '.join(columns)} FROM {self._say.name(table)}) AS {alias}"  # noqa: S608

    def failing(self, table: str, readers: Mapping[str, Callable[[str], str]]) -> list[str]:
        """Return none: the server may be far away. Every type is tried in tests/e2e/test_engines.py."""
        return []

    @failing_quietly("PostgreSQL")
    def prepare(self, sql: str) -> None:
        """Have the server parse a statement and resolve its names and types, without planning it."""
        with self._lock:
            if self._connection.closed:
                self._open()
            with self._deadline(), self._connection.transaction():
                self._connection.execute("SET TRANSACTION READ ONLY")
                self._connection.execute(f"PREPARE {_CHECKED} AS {sql}")
                self._connection.execute(f"DEALLOCATE {_CHECKED}")

    @failing_quietly("PostgreSQL")
    def run(self, sql: str) -> "pa.Table":
        """Run one SELECT and return its result, each column in the Arrow type of its declared type."""
        import pyarrow as pa

        with self._lock:
            described, rows = self._ask(sql)
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(described)
            arrays = [pa.array(column, type=_arrow_type(item)) for item, column in zip(described, columns, strict=True)]
            return pa.Table.from_arrays(arrays, names=[item.name for item in described])

    def again(self) -> "Postgres":
        """Return a separate connection to the same server."""
        return Postgres(self._address, self._timeout_ms / 1000 or None)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _shut(line: socket.socket) -> None:
    with suppress(OSError):  # the server was faster
        line.shutdown(socket.SHUT_RDWR)


def _arrow_type(column: Any) -> "pa.DataType":
    """Return the Arrow type of a server type number, never from values. A numeric without scale is an integer sum."""
    import pyarrow as pa

    if column.type_code == 1700:
        return pa.decimal128(column.precision or 38, column.scale or 0)
    return {
        16: pa.bool_(), 20: pa.int64(), 21: pa.int64(), 23: pa.int64(), 700: pa.float64(), 701: pa.float64(),
        25: pa.string(), 1042: pa.string(), 1043: pa.string(), 19: pa.string(),
        1082: pa.date32(), 1114: pa.timestamp("us"), 1184: pa.timestamp("us", "UTC"),
    }[column.type_code]  # fmt: skip
