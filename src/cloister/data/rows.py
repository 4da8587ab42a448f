"""Convert the tables that users have (pandas, polars, Arrow, dict of lists) to one Arrow table."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cloister.privacy.errors import BadSource

__all__ = ["to_arrow"]


def to_arrow(rows: object) -> pa.Table:
    """Return rows as an Arrow table.

    NaN in a float column becomes NULL, -0.0 becomes 0.0, categories become their values, and a column of mixed cells
    becomes text. The index of a pandas frame is dropped. No column is reordered.

    Args:
        rows: an Arrow table, a pandas or polars frame, a dict of lists, or an object with `to_arrow()`.

    Raises:
        BadSource: it is no table, or two columns have the same name.

    >>> to_arrow({"age": [31.0, float("nan")], "zip": ["33617", 33613]}).to_pydict()
    {'age': [31.0, None], 'zip': ['33617', '33613']}
    """
    table = _table(rows)
    names = [str(name) for name in table.column_names]
    if len(set(names)) < len(names):
        raise BadSource("two columns of the table have the same name. Rename one of them.")
    return pa.table([_plain(column) for column in table.columns], names=names)


def _table(rows: Any) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    module = type(rows).__module__.partition(".")[0]
    if module == "pandas" and hasattr(rows, "columns"):
        names = [str(name) for name in rows.columns]
        return pa.table([_cells(rows.iloc[:, at]) for at in range(len(names))], names=names)
    if isinstance(rows, Mapping):
        columns = [_cells(cells) for cells in rows.values()]
        if len({len(column) for column in columns}) > 1:
            raise BadSource("the columns have different lengths. Give every column the same number of cells.")
        return pa.table(columns, names=[str(name) for name in rows])
    if callable(getattr(rows, "to_arrow", None)):
        table = rows.to_arrow()
        if isinstance(table, pa.Table):
            return table
    if hasattr(rows, "__arrow_c_stream__"):
        with suppress(TypeError, ValueError):  # a single column
            return pa.table(rows)
    if hasattr(rows, "account") and callable(getattr(rows, "sql", None)):
        raise BadSource(
            "this is a dataset that answers with noise, and its rows are needed as they are, which only their owner "
            "may read. Give the table or the file that it was opened from."
        )
    raise BadSource(
        f"rows are a pandas or polars frame, an Arrow table or a dict of lists; got a {type(rows).__name__}. "
        "Read a file with pyarrow, pandas or polars first."
    )


def _cells(cells: Any) -> pa.ChunkedArray | pa.Array:
    """Convert a pandas column or a sequence; cells of different types become text."""
    if isinstance(cells, pa.Array | pa.ChunkedArray):
        return cells
    if not hasattr(cells, "__len__") or isinstance(cells, str | bytes):
        raise BadSource("every column is a list of cells. Write {'age': [31, 44]}.")
    try:
        array = pa.array(cells, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return _text(cells)
    if isinstance(array.type, pa.BaseExtensionType):  # periods and intervals of pandas
        return _text(cells)
    return array


def _text(cells: Sequence[Any]) -> pa.Array:
    values = list(cells)
    missing = [not isinstance(value, str) and str(value) in ("None", "nan", "NaN", "NaT", "<NA>") for value in values]
    return pa.array([None if gone else str(value) for value, gone in zip(values, missing, strict=True)], pa.string())


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode categories, read NaN as NULL, and write text as `string`."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        wide = column.cast(pa.float64())
        known = pc.if_else(pc.is_nan(wide), pa.scalar(None, pa.float64()), wide)
        column = pc.add(known, 0.0).cast(kind)  # -0.0 + 0.0 is 0.0
    return column
