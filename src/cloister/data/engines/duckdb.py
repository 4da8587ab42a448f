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
import re
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cloister.data.dialect import Dialect, Family, dialect_of, family, is_text
from cloister.data.engines.arrow import datasets_of, parquet_dataset, parts_of
from cloister.data.engines.csv_lines import LONGEST_LINE, CsvFile
from cloister.data.engines.engine import DialectName, failing_quietly
from cloister.data.schema import Table, internal
from cloister.data.views import file_columns, frame_columns, readable, unit_families
from cloister.privacy.errors import BadSchema, BadSource
from cloister.privacy.signing import fingerprint

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
# are not text are left out, and longer ones are not there. One thread, because the parallel reader fails on line breaks
# between quotes.
_CSV = (
    "auto_detect = false, header = true, quote = '\"', escape = '\"', parallel = false, "
    "ignore_errors = true, null_padding = true, strict_mode = false, "
    f"max_line_size = {LONGEST_LINE + 100_000}, buffer_size = {16 * LONGEST_LINE}"
)
# Files of one folder may declare different types: a common one is found. Casts of timestamps, dates and decimals to it
# may fail, so files that need one are read by Arrow.
_PARQUET = "union_by_name = true, hive_types_autocast = false, utf8_validation = 'replace'"
_PARQUET_TYPES = "SELECT DISTINCT name, duckdb_type, COALESCE(logical_type, converted_type, '') FROM parquet_schema({})"
_tried: set[str] = set()  # digests of statements that read made-up rows without failing
_MOST_TRIED = 100_000
_UNTYPED = '"NULL"'
# At which values a reader of a declared type might fail: its ends, and what is not a number.
_BITS = {
    "TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63, "HUGEINT": 127,
    "UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32, "UBIGINT": 64, "UHUGEINT": 128,
}  # fmt: skip
_SAFELY_CAST = {*_BITS, "BOOLEAN", "FLOAT", "DOUBLE", "VARCHAR"}  # to each other's common type
_EXTREMES = {
    "FLOAT": ("-inf", "inf", "nan", "-3.4028235e38"),
    "DOUBLE": ("-inf", "inf", "nan", "-1.7976931348623157e308"),
    "VARCHAR": ("", "-inf", f"{'9' * 60}.{'9' * 60}e999", "9999-02-31T23:59:59Z"),
    "BLOB": ("", "\\xFF", "1", "-1e-999"),
    "BOOLEAN": ("false", "true"),
    "DATE": ("-infinity", "infinity", "5877642-06-25 (BC)", "5881580-07-10"),
    "TIMESTAMP": (
        "-infinity", "infinity", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806", "1677-09-22 00:00:00",
        "2262-04-11 23:47:16.854775806",
    ),
}  # fmt: skip


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
        self._conversions: dict[str, list[_Conversion]] = {}
        self._paths: list[str] = []
        self._folders: list[str] = []
        self._pinned: list[PinnedFiles] = []
        self._csv: list[CsvFile] = []
        self._clean_up: Callable[[], object] = lambda: None
        self._empty: Any = None  # made when a statement is first prepared
        self._folder, self._spill, self._owns_files = "", spill, True
        if spill:
            self._make_folder()
        self._connection = duckdb.connect(":memory:")
        self._connection.execute(f"SET temp_directory = {self._say.text(self._folder)}")
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        if memory_limit is not None:
            self._connection.execute(f"SET memory_limit = {self._say.text(memory_limit)}")
        if threads is not None:
            self._connection.execute(f"SET threads = {int(threads)}")

    def _make_folder(self) -> None:
        self._folder, lock = private_folder()
        self._clean_up = weakref.finalize(self, remove_private_folder, self._folder, lock, os.getpid())

    def add_csv(self, name: str, path: Path) -> None:
        """Add a CSV file. Its first line names the columns and shows the separator; all columns are text.

        Lines that are too long are left out before the first statement runs, into a copy if there are any.
        """
        separator, names = _header(path)
        self._file(path)  # refused if DuckDB would follow its name
        if not self._folder:
            self._make_folder()  # holds a link only
        place = Path(self._folder) / f"{len(self._csv)}.csv{'.gz' * (path.suffix == '.gz')}"
        self._csv.append(CsvFile(path, separator, place, in_memory=not self._spill))
        self._folders.append(f"{self._folder}/")  # what the link leads to may change
        columns = ", ".join(f"{self._say.text(column)}: 'VARCHAR'" for column in names)
        file, option = (
            self._file(place, pinned=True),
            f"delim = {self._say.text(separator)}, columns = {{{columns}}}, {_CSV}",
        )
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

        Files with types at which DuckDB's own reader can fail, or with text that may not be UTF-8, are read by Arrow.
        """
        # A file's minimum and maximum exclude NaN and are only its writer's claim. The optimizer would trust them and
        # drop a comparison with a bound beyond them: values would not be clipped.
        self._connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        source = self._file(path, pinned=pinned)
        if path.is_dir():
            source = self._say.text(f"{path if pinned else path.resolve()}/**/*.parquet")
        if self._has_fragile_types(source, facts):
            self._add_parts(name, [self._by_arrow(source)], facts)
        else:
            self._add(name, f"SELECT * FROM read_parquet({source}, {_PARQUET})")  # noqa: S608

    @failing_quietly("DuckDB")
    def _has_fragile_types(self, source: str, facts: Table | None) -> bool:
        """Return True if DuckDB's reader changes values.

        It casts milliseconds always, and others to the type of another file. Bytes that are not UTF-8 become question
        marks, so that two ids may become one.
        """
        kinds: dict[str, set[str]] = {}
        rows = self._connection.execute(_PARQUET_TYPES.format(source)).fetchall()
        for name, kind, unit in rows:
            if kind is not None and (facts is None or name in facts.columns or name == facts.unit):
                kinds.setdefault(name, set()).add(kind)
                if "MILLIS=MilliSeconds" in unit or unit == "TIMESTAMP_MILLIS":
                    return True
                if kind == "VARCHAR" and _tells_apart(name, facts):
                    return True
        return any(len(some) > 1 and not some <= _SAFELY_CAST for some in kinds.values())

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
        parts = [part for dataset in datasets for part in parts_of(dataset, facts)]
        selects, kinds = list[str](), list[dict[str, str]]()
        conversions = self._conversions.setdefault(name, [])
        for part in parts:
            raw = internal(f"files_{len(self._arrow)}")
            self._connection.register(raw, part.dataset)
            self._arrow[raw] = part.dataset
            selects.append(_select(part.columns, self._say.name(raw), self._say))
            conversions.append(_Conversion(self._kinds(self._say.name(raw)), [part.columns]))
            kinds.append(self._kinds(f"({selects[-1]})"))
        if facts is not None and len(parts) > 1:
            _refuse_unreadable(facts, kinds, self._say)
            families = [self._families(declared) for declared in kinds]
            as_text = any(is_text(each[facts.unit]) for each in families if facts.unit in each)
            for i, part in enumerate(parts):
                read = file_columns(facts, families[i], as_text, self._say)
                conversions[i].steps.append({name: read.get(name, self._say.name(name)) for name in part.columns})
                selects[i] = _select(conversions[i].steps[-1], f"({selects[i]})", self._say)
        both = f"({' UNION ALL BY NAME '.join(selects)})"
        # A column without values has no type in Arrow. Its readability must not depend on that.
        columns = {
            column: "CAST(NULL AS VARCHAR)" if kind == _UNTYPED else self._say.name(column)
            for column, kind in self._kinds(both).items()
        }
        self._frames[name] = _select(columns, both, self._say)
        self._connection.execute(f"CREATE TEMP VIEW {self._say.name(name)} AS {self._frames[name]}")
        self._names.append(name)

    def _families(self, kinds: Mapping[str, str]) -> dict[str, Family]:
        """Return the families of the readable columns of some declared types."""
        return {name: kind_family for name, kind in kinds.items() if (kind_family := family(kind, self._say))}

    def _kinds(self, source: str) -> dict[str, str]:
        """Return the declared types of a table or query."""
        rows = self._connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()  # noqa: S608
        return {row[0]: row[1] for row in rows}

    @failing_quietly("DuckDB")
    def add_arrow(self, name: str, table: "pa.Table", facts: Table | None = None) -> None:
        """Add an Arrow table in memory, read in place; with `facts`, in the types of the schema."""
        self._connection.register(name, table)
        self._arrow[name] = table
        self._names.append(name)
        if facts is None:
            return
        kinds = self._kinds(self._say.name(name))
        expressions = frame_columns(facts, self._families(kinds), self._say)
        columns = {column: expressions.get(column, self._say.name(column)) for column in kinds}
        self._connection.unregister(name)
        raw = internal(f"frame_{len(self._arrow)}")
        self._arrow[raw] = self._arrow.pop(name)
        self._connection.register(raw, table)
        self._conversions[name] = [_Conversion(kinds, [columns])]
        self._frames[name] = _select(columns, self._say.name(raw), self._say)
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
    def failing(self, table: str, readers: Mapping[str, Callable[[str], str]]) -> list[str]:
        """Return the columns whose readers fail on made-up values, converted as those of the file or frame are.

        Columns that are read alike are tried once in a process: it takes about a millisecond each.
        """
        import duckdb

        def fails(statements: Collection[str]) -> bool:
            hashes = [f"SELECT HASH(x) FROM ({sql})" for sql in sorted(statements)]  # noqa: S608
            try:
                with self._lock:
                    self._connection.execute(" UNION ALL ".join(hashes)).fetchall()
            except duckdb.Error:
                return True
            return False

        conversions = self._conversions.get(table) or [_Conversion(self.columns(table), [])]
        reading = dict[str, str]()
        for name, read in readers.items():
            # A file in which a column has no type does not decide its type.
            parts = [
                part.made_up(name, self._say) for part in conversions if part.kinds.get(name, _UNTYPED) != _UNTYPED
            ]
            parts = parts or [_select({name: "CAST(NULL AS VARCHAR)"}, "(VALUES (1))", self._say)]
            reading[name] = read(f"({' UNION ALL '.join(parts)})").replace(self._say.name(name), '"x"')
        untried = {sql for sql in reading.values() if fingerprint(sql) not in _tried}
        failing = {sql for sql in untried if fails([sql])} if untried and fails(untried) else set()
        if len(_tried) > _MOST_TRIED:
            _tried.clear()
        _tried.update(map(fingerprint, untried - failing))
        return [name for name, sql in reading.items() if sql in failing]

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
            for file in self._csv:
                file.ready()
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
        other._owns_files = False
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
        if self._owns_files:
            for file in self._csv:
                file.close()
        self._clean_up()


def _tells_apart(name: str, facts: Table | None) -> bool:
    """Return True if texts with a question mark have a meaning of their own in a column.

    They are no number, no date and no boolean, and mostly no category: there, such a text is missing anyway.
    """
    column = None if facts is None or name == facts.unit else facts.columns.get(name)
    if column is None or (column.type == "text" and column.categories is None):
        return True
    return column.type == "text" and any("?" in str(category) for category in column.categories or ())


def _select(columns: Mapping[str, str], source: str, say: Dialect) -> str:
    """Return a query that selects columns, each read by its SQL; with no columns it has the same rows."""
    selected = columns or {internal("row"): "1"}
    listed = ", ".join(f"{sql} AS {say.name(column)}" for column, sql in selected.items())
    return f"SELECT {listed} FROM {source}"  # noqa: S608


def _refuse_unreadable(table: Table, parts: Sequence[Mapping[str, str]], say: Dialect) -> None:
    """Refuse files of which some declare a type that cannot be read: it would be cast to the type of the others.

    Raises:
        BadSchema: names the column and the type.
    """
    wanted = {name: (column.type, readable(column.type)) for name, column in table.columns.items()}
    wanted |= {} if table.unit is None else {table.unit: ("unit", unit_families())}  # type: ignore[dict-item]
    for kinds in parts:
        for name, kind in kinds.items():
            if name in wanted and kind != _UNTYPED and family(kind, say) not in wanted[name][1]:
                raise BadSchema(
                    f"{table.name}.{name} is declared {kind:.60} in some files, which cannot be read as "
                    f"{wanted[name][0]}. Save them with the type of the others."
                )


@dataclass(frozen=True, slots=True)
class _Conversion:
    """Conversion of the columns of a file or frame in DuckDB, before a view reads them.

    Attributes:
        kinds: the declared types.
        steps: the SQL of each column, one after the other.
    """

    kinds: Mapping[str, str]
    steps: list[Mapping[str, str]]

    def made_up(self, column: str, say: Dialect) -> str:
        """Return the conversion of made-up values of a column: NULL, and extreme values of its type."""
        kind = self.kinds[column]
        listed = ", ".join(f"({say.text(value)})" for value in _extremes(kind))
        select = _select({column: f"TRY_CAST(c AS {kind})"}, f"(VALUES (NULL), {listed}) AS t(c)", say)
        for step in self.steps:
            select = _select({column: step[column]}, f"({select})", say)
        return select


def _extremes(kind: str) -> Sequence[str]:
    """Return extreme values of a declared type as text."""
    if kind in _BITS:
        most = 2 ** _BITS[kind]
        return ("0", str(most - 1)) if kind.startswith("U") else (str(-most), str(most - 1), "-1")
    if digits := re.fullmatch(r"DECIMAL\(([0-9]+),([0-9]+)\)", kind):
        precision, scale = map(int, digits.groups())
        most_text = f"{'9' * (precision - scale)}.{'9' * scale}"
        return most_text, f"-{most_text}", "0", f"-0.{'1'.rjust(scale, '0')}"
    return _EXTREMES["TIMESTAMP" if kind.startswith("TIMESTAMP") else kind if kind in _EXTREMES else "VARCHAR"]


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
