"""Labels of classes that are boxes: an interval of numbers or dates, a set of other values."""

from typing import Any

import numpy as np

from cloister.anonymize.coded import Array, CodedColumn
from cloister.anonymize.hierarchy import ALL, value_text
from cloister.anonymize.utility import ReleasedColumn

__all__ = ["boxed"]

_DENSE = 1 << 24  # cells of a table of classes and values, at most


def boxed(column: CodedColumn, of_row: Array) -> ReleasedColumn:
    """Return the values of each class as one label: an interval of numbers or dates, a set of other values."""
    number = int(of_row.max()) + 1
    ordered = column.numeric or (bool(column.values) and hasattr(column.values[0], "toordinal"))
    make = _ranges if ordered else _sets
    labels, words, penalty = make(column, of_row, number)
    return ReleasedColumn(column.name, column.codes, labels[of_row], words, penalty[of_row])


def _ranges(column: CodedColumn, of_row: Array, number: int) -> tuple[Array, list[Any], Array]:
    """Return for each class the number of its interval and its penalty; and the intervals."""
    width, positions = len(column.values), column.positions
    missing = column.values[-1] is None
    last = width - 2 if missing else width - 1
    low, top = np.full(number, width, np.int64), np.full(number, -1, np.int64)
    np.minimum.at(low, of_row, column.codes)
    holds_missing = np.zeros(number, bool)
    if missing:
        absent = column.codes > last
        holds_missing[of_row[absent]] = True
        np.maximum.at(top, of_row[~absent], column.codes[~absent])
    else:
        np.maximum.at(top, of_row, column.codes)
    top = np.where(top < 0, low, top)  # nothing but missing values
    mixed = holds_missing & (low <= last)
    span = (positions[last] - positions[0]) or 1.0 if last > 0 else 1.0
    penalty = np.clip((positions[np.minimum(top, last)] - positions[np.minimum(low, last)]) / span, 0.0, 1.0)
    penalty = np.where(mixed, 1.0, penalty)
    keys, labels = np.unique((low * width + top) * 2 + holds_missing, return_inverse=True)
    words = [_range(column, (key // 2 // width, key // 2 % width, bool(key % 2))) for key in keys.tolist()]
    return labels, _texts(words), penalty


def _sets(column: CodedColumn, of_row: Array, number: int) -> tuple[Array, list[Any], Array]:
    """Return for each class the number of its set of values and its penalty; and the sets."""
    width = len(column.values)
    keys = of_row * width + column.codes
    if number * width <= _DENSE:
        pairs = np.flatnonzero(np.bincount(keys, minlength=number * width))
    else:
        keys = np.sort(keys)
        pairs = keys[np.diff(keys, prepend=-1) > 0]
    owner, code = pairs // width, pairs % width
    starts = np.searchsorted(owner, np.arange(number))
    counts = np.diff(np.append(starts, len(pairs)))
    order: dict[bytes, int] = {}
    packed = code.astype(np.int32)
    ends = (starts + counts).tolist()
    raw = [packed[start:end].tobytes() for start, end in zip(starts.tolist(), ends, strict=True)]
    labels = np.array([order.setdefault(key, len(order)) for key in raw], np.int64)
    words = [_set(column, tuple(np.frombuffer(key, np.int32).tolist())) for key in order]
    return labels, _texts(words), np.where(counts > 1, counts / width, 0.0)


def _texts(words: list[Any]) -> list[Any]:
    """Return labels as text if any of them is."""
    if any(isinstance(text, str) for text in words):
        return [None if text is None else value_text(text) for text in words]
    return words


def _range(column: CodedColumn, key: tuple[int, int, bool]) -> Any:
    low, high, missing = key
    if missing:
        return None if low == len(column.values) - 1 else ALL  # values and missing ones together tell nothing
    first, last = column.values[low], column.values[high]
    if low == high:
        return first
    plain = isinstance(first, int) and isinstance(last, int) and first >= 0
    return f"{first}-{last}" if plain else f"[{value_text(first)}, {value_text(last)}]"


def _set(column: CodedColumn, key: tuple[int, ...]) -> Any:
    if len(key) == 1:
        return column.values[key[0]]
    if len(key) == len(column.values):
        return ALL
    return "{" + ", ".join(_member(column.values[code]) for code in key) + "}"


def _member(value: Any) -> str:
    """Return a member of a set, quoted as in CSV where its text could be read as something else."""
    if value is None:
        return "missing"
    text = value_text(value)
    plain = text == text.strip() and text not in ("", "missing") and not any(sign in text for sign in ',"{}')
    return text if plain else '"' + text.replace('"', '""') + '"'
