"""Corrected textbook k-means, for teaching: DPLloyd (Blum, Dwork, McSherry & Nissim 2005; Su et al. 2016).

In a fixed number of rounds, each releases a noisy number of rows and their noisy sum for every cluster. Corrections:
number and sum are released about the same row, so their sensitivities add, r_1 + … + r_d + 1 in L1 for features within
[-r_j, r_j], and every round has its part of epsilon. Initial centres are public: k-means++ would read rows, and the
best of many starts would be chosen by them. Clusters of training rows are not released.
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
    """Return centres, sizes and the number of rounds.

    Args:
        table: the rows.
        ground: their public grid.
        clusters: number of clusters.
        rounds: number of rounds; 5 unless given.
        lesson: the nominal budget and the noise source.
    """
    turns, rows = rounds or ROUNDS, ground.cells(table) * ground.step
    features, longest = rows.shape[1], ground.step * 2**ground.bits
    half = np.full(features, longest) if ground.box is None else (ground.box.high - ground.box.low) / 2
    # A ball of radius r has L1 radius sqrt(features) r, less than the box around it.
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
