"""Rounding, top and bottom coding, global recoding of numbers to intervals, truncation of dates.

Falls to: `attack.tables.linkage` with the generalised values, and `attack.tables.intersection` of releases with other
edges.
"""

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloister.anonymize.operations.operated import (
    Floats,
    Operated,
    changed_cells,
    from_numbers,
    generator,
    is_number,
    read,
    to_numbers,
    with_column,
)
from cloister.privacy.errors import BadNumber, BadProbability, BadSchema

__all__ = ["bottom_code", "recode", "round_to", "top_code", "truncate_dates"]

_ROUND = (
    "A rounded value bounds the true one to an interval of known width. Totals that are published exactly, or the same "
    "value rounded again at random, narrow it down."
)
_CODE = "Values inside the limit are unchanged. The number of coded cells is visible, and so is who has one."
_RECODE = "An interval held by a single row still identifies it; check class sizes afterwards."
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute")


def round_to(
    rows: object,
    columns: str | Iterable[str],
    base: float,
    *,
    method: Literal["nearest", "down", "up", "random"] = "nearest",
    random_state: int | None = None,
) -> Operated:
    """Round numbers to multiples of a base.

    Random rounding is unbiased: x = (q + r)·base with 0 ≤ r < 1 goes up with probability r, so that its expectation
    is x. A multiple of the base stays as it is. NULL stays NULL.

    Args:
        rows: the table.
        columns: columns of numbers. The base is in their units: days for dates, seconds for timestamps.
        base: a positive number; a whole one for integers and dates.
        method: `nearest` (halves to even multiples), `down`, `up` or `random`.
        random_state: a seed for tests and lessons.

    >>> round_to({"salary": [78, 90, 65]}, "salary", 10).rows.to_pydict()
    {'salary': [80, 90, 60]}
    """
    table, names = read(rows, columns)
    if not (np.isfinite(base) and base > 0):
        raise BadNumber("base is a positive finite number.")
    if method not in ("nearest", "down", "up", "random"):
        raise BadNumber("method is nearest, down, up or random.")
    rng, decimals = generator(random_state), max(0, -int(Decimal(repr(float(base))).as_tuple().exponent))
    log = []
    for name in names:
        column = table.column(name)
        whole = not (pa.types.is_floating(column.type) or pa.types.is_decimal(column.type))
        if whole and base != int(base):
            raise BadNumber(f"column {name} is of type {column.type}: its base is a whole number.")
        values = to_numbers(table, name)
        if whole and np.nanmax(np.abs(values), initial=0) > 2**53:
            raise BadNumber(f"column {name} has integers beyond 2^53, which doubles do not tell apart. Use truncate.")
        quotients = values / base
        # Rounding again to the base's own decimals writes 0.3, not 0.30000000000000004.
        multiples = np.round(_rounded(quotients, method, rng) * base, decimals)
        rounded = from_numbers(multiples, column.type)
        count = changed_cells(column, rounded)
        log.append(
            f"Column {name} rounded to multiples of {base:.12g} ({method}): "
            f"{count:,} of {table.num_rows:,} cells changed."
        )
        table = with_column(table, name, rounded)
    return Operated(table, tuple(log), _ROUND)


def _rounded(quotients: Floats, method: str, rng: np.random.Generator) -> Floats:
    if method == "nearest":
        return np.rint(quotients)
    # A quotient such as 0.3 / 0.1 misses its integer by the last bit.
    nearest = np.rint(quotients)
    quotients = np.where(np.abs(quotients - nearest) <= 1e-9 * np.maximum(1.0, np.abs(nearest)), nearest, quotients)
    if method == "up":
        return np.ceil(quotients)
    floors = np.floor(quotients)
    return floors + (rng.random(len(quotients)) < quotients - floors) if method == "random" else floors


def top_code(
    rows: object,
    columns: str | Iterable[str],
    at: float | dt.date | None = None,
    *,
    share: float | None = None,
    by: Literal["limit", "mean"] = "limit",
) -> Operated:
    """Replace values above a limit by the limit, or by the mean of the values above it.

    Args:
        rows: the table.
        columns: columns of numbers, dates or timestamps.
        at: the limit, best a public one: a number, or a date or datetime for such columns.
        share: in place of `at`: the share of the largest values; the limit is then a quantile of the rows.
        by: `limit`, or `mean`, which keeps the column's total (up to rounding) and publishes the mean of the tail.

    >>> top_code({"age": [34, 91, 99]}, "age", 90).rows.to_pydict()
    {'age': [34, 90, 90]}
    """
    return _code(rows, columns, at, share, by, top=True)


def bottom_code(
    rows: object,
    columns: str | Iterable[str],
    at: float | dt.date | None = None,
    *,
    share: float | None = None,
    by: Literal["limit", "mean"] = "limit",
) -> Operated:
    """Replace values below a limit by the limit, or by the mean of the values below it. See `top_code`.

    >>> bottom_code({"age": [14, 34]}, "age", 18).rows.to_pydict()
    {'age': [18, 34]}
    """
    return _code(rows, columns, at, share, by, top=False)


def _code(
    rows: object, columns: str | Iterable[str], at: float | dt.date | None, share: float | None, by: str, *, top: bool
) -> Operated:
    table, names = read(rows, columns)
    if (at is None) == (share is None):
        raise BadNumber("give either the limit `at`, or the `share` of cells to code.")
    if share is not None and not 0 < share < 1:
        raise BadProbability("share is strictly between 0 and 1.")
    if by not in ("limit", "mean"):
        raise BadNumber("by is limit or mean.")
    log = []
    for name in names:
        column, values = table.column(name), to_numbers(table, name)
        limit = _quantile(values, share, top) if at is None else _given(at, column.type, top)
        beyond = values > limit if top else values < limit
        tail = values[beyond].mean() if by == "mean" and beyond.any() else limit
        coded = from_numbers(np.where(beyond, tail, values), column.type)
        # Cells that are not coded are copied: a large integer or a long decimal is no double.
        coded = pc.if_else(pa.array(beyond), coded, column)
        side = "top-coded above" if top else "bottom-coded below"
        shown = f"{limit:.12g}" if is_number(column.type) else from_numbers(np.array([limit]), column.type)[0]
        log.append(
            f"Column {name} {side} {shown} by the {'limit' if by == 'limit' else 'mean of the tail'}: "
            f"{int(beyond.sum()):,} of {table.num_rows:,} cells changed."
        )
        table = with_column(table, name, coded)
    return Operated(table, tuple(log), _CODE)


def _given(at: float | dt.date, kind: pa.DataType, top: bool) -> float:
    """Return a limit in the numbers of a column; a limit between two integers is the one inside."""
    if isinstance(at, dt.date) == is_number(kind) or not (isinstance(at, dt.date) or np.isfinite(at)):
        raise BadNumber(f"the limit of a column of type {kind} is a finite number, or a date for dates.")
    if isinstance(at, dt.date):
        try:
            return float(to_numbers(pa.table({"at": pa.array([at]).cast(kind)}), "at")[0])
        except pa.ArrowInvalid:
            raise BadNumber(f"the limit cannot be written as {kind}. Give a date for dates.") from None
    if pa.types.is_integer(kind):
        return float(np.floor(at) if top else np.ceil(at))
    return float(at)


def _quantile(values: Floats, share: float | None, top: bool) -> float:
    known = values[~np.isnan(values)]
    assert share is not None
    if not len(known):
        return 0.0
    return float(np.quantile(known, 1 - share if top else share, method="lower" if top else "higher"))


def recode(
    rows: object, columns: str | Iterable[str], width: float, *, origin: float = 0, label: str = "{low}-{high}"
) -> Operated:
    """Replace numbers by intervals of one width, the same for all rows (global recoding). NULL stays NULL.

    Args:
        rows: the table.
        columns: columns of numbers.
        width: width of the intervals.
        origin: where an interval begins.
        label: text of an interval; its lower end is included, its upper end is not.

    >>> recode({"age": [26, 30]}, "age", 10).rows.to_pydict()
    {'age': ['20-30', '30-40']}
    """
    table, names = read(rows, columns)
    if not (np.isfinite(width) and width > 0 and np.isfinite(origin)):
        raise BadNumber("width is a positive finite number, origin a finite one.")
    if "{low}" not in label or "{high}" not in label:
        raise BadNumber("label contains {low} and {high}.")
    log = []
    for name in names:
        if not is_number(table.column(name).type):
            raise BadSchema(
                f"column {name} is of type {table.column(name).type}. Recode numbers; truncate_dates for dates."
            )
        values = to_numbers(table, name)
        gone = np.isnan(values)
        floors = np.floor((np.where(gone, origin, values) - origin) / width)
        cells, positions = np.unique(floors, return_inverse=True)
        labels = pa.array(
            [
                label.format(low=f"{origin + cell * width:.12g}", high=f"{origin + (cell + 1) * width:.12g}")
                for cell in cells
            ],
            pa.string(),
        )
        table = with_column(table, name, labels.take(pa.array(positions, mask=gone)))
        log.append(
            f"Column {name} recoded to intervals of width {width:.12g} from {origin:.12g}: "
            f"{int((~gone).sum()):,} of {table.num_rows:,} cells changed."
        )
    return Operated(table, tuple(log), _RECODE)


def truncate_dates(rows: object, columns: str | Iterable[str], unit: str = "month") -> Operated:
    """Set dates and timestamps to the beginning of their year, quarter, month, week, day, hour or minute.

    >>> import datetime
    >>> truncate_dates({"birth": [datetime.date(1980, 5, 17)]}, "birth", "year").rows.to_pydict()
    {'birth': [datetime.date(1980, 1, 1)]}
    """
    table, names = read(rows, columns)
    if unit not in _UNITS:
        raise BadNumber(f"unit is one of {', '.join(_UNITS)}.")
    log = []
    for name in names:
        column = table.column(name)
        if not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
            raise BadSchema(f"column {name} is of type {column.type}; dates or timestamps are truncated.")
        cut = pc.floor_temporal(column, unit=unit)
        count = changed_cells(column, cut)
        log.append(f"Column {name} truncated to the {unit}: {count:,} of {table.num_rows:,} cells changed.")
        table = with_column(table, name, cut)
    return Operated(table, tuple(log), _RECODE)
