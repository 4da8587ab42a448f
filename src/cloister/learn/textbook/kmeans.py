"""The textbook's k-means, corrected, for lessons: DPLloyd (Blum, Dwork, McSherry & Nissim 2005; Su et al. 2016).

A fixed number of rounds; each tells, for every cluster, a noisy number of rows and their noisy sum. Corrections. Number
and sum are told of the same row: their sensitivities add, r_1 + … + r_d + 1 in L1 for features within [-r_j, r_j], and
every round has its part of epsilon. Centres begin at public places: k-means++ would read rows, and the best of many
starts would be chosen by them. Clusters of training rows are not told.
"""

import math

import numpy as np

from cloister.learn.base.frame import Floats
from cloister.learn.base.integer_rows import Integers
from cloister.learn.cluster.enclosing_ball import Ground
from cloister.learn.textbook.method import TextbookFit

__all__ = ["lloyd"]

ROUNDS = 5


def lloyd(
    table: Floats, ground: Ground, clusters: int, rounds: int | None, lesson: TextbookFit
) -> tuple[Floats, Floats, int]:
    """Centres, sizes and the number of rounds.

    Args:
        table: the rows.
        ground: where they lie, publicly.
        clusters: how many.
        rounds: how many; 5 unless given.
        lesson: pays on paper.
    """
    turns, rows = rounds or ROUNDS, ground.cells(table) * ground.step
    features, longest = rows.shape[1], ground.step * 2**ground.bits
    half = np.full(features, longest) if ground.box is None else (ground.box.high - ground.box.low) / 2
    # A ball of radius r reaches sqrt(features) r in L1, less than the box around it.
    reach = min(float(half.sum()), math.sqrt(features) * longest) + 1
    scale = reach * turns / lesson.epsilon
    centres = (2 * lesson.source.floats((clusters, features)) - 1) * half
    sizes = np.zeros(clusters)
    for _ in range(turns):
        place = _nearest(rows, centres)
        member = (place[:, None] == np.arange(clusters)).astype(np.float64)
        sizes = np.maximum(member.sum(axis=0) + lesson.laplace(clusters, scale), 1.0)
        sums = member.T @ rows + lesson.laplace((clusters, features), scale)
        centres = np.clip(sums / sizes[:, None], -half, half)
    return centres + ground.centre, sizes, turns


def _nearest(rows: Floats, centres: Floats) -> Integers:
    return np.asarray(((centres**2).sum(axis=1) - 2 * (rows @ centres.T)).argmin(axis=1))
