"""Mock data: random tables of the right shape, made from the schema alone, to try queries for free.

Privacy: no row of the dataset is read, so this costs nothing and reveals nothing beyond the schema. Values are uniform
within the public bounds or categories: there is no relation between columns, and answers from these tables mean
nothing.
"""

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.data.schema import Column, Schema, Table
from cloister.privacy.errors import NotNow

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["INVENTED", "mock_table", "mock_tables"]

INVENTED = "These rows are invented from the schema alone. They say nothing about the dataset."
_ROWS_EACH = 3  # rows a person, on average at most
_MISSING = 0.03  # share of NULL where the schema allows it
_WORDS = 40
# Rows are made in the process that serves pages.
_MOST_CELLS = 1_000_000
_MOST_BYTES = 16_000_000
_DIGITS = 12  # of a number after a name, with its sign


def mock_tables(schema: Schema, rows: int = 1000, seed: int = 1) -> "dict[str, pa.Table]":
    """Return all tables of a schema, with `rows` rows each; foreign keys match, units appear in several tables."""
    return {name: mock_table(schema, name, rows, seed) for name in schema.tables}


def mock_table(schema: Schema, name: str, rows: int = 1000, seed: int = 1) -> "pa.Table":
    """Return one table.

    Args:
        rows: the number of rows; fewer if they could have more than a million cells or 16 MB. The metadata says so.
        seed: the same seed makes the same rows.

    Raises:
        NotNow: a single row could have more than 16 MB.
    """
    import pyarrow as pa

    table = schema.tables[name]
    most = min(_MOST_CELLS // (len(table.columns) + 1), _MOST_BYTES // _longest_row(schema, table))
    if not most:
        raise NotNow(f"a row of {name[:60]} could have more than 16 MB. Ask the owner for shorter categories.")
    note = INVENTED if rows <= most else f"{INVENTED} They are fewer than asked for: at most 1,000,000 cells or 16 MB."
    rows = min(rows, most)
    draws = np.random.default_rng([seed, *name.encode()])
    arrays: dict[str, Any] = {}
    if table.unit is not None:
        arrays[table.unit] = _people(schema, table, rows, draws)
    for column in table.columns.values():
        values = _keys(schema, table, column, rows) or _values(column, rows, draws)
        missing = draws.random(rows) < _MISSING if column.nullable else np.zeros(rows, bool)
        arrays[column.name] = pa.array(
            [None if gone else value for value, gone in zip(values, missing, strict=True)], _arrow(column)
        )
    return pa.table(arrays).replace_schema_metadata({"cloister": note})


def _longest_row(schema: Schema, table: Table) -> int:
    """Return the most bytes that a row can have, as Arrow stores it."""
    unit = 0 if table.unit is None else len(schema.unit.name.encode()) + _DIGITS
    return max(1, unit + sum(_longest_value(column) for column in table.columns.values()))


def _longest_value(column: Column) -> int:
    if column.type != "text":
        return 8
    if column.categories is None:
        return len(column.name.encode()) + _DIGITS
    return max((len(str(category).encode()) for category in column.categories), default=0) + 4


def _people(schema: Schema, table: Table, rows: int, draws: np.random.Generator) -> list[str]:
    """Return unit ids, a few rows each, never more than count."""
    most = min(table.max_rows or schema.unit.max_rows, schema.unit.max_rows, _ROWS_EACH)
    person, people = 0, list[str]()
    while len(people) < rows:
        person += 1
        people += [f"{schema.unit.name}-{person}"] * int(draws.integers(1, most + 1))
    return people[:rows]


def _keys(schema: Schema, table: Table, column: Column, rows: int) -> list[Any] | None:
    """Return each key once, for a public table that others refer to, so that joins match."""
    referred = any((key.other_table, key.other_column) == (table.name, column.name) for key in schema.foreign_keys)
    if not referred or not table.public or column.categories is None:
        return None
    return [column.categories[i] if i < len(column.categories) else None for i in range(rows)]


def _values(column: Column, rows: int, draws: np.random.Generator) -> list[Any]:
    if column.categories is not None:
        return [column.categories[i] for i in draws.integers(0, len(column.categories), rows)]
    if column.type == "text":
        return [f"{column.name}-{i}" for i in draws.integers(1, _WORDS + 1, rows)]
    if column.type == "boolean":
        return [bool(draw) for draw in draws.integers(0, 2, rows)]
    low, high = _range(column)
    if column.type == "integer":
        # Bounds may span nearly all of BIGINT, which no generator draws from at once.
        return [min(int(low) + int(share * (int(high) - int(low) + 1)), int(high)) for share in draws.random(rows)]
    if column.type == "real":
        # Weighted, since the difference of the bounds may be too large for a number.
        return [float(low) * (1 - share) + float(high) * share for share in draws.random(rows)]
    if column.type == "date":
        return [low + timedelta(days=int(share * ((high - low).days + 1))) for share in draws.random(rows)]
    return [low + timedelta(seconds=int(share * (high - low).total_seconds())) for share in draws.random(rows)]


def _range(column: Column) -> tuple[Any, Any]:
    """Return the bounds; where none are stated, a plausible range of the type."""
    if column.bounds is not None:
        return column.bounds
    return {
        "integer": (0, 100),
        "real": (0.0, 1.0),
        "date": (date(2020, 1, 1), date(2025, 12, 31)),
        "timestamp": (datetime(2020, 1, 1), datetime(2025, 12, 31)),
    }[column.type]


def _arrow(column: Column) -> "pa.DataType":
    import pyarrow as pa

    kinds = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string(), "boolean": pa.bool_()}
    return kinds.get(column.type) or {"date": pa.date32(), "timestamp": pa.timestamp("us")}[column.type]
