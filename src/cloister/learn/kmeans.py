"""Private k-means (its rounds are in learn/lloyd.py)."""

import os
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin, TransformerMixin

from cloister.learn.ball import read_ground
from cloister.learn.bins import feature_names
from cloister.learn.estimator import PrivateEstimator
from cloister.learn.exact import Integers
from cloister.learn.frame import Floats
from cloister.learn.inputs import is_dataset, read_rows
from cloister.learn.lloyd import cluster
from cloister.privacy.errors import BadInput, NotPrivate
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss

__all__ = ["KMeans"]


class KMeans(TransformerMixin, ClusterMixin, PrivateEstimator):  # type: ignore[misc]
    """k-means.

    Args:
        spend: what the fit may cost: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`.
        n_clusters: how many.
        bounds: public (low, high) of all features, or (lows, highs). They may be wide: a ball is found inside.
        data_norm: or the public length that rows are shortened to.
        max_iter: rounds; None for as many (3 to 20) as the noise leaves useful.
        fill: what stands for NaN; without it NaN is refused.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        cluster_centers_: the centres. cluster_sizes_: about how many rows each has. n_iter_: the rounds.
        n_features_in_, feature_names_in_: as in scikit-learn.
        release_, loss_: the receipt and what was paid.

    There is no `labels_` and no `inertia_`: which cluster a training row is in is that row's secret.

    Privacy: the spend, for one row added or removed. Bounds and all parameters are public; the number of rows is not.
        The noise is discrete Gaussian (discrete Laplace for a pure spend) on integers; initial centres are public
        chance. Audited in tests/statistical/test_learn_trees_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        n_clusters: int = 8,
        bounds: Any = None,
        data_norm: float | None = None,
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
        self.max_iter = max_iter
        self.fill = fill
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Learn from rows; `y` is not looked at.

        Privacy: charges the spend before it reads a row.
        """
        if is_dataset(X):
            raise BadInput(
                "KMeans needs rows as arrays or frames, and rows never leave an engine. Naive Bayes, linear "
                "regression, PCA and logistic regression train inside one."
            )
        for name, value in (("n_clusters", self.n_clusters), ("max_iter", self.max_iter)):
            if value is None and name == "max_iter":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
                raise BadInput(f"{name} is a whole number from 1 to 10000.")
        names, table = feature_names(X), read_rows(X, self.fill)
        ground = read_ground(self.bounds, self.data_norm, table.shape[1])
        found = self._train(lambda meter, budget: cluster(meter, budget, ground, table, self.n_clusters, self.max_iter))
        self.cluster_centers_ = found.centres * ground.step + ground.centre
        self.cluster_sizes_, self.n_iter_ = found.counts, found.rounds
        self.n_features_in_ = table.shape[1]
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def predict(self, rows: Any) -> Integers:
        """The nearest centre of each row."""
        return np.asarray(self.transform(rows).argmin(axis=1))

    def transform(self, rows: Any) -> Floats:
        """The distance of each row from each centre."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "cluster_centers_")
        table = read_rows(rows, self.fill)
        if table.shape[1] != self.n_features_in_:
            raise BadInput(
                f"X has {table.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        from sklearn.metrics.pairwise import euclidean_distances

        return np.asarray(euclidean_distances(table, self.cluster_centers_))

    def score(self, rows: Any, y: Any = None) -> float:
        """Minus the sum of squared distances of these rows, which must be rows that you may see."""
        return -float((self.transform(rows).min(axis=1) ** 2).sum())

    def fit_predict(self, X: Any, y: Any = None, **_: Any) -> NDArray[Any]:  # noqa: N803
        """Refused: clusters of training rows are not private."""
        raise NotPrivate("the cluster of a training row is that row's secret. Use fit, then predict rows you may see.")
