"""The lattice of full-domain generalisations, searched for the one with the least loss.

A node says for each quasi-identifier at which level of its hierarchy all its values are released; classes that fail are
suppressed (`suppression.py`). More general nodes have larger classes and a larger loss. The optimum is over all nodes
and all sets of classes to suppress. The search is branch and bound over boxes of nodes, best bound first, so it ends
with a proof that no node is better; stopped early, it states how far off it may be.

A box holds all nodes between a lowest and a highest one. Three facts bound them:

- Every model says how many rows of a class go at least, however the class is cut into finer ones
  (`Model.least_removed`): of a class of fewer than k rows all, of one with too frequent a value as many as make it rare
  enough. So the rows that the highest node loses are lost in the whole box; if that is too many, no node of it remains.
- A column whose level is lowered alone, all others as in the highest node, loses no more rows than the nodes of the box
  at that level. If that is too many, the level is ruled out and the lowest node rises: few looks tighten a box a lot.
- What a row costs falls with each level, and a row that is suppressed costs 1. So no node costs less than the lowest
  one, with the lost rows suppressed.

A box is split at one column: fixed at its lowest level, which raises the levels of other columns, or above it, which
costs penalty. No more is assumed: with suppression, a model that a merge can break may hold at a node and fail at the
nodes above.

Where models compare classes with the release (t, beta), which classes to suppress is itself a hard problem, and what is
found at a node may not be the least. Then the node keeps its lower bound, and the optimum is proven only if no lower
bound is below the loss that was found.

Falls to: `attack.tables.homogeneity`, `attack.tables.minimality`, and `attack.tables.intersection` of two releases.
"""

import heapq
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cloister.anonymize.classes import EquivalenceClasses, group
from cloister.anonymize.coded import Array, CodedColumn
from cloister.anonymize.hierarchy import CodedHierarchy
from cloister.anonymize.models import Requirement
from cloister.anonymize.suppression import suppress
from cloister.privacy.errors import BadInput

__all__ = ["Evaluated", "Lattice", "Node", "Search", "search"]

Node = tuple[int, ...]
_TOLERANCE = 1e-6  # losses nearer than this count as equal: bounds are sums in floating point
_RISE = 4  # levels by which a box's lowest node rises before its rows are merged again, which takes as long as a look
_WALK = 256  # boxes from one walk down to the next
_MOST_HELD = 16_000_000  # rows that open boxes keep; about 200 MB


@dataclass(frozen=True)
class Evaluated:
    """What a node costs.

    Attributes:
        node: levels of the quasi-identifiers.
        loss: between 0 (nothing changed) and 1 (everything suppressed); infinite if too many rows are suppressed.
        suppressed: number of rows.
        classes: number of classes that are released.
        least: no set of suppressed classes makes this node cost less; infinite if no node below satisfies the models
            either.
    """

    node: Node
    loss: float
    suppressed: int
    classes: int
    least: float = 0.0


@dataclass(frozen=True)
class _Kinds:
    """Rows that no node from `node` on tells apart are of one kind, and counted.

    Attributes:
        node: the lowest node.
        rows: a distinct row of the table for each kind.
        weights: how often it is in the release.
        population: how often it is in the population; None if there is none.
        sensitive: codes of the sensitive columns.
    """

    node: Node
    rows: Array
    weights: Array
    population: Array | None
    sensitive: Mapping[str, CodedColumn]


@dataclass(frozen=True)
class _Look:
    """The classes of a node, and what it and every node below lose at least.

    Attributes:
        kinds: the rows.
        classes: of them.
        least: the rows that each class loses at least.
        lost: their number.
    """

    kinds: _Kinds
    classes: EquivalenceClasses
    least: Array
    lost: int


class Lattice:
    """Nodes of the full-domain generalisations of a table, and what each of them costs.

    Args:
        hierarchies: of the quasi-identifiers, in order.
        sensitive: the sensitive columns that the requirement names.
        requirement: what every class must satisfy.
        suppression: share of the rows that may be suppressed.
        weights: of the quasi-identifiers in the loss; equal by default.
        population: True for each row of the population, False for each row of the release.
    """

    def __init__(
        self,
        hierarchies: Sequence[CodedHierarchy],
        sensitive: Mapping[str, CodedColumn],
        requirement: Requirement,
        suppression: float,
        weights: Mapping[str, float] | None = None,
        population: Array | None = None,
    ) -> None:
        self.hierarchies = tuple(hierarchies)
        self.heights = tuple(hierarchy.height for hierarchy in hierarchies)
        self.requirement = requirement
        share = np.array([(weights or {}).get(hierarchy.column.name, 1.0) for hierarchy in hierarchies], float)
        if (share < 0).any() or not share.sum() or not np.isfinite(share).all():
            raise BadInput("weights of columns are finite, not negative, and not all 0.")
        share /= share.sum()
        distinct = self._compress(sensitive, population)
        self.rows = int(self.whole.weights.sum())
        self.allowed = int(np.floor(self.rows * suppression + 1e-9))
        self._smallest = requirement.smallest
        # For each column and level: the label's code of each distinct row, and its weighted penalty.
        self._codes = [
            [level[hierarchy.column.codes[distinct]] for level in hierarchy.maps] for hierarchy in self.hierarchies
        ]
        self._widths = [[len(labels) for labels in hierarchy.labels] for hierarchy in self.hierarchies]
        self._losses = [
            [w * level[hierarchy.column.codes[distinct]] for level in hierarchy.losses]
            for w, hierarchy in zip(share, self.hierarchies, strict=True)
        ]
        self.means = [[float(loss @ self.whole.weights) / self.rows for loss in levels] for levels in self._losses]
        self.seen: dict[Node, Evaluated] = {}

    def _compress(self, sensitive: Mapping[str, CodedColumn], population: Array | None) -> Array:
        """Keep one row of each kind: rows that no node and no model tells apart are counted, not repeated."""
        columns = [hierarchy.column for hierarchy in self.hierarchies] + list(sensitive.values())
        flags = [] if population is None else [population.astype(np.int64)]
        key, number = group(
            [*(column.codes for column in columns), *flags],
            [*(len(column.values) for column in columns), *(2 for _ in flags)],
        )
        distinct = np.empty(number, np.int64)
        distinct[key] = np.arange(len(key))
        counts, people = np.bincount(key, minlength=number), None
        if population is not None:
            outside = population[distinct].astype(bool)
            counts, people = np.where(outside, 0, counts), np.where(outside, counts, 0)
        held = {name: CodedColumn(name, column.values, column.codes[distinct]) for name, column in sensitive.items()}
        self.whole = _Kinds((0,) * len(self.heights), np.arange(number), counts, people, held)
        return distinct

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        return math.prod(height + 1 for height in self.heights)

    @property
    def top(self) -> Node:
        """Return the node in which every quasi-identifier is `*`."""
        return self.heights

    def base(self, node: Node) -> float:
        """Return the loss of a node if no row had to be suppressed."""
        return sum(means[level] for means, level in zip(self.means, node, strict=True))

    def merged(self, look: _Look, low: Node) -> _Look:
        """Return the same look with rows counted as one that no node from `low` on tells apart, if that pays."""
        kinds, classes = look.kinds, look.classes
        if sum(low) < sum(kinds.node) + _RISE:
            return look
        held = list(kinds.sensitive.values())
        key, number = self._group(low, kinds.rows, [c.codes for c in held], [len(c.values) for c in held])
        chosen = np.empty(number, np.int64)
        chosen[key] = np.arange(len(key))
        weights = _sums(key, kinds.weights, number)
        people = None if kinds.population is None else _sums(key, kinds.population, number)
        sensitive = {column.name: CodedColumn(column.name, column.values, column.codes[chosen]) for column in held}
        merged = _Kinds(low, kinds.rows[chosen], weights, people, sensitive)
        of_row = classes.of_row[chosen]
        return _Look(
            merged, EquivalenceClasses(of_row, classes.number, sensitive, weights, people), look.least, look.lost
        )

    def _group(
        self, node: Node, rows: Array, codes: Sequence[Array] = (), widths: Sequence[int] = ()
    ) -> tuple[Array, int]:
        """Return the class of each row at a node, and their number; further columns make them finer."""
        told = [
            (of_level[level][rows], width[level])
            for of_level, width, level in zip(self._codes, self._widths, node, strict=True)
            if width[level] > 1
        ]
        if not told and not codes:
            return np.zeros(len(rows), np.int64), 1
        return group([*(code for code, _ in told), *codes], [*(width for _, width in told), *widths])

    def look(self, node: Node, kinds: _Kinds) -> _Look:
        """Return the classes of a node, and the rows that it and every node below lose at least."""
        return self._looked(kinds, *self._group(node, kinds.rows))

    def lowered(self, look: _Look, column: int, level: int) -> _Look:
        """Return the look at the node with a column at a lower level: each class is cut into finer ones."""
        width = self._widths[column][level]
        codes = self._codes[column][level][look.kinds.rows]
        return self._looked(look.kinds, *group([look.classes.of_row, codes], [look.classes.number, width]))

    def _looked(self, kinds: _Kinds, of_row: Array, number: int) -> _Look:
        classes = EquivalenceClasses(of_row, number, kinds.sensitive, kinds.weights, kinds.population)
        small = np.where(classes.sizes < self._smallest, classes.sizes, 0)
        if (lost := int(small.sum())) <= self.allowed:  # else nothing more need be known
            small = self.requirement.least_removed(classes, self.allowed)
            lost = int(small.sum())
        return _Look(kinds, classes, small, lost)

    def evaluate(self, node: Node, look: _Look | None = None) -> Evaluated:
        """Return what a node costs; each node is computed once."""
        known = self.seen.get(node)
        if known is None:
            known = self.seen[node] = self._evaluate(node, look or self.look(node, self.whole))
        return known

    def _evaluate(self, node: Node, look: _Look) -> Evaluated:
        if look.lost > self.allowed:
            return Evaluated(node, np.inf, look.lost, 0, np.inf)
        classes = look.classes
        solution = suppress(self.requirement, classes, self.allowed, look.least)
        lost = int(classes.sizes[~solution.kept].sum())
        must = np.where(solution.least, classes.sizes, 0)
        loss = floor = np.inf
        if lost <= self.allowed and solution.kept.any():
            loss = floor = self._cost(node, look, np.where(solution.kept, 0, classes.sizes))
        if not solution.exact and int(must.sum()) <= self.allowed:
            floor = self._cost(node, look, must)
        return Evaluated(node, loss, lost, int(solution.kept.sum()), floor)

    def bound(self, low: Node, look: _Look) -> float:
        """Return what the nodes from `low` up to the one that was looked at cost at least."""
        return self._cost(low, look, look.least)

    def _cost(self, node: Node, look: _Look, removed: Array) -> float:
        """Return the loss of a node if so many rows of each class are suppressed, whichever they are: a lower bound."""
        classes, kinds = look.classes, look.kinds
        rows = np.flatnonzero(removed[classes.of_row])
        if not len(rows):
            return self.base(node)
        places, owner = kinds.rows[rows], classes.of_row[rows]
        cost = 1.0 - sum(levels[level][places] for levels, level in zip(self._losses, node, strict=True))
        entire = (removed == classes.sizes)[owner]
        total = float((cost * kinds.weights[rows])[entire].sum())
        if not entire.all():
            cheapest = np.full(classes.number, np.inf)
            np.minimum.at(cheapest, owner, cost)
            some = np.flatnonzero((removed > 0) & (removed < classes.sizes))
            total += float(cheapest[some] @ removed[some])
        return self.base(node) + total / self.rows

    def raised(self, low: Node, high: Node, look: _Look, columns: Iterable[int]) -> tuple[Node, dict[int, int]]:
        """Return the lowest node of a box without levels that lose too many rows, and the rows that are lost at least.

        Args:
            low, high: of the box.
            look: at `high`.
            columns: whose levels are looked at.
        """
        clear = look.least[look.classes.of_row] == 0
        of_row, rows, weights = look.classes.of_row[clear], look.kinds.rows[clear], look.kinds.weights[clear]
        levels, lost = list(low), {}
        for column in columns:
            while levels[column] < high[column]:
                width = self._widths[column][levels[column]]
                key = of_row * width + self._codes[column][levels[column]][rows]
                lost[column] = look.lost + self._in_small_classes(key, look.classes.number * width, weights)
                if lost[column] <= self.allowed:
                    break
                levels[column] += 1
        return tuple(levels), lost

    def _in_small_classes(self, key: Array, span: int, weights: Array) -> int:
        """Return the number of rows in classes that are too small for any model."""
        of_row = key if span <= 8 * len(key) + 1024 else group([key], [span])[0]
        sizes = np.bincount(of_row, weights=weights)
        return int(sizes[sizes < self._smallest].sum())


@dataclass
class Search:
    """The state of a search: the best node, the bound, and how it was found.

    Attributes:
        best: the cheapest node that was evaluated; None if there is none yet.
        bound: no node costs less, whichever classes are suppressed; infinite if no node satisfies the requirement.
        visited: number of nodes that were evaluated.
        nodes: number of nodes of the lattice.
        seconds: of work.
        history: (seconds, loss of the best node, bound) whenever one of them changed.
        heights: the last level of each quasi-identifier.
        seen: the nodes that were evaluated.
    """

    best: Evaluated | None = None
    bound: float = 0.0
    visited: int = 0
    nodes: int = 0
    seconds: float = 0.0
    history: list[tuple[float, float, float]] = field(default_factory=list)
    heights: Node = ()
    seen: Mapping[Node, Evaluated] = field(default_factory=dict, repr=False)

    @property
    def gap(self) -> float:
        """Return the share of the optimum by which the best node may cost more than it: best / bound - 1.

        It is 0 if the best node is proven to be the optimum (to a millionth), and infinite while nothing is known.
        """
        if self.best is None:
            return np.inf
        if self.best.loss - self.bound <= _TOLERANCE:
            return 0.0
        return self.best.loss / self.bound - 1.0 if self.bound > 0 else np.inf

    @property
    def optimal(self) -> bool:
        """Return True if it is proven that no node costs less."""
        return self.best is not None and self.gap == 0.0

    @property
    def hopeless(self) -> bool:
        """Return True if it is proven that no node satisfies the requirement."""
        return self.best is None and self.bound == np.inf

    @property
    def verdict(self) -> str:
        """Return in words what is known of the best node."""
        if self.optimal:
            return "the proven optimum"
        if np.isfinite(self.gap):
            return f"at most {_percent(self.gap)} above the optimum"
        return "how far above the optimum is not known"

    def describe(self) -> str:
        """Return the result in a sentence."""
        work = f"{self.visited:,} of {self.nodes:,} nodes in {self.seconds:.1f} s"
        if self.best is None:
            return f"no node satisfies the requirement{'' if self.hopeless else ' so far'}; {work}"
        return f"loss {self.best.loss:.4f}, {self.verdict}; {work}"


def _percent(share: float) -> str:
    """Print a share with one digit, rounded up: less would be false."""
    return f"{math.ceil(share * 1000 - 1e-9) / 10:,.1f} %"


def search(
    lattice: Lattice,
    *,
    seconds: float | None = None,
    gap: float = 0.0,
    progress: Callable[[float, str], None] | None = None,
) -> Search:
    """Return the cheapest node of a lattice, with a proof, or the best one within a time or a gap.

    Args:
        lattice: to search.
        seconds: stop after this time; None means no limit.
        gap: stop when the best node costs at most this share more than the optimum.
        progress: called with the share of the optimum that is proven, and a sentence.
    """
    work = _Work(lattice, seconds)
    if work.begin():
        while work.go_on(gap, progress):
            work.split()
    return work.state


@dataclass(frozen=True)
class _Box:
    """Nodes between two, as far as they are not ruled out.

    Attributes:
        bound: no node of it costs less.
        low, high: the lowest and the highest node.
        look: at the highest node; None if the rows are too many to be kept.
        gone: rows that every node of it loses at least.
        lost: the same of its nodes at the lowest level of a column, for each column in which they differ.
    """

    bound: float
    low: Node
    high: Node
    look: _Look | None
    gone: int
    lost: Mapping[int, int]


class _Work:
    """The open boxes of a search, what was found, and the limit of time."""

    def __init__(self, lattice: Lattice, seconds: float | None) -> None:
        self.lattice, self._seconds, self._began = lattice, seconds, time.monotonic()
        self.state = Search(nodes=lattice.size, heights=lattice.heights, seen=lattice.seen)
        self._open: list[tuple[float, int, _Box]] = []
        self._serial = self._splits = 0
        self._held = 0  # rows that open boxes keep
        self._floor = np.inf  # nodes that are no longer in a box cost at least as much, or as much as the best one

    @property
    def _ceiling(self) -> float:
        return np.inf if self.state.best is None else self.state.best.loss - _TOLERANCE / 2

    def begin(self) -> bool:
        """Open the box of all nodes; return False if none satisfies the models."""
        lattice = self.lattice
        look = lattice.look(lattice.top, lattice.whole)
        self.visit(lattice.top, look)
        if look.lost > lattice.allowed:
            self.state.bound = np.inf
            return False
        self.descend(lattice.whole.node, lattice.top, look)
        self._add(lattice.whole.node, lattice.top, look, range(len(lattice.heights)), {})
        return True

    def go_on(self, gap: float, progress: Callable[[float, str], None] | None) -> bool:
        """Take over the bound of the open boxes, report it, and return True if there is something left to do."""
        state, lowest = self.state, self._open[0][0] if self._open else np.inf
        loss = np.inf if state.best is None else state.best.loss
        state.bound = max(state.bound, min(lowest, self._floor, loss))
        self._note(progress)
        return bool(self._open) and lowest < self._ceiling and state.gap > gap and not self.late()

    def split(self) -> None:
        """Split the box with the lowest bound at a column: at its lowest level, and above it."""
        _, _, box = heapq.heappop(self._open)
        self._splits += 1
        lattice, column = self.lattice, self._dividing(box)
        if box.look is not None:
            self._held -= len(box.look.kinds.rows)
        look = lattice.merged(box.look or lattice.look(box.high, lattice.whole), box.low)
        if self._splits % _WALK == 0:  # a better node than the first walk found rules more out
            self.descend(box.low, box.high, look)
        level = box.low[column]
        below, above = _replaced(box.high, column, level), _replaced(box.low, column, level + 1)
        finer = lattice.lowered(look, column, level)
        if finer.lost > lattice.allowed or lattice.bound(below, finer) < self._ceiling:
            self.visit(below, finer)
        if finer.lost <= lattice.allowed:
            self._add(box.low, below, finer, [place for place in box.lost if place != column], {})
        self._add(above, box.high, look, [column], box.lost)

    def _dividing(self, box: _Box) -> int:
        """Return the column to split at: both parts are to be bounded better.

        Fixed at its lowest level it uses up rows that may be suppressed; above it, it costs penalty.
        """
        lattice = self.lattice
        spare, columns = max(1, lattice.allowed - box.gone), len(box.low)

        def score(place: int) -> float:
            means, level = lattice.means[place], box.low[place]
            dear, used = columns * (means[level + 1] - means[level]), (box.lost[place] - box.gone) / spare
            return min(dear, used) + 0.1 * max(dear, used)

        return max(box.lost, key=score)

    def _add(self, low: Node, high: Node, look: _Look, columns: Iterable[int], known: Mapping[int, int]) -> None:
        """Open a box without the levels that are ruled out, unless all its nodes cost more than the best one."""
        lattice = self.lattice
        low, lost = lattice.raised(low, high, look, columns)
        bound = lattice.bound(low, look)
        if bound >= self._ceiling:
            return
        if low == high:
            self._floor = min(self._floor, self.visit(high, look).least)
            return
        lost = {place: lost.get(place, known.get(place, 0)) for place in range(len(low)) if low[place] < high[place]}
        kept = self._held + len(look.kinds.rows) <= _MOST_HELD
        self._held += len(look.kinds.rows) if kept else 0
        self._serial += 1
        box = _Box(bound, low, high, look if kept else None, look.lost, lost)
        heapq.heappush(self._open, (bound, -self._serial, box))

    def left(self) -> float | None:
        """Return the seconds that are left; None if there is no limit."""
        return None if self._seconds is None else max(0.0, self._seconds - (time.monotonic() - self._began))

    def late(self) -> bool:
        """Return True if no time is left."""
        return self.left() == 0.0

    def visit(self, node: Node, look: _Look | None = None) -> Evaluated:
        """Evaluate a node."""
        evaluated, state = self.lattice.evaluate(node, look), self.state
        if np.isfinite(evaluated.loss) and (state.best is None or evaluated.loss < state.best.loss):
            state.best = evaluated
        state.visited, state.seconds = len(self.lattice.seen), time.monotonic() - self._began
        return evaluated

    def _note(self, progress: Callable[[float, str], None] | None) -> None:
        """Record the state, and report it."""
        state = self.state
        state.seconds = time.monotonic() - self._began
        if state.best is None:
            return
        if not state.history or state.history[-1][1:] != (state.best.loss, state.bound):
            state.history.append((state.seconds, state.best.loss, state.bound))
        if progress is not None:
            progress(1.0 if state.optimal else min(1.0, state.bound / state.best.loss), state.describe())

    def descend(self, low: Node, node: Node, look: _Look) -> None:
        """Walk down in a box from its highest node to one none of whose children is cheaper: a good node.

        While nothing satisfies the requirement, the child that suppresses least is taken.
        """
        dear = self._price(node, look)
        while not self.late():
            best = None
            for column in (place for place, level in enumerate(node) if level > low[place]):
                child = _replaced(node, column, node[column] - 1)
                finer = self.lattice.lowered(look, column, child[column])
                cost = self._price(child, finer, dear[0])
                if cost < dear:
                    best, dear = (child, finer), cost
                if self.late():
                    break
            if best is None:
                return
            node, look = best

    def _price(self, node: Node, look: _Look, most: float = np.inf) -> tuple[float, int]:
        """Return the loss of a node and the rows it suppresses; it is not evaluated if it costs more than `most`."""
        if look.lost <= self.lattice.allowed and (bound := self.lattice.bound(node, look)) > most:
            return bound, look.lost
        evaluated = self.visit(node, look)
        return evaluated.loss, evaluated.suppressed


def _replaced(node: Node, place: int, level: int) -> Node:
    return (*node[:place], level, *node[place + 1 :])


def _sums(key: Array, weights: Array, number: int) -> Array:
    return np.rint(np.bincount(key, weights=weights, minlength=number)).astype(np.int64)
