"""DuckDB: the engine inside this process, over files, Arrow tables and DuckDB's own databases.

It reads only what it was given: once the tables are added, no statement can reach files, extensions or settings. Data
that does not fit into memory is spilled to a folder that only this user can read and that is removed on close, or by
the next process if this one was killed. With `spill=False` no row reaches a disk, and a statement that does not fit
into memory fails.
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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cloister.data.dialect import Dialect, Family, dialect_of, family
from cloister.data.engines.arrow import datasets_of, parquet_dataset, parts_of
from cloister.data.engines.engine import DialectName, failing_quietly
from cloister.data.schema import Table, internal
from cloister.data.views import file_columns, frame_columns
from cloister.privacy.errors import BadSource

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset

    from cloister.data.pinned_files import PinnedFiles, PinnedTable

__all__ = ["DuckDB", "private_folder", "remove_orphaned_spill", "remove_private_folder"]

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
# No line may fail and no inference may depend on rows: everything is text, short lines are padded with NULL, lines that
# are not text or too long are left out. One thread, because the parallel reader fails on line breaks between quotes.
_CSV = (
    "auto_detect = false, header = true, quote = '\"', escape = '\"', parallel = false, "
    "ignore_errors = true, null_padding = true, strict_mode = false"
)
# Files of one folder may declare different types: a common one is found. Casts of timestamps to it may fail, so files
# that need one are read by Arrow.
_PARQUET = "union_by_name = true, hive_types_autocast = false, utf8_validation = 'replace'"
_PARQUET_TYPES = "SELECT DISTINCT name, duckdb_type, COALESCE(logical_type, converted_type, '') FROM parquet_schema({})"
_TEMPORAL = ("DATE", "TIMESTAMP")


class DuckDB:
    """Tables in files and in memory, read by DuckDB.

    Args:
        memory_limit: largest memory use, such as "2GB"; by default DuckDB's own limit.
        threads: number of threads; by default one per core.
        spill: if True, rows that do not fit into memory may be written to a temporary folder, unencrypted. If False, a
            statement that needs more memory than the limit fails.
    """

    dialect: ClassVar[DialectName] = "duckdb"

    @failing_quietly("DuckDB")
    def __init__(self, memory_limit: str | None = None, threads: int | None = None, *, spill: bool = True) -> None:
        import duckdb

        self._say = dialect_of("duckdb")
        self._lock = threading.Lock()
        self._names: list[str] = []
        self._arrow: dict[str, object] = {}
        self._frames: dict[str, str] = {}
        self._paths: list[str] = []
        self._folders: list[str] = []
        self._pinned: list[PinnedFiles] = []
        self._clean_up: Callable[[], object] = lambda: None
        self._empty: Any = None  # made when a statement is first prepared
        folder = ""
        if spill:
            folder, lock = private_folder()
            self._clean_up = weakref.finalize(self, remove_private_folder, folder, lock, os.getpid())
        self._connection = duckdb.connect(":memory:")
        self._connection.execute(f"SET temp_directory = {self._say.text(folder)}")
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        if memory_limit is not None:
            self._connection.execute(f"SET memory_limit = {self._say.text(memory_limit)}")
        if threads is not None:
            self._connection.execute(f"SET threads = {int(threads)}")

    def add_csv(self, name: str, path: Path) -> None:
        """Add a CSV file. Its first line names the columns and shows the separator; all columns are text."""
        separator, names = _header(path)
        columns = ", ".join(f"{self._say.text(column)}: 'VARCHAR'" for column in names)
        file, option = self._file(path), f"delim = {self._say.text(separator)}, columns = {{{columns}}}, {_CSV}"
        self._add(name, f"SELECT * FROM read_csv({file}, {option})")  # noqa: S608

    def add_pinned(self, name: str, table: "PinnedTable", facts: Table | None = None) -> None:
        """Add Parquet files that are held open, read as by `add_parquet`. They are released on close."""
        self._pinned.append(table.source)
        self._paths += map(str, table.files)
        self.add_parquet(name, table.path, facts, pinned=True)

    def unchanged(self) -> bool:
        """Return True if files that are held open are still where they were found. Other files are not checked."""
        return all(pinned.unchanged() for pinned in dict.fromkeys(self._pinned))

    def add_parquet(self, name: str, path: Path, facts: Table | None = None, *, pinned: bool = False) -> None:
        """Add a Parquet file, or all Parquet files under a folder; with `facts`, only columns that the schema names.

        Files with timestamps at which DuckDB's own reader can fail are read by Arrow.
        """
        # A file's minimum and maximum exclude NaN and are only its writer's claim. The optimizer would trust them and
        # drop a comparison with a bound beyond them: values would not be clipped.
        self._connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        source = self._file(path, pinned=pinned)
        if path.is_dir():
            source = self._say.text(f"{path if pinned else path.resolve()}/**/*.parquet")
        if self._has_fragile_moments(source, facts):
            self._add_parts(name, [self._by_arrow(source)], facts)
        else:
            self._add(name, f"SELECT * FROM read_parquet({source}, {_PARQUET})")  # noqa: S608

    @failing_quietly("DuckDB")
    def _has_fragile_moments(self, source: str, facts: Table | None) -> bool:
        """Return True if DuckDB's reader casts timestamps: milliseconds always, others to the type of another file."""
        kinds: dict[str, set[str]] = {}
        rows = self._connection.execute(_PARQUET_TYPES.format(source)).fetchall()
        for name, kind, unit in rows:
            if kind is not None and (facts is None or name in facts.columns):
                kinds.setdefault(name, set()).add(kind)
                if "MILLIS=MilliSeconds" in unit or unit == "TIMESTAMP_MILLIS":
                    return True
        return any(len(some) > 1 and any(kind.startswith(_TEMPORAL) for kind in some) for some in kinds.values())

    @failing_quietly("DuckDB")
    def _by_arrow(self, source: str) -> "pyarrow.dataset.Dataset":
        rows = self._connection.execute(f"SELECT file FROM glob({source}) ORDER BY 1").fetchall()  # noqa: S608
        files, scan = [file for (file,) in rows], f"read_parquet({source}, {_PARQUET})"
        columns = {row[0] for row in self._connection.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()}  # noqa: S608
        folders = {part.partition("=")[0] for part in Path(files[0]).parent.parts if "=" in part}
        return parquet_dataset(files, sorted(folders & columns))

    def add_dataset(self, name: str, dataset: "pyarrow.dataset.Dataset", facts: Table | None = None) -> None:
        """Add an Arrow dataset of files, read in place, and only the columns that the schema names.

        Raises:
            BadSource: every file of it could fail on a row.
        """
        self._add_parts(name, datasets_of(dataset), facts)

    @failing_quietly("DuckDB")
    def _add_parts(self, name: str, datasets: Sequence["pyarrow.dataset.Dataset"], facts: Table | None) -> None:
        """Add files of Arrow datasets as one table; if they declare different types, in the types of the schema."""
        selects, parts = [], [part for dataset in datasets for part in parts_of(dataset, facts)]
        for part in parts:
            raw = internal(f"files_{len(self._arrow)}")
            self._connection.register(raw, part.dataset)
            self._arrow[raw] = part.dataset
            select = _select(part.columns, self._say.name(raw), self._say)
            if facts is not None and len(parts) > 1:
                read = file_columns(facts, self._families(f"({select})"), self._say)
                columns = {name: read.get(name, self._say.name(name)) for name in part.columns}
                select = _select(columns, f"({select})", self._say)
            selects.append(select)
        both = f"({' UNION ALL BY NAME '.join(selects)})"
        # A column without values has no type in Arrow. Its readability must not depend on that.
        rows = self._connection.execute(f"DESCRIBE SELECT * FROM {both}").fetchall()  # noqa: S608
        columns = {row[0]: "CAST(NULL AS VARCHAR)" if row[1] == '"NULL"' else self._say.name(row[0]) for row in rows}
        self._frames[name] = _select(columns, both, self._say)
        self._connection.execute(f"CREATE TEMP VIEW {self._say.name(name)} AS {self._frames[name]}")
        self._names.append(name)

    def _families(self, source: str) -> dict[str, Family]:
        """Return the families of the readable columns of a table or query."""
        rows = self._connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()  # noqa: S608
        return {row[0]: column_family for row in rows if (column_family := family(row[1], self._say)) is not None}

    @failing_quietly("DuckDB")
    def add_arrow(self, name: str, table: "pa.Table", facts: Table | None = None) -> None:
        """Add an Arrow table in memory, read in place; with `facts`, in the types of the schema."""
        self._connection.register(name, table)
        self._arrow[name] = table
        self._names.append(name)
        if facts is None:
            return
        rows = self._connection.execute(f"DESCRIBE {self._say.name(name)}").fetchall()
        expressions = frame_columns(facts, self._families(self._say.name(name)), self._say)
        listed = ", ".join(
            f"{expressions.get(row[0], self._say.name(row[0]))} AS {self._say.name(row[0])}" for row in rows
        )
        self._connection.unregister(name)
        raw = internal(f"frame_{len(self._arrow)}")
        self._arrow[raw] = self._arrow.pop(name)
        self._connection.register(raw, table)
        self._frames[name] = f"SELECT {listed} FROM {self._say.name(raw)}"  # noqa: S608
        self._connection.execute(f"CREATE TEMP VIEW {self._say.name(name)} AS {self._frames[name]}")

    @failing_quietly("DuckDB")
    def attach(self, path: Path) -> None:
        """Add every table and view of a DuckDB file, opened read-only."""
        self._connection.execute(f"ATTACH {self._file(path)} AS cloister_source (READ_ONLY)")
        rows = self._connection.execute(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_catalog = 'cloister_source' AND table_schema = 'main' ORDER BY ALL"
        ).fetchall()
        for (name,) in rows:
            self._add(name, f"SELECT * FROM cloister_source.main.{self._say.name(name)}")  # noqa: S608

    @failing_quietly("DuckDB")
    def seal(self) -> None:
        """Block access to everything but the tables."""
        for setting, places in (("allowed_paths", self._paths), ("allowed_directories", self._folders)):
            self._connection.execute(f"SET {setting} = [{', '.join(map(self._say.text, places))}]")
        for statement in _SEAL:
            self._connection.execute(statement)

    def _file(self, path: Path, *, pinned: bool = False) -> str:
        full_path = str(path if pinned else path.resolve())  # do not resolve links to files that are held open
        if any(sign in full_path for sign in "*?[]{}"):
            raise BadSource(f"{path} has a wildcard in its name, which DuckDB would follow. Rename it.")
        (self._folders if path.is_dir() else self._paths).append(full_path + "/" * path.is_dir())
        return self._say.text(full_path)

    @failing_quietly("DuckDB")
    def _add(self, name: str, query: str) -> None:
        self._connection.execute(f"CREATE VIEW {self._say.name(name)} AS {query}")
        self._names.append(name)

    def tables(self) -> list[str]:
        """Return the names of the tables added."""
        return list(self._names)

    @failing_quietly("DuckDB")
    def columns(self, table: str) -> dict[str, str]:
        """Return names and declared types, from the files' metadata."""
        if table not in self._names:
            return {}
        with self._lock:
            rows = self._connection.execute(f"DESCRIBE {self._say.name(table)}").fetchall()
        return {row[0]: row[1] for row in rows}

    def place(self, table: str) -> str:
        """Return the quoted name."""
        return self._say.name(table)

    @failing_quietly("DuckDB")
    def prepare(self, sql: str) -> None:
        """Run a statement on empty tables with the same columns, in a separate database.

        DuckDB plans with statistics of the values, and could fail on them. Empty tables have none.
        """
        with self._lock:
            if self._empty is None:
                self._empty = self._empty_tables()
            self._empty.execute(sql).fetchall()

    def _empty_tables(self) -> Any:
        """Return a database in memory with empty tables of the same names and readable declared types."""
        import duckdb

        empty = duckdb.connect(":memory:", config={"enable_external_access": "false", "threads": "1"})
        empty.execute("SET TimeZone = 'UTC'")
        for name in self._names:
            rows = self._connection.execute(f"DESCRIBE {self._say.name(name)}").fetchall()
            kinds = {row[0]: row[1] for row in rows if family(row[1], self._say) is not None}
            listed = ", ".join(f"{self._say.name(column)} {kind}" for column, kind in kinds.items())
            empty.execute(f"CREATE TABLE {self._say.name(name)} ({listed or self._say.name(internal('row')) + ' INT'})")
        return empty

    @failing_quietly("DuckDB")
    def run(self, sql: str) -> "pa.Table":
        """Run one SELECT and return its result."""
        from duckdb import StatementType

        with self._lock:
            kinds = [statement.type for statement in self._connection.extract_statements(sql)]
            if kinds != [StatementType.SELECT]:
                raise ValueError("only one SELECT is run at a time")
            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(self._read, sql)
                try:
                    return answer.result()
                except KeyboardInterrupt:  # DuckDB itself would only notice at the end
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
        """Return a separate connection to the same tables, under the same limits. Close it before this one."""
        other = copy(self)
        other._lock, other._clean_up, other._empty, other._pinned = threading.Lock(), lambda: None, None, []
        other._connection = self._connection.cursor()
        for name, table in self._arrow.items():  # these belong to a connection, views to all
            other._connection.register(name, table)
        for name, query in self._frames.items():
            other._connection.execute(f"CREATE TEMP VIEW {self._say.name(name)} AS {query}")
        return other

    def close(self) -> None:
        """Close the connection, release registered tables, and remove spilled data."""
        self._connection.close()
        if self._empty is not None:
            self._empty.close()
        for pinned in self._pinned:
            pinned.close()
        self._clean_up()


def _select(columns: Mapping[str, str], source: str, say: Dialect) -> str:
    """Return a query that selects columns, each read by its SQL; with no columns it has the same rows."""
    selected = columns or {internal("row"): "1"}
    listed = ", ".join(f"{sql} AS {say.name(column)}" for column, sql in selected.items())
    return f"SELECT {listed} FROM {source}"  # noqa: S608


def remove_orphaned_spill() -> int:
    """Remove spill folders left behind by this user's ended processes; return their number.

    A living process holds a lock on its folder, which the system releases when it is killed.
    """
    removed, long_ago = 0, time.time() - _SETTLED_S
    for folder in Path(tempfile.gettempdir()).glob(f"{_SPILL}*"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's, or removed meanwhile
            continue
        try:
            status = os.fstat(lock)
            if status.st_uid == os.getuid() and status.st_mtime < long_ago:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
        except BlockingIOError:  # in use
            pass
        finally:
            os.close(lock)
    return removed


def private_folder() -> tuple[str, int]:
    """Create a folder that only this user can read, and the lock that marks it as in use."""
    remove_orphaned_spill()
    folder = tempfile.mkdtemp(prefix=_SPILL)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock


def remove_private_folder(folder: str, lock: int, process: int) -> None:
    """Remove a private folder, and release its lock."""
    if os.getpid() == process:  # a forked child ends before its parent, which may still need the folder
        shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _header(path: Path) -> tuple[str, list[str]]:
    """Return the separator and the column names of a CSV file, from its first line alone."""
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
