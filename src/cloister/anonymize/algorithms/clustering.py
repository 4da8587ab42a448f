"""Clustering: classes of similar rows, grown one row after the other around a seed.

Greedy k-member clustering (Byun, Kamra, Bertino and Li 2007), block-wise. Rows are cut into blocks of similar rows by
Mondrian. Within a block, the row farthest from the last seed starts a class, which takes the rows that widen it least
until it satisfies the requirement. EquivalenceClasses that fail, and rows left over, are merged with the class
near them that widens least, and preferably so that the result satisfies the requirement. Where models are about
sensitive values, the last rows of a class are chosen by them.

    numbers and dates    the range of a class over the range of the table; a missing value beside others counts 1
    other values         0 if a class has one value, else the share of the domain that two values are (1 for two
                         values in all); or by hierarchy: the share of the domain below the lowest common label

Falls to: `attack.tables.homogeneity`, `attack.tables.minimality`, and `attack.tables.intersection` of two releases.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloister.anonymize.algorithms.boxes import boxed
from cloister.anonymize.algorithms.partition import partition
from cloister.anonymize.classes import EquivalenceClasses
from cloister.anonymize.coded import Array, CodedColumn
from cloister.anonymize.hierarchy import CodedHierarchy, Hierarchy
from cloister.anonymize.models import KAnonymity, Model, Requirement
from cloister.anonymize.release import prepare, release
from cloister.anonymize.table import AnonymizedTable
from cloister.anonymize.utility import ReleasedColumn
from cloister.data.schema import Table
from cloister.privacy.errors import BadInput

__all__ = ["cluster"]

Progress = Callable[[float, str], None]
_BLOCK = 1_024  # rows of a block, at least
_POOL = 64  # rows near a seed that a class may take
_NEAR = 16  # classes near a failing one that it may be merged with
_PATIENCE = 6  # rounds of merging before a failing class takes several neighbours at once


def cluster(
    rows: object,
    *,
    require: Model | Sequence[Model],
    quasi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    plain: Sequence[str] = (),
    schema: Table | None = None,
    hierarchies: Mapping[str, Hierarchy] | None = None,
    weights: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> AnonymizedTable:
    """Anonymise by clustering: classes of similar rows, each released as intervals and sets of values.

    Nothing is suppressed. Boxes of different classes may overlap, and rows with equal values may fall into two classes.
    A NULL is a value of its own. With models about sensitive values that need large classes, such as a small t,
    Mondrian may lose less: then its classes are released, and the method of the result says so.

    Args:
        rows: a pandas or polars frame, an Arrow table, or a dict of lists.
        require: the models that every class must satisfy.
        quasi, sensitive, identifiers: the roles of columns; others are plain and kept.
        schema: takes the roles from a table of a schema where they are not given.
        hierarchies: of quasi-identifiers, for the distance of their values; labels are sets of values all the same.
        weights: of quasi-identifiers in the distance.
        progress: called with a share and a sentence.

    Raises:
        BadInput: a column is wrong, or the table as a single class does not satisfy the models.
    """
    task = prepare(
        rows,
        require,
        quasi=quasi,
        sensitive=sensitive,
        identifiers=identifiers,
        plain=plain,
        schema=schema,
        takes_population="classes of clusters overlap, so that a person of the population may belong to several.",
    )
    unknown = [name for name in hierarchies or () if name not in task.roles.quasi]
    if unknown:
        raise BadInput(f"there is a hierarchy for {unknown[0]}, which is no quasi-identifier. Remove it.")
    columns = task.columns
    trees = [
        hierarchies[column.name].over(column) if hierarchies and column.name in hierarchies else None
        for column in columns
    ]
    space = _Space(columns, trees, weights or {})
    of_row = _grown(space, task.requirement, task.held, progress)
    of_row = _merged(space, of_row, task.requirement, task.held, progress)
    released, method = [boxed(column, of_row) for column in columns], "clustering"
    if task.held:
        split = partition(columns, task.held, task.requirement, weights=weights)
        boxes = [boxed(column, split) for column in columns]
        if _penalty(boxes, space.share) < _penalty(released, space.share):
            released, method = boxes, "clustering, not better than Mondrian, whose classes are released"
    kept = np.ones(len(task.coded), bool)
    return release(task.coded, task.roles, task.requirement, released, kept, method=method, weights=weights)


def _penalty(columns: Sequence[ReleasedColumn], share: Array) -> float:
    return float(sum(part * column.penalty.mean() for part, column in zip(share, columns, strict=True)))


class _Space:
    """Quasi-identifiers as axes on which the width of a class is measured.

    Every axis holds one number for each row: a position for numbers and dates, a code for other values. The state of a
    class on an axis is (low, high) for positions, and (label, level) of the lowest common label for other values.
    """

    def __init__(
        self, columns: Sequence[CodedColumn], trees: Sequence[CodedHierarchy | None], weights: Mapping[str, float]
    ) -> None:
        share = np.array([weights.get(column.name, 1.0) for column in columns], float)
        if (share < 0).any() or not share.sum() or not np.isfinite(share).all():
            raise BadInput("weights of columns are finite, not negative, and not all 0.")
        self.columns, self.share = list(columns), share / share.sum()
        self.rows = len(columns[0].codes)
        lines = [place for place, column in enumerate(columns) if _ordered(column) and trees[place] is None]
        self._lines = np.array(lines, np.int64)
        self._trees = [place for place in range(len(columns)) if place not in lines]
        scaled = [_scaled(columns[place]) * self.share[place] for place in lines]
        self.points = np.array([line[columns[place].codes] for line, place in zip(scaled, lines, strict=True)]).reshape(
            len(lines), self.rows
        )
        self._cap = self.share[self._lines][:, None]
        self._codes = [columns[place].codes for place in self._trees]
        # For each column of other values and each level: the label of every value, and what a label costs.
        self._labels, self._costs = [], []
        for place in self._trees:
            tree, width = trees[place], len(columns[place].values)
            if tree is None:
                self._labels.append(np.array([np.arange(width), np.zeros(width, np.int64)]))
                self._costs.append(np.array([np.zeros(width), np.full(width, min(1.0, 2 / width))]) * self.share[place])
            else:
                self._labels.append(np.array(tree.maps))
                self._costs.append(np.array(tree.losses) * self.share[place])

    def start(self, row: int) -> "_Box":
        """Return the class of one row."""
        return _Box(
            self.points[:, [row]].copy(),
            self.points[:, [row]].copy(),
            [int(codes[row]) for codes in self._codes],
            [0] * len(self._codes),
        )

    def widths(self, box: "_Box", rows: Array) -> Array:
        """Return the width of a class after each of some rows has joined it."""
        points = self.points[:, rows]
        spans = np.minimum(np.maximum(points, box.high) - np.minimum(points, box.low), self._cap)
        total = spans.sum(axis=0)
        for axis, codes in enumerate(self._codes):
            total += self._joined(axis, box)[codes[rows]]
        return np.asarray(total)

    def _joined(self, axis: int, box: "_Box") -> Array:
        """Return for each value of a column the width of the class on this axis after the value has joined."""
        known = box.joined.get(axis)
        if known is None:
            labels, costs = self._labels[axis], self._costs[axis]
            code, level = box.codes[axis], box.levels[axis]
            known = np.full(labels.shape[1], costs[-1, code])
            for height in range(len(labels) - 2, level - 1, -1):
                known[labels[height] == labels[height, code]] = costs[height, code]
            box.joined[axis] = known
        return known

    def join(self, box: "_Box", row: int) -> None:
        """Add a row to a class."""
        point = self.points[:, [row]]
        box.low, box.high = np.minimum(box.low, point), np.maximum(box.high, point)
        for axis, codes in enumerate(self._codes):
            labels, code = self._labels[axis], box.codes[axis]
            other, level = int(codes[row]), box.levels[axis]
            while labels[level, other] != labels[level, code]:
                level += 1
            if level != box.levels[axis]:
                box.levels[axis] = level
                box.joined.pop(axis, None)

    def distances(self, row: int, rows: Array) -> Array:
        """Return the distance of rows from a row: the width of a class of both."""
        return self.widths(self.start(row), rows)

    def boxes(self, of_row: Array, number: int) -> "_Boxes":
        """Return the extent of every class on every axis."""
        order = np.argsort(of_row, kind="stable")
        starts = np.searchsorted(of_row[order], np.arange(number))
        points = self.points[:, order]
        low = np.minimum.reduceat(points, starts, axis=1) if len(points) else points[:, starts]
        high = np.maximum.reduceat(points, starts, axis=1) if len(points) else points[:, starts]
        codes, levels = [], []
        for axis, values in enumerate(self._codes):
            level = np.full(number, len(self._labels[axis]) - 1)
            for height in range(len(self._labels[axis]) - 2, -1, -1):
                label = self._labels[axis][height][values[order]]
                level[np.minimum.reduceat(label, starts) == np.maximum.reduceat(label, starts)] = height
            codes.append(values[order][starts])
            levels.append(level)
        return _Boxes(low, high, codes, levels)

    def unions(self, boxes: "_Boxes", some: Array, others: Array) -> Array:
        """Return the width of the union of each of some classes (rows) with each of others (columns)."""
        total = np.zeros((len(some), len(others)))
        for axis in range(len(boxes.low)):
            high = np.maximum(boxes.high[axis][some][:, None], boxes.high[axis][others][None, :])
            low = np.minimum(boxes.low[axis][some][:, None], boxes.low[axis][others][None, :])
            total += np.minimum(high - low, self._cap[axis, 0])
        for axis, codes in enumerate(boxes.codes):
            labels, costs = self._labels[axis], self._costs[axis]
            level = np.maximum(boxes.levels[axis][some][:, None], boxes.levels[axis][others][None, :])
            width = np.broadcast_to(costs[-1, codes[some]][:, None], total.shape).copy()
            for height in range(len(labels) - 2, -1, -1):
                own, other = labels[height, codes[some]], labels[height, codes[others]]
                shared = (own[:, None] == other[None, :]) & (level <= height)
                width = np.where(shared, costs[height, codes[some]][:, None], width)
            total += width
        return total


@dataclass
class _Box:
    low: Array
    high: Array
    codes: list[int]
    levels: list[int]

    def __post_init__(self) -> None:
        self.joined: dict[int, Array] = {}


@dataclass(frozen=True)
class _Boxes:
    low: Array
    high: Array
    codes: list[Array]
    levels: list[Array]


def _ordered(column: CodedColumn) -> bool:
    return column.numeric or (bool(column.values) and hasattr(column.values[0], "toordinal"))


def _scaled(column: CodedColumn) -> Array:
    """Return each value's position between 0 and 1; a missing value is at 2, so that beside others it counts fully."""
    places = column.positions
    present = places[:-1] if column.values[-1] is None else places
    span = (present[-1] - present[0] if len(present) else 0.0) or 1.0
    scaled = (places - (present[0] if len(present) else 0.0)) / span
    if column.values[-1] is None:
        scaled[-1] = 2.0
    return np.asarray(scaled)


def _blocks(columns: Sequence[CodedColumn], size: int) -> list[Array]:
    """Return the rows of blocks of similar rows, each of at least `size` rows where there are as many."""
    rows = len(columns[0].codes)
    if rows < 2 * size:
        return [np.arange(rows)]
    of_row = partition(columns, {}, Requirement((KAnonymity(size),)), relaxed=True)
    order = np.argsort(of_row, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(of_row[order])) + 1)


def _grown(
    space: _Space, requirement: Requirement, held: Mapping[str, CodedColumn], progress: Progress | None
) -> Array:
    """Return the class of each row. Rows left over are classes of one row."""
    of_row = np.full(space.rows, -1, np.int64)
    number, done, size = 0, 0, requirement.smallest
    needs = _Needs(requirement, held)
    for block in _blocks(space.columns, max(_BLOCK, 8 * size)):
        left, seed = block, int(block[0])
        while len(left) >= 2 * size:
            seed = int(left[np.argmax(space.distances(seed, left))])
            members = _members(space, seed, left, size, needs)
            of_row[left[members]] = number
            left = np.delete(left, members)
            number += 1
        if len(left) >= size and needs.met(left):
            of_row[left] = number
            left, number = left[:0], number + 1
        of_row[left] = number + np.arange(len(left))
        number += len(left)
        done += len(block)
        if progress is not None:
            progress(0.8 * done / space.rows, f"{number:,} classes")
    return of_row


class _Needs:
    """What a growing class still needs: the models about sensitive values."""

    def __init__(self, requirement: Requirement, held: Mapping[str, CodedColumn]) -> None:
        self._requirement, self._held = requirement, held
        self.choosy = 1 if held else 0  # rows that are chosen by their sensitive values
        self._whole = {name: np.bincount(c.codes, minlength=len(c.values)) for name, c in held.items()}

    def met(self, rows: Array) -> bool:
        """Return True if a class of these rows satisfies the requirement."""
        return not self._held or bool(self._verdict(rows, np.zeros(len(rows), np.int64), 1)[0])

    def _verdict(self, rows: Array, of_row: Array, number: int) -> Array:
        some = {name: CodedColumn(name, c.values, c.codes[rows]) for name, c in self._held.items()}
        return self._requirement.holds(EquivalenceClasses(of_row, number, some, whole=self._whole))

    def next(self, rows: Array, candidates: Array) -> int:
        """Return the place of the candidate to take: the first that completes the class, else the first that helps.

        A row helps if its sensitive values are less frequent in the class than in the table. -1 if none does.
        """
        number = len(candidates)
        together = np.concatenate([np.tile(rows, number), candidates])
        owner = np.concatenate([np.repeat(np.arange(number), len(rows)), np.arange(number)])
        completes = self._verdict(together, owner, number)
        if completes.any():
            return int(np.argmax(completes))
        helps = np.zeros(number)
        for name, column in self._held.items():
            own = np.bincount(column.codes[rows], minlength=len(column.values)) / len(rows)
            helps += (own < self._whole[name] / self._whole[name].sum())[column.codes[candidates]]
        return int(np.argmax(helps)) if helps.any() else -1


def _members(space: _Space, seed: int, left: Array, size: int, needs: _Needs) -> Array:
    """Return the places of the rows of a class: the seed, and one after the other the row that widens it least.

    Once it has `size` rows, only rows are taken that bring it nearer to the requirement.
    """
    widths = space.distances(seed, left)
    pool_size = max(_POOL, 2 * size)
    pool = np.argpartition(widths, pool_size)[:pool_size] if len(left) > pool_size else np.arange(len(left))
    pool = pool[np.argsort(widths[pool], kind="stable")]
    box = space.start(seed)
    first = int(np.flatnonzero(left[pool] == seed)[0])
    chosen, free = [int(pool[first])], np.delete(pool, first)
    widths = widths[free]
    while len(chosen) < size - needs.choosy:
        ties = np.flatnonzero(widths <= widths.min())[: size - needs.choosy - len(chosen)]
        if not _same(space, left[free[ties]]):
            ties = ties[:1]
        chosen += [int(place) for place in free[ties]]
        space.join(box, int(left[free[ties[0]]]))
        free = np.delete(free, ties)
        widths = space.widths(box, left[free])
    while free.size and (len(chosen) < size or not needs.met(left[chosen])):
        order = np.argsort(widths, kind="stable")
        place = needs.next(left[chosen], left[free[order]])
        if place < 0:
            return np.array(chosen[:1])  # the seed stays alone, and is merged with a class later
        taken = int(order[place])
        chosen.append(int(free[taken]))
        space.join(box, int(left[free[taken]]))
        free = np.delete(free, taken)
        widths = space.widths(box, left[free])
    return np.array(chosen)


def _same(space: _Space, rows: Array) -> bool:
    """Return True if rows are equal in all quasi-identifiers."""
    return all((column.codes[rows] == column.codes[rows[0]]).all() for column in space.columns)


def _merged(
    space: _Space,
    of_row: Array,
    requirement: Requirement,
    held: Mapping[str, CodedColumn],
    progress: Progress | None,
) -> Array:
    """Return classes that all satisfy the requirement: those that fail are merged with one near them."""
    rounds = 0
    while True:
        number = int(of_row.max()) + 1
        verdict = requirement.holds(EquivalenceClasses(of_row, number, held))
        if progress is not None:
            progress(0.8 + 0.2 * float(verdict.mean()), f"{number:,} classes, {int((~verdict).sum()):,} to be merged")
        if verdict.all():
            return of_row
        if number == 2:
            return np.zeros_like(of_row)
        targets = _targets(space, of_row, ~verdict, requirement, held, 2 ** max(0, rounds - _PATIENCE))
        of_row = _unite(targets, number)[of_row]
        rounds += 1


def _targets(
    space: _Space, of_row: Array, failing: Array, requirement: Requirement, held: Mapping[str, CodedColumn], many: int
) -> Array:
    """Return pairs of classes to be merged: for each that fails the best neighbour, or `many` of them."""
    number = len(failing)
    first = np.empty(number, np.int64)
    first[of_row[::-1]] = np.arange(len(of_row))[::-1]
    stand_ins = [CodedColumn(column.name, column.values, column.codes[first]) for column in space.columns]
    boxes = space.boxes(of_row, number)
    pairs, costs = [], []
    for block in _blocks(stand_ins, 1_024):
        some = block[failing[block]]
        near = min(max(_NEAR, many), len(block) - 1)
        for part in np.array_split(some, max(1, len(some) * len(block) // 2_000_000)):
            if not len(part) or near < 1:
                continue
            widths = space.unions(boxes, part, block)
            widths[block[None, :] == part[:, None]] = np.inf
            nearest = np.argpartition(widths, near - 1, axis=1)[:, :near]
            costs.append(np.take_along_axis(widths, nearest, axis=1))
            pairs.append(np.stack([np.broadcast_to(part[:, None], nearest.shape), block[nearest]], axis=2))
    table, cost = np.concatenate([pair.reshape(-1, 2) for pair in pairs]), np.concatenate([c.ravel() for c in costs])
    sizes = np.bincount(of_row, minlength=number)
    cost = cost * sizes[table].sum(axis=1)  # what the merged class costs in all
    if many > 1:
        order = np.lexsort((cost, table[:, 0]))
        rank = np.arange(len(order)) - np.searchsorted(table[order, 0], table[order, 0])
        return np.asarray(table[order[rank < many]])
    helps = _holds_together(table, of_row, requirement, held)
    order = np.lexsort((cost, ~helps, table[:, 0]))
    leading = order[np.flatnonzero(np.diff(table[order, 0], prepend=-1))]
    return np.asarray(table[leading])


def _holds_together(table: Array, of_row: Array, requirement: Requirement, held: Mapping[str, CodedColumn]) -> Array:
    """Return for each pair of classes whether their union satisfies the requirement."""
    order = np.argsort(of_row, kind="stable")
    sizes = np.bincount(of_row)
    starts = np.cumsum(sizes) - sizes
    whole = {name: np.bincount(column.codes, minlength=len(column.values)) for name, column in held.items()}
    verdict = np.empty(len(table), bool)
    rows_of_pair = sizes[table].sum(axis=1)
    for part in np.split(np.arange(len(table)), np.flatnonzero(np.diff(np.cumsum(rows_of_pair) // 4_000_000)) + 1):
        classes = table[part].ravel()
        lengths = sizes[classes]
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        rows = order[np.repeat(starts[classes], lengths) + offsets]
        owner = np.repeat(np.arange(len(classes)) // 2, lengths)
        some = {name: CodedColumn(name, column.values, column.codes[rows]) for name, column in held.items()}
        verdict[part] = requirement.holds(EquivalenceClasses(owner, len(part), some, whole=whole))
    return verdict


def _unite(pairs: Array, number: int) -> Array:
    """Return a new number for each class, so that classes joined by pairs share one."""
    label = np.arange(number)
    while True:
        lowest = np.minimum(label[pairs[:, 0]], label[pairs[:, 1]])
        changed = label.copy()
        np.minimum.at(changed, pairs[:, 0], lowest)
        np.minimum.at(changed, pairs[:, 1], lowest)
        changed = changed[changed]
        if (changed == label).all():
            return np.asarray(np.unique(label, return_inverse=True)[1])
        label = changed
