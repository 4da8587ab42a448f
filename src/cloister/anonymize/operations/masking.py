"""Suppression of columns, rows and cells; masking of characters; truncation of text.

A suppressed cell becomes NULL, the missing marker. Replacing it by a plausible value that does not occur in the column
would be distortion: nobody could tell a suppressed cell from a true one.

Falls to: `attack.tables.linkage` and `attack.tables.uniqueness` on the columns and digits that stay.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cloister.anonymize.operations.operated import Operated, changed_cells, read, with_column
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadName, BadNumber, BadSchema

__all__ = ["mask", "suppress_cells", "suppress_columns", "suppress_rows", "truncate"]

_COLUMNS = "Suppressed columns are gone, but the other columns may still identify a person together."
_ROWS = "Suppressed rows show by their absence that they were rare; the rows that stay are unchanged."
_CELLS = "A suppressed cell may follow from the other cells of its row, or from totals published elsewhere."
_MASK = (
    "Masked values with few possibilities can be guessed; kept characters, the length and equal values stay visible, "
    "so rows can still be linked."
)
_TRUNCATE = "A prefix held by a single row still identifies it; check class sizes afterwards."


def suppress_columns(rows: object, columns: str | Iterable[str]) -> Operated:
    """Drop columns. This is what to do with direct identifiers.

    >>> suppress_columns({"name": ["John"], "salary": [78]}, "name").rows.to_pydict()
    {'salary': [78]}
    """
    table, names = read(rows, columns)
    log = tuple(f"Column {name} suppressed: {table.num_rows:,} cells." for name in names)
    return Operated(table.drop_columns(list(names)), log, _COLUMNS)


def suppress_rows(rows: object, where: Any) -> Operated:
    """Drop rows.

    Args:
        rows: the table.
        where: a truth value for each row; True drops it.
    """
    table = to_arrow(rows)
    gone = _selection(where, table.num_rows)
    log = f"{int(gone.sum()):,} of {table.num_rows:,} rows suppressed."
    return Operated(table.filter(pa.array(~gone)), (log,), _ROWS)


def suppress_cells(rows: object, columns: str | Iterable[str], where: Any, *, marker: str | None = None) -> Operated:
    """Replace cells by the missing marker.

    Args:
        rows: the table.
        columns: the columns in which the cells of the rows are suppressed.
        where: a truth value for each row; True suppresses its cells.
        marker: text in place of NULL, such as `*`, for columns of text.

    Raises:
        BadSchema: a column is no text, or the marker occurs in it as a value and would be taken for one.

    >>> suppress_cells({"disease": ["flu", "measles"]}, "disease", [False, True]).rows.to_pydict()
    {'disease': ['flu', None]}
    """
    table, names = read(rows, columns)
    gone = _selection(where, table.num_rows)
    log = []
    for name in names:
        column = table.column(name)
        if marker is not None:
            _check_marker(column, name, marker)
        replaced = pc.if_else(pa.array(gone), pa.scalar(marker, column.type), column)
        shown = "NULL" if marker is None else marker
        log.append(f"Column {name}: {int(gone.sum()):,} of {table.num_rows:,} cells suppressed by the marker {shown}.")
        table = with_column(table, name, replaced)
    return Operated(table, tuple(log), _CELLS)


def _check_marker(column: pa.ChunkedArray, name: str, marker: str) -> None:
    if not pa.types.is_string(column.type):
        raise BadSchema(
            f"column {name} is of type {column.type}: only text can hold a marker. Leave marker out for NULL."
        )
    if pc.any(pc.equal(column, marker)).as_py():
        raise BadSchema(f"column {name} has cells that equal the marker {marker!r}. Choose a marker that is no value.")


def _selection(where: Any, count: int) -> npt.NDArray[np.bool_]:
    selected = np.asarray(where.to_pylist() if isinstance(where, pa.Array | pa.ChunkedArray) else where)
    if selected.dtype != np.bool_ or selected.shape != (count,):
        raise BadSchema(f"where is one truth value for each of the {count:,} rows.")
    return selected


def mask(
    rows: object,
    columns: str | Iterable[str],
    *,
    keep_first: int = 0,
    keep_last: int = 0,
    pattern: str | None = None,
    sign: str = "*",
    hide_length: bool = False,
) -> Operated:
    r"""Replace characters by a sign. Numbers and dates are written as text first; NULL stays NULL.

    A value that is not longer than the characters to keep is masked whole, since it would be shown whole otherwise.

    Args:
        rows: the table.
        columns: the columns to mask.
        keep_first: number of characters to keep at the beginning.
        keep_last: number of characters to keep at the end.
        pattern: a regular expression (RE2); every match becomes one sign, and nothing else changes.
        sign: the character to write.
        hide_length: write three signs between the kept characters, whatever the length.

    >>> mask({"phone": ["813-555-0142", "555"]}, "phone", keep_last=4).rows.to_pydict()
    {'phone': ['********0142', '***']}
    >>> mask({"phone": ["813-555-0142"]}, "phone", pattern=r"\d").rows.to_pydict()
    {'phone': ['***-***-****']}
    """
    table, names = read(rows, columns)
    _check_mask(keep_first, keep_last, pattern, sign)
    log = []
    for name in names:
        text = _text(table, name)
        if pattern is None:
            masked = _middle(text, keep_first, keep_last, sign, hide_length)
            what = f"the first {keep_first} and the last {keep_last} characters kept"
        else:
            try:
                masked = pc.replace_substring_regex(text, pattern, sign)
            except pa.ArrowInvalid:
                raise BadName(f"the pattern {pattern!r} is no regular expression of RE2.") from None
            what = f"matches of {pattern} replaced by {sign}"
        log.append(
            f"Column {name} masked: {what}, {changed_cells(text, masked):,} of {table.num_rows:,} cells changed."
        )
        table = with_column(table, name, masked)
    return Operated(table, tuple(log), _MASK)


def _check_mask(keep_first: int, keep_last: int, pattern: str | None, sign: str) -> None:
    if min(keep_first, keep_last) < 0:
        raise BadNumber("keep_first and keep_last are numbers of characters, 0 or more.")
    if pattern is not None and (keep_first or keep_last):
        raise BadNumber("give either a pattern, or the characters to keep.")
    if len(sign) != 1 or sign == "\\":
        raise BadName("the sign is one character, other than a backslash.")


def _middle(text: pa.ChunkedArray, first: int, last: int, sign: str, hide_length: bool) -> pa.ChunkedArray:
    lengths = pc.utf8_length(text)
    short = pc.less_equal(lengths, first + last)
    hidden = pc.if_else(short, lengths, pc.subtract(lengths, first + last))
    count = pc.if_else(pc.is_null(lengths), lengths, pa.scalar(3, pa.int32())) if hide_length else hidden
    signs = pc.binary_repeat(pa.scalar(sign), count)
    empty = pa.scalar("", pa.string())
    head = pc.if_else(short, empty, pc.utf8_slice_codeunits(text, 0, first)) if first else empty
    tail = pc.if_else(short, empty, pc.utf8_slice_codeunits(text, -last, None)) if last else empty
    return pc.binary_join_element_wise(head, signs, tail, "")


def truncate(rows: object, columns: str | Iterable[str], length: int) -> Operated:
    """Cut values to their first characters. Numbers and dates are written as text first; NULL stays NULL.

    >>> truncate({"zip": ["33617", "33613"]}, "zip", 3).rows.to_pydict()
    {'zip': ['336', '336']}
    """
    table, names = read(rows, columns)
    if length < 1:
        raise BadNumber("length is a number of characters, 1 or more; suppress_columns drops a column.")
    log = []
    for name in names:
        text = _text(table, name)
        cut = pc.utf8_slice_codeunits(text, 0, length)
        count = changed_cells(text, cut)
        log.append(f"Column {name} truncated to {length} characters: {count:,} of {table.num_rows:,} cells changed.")
        table = with_column(table, name, cut)
    return Operated(table, tuple(log), _TRUNCATE)


def _text(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = table.column(name)
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise BadSchema(f"column {name} is of type {column.type}, which has no text form. Convert it first.") from None
