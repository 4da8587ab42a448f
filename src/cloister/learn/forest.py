"""A private random forest: trees that share the spend, each split choosing from some of the features.

Trees could also get disjoint rows and the whole spend each. By arithmetic sharing wins: with k trees,
Gaussian noise grows by sqrt(k) if they share, rows shrink by k if they divide (with Laplace noise the two are alike,
but each tree then still learns from fewer rows).
"""

import math
import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Self

from cloister.learn.binned import BinnedRows
from cloister.learn.growth import Tree, grow
from cloister.learn.purse import Purse
from cloister.learn.random_trees import grow_at_random
from cloister.learn.tree import TreeClassifier
from cloister.privacy.errors import BadInput
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.meter import Meter

__all__ = ["RandomForestClassifier"]


class RandomForestClassifier(TreeClassifier):
    """The mean of several trees.

    Args:
        spend: what the fit may cost: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`.
        n_estimators: how many trees share it.
        method: "greedy" (the default; learn/growth.py), or "random": the textbook's forest of random trees over
            disjoint rows (learn/random_trees.py), exact too.
        max_features: the share of features that a split may choose from, drawn anew for each.
        bounds, bins, categories, classes, max_depth, fill: as in `DecisionTreeClassifier`.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        estimators_: the released trees.
        classes_, n_features_in_, feature_names_in_: as in scikit-learn.
        release_, loss_: the receipt and what was paid.

    Privacy: the spend, for one row added or removed; a tree costs its share of it. Which features a split may use is
        public chance. Otherwise as `DecisionTreeClassifier`; audited in tests/statistical/test_learn_trees_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        n_estimators: int = 10,
        method: str = "greedy",
        max_features: float = 0.4,
        bounds: Any = None,
        bins: int | Mapping[Any, Any] = 16,
        categories: Mapping[Any, Sequence[Any]] | None = None,
        classes: Sequence[Any] | None = None,
        max_depth: int = 6,
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.n_estimators = n_estimators
        self.method = method
        self.max_features = max_features
        self.bounds = bounds
        self.bins = bins
        self.categories = categories
        self.classes = classes
        self.max_depth = max_depth
        self.fill = fill
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Learn from rows, or from those of a Cloister dataset.

        Args:
            X: an array or frame, or a dataset, whose rows are read into this process (learn/fetched.py).
            y: labels; None for a dataset.
            target, features, table: of a dataset: the column to predict (its public values are the classes), the
                columns to predict from (all others unless given), and the table if there are several. Bounds and
                categories come from the schema.

        Privacy: charges the spend before it reads a row.
        """
        if self.method not in ("greedy", "random"):
            raise BadInput("method is one of greedy, random.")
        count = self.n_estimators
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1000:
            raise BadInput("n_estimators is a whole number from 1 to 1000.")
        if not isinstance(self.max_features, int | float) or not 0 < self.max_features <= 1:
            raise BadInput("max_features is a share of the features: above 0, at most 1.")
        data = self._prepare(X, y, target, features, table)
        self.estimators_ = self._grow_on(data, lambda meter, budget: self._grow(meter, budget, data))
        self.classes_ = data.classes
        self._keep_names(X, data)
        return self

    def _grow(self, meter: Meter, budget: Purse, data: BinnedRows) -> list[Tree]:
        if self.method == "random":
            return grow_at_random(meter, budget, data, self.max_depth, self.n_estimators)
        some = math.ceil(self.max_features * len(data.axes))
        share = Fraction(1, self.n_estimators)
        return [grow(meter, budget, data, self.max_depth, share, some) for _ in range(self.n_estimators)]

    def _trees(self) -> Sequence[Tree]:
        return self.estimators_
