"""Junction trees: sets of columns arranged so that a model over all of them is computed piece by piece.

tree = junction_tree(shape, [(0, 1), (1, 2)])
tree.cliques      # columns that are held together in one table
tree.cells        # how large all these tables are together
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["JunctionTree", "junction_tree", "tree_cells", "tree_cliques"]

Places = tuple[int, ...]

_TRIES, _SPREAD = 30, 1.0  # more orders that are tried, and how far the logarithm of a cost is moved in them
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class JunctionTree:
    """Cliques, parents before children.

    Attributes:
        cliques: each in rising order.
        parents: the clique that each hangs on; -1 for the first of each part.
        separators: what a clique shares with its parent.
        order: in which columns were eliminated.
    """

    cliques: tuple[Places, ...]
    parents: tuple[int, ...]
    separators: tuple[Places, ...]
    order: Places

    def home(self, places: Iterable[int], shape: Sequence[int]) -> int:
        """The smallest clique that holds all of these columns; -1 if none does."""
        wanted = set(places)
        fitting = [i for i, clique in enumerate(self.cliques) if wanted <= set(clique)]
        return min(fitting, key=lambda i: _size(self.cliques[i], shape), default=-1)


def junction_tree(shape: Sequence[int], sets: Iterable[Places], known: Places = ()) -> JunctionTree:
    """A tree of cliques such that every set lies in one: the smallest of those that some orders of elimination give.

    Args:
        shape: cells of each column.
        sets: of columns that are held together.
        known: one more order to try.
    """
    beside = _beside(len(shape), sets)
    orders = [_cheapest(shape, beside, _table), _cheapest(shape, beside, _new), *([known] if known else [])]
    steps = np.arange(1, _TRIES * len(shape) + 1).reshape(_TRIES, len(shape))
    for moved in np.exp(_SPREAD * (_GOLDEN * steps**2 % 1)):  # as good as random, and the same for the same sets
        orders.append(_cheapest(shape, beside, _new, moved.tolist()))
    found = {order: _maximal(_along(order, beside)) for order in orders}
    order = min(found, key=lambda one: tree_cells(found[one], shape))
    return _spanning(found[order], order)


def tree_cliques(shape: Sequence[int], sets: Iterable[Places], order: Places = ()) -> list[Places]:
    """The cliques of a tree along an order of elimination; always the column with the smallest table unless given."""
    beside = _beside(len(shape), sets)
    return _maximal(_along(order or _cheapest(shape, beside, _table), beside))


def tree_cells(cliques: Iterable[Places], shape: Sequence[int]) -> int:
    """How many cells cliques have together."""
    return sum(_size(clique, shape) for clique in cliques)


def _size(places: Iterable[int], shape: Sequence[int]) -> int:
    return math.prod(shape[place] for place in places)


# Sets of columns are bits of an integer below: column i is in `some` if some >> i & 1.


def _members(some: int) -> Iterator[int]:
    while some:
        least = some & -some
        yield least.bit_length() - 1
        some ^= least


def _beside(columns: int, sets: Iterable[Places]) -> list[int]:
    """For each column those that some set holds together with it, and itself."""
    beside = [1 << place for place in range(columns)]
    for together in sets:
        some = sum(1 << place for place in together)
        for place in together:
            beside[place] |= some
    return beside


def _without(beside: list[int], place: int) -> int:
    """Eliminate a column: those beside it are held together from now on. Returns them."""
    others = beside[place] & ~(1 << place)
    for one in _members(others):
        beside[one] = (beside[one] | others) & ~(1 << place)
    return others


def _along(order: Iterable[int], beside: Sequence[int]) -> list[Places]:
    """The cliques that eliminating columns in this order makes."""
    left, cliques = list(beside), []
    for place in order:
        cliques.append(tuple(_members(left[place])))
        _without(left, place)
    return cliques


def _table(place: int, beside: Sequence[int], shape: Sequence[int]) -> float:
    """The cost of eliminating a column: the table that holds it and all beside it."""
    return _size(_members(beside[place]), shape)


def _new(place: int, beside: Sequence[int], shape: Sequence[int]) -> float:
    """Another: the tables of all pairs of columns that would be held together anew; then the table as above."""
    cost, others = 0, beside[place] & ~(1 << place)
    for one in _members(others):
        cost += shape[one] * sum(shape[other] for other in _members(others & ~beside[one]))
    return 1 + cost / 2 + 1e-9 * math.log(_table(place, beside, shape))


def _cheapest(
    shape: Sequence[int],
    beside: Sequence[int],
    cost: Callable[[int, Sequence[int], Sequence[int]], float],
    moved: Sequence[float] | None = None,
) -> Places:
    """An order of elimination: always the column of least cost, each column's times a number of its own if given."""
    now, order = list(beside), []
    factor = moved or [1.0] * len(shape)
    costs = {place: factor[place] * cost(place, now, shape) for place in range(len(shape))}
    while costs:
        place = min(costs, key=lambda one: (costs[one], one))
        order.append(place)
        del costs[place]
        for one in _members(_without(now, place)):
            costs[one] = factor[one] * cost(one, now, shape)
    return tuple(order)


def _maximal(cliques: Sequence[Places]) -> list[Places]:
    kept: list[Places] = []
    for clique in sorted(set(cliques), key=lambda one: (-len(one), one)):
        if not any(set(clique) <= set(other) for other in kept):
            kept.append(clique)
    return kept


def _spanning(cliques: Sequence[Places], eliminated: Places) -> JunctionTree:
    """Prim: always the clique that shares most columns with one that is there already."""
    waiting = dict(enumerate(cliques))
    order, parents = [], []
    best: dict[int, tuple[int, int]] = dict.fromkeys(waiting, (0, -1))
    while waiting:
        chosen = max(waiting, key=lambda i: (best[i][0], -i))
        order.append(waiting.pop(chosen))
        parents.append(best[chosen][1])
        for i, clique in waiting.items():
            shared = len(set(clique) & set(order[-1]))
            if shared > best[i][0]:
                best[i] = (shared, len(order) - 1)
    separators = [
        () if parent < 0 else tuple(sorted(set(clique) & set(order[parent])))
        for clique, parent in zip(order, parents, strict=True)
    ]
    return JunctionTree(tuple(order), tuple(parents), tuple(separators), eliminated)
