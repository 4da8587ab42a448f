"""Read columns of pandas frames so that the type that pandas gave a column does not decide what its cells say.

pandas infers types from values: one missing cell makes floats of whole numbers and objects of truths, one word makes
objects of everything. So there is one law for all of its own types: what a cell says depends on that cell and on the
type that the schema gives the column. `written` is the law for a cell; the others do the same for whole columns.

    whole numbers    as the nearest double, as which they come beside a missing cell; ids beyond 2^53 name nobody
    truths           1 and 0 in columns of numbers, true and false elsewhere
    other numbers    no text: only whole numbers are
    moments          in UTC, to the microsecond below, in years 1000 to 9999; else missing

Nullable types (`Int64`, `boolean`, `string`) and types of Arrow are not inferred: they are read as they are declared,
and their whole numbers are exact.
"""

import math
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from cloister.data.schema import Column

__all__ = ["UNIT_ID", "check_long_categories", "from_pandas", "written"]

UNIT_ID = "unit"  # in the place of a schema's type: a column of ids
_EXACT, _TWO_63 = 2.0**53, 2.0**63
_MOST = 2**63 - 1
_TINY = 1e-300  # closer to zero is zero, as text is read (data/views.py)
_NUMBERS = ("integer", "real")
_MOMENTS = ("date", "timestamp")
_A_DAY = {"D": 1, "h": 24, "m": 1440, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_FIRST, _END = (int(np.datetime64(day, "D").astype(np.int64)) for day in ("1000-01-01", "10000-01-01"))


def inferred(kind: Any) -> bool:
    """Whether pandas chooses this type by itself, so that one cell may change it."""
    return isinstance(kind, np.dtype) or kind.name in ("str", "category") or not _is_declared(kind)


def _is_declared(kind: Any) -> bool:
    pd: Any = sys.modules["pandas"]  # it made the column
    numbers = (pd.BooleanDtype, pd.ArrowDtype, pd.StringDtype, pd.Float32Dtype, pd.Float64Dtype)
    return isinstance(kind, numbers) or kind.name in (
        "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64",
    )  # fmt: skip


def check_long_categories(table: str, column: "Column", kind: Any) -> None:
    """Refuse categories that a column of an inferred type could not tell apart. From the schema and the type alone."""
    listed = column.categories or ()
    if column.type == "integer" and any(abs(int(one)) > 2**53 for one in listed) and inferred(kind):
        raise BadSchema(
            f"{table}.{column.name} lists whole numbers beyond 2^53, and pandas makes doubles of them as soon as a "
            "cell is missing. Give the column as Int64, or the table as Arrow or polars."
        )


def from_pandas(series: Any, kind: str | None) -> "pa.Array | pa.ChunkedArray":
    """A column of a frame as Arrow.

    Args:
        series: the column.
        kind: the type that the schema gives it, or `UNIT_ID`; None without a schema.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    pd: Any = sys.modules["pandas"]
    held = series.array
    if series.dtype.name == "category":
        codes = pa.array(series.cat.codes.to_numpy(), pa.int32(), mask=(series.cat.codes < 0).to_numpy())
        return pc.take(_texts(series.cat.categories, kind), codes)
    if isinstance(held, pd.arrays.SparseArray):
        series = pd.Series(held.to_dense())
    if series.dtype.name == "str" or (kind != UNIT_ID and not inferred(series.dtype)):
        return pa.array(series)
    if kind is None and series.dtype.kind in "biufmM":  # for a look at declared types
        return pa.array(series)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufc":
        return _numbers(series.to_numpy(), kind or "real")
    if kind in (*_NUMBERS, *_MOMENTS, "boolean") and series.dtype.kind in "mM":
        moments = series.dt.tz_convert("UTC").dt.tz_localize(None) if hasattr(series.dtype, "tz") else series
        return _moments(moments.to_numpy(), kind)
    if not inferred(series.dtype):  # ids
        column = pa.array(series)
        floats = pa.types.is_floating(column.type)
        return _numbers(column.to_numpy(zero_copy_only=False), UNIT_ID) if floats else _as_text(column)
    return _texts(series, kind)


def _as_text(column: Any) -> Any:
    """Ids of a declared type: whole numbers of any length are exact; what can name nobody is left to be refused."""
    import pyarrow as pa

    return column.cast(pa.string()) if pa.types.is_integer(column.type) else column


def _texts(cells: Any, kind: str | None) -> "pa.Array":
    """What `written` says of each cell of a column or index."""
    import pyarrow as pa

    pairs = zip(cells, cells.isna(), strict=True)
    return pa.array([None if missing else written(cell, kind) for cell, missing in pairs], pa.string())


def written(cell: Any, kind: str | None) -> str | None:
    """A cell as text that a view reads like the cell in a column of its own type; None if it is missing or unknown.

    Args:
        cell: anything.
        kind: the type that the schema gives the column, or `UNIT_ID`; None without a schema.
    """
    try:
        if isinstance(cell, np.datetime64 | np.timedelta64):  # as an integer it would be a number
            cell = cell.astype(f"{cell.dtype.kind}8[us]").item()
            if not isinstance(cell, datetime | timedelta):
                return None
        elif isinstance(cell, np.generic):
            cell = cell.item()
        if cell is None:
            return None
        if isinstance(cell, bool):
            return _truth(cell, kind)
        if isinstance(cell, complex):
            cell = cell.real if cell.imag == 0 else math.nan
        if isinstance(cell, int | float | np.floating):
            return _number(cell, kind)
        text = _moment(cell, kind) if isinstance(cell, datetime) else str(cell)
        if text is not None:
            text.encode()
    except Exception:  # an object's own way to say what it is may fail in any way
        return None
    return text


def _truth(cell: bool, kind: str | None) -> str | None:
    if kind in _MOMENTS:
        return None
    return str(int(cell)) if kind in _NUMBERS else str(cell).lower()


def _number(cell: Any, kind: str | None) -> str | None:
    try:
        value = float(cell)
    except OverflowError:
        value = math.inf if cell > 0 else -math.inf
    if math.isnan(value) or kind in _MOMENTS:
        return None
    if kind == "real":
        return repr(value)
    if kind is None:
        return str(cell if isinstance(cell, int) or not value.is_integer() else int(value))
    if kind == UNIT_ID:
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else None
    if not -_TWO_63 <= value < _TWO_63:
        return str(_MOST if value > 0 else -_MOST)
    return str(int(value)) if value.is_integer() else None


def _moment(cell: datetime, kind: str | None) -> str | None:
    if cell.tzinfo is not None:
        cell = cell.astimezone(UTC).replace(tzinfo=None)
    if kind in _MOMENTS and cell.year < 1000:
        return None
    text = cell.isoformat(" ", "microseconds")
    return text[:10] if kind == "date" else text


# Whole columns of numbers and moments


def _numbers(values: NDArray[Any], kind: str) -> "pa.Array":
    """What `written` says of each number, without writing it: integers, doubles, truths, or the text of ids.

    A column of which all numbers read as they are is not copied.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind in _MOMENTS:
        return pa.nulls(len(values), pa.string())
    if values.dtype.kind == "b" and kind not in _NUMBERS:
        found = pa.array(values)
        return pc.if_else(found, "true", "false") if kind == UNIT_ID else found
    with np.errstate(all="ignore"):
        if values.dtype.kind == "c":
            values = np.where(values.imag == 0, values.real, np.nan)
        real = values.astype(np.float64, copy=False)
        if kind == UNIT_ID:
            named = (np.abs(real) < _EXACT) & (np.floor(real) == real)
            whole = np.where(named, real, 0.0).astype(np.int64)
            return pa.array(whole, mask=~named).cast(pa.string())
        if values.dtype.kind in "iu" and kind != "real":
            return pa.array(_rounded(values, real))
        tiny = (np.abs(real) < _TINY) & (real != 0)
        return pa.array(np.where(tiny, 0.0, real) if kind == "real" and tiny.any() else real)


def _rounded(values: NDArray[Any], real: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers as their doubles say them, in the range of 64 bits."""
    long = np.abs(real) >= _EXACT
    if not long.any():
        return values.astype(np.int64, copy=False)
    above = real >= _TWO_63
    doubles = np.where(above, _MOST, np.where(above | ~long, 0.0, real).astype(np.int64))
    return np.where(long, doubles, values.astype(np.int64))


def _moments(values: NDArray[Any], kind: str) -> "pa.Array":
    """Moments to the microsecond below, where the schema has moments; durations say nothing."""
    import pyarrow as pa

    if values.dtype.kind == "m" or kind not in _MOMENTS:
        return pa.nulls(len(values), pa.string())
    unit, step = np.datetime_data(values.dtype)
    day = _A_DAY[unit] // step
    least, end = (min(max(one * day, -(2**63) + 1), 2**63 - 1) for one in (_FIRST, _END))
    count = values.view(np.int64)
    known = ~np.isnat(values) & (count >= least) & (count < end)
    inside = np.where(known, count, 0)
    micro = _A_DAY["us"]
    whole = inside // (day // micro) if day > micro else inside * (micro // day)
    return pa.array(whole.astype("M8[us]"), mask=~known)
