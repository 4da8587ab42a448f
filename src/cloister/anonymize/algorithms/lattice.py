"""The lattice of full-domain generalisations, searched for the one with the least loss.

A node says for each quasi-identifier at which level of its hierarchy all its values are released; classes that fail are
suppressed (`suppression.py`). More general nodes have larger classes and a larger loss. The optimum is over all nodes
and all sets of classes to suppress. The search keeps a lower bound of the loss of every node and visits the node with
the lowest one, so it ends with a proof that no node is better; stopped early, it states how far off it may be.

Bounds. Without suppression a node costs `base`, a sum over columns that needs no look at the classes. Each suppressed
row costs the full penalty instead of its own. Every model says how many rows of a class go at least, however the class
is cut into finer ones (`Model.least_removed`): of a class of fewer than k rows all, of one with too frequent a value as
many as make it rare enough. These rows are suppressed at every node z below v, and cost there at least as much more as
at v. So loss(z) ≥ base(z) + extra(v) for all z ≤ v: each visit raises the bound of a whole box, and a node where more
rows go than may be suppressed rules out everything below it, and nothing above. No more is assumed: with suppression,
a model that a merge can break may hold at a node and fail at the nodes above.

Where models compare classes with the release (t, beta), which classes to suppress is itself a hard problem, and what is
found at a node may not be the least. Then the node keeps its lower bound, and the optimum is proven only if no lower
bound is below the loss that was found.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa

from cloister.anonymize.classes import EquivalenceClasses, group
from cloister.anonymize.coded import Array, CodedColumn
from cloister.anonymize.hierarchy import CodedHierarchy
from cloister.anonymize.models import KAnonymity, Requirement
from cloister.anonymize.suppression import suppress
from cloister.privacy.errors import BadInput

__all__ = ["Evaluated", "Lattice", "Node", "Search", "search"]

Node = tuple[int, ...]
_MOST_NODES = 30_000_000
_INFEASIBLE = 2  # a status of scipy's solver
_TOLERANCE = 1e-6  # losses nearer than this count as equal: bounds are sums in floating point


@dataclass(frozen=True)
class Evaluated:
    """What a node costs.

    Attributes:
        node: levels of the quasi-identifiers.
        loss: between 0 (nothing changed) and 1 (everything suppressed); infinite if too many rows are suppressed.
        suppressed: number of rows.
        classes: number of classes that are released.
        extra: what suppression adds at least to the loss of this node and of every node below; infinite if all of them
            suppress too many rows.
        least: no set of suppressed classes makes this node cost less.
    """

    node: Node
    loss: float
    suppressed: int
    classes: int
    extra: float
    least: float = 0.0


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
        self._compress(sensitive, population)
        self.rows = int(self._weights.sum())
        self.allowed = int(np.floor(self.rows * suppression + 1e-9))
        self._least = max([1, *(model.k for model in requirement.models if isinstance(model, KAnonymity))])
        # For each column and level: the label's code of each distinct row, and its weighted penalty.
        self._codes = [
            [level[hierarchy.column.codes[self._distinct]] for level in hierarchy.maps]
            for hierarchy in self.hierarchies
        ]
        self._widths = [[len(labels) for labels in hierarchy.labels] for hierarchy in self.hierarchies]
        self._losses = [
            [w * level[hierarchy.column.codes[self._distinct]] for level in hierarchy.losses]
            for w, hierarchy in zip(share, self.hierarchies, strict=True)
        ]
        self._means = [[float(loss @ self._weights) / self.rows for loss in levels] for levels in self._losses]
        self.seen: dict[Node, Evaluated] = {}

    def _compress(self, sensitive: Mapping[str, CodedColumn], population: Array | None) -> None:
        """Keep one row of each kind: rows that no node and no model tells apart are counted, not repeated."""
        columns = [hierarchy.column for hierarchy in self.hierarchies] + list(sensitive.values())
        flags = [] if population is None else [population.astype(np.int64)]
        key, number = group(
            [*(column.codes for column in columns), *flags],
            [*(len(column.values) for column in columns), *(2 for _ in flags)],
        )
        self._distinct = np.empty(number, np.int64)
        self._distinct[key] = np.arange(len(key))
        counts = np.bincount(key, minlength=number)
        if population is None:
            self._weights, self._population = counts, None
        else:
            outside = population[self._distinct].astype(bool)
            self._weights, self._population = np.where(outside, 0, counts), np.where(outside, counts, 0)
        self._sensitive = {
            name: CodedColumn(name, column.values, column.codes[self._distinct]) for name, column in sensitive.items()
        }

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        size = 1
        for height in self.heights:
            size *= height + 1
        return size

    @property
    def top(self) -> Node:
        """Return the node in which every quasi-identifier is `*`."""
        return self.heights

    def base(self, node: Node) -> float:
        """Return the loss of a node if no row had to be suppressed."""
        return sum(means[level] for means, level in zip(self._means, node, strict=True))

    def bases(self) -> Array:
        """Return `base` of every node, as an array with one axis for each column."""
        total = np.zeros((1,) * len(self.heights), np.float64)
        for axis, means in enumerate(self._means):
            shape = [1] * len(self.heights)
            shape[axis] = len(means)
            total = total + np.array(means).reshape(shape)
        return total

    def classes(self, node: Node) -> EquivalenceClasses:
        """Return the classes of the distinct rows at a node."""
        codes = [levels[level] for levels, level in zip(self._codes, node, strict=True)]
        widths = [levels[level] for levels, level in zip(self._widths, node, strict=True)]
        of_row, number = group(codes, widths)
        return EquivalenceClasses(of_row, number, self._sensitive, self._weights, self._population)

    def evaluate(self, node: Node) -> Evaluated:
        """Return what a node costs; each node is computed once."""
        known = self.seen.get(node)
        if known is None:
            known = self.seen[node] = self._evaluate(node)
        return known

    def _evaluate(self, node: Node) -> Evaluated:
        if (few := self._in_small_classes(node)) > self.allowed:
            return Evaluated(node, np.inf, few, 0, np.inf, np.inf)
        classes, base = self.classes(node), self.base(node)
        least = self.requirement.least_removed(classes, self.allowed)
        lost = int(least.sum())
        if lost > self.allowed:
            return Evaluated(node, np.inf, lost, 0, np.inf, np.inf)
        extra = self._extra(classes, least, node)
        solution = suppress(self.requirement, classes, self.allowed, least)
        lost = int(classes.sizes[~solution.kept].sum())
        must = np.where(solution.least, classes.sizes, 0)
        loss = floor = np.inf
        if lost <= self.allowed and solution.kept.any():
            loss = floor = base + self._extra(classes, np.where(solution.kept, 0, classes.sizes), node)
        if not solution.exact and int(must.sum()) <= self.allowed:
            floor = base + self._extra(classes, must, node)
        return Evaluated(node, loss, lost, int(solution.kept.sum()), extra, floor)

    def _in_small_classes(self, node: Node) -> int:
        """Return the number of rows in classes of fewer than k rows: quick, and enough to rule most nodes out."""
        key, span = np.zeros(len(self._weights), np.int64), 1
        for codes, widths, level in zip(self._codes, self._widths, node, strict=True):
            if widths[level] > 1:
                span *= widths[level]
                if span > 2**62:
                    return 0
                key = key * widths[level] + codes[level]
        of_row = key if span <= 4 * len(key) else pa.array(key).dictionary_encode().indices.to_numpy()
        sizes = np.bincount(of_row, weights=self._weights)
        return int(sizes[sizes < self._least].sum())

    def _extra(self, classes: EquivalenceClasses, removed: Array, node: Node) -> float:
        """Return what the loss grows by at least if so many rows of each class are suppressed."""
        rows = np.flatnonzero(removed[classes.of_row])
        if not len(rows):
            return 0.0
        own = sum(levels[level][rows] for levels, level in zip(self._losses, node, strict=True))
        cost, owner = 1.0 - own, classes.of_row[rows]
        whole = (removed == classes.sizes)[owner]
        total = float((cost * self._weights[rows])[whole].sum())
        if not whole.all():
            cheapest = np.full(classes.number, np.inf)
            np.minimum.at(cheapest, owner, cost)
            some = np.flatnonzero((removed > 0) & (removed < classes.sizes))
            total += float(cheapest[some] @ removed[some])
        return total / self.rows


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
    if work.visit(lattice.top).extra == np.inf:
        work.state.bound = np.inf
        return work.state
    work.descend()
    bounds: _Boxes | _Cuts = _Boxes(lattice) if lattice.size <= _MOST_NODES else _Cuts(lattice)
    floor = np.inf  # what the nodes that are out of `bounds` cost at least
    while True:
        ceiling = np.inf if work.state.best is None else work.state.best.loss
        lowest, node = bounds.lowest(ceiling, work.left())
        work.state.bound = max(work.state.bound, min(lowest, floor, ceiling))
        work.note(progress)
        if node is None or work.state.gap <= gap or work.late():
            return work.state
        before = len(lattice.seen)
        evaluated = work.visit(node)
        floor = min(floor, bounds.settle(evaluated))
        if not np.isfinite(evaluated.extra):
            for first in range(bounds.widened):
                bounds.raise_box(work.widest(node, first), np.inf)
        if bounds.cheap:
            floor = min([floor, *map(bounds.settle, islice(lattice.seen.values(), before, None))])


class _Work:
    """The visits of a search, and their limit of time."""

    def __init__(self, lattice: Lattice, seconds: float | None) -> None:
        self.lattice, self._seconds, self._began = lattice, seconds, time.monotonic()
        self.state = Search(nodes=lattice.size, heights=lattice.heights, seen=lattice.seen)

    def left(self) -> float | None:
        """Return the seconds that are left; None if there is no limit."""
        return None if self._seconds is None else max(0.0, self._seconds - (time.monotonic() - self._began))

    def late(self) -> bool:
        """Return True if no time is left."""
        return self.left() == 0.0

    def visit(self, node: Node) -> Evaluated:
        """Evaluate a node."""
        evaluated, state = self.lattice.evaluate(node), self.state
        if np.isfinite(evaluated.loss) and (state.best is None or evaluated.loss < state.best.loss):
            state.best = evaluated
        state.visited, state.seconds = len(self.lattice.seen), time.monotonic() - self._began
        return evaluated

    def note(self, progress: Callable[[float, str], None] | None) -> None:
        """Record the state, and report it."""
        state = self.state
        state.seconds = time.monotonic() - self._began
        if state.best is None:
            return
        state.history.append((state.seconds, state.best.loss, state.bound))
        if progress is not None:
            progress(1.0 if state.optimal else min(1.0, state.bound / state.best.loss), state.describe())

    def descend(self) -> None:
        """Walk from the top to a node none of whose children is cheaper: a first good node.

        While nothing satisfies the requirement, the child that suppresses least is taken.
        """
        node = self.lattice.top
        while not self.late():
            children = [(*node[:place], level - 1, *node[place + 1 :]) for place, level in enumerate(node) if level]
            costs = [(self._price(child), child) for child in children if not self.late()]
            best = min(costs, default=None)
            if best is None or best[0] >= self._price(node):
                return
            node = best[1]

    def _price(self, node: Node) -> tuple[float, int]:
        evaluated = self.visit(node)
        return evaluated.loss, evaluated.suppressed

    def widest(self, node: Node, first: int) -> Node:
        """Return a more general node that is ruled out as well and none of whose parents is; raise some columns first.

        It is not the most general one if time runs out.
        """
        heights = self.lattice.heights
        order = sorted(range(len(node)), key=lambda place: heights[place] - node[place], reverse=True)
        start = first * len(order) // 8
        for place in order[start:] + order[:start]:
            low, high = node[place], heights[place]
            while low < high and not self.late():  # the highest level that is still ruled out
                middle = (low + high + 1) // 2
                parent = (*node[:place], middle, *node[place + 1 :])
                if np.isfinite(self.visit(parent).extra):
                    high = middle - 1
                else:
                    low, node = middle, parent
        return node


class _Boxes:
    """Lower bounds of the nodes that were not visited, in an array: for lattices that fit into memory."""

    widened = 1  # boxes for each node that is ruled out
    cheap = True  # to take in what nodes say that were visited on the way

    def __init__(self, lattice: Lattice) -> None:
        self._base = lattice.bases().astype(np.float32 if lattice.size > 1_000_000 else np.float64)
        self._bound = self._base.copy()

    def lowest(self, ceiling: float, left: float | None) -> tuple[float, Node | None]:
        """Return the lowest bound, and its node if that may cost less than `ceiling`."""
        flat = int(np.argmin(self._bound))
        node = tuple(int(place) for place in np.unravel_index(flat, self._bound.shape))
        bound = float(self._bound[node])
        return bound, node if bound < ceiling - _TOLERANCE / 2 and np.isfinite(bound) else None

    def settle(self, evaluated: Evaluated) -> float:
        """Take a node out, raise the bounds of those below it, and return what it costs at least."""
        least = max(float(self._bound[evaluated.node]), evaluated.least)
        self._bound[evaluated.node] = np.inf
        self.raise_box(evaluated.node, evaluated.extra)
        return least

    def raise_box(self, node: Node, extra: float) -> None:
        box = tuple(slice(0, level + 1) for level in node)
        if np.isfinite(extra):
            np.maximum(self._bound[box], np.add(self._base[box], extra, dtype=self._base.dtype), out=self._bound[box])
        else:
            self._bound[box] = np.inf


class _Cuts:
    """Lower bounds by an integer program over the levels: for lattices that do not fit into memory.

    A binary variable says whether a column is at least at a level; one more number is what suppression adds. Each box
    is a linear inequality, so the bound of the program is a bound of every node.
    """

    widened = 8  # solving the program takes longer than looking at nodes
    cheap = False  # each row makes the program larger

    def __init__(self, lattice: Lattice) -> None:
        self._places = {
            place: number
            for number, place in enumerate(
                (column, level) for column, height in enumerate(lattice.heights) for level in range(1, height + 1)
            )
        }
        self._heights = lattice.heights
        self._base = lattice.base
        self._costs = np.array(
            [means[level] - means[level - 1] for means in lattice._means for level in range(1, len(means))] + [1.0]
        )
        self._offset = lattice.base((0,) * len(lattice.heights))
        self._rows: list[Array] = []
        self._least: list[float] = []
        self._points: set[Node] = set()
        for (_, level), number in self._places.items():
            if level > 1:
                row = np.zeros(len(self._costs))
                row[number - 1], row[number] = 1.0, -1.0
                self._add(row, 0.0)

    def lowest(self, ceiling: float, left: float | None) -> tuple[float, Node | None]:
        """Return a lower bound, and a node that attains it or may cost less than `ceiling`; none if time runs out."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        limits = {} if not self._rows else {"constraints": LinearConstraint(np.array(self._rows), self._least, np.inf)}
        options = {"mip_rel_gap": 1e-6} | ({} if left is None else {"time_limit": max(left, 1e-3)})
        solved = milp(
            self._costs,
            integrality=np.append(np.ones(len(self._costs) - 1), 0),
            bounds=Bounds(0, np.append(np.ones(len(self._costs) - 1), np.inf)),
            options=options,
            **limits,
        )
        if solved.status == _INFEASIBLE:
            return np.inf, None  # every node was visited or is ruled out
        proven = getattr(solved, "mip_dual_bound", None)
        bound = -np.inf if proven is None or not np.isfinite(proven) else float(proven) + self._offset
        if solved.x is None:
            return bound, None
        chosen = np.rint(solved.x[:-1]).astype(int)
        levels = [0] * len(self._heights)
        for (column, _), number in self._places.items():
            levels[column] += int(chosen[number])
        node = tuple(levels)
        return bound, node if bound < ceiling - _TOLERANCE / 2 and node not in self._points else None

    def settle(self, evaluated: Evaluated) -> float:
        """Take a node out, raise the bounds of those below it, and return what it costs at least."""
        self._points.add(evaluated.node)
        if np.isfinite(evaluated.extra):  # else it is not worth a row: the widened boxes hold it
            row, constant = self._above(evaluated.node), 0.0
            for column, level in enumerate(evaluated.node):
                if level:
                    row[self._places[column, level]] -= 1.0
                    constant += 1.0
            self._add(row, 1.0 - constant)
            self.raise_box(evaluated.node, evaluated.extra)
        return evaluated.least

    def raise_box(self, node: Node, extra: float) -> None:
        self._bound(self._above(node), 0.0, extra)

    def _above(self, node: Node) -> Array:
        """Return the row that counts the columns above their level in a node."""
        row = np.zeros(len(self._costs))
        for column, level in enumerate(node):
            if level < self._heights[column]:
                row[self._places[column, level + 1]] = 1.0
        return row

    def _bound(self, row: Array, constant: float, extra: float) -> None:
        """Ask for row + constant ≥ 1, or for what suppression adds to be at least `extra`."""
        if not np.isfinite(extra):
            self._add(row, 1.0 - constant)
        elif extra > 0:
            row = row * extra
            row[-1] = 1.0
            self._add(row, extra * (1.0 - constant))

    def _add(self, row: Array, least: float) -> None:
        self._rows.append(row)
        self._least.append(least)
