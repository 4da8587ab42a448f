"""Top-down specialisation: start with `*` everywhere, and make one label after the other more specific.

Fung, Wang and Yu (2005), for any requirement. A release is a cut through every hierarchy: each label may be replaced
by its children without touching its siblings (subtree recoding), so ages 20-39 can stay whole years while ages above
80 are one interval. Every value has one label in the whole release. That keeps more than one level for each column.

Each step takes the label with the best score among those whose children leave every class satisfied. Several walks
are made and the best one is released: by certainty penalty saved, by the same per loss of anonymity, with each column
first, and from the best full-domain node that a short search finds, so that the result is never worse than that node.

Falls to: `attack.tables.homogeneity`, `attack.tables.minimality`, and `attack.tables.intersection` of two releases.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloister.anonymize.algorithms.lattice import Lattice, Node, search
from cloister.anonymize.claims import recorded
from cloister.anonymize.classes import EquivalenceClasses, group
from cloister.anonymize.coded import Array, CodedColumn
from cloister.anonymize.hierarchy import CodedHierarchy, Hierarchy
from cloister.anonymize.models import Model, Requirement
from cloister.anonymize.release import hierarchies_of, hopeless, prepare, release, sides
from cloister.anonymize.suppression import suppress
from cloister.anonymize.table import AnonymizedTable
from cloister.anonymize.utility import ReleasedColumn
from cloister.data.schema import Table
from cloister.privacy.errors import BadInput

__all__ = ["top_down"]

Progress = Callable[[float, str], None]
_SECONDS = 2.0  # for the full-domain node that one of the walks starts at


def top_down(
    rows: object,
    *,
    require: Model | Sequence[Model],
    quasi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    plain: Sequence[str] = (),
    schema: Table | None = None,
    hierarchies: Mapping[str, Hierarchy] | None = None,
    suppression: float = 0.0,
    weights: Mapping[str, float] | None = None,
    population: object = None,
    progress: Progress | None = None,
) -> AnonymizedTable:
    """Anonymise by top-down specialisation: a cut through each hierarchy instead of one level for all its values.

    A NULL is a value of its own, and becomes `*` only where all values of a column do.

    Args:
        rows: a pandas or polars frame, an Arrow table, or a dict of lists.
        require: the models that every class must satisfy.
        quasi, sensitive, identifiers: the roles of columns; others are plain and kept.
        schema: takes the roles, bounds and categories from a table of a schema where they are not given.
        hierarchies: of quasi-identifiers; others are made from type and public facts (`automatic`).
        suppression: share of the rows that may be removed, between 0 and 1.
        weights: of quasi-identifiers in the penalty.
        population: the rows that the table is drawn from, for `KMap` and `DeltaPresence`; quasi-identifiers only.
        progress: called with a share and a sentence.

    Raises:
        BadInput: a column or hierarchy is wrong, or no level satisfies the models.
    """
    if not 0 <= suppression < 1:
        raise BadInput("suppression is the share of rows that may be removed: at least 0, below 1.")
    task = prepare(
        rows,
        require,
        quasi=quasi,
        sensitive=sensitive,
        identifiers=identifiers,
        plain=plain,
        schema=schema,
        suppresses=suppression > 0,
        population=population,
    )
    chosen = hierarchies_of(task.coded, task.roles, hierarchies or {}, schema)
    lattice = Lattice(chosen, task.held, task.requirement, suppression, weights, task.outside)
    problem = _Problem(chosen, task.held, task.requirement, lattice.allowed, weights or {}, task.outside)
    walks: list[_Walk] = []
    state = search(lattice, seconds=_SECONDS)
    if state.best is None:
        raise BadInput(hopeless(task.requirement, lattice.rows, suppression, proven=state.hopeless))
    starts: list[tuple[Node, bool, int | None]] = [(state.best.node, False, None)]
    if np.isfinite(lattice.evaluate(lattice.top).loss):  # else only some of the nodes below satisfy the models
        starts += [(lattice.top, False, None), (lattice.top, True, None)]
        starts += [(lattice.top, False, axis) for axis in range(len(chosen))]
    for number, (node, by_ratio, first) in enumerate(starts):
        walk = _Walk(problem, node)
        walk.run(by_ratio, first)
        walks.append(walk)
        if progress is not None:
            progress((number + 1) / len(starts), f"penalty {min(walk.loss for walk in walks):.4f}")
    best = min(walks, key=lambda walk: walk.loss)
    columns = [_released(hierarchy, levels) for hierarchy, levels in zip(chosen, best.levels, strict=True)]
    of_row, number = group([column.labels for column in columns], [len(column.words) for column in columns])
    classes = EquivalenceClasses(of_row, number, task.held, *sides(task.outside))
    kept = suppress(task.requirement, classes, lattice.allowed).kept[of_row]
    made = release(
        task.coded, task.roles, task.requirement, columns, kept, method="top-down specialisation", weights=weights
    )
    return replace(made, hierarchies=recorded(dict(zip(task.roles.quasi, chosen, strict=True))))


def _released(hierarchy: CodedHierarchy, levels: Array) -> ReleasedColumn:
    """Return a column whose values are released at levels of their own."""
    column = hierarchy.column
    words: list[object] = []
    label_of = np.empty(len(levels), np.int64)
    for level in np.unique(levels):
        inside = np.flatnonzero(levels == level)
        labels, place = np.unique(hierarchy.maps[level][inside], return_inverse=True)
        label_of[inside] = len(words) + place
        words += [column.values[label] if level == 0 else hierarchy.labels[level][label] or None for label in labels]
    penalty = np.array([hierarchy.losses[level][code] for code, level in enumerate(levels)])
    return ReleasedColumn(column.name, column.codes, label_of[column.codes], words, penalty[column.codes])


class _Problem:
    """Distinct rows with how often each occurs, the hierarchies, and what classes must satisfy."""

    def __init__(
        self,
        hierarchies: Sequence[CodedHierarchy],
        held: Mapping[str, CodedColumn],
        requirement: Requirement,
        allowed: int,
        weights: Mapping[str, float],
        outside: Array | None,
    ) -> None:
        self.hierarchies, self.requirement, self.allowed = list(hierarchies), requirement, allowed
        share = np.array([weights.get(hierarchy.column.name, 1.0) for hierarchy in hierarchies])
        self.share = share / share.sum()
        columns = [*(hierarchy.column for hierarchy in hierarchies), *held.values()]
        flags = [] if outside is None else [outside.astype(np.int64)]
        key, number = group(
            [*(column.codes for column in columns), *flags],
            [*(len(column.values) for column in columns), *(2 for _ in flags)],
        )
        distinct = np.empty(number, np.int64)
        distinct[key] = np.arange(len(key))
        self.counts, self.people = np.bincount(key, minlength=number), None
        if outside is not None:
            beyond = outside[distinct]
            self.people, self.counts = np.where(beyond, self.counts, 0), np.where(beyond, 0, self.counts)
        self.rows = int(self.counts.sum())
        self.codes = [hierarchy.column.codes[distinct] for hierarchy in hierarchies]
        self.held = {name: CodedColumn(name, column.values, column.codes[distinct]) for name, column in held.items()}

    def classes(self, of_row: Array, number: int, rows: Array, whole: Mapping[str, Array] | None) -> EquivalenceClasses:
        """Return classes of some of the distinct rows."""
        held = {name: CodedColumn(name, column.values, column.codes[rows]) for name, column in self.held.items()}
        people = None if self.people is None else self.people[rows]
        return EquivalenceClasses(of_row, number, held, self.counts[rows], people, whole)


@dataclass(frozen=True)
class _Step:
    """A label that may be replaced by its children, and what that would do.

    Attributes:
        axis: number of the column.
        values: codes of the values below the label.
        level: at which the values have at least two labels.
        gain: penalty saved.
        score: what steps are ordered by.
        time: number of steps taken when this was computed.
    """

    axis: int
    values: Array
    level: int
    gain: float = 0.0
    score: float = 0.0
    time: int = -1


class _Walk:
    """A cut through each hierarchy, made more specific step by step.

    A step whose children break a class is dropped for good: the classes of any later cut are parts of these, and if all
    parts of a class satisfied the models, so would the class. With suppression that is a rule of thumb: a later cut may
    put what fails into a class of its own.
    """

    def __init__(self, problem: _Problem, node: Node) -> None:
        self._problem = problem
        self._everything = np.arange(len(problem.counts))
        self.levels = [
            np.full(len(hierarchy.column.values), level, np.int64)
            for hierarchy, level in zip(problem.hierarchies, node, strict=True)
        ]
        self._steps = 0
        self._penalties = np.zeros(len(problem.counts))
        for axis, hierarchy in enumerate(problem.hierarchies):
            self._penalties += problem.share[axis] * hierarchy.losses[node[axis]][problem.codes[axis]]
        labels = [
            h.maps[level][codes] for h, level, codes in zip(problem.hierarchies, node, problem.codes, strict=True)
        ]
        widths = [len(h.labels[level]) for h, level in zip(problem.hierarchies, node, strict=True)]
        self._settle(*group(labels, widths))
        self._open = [step for axis in range(len(node)) for step in self._labels_of(axis)]

    def _settle(self, of_row: Array, number: int) -> None:
        """Take over classes, and find which of them can be released."""
        problem = self._problem
        classes = problem.classes(of_row, number, self._everything, None)
        self._of_row, self._sizes = of_row, classes.sizes
        keep = suppress(problem.requirement, classes, problem.allowed).kept
        self._kept = keep[of_row]
        self.suppressed = int(classes.sizes[~keep].sum())
        self._whole = {name: classes.totals(name, keep) for name in problem.held}

    @property
    def loss(self) -> float:
        """Return the certainty penalty; a suppressed row counts as 1."""
        return float(np.where(self._kept, self._penalties, 1.0) @ self._problem.counts) / self._problem.rows

    def _labels_of(self, axis: int) -> list[_Step]:
        """Return the labels of a column that have children."""
        levels = self.levels[axis]
        maps = self._problem.hierarchies[axis].maps
        steps = []
        for level in np.unique(levels[levels > 0]):
            inside = np.flatnonzero(levels == level)
            for label in np.unique(maps[level][inside]):
                steps += self._children(axis, inside[maps[level][inside] == label], int(level))
        return steps

    def _children(self, axis: int, values: Array, level: int) -> list[_Step]:
        """Return the step from a label to its children; a label with a single child is replaced by it at once."""
        hierarchy = self._problem.hierarchies[axis]
        while level > 0:
            below = hierarchy.maps[level - 1][values]
            if (below != below[0]).any():
                return [_Step(axis, values, level - 1)]
            level -= 1
            self._relabel(axis, values, level)
        return []

    def _relabel(self, axis: int, values: Array, level: int) -> None:
        problem, hierarchy = self._problem, self._problem.hierarchies[axis]
        change = np.zeros(len(hierarchy.column.values))
        for old in np.unique(self.levels[axis][values]):
            part = values[self.levels[axis][values] == old]
            change[part] = hierarchy.losses[level][part] - hierarchy.losses[old][part]
        self._penalties += problem.share[axis] * change[problem.codes[axis]]
        self.levels[axis][values] = level

    def run(self, by_ratio: bool, first: int | None = None) -> None:
        """Take steps until none saves anything; those of the column `first` before all others."""
        heap: list[tuple[bool, float, int, _Step]] = []
        serial = 0

        def push(step: _Step) -> None:
            nonlocal serial
            computed = self._judge(step, by_ratio)
            if computed is not None:
                heapq.heappush(heap, (computed.axis != first, -computed.score, serial, computed))
                serial += 1

        for step in self._open:
            push(step)
        while heap:
            step = heapq.heappop(heap)[-1]
            if step.time != self._steps:
                push(step)  # computed for an earlier cut
            elif self._take(step):
                for child in self._below(step):
                    push(child)

    def _below(self, step: _Step) -> list[_Step]:
        labels = self._problem.hierarchies[step.axis].maps[step.level][step.values]
        return [
            child
            for label in np.unique(labels)
            for child in self._children(step.axis, step.values[labels == label], step.level)
        ]

    def _split(self, step: _Step) -> tuple[Array, Array, int]:
        """Return the rows below a label, and their classes if it is replaced by its children."""
        codes = self._problem.codes[step.axis]
        hierarchy = self._problem.hierarchies[step.axis]
        inside = np.zeros(len(hierarchy.column.values), bool)
        inside[step.values] = True
        rows = np.flatnonzero(inside[codes])
        labels = hierarchy.maps[step.level][codes[rows]]
        of_row, number = group([self._of_row[rows], labels], [len(self._sizes), len(hierarchy.labels[step.level])])
        return rows, of_row, number

    def _judge(self, step: _Step, by_ratio: bool) -> _Step | None:
        """Return a step with its gain and score; None if it breaks a class or saves nothing."""
        problem = self._problem
        rows, of_row, number = self._split(step)
        classes = problem.classes(of_row, number, rows, self._whole)
        keep = problem.requirement.holds(classes)[of_row]
        counts = problem.counts[rows]
        lost = int(counts[~keep].sum()) - int(counts[~self._kept[rows]].sum())
        if self.suppressed + lost > problem.allowed:
            return None
        hierarchy, codes = problem.hierarchies[step.axis], problem.codes[step.axis][rows]
        old = int(self.levels[step.axis][step.values[0]])
        saved = problem.share[step.axis] * (hierarchy.losses[old] - hierarchy.losses[step.level])[codes]
        before = np.where(self._kept[rows], self._penalties[rows], 1.0)
        after = np.where(keep, self._penalties[rows] - saved, 1.0)
        gain = float((before - after) @ counts)
        if gain <= 1e-12 * problem.rows:
            return None
        score = gain
        if by_ratio:
            smaller = np.log2(np.maximum(self._sizes[self._of_row[rows]], 1) / np.maximum(classes.sizes[of_row], 1))
            score = gain / (1.0 + float(smaller @ counts))
        return _Step(step.axis, step.values, step.level, gain, score, self._steps)

    def _take(self, step: _Step) -> bool:
        """Replace a label by its children; return False if that suppresses too much or saves nothing."""
        before = self.loss
        rows, of_row, number = self._split(step)
        state = self._of_row, self._sizes, self._kept, self.suppressed, self._whole, self._penalties.copy()
        level = int(self.levels[step.axis][step.values[0]])
        whole = self._of_row.copy()
        whole[rows] = len(self._sizes) + of_row
        self._relabel(step.axis, step.values, step.level)
        self._settle(*group([whole], [len(self._sizes) + number]))
        if self.suppressed <= self._problem.allowed and self.loss < before:
            self._steps += 1
            return True
        self._of_row, self._sizes, self._kept, self.suppressed, self._whole, self._penalties = state
        self.levels[step.axis][step.values] = level
        return False
