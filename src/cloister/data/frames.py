"""Convert columns of pandas frames to Arrow, reading each cell by its type in the schema.

pandas infers the type of a column from its values: one missing cell turns integers into doubles, one word turns any
column into objects. So the type of a column must not decide how its cells are read. Rule of this file: a cell reads the
same in every column that pandas may put it into, whatever the other cells are.

    integer           1 and 0 for booleans; whole numbers, clipped to ±2^53; fractions are missing
    real              as a double; closer to zero than 1e-300 is zero
    boolean           1 and 0 for numbers; other numbers are missing
    text              true and false; whole numbers below 2^53 as their digits, larger ones are missing; 1.5 as 1.5
    date, timestamp   microseconds in UTC, clipped to the years 1000 to 9999
    an id             as text, but fractions are missing

Beyond 2^53 an integer and its neighbour are one double, so such integers are read as their double would be. A declared
type that a missing cell does not change keeps them exact: Int64 and similar types, string, and Arrow's types.

Cells of a column without a type (objects, categories, periods …) are written as text that the views read in this way.
Numbers, booleans and timestamps in a typed column are converted all at once. (Within one column of categories pandas
itself treats True, 1 and 1.0 as one value.)
"""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np

from cloister.data.dialect import LONGEST_TEXT
from cloister.data.schema import Table
from cloister.privacy.errors import BadSchema

__all__ = ["decoded", "from_pandas", "refuse_coarse", "wide", "words_of_codes", "words_of_runs"]

_EXACT = 2**53  # below this, distinct integers are distinct doubles
_TINY = 1e-300  # text closer to zero is zero in every view
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_FIRST = (dt.datetime(1000, 1, 1) - _EPOCH) // _MICROSECOND  # years in text have four digits, the first not 0
_LAST = (dt.datetime.max - _EPOCH) // _MICROSECOND
_STEPS = {"s": (10**6, 1), "ms": (10**3, 1), "us": (1, 1), "ns": (1, 10**3)}
_TEXT = ("text", "unit")
_NUMBER = ("integer", "real", "boolean")


def refuse_coarse(table: Table, frame: Any) -> None:
    """Refuse integers beyond 2^53 in a schema for a column whose type pandas may have inferred. No cell is read."""
    for column in table.columns.values():
        if column.type != "integer" or column.name not in frame.columns:
            continue
        ends = max(map(abs, column.bounds or (0,))) > _EXACT  # type: ignore[arg-type]
        if (ends or max(map(abs, column.categories or (0,))) >= _EXACT) and not _is_exact(frame[column.name].dtype):  # type: ignore[arg-type]
            raise BadSchema(
                f"{table.name}.{column.name} has bounds or categories beyond 2^53, where pandas may make two integers "
                "one double. Give it as Int64 or string, or the table as Arrow or polars."
            )


@np.errstate(all="ignore")  # one signalling NaN must decide neither a warning nor, where warnings are errors, a failure
def from_pandas(series: Any, kind: str | None) -> Any:
    """Convert a pandas column to Arrow.

    Args:
        series: the column.
        kind: a type of the schema, or `unit` for ids; None where there is no schema.
    """
    import pyarrow as pa

    dtype = series.dtype
    if hasattr(dtype, "pyarrow_dtype"):  # declared, like the column of an Arrow table
        return _ids(pa.array(series)) if kind == "unit" else pa.array(series)
    if dtype.name in ("str", "string"):
        try:
            return pa.array(series)
        except Exception:  # a lone surrogate; one such cell must not affect the others
            return _cells(series, "text")
    if kind is None:
        plain = dtype.name not in ("object", "category") and _is_number(dtype)
        return pa.array(series) if plain or dtype.kind == "M" else _cells(series, "text")
    if dtype.name == "category":
        return _categories(series, kind)
    if _is_number(dtype):
        array = _numbers(pa.array(series), kind, exact=_is_exact(dtype))
        return _cells(series, kind) if array is None else array
    if dtype.kind == "M" and kind in ("date", "timestamp"):
        return _moments(series)
    return _cells(series, kind)


def _is_exact(dtype: Any) -> bool:
    """Return True if a type was declared, keeps all integers exact, and does not change when a cell is missing."""
    masked = hasattr(dtype, "numpy_dtype") and dtype.kind in "iu"
    return masked or dtype.name == "string" or hasattr(dtype, "pyarrow_dtype")


def _is_number(dtype: Any) -> bool:
    """Return True for a plain or nullable type of numbers or booleans that Arrow has too."""
    plain = isinstance(dtype, np.dtype) or hasattr(dtype, "numpy_dtype")
    return plain and dtype.kind in "biuf" and dtype.itemsize <= 8


# Whole columns


def _numbers(column: Any, kind: str, *, exact: bool) -> Any:
    """Convert numbers or booleans to a type; None if there is no vectorised conversion."""
    import pyarrow as pa
    import pyarrow.compute as pc

    gone = np.asarray(column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False))
    x = np.asarray(pc.fill_null(column, pa.scalar(0).cast(column.type)).to_numpy(zero_copy_only=False))
    x = x.astype(np.float64) if x.dtype.kind == "f" else x
    truths = x.dtype.kind == "b"
    if kind in ("date", "timestamp"):
        return pa.nulls(len(x), pa.string())
    if kind == "boolean":
        return pa.array(x == 1, mask=gone | ~((x == 0) | (x == 1)))
    if kind == "real":
        real = x.astype(np.float64)
        return pa.array(np.where(np.abs(real) < _TINY, 0.0, real), mask=gone)
    if kind in _TEXT and truths:
        return pa.array(np.where(x, "true", "false"), pa.string(), mask=gone)
    if kind == "text" and x.dtype.kind == "f":  # fractions are written one by one
        return None
    if x.dtype.kind == "f":
        large = np.abs(x) >= _EXACT
        gone = gone | (~large & (np.floor(x) != x)) | (large if kind in _TEXT else False)
        integers = np.where(gone, 0, np.clip(x, -float(_EXACT), float(_EXACT))).astype(np.int64)
    else:
        limit = 2**63 - 1 if exact else _EXACT
        if kind in _TEXT:
            far = np.zeros(len(x), dtype=bool) if exact or truths else (x >= _EXACT) | (x <= -_EXACT)
            return pc.cast(pa.array(x, mask=gone | far), pa.string())
        high = np.minimum(x, limit) if x.dtype.kind == "u" and x.dtype.itemsize == 8 else x.astype(np.int64)
        integers = np.clip(high.astype(np.int64), -limit, limit)
    array = pa.array(integers, mask=gone)
    return pc.cast(array, pa.string()) if kind in _TEXT else array


def _moments(series: Any) -> Any:
    """Convert a column of timestamps to microseconds in UTC, without a zone."""
    import pyarrow as pa

    times, per = _STEPS[series.dt.unit]
    raw, gone = np.asarray(series.array.asi8), series.isna().to_numpy()
    inside = np.clip(raw, _FIRST // times - 1, _LAST // times + 1) if times > 1 else raw // per
    micros = np.clip(inside * times, _FIRST, _LAST)
    return pa.array(micros.view("datetime64[us]"), mask=gone)


def _ids(column: Any) -> Any:
    """Convert ids of a declared type to text: integers unchanged, doubles as `_numbers` reads them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type):
        return pc.cast(column, pa.string())
    return _numbers(column, "unit", exact=False) if pa.types.is_floating(column.type) else column


def _categories(series: Any, kind: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    codes, categories = series.cat.codes.to_numpy(), series.cat.categories
    words = [_said_at(categories, at, kind) for at in range(len(categories))]
    listed = pa.array([None if len(word or "") > LONGEST_TEXT else word for word in words], pa.large_string())
    return pc.take(listed, pa.array(codes, pa.int32(), mask=codes < 0))


def decoded(column: Any, longest: int = LONGEST_TEXT) -> Any:
    """Return a chunked column of plain values: those that its dictionary codes and runs stand for.

    Text has offsets of 64 bits then. Text of more than `longest` bytes, which no view reads, is missing: a row of it
    for each code could be more than any memory holds.
    """
    import pyarrow as pa

    chunks, kind = column.chunks, column.type
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        expand = words_of_codes if pa.types.is_dictionary(kind) else words_of_runs
        chunks, kind = [expand(chunk, longest) for chunk in chunks], wide(kind.value_type)
    return pa.chunked_array(chunks, kind)


def words_of_codes(column: Any, longest: int | None = None) -> Any:
    """Return an array of dictionary codes as the values they stand for; a code without a value is missing.

    Arrow checks codes only when they are decoded, and fails then.
    """
    import pyarrow as pa

    return _looked_up(column.dictionary, column.indices.cast(pa.int64(), safe=False), longest)


def words_of_runs(column: Any, longest: int | None = None) -> Any:
    """Return a run-end encoded array as the values of its runs."""
    import pyarrow as pa

    rows = np.arange(column.offset, column.offset + len(column))
    return _looked_up(column.values, pa.array(np.searchsorted(column.run_ends.to_numpy(), rows, side="right")), longest)


def wide(kind: Any) -> Any:
    """Return the type of text with offsets of 64 bits, for more than 2 GiB of it; any other type unchanged."""
    import pyarrow as pa

    if kind == pa.string() or kind == pa.string_view():
        return pa.large_string()
    return pa.large_binary() if kind == pa.binary() or kind == pa.binary_view() else kind


def _looked_up(values: Any, places: Any, longest: int | None) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if wide(values.type) != values.type:  # through bytes: text that is not UTF-8 is found later, cell by cell
        values = values.cast(pa.large_binary()).cast(wide(values.type), safe=False)
    if longest is not None and values.type == pa.large_string():
        short = pc.less_equal(pc.binary_length(values), longest)
        values = pc.if_else(short, values, pa.scalar(None, values.type))
    listed = pc.and_(pc.greater_equal(places, 0), pc.less(places, len(values)))
    return values.take(pc.if_else(listed, places, pa.scalar(None, pa.int64())))


# Cells


def _cells(series: Any, kind: str) -> Any:
    import pyarrow as pa

    # Cell by cell: `isna` of a whole pandas column fails if one cell fails.
    return pa.array([_said_at(series.array, at, kind) for at in range(len(series))], pa.string())


def _said_at(cells: Any, at: int, kind: str) -> str | None:
    """Return a cell as `_said` does; None if it has no Python value, such as a date in the year 5,000,000."""
    try:
        return _said(cells[at], kind)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def _said(value: Any, kind: str) -> str | None:
    """Return a cell as text that the view of a type reads; None if it is missing or cannot be written."""
    try:
        text = None if _is_missing(value) else _written(value, kind)
        if text is None:
            return None
        text = str.__str__(text)  # not the override of a subclass of str
        text.encode()
    except KeyboardInterrupt:
        raise
    except BaseException:  # an object's own __str__ may raise anything
        return None
    return text


def _is_missing(value: Any) -> bool:
    """Return True if pandas treats a cell as missing. Calls no method that the cell's class could override."""
    import pandas as pd  # type: ignore[import-untyped]

    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    if isinstance(value, Decimal):
        return Decimal.is_nan(value)  # comparing a signalling NaN is an error
    return isinstance(value, float) and math.isnan(float.__float__(value))


def _written(value: Any, kind: str) -> str | None:
    if isinstance(value, complex | np.complexfloating):  # one complex number makes a whole column complex
        value = value.real if value.imag == 0 else math.nan
    if isinstance(value, bool | np.bool_):
        return str(int(value)) if kind in ("integer", "real") else str(bool(value)).lower() if _holds(kind) else None
    if isinstance(value, int | np.integer):
        return _whole(int.__int__(value) if isinstance(value, int) else int(value), kind)
    if isinstance(value, float | np.floating):
        return _fraction(float.__float__(value) if isinstance(value, float) else float(value), kind)
    if isinstance(value, dt.date | np.datetime64):
        return _moment(value, kind)
    if isinstance(value, dt.timedelta | np.timedelta64) or hasattr(value, "closed_left"):
        return None  # durations and intervals, whose unit or ends depend on the other cells
    return str.__str__(value) if isinstance(value, str) else str(value)


def _holds(kind: str) -> bool:
    """Return True if a number or a boolean can be read as this type."""
    return kind not in ("date", "timestamp")


def _whole(value: int, kind: str) -> str | None:
    if kind == "integer":
        return str(max(-_EXACT, min(_EXACT, value)))
    if kind == "real":
        try:
            return _fraction(float(value), kind)
        except OverflowError:
            return "inf" if value > 0 else "-inf"
    if kind == "boolean":
        return str(value) if value in (0, 1) else None
    return str(value) if kind in _TEXT and abs(value) < _EXACT else None


def _fraction(value: float, kind: str) -> str | None:
    if math.isnan(value) or not _holds(kind):
        return None
    if kind == "real":
        return repr(value) if abs(value) >= _TINY else "0"
    if math.isinf(value):
        return _whole(_EXACT if value > 0 else -_EXACT, kind)
    if value.is_integer():
        return _whole(int(value), kind)
    return repr(value) if kind == "text" else None


def _moment(value: Any, kind: str) -> str | None:
    """Return a timestamp or a date as text; a timestamp with a zone in UTC."""
    if kind in _NUMBER:
        return None
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        if kind in _TEXT:
            return value.isoformat()
        micros, zoned = (dt.datetime(value.year, value.month, value.day) - _EPOCH) // _MICROSECOND, False
    else:
        micros, zoned = _micros(value)
    moment = _EPOCH + max(_FIRST, min(_LAST, micros)) * _MICROSECOND
    if kind == "date":
        return moment.date().isoformat()
    return moment.isoformat(" ") + ("+00:00" if zoned and kind in _TEXT else "")


def _micros(value: Any) -> tuple[int, bool]:
    """Return a timestamp in microseconds of UTC since 1970, rounded down, and whether it had a zone."""
    if isinstance(value, np.datetime64):
        import pandas as pd

        value = pd.Timestamp(value)
    if hasattr(value, "asm8"):  # a pandas timestamp, with its own unit; a year may have more than four digits
        times, per = _STEPS[value.unit]
        return int(value.asm8.view("i8")) // per * times, value.tzinfo is not None
    offset = value.utcoffset()
    naive = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    return (naive, False) if offset is None else (naive - offset // _MICROSECOND, True)
