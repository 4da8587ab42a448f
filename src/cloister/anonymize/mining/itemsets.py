"""Frequent itemsets by vertical bit sets (Eclat; Zaki 2000), one conditional database per item.

Items are ordered by rising count. For each item only the baskets that contain it are kept, repacked to bits, so that
the bit sets of a rare item are a few words long. Within it, itemsets of one size are joined on their common prefix in
one vectorised intersection, and counted with a population count.

Nothing here is private: itemsets are statistics of all baskets. See `private_itemsets.py` for a private release.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from cloister.anonymize.mining.transactions import Codes, Transactions, Words, pack, read_baskets
from cloister.privacy.errors import BadInput

__all__ = ["Itemsets", "frequent_itemsets", "least_count"]

_WORDS = 1 << 22  # words of one vectorised intersection: 32 MB


@dataclass(frozen=True)
class Itemsets:
    """Frequent itemsets with their counts, by size, in lexicographic order of codes.

    Attributes:
        items: names of the items.
        baskets: number of baskets.
        levels: for size 1, 2, …, a matrix with one itemset per row, codes ascending.
        counts: for size 1, 2, …, the number of baskets that contain each itemset.
    """

    items: tuple[str, ...]
    baskets: int
    levels: tuple[Codes, ...]
    counts: tuple[Codes, ...]

    def __len__(self) -> int:
        return sum(map(len, self.counts))

    @cached_property
    def _keys(self) -> list[Codes]:
        """For each size, rank of the prefix and the last item as one ascending number."""
        keys = [self.levels[0][:, 0]] if self.levels else []
        for level in self.levels[1:]:
            keys.append(self._ranks(level[:, :-1], keys) * len(self.items) + level[:, -1])
        return keys

    def _ranks(self, itemsets: Codes, keys: list[Codes]) -> Codes:
        ranks = np.zeros(len(itemsets), np.int64)
        for size in range(itemsets.shape[1]):
            wanted = ranks * len(self.items) + itemsets[:, size]
            ranks = np.searchsorted(keys[size], wanted)
            missing = np.take(keys[size], ranks, mode="clip") != wanted
            if missing.any():
                raise BadInput("an itemset is not among the frequent ones. Lower min_support.")
        return ranks

    def counts_of(self, itemsets: Codes) -> Codes:
        """Return the counts of frequent itemsets of one size, given as ascending codes."""
        size = itemsets.shape[1]
        if size > len(self.levels):
            raise BadInput("an itemset is not among the frequent ones. Lower min_support.")
        return np.asarray(self.counts[size - 1][self._ranks(itemsets, self._keys)])

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], int]]:
        for level, counts in zip(self.levels, self.counts, strict=True):
            for codes, count in zip(level.tolist(), counts.tolist(), strict=True):
                yield tuple(self.items[code] for code in codes), count

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns `itemset`, `count` and `support`."""
        counts = np.concatenate([np.zeros(0, np.int64), *self.counts])
        return pa.table(
            {
                "itemset": pa.array([names for names, _ in self], pa.list_(pa.string())),
                "count": pa.array(counts),
                "support": pa.array(counts / max(self.baskets, 1)),
            }
        )

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame."""
        return self.to_arrow().to_pandas()


def least_count(min_support: float, baskets: int) -> int:
    """Return the least count whose share of the baskets is at least the support.

    >>> least_count(0.2, 10), least_count(0.001, 9835)
    (2, 10)
    """
    if isinstance(min_support, bool) or not isinstance(min_support, int | float) or not 0 < min_support <= 1:
        raise BadInput("min_support is a share of the baskets, above 0 and at most 1: min_support=0.01.")
    count = max(int(min_support * baskets) - 1, 1)
    while count < baskets and count / baskets < min_support:
        count += 1
    return count


def frequent_itemsets(rows: Any, min_support: float, *, max_size: int | None = None, **form: Any) -> Itemsets:
    """Return all itemsets that at least this share of the baskets contains.

    Args:
        rows: baskets in any form that `read_baskets` takes, with its `basket` and `item` where needed.
        min_support: least share of the baskets, above 0.
        max_size: largest number of items of an itemset; None for no limit.

    >>> sets = frequent_itemsets([["a", "b"], ["a", "b", "c"], ["a"], ["c"]], 0.5)
    >>> list(sets)
    [(('a',), 3), (('b',), 2), (('c',), 2), (('a', 'b'), 2)]
    """
    baskets = read_baskets(rows, **form)
    if max_size is not None and (isinstance(max_size, bool) or not isinstance(max_size, int) or max_size < 1):
        raise BadInput("max_size is a whole number of items, at least 1, or None.")
    return _mine(baskets, least_count(min_support, len(baskets)), max_size or len(baskets.items))


def _mine(baskets: Transactions, least: int, max_size: int) -> Itemsets:
    frequent = np.flatnonzero(baskets.counts >= least)
    order = frequent[np.argsort(baskets.counts[frequent], kind="stable")]
    found: list[list[Codes]] = [[order[:, None]]]
    counted: list[list[Codes]] = [[baskets.counts[order]]]
    if max_size > 1:
        for database in _conditional(baskets, order, least):
            for itemsets, counts in _extend(database, least, max_size):
                while len(found) < itemsets.shape[1]:
                    found.append([])
                    counted.append([])
                found[itemsets.shape[1] - 1].append(order[itemsets])
                counted[itemsets.shape[1] - 1].append(counts)
    levels, totals = [], []
    for parts, numbers in zip(found, counted, strict=True):
        level = np.sort(np.concatenate(parts), axis=1)
        rank = np.lexsort(level.T[::-1])
        levels.append(level[rank])
        totals.append(np.concatenate(numbers)[rank])
    if not len(frequent):
        levels, totals = [], []
    return Itemsets(baskets.items, len(baskets), tuple(levels), tuple(totals))


@dataclass(frozen=True, slots=True)
class _Database:
    """Baskets that contain one item: counts and bits of the later items that are frequent among them."""

    head: int
    tail: Codes
    counts: Codes
    bits: Words


def _conditional(baskets: Transactions, order: Codes, least: int) -> Iterator[_Database]:
    """Yield the conditional database of each item, in the order of rising counts."""
    rank = np.full(len(baskets.items), -1)
    rank[order] = np.arange(len(order))
    ranks = rank[baskets.codes]
    kept = ranks >= 0
    ranks, numbers = ranks[kept], baskets.baskets[kept]
    starts = np.searchsorted(numbers, np.arange(len(baskets) + 1))
    by_item = np.argsort(ranks, kind="stable")
    ends = np.searchsorted(ranks[by_item], np.arange(len(order) + 1))
    for head in range(len(order) - 1):
        inside = numbers[by_item[ends[head] : ends[head + 1]]]
        sizes = starts[inside + 1] - starts[inside]
        rows = np.repeat(np.arange(len(inside)), sizes)
        offset = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        members = ranks[np.repeat(starts[inside], sizes) + offset]
        counts = np.bincount(members[members > head], minlength=len(order))
        tail = np.flatnonzero(counts >= least)
        if not len(tail):
            continue
        column = np.full(len(order), -1)
        column[tail] = np.arange(len(tail))
        later = (members > head) & (column[members] >= 0)
        held = np.zeros((len(tail), len(inside)), bool)
        held[column[members[later]], rows[later]] = True
        yield _Database(head, tail, counts[tail], pack(held))


def _extend(database: _Database, least: int, max_size: int) -> Iterator[tuple[Codes, Codes]]:
    """Yield the frequent itemsets with the database's item, in blocks of one size, and their counts."""
    first = np.column_stack([np.full(len(database.tail), database.head), database.tail])
    yield first, database.counts
    stack: list[tuple[Codes, Words]] = [(first, database.bits)]
    while stack:
        itemsets, bits = stack.pop()
        if itemsets.shape[1] >= max_size:
            continue
        for left, right in _joins(itemsets, bits.shape[1]):
            both = bits[left] & bits[right]
            counts = np.bitwise_count(both).sum(axis=1, dtype=np.int64)
            kept = counts >= least
            if kept.any():
                longer = np.column_stack([itemsets[left[kept]], itemsets[right[kept], -1]])
                yield longer, counts[kept]
                stack.append((longer, both[kept]))


def _joins(itemsets: Codes, words: int) -> Iterator[tuple[Codes, Codes]]:
    """Yield pairs of itemsets that differ in the last item, in blocks that keep equal left sides together."""
    size = len(itemsets)
    fresh = np.ones(size, bool)
    if size > 1:
        fresh[1:] = (itemsets[1:, :-1] != itemsets[:-1, :-1]).any(axis=1)
    ends = np.append(np.flatnonzero(fresh)[1:], size)[np.cumsum(fresh) - 1]
    partners = ends - np.arange(size) - 1
    total = np.cumsum(partners)
    first = 0
    while first < size:
        done = total[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(total, done + max(_WORDS // max(words, 1), 1), side="right")))
        sizes = partners[first:last]
        if sizes.any():
            left = np.repeat(np.arange(first, last), sizes)
            offset = np.arange(len(left)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            yield left, left + 1 + offset
        first = last
