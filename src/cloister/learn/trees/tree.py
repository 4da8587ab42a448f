"""Private decision tree with readable rules (learn/trees/tree_growth.py grows it)."""

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from cloister.learn.base.binned_estimator import BinnedEstimator, BinnedRows
from cloister.learn.trees.tree_growth import Tree, grow
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss

__all__ = ["DecisionTreeClassifier", "TreeClassifier"]


class TreeClassifier(ClassifierMixin, BinnedEstimator):  # type: ignore[misc]
    """Classifier that predicts from the class shares of leaves."""

    classes: Sequence[Any] | None
    max_depth: int
    classes_: NDArray[Any] | None

    def _prepare(
        self, rows: Any, labels: Any, target: str | None, features: Sequence[str] | None, table: str | None
    ) -> BinnedRows:
        return self._rows(rows, labels, self.classes, target=target, features=features, table=table)

    @abstractmethod
    def _trees(self) -> Sequence[Tree]:
        """Return the released trees."""

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each class: the shares of the row's leaf, averaged over the trees."""
        cells = self._cells(X)
        trees = self._trees()
        return np.asarray(sum(tree.shares[tree.leaves(cells)] for tree in trees) / len(trees))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Predict the class of each row."""
        shares = self.predict_proba(X)
        return np.asarray(np.asarray(self.classes_)[shares.argmax(axis=1)])

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the logarithm of each probability."""
        return np.asarray(np.log(self.predict_proba(X)))


class DecisionTreeClassifier(TreeClassifier):
    """Private decision tree classifier with readable rules.

    Args:
        spend: privacy budget of the fit: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`.
        bounds: public (low, high) of all numbers, (lows, highs), or a dict from feature to (low, high).
        bins: number of cells between them; or a dict from feature to that, or to public cuts.
        categories: a dict from feature to its public categories; others share one cell.
        classes: the public list of labels; rows with other labels are left out.
        max_depth: number of splits on the path to a leaf.
        fill: replaces a missing number; without it the row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        tree_: the released tree; `tree_.rules()` describes it in words.
        classes_, n_features_in_, feature_names_in_: as in scikit-learn.
        release_, loss_: the release with its receipt, and the loss charged.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset). Bounds, bins, categories, classes
        and all parameters are public; the number of rows is not. Splits are exponential (for a pure spend
        permute-and-flip) choices over integer scores, counts have discrete Gaussian (Laplace) noise. Audited in
        tests/statistical/test_learn_trees_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
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
        """Fit to rows, or to those of a Cloister dataset.

        Args:
            X: an array or frame, or a dataset, whose rows are read into this process (learn/base/row_source.py).
            y: labels; None for a dataset.
            target, features, table: for a dataset: the column to predict (its public values are the classes), the
                columns to predict from (all others unless given), and the table if there are several. Bounds and
                categories come from the schema.

        Privacy: the spend, charged before a row is read.
        """
        data = self._prepare(X, y, target, features, table)
        self.tree_ = self._grow_on(data, lambda meter, budget: grow(meter, budget, data, self.max_depth, Fraction(1)))
        self.classes_ = data.classes
        self._keep_names(X, data)
        return self

    def _trees(self) -> Sequence[Tree]:
        return [self.tree_]
