"""Classes of indistinguishable rows: who is in which, how large they are, which sensitive values they hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from cloister.anonymize.coded import Array, CodedColumn

__all__ = ["EquivalenceClasses", "group"]

_CHUNK = 4_000_000  # cells of a dense table of counts, at most
_DENSE = 1 << 24


def group(columns: Sequence[Array], widths: Sequence[int]) -> tuple[Array, int]:
    """Return the class of each row: rows with equal codes in all columns share one. And the number of classes."""
    key = np.zeros(len(columns[0]) if columns else 0, np.int64)
    span = 1
    for codes, width in zip(columns, widths, strict=True):
        if span * width > 2**62:
            key, span = _dense(key, span)
        key = key * width + codes
        span *= width
    return _dense(key, span)


def _dense(key: Array, span: int) -> tuple[Array, int]:
    """Return keys renumbered without gaps, and their number."""
    if span <= max(4 * len(key), 1024) and span <= _DENSE:
        used = np.bincount(key, minlength=span) > 0
        places = np.cumsum(used) - 1
        return places[key], int(places[-1]) + 1 if span else 0
    encoded = pa.array(key).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


@dataclass(frozen=True)
class EquivalenceClasses:
    """Classes of indistinguishable rows.

    Attributes:
        of_row: the class of each row, 0 to number - 1.
        number: of classes.
        sensitive: the sensitive columns, as codes.
        weights: how often each row is in the release; None if once. Rows of a population have weight 0.
        population: how often each row is in the population; None if there is none.
        whole: how often each sensitive value occurs in the whole release, where the rows are only a part of it.
    """

    of_row: Array
    number: int
    sensitive: Mapping[str, CodedColumn]
    weights: Array | None = None
    population: Array | None = None
    whole: Mapping[str, Array] | None = None

    @cached_property
    def sizes(self) -> Array:
        """Return the number of released rows of each class."""
        return _tally(self.of_row, self.weights, self.number)

    @cached_property
    def population_sizes(self) -> Array:
        """Return the number of people of the population in each class."""
        return _tally(self.of_row, self.population, self.number)

    def counts(self, name: str, first: int = 0, last: int | None = None) -> Array:
        """Return how often each sensitive value occurs in the classes `first` to `last`, one row for each class."""
        column = self.sensitive[name]
        width = len(column.values)
        end = self.number if last is None else last
        if first == 0 and end == self.number:
            chosen, weights = self.of_row.astype(np.int64) * width + column.codes, self.weights
        else:
            inside = (self.of_row >= first) & (self.of_row < end)
            chosen = (self.of_row[inside].astype(np.int64) - first) * width + column.codes[inside]
            weights = None if self.weights is None else self.weights[inside]
        return _tally(chosen, weights, (end - first) * width).reshape(end - first, width)

    def totals(self, name: str, kept: Array) -> Array:
        """Return how often each sensitive value occurs in the classes that are kept."""
        if self.whole is not None:
            return self.whole[name]
        column = self.sensitive[name]
        if self.number * len(column.values) <= _CHUNK:
            return np.asarray(kept.astype(np.int64) @ self._all_counts(name))
        weights = kept[self.of_row] if self.weights is None else kept[self.of_row] * self.weights
        return _tally(column.codes, weights, len(column.values))

    def chunks(self, name: str) -> Iterable[tuple[slice, Array]]:
        """Yield the counts of consecutive classes, in pieces of bounded size."""
        step = max(1, _CHUNK // max(1, len(self.sensitive[name].values)))
        for first in range(0, self.number, step):
            last = min(first + step, self.number)
            if step < self.number:
                yield slice(first, last), self.counts(name, first, last)
                continue
            yield slice(first, last), self._all_counts(name)

    def _all_counts(self, name: str) -> Array:
        if name not in self._known:
            self._known[name] = self.counts(name)
        return self._known[name]

    @cached_property
    def _known(self) -> dict[str, Array]:
        """Counts that were computed before: several models ask for the same ones."""
        return {}


def _tally(codes: Array, weights: Array | None, number: int) -> Array:
    counts = np.bincount(codes, weights=weights, minlength=number)
    return counts if weights is None else np.rint(counts).astype(np.int64)
