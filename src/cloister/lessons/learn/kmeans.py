"""K-means by DPLloyd, for teaching; not private (Blum, Dwork, McSherry & Nissim 2005; Su et al. 2016).

In a fixed number of rounds, each releases a noisy number of rows and their noisy sum for every cluster. Corrections:
number and sum are released about the same row, so their sensitivities add, r_1 + … + r_d + 1 in L1 for features within
[-r_j, r_j], and every round has its part of epsilon. Initial centres are public: k-means++ would read rows, and the
best of many starts would be chosen by them. Clusters of training rows are not released.

Falls to: `attack.mechanisms.floating.guess`: noise in floats shows what it was added to in its last bits (AT-17).
"""

import math
from typing import Any, ClassVar, Self

import numpy as np

from cloister.learn.base.frame import Floats
from cloister.learn.base.inputs import Box, complete, keep_features, read_table
from cloister.learn.base.integer_rows import Integers
from cloister.learn.cluster.enclosing_ball import Ground, read_ground
from cloister.learn.cluster.kmeans import KMeans as PrivateKMeans
from cloister.lessons.learn.method import TextbookFit, TextbookModel
from cloister.privacy.loss import Loss

__all__ = ["KMeans", "lloyd"]

ROUNDS = 5


class KMeans(TextbookModel, PrivateKMeans):
    """K-means clustering by DPLloyd.

    Args:
        method: "lloyd"; needs a `random_state`, and neither ledger nor account.
        spend, n_clusters, bounds, data_norm, max_iter, fill, random_state: see `cloister.learn.KMeans`.

    `center_errors_` and `size_error_` are None.

    Privacy: none; see `TextbookModel`.
    """

    methods: ClassVar = ("lloyd",)

    def fit(self, X: Any, y: Any = None, **columns: Any) -> Self:  # noqa: N803
        """Fit to rows as arrays or frames; `y` is not used.

        Privacy: none; see `TextbookModel`.
        """
        self._check_rows(X)
        inputs = read_table(X, self.fill)

        def learn(lesson: TextbookFit) -> tuple[tuple[tuple[Floats, Floats, int], Box], Loss]:
            ground = read_ground(self.bounds, self.data_norm, inputs.width)
            (rows,) = complete(inputs.numbers())
            return (lloyd(rows, ground, self.n_clusters, self.max_iter, lesson), ground.ends), lesson.loss

        (self.cluster_centers_, self.cluster_sizes_, self.n_iter_), self._box = self._teach(learn)
        self.center_errors_, self.size_error_ = None, None
        keep_features(self, inputs.width, inputs.names)
        return self


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
        nearest = _nearest(rows, centres)
        member = (nearest[:, None] == np.arange(clusters)).astype(np.float64)
        sizes = np.maximum(member.sum(axis=0) + lesson.laplace(clusters, scale), 1.0)
        sums = member.T @ rows + lesson.laplace((clusters, features), scale)
        centres = np.clip(sums / sizes[:, None], -half, half)
    return centres + ground.centre, sizes, turns


def _nearest(rows: Floats, centres: Floats) -> Integers:
    return np.asarray(((centres**2).sum(axis=1) - 2 * (rows @ centres.T)).argmin(axis=1))
