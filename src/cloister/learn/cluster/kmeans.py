"""Private k-means (its rounds are in learn/cluster/lloyd.py)."""

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin

from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.frame import Floats, find_box
from cloister.learn.base.inputs import (
    Box,
    check_method,
    complete_rows,
    read_answers,
    wants_bounds,
)
from cloister.learn.base.integer_rows import Integers, distances
from cloister.learn.base.row_source import keep_input, read_input
from cloister.learn.cluster.enclosing_ball import read_ground
from cloister.learn.cluster.lloyd import cluster
from cloister.privacy.errors import NotPrivate
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss

__all__ = ["KMeans"]

_FINDING = Fraction(1, 10)
# Centres, sizes and rounds; standard errors of centres and sizes; ranges of the features.
_Clusters = tuple[tuple[Floats, Floats, int], tuple[Floats | None, float | None], Box]


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, PrivateEstimator):  # type: ignore[misc]
    """Private k-means clustering.

    Args:
        spend: privacy budget of the fit: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`.
        n_clusters: number of clusters.
        bounds: public (low, high) of all features, or (lows, highs), or "find", which takes a tenth of the spend. They
            may be wide: a ball is found inside. They clip rows and centres, and scale nothing: as in scikit-learn,
            distances are those of the rows, and every feature of a centre has the same noise. If one feature is far
            wider than another, scale both by public bounds first (`learn.MinMaxScaler`), or noise hides the narrow one.
        data_norm: alternatively, the public norm that rows are clipped to.
        method: "joint", the only one (learn/cluster/lloyd.py).
        max_iter: number of rounds; None for as many (3 to 20) as the noise leaves useful.
        fill: replaces a missing number; without it the row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        cluster_centers_: the centres, within the bounds. cluster_sizes_: approximate number of rows of each cluster.
            n_iter_: number of rounds.
        center_errors_: for each centre, the standard error of each feature due to noise, before clipping to the
            bounds. size_error_: the standard error of a size.
        n_features_in_, feature_names_in_: as in scikit-learn.
        release_, loss_: the release with its receipt, and the loss charged.

    There is no `labels_` and no `inertia_`: the cluster of a training row is private.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset). Bounds and all parameters are
        public; the number of rows is not. The noise is discrete Gaussian (discrete Laplace for a pure spend) on
        integers; initial centres come from public randomness. Audited in tests/statistical/test_learn_trees_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        n_clusters: int = 8,
        bounds: Any = None,
        data_norm: float | None = None,
        method: str = "joint",
        max_iter: int | None = None,
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.n_clusters = n_clusters
        self.bounds = bounds
        self.data_norm = data_norm
        self.method = method
        self.max_iter = max_iter
        self.fill = fill
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Fit to rows, or to those of a Cloister dataset; `y` is ignored.

        Args:
            X: an array or frame, or a dataset, whose rows are read into this process (learn/base/row_source.py).
            y: not used.
            features, table: for a dataset: the columns to use (all unless given; those with categories become
                indicators), and the table if there are several. Bounds come from the schema.

        Privacy: the spend, charged before a row is read.
        """
        check_method(self, "joint")
        source = read_input(X, features=features, table=table, fill=self.fill, find=wants_bounds(self.bounds))
        steps = self._steps(source.numbers, source.width, source.bounds(self.bounds, self.data_norm))
        fitted = self._train_rows(steps, source)
        (self.cluster_centers_, self.cluster_sizes_, self.n_iter_), errors, self._box = fitted
        self.center_errors_, self.size_error_ = errors
        keep_input(self, source)
        return self

    def _steps(
        self, look: Callable[[], Floats], features: int, bounds: Any
    ) -> Callable[[PrivacyFilter, BudgetShare], _Clusters]:
        public = None if wants_bounds(bounds) else read_ground(bounds, self.data_norm, features)
        look = complete_rows(look)

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> _Clusters:
            ground = public
            if ground is None:
                box = find_box(meter, look, features, budget.part(_FINDING))
                ground = read_ground((box.low, box.high), self.data_norm, features)
                budget = BudgetShare(budget.part(1 - _FINDING))
            clustering = cluster(meter, budget, ground, look, self.n_clusters, self.max_iter)
            centres = ground.ends.clip(clustering.centres * ground.step + ground.centre)  # noise may leave the bounds
            return (
                (centres, clustering.counts, clustering.rounds),
                (clustering.blur * ground.step, clustering.miscount),
                ground.ends,
            )

        return steps

    def predict(self, X: Any) -> Integers:  # noqa: N803
        """Return the index of each row's nearest centre."""
        table = read_answers(self, X, self.fill).numbers()
        return np.asarray(distances(self._box.settle(table), self.cluster_centers_).argmin(axis=1))

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Return the distance of each row from each centre."""
        return distances(read_answers(self, X, self.fill).numbers(), self.cluster_centers_)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return minus the sum of squared distances of rows that you may see: the score is not private."""
        return -float((self.transform(X).min(axis=1) ** 2).sum())

    def fit_predict(self, X: Any, y: Any = None, **_: Any) -> NDArray[Any]:  # noqa: N803
        """Refuse: clusters of training rows are not private."""
        raise NotPrivate("the cluster of a training row is that row's secret. Use fit, then predict rows you may see.")
