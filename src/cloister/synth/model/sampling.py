"""Sample rows from a model: column after column, each given the earlier columns of its clique.

    cells = draw(model, rows, generator)

Within each group of rows with equal values in those columns the next one is filled by systematic sampling: the count
of each value is its expectation, rounded up or down. Rows of the group that are similar in other columns get values
far apart, so that joint counts with these columns are close to their expectation too: this removes a third of the
error that sampling adds to a table's marginals (Adult, epsilon 1; array-RQMC, L'Ecuyer, Lécot & Tuffin 2008, on a
golden lattice). Finally the rows are refined by swaps (swap_refinement.py).

Privacy: post-processing of a released model. Randomness may come from numpy; no protection depends on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cloister.privacy.errors import BadInput
from cloister.synth.domain.axis import Cells
from cloister.synth.domain.domain import Zero
from cloister.synth.measure.marginals import Floats
from cloister.synth.model.swap_refinement import settle

if TYPE_CHECKING:
    from cloister.synth.model.inference import Grain, Model

__all__ = ["conditioned", "draw", "systematic"]

_GOLDEN = (5**0.5 - 1) / 2
_ALIKE = 3  # columns that define similar rows


def draw(
    model: "Model",
    rows: int,
    generator: np.random.Generator,
    given: Mapping[int, Floats] | None = None,
) -> Cells:
    """Sample the cells of synthetic rows, one column for each modelled one.

    Args:
        model: a calibrated model.
        rows: number of rows.
        generator: any random generator; see above.
        given: for some columns the weight of each cell, from 0 to 1: rows come from the model under that
            condition.
    """
    if given:
        model = conditioned(model, given)
    cells = np.zeros((rows, len(model.shape)), dtype=np.int64)
    filled: set[int] = set()
    for clique, belief in zip(model.tree.cliques, model.beliefs, strict=True):
        present = [column for column in clique if column in filled]
        for target in clique:
            if target in filled:
                continue
            others = [cells[:, column] for column in filled - set(present)]
            _fill(cells, belief, clique, present, target, model.shape, others, generator)
            present.append(target)
            filled.add(target)
    for target, grain in enumerate(model.grains):
        if grain.size < len(grain.cells):
            others = [column for index, column in enumerate(cells.T) if index != target]
            cells[:, target] = _within(grain, cells[:, target], generator, others)
    settle(cells, model, generator)
    return cells


def conditioned(model: "Model", given: Mapping[int, Floats]) -> "Model":
    """Return the model conditioned on some columns being in some of their cells, or in parts of them."""
    from cloister.synth.model.inference import Model, propagate

    factors, grains = dict(model.factors), list(model.grains)
    zeros = list(model.zeros)
    for column, cells in given.items():
        old = grains[column]
        inside = np.bincount(old.cells, old.shares * cells, minlength=old.size)
        allowed = inside > 0
        # The rest of a cell is shared among the values that may still occur, and the cell's weight shrinks with it.
        grains[column] = replace(old, shares=old.shares * cells / np.where(allowed, inside, 1.0)[old.cells])
        factors[(column,)] = factors.get((column,), 0.0) + np.log(np.where(allowed, inside, 1.0))
        zeros.append(Zero((column,), allowed))
    chances = [model.asked().weighed((column,), [weights]) for column, weights in given.items()]
    narrowed = Model(model.shape, model.tree, factors, tuple(zeros), model.total, tuple(grains))
    with np.errstate(invalid="ignore", divide="ignore"):  # of a condition that matches nothing; refused below
        narrowed.beliefs = propagate(narrowed)
    if min(chances) <= 0 or not all(np.isfinite(belief).all() and belief.sum() > 0.5 for belief in narrowed.beliefs):
        raise BadInput("no row of the model meets this condition. Ask for a wider one.")
    return narrowed


def _fill(
    cells: Cells,
    belief: Floats,
    clique: tuple[int, ...],
    present: list[int],
    target: int,
    shape: tuple[int, ...],
    others: Sequence[Cells],
    generator: np.random.Generator,
) -> None:
    """Fill one column, given the filled columns of its clique."""
    order = [*present, target]
    axes = tuple(i for i, column in enumerate(clique) if column not in order)
    left = [column for column in clique if column in order]
    table = np.transpose(belief.sum(axis=axes), [left.index(column) for column in order]).reshape(-1, shape[target])
    group = np.zeros(len(cells), dtype=np.int64)
    for column in present:
        group = group * shape[column] + cells[:, column]
    cells[:, target] = systematic(table, group, generator, others)


def systematic(table: Floats, group: Cells, generator: np.random.Generator, others: Sequence[Cells] = ()) -> Cells:
    """Sample a value for each row by systematic sampling from the probabilities of its group.

    Args:
        table: a row of probabilities for each group; they need not add up to one.
        group: the group of each row.
        generator: random generator for the order of similar rows and the start of each group.
        others: columns of the rows; rows similar in the most informative ones are spread over the values.
    """
    order, sorted_group, spot = _spots(group, len(table), generator, others)
    sums = table.sum(axis=1, keepdims=True)
    shares = np.divide(table, sums, out=np.full_like(table, 1.0 / table.shape[1]), where=sums > 0)
    bounds = np.cumsum(shares, axis=1)
    bounds[:, -1] = 1.0
    # One search for all groups: group g is between g and g + 1.
    line = (bounds + np.arange(len(table))[:, None]).ravel()
    picked = np.searchsorted(line, spot + sorted_group, side="right") - sorted_group * table.shape[1]
    picked = np.clip(picked, 0, table.shape[1] - 1)
    # Rounding at the edge of a cell must not produce a structural zero.
    never = shares[sorted_group, picked] <= 0
    picked[never] = shares.argmax(axis=1)[sorted_group[never]]
    chosen = np.empty(len(group), dtype=np.int64)
    chosen[order] = picked
    return chosen


def _within(grain: "Grain", group: Cells, generator: np.random.Generator, others: Sequence[Cells]) -> Cells:
    """Sample from a model's cell one of the column's cells that it holds, by their shares.

    A column of many values would fill a table of all cells and groups with zeros: here each group lists its own.
    """
    order, sorted_group, spot = _spots(group, grain.size, generator, others)
    listed = np.argsort(grain.cells, kind="stable")
    shares, members = grain.shares[listed], grain.cells[listed]
    ends = np.cumsum(np.bincount(members, minlength=grain.size))
    below = np.concatenate([[0.0], np.cumsum(shares)])
    first = np.concatenate([[0], ends[:-1]])
    # Within each group from 0 to 1, despite rounding of the sums before it.
    start, width = below[first], below[ends] - below[first]
    upper = np.clip((below[1:] - start[members]) / np.where(width > 0, width, 1.0)[members], 0.0, 1.0)
    picked = np.searchsorted(upper + members, spot + sorted_group, side="right")
    picked = np.clip(picked, first[sorted_group], ends[sorted_group] - 1)
    heaviest = np.lexsort([-shares, members])[first]
    never = shares[picked] <= 0
    picked[never] = heaviest[sorted_group[never]]
    chosen = np.empty(len(group), dtype=np.int64)
    chosen[order] = listed[picked]
    return chosen


def _spots(
    group: Cells, groups: int, generator: np.random.Generator, others: Sequence[Cells]
) -> tuple[Cells, Cells, Floats]:
    """Return the order of rows by group, the group of each, and its position on the group's line from 0 to 1."""
    rows = len(group)
    telling = sorted(others, key=lambda column: -int(np.bincount(column).max(initial=0)))[-_ALIKE:]
    order = np.lexsort([generator.random(rows), *telling, group])
    sizes = np.bincount(group, minlength=groups)
    starts = np.cumsum(sizes) - sizes
    sorted_group = group[order]
    # Steps of the golden ratio put neighbours far apart; in this order rows share the line from 0 to 1 evenly.
    first = generator.random(groups)[sorted_group]
    ranking = np.lexsort([((np.arange(rows) - starts[sorted_group]) * _GOLDEN + first) % 1, sorted_group])
    rank = np.empty(rows, dtype=np.int64)
    rank[ranking] = np.arange(rows) - starts[sorted_group]
    return order, sorted_group, (rank + generator.random(groups)[sorted_group]) / sizes[sorted_group]
