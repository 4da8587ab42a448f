"""Read arrays, lists and frames into columns of cells, by declared types alone.

    read_rows(X)      a table: its columns, and the whole array if it came as one or as a list of rows
    read_column(y)    one column, always one-dimensional: (n, 1) with (n,) would be broadcast to (n, n)

numpy's conversion of a foreign column may depend on its cells: a missing code of a pyarrow dictionary is read as the
last word of the dictionary, and one missing cell turns polars text from fixed-width text into objects. So numpy's
conversion is not used. The declared type of a column decides the type of its array:

    numbers and booleans  floats, NaN where a cell is missing (numpy arrays keep their type, which cannot change)
    text, bytes           objects, or numpy text
    dates and durations   numpy dates and durations, NaT where a cell is missing
    other types           objects, read one by one

A list has no type: its cells stay as they are, and rows are counted by the length of each row. Containers of other
types are refused by their type, before anything is read.

A library converts a whole column at once, and fails if one cell has no Python value: a date in the year 5,000,000, a
dictionary's code that has no word. The column is then read cell by cell, and such a cell is missing (`_all_or_each`).
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.frames import wide, words_of_codes, words_of_runs
from cloister.learn.base.cells import attempt
from cloister.privacy.errors import BadInput

__all__ = [
    "as_array",
    "as_plain",
    "as_table",
    "column_values",
    "frame_names",
    "is_frame",
    "is_table",
    "read_column",
    "read_rows",
]

_SHAPE = (
    "Expected 2D array, got another shape. Reshape your data either using array.reshape(-1, 1) or "
    "array.reshape(1, -1): X is a table of rows and columns."
)
_ARRAYS = (np.ndarray, np.memmap, np.matrix)


def read_rows(rows: Any) -> tuple[list[NDArray[Any]], NDArray[Any] | None]:
    """Return the columns of a table, and the array that they are columns of (None for a frame).

    Args:
        rows: an array, a list of rows, a frame of pandas, polars or pyarrow, or a tensor that supports DLPack.
    """
    if is_frame(rows):
        return _frame_columns(rows), None
    if hasattr(rows, "tocsr") or hasattr(rows, "tocsc"):
        raise BadInput("Sparse tables are not supported: give X as an array or a frame, X.toarray().")
    array = as_array(rows)
    return list(array.T), array


def as_array(rows: Any) -> NDArray[Any]:
    """Return a two-dimensional plain numpy array; a list of rows becomes an array of objects."""
    array = _from_rows(rows) if isinstance(rows, list | tuple) else _series(rows, "X")
    if array.ndim != 2:
        raise BadInput(_SHAPE)
    return array


def as_plain(values: Any) -> NDArray[Any]:
    """Return an array of any shape, a tensor or a column as a plain numpy array; its type follows from the declared."""
    return _series(values, "data")


def read_column(y: Any) -> NDArray[Any]:
    """Return labels, targets or predictions as a one-dimensional array; a table of one column is that column.

    A list becomes one column of objects, whatever its cells are. A cell that is a list of one element is that element,
    and a longer list is not a label, regardless of the other cells.
    """
    if isinstance(y, list | tuple):
        return _objects([cell[0] if _holds_one(cell) else cell for cell in y])
    columns = _frame_columns(y) if is_frame(y) else [_series(y, "y")]
    if len(columns) != 1 or columns[0].shape[1:] not in ((), (1,)) or not columns[0].ndim:
        raise BadInput("y is one column: an array of one dimension, or a table of one column.")
    return columns[0].reshape(-1)


def column_values(column: Any) -> list[Any] | None:
    """Return the cells of a public column of pandas, polars or pyarrow as Python values; None for anything else."""
    if not _of_library(column):
        return None
    read = next(method for method in ("to_pylist", "to_list", "tolist") if hasattr(column, method))
    cells = attempt(getattr(column, read))
    return None if cells is None else list(cells)


def is_table(y: Any) -> bool:
    """Return True if a column was given as a table of one column, by type and shape."""
    return is_frame(y) or len(getattr(y, "shape", ())) == 2


def _holds_one(cell: Any) -> bool:
    if isinstance(cell, np.ndarray):
        return bool(cell.shape == (1,))
    return isinstance(cell, list | tuple) and len(cell) == 1


def _of(value: Any, package: str, *names: str) -> bool:
    """Return True if an object's type belongs to a package, which need not be installed."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, tuple(getattr(module, name) for name in names))


def is_frame(rows: Any) -> bool:
    """Return True if it is a frame whose columns can be read."""
    return (
        _of(rows, "pandas", "DataFrame")
        or _of(rows, "polars", "DataFrame")
        or _of(rows, "pyarrow", "Table", "RecordBatch")
    )


def as_table(rows: Any) -> Any:
    """Return a frame that scikit-learn can take rows of: a RecordBatch as a Table, any other unchanged."""
    return sys.modules["pyarrow"].Table.from_batches([rows]) if _of(rows, "pyarrow", "RecordBatch") else rows


def frame_names(rows: Any) -> tuple[str | int, ...] | None:
    """Return the names of a frame's columns; None if it is an array, or if the names are the places 0, 1, 2 ….

    Names are text or whole numbers, and are kept as they are. Others are refused: pandas allows any.
    """
    if not is_frame(rows):
        return None
    names = list(rows.schema.names) if _of(rows, "pyarrow", "Table", "RecordBatch") else list(rows.columns)
    if all(isinstance(name, str) for name in names):
        return tuple(map(str, names))
    if not all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in names):
        raise BadInput(
            "the columns of a frame all have string names, or are all numbered. Rename them: frame.columns = [...]."
        )
    numbers = tuple(map(int, names))
    return None if numbers == tuple(range(len(numbers))) else numbers


def _frame_columns(rows: Any) -> list[NDArray[Any]]:
    if _of(rows, "pandas", "DataFrame"):
        names, columns = list(rows.columns), [rows.iloc[:, index] for index in range(rows.shape[1])]
    elif _of(rows, "polars", "DataFrame"):
        names, columns = list(rows.columns), rows.get_columns()
    else:
        names, columns = list(rows.schema.names), list(rows.columns)
    if len(set(names)) < len(names):
        raise BadInput("the columns of a frame need different names.")
    return [_series(column, "X") for column in columns]


# Lists of rows


def _from_rows(rows: Sequence[Any]) -> NDArray[Any]:
    """Convert a list of rows to a table of objects; a cell that is itself a list stays one cell."""
    cells = [_cells(row) for row in rows]
    widths = {None if row is None else len(row) for row in cells}
    if len(widths) != 1 or None in widths:
        raise BadInput(_SHAPE)
    width = widths.pop() or 0
    flat = np.fromiter(
        chain.from_iterable(row for row in cells if row is not None), dtype=object, count=width * len(cells)
    )
    return flat.reshape(len(cells), width)


def _cells(row: Any) -> Sequence[Any] | None:
    """Return the cells of one row, from that row alone; None if its type is not a row type."""
    if isinstance(row, list | tuple | range):
        return row
    if not (isinstance(row, np.ndarray) or _of_library(row)):
        return None
    if getattr(row, "ndim", 1) != 1:
        return None
    cells = _series(row, "X")
    return list(cells) if cells.dtype.kind in "mM" else cells.tolist()


def _objects(cells: Sequence[Any]) -> NDArray[Any]:
    return np.fromiter(cells, dtype=object, count=len(cells))


def _all_or_each(every: Callable[[], Sequence[Any]], each: Iterable[Callable[[], Any]]) -> NDArray[Any]:
    """Return all cells at once, or each by itself if that fails, with None for those that fail."""
    cells = attempt(every)
    return _objects([attempt(cell) for cell in each] if cells is None else cells)


# One column


def _of_library(column: Any) -> bool:
    """Return True if it is a column of pandas, polars or pyarrow."""
    return (
        _of(column, "pandas", "Series", "Index")
        or _of(column, "pandas.api.extensions", "ExtensionArray")
        or _of(column, "polars", "Series")
        or _of(column, "pyarrow", "Array", "ChunkedArray")
    )


def _series(values: Any, argument: str) -> NDArray[Any]:
    """Convert a column, or an array of any shape, to a plain numpy array."""
    if isinstance(values, np.ndarray):
        return _array(values, argument)
    if isinstance(values, range):
        return _objects(values)
    if _of(values, "pandas", "Series", "Index"):
        return _from_pandas(values, argument)
    if _of(values, "pandas.api.extensions", "ExtensionArray"):
        return _from_pandas(sys.modules["pandas"].Series(values), argument)
    if _of(values, "polars", "Series"):
        return _from_polars(values, argument)
    if _of(values, "pyarrow", "Array", "ChunkedArray"):
        return _from_arrow(values)
    if hasattr(type(values), "__dlpack__"):  # tensors: one type, no missing cells
        try:
            return _array(np.from_dlpack(values), argument)
        except (BufferError, RuntimeError, TypeError, ValueError):
            raise _unknown(values, argument) from None
    raise _unknown(values, argument)


def _unknown(value: Any, argument: str) -> BadInput:
    return BadInput(
        f"Expected 2D array: {argument} is an array, a list, or a frame of pandas, polars or pyarrow, and a "
        f"{type(value).__name__:.60} is none of them. Turn it into one first."
    )


def _unknown_type(kind: Any, argument: str) -> BadInput:
    return BadInput(
        f"{argument} has a column of type {kind!s:.60}, which is not known here. Turn it into numbers or text."
    )


def _array(array: NDArray[Any], argument: str) -> NDArray[Any]:
    """Return a plain numpy array of the same type, with masked cells as missing."""
    kind = array.dtype.kind
    if kind == "V":
        raise BadInput(f"{argument} is an array of records. Give a frame, or an array of rows and columns.")
    if isinstance(array, np.ma.MaskedArray):
        return _unmasked(array)
    if type(array) not in _ARRAYS:
        raise _unknown(array, argument)
    plain = array.view(np.ndarray)
    return np.asarray(plain, dtype=object) if kind == "T" else plain


def _unmasked(masked: "np.ma.MaskedArray[Any, Any]") -> NDArray[Any]:
    mask, data = np.ma.getmaskarray(masked), np.asarray(masked.data)
    kind = data.dtype.kind
    with np.errstate(all="ignore"):
        filled = data.astype(np.float64 if kind in "iufb" else data.dtype if kind in "cmM" else object)
    filled[mask] = {"f": np.nan, "c": np.nan, "m": np.timedelta64("NaT"), "M": np.datetime64("NaT")}.get(
        filled.dtype.kind
    )
    return filled


def _from_pandas(series: Any, argument: str) -> NDArray[Any]:
    arrays, kind = sys.modules["pandas"].arrays, series.dtype
    if isinstance(kind, np.dtype):
        return _array(series.to_numpy(), argument)
    array = series.array
    if isinstance(array, arrays.BooleanArray | arrays.IntegerArray | arrays.FloatingArray):
        return np.asarray(array.to_numpy(dtype=np.float64, na_value=np.nan))
    if isinstance(array, arrays.ArrowExtensionArray):  # text too
        import pyarrow as pa

        return _from_arrow(pa.array(array))
    if isinstance(array, arrays.StringArray) or kind.name in ("str", "string"):
        return np.asarray(array.to_numpy(dtype=object))
    if kind.name == "category":  # categories are mostly inferred from the cells, so their type is not declared
        return np.asarray(_objects([*_items(array.categories), None])[np.asarray(array.codes)])
    if isinstance(array, arrays.SparseArray):
        return _array(np.asarray(array.to_dense()), argument)
    if isinstance(array, arrays.DatetimeArray | arrays.PeriodArray | arrays.IntervalArray):
        return _items(array)
    raise _unknown_type(kind, argument)


def _items(array: Any) -> NDArray[Any]:
    """Return the cells of an array or index of pandas as objects."""
    return _all_or_each(lambda: list(array), (partial(array.__getitem__, at) for at in range(len(array))))


def _from_polars(series: Any, argument: str) -> NDArray[Any]:
    import polars as pl

    kind = series.dtype
    if kind == pl.Boolean or kind.is_integer() or kind.is_float():
        return np.asarray(series.cast(pl.Float64).fill_null(float("nan")).to_numpy())
    if kind in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    if kind == pl.Object:  # references to Python objects: nothing is converted
        return _objects(series.to_list())
    if attempt(series.clear().to_arrow) is None:  # without a row: Arrow has no such type
        raise _unknown_type(kind, argument)
    return _from_arrow(series.to_arrow())


def _decoded(column: Any) -> Any:
    """Return a column of plain values, without dictionaries, runs and extension types."""
    import pyarrow as pa

    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    kind = column.type
    while True:
        if pa.types.is_dictionary(kind):
            chunks, kind = [words_of_codes(chunk) for chunk in chunks], wide(kind.value_type)
        elif pa.types.is_run_end_encoded(kind):
            chunks, kind = [words_of_runs(chunk) for chunk in chunks], wide(kind.value_type)
        elif isinstance(kind, pa.BaseExtensionType):
            chunks, kind = [chunk.storage for chunk in chunks], kind.storage_type
        else:
            return pa.chunked_array(chunks, kind)


def _from_arrow(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    column = _decoded(column)
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.large_binary())  # a cell that is not UTF-8 must not fail
        return _objects([None if cell is None else cell.decode("utf-8", "replace") for cell in column.to_pylist()])
    # A time in nanoseconds has no Python equivalent, nor has a date after the year 9999 in a list.
    return _all_or_each(column.to_pylist, (scalar.as_py for scalar in chain.from_iterable(column.chunks)))
