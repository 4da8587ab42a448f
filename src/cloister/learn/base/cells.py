"""Read single cells as a category or a number. Values of every type are handled.

    category(cell)   a number as a float, a word as text, None for a missing cell
    number(cell)     a float; NaN for a missing cell and for anything that is not a number

`Categories.codes` and `numbers_in` do the same for columns. They are vectorised, but the result for a cell depends on
that cell alone, not on the type of its column: pandas turns integers into floats, and text into objects, as soon as one
cell is missing, so one row would otherwise change how all others are read. Therefore 1, 1.0, True, "1" and "True" are
one category and one number, trailing NUL characters of a text are ignored, and integers beyond 2^53 are read as the
nearest float. (In a dataset the schema decides the type of a column, and integers of any length are exact, except
those of pandas' own types; see data/tables.py.)
"""

import math
import re
import warnings
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput, BadSchema

__all__ = ["Categories", "attempt", "category", "number", "numbers_in"]

T = TypeVar("T")
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,307})(?:\.0+)?", re.ASCII)
_EXACT = 2.0**53
_ATTOSECONDS = {"W": 604800 * 10**18, "D": 86400 * 10**18, "h": 3600 * 10**18, "m": 60 * 10**18, "s": 10**18}
_ATTOSECONDS |= {"ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1}
_TRUTHS = {"True": 1.0, "False": 0.0}  # text that booleans become in a column with text
_BUILT_IN = frozenset({str, int, float, bool, type(None)})  # equal cells of these types are one category
_READS_ALIKE = frozenset({str, int, float, bool, type(None), Decimal, np.float64})  # numpy converts as `number` does


def category(cell: Any) -> str | float | None:
    """Return the category of a cell: a float for a number, text for a word, None if it is missing.

    Text that Python would print for a number is read as that number. Integers beyond 2^53 given as text stay text, so
    that long codes stay distinct.

    >>> [category(cell) for cell in (1, 1.0, True, "1", "1.0", "01", float("nan"), None)]
    [1.0, 1.0, 1.0, 1.0, 1.0, '01', None, None]
    """
    return attempt(lambda: _category(_bare(cell)))


def attempt(read: Callable[[], T]) -> T | None:
    """Return what a conversion returns; None if it fails: no cell may make a fit fail.

    A foreign type may raise anything: polars panics with an error that is no Exception.
    """
    try:
        return read()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def _bare(cell: Any) -> Any:
    """Return the value of a zero-dimensional array; any other cell unchanged."""
    return cell[()] if isinstance(cell, np.ndarray) and not cell.ndim and cell is not np.ma.masked else cell


def _category(cell: Any) -> str | float | None:
    if isinstance(cell, bytes | str):
        return _category_of_text(_text(cell))
    if hasattr(cell, "as_py"):  # a pyarrow scalar
        return _category(cell.as_py())
    if cell is None or _is_missing(cell):
        return None
    if isinstance(cell, timedelta | np.timedelta64):
        return _duration(cell)
    if isinstance(cell, np.datetime64):
        return _moment(str(cell))
    if isinstance(cell, date):  # datetime and pandas.Timestamp too
        return _moment(cell.isoformat())
    real = _real(cell)
    return str(cell) if real is None and not isinstance(cell, complex | np.complexfloating) else real


def _text(cell: bytes | str) -> str:
    """Return the text of a cell without trailing NUL characters, which fixed-width text arrays cannot hold."""
    return (cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)).rstrip("\0")


def _category_of_text(text: str) -> str | float:
    if _WHOLE.fullmatch(text):
        digits = text.partition(".")[0]
        return float(digits) if abs(float(digits)) <= _EXACT else digits
    if text in _TRUTHS:
        return _TRUTHS[text]
    try:
        parsed = float(text)
    except ValueError:
        return text
    return parsed if math.isfinite(parsed) and repr(parsed) == text else text


def _moment(text: str) -> str:
    """Return the ISO text of a date or time, independent of the precision it is stored with."""
    day, mark, time = text.partition("T")
    if "." in time and "+" not in time and "-" not in time:
        time = time.rstrip("0").rstrip(".")
    if time and time.count(":") < 2:  # hours, or hours and minutes
        time += ":00" * (2 - time.count(":"))
    return day if time in ("", "00:00:00") else f"{day}{mark}{time}"


def _duration(cell: timedelta | np.timedelta64) -> str:
    """Return a duration as Python writes it, independent of its type and unit; months and years stay as they are."""
    if isinstance(cell, np.timedelta64):
        unit, step = np.datetime_data(cell.dtype)
        if unit not in _ATTOSECONDS:
            return str(cell)
        total = int(cell.astype(np.int64)) * step * _ATTOSECONDS[unit]
    else:  # a pandas.Timedelta too, which has nanoseconds
        micros = (cell.days * 86400 + cell.seconds) * 10**6 + cell.microseconds
        total = micros * 10**12 + getattr(cell, "nanoseconds", 0) * 10**9
    days, rest = divmod(total, 86400 * 10**18)
    seconds, parts = divmod(rest, 10**18)
    fraction = f".{parts:018}".rstrip("0") if parts else ""
    if parts and not parts % 10**12:
        fraction = f".{parts // 10**12:06}"
    clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
    return f"{days} day{'' if abs(days) == 1 else 's'}, {clock}" if days else clock


def _is_missing(cell: Any) -> bool:
    """Return True if a cell is masked, NaN, NaT or pandas.NA: values not equal to themselves."""
    if cell is np.ma.masked:
        return True
    if isinstance(cell, Decimal):
        return cell.is_nan()
    if type(cell).__name__ in ("NAType", "NaTType"):
        return True
    same = cell == cell
    return isinstance(same, bool | np.bool_) and not same


def _real(cell: Any) -> float | None:
    """Return a cell as a float; None if it is not a real number. Values beyond the range of floats become infinite.

    A complex number without an imaginary part is read as its real part, so that the type of the column does not matter.
    """
    if isinstance(cell, complex | np.complexfloating):
        return float(cell.real) if cell.imag == 0 else None
    if isinstance(cell, datetime | date | np.datetime64 | np.timedelta64):
        return None
    if not (hasattr(cell, "__float__") or hasattr(cell, "__index__")) or hasattr(cell, "__len__"):
        return None
    try:
        with np.errstate(all="ignore"):
            return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf


def number(cell: Any) -> float:
    """Return the number in a cell, or in its text; NaN if it is missing or not a number.

    >>> [number(cell) for cell in (2, "1.5", True, "True", 10**400, "many", None)]
    [2.0, 1.5, 1.0, 1.0, inf, nan, nan]
    """
    real = attempt(lambda: _number(_bare(cell)))
    return math.nan if real is None else real


def _number(cell: Any) -> float | None:
    if isinstance(cell, bytes | str):
        text = _text(cell)
        return _TRUTHS[text] if text in _TRUTHS else float(text)
    if hasattr(cell, "as_py"):
        return number(cell.as_py())
    return None if type(cell).__name__ in ("NAType", "NaTType") else _real(cell)


def numbers_in(column: NDArray[Any]) -> Floats:
    """Read a column of numbers, each cell as `number` does."""
    _check_column(column)
    kind = column.dtype.kind
    if kind in "iufb":
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(column, dtype=np.float64)
    if kind == "c":
        return np.where(column.imag == 0, column.real, np.nan).astype(np.float64)
    if kind in "mMV":  # dates, times, records
        return np.full(len(column), np.nan)
    cells = column.tolist()
    if set(map(type, cells)) <= _READS_ALIKE:
        try:
            return column.astype(object).astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            pass
    return _one_by_one(number, cells, np.float64)


def _check_column(column: NDArray[Any]) -> None:
    """Refuse a table: compared with a column it would be broadcast, and each row compared with all others."""
    if column.ndim != 1:
        raise BadInput("a column is an array of one dimension.")


def _one_by_one(read: Callable[[Any], Any], cells: Sequence[Any], kind: Any) -> NDArray[Any]:
    """Read cells of foreign types one by one, with warnings suppressed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.array([read(cell) for cell in cells], dtype=kind)


class Categories:
    """Public list of categories, with the index of any cell in it.

    Args:
        listed: the categories; no two may be read as the same.
        what: what they are the categories of, for error messages.
        exact: True for the values of a schema's column, whose type is that of the values. Integers beyond 2^53 differ,
            and so do texts that are not the same: "1" and "1.0". A cell of such a list of texts that is no text is read
            as above, and has no place if two of the texts are read as it is.
    """

    def __init__(self, listed: Sequence[Any], what: str = "a column", *, exact: bool = False) -> None:
        self._exact, self._texts = exact, exact and all(isinstance(value, str) for value in listed if value is not None)
        self._places: dict[str | float | None, int] = {}
        for index, value in enumerate(listed):
            self._places.setdefault(self._key(value), index)
        if len(self._places) < len(listed):
            raise BadSchema(
                f"the categories of {what:.60} must be a list of different values: 1, 1.0, True and '1' are read "
                "alike, and so are whole numbers beyond 2^53 that differ in the last digits. Write long codes as words."
            )
        # A long code given as text is also found by its rounded number, unless another code rounds to the same number.
        rounded: dict[float, int] = {}
        for key, index in self._places.items():
            read = category(key) if self._texts else key
            if isinstance(read, str) and _WHOLE.fullmatch(read):
                read = float(read)
            if isinstance(key, str) and isinstance(read, float):
                rounded[read] = -1 if read in rounded else index
        self._numbers = rounded | {key: index for key, index in self._places.items() if isinstance(key, float)}
        self._keys = np.array(sorted(self._numbers), dtype=np.float64)
        self._sorted = np.array([self._numbers[key] for key in self._keys.tolist()], dtype=np.int64)

    @property
    def numeric(self) -> bool:
        """Return True if a number can be one of the categories."""
        return bool(self._numbers)

    def code(self, cell: Any) -> int:
        """Return the index of a cell in the list; -1 if it is not listed."""
        key = attempt(lambda: self._key(cell))
        if isinstance(key, float):
            return self._numbers.get(key, -1)
        index = self._places.get(key)
        if index is None and isinstance(key, str) and _WHOLE.fullmatch(key):
            index = self._places.get(float(key))  # a long code given as text, listed as a number
        return -1 if index is None else index

    def _key(self, cell: Any) -> str | float | None:
        if self._texts and isinstance(cell, str | bytes):
            return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)
        if self._texts and hasattr(cell, "as_py"):  # a pyarrow scalar
            return self._key(cell.as_py())
        if self._exact and isinstance(cell, int | np.integer) and not -_EXACT <= cell <= _EXACT:
            return str(int(cell))
        return category(cell)

    def codes(self, column: NDArray[Any]) -> Integers:
        """Return the index of each cell."""
        _check_column(column)
        if column.dtype.kind in ("fb" if self._exact else "iufb"):
            return self._codes_of_numbers(numbers_in(column))
        # Iterating keeps the scalars of dates; other arrays are read faster as a list.
        cells = list(column) if column.dtype.kind in "mM" else column.tolist()
        kinds = set(map(type, cells))
        # Equal cells are looked up once, if all numbers are of one type: 2^53 + 2 is also a float, read differently.
        if not kinds <= _BUILT_IN or len(kinds - {str, type(None)}) > 1:
            return _one_by_one(self.code, cells, np.int64)
        code_of = {cell: self.code(cell) for cell in dict.fromkeys(cells)}
        return np.fromiter(map(code_of.__getitem__, cells), dtype=np.int64, count=len(cells))

    def _codes_of_numbers(self, values: Floats) -> Integers:
        missing = self._places.get(None, -1)
        if not len(self._keys):
            return np.where(np.isnan(values), missing, -1)
        nearest = np.minimum(np.searchsorted(self._keys, values), len(self._keys) - 1)
        indices = np.where(self._keys[nearest] == values, self._sorted[nearest], -1)
        return np.where(np.isnan(values), missing, indices) if missing >= 0 else indices
