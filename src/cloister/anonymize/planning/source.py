"""Read the rows of a table that its owner wants to release: from a file, a folder of files, or a database.

A CSV file holds text only. Columns that a schema describes are read as its types. Of the others, quasi-identifiers and
sensitive columns become whole numbers, numbers or dates if all their values are; codes such as 03361 stay text.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from cloister.data.rows import to_arrow
from cloister.data.schema import Column, Schema, Table, Type
from cloister.data.tables import open_engine
from cloister.privacy.errors import BadSchema, BadSource

if TYPE_CHECKING:
    from cloister.data.engines.engine import Engine

__all__ = ["columns_of", "kind_of", "read_facts", "read_rows"]

_TYPES: dict[Type, pa.DataType] = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "boolean": pa.bool_(),
}
# A leading zero marks a code, not a number.
_PATTERNS: tuple[tuple[str, pa.DataType], ...] = (
    (r"^-?(0|[1-9]\d{0,17})$", pa.int64()),
    (r"^-?(0|[1-9]\d{0,17})(\.\d+)?([eE][+-]?\d{1,2})?$", pa.float64()),
    (r"^\d{4}-\d\d-\d\d$", pa.date32()),
)


def read_facts(schema: str | Path | None, table: str | None = None) -> Table | None:
    """Return the table that a schema describes; None without a schema.

    Raises:
        BadSchema: the schema has several tables and none is named, or not that one.
    """
    if schema is None:
        return None
    tables = Schema.load(schema).tables
    if table is None and len(tables) == 1:
        return next(iter(tables.values()))
    if table is None or table not in tables:
        raise BadSchema(f"name one table of the schema. Its tables are: {', '.join(tables)}.")
    return tables[table]


def columns_of(facts: Table | None) -> dict[str, Column]:
    """Return every column that a schema lists, identifiers too."""
    return {} if facts is None else facts.listed


def read_rows(
    source: str | Path, *, table: str | None = None, facts: Table | None = None, typed: Collection[str] = ()
) -> pa.Table:
    """Return all rows of a table.

    Args:
        source: a CSV, Parquet or DuckDB file, a folder of Parquet files, or a postgresql:// address.
        table: its name, for a source with several.
        facts: the types of columns, for CSV.
        typed: further columns of CSV that are read as numbers or dates if all their values are.

    Raises:
        BadSource: the source cannot be opened, or holds several tables and none is named.
        BadSchema: values of a column cannot be read as the type in the schema.
    """
    engine = open_engine(str(source))
    try:
        place = engine.place(_chosen(engine, table or (None if facts is None else facts.name)))
        rows = to_arrow(engine.run(f"SELECT * FROM {place}"))  # noqa: S608
    finally:
        engine.close()
    if not str(source).lower().endswith((".csv", ".tsv", ".csv.gz", ".tsv.gz")):
        return rows
    columns = columns_of(facts)
    for place_, name in enumerate(rows.column_names):
        if name in columns:
            rows = rows.set_column(place_, name, _as_stated(rows.column(name), columns[name]))
        elif name in typed:
            rows = rows.set_column(place_, name, _as_seen(rows.column(name)))
    return rows


def _chosen(engine: "Engine", table: str | None) -> str:
    tables = engine.tables()
    if len(tables) == 1:
        return tables[0]
    if table is None or table not in tables:
        raise BadSource(f"name one table of the source. Its tables are: {', '.join(tables[:20]) or 'none'}.")
    return table


def _as_stated(cells: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    kind = _TYPES.get(column.type)
    if kind is None or not pa.types.is_string(cells.type):
        return cells
    try:
        return pc.cast(cells, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise BadSchema(
            f"the schema says that {column.name:.60} is {column.type}, and some of its values are not. Correct the "
            "values, or write type: text."
        ) from None


def _as_seen(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_string(cells.type) or cells.null_count == len(cells):
        return cells
    values = cells.drop_null()
    lengths = pc.unique(pc.utf8_length(values))
    if len(lengths) == 1 and lengths[0].as_py() in (5, 6) and pc.all(pc.utf8_is_digit(values)).as_py():
        return cells  # postcodes: digits of one length
    for pattern, kind in _PATTERNS:
        if pc.all(pc.match_substring_regex(values, pattern)).as_py():
            try:
                return pc.cast(cells, kind)
            except pa.ArrowInvalid:
                continue
    return cells


def kind_of(cells: pa.ChunkedArray) -> Type:
    """Return the type of a column in the words of a schema."""
    kinds: Sequence[tuple[Type, bool]] = (
        ("boolean", pa.types.is_boolean(cells.type)),
        ("integer", pa.types.is_integer(cells.type)),
        ("real", pa.types.is_floating(cells.type) or pa.types.is_decimal(cells.type)),
        ("date", pa.types.is_date(cells.type)),
        ("timestamp", pa.types.is_timestamp(cells.type)),
    )
    return next((kind for kind, holds in kinds if holds), "text")
