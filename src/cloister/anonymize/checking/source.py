"""Read the columns to check: rows in memory, or counts that an engine makes of its own rows.

In an engine one statement runs, `SELECT quasi-identifiers, sensitive columns, COUNT(*) … GROUP BY` all of them; only
these counts come back. Text is grouped by its bytes, whatever the collation of a column: in DuckDB and PostgreSQL with
COLLATE "C", in Spark by a cast that drops the collation. PostgreSQL's character(n) ignores trailing spaces, since they
are its padding; every other type of text keeps them. An engine that splits a value (0.0 and -0.0, NaN and NULL, 1.5 and
1.50) does no harm: equal printed values are merged again when the counts are read (`columns.py`).
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cloister.anonymize.checking.columns import Column, Integers, encode, ranks_of_numbers
from cloister.data.dialect import Dialect, dialect_of, family
from cloister.data.engines.engine import Engine
from cloister.data.rows import to_arrow
from cloister.data.tables import open_engine
from cloister.privacy.errors import BadSource

__all__ = ["Rows", "column_of", "is_source", "read"]

_THREADS = 4
_MANY = 100_000  # rows from which threads are worth their start


@dataclass(frozen=True, slots=True)
class Rows:
    """The columns to check, in codes.

    Attributes:
        columns: the columns by name.
        weights: number of rows that each entry stands for; None if each is one row.
        engine: where the rows were counted.
    """

    columns: Mapping[str, Column]
    weights: Integers | None
    entries: int
    engine: str

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.entries if self.weights is None else int(self.weights.sum())


def is_source(rows: object, table: str | None) -> bool:
    """Return True if rows stay in an engine: a file, an address, a Spark frame, an open engine, or a named table."""
    if table is not None or isinstance(rows, str | os.PathLike):
        return True
    return type(rows).__module__.partition(".")[0] == "pyspark" or _engine_of(rows) is not None


def _engine_of(source: Any) -> Engine | None:
    """Return the engine of tables that are open already."""
    engine: Engine | None = getattr(source, "engine", source)
    return engine if all(hasattr(engine, method) for method in ("dialect", "place", "run")) else None


def read(rows: object, names: Sequence[str], table: str | None = None) -> Rows:
    """Read columns of a table in memory, or have an engine count their combinations.

    Raises:
        BadSource: there is no such table or column, or no rows.
    """
    if is_source(rows, table):
        return _counted(rows, names, table)
    # Only what is needed is converted.
    cells = rows if isinstance(rows, pa.Table) else to_arrow(_some(rows, names))
    _require(names, cells.column_names)
    if not cells.num_rows:
        raise BadSource("the table has no rows, so there is nothing to check. Give a table with rows.")
    with ThreadPoolExecutor(_THREADS if cells.num_rows > _MANY else 1) as pool:  # Arrow leaves the lock of Python
        encoded = pool.map(lambda name: encode(name, cells.column(name)), names)
        columns = dict(zip(names, encoded, strict=True))
    return Rows(columns, None, cells.num_rows, "memory")


def column_of(rows: object, name: str) -> pa.ChunkedArray:
    """Return a column of a table in memory as it is.

    Raises:
        BadSource: there is no such column.
    """
    table = rows if isinstance(rows, pa.Table) else to_arrow(_some(rows, [name]))
    _require([name], table.column_names)
    return table.column(name)


def _some(rows: Any, names: Sequence[str]) -> Any:
    if isinstance(rows, Mapping):
        return {name: rows[name] for name in names} if set(names) <= set(rows) and names else rows
    if not callable(getattr(rows, "columns", len)) and not isinstance(rows, pa.Table | pa.RecordBatch):
        known = list(rows.columns)
        if names and set(names) <= set(known) and len(set(known)) == len(known):
            return rows[list(names)]
    return rows


def _require(names: Sequence[str], known: Sequence[str]) -> None:
    missing = [name for name in names if name not in known]
    if missing:
        listed = ", ".join(known) or "none"
        raise BadSource(f"there is no column {missing[0]:.60} in the table. Its columns are: {listed:.500}.")
    if len(set(known)) < len(known):
        raise BadSource("two columns of the table have the same name. Rename one of them.")


def _counted(source: object, names: Sequence[str], table: str | None) -> Rows:
    opened = _engine_of(source)
    engine = open_engine(source) if opened is None else opened
    try:
        return _count(engine, names, table)
    finally:
        if opened is None:
            engine.close()


def _count(engine: Engine, names: Sequence[str], table: str | None) -> Rows:
    tables = engine.tables()
    if table is None and len(tables) == 1:
        table = tables[0]
    if table is None or not (declared := engine.columns(table)):
        listed = ", ".join(tables[:20]) or "none"
        raise BadSource(f"name one table of the source with table=. Its tables are: {listed:.500}.")
    _require(names, list(declared))
    say = dialect_of(engine.dialect)
    expressions = [_expression(name, declared[name], say) for name in names]
    keys = [f"c{i}" for i in range(len(names))]
    listed = ", ".join(f"{sql} AS {key}" for key, (sql, _) in zip(keys, expressions, strict=True))
    inner = f"SELECT {listed or '1 AS one'} FROM {engine.place(table)}"  # noqa: S608
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    counts = engine.run(f"SELECT {', '.join([*keys, 'COUNT(*) AS n'])} FROM ({inner}) AS t{grouping}")  # noqa: S608
    weights = counts.column("n").to_numpy().astype(np.int64)
    if not weights.sum():
        raise BadSource(f"the table {table:.60} has no rows, so there is nothing to check. Give a table with rows.")
    columns = {}
    for name, key, (_, numbers) in zip(names, keys, expressions, strict=True):
        column = encode(name, counts.column(key))
        ranks = ranks_of_numbers(column.texts) if numbers else column.ranks
        columns[name] = Column(column.codes, column.texts, ranks)
    return Rows(columns, weights, len(weights), engine.dialect)


def _expression(name: str, declared: str, say: Dialect) -> tuple[str, bool]:
    """Return the SQL that reads a column, and True if it returns numbers as text."""
    column, kind = say.name(name), family(declared, say)
    if kind is None:
        raise BadSource(f"the column {name:.60} is declared {declared:.60}, which has no printed value. Convert it.")
    if kind in ("text", "uuid"):
        text = f"CAST({column} AS {say.string})"
        return (text if say.dialect == "spark" else f'{text} COLLATE "C"'), False
    if kind == "wide" and say.dialect == "postgres":  # 1.5 and 1.50 are equal numbers; Arrow needs one scale for all
        return f"CASE WHEN {column} = 'NaN' THEN NULL ELSE CAST(trim_scale({column}) AS TEXT) END", True
    if kind == "wide" and say.dialect == "duckdb" and not declared.upper().startswith("DECIMAL"):
        return f"CAST({column} AS VARCHAR)", True
    return column, False
