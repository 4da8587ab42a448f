"""Equivalence classes of rows, their sizes, and the counts of sensitive values in each.

With matching="exact" a class is the set of rows with equal quasi-identifiers, and a suppressed cell is a value as any
other. With matching="overlap" every combination of quasi-identifiers has a set of matching rows: those that agree in
each column in which neither is suppressed. These sets overlap; they are what a person sees who knows nothing about the
suppressed cells. Somebody who knows the true value behind a suppressed cell may exclude some of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cloister.anonymize.checking.columns import Column, Integers
from cloister.privacy.errors import BadSource

__all__ = ["Cells", "Classes", "Floats", "cells_of", "combine", "group", "matching_classes", "spread", "without_gaps"]

Floats = npt.NDArray[np.float64]
_DENSE = 2**24  # numbers below this are counted in an array, larger ones are hashed or sorted
_MOST_CELLS = 50_000_000


@dataclass(frozen=True, slots=True)
class Classes:
    """Rows in classes.

    Attributes:
        ids: the class of each entry.
        sizes: the number of rows of each class; with overlap, of rows that match it.
        pairs: with overlap, the class and the class of matching rows, for each pair that matches; None if exact.
    """

    ids: Integers
    sizes: Integers
    pairs: tuple[Integers, Integers] | None = None

    def an_entry(self) -> Integers:
        """Return an entry of each class."""
        entries = np.zeros(len(self.sizes), dtype=np.int64)
        entries[self.ids] = np.arange(len(self.ids))
        return entries

    def members(self, number: int) -> npt.NDArray[np.intp]:
        """Return the entries of a class; with overlap, those that match it."""
        if self.pairs is None:
            return np.flatnonzero(self.ids == number)
        return np.flatnonzero(np.isin(self.ids, self.pairs[1][self.pairs[0] == number]))


@dataclass(frozen=True, slots=True)
class Cells:
    """The counts of the values in each class, sorted by class, then by value.

    Attributes:
        classes, values, counts: one entry for each pair that occurs.
        starts: for each class, its first entry.
    """

    classes: Integers
    values: Integers
    counts: Integers
    starts: Integers


def combine(columns: Sequence[Column], entries: int) -> Integers:
    """Return one number for each different combination of codes, from 0 without gaps.

    >>> column = Column(np.array([0, 1, 0]), pa.array(["a", "b"]), None)
    >>> combine([column, column], 3)
    array([0, 1, 0])
    """
    ids, count = np.zeros(entries, dtype=np.int64), 1
    for column in columns:
        if count * max(len(column.texts), 1) >= 2**62:
            ids, count = without_gaps(ids, count)
        ids, count = ids * len(column.texts) + column.codes, count * max(len(column.texts), 1)
    return without_gaps(ids, count)[0]


def without_gaps(numbers: Integers, count: int) -> tuple[Integers, int]:
    """Return numbers below `count` renumbered from 0, and how many different ones there are."""
    if count <= min(_DENSE, 16 * len(numbers) + 1024):
        present = np.zeros(count, dtype=np.int64)
        present[numbers] = 1
        renumbered = np.cumsum(present)
        return renumbered[numbers] - 1, int(renumbered[-1]) if count else 0
    encoded = pa.array(numbers).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def group(columns: Sequence[Column], entries: int, weights: Integers | None) -> Classes:
    """Return the classes of rows that are equal in all columns."""
    ids = combine(columns, entries)
    return Classes(ids, _sums(ids, weights))


def _sums(numbers: Integers, weights: Integers | None) -> Integers:
    """Return the sum of weights for each number. Sums in floating point are exact below 2^53 rows."""
    sums: Integers = np.bincount(numbers, weights=weights).astype(np.int64)
    return sums


def cells_of(classes: Classes, column: Column, weights: Integers | None) -> Cells:
    """Return the counts of a column's values in each class."""
    width = len(column.texts)
    keys = classes.ids * width + column.codes
    span = len(classes.sizes) * width
    if span <= min(_DENSE, 16 * len(keys)):
        sums = _sums(keys, weights)
        present = np.flatnonzero(sums)
        return _cells(present // width, present % width, sums[present])
    return _cells(*_sorted_sums(keys, weights, width))


def _sorted_sums(keys: Integers, weights: Integers | None, width: int) -> tuple[Integers, Integers, Integers]:
    if weights is None:
        keys = np.sort(keys)
    else:
        order = np.argsort(keys, kind="stable")
        keys, weights = keys[order], weights[order]
    firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    counts = np.diff(np.append(firsts, len(keys))) if weights is None else np.add.reduceat(weights, firsts)
    present = keys[firsts]
    numbers = present // width
    return numbers, present - numbers * width, counts


def _cells(classes: Integers, values: Integers, counts: Integers) -> Cells:
    starts = np.flatnonzero(np.concatenate(([True], classes[1:] != classes[:-1])))
    return Cells(classes, values, counts, starts)


def matching_classes(
    columns: Sequence[Column], entries: int, weights: Integers | None, suppressed: str
) -> tuple[Classes, Classes]:
    """Return exact classes, and the same classes with all rows that match when a suppressed cell matches anything."""
    exact = group(columns, entries, weights)
    count, first = len(exact.sizes), exact.an_entry()
    stars = np.zeros((count, len(columns)), dtype=bool)
    for i, column in enumerate(columns):
        star = column.texts.index(suppressed).as_py()
        stars[:, i] = column.codes[first] == star if star >= 0 else False
    patterns, pattern_of = np.unique(stars, axis=0, return_inverse=True)
    pattern_of = pattern_of.reshape(-1)
    members = [np.flatnonzero(pattern_of == i) for i in range(len(patterns))]
    left, right, total = [], [], 0
    for a, some in enumerate(members):
        for b, others in enumerate(members):
            kept = np.flatnonzero(~(patterns[a] | patterns[b])).tolist()
            pairs = _joined([columns[i].codes[first] for i in kept], some, others, _MOST_CELLS - total)
            left.append(pairs[0])
            right.append(pairs[1])
            total += len(pairs[0])
    pairs = np.concatenate(left), np.concatenate(right)
    sizes = np.bincount(pairs[0], weights=exact.sizes[pairs[1]], minlength=count).astype(np.int64)
    return exact, Classes(exact.ids, sizes, pairs)


def _joined(codes: Sequence[Integers], some: Integers, others: Integers, most: int) -> tuple[Integers, Integers]:
    """Return all pairs of two sets of classes that agree in these columns."""
    both = np.concatenate((some, others))
    keys = np.zeros(len(both), dtype=np.int64)
    for code in codes:
        keys, count = without_gaps(keys, int(keys.max()) + 1)
        keys = keys * (int(code.max()) + 1) + code[both]
    keys, count = without_gaps(keys, int(keys.max()) + 1)
    mine, theirs = keys[: len(some)], keys[len(some) :]
    order = np.argsort(theirs, kind="stable")
    per_key = np.bincount(theirs, minlength=count)
    starts = np.cumsum(per_key) - per_key
    repeats = per_key[mine]
    if repeats.sum() > most:
        raise BadSource(
            "too many classes match each other for matching='overlap'. Check with matching='exact', which gives lower "
            "values, or suppress fewer columns together."
        )
    left = np.repeat(some, repeats)
    offsets = np.arange(len(left)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return left, others[order[np.repeat(starts[mine], repeats) + offsets]]


def spread(cells: Cells, classes: Classes, width: int) -> Cells:
    """Return the counts of values among all rows that match a class, from the counts in exact classes."""
    if classes.pairs is None:
        return cells
    left, right = classes.pairs
    lengths = np.diff(np.append(cells.starts, len(cells.classes)))[right]
    if lengths.sum() > _MOST_CELLS:
        raise BadSource(
            "too many sensitive values match for matching='overlap'. Check with matching='exact', or fewer columns."
        )
    owners = np.repeat(left, lengths)
    offsets = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    at = np.repeat(cells.starts[right], lengths) + offsets
    return _cells(*_sorted_sums(owners * width + cells.values[at], cells.counts[at], width))
