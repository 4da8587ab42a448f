"""Generalised values, read as sets of original values: `labels.py` reads the text, this file finds the members.

A value that the attacker's column contains as it stands means itself. NULL means NULL only, `*` means everything. A
label of a hierarchy (value -> tuple of ancestors) means the values below it.

A label that is not understood stands for *every* value: nobody is excluded by it. If all other words of a column of
text are values on the attacker's list, a word that is not there is a value that nobody on the list has.
"""

import datetime as dt
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from cloister.attack.tables.columns import Integers
from cloister.attack.tables.labels import (
    LabelInterval,
    Span,
    mask_pattern,
    microseconds,
    parse_interval,
    parse_set,
    parse_span,
)

__all__ = [
    "Containment",
    "Domain",
    "Hierarchies",
    "Hierarchy",
    "LabelInterval",
    "Reading",
    "containment",
    "parse_interval",
    "unread",
]

Hierarchy = Mapping[Any, Sequence[Any]]
Hierarchies = Mapping[str, Hierarchy]


class Reading(NamedTuple):
    """What a label stands for.

    Attributes:
        positions: of the values.
        kind: `exact` (a value as it stands), `label`, `word` (text that is no value of the list and no known form), or
            `unknown`.
    """

    positions: Integers
    kind: str


class Domain:
    """The distinct values of an attacker's column, indexed for look-ups by generalised values.

    Args:
        values: the distinct values.
        hierarchy: ancestors of the values, if labels of the release may be ancestors.
    """

    def __init__(self, values: pa.Array, hierarchy: Hierarchy | None = None) -> None:
        self.type = values.type
        self.size = len(values)
        cells = values.to_pylist()
        self._cells = cells
        self._exact = {_key(cell): i for i, cell in enumerate(cells) if cell is not None}
        self._texts = {_text(cell): i for i, cell in enumerate(cells) if cell is not None}
        self._null = next((i for i, cell in enumerate(cells) if cell is None), None)
        self._numbers = _Ordered.of([_as_number(cell) for cell in cells])
        self._clock = _Ordered.of([_as_moment(cell, utc=False) for cell in cells])
        self._instants = _Ordered.of([_as_moment(cell, utc=True) for cell in cells])
        self._sorted: tuple[Integers, list[str]] | None = None
        self._listed = {_text(value) for value in hierarchy or ()}
        self._below: dict[str, list[int]] = {}
        ancestors = {_text(value): above for value, above in (hierarchy or {}).items()}
        for above in ancestors.values():
            self._listed.update(_text(label) for label in above)
        for i, cell in enumerate(cells):
            for label in {_text(label) for label in ancestors.get(_text(cell), ())} if cell is not None else ():
                self._below.setdefault(label, []).append(i)

    def members(self, label: object) -> Integers:
        """Return the positions of the values that a released value may stand for; all of them if it is not understood.

        >>> Domain(pa.array([25, 31, 39, None])).members("3*").tolist()
        [1, 2]
        """
        reading = self.read(label)
        return reading.positions if reading.kind in ("exact", "label") else self._all()

    def read(self, label: object) -> Reading:
        """Return the values that a released value may stand for, and how it was understood."""
        if label is None:
            return Reading(_positions([] if self._null is None else [self._null]), "exact")
        exact = self._lookup(label)
        if not isinstance(label, str):
            if exact is not None:
                return Reading(_positions([exact]), "exact")
            if isinstance(label, dt.date):
                return self._of_form(str(label)) or Reading(self._all(), "unknown")
            return self._of_number(label)
        text, own = label.strip(), [] if exact is None else [exact]
        below = self._below.get(text, [])
        if own and "*" not in text and parse_set(text) is None:
            return Reading(np.unique(_positions([*own, *below])), "label" if below else "exact")
        if text and not text.strip("*"):
            return Reading(self._all(), "label")
        if below or text in self._listed:
            return Reading(np.unique(_positions([*own, *below])), "label")
        reading = self._of_form(text)
        if reading is None and not text:  # a cell of CSV that is missing
            return Reading(_positions([] if self._null is None else [self._null]), "label")
        if reading is None:
            word = (pt.is_string(self.type) or pt.is_large_string(self.type)) and not self._listed
            return Reading(self._all(), "word" if word else "unknown")
        return Reading(np.union1d(reading.positions, _positions(own)), reading.kind)

    def _all(self) -> Integers:
        return np.arange(self.size, dtype=np.int64)

    def _of_number(self, label: Any) -> Reading:
        """Return the members of a typed value that the column does not contain in its own type."""
        number = _as_number(label)
        found = [] if number is None else [self._numbers.between(number, number)]
        return Reading(np.concatenate([_positions([]), *found]), "exact")

    def _of_form(self, text: str) -> Reading | None:
        """Return the members of a set, a mask, an interval or a period; None for another text."""
        parts = parse_set(text)
        if parts is not None:
            readings = [self.read(part) for part in parts]
            if any(reading.kind == "unknown" for reading in readings):
                return Reading(self._all(), "unknown")
            positions = [reading.positions for reading in readings if reading.kind != "word"]
            return Reading(np.unique(np.concatenate([_positions(self._inside(text)), *positions])), "label")
        if "*" in text:
            return Reading(self._masked(text), "label")
        found: list[Integers] = []
        if len(self._numbers):
            if (interval := parse_interval(text)) is not None:
                found.append(self._numbers.inside(interval if text[0] in "[(<>≤≥" else interval.widened()))
            elif (number := _as_number(text)) is not None:
                found.append(self._numbers.between(number, number))
        if len(self._clock) and (span := parse_span(text)) is not None:
            found.append((self._instants if span.utc else self._clock).during(span))
        return Reading(np.unique(np.concatenate(found)), "label") if found else None

    def _inside(self, text: str) -> list[int]:
        """Return values with a comma that are members of a set whose members are not quoted."""
        members = f", {text.strip()[1:-1]}, "
        return [i for value, i in self._texts.items() if "," in value and f", {value}, " in members]

    def _lookup(self, label: object) -> int | None:
        position = self._exact.get(_key(label))
        if position is None and isinstance(label, str):
            position = self._texts.get(label)
        if position is None and isinstance(label, str) and not pt.is_string(self.type):
            text = label.strip()
            for key in (_typed(text, self.type), text.lower() if pt.is_boolean(self.type) else None):
                if key is not None and key in self._exact:
                    return self._exact[key]
        if position is None and not isinstance(label, str):
            return self._texts.get(_text(label))
        return position

    def _masked(self, mask: str) -> Integers:
        """Return the values that a mask covers, among those with its first characters."""
        if self._sorted is None:
            ordered = sorted(self._texts.items())
            self._sorted = _positions([i for _, i in ordered]), [text for text, _ in ordered]
        order, texts = self._sorted
        prefix = mask.partition("*")[0]
        start, end = bisect_left(texts, prefix), bisect_left(texts, prefix + "\U0010ffff") if prefix else len(texts)
        pattern = mask_pattern(mask)
        return np.sort(order[[i for i in range(start, end) if pattern.fullmatch(texts[i])]])


class _Ordered:
    """Numbers or times of some values, ascending, with the positions of the values."""

    def __init__(self, order: Integers, values: NDArray[Any]) -> None:
        self._order, self._values = order, values

    @staticmethod
    def of(values: Sequence[float | int | None]) -> "_Ordered":
        places = [i for i, value in enumerate(values) if value is not None]
        array = np.array([values[i] for i in places])
        order = np.argsort(array, kind="stable")
        return _Ordered(np.array(places, dtype=np.int64)[order], array[order])

    def __len__(self) -> int:
        return len(self._order)

    def between(self, low: float, high: float) -> Integers:
        """Return the positions of the values from `low` to `high`."""
        return self.inside(LabelInterval(low, high))

    def inside(self, interval: LabelInterval) -> Integers:
        """Return the positions of the values in an interval."""
        start, end = interval.range_in(self._values)
        return np.sort(self._order[start:end])

    def during(self, span: Span) -> Integers:
        """Return the positions of the times in a span."""
        start, end = np.searchsorted(self._values, [span.start, span.end], side="left")
        return np.sort(self._order[start:end])


def _positions(numbers: Sequence[int]) -> Integers:
    return np.array(numbers, dtype=np.int64)


def _key(value: Any) -> Any:
    """Return a hashable form in which equal values of several types are equal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    return value if isinstance(value, str | int | float | Decimal | bytes) else str(value)


def _text(value: object) -> str:
    """Return a value as a release prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def _typed(text: str, kind: pa.DataType) -> Any:
    """Return the number that a text means in a column of a type; None if it means none."""
    try:
        if pt.is_integer(kind):
            number = Decimal(text)
            return int(number) if number.is_finite() and number == int(number) else None
        if pt.is_decimal(kind):
            return Decimal(text)
        return float(text) if pt.is_floating(kind) else None
    except (InvalidOperation, ValueError):
        return None


def _as_number(cell: object) -> float | None:
    """Return a number, or the number that a text is; None for all else."""
    if isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell):
        return None
    if not isinstance(cell, int | float | Decimal | str):
        return None
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _as_moment(cell: object, *, utc: bool) -> int | None:
    """Return a date or time, or what an ISO text says, in microseconds; None for all else."""
    if isinstance(cell, str):
        if len(cell) < 10 or cell[4:5] != "-" or cell[7:8] != "-":
            return None
        try:
            cell = dt.datetime.fromisoformat(cell)
        except ValueError:
            return None
    return microseconds(cell, utc=utc) if isinstance(cell, dt.date) else None


@dataclass(frozen=True, slots=True, eq=False)
class Containment:
    """The attacker's values that each released value of a column may stand for, as sorted pairs.

    Attributes:
        released: position of the released value of each pair, ascending.
        known: position of the attacker's value of each pair.
        size: number of the attacker's values.
        unknown: number of released values that are not understood, and count as every value.
        absent: number of words that are taken for values that nobody on the attacker's list has.
    """

    released: Integers
    known: Integers
    size: int
    unknown: int = 0
    absent: int = 0

    def as_function(self) -> Integers | None:
        """Return for each of the attacker's values the only released value that contains it (-1: none).

        None if a value is in several released ones.
        """
        if len(self.known) and np.bincount(self.known, minlength=self.size).max() > 1:
            return None
        only = np.full(self.size, -1, dtype=np.int64)
        only[self.known] = self.released
        return only

    def matrix(self, chosen: Integers, count: int) -> NDArray[np.bool_]:
        """Return which of `count` released values contain which of the chosen values of the attacker."""
        row = np.full(self.size, -1, dtype=np.int64)
        row[chosen] = np.arange(len(chosen))
        wanted = row[self.known] >= 0
        table = np.zeros((len(chosen), count), dtype=bool)
        table[row[self.known[wanted]], self.released[wanted]] = True
        return table


def containment(released: pa.Array, known: pa.Array, hierarchy: Hierarchy | None = None) -> Containment:
    """Read the distinct values of a released column as sets of the distinct values that an attacker knows.

    >>> pairs = containment(pa.array(["20-29", "*"]), pa.array([25, 31]))
    >>> list(zip(pairs.released.tolist(), pairs.known.tolist()))
    [(0, 0), (1, 0), (1, 1)]
    """
    domain = Domain(known, hierarchy)
    labels = released.to_pylist()
    readings = [domain.read(label) for label in labels]
    kinds = [reading.kind for label, reading in zip(labels, readings, strict=True) if label not in (None, "*")]
    # A column in which every other word is a value of the list is not generalised: the rest are values of others.
    raw = "exact" in kinds and "label" not in kinds and "unknown" not in kinds
    members = [_positions([]) if raw and reading.kind == "word" else reading.positions for reading in readings]
    words = kinds.count("word")
    lengths = np.array([len(positions) for positions in members], dtype=np.int64)
    return Containment(
        np.repeat(np.arange(len(members), dtype=np.int64), lengths),
        np.concatenate(members) if members else _positions([]),
        len(known),
        unknown=kinds.count("unknown") + (0 if raw else words),
        absent=words if raw else 0,
    )


def unread(names: Sequence[str], sets: Sequence[Containment]) -> Iterator[str]:
    """Yield a sentence for each column with values that are no label that is understood."""
    for name, column in zip(names, sets, strict=True):
        if column.unknown:
            yield (
                f"{column.unknown:,} labels of {name} are not understood and count as fitting everybody: the true risk "
                f"may be higher. Give the hierarchy of {name}."
            )
        if column.absent:
            yield (
                f"{column.absent:,} values of {name} are taken for those of people who are not on the list. Give the "
                f"hierarchy of {name} if they are labels."
            )
