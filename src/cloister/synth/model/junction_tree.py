"""Junction trees: cliques of columns over which a model of all columns is computed piece by piece.

tree = junction_tree(shape, [(0, 1), (1, 2)])
tree.cliques      # sets of columns, each held in one table
tree.cells        # total size of these tables
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["JunctionTree", "junction_tree", "tree_cells", "tree_cliques"]

Positions = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JunctionTree:
    """Cliques, parents before children.

    Attributes:
        cliques: each in ascending order.
        parents: the parent of each clique; -1 for the root of each component.
        separators: the columns that a clique shares with its parent.
    """

    cliques: tuple[Positions, ...]
    parents: tuple[int, ...]
    separators: tuple[Positions, ...]

    def home(self, positions: Iterable[int], shape: Sequence[int]) -> int:
        """Return the smallest clique that holds all of these columns; -1 if none does."""
        wanted = set(positions)
        fitting = [i for i, clique in enumerate(self.cliques) if wanted <= set(clique)]
        return min(fitting, key=lambda i: _size(self.cliques[i], shape), default=-1)


def junction_tree(shape: Sequence[int], sets: Iterable[Positions]) -> JunctionTree:
    """Build a tree of cliques such that every set is in one, by eliminating the cheapest column first."""
    maximal = _maximal(_eliminate(shape, sets))
    return _spanning(maximal)


def tree_cliques(shape: Sequence[int], sets: Iterable[Positions]) -> list[Positions]:
    """Return the cliques of that tree."""
    return _maximal(_eliminate(shape, sets))


def tree_cells(cliques: Iterable[Positions], shape: Sequence[int]) -> int:
    """Return the total number of cells of cliques."""
    return sum(_size(clique, shape) for clique in cliques)


def _size(positions: Iterable[int], shape: Sequence[int]) -> int:
    return math.prod(shape[column] for column in positions)


def _eliminate(shape: Sequence[int], sets: Iterable[Positions]) -> list[Positions]:
    beside: list[set[int]] = [set() for _ in shape]
    for together in sets:
        for column in together:
            beside[column].update(together)
    for column in range(len(shape)):
        beside[column].discard(column)
    left, cliques = set(range(len(shape))), []
    cost = {column: _size(beside[column], shape) * shape[column] for column in left}
    while left:
        column = min(left, key=lambda candidate: (cost[candidate], candidate))
        cliques.append(tuple(sorted({column, *beside[column]})))
        touched = beside[column]
        for neighbour in touched:
            beside[neighbour] |= touched
            beside[neighbour] -= {neighbour, column}
        left.remove(column)
        for neighbour in touched:
            cost[neighbour] = _size(beside[neighbour], shape) * shape[neighbour]
    return cliques


def _maximal(cliques: Sequence[Positions]) -> list[Positions]:
    maximal: list[Positions] = []
    for clique in sorted(set(cliques), key=lambda positions: (-len(positions), positions)):
        if not any(set(clique) <= set(other) for other in maximal):
            maximal.append(clique)
    return maximal


def _spanning(cliques: Sequence[Positions]) -> JunctionTree:
    """Build a maximum spanning tree (Prim): repeatedly add the clique that shares most columns with one in the tree."""
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
    return JunctionTree(tuple(order), tuple(parents), tuple(separators))
