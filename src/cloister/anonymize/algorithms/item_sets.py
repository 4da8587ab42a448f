"""k^m-anonymity of sets of items: who knows up to m items of somebody's set finds at least k sets with them.

Terrovitis, Mamoulis and Kalnis (2008), apriori anonymisation: combinations of 1, 2, … m items are made frequent one
size after the other, by replacing items with labels of a hierarchy. An item has the same label in all sets, and if an
item is replaced by a label, so are all items below that label. A set holds each of its labels once.

    sets = anonymise_sets(baskets, k=5, m=2, hierarchy=Hierarchy.tree({"fruit": ["apple", "pear"], "milk": ["cheese"]}))

The label of a step is chosen by the rare combinations that it touches per occurrence of items that lose detail. At the
end labels are replaced by those below them where that is possible, so that no more detailed cut is anonymous.

Falls to: `attack.tables.sparse_linkage`, by whoever knows more than m items.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cloister.anonymize.checking.verifier import Checked, check
from cloister.anonymize.classes import group
from cloister.anonymize.coded import Array, CodedColumn
from cloister.anonymize.hierarchy import CodedHierarchy, Hierarchy, value_text
from cloister.anonymize.release_file import write_files
from cloister.privacy.errors import BadInput, NotPrivate

__all__ = ["AnonymizedSets", "anonymise_sets"]

Progress = Callable[[float, str], None]
_MOST_COMBINATIONS = 50_000_000


@dataclass(frozen=True)
class AnonymizedSets:
    """Sets of items that are k^m-anonymous. Not differentially private.

    Attributes:
        rows: a table with one column of lists, in the order of the original sets; empty and missing ones are kept.
        k, m: any m items or fewer that occur together are in at least k sets.
        labels: for each item, what it is released as.
        penalty: mean share of all items that the label of an occurrence stands for, from 0 (all kept) to 1.
        checked: what the independent verifier says; None if no set has an item.
    """

    rows: pa.Table
    k: int
    m: int
    labels: Mapping[str | None, str | None]
    penalty: float
    checked: Checked | None = field(repr=False)

    @property
    def label(self) -> str:
        """Return what the release satisfies."""
        return f"k^m={self.k}^{self.m}: not differentially private"

    def to_pandas(self) -> Any:
        """Return the sets as a pandas frame."""
        return self.rows.to_pandas()

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the sets as Parquet, sorted, so that no order is kept; verify the file, or write nothing.

        Raises:
            NotPrivate: the file, as it is read, is not k^m-anonymous.
            BadInput: it cannot be written.
        """
        lists = sorted(self.rows.column(0).to_pylist(), key=lambda items: (items is None, str(items)))
        (column,) = self.rows.column_names

        def confirm(content: Path) -> None:
            written = pq.read_table(content)
            sets = None if self.checked is None else check(written, quasi=[], items=column, m=self.m).sets
            if written.num_rows != len(lists) or (sets is not None and sets.k < self.k):
                raise NotPrivate("the file does not satisfy its label as it is read, and is not written. Report this.")

        write_files({Path(path): pa.table({column: pa.array(lists, pa.list_(pa.string()))})}, confirm, parquet=True)

    def __str__(self) -> str:
        changed = sum(item != label for item, label in self.labels.items())
        return (
            f"{self.label}\n{self.rows.num_rows:,} sets; {changed:,} of {len(self.labels):,} items are generalised, "
            f"penalty {self.penalty:.4f}"
        )


def anonymise_sets(
    baskets: object,
    *,
    k: int,
    m: int,
    hierarchy: Hierarchy | None = None,
    column: str = "items",
    progress: Progress | None = None,
) -> AnonymizedSets:
    """Generalise items until every combination of at most m items that occurs is in at least k sets.

    Args:
        baskets: a list of lists of items, an Arrow or pandas column of lists, or a table with such a column.
        k: the fewest sets that share a combination.
        m: the most items that somebody may know.
        hierarchy: of the items; without one an item becomes `*`, and all items do.
        column: the name of the column of lists, in a table and in the result.
        progress: called with a share and a sentence.

    Raises:
        BadInput: k or m is wrong, there are no lists, or fewer than k sets have an item.

    >>> fruit = Hierarchy.tree({"fruit": ["apple", "pear"], "dairy": ["milk", "cheese"]})
    >>> sets = anonymise_sets([["apple", "milk"], ["pear", "milk"], ["milk"]], k=2, m=2, hierarchy=fruit)
    >>> sets.rows.column("items").to_pylist()
    [['fruit', 'milk'], ['fruit', 'milk'], ['milk']]
    """
    for name, number in (("k", k), ("m", m)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise BadInput(f"{name} must be a whole number of at least 1.")
    lists = _lists(baskets, column)
    flat, owner = pa.compute.list_flatten(lists), pa.compute.list_parent_indices(lists).to_numpy().astype(np.int64)
    if not len(flat):
        return AnonymizedSets(pa.table({column: lists.cast(pa.list_(pa.string()))}), k, m, {}, 0.0, None)
    items = CodedColumn.of(column, flat)
    nonempty = len(np.unique(owner))
    if nonempty < k:
        raise BadInput(
            f"no release is {k}^{m}-anonymous: only {nonempty:,} sets have an item. Ask for a smaller k. "
            "Nothing was written."
        )
    work = _Work((hierarchy or Hierarchy.flat()).over(items), items.codes, owner, k)
    for size in range(1, m + 1):
        work.generalise(size)
        if progress is not None:
            progress(size / (m + 1), f"combinations of {size} items: penalty {work.penalty:.4f}")
    work.take_back(m)
    return _released(work, items, len(lists), lists.is_valid().to_numpy(zero_copy_only=False), column, k, m)


def _lists(baskets: Any, column: str) -> pa.Array:
    if hasattr(baskets, "column_names") or hasattr(baskets, "columns") or isinstance(baskets, Mapping):
        names = getattr(baskets, "column_names", None) or [*getattr(baskets, "columns", baskets)]
        if column not in names:
            raise BadInput(f"there is no column {column}. Name the column of lists: column='…'.")
        baskets = baskets[column]
    try:
        if not isinstance(baskets, pa.Array | pa.ChunkedArray):
            # Sets have no order: their items are sorted, so that a result does not depend on the order of a set.
            baskets = pa.array([sorted(b, key=str) if isinstance(b, set | frozenset) else _list(b) for b in baskets])
    except (TypeError, pa.ArrowInvalid, pa.ArrowTypeError):
        raise BadInput("baskets are lists of items of one type: [['milk', 'bread'], ['milk']].") from None
    array = baskets.combine_chunks() if isinstance(baskets, pa.ChunkedArray) else baskets
    if pa.types.is_null(array.type):
        array = array.cast(pa.list_(pa.string()))
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise BadInput("baskets are lists of items of one type: [['milk', 'bread'], ['milk']].")
    if pa.types.is_null(array.type.value_type):
        array = array.cast(pa.list_(pa.string()))
    return array


def _list(basket: Any) -> Any:
    return basket if basket is None or isinstance(basket, str) else list(basket)


class _Work:
    """A cut through the hierarchy of items: for each item the level at which it is released."""

    def __init__(self, hierarchy: CodedHierarchy, codes: Array, owner: Array, k: int) -> None:
        self._k = k
        self._maps, self.hierarchy = hierarchy.maps, hierarchy
        pairs = np.unique(owner * len(hierarchy.column.values) + codes)
        self.owner, self.codes = pairs // len(hierarchy.column.values), pairs % len(hierarchy.column.values)
        self._occurs = np.bincount(self.codes, minlength=len(hierarchy.column.values))
        self.levels = np.zeros(len(hierarchy.column.values), np.int64)
        # A label is known by its level and number; these are the first number of each level.
        self._first = np.concatenate([[0], np.cumsum([len(labels) for labels in hierarchy.labels])])

    @property
    def penalty(self) -> float:
        """Return the mean share of all items that a label stands for, over the occurrences of items."""
        return float(self._losses(self.levels) @ self._occurs) / max(1, int(self._occurs.sum()))

    def _losses(self, levels: Array) -> Array:
        return np.array([self.hierarchy.losses[level][code] for code, level in enumerate(levels)])

    def nodes(self, levels: Array) -> Array:
        """Return the label of each item."""
        maps = np.stack(self._maps)
        return np.asarray(self._first[levels] + maps[levels, np.arange(len(levels))])

    def _rare(self, levels: Array, size: int) -> Array:
        """Return the combinations of exactly `size` labels that occur in fewer than k sets, one in each line."""
        width = int(self._first[-1])
        pairs = np.unique(self.owner * width + self.nodes(levels)[self.codes])
        baskets, labels = pairs // width, pairs % width
        starts = np.flatnonzero(np.diff(baskets, prepend=-1))
        lengths = np.diff(np.append(starts, len(baskets)))
        parts, total = [], 0
        for length in np.unique(lengths[lengths >= size]):
            chosen = np.array(list(combinations(range(int(length)), size)), np.int64)
            some = starts[lengths == length]
            total += len(some) * len(chosen)
            if total > _MOST_COMBINATIONS:
                raise BadInput(f"the sets have too many combinations of {size} items. Give a smaller m.")
            parts.append(labels[some[:, None, None] + chosen[None, :, :]].reshape(-1, size))
        if not parts:
            return np.zeros((0, size), np.int64)
        lines = np.concatenate(parts)
        key, number = group(list(lines.T), [width] * size)
        counts = np.bincount(key, minlength=number)
        example = np.empty(number, np.int64)
        example[key] = np.arange(len(key))
        return np.asarray(lines[example[counts < self._k]])

    def generalise(self, size: int) -> None:
        """Replace items by labels until every combination of `size` labels is frequent."""
        while len(rare := self._rare(self.levels, size)):
            values, level = self._best(np.bincount(rare.ravel(), minlength=int(self._first[-1])))
            self.levels[values] = level

    def _best(self, touched: Array) -> tuple[Array, int]:
        """Return the items below a label, and its level: the one that costs least for the rare combinations it touches.

        Args:
            touched: for each label, the number of rare combinations with it.
        """
        nodes, losses = self.nodes(self.levels), self._losses(self.levels)
        best, chosen = -1.0, (np.zeros(0, np.int64), 0)
        for node in np.flatnonzero(touched):
            below = np.flatnonzero(nodes == node)
            level = int(self.levels[below[0]])
            values = below
            while len(values) == len(below) and level + 1 < len(self._maps):
                level += 1  # a label with a single label below it changes nothing
                values = np.flatnonzero(self._maps[level] == self._maps[level][below[0]])
            if len(values) == len(below):
                continue
            cost = float((self.hierarchy.losses[level][values] - losses[values]) @ self._occurs[values])
            score = float(touched[np.unique(nodes[values])].sum()) / (cost + 1e-9)
            if score > best:
                best, chosen = score, (values, level)
        return chosen

    def take_back(self, m: int) -> None:
        """Replace labels by those below them, the most costly first, until no label can be replaced any more.

        A label that cannot be replaced now never can: with more detail elsewhere combinations only become rarer.
        """
        pending = [(int(level), values) for values, level in self._labels()]
        while pending:
            costs = [float(self.hierarchy.losses[level][values] @ self._occurs[values]) for level, values in pending]
            level, values = pending.pop(int(np.argmax(costs)))
            levels = self.levels.copy()
            levels[values] = level - 1
            if any(len(self._rare(levels, size)) for size in range(1, m + 1)):
                continue
            self.levels = levels
            if level > 1:
                below = self._maps[level - 1][values]
                pending += [(level - 1, values[below == label]) for label in np.unique(below)]

    def _labels(self) -> list[tuple[Array, int]]:
        """Return the items and the level of each label that stands for more than an item."""
        nodes = self.nodes(self.levels)
        return [
            (values, int(self.levels[values[0]]))
            for node in np.unique(nodes[self.levels > 0])
            for values in [np.flatnonzero(nodes == node)]
        ]


def _released(
    work: _Work, items: CodedColumn, number: int, valid: Array, column: str, k: int, m: int
) -> AnonymizedSets:
    words: list[str | None] = []
    for code, level in enumerate(work.levels):
        word = work.hierarchy.labels[level][work.hierarchy.maps[level][code]]
        words.append(None if items.values[code] is None and level < work.hierarchy.height else word)
    order = {word: place for place, word in enumerate(sorted(set(words), key=lambda word: (word is None, str(word))))}
    label = np.array([order[word] for word in words])
    pairs = np.unique(work.owner * len(order) + label[work.codes])
    owner = pairs // len(order)
    flat = pa.array(list(order), pa.string()).take(pa.array(pairs % len(order)))
    offsets = np.searchsorted(owner, np.arange(number + 1)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(~valid))
    table = pa.table({column: lists})
    checked = check(table, quasi=[], items=column, m=m)
    assert checked.sets is not None
    if checked.sets.k < k:
        raise NotPrivate("the verifier does not confirm k^m-anonymity, and nothing is released. Report this.")
    texts = [None if value is None else value_text(value) for value in items.values]
    return AnonymizedSets(table, k, m, dict(zip(texts, words, strict=True)), work.penalty, checked)
