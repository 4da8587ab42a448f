"""Mondrian: split the rows along one quasi-identifier after the other, as long as both halves satisfy the requirement.

LeFevre, DeWitt and Ramakrishnan (2006), breadth first: all classes of one depth are split at once, so the work is a few
sorts of all rows for each depth and no loop over classes. A class is split along the quasi-identifier with the widest
span, relative to the whole table; if a half would fail, along the next one.

    strict     rows with equal values stay together: every class is a box, and boxes do not overlap
    relaxed    a class is cut at its middle row, so that rows with the median value may fall on either side

Falls to: `attack.tables.homogeneity`, `attack.tables.minimality`, and `attack.tables.intersection` of two releases.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloister.anonymize.classes import EquivalenceClasses
from cloister.anonymize.coded import Array, CodedColumn
from cloister.anonymize.models import Requirement

__all__ = ["partition"]

Progress = Callable[[float, str], None]


def partition(
    columns: Sequence[CodedColumn],
    sensitive: Mapping[str, CodedColumn],
    requirement: Requirement,
    *,
    relaxed: bool = False,
    weights: Mapping[str, float] | None = None,
    outside: Array | None = None,
    progress: Progress | None = None,
) -> Array:
    """Return the class of each row.

    Args:
        columns: the quasi-identifiers; values are split in their sorted order, a missing one comes last.
        sensitive: the sensitive columns that the requirement names.
        requirement: what every class must satisfy. The whole table must satisfy it.
        relaxed: True to cut at the middle row.
        weights: of quasi-identifiers; a column with twice the weight is split at half the span.
        outside: True for rows of a population, which are in classes and not in the release.
        progress: called with the share of rows whose class is final, and a sentence.
    """
    rows = len(columns[0].codes)
    work = _Work(columns, sensitive, requirement, relaxed, weights or {}, outside)
    while work.rows.size:
        work.split()
        if progress is not None:
            done = 1.0 - work.rows.size / rows
            progress(done, f"{work.number:,} classes, {done:.0%} of the rows final")
    return work.final


@dataclass
class _Work:
    """The rows whose classes may still be split, sorted by class."""

    columns: Sequence[CodedColumn]
    sensitive: Mapping[str, CodedColumn]
    requirement: Requirement
    relaxed: bool
    weights: Mapping[str, float]
    outside: Array | None = None

    def __post_init__(self) -> None:
        size = len(self.columns[0].codes)
        self._whole = {
            name: np.bincount(
                column.codes if self.outside is None else column.codes[~self.outside], minlength=len(column.values)
            )
            for name, column in self.sensitive.items()
        }
        self.final = np.zeros(size, np.int64)
        self.number = 0
        self.rows = np.arange(size)
        self._starts = np.array([0])
        self._codes = [column.codes.astype(np.int32) for column in self.columns]
        self._tried = np.zeros((1, len(self.columns)), bool)
        positions = [column.positions for column in self.columns]
        self._positions = positions
        spans = [places[-1] - places[0] if len(places) else 0.0 for places in positions]
        self._scale = np.array(
            [
                self.weights.get(column.name, 1.0) / (span or 1.0)
                for column, span in zip(self.columns, spans, strict=True)
            ]
        )
        self._span = self._spans(np.ones(1, bool), np.zeros((1, len(self.columns))))
        self._retire()

    @property
    def _sizes(self) -> Array:
        return np.diff(np.append(self._starts, self.rows.size))

    def _spans(self, fresh: Array, spans: Array) -> Array:
        """Return the relative span of every column in every class; only classes that are new are computed."""
        if not fresh.any():
            return spans
        for place, (codes, positions) in enumerate(zip(self._codes, self._positions, strict=True)):
            low = np.minimum.reduceat(codes, self._starts)
            high = np.maximum.reduceat(codes, self._starts)
            spans[:, place] = np.where(fresh, (positions[high] - positions[low]) * self._scale[place], spans[:, place])
        return spans

    def split(self) -> None:
        """Try to split every class along its best column that was not tried yet."""
        number = len(self._starts)
        choice = np.argmax(np.where(self._tried, -1.0, self._span), axis=1)
        sizes = self._sizes
        of_row = np.repeat(np.arange(number), sizes)
        value = np.choose(choice[of_row], self._codes) if len(self._codes) <= 31 else self._chosen(choice, of_row)
        width = max(len(column.values) for column in self.columns)
        order = _sorting(of_row * width + value, number * width)
        value = value[order]
        middle = self._starts + sizes // 2
        right = self._right(value, middle, of_row, sizes)
        allowed = self._allowed(of_row, right, order)
        self._apply(order, right, allowed, of_row, choice)

    def _chosen(self, choice: Array, of_row: Array) -> Array:
        value = np.empty(self.rows.size, np.int32)
        for place, codes in enumerate(self._codes):
            inside = choice[of_row] == place
            value[inside] = codes[inside]
        return value

    def _right(self, value: Array, middle: Array, of_row: Array, sizes: Array) -> Array:
        """Return which rows fall into the upper half of their class."""
        if self.relaxed:
            return np.arange(value.size) >= middle[of_row]
        median = value[middle][of_row]
        below, upto = value < median, value <= median
        # The cut below the median or the one above it, whichever is nearer to the middle.
        less = np.add.reduceat(below, self._starts)
        most = np.add.reduceat(upto, self._starts)
        above = np.abs(most - sizes / 2) < np.abs(less - sizes / 2)
        return np.where(above[of_row], ~upto, ~below)

    def _allowed(self, of_row: Array, right: Array, order: Array) -> Array:
        """Return which classes have two halves that both satisfy the requirement."""
        number = len(self._starts)
        rows = self.rows[order]
        beyond = None if self.outside is None else self.outside[rows].astype(np.int64)
        halves = EquivalenceClasses(
            of_row * 2 + right,
            number * 2,
            {name: CodedColumn(name, column.values, column.codes[rows]) for name, column in self.sensitive.items()},
            None if beyond is None else 1 - beyond,
            beyond,
            self._whole,
        )
        holds = (halves.sizes > 0) & self.requirement.holds(halves)
        return np.asarray(holds[0::2] & holds[1::2])

    def _apply(self, order: Array, right: Array, allowed: Array, of_row: Array, choice: Array) -> None:
        """Split the classes that may be split; mark the column as tried in the others."""
        self.rows = self.rows[order]
        self._codes = [codes[order] for codes in self._codes]
        self._tried[np.arange(len(choice)), choice] |= ~allowed
        cut = allowed[of_row] & right
        steps = np.flatnonzero(np.diff(of_row * 2 + cut, prepend=-1))
        origin = of_row[steps]
        self._starts = steps
        fresh = allowed[origin]
        self._tried, self._span = self._tried[origin], self._span[origin]
        self._tried[fresh] = False
        self._span = self._spans(fresh, self._span)
        self._retire()

    def _retire(self) -> None:
        """Take classes out that cannot be split: too small, or every column tried or constant."""
        sizes = self._sizes
        live = (sizes >= 2 * self.requirement.smallest) & (~self._tried & (self._span > 0)).any(axis=1)
        if live.all():
            return
        done = np.repeat(~live, sizes)
        names = self.number + np.cumsum(~live) - 1
        self.final[self.rows[done]] = np.repeat(names, sizes)[done]
        self.number += int((~live).sum())
        self.rows = self.rows[~done]
        self._codes = [codes[~done] for codes in self._codes]
        self._starts = (
            np.concatenate([[0], np.cumsum(sizes[live])[:-1]]).astype(np.int64) if live.any() else np.zeros(0, np.int64)
        )
        self._tried, self._span = self._tried[live], self._span[live]


def _sorting(keys: Array, span: int) -> Array:
    """Return the stable order of keys below `span`: keys and places are sorted as one number, which is fastest."""
    bits = max(1, int(len(keys) - 1).bit_length())
    if span >= 1 << (62 - bits):
        return np.argsort(keys, kind="stable")
    packed = np.sort((keys.astype(np.int64) << bits) | np.arange(len(keys)))
    return np.asarray(packed & ((1 << bits) - 1))
