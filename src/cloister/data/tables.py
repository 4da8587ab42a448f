"""Open a source of rows together with the schema of its public facts.

    tables = open_tables("visits.parquet", Schema.load("visits.yaml"))
    tables.view("visits")           # the canonical view, as SQL
    tables.engine.run(...)          # run a statement

All problems of the source are found here, from names and declared types alone.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from cloister.data.dialect import Dialect, Family, decimals, dialect_of, family, is_text
from cloister.data.engines.arrow import is_dataset, known_to_duckdb
from cloister.data.engines.engine import Engine
from cloister.data.frames import decoded, from_pandas, refuse_coarse
from cloister.data.schema import Schema, Table
from cloister.data.views import readable, unit_families, view, view_text
from cloister.privacy.errors import BadSchema, BadSource
from cloister.privacy.signing import fingerprint

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Tables", "open_engine", "open_tables"]

_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_DUCKDB = (".duckdb", ".ddb", ".db")
_FRAMES = ("pyarrow", "pandas", "polars", "numpy")


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables in an engine, behind their canonical views.

    Attributes:
        engine: where the rows are.
        schema: the public facts.
        unit_as_text: True if ids are text in every view, False if BIGINT.
    """

    engine: Engine
    schema: Schema
    unit_as_text: bool
    _families: Mapping[str, Mapping[str, Family]] = field(repr=False)

    def view(self, table: str, columns: Collection[str] | None = None) -> exp.Select:
        """Return the canonical view of a table: its columns, and its unit column if any, which is repeated as `UNIT`.

        Args:
            columns: the columns needed, to shorten the statement; by default all. A row with NULL in one of them that
                is not nullable is left out.
        """
        facts = self.schema.tables[table]
        selected = {name: column for name, column in facts.columns.items() if columns is None or name in columns}
        families, source = self._families[table], self.engine.place(table)
        return view(replace(facts, columns=selected), families, source, self.engine.dialect, self.unit_as_text)

    def decimals(self, table: str) -> dict[str, int]:
        """Return the number of decimal places of each column whose declared type states it."""
        say = dialect_of(self.engine.dialect)
        scales = {name: decimals(kind, say) for name, kind in self.engine.columns(table).items()}
        return {name: digits for name, digits in scales.items() if digits is not None}

    def identity(self, table: str) -> str:
        """Return a digest of the public facts that decide how a table's rows are read and to which unit they belong.

        Two states of a schema with equal digests read rows identically. Sizes and rules for synthetic rows are
        excluded: no statement reads them.
        """
        facts = self.schema.tables[table]
        columns = [
            (column.name, column.type, column.bounds, column.categories, column.nullable)
            for column in facts.columns.values()
        ]
        return fingerprint(
            repr((facts.name, facts.unit, facts.max_rows, facts.public, self.schema.unit, sorted(columns)))
        )

    def again(self) -> "Tables":
        """Return the tables over a separate connection, for one task."""
        return replace(self, engine=self.engine.again())

    def close(self) -> None:
        """Close the source."""
        self.engine.close()


def open_tables(
    source: object,
    schema: Schema,
    *,
    memory_limit: str | None = None,
    threads: int | None = None,
    timeout_s: float | None = None,
    spill: bool = True,
) -> Tables:
    """Open a source under its schema. No row is read.

    Args:
        source: a CSV file, a Parquet file or folder, an Arrow table or dataset, a pandas or polars frame, a Spark
            DataFrame; a dict from table name to any of these; a DuckDB file, a postgresql:// address or a Spark
            session, in which the schema's tables are found by name.
        memory_limit, threads, spill: for DuckDB; without `spill`, no row is written to a temporary file, and a
            statement that does not fit into memory fails. timeout_s: for PostgreSQL.

    Raises:
        BadSchema: if the schema has a problem, or the source lacks a table or column, or declares a type from which a
            column cannot be read; all are listed.
        BadSource: if the source cannot be opened at all.
    """
    schema.check()
    engine = open_engine(source, schema, memory_limit, threads, timeout_s, spill)
    try:
        return _checked(engine, schema)
    except BaseException:
        engine.close()
        raise


def _checked(engine: Engine, schema: Schema) -> Tables:
    """Return the tables of an engine if every column can be read, by its declared type and on made-up rows."""
    say, problems = dialect_of(engine.dialect), list[str]()
    families: dict[str, dict[str, Family]] = {}
    for table in schema.tables.values():
        declared = engine.columns(table.name)
        families[table.name] = {
            name: column_family for name, kind in declared.items() if (column_family := family(kind, say)) is not None
        }
        problems += _cut_names(table, say) or _mismatches(table, declared, families[table.name])
    if problems:
        raise _misfit(problems)
    private = [table for table in schema.tables.values() if table.unit is not None]
    as_text = any(is_text(families[table.name][table.unit or ""]) for table in private)
    tables = Tables(engine, schema, as_text, families)
    problems = [problem for table in schema.tables.values() for problem in _failing(tables, table)]
    if problems:
        raise _misfit(problems)
    return tables


def _misfit(problems: Sequence[str]) -> BadSchema:
    listed = "".join(f"\n  {number}. {problem}." for number, problem in enumerate(problems, 1))
    return BadSchema(f"the schema does not fit the source:{listed}")


def _failing(tables: Tables, table: Table) -> list[str]:
    """Return the columns that the engine cannot read in made-up rows of their declared types.

    No true row is read. A reader that fails on a row would reveal that such a row exists.
    """
    columns: dict[str, tuple[str, Table]] = {}
    for name, column in table.columns.items():  # bounds and categories are applied after reading
        alike = replace(column, bounds=None, categories=column.categories and column.categories[:1], nullable=True)
        columns[name] = (column.type, replace(table, unit=None, columns={name: alike}))
    if table.unit is not None:
        columns[table.unit] = ("unit", replace(table, columns={}))
    families, dialect, as_text = tables._families[table.name], tables.engine.dialect, tables.unit_as_text
    readers = {
        name: partial(view_text, replace(facts, name="t"), families, dialect=dialect, unit_as_text=as_text)
        for name, (_, facts) in columns.items()
    }
    return [
        f"{table.name}.{name} cannot be read as {columns[name][0]}: the engine fails on values of its declared type. "
        "Convert it"
        for name in tables.engine.failing(table.name, readers)
    ]


def _cut_names(table: Table, say: Dialect) -> list[str]:
    names = [table.name, *([] if table.unit is None else [table.unit]), *table.columns]
    return [
        f"{table.name:.60}: {say.dialect} reads {say.longest_name} bytes of a name, and {name:.60}… has more. Rename it"
        for name in names
        if say.is_cut(name)
    ]


def _mismatches(table: Table, declared: Mapping[str, str], families: Mapping[str, Family]) -> list[str]:
    if not declared:
        return [f"there is no table {table.name} in the source"]
    wanted = {column.name: (column.type, readable(column.type)) for column in table.columns.values()}
    if table.unit is not None:
        wanted = {table.unit: ("unit", unit_families()), **wanted}  # type: ignore[dict-item]
    problems = []
    for name, (kind, possible) in wanted.items():
        if name not in declared:
            problems.append(f"there is no column {table.name}.{name} in the source")
        elif families.get(name) not in possible:
            problems.append(f"{table.name}.{name} is declared {declared[name]:.60}, which cannot be read as {kind}")
    return problems


def open_engine(
    source: object,
    schema: Schema | None = None,
    memory_limit: str | None = None,
    threads: int | None = None,
    timeout_s: float | None = None,
    spill: bool = True,
) -> Engine:
    """Return the engine that holds a source; without a schema, only to read names and declared types."""
    if _is_address(source):
        from cloister.data.engines.postgres import Postgres

        return Postgres(str(source), timeout_s)
    if _home(source) == "pyspark" and hasattr(source, "catalog"):
        source = _session_tables(source, schema)
    named = source if isinstance(source, Mapping) else {_only_name(source, schema): source}
    spark = [_home(table) == "pyspark" for table in named.values()]
    if not named or any(spark) != all(spark):
        raise BadSource("a dict names one or more tables, all in Spark or none of them. Save the others to Parquet.")
    if all(spark):
        from cloister.data.engines.spark import Spark

        return Spark(named)
    return _duckdb(named, schema, memory_limit, threads, spill)


def _is_address(source: object) -> bool:
    return isinstance(source, str) and source.startswith(("postgresql://", "postgres://"))


def _home(source: object) -> str:
    """Return the package of an object's class, compared by name so that none has to be imported."""
    return type(source).__module__.partition(".")[0]


def _session_tables(session: Any, schema: Schema | None) -> dict[str, Any]:
    if schema is None:
        raise BadSource("a Spark session holds too many tables to choose from. Give the DataFrames by name.")
    say = dialect_of("spark")
    return {
        name: session.table(say.name(name)) for name in schema.tables if session.catalog.tableExists(say.name(name))
    }


def _only_name(source: object, schema: Schema | None) -> str:
    """Return the name of the only table of a source: as in the schema, or as its file."""
    if _is_database(source) or schema is None:
        return Path(source).name.partition(".")[0] if isinstance(source, str | os.PathLike) else "table"
    if len(schema.tables) != 1:
        raise BadSource(
            f"the schema has {len(schema.tables)} tables and the source one. Open a dict: {{'visits': 'visits.csv'}}."
        )
    return next(iter(schema.tables))


def _is_database(source: object) -> bool:
    return isinstance(source, str | os.PathLike) and str(source).lower().endswith(_DUCKDB)


def _duckdb(
    named: Mapping[str, object], schema: Schema | None, memory: str | None, threads: int | None, spill: bool
) -> Engine:
    from cloister.data.engines.duckdb import DuckDB
    from cloister.data.pinned_files import PinnedTable

    engine = DuckDB(memory, threads, spill=spill)
    try:
        for name, source in named.items():
            table = None if schema is None else schema.tables.get(name)
            if _home(source) == "pyarrow" and is_dataset(source):
                engine.add_dataset(name, source, table)
            elif _home(source) in _FRAMES:
                engine.add_arrow(name, _arrow(source, table), table)
            elif isinstance(source, PinnedTable):
                engine.add_pinned(name, source, table)
            elif isinstance(source, str | os.PathLike):
                _add_file(engine, name, Path(source), table)
            else:
                raise BadSource(f"a {type(source).__name__} cannot be opened. See `help(cloister.data.open_tables)`.")
        engine.seal()
    except BaseException:
        engine.close()
        raise
    return engine


def _add_file(engine: Any, name: str, path: Path, table: Table | None) -> None:
    if not path.exists():
        raise BadSource(f"there is no file {path}. Check the path.")
    ending = path.name.lower()
    if ending.endswith(_CSV) and path.is_file():
        engine.add_csv(name, path)
    elif ending.endswith((".parquet", ".pq")) or path.is_dir():
        engine.add_parquet(name, path, table)
    elif _is_database(path):
        engine.attach(path)
    else:
        endings = ", ".join((*_CSV, ".parquet", *_DUCKDB))
        raise BadSource(f"the kind of file cannot be seen from the name of {path}. Name it with one of {endings}.")


def _arrow(frame: Any, table: Table | None) -> "pa.Table":
    """Convert a frame to Arrow without copying its numbers; only the columns that the schema names."""
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        columns = {name: frame.column(name) for name in _wanted(frame.column_names, table)}
    elif _home(frame) == "polars" and hasattr(frame, "to_arrow") and hasattr(frame, "columns"):
        columns = {name: _from_polars(name, frame.get_column(name)) for name in _wanted(frame.columns, table)}
    elif _home(frame) == "pandas" and hasattr(frame, "columns"):
        if table is not None:
            refuse_coarse(table, frame)
        columns = {name: from_pandas(frame[name], _kind(name, table)) for name in _wanted(list(frame.columns), table)}
    else:
        raise BadSource(f"a {type(frame).__name__} is no table. Give a pandas or polars DataFrame or an Arrow table.")
    return pa.table({name: _valid(name, column) for name, column in columns.items()})


def _from_polars(name: str, column: Any) -> Any:
    import pyarrow as pa

    try:
        column.clear().to_arrow()  # no row: it fails by the type alone
    except Exception:
        raise BadSource(
            f"the column {name:.60} is {column.dtype!s:.60}, which cannot be read. Save it as plain values."
        ) from None
    return pa.chunked_array(column.to_arrow())


def _kind(name: str, table: Table | None) -> str | None:
    """Return the type of a column in the schema, `unit` for ids; None without a schema."""
    if table is None:
        return None
    return "unit" if name == table.unit else table.columns[name].type


def _wanted(names: Sequence[str], table: Table | None) -> list[str]:
    return [name for name in names if table is None or name in table.columns or name == table.unit]


def _valid(name: str, column: Any) -> Any:
    """Replace cells that make DuckDB fail by NULL: text that is not UTF-8, and timestamps beyond its microseconds.

    A column of only NULL becomes text, and a type that DuckDB lacks one that it has.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    column = decoded(column)
    if known_to_duckdb(name, column.type) != column.type:
        column = column.cast(known_to_duckdb(name, column.type))
    if column.type == pa.string_view():
        column = column.cast(pa.large_binary()).cast(pa.large_string(), safe=False)
    if pa.types.is_timestamp(column.type) and column.type.unit in ("s", "ms"):
        ticks, most = column.cast(pa.int64()), 2**62 // (10**6 if column.type.unit == "s" else 10**3)
        fits = pc.and_(pc.greater(ticks, -most), pc.less(ticks, most))
        valid = pc.if_else(fits, ticks, pa.scalar(None, pa.int64())).cast(column.type)
        return valid.cast(pa.timestamp("us", column.type.tz))
    if pa.types.is_null(column.type):  # frames infer this type from values, so it must not decide what can be read
        return column.cast(pa.string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array(map(_text, column.cast(pa.large_binary()).to_pylist()), pa.large_string())
    return column


def _text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None
