"""Totals that add up: ROLLUP measures every level by itself, and least squares makes them agree. Post-processing.

Hay et al. 2010: going up, a total and the sum of its parts are averaged by their variances; going down, what is left
over is shared among the parts by theirs. No number becomes less precise, so intervals stay valid (a little wide).
That holds where every row of a total is in one of its parts. Groups that were found leave rows out, so a total over
them stays as it was measured.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.query.plan import Plan
from cloister.query.question import Question

__all__ = ["consistent"]

Floats = NDArray[np.float64]


def consistent(plan: Plan, values: Sequence[list[Any]]) -> list[list[Any]]:
    """The same values, with counts and sums made consistent over nested grouping sets."""
    made = [list(one) for one in values]
    needs = {need for _, need in plan.needs if need.kind in ("rows", "sum")}
    for order in _nested(plan.question):
        for need in needs:
            places = [plan.needs[group_set, need] for group_set in order]
            shapes = [plan.measurements[place].sums.cells for place in places]
            levels = [np.asarray(made[place][0], dtype=np.float64) for place in places]
            variances = [plan.measurements[place].variance for place in places]
            for place, level in zip(places, _least_squares(levels, variances, shapes), strict=True):
                made[place][0] = level
    return made


def _nested(question: Question) -> list[list[int]]:
    """Chains of two or more grouping sets, from coarse to fine, in which the parts of each group add up to it.

    Each set begins with all keys of the one before, and the further keys have a value for every row. None, if the
    question's sets are not nested.
    """
    order = sorted(range(len(question.sets)), key=lambda i: len(question.sets[i]))
    chains = [order[:1]]
    for coarse, fine in pairwise(order):
        above, below = question.sets[coarse], question.sets[fine]
        if below[: len(above)] != above or len(below) == len(above):
            return []
        if all(question.groups[i].complete for i in below[len(above) :]):
            chains[-1].append(fine)
        else:
            chains.append([fine])
    return [chain for chain in chains if len(chain) > 1]


def _least_squares(levels: Sequence[Floats], variances: Sequence[float], cells: Sequence[int]) -> list[Floats]:
    best, spread = [levels[-1]], [variances[-1]]
    for level, variance, size in zip(levels[-2::-1], variances[-2::-1], cells[-2::-1], strict=True):
        parts = best[0].reshape(size, -1)
        of_sum = spread[0] * parts.shape[1]
        weight = of_sum / (of_sum + variance)
        best.insert(0, weight * level + (1 - weight) * parts.sum(axis=1))
        spread.insert(0, weight * variance)
    agreed = [best[0]]
    for mine in best[1:]:
        parts = mine.reshape(len(agreed[-1]), -1)
        left_over = (agreed[-1] - parts.sum(axis=1)) / parts.shape[1]
        agreed.append((parts + left_over[:, None]).ravel())
    return agreed
