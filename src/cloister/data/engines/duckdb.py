"""DuckDB: the engine inside this process, over files, Arrow tables and DuckDB's own databases.

It reads what it was given and nothing else: once the tables are there, files, extensions and settings are out of reach
of any statement. What does not fit into memory is spilled to a folder that only this user can read and that is removed
on close, or by the next process if this one was killed; with `spill=False` no row reaches a disk, and a statement that
does not fit into memory fails.
"""

import csv
import fcntl
import gzip
import io
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from cloister.data.engines.engine import Dialect, failing_quietly
from cloister.data.schema import Table, internal
from cloister.data.tongue import family, tongue
from cloister.data.views import frame_columns
from cloister.privacy.errors import BadSource

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset

__all__ = ["DuckDB", "remove_orphaned_spill"]

_SEAL = (
    "SET enable_external_access = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET python_enable_replacements = false",
    "SET lock_configuration = true",
)
_SPILL = "cloister-spill-"
_SETTLED_S = 60  # a folder younger than this may be about to be locked
# No line may fail and no guess may depend on rows: everything is text, short lines are filled up with NULL, lines that
# are no text or endless are left out. One thread, because the parallel reader fails on line breaks between quotes.
_CSV = (
    "auto_detect = false, header = true, quote = '\"', escape = '\"', parallel = false, "
    "ignore_errors = true, null_padding = true, strict_mode = false"
)
# Files of one folder may declare different types: a common one is found, and no value is cast to another file's type.
_PARQUET = "union_by_name = true, hive_types_autocast = false, utf8_validation = 'replace'"


class DuckDB:
    """Tables in files and in memory, read by DuckDB.

    Args:
        memory_limit: how much memory it may use, such as "2GB"; by default DuckDB's own limit.
        threads: on how many threads it runs; by default one a core.
        spill: whether rows that do not fit into memory may be written to a temporary folder, in clear. Without, a
            statement that needs more memory than the limit fails.
    """

    dialect: ClassVar[Dialect] = "duckdb"

    @failing_quietly("DuckDB")
    def __init__(self, memory_limit: str | None = None, threads: int | None = None, *, spill: bool = True) -> None:
        import duckdb

        self._say = tongue("duckdb")
        self._lock = threading.Lock()
        self._names: list[str] = []
        self._arrow: dict[str, object] = {}
        self._frames: dict[str, str] = {}
        self._paths: list[str] = []
        self._folders: list[str] = []
        self._clean_up: Callable[[], object] = lambda: None
        folder = ""
        if spill:
            folder, lock = _spill_folder()
            self._clean_up = weakref.finalize(self, _remove, folder, lock, os.getpid())
        self._connection = duckdb.connect(":memory:")
        self._connection.execute(f"SET temp_directory = {self._say.text(folder)}")
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        if memory_limit is not None:
            self._connection.execute(f"SET memory_limit = {self._say.text(memory_limit)}")
        if threads is not None:
            self._connection.execute(f"SET threads = {int(threads)}")

    def add_csv(self, name: str, path: Path) -> None:
        """A CSV file. Its first line names the columns and shows the separator; all columns are text."""
        separator, names = _header(path)
        columns = ", ".join(f"{self._say.text(column)}: 'VARCHAR'" for column in names)
        place, option = self._file(path), f"delim = {self._say.text(separator)}, columns = {{{columns}}}, {_CSV}"
        self._add(name, f"SELECT * FROM read_csv({place}, {option})")  # noqa: S608

    def add_parquet(self, name: str, path: Path) -> None:
        """A Parquet file, or all Parquet files under a folder."""
        # Its least and greatest values leave NaN out, and are its writer's word. The optimizer would believe them, and
        # drop a comparison with a bound that they lie within: what was to be clipped would not be.
        self._connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        place = self._file(path)
        if path.is_dir():
            place = self._say.text(f"{path.resolve()}/**/*.parquet")
        self._add(name, f"SELECT * FROM read_parquet({place}, {_PARQUET})")  # noqa: S608

    @failing_quietly("DuckDB")
    def add_arrow(self, name: str, table: "pa.Table | pyarrow.dataset.Dataset", facts: Table | None = None) -> None:
        """An Arrow table or dataset, read where it lies; with `facts`, in the types that the schema gives it."""
        self._connection.register(name, table)
        self._arrow[name] = table
        self._names.append(name)
        if facts is None:
            return
        rows = self._connection.execute(f"DESCRIBE {self._say.name(name)}").fetchall()
        declared = {row[0]: known for row in rows if (known := family(row[1], self._say)) is not None}
        shown = frame_columns(facts, declared, self._say)
        listed = ", ".join(f"{shown.get(row[0], self._say.name(row[0]))} AS {self._say.name(row[0])}" for row in rows)
        self._connection.unregister(name)
        raw = internal(f"frame_{len(self._arrow)}")
        self._arrow[raw] = self._arrow.pop(name)
        self._connection.register(raw, table)
        self._frames[name] = f"SELECT {listed} FROM {self._say.name(raw)}"  # noqa: S608
        self._connection.execute(f"CREATE TEMP VIEW {self._say.name(name)} AS {self._frames[name]}")

    @failing_quietly("DuckDB")
    def attach(self, path: Path) -> None:
        """Every table and view of a DuckDB file, opened for reading."""
        self._connection.execute(f"ATTACH {self._file(path)} AS cloister_source (READ_ONLY)")
        found = self._connection.execute(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_catalog = 'cloister_source' AND table_schema = 'main' ORDER BY ALL"
        ).fetchall()
        for (name,) in found:
            self._add(name, f"SELECT * FROM cloister_source.main.{self._say.name(name)}")  # noqa: S608

    @failing_quietly("DuckDB")
    def seal(self) -> None:
        """Put everything but the tables out of reach."""
        for setting, places in (("allowed_paths", self._paths), ("allowed_directories", self._folders)):
            self._connection.execute(f"SET {setting} = [{', '.join(map(self._say.text, places))}]")
        for statement in _SEAL:
            self._connection.execute(statement)

    def _file(self, path: Path) -> str:
        whole = str(path.resolve())
        if any(sign in whole for sign in "*?[]{}"):
            raise BadSource(f"{path} has a wildcard in its name, which DuckDB would follow. Rename it.")
        (self._folders if path.is_dir() else self._paths).append(whole + "/" * path.is_dir())
        return self._say.text(whole)

    @failing_quietly("DuckDB")
    def _add(self, name: str, query: str) -> None:
        self._connection.execute(f"CREATE VIEW {self._say.name(name)} AS {query}")
        self._names.append(name)

    def tables(self) -> list[str]:
        """The names of the tables it was given."""
        return list(self._names)

    @failing_quietly("DuckDB")
    def columns(self, table: str) -> dict[str, str]:
        """Names and declared types, from the files' metadata."""
        if table not in self._names:
            return {}
        with self._lock:
            rows = self._connection.execute(f"DESCRIBE {self._say.name(table)}").fetchall()
        return {row[0]: row[1] for row in rows}

    def place(self, table: str) -> str:
        """The quoted name."""
        return self._say.name(table)

    @failing_quietly("DuckDB")
    def run(self, sql: str) -> "pa.Table":
        """Run one SELECT and return what it gives."""
        from duckdb import StatementType

        with self._lock:
            kinds = [statement.type for statement in self._connection.extract_statements(sql)]
            if kinds != [StatementType.SELECT]:
                raise ValueError("only one SELECT is run at a time")
            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(self._read, sql)
                try:
                    return answer.result()
                except KeyboardInterrupt:  # DuckDB itself would only notice when it is done
                    self._connection.interrupt()
                    raise

    def _read(self, sql: str) -> "pa.Table":
        self._connection.execute("BEGIN TRANSACTION READ ONLY")
        try:
            return self._connection.sql(sql).to_arrow_table()
        finally:
            self._connection.execute("ROLLBACK")

    @failing_quietly("DuckDB")
    def again(self) -> "DuckDB":
        """A connection of its own to the same tables, under the same limits. Close it before this one."""
        other = copy(self)
        other._lock, other._clean_up = threading.Lock(), lambda: None
        other._connection = self._connection.cursor()
        for name, table in self._arrow.items():  # these belong to a connection, views to all
            other._connection.register(name, table)
        for name, query in self._frames.items():
            other._connection.execute(f"CREATE TEMP VIEW {self._say.name(name)} AS {query}")
        return other

    def close(self) -> None:
        """Close the connection; registered tables are let go, and what was spilled is removed."""
        self._connection.close()
        self._clean_up()


def remove_orphaned_spill() -> int:
    """Remove the spill folders of this user's processes that ended without removing them; return how many there were.

    A living process holds a lock on its folder, which the system releases when it is killed.
    """
    removed, long_ago = 0, time.time() - _SETTLED_S
    for folder in Path(tempfile.gettempdir()).glob(f"{_SPILL}*"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's, or removed meanwhile
            continue
        try:
            seen = os.fstat(lock)
            if seen.st_uid == os.getuid() and seen.st_mtime < long_ago:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
        except BlockingIOError:  # in use
            pass
        finally:
            os.close(lock)
    return removed


def _spill_folder() -> tuple[str, int]:
    """A new folder that only this user can read, and the lock that says it is in use."""
    remove_orphaned_spill()
    folder = tempfile.mkdtemp(prefix=_SPILL)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock


def _remove(folder: str, lock: int, process: int) -> None:
    if os.getpid() == process:  # a forked child ends before its parent, which may still need the folder
        shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _header(path: Path) -> tuple[str, list[str]]:
    """The separator and the column names of a CSV file, from its first line alone."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            line = file.readline(2**20).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise BadSource(f"the first line of {path} is not readable text. Save the file as UTF-8 CSV.") from None
    separator = max(",;\t|", key=line.count)
    names = next(csv.reader(io.StringIO(line.replace("\r", "\n")), delimiter=separator), [])
    if not all(names) or len({name.lower() for name in names}) < len(names) or not names:
        raise BadSource(f"the first line of {path} must name every column, each differently. Correct it.")
    return separator, names
