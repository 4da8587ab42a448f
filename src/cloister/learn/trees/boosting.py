"""Private interpretable boosting for classes: one shape per feature (the rounds are in learn/trees/additive.py)."""

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from cloister.learn.base.binned_estimator import BinnedEstimator, BinnedRows
from cloister.learn.base.frame import Floats
from cloister.learn.linear_model.loss_gradients import Logistic, Softmax, sigmoid
from cloister.learn.trees.additive import Additive, Task, boost
from cloister.learn.trees.shapes import Shape, chart, read_shapes
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss

__all__ = ["Boosting", "GradientBoostingClassifier"]

_CLIP = 0.6  # of a binary residual


class Boosting(BinnedEstimator):
    """Base class of the boosting estimators."""

    rounds: int | None
    shapes_: dict[str | int, Shape]
    _usual_bins = 32

    def _keep(self, rows: Any, data: BinnedRows, model: Additive) -> None:
        self._model = model
        self.shapes_ = read_shapes(model)
        self.intercept_, self.n_iter_ = model.intercept, model.rounds
        self.feature_importances_ = np.array([shape.importance for shape in self.shapes_.values()])
        self._keep_names(rows, data)

    def _margins(self, rows: Any) -> Floats:
        cells = self._cells(rows)
        return self._model.margins(cells)

    def _check_fitted(self) -> None:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "shapes_")


class GradientBoostingClassifier(ClassifierMixin, Boosting):  # type: ignore[misc]
    """Private gradient boosting classifier with one shape per feature.

    Args:
        spend: privacy budget of the fit: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`, for which
            noise is larger.
        bounds: public (low, high) of all numbers, (lows, highs), or a dict from feature to (low, high).
        bins: number of cells between them; or a dict from feature to that, or to public cuts.
        categories: a dict from feature to its public categories; others share one cell.
        classes: the public list of labels; rows with other labels are left out.
        rounds: number of times residuals are summed; None for at most 40 (8 for a pure spend), fewer where the noise is
            large for the released number of rows.
        fill: replaces a missing number; without it the row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        shapes_: the shape of each feature, by name; `shape_chart(feature)` draws it. intercept_, n_iter_.
        feature_importances_: the mean absolute value of each shape over (noisily counted) rows.
        classes_, n_features_in_, feature_names_in_: as in scikit-learn.
        release_, loss_: the release with its receipt, and the loss charged.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset). Bounds, bins, categories, classes
        and all parameters are public; the number of rows is not. The noise is discrete Gaussian (discrete Laplace for a
        pure spend) on sums of integers. Shapes, charts and importances are post-processing. Audited in
        tests/statistical/test_learn_trees_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        bounds: Any = None,
        bins: int | Mapping[Any, Any] = 32,
        categories: Mapping[Any, Sequence[Any]] | None = None,
        classes: Sequence[Any] | None = None,
        rounds: int | None = None,
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
        self.rounds = rounds
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
        data = self._rows(X, y, self.classes, target=target, features=features, table=table)
        assert data.classes is not None
        task = _classes_task(len(data.classes))
        model = self._grow_on(data, lambda meter, budget: boost(meter, budget, data, task, self.rounds, Fraction(1)))
        self.classes_ = data.classes
        self._keep(X, data, model)
        return self

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Return the margin for `classes_[1]`; with more than two classes, one for each."""
        margins = self._margins(X)
        return np.asarray(margins[:, 0] if margins.shape[1] == 1 else margins)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Predict the class of each row."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class.

        With clipped residuals a margin f balances p min(1 - s, c) = (1 - p) min(s, c), where s is the sigmoid of f and
        c the limit; p is the solution.
        """
        scores = self.decision_function(X)
        if scores.ndim > 1:
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            return np.asarray(weights / weights.sum(axis=1, keepdims=True))
        right, left = np.minimum(sigmoid(scores), _CLIP), np.minimum(sigmoid(-scores), _CLIP)
        return np.asarray(np.column_stack([left, right]) / (left + right)[:, None])

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the logarithm of each probability."""
        return np.asarray(np.log(np.maximum(self.predict_proba(X), 1e-300)))

    def shape_chart(self, feature: Any) -> Any:
        """Return an Altair chart of one feature's contribution to the log-odds."""
        self._check_fitted()
        outputs = ["margin"] if len(self.classes_) == 2 else [str(label) for label in self.classes_]
        return chart(self.shapes_, feature, outputs, "added to the log-odds")


def _classes_task(classes: int) -> Task:
    outputs = 1 if classes == 2 else classes
    residual = Logistic() if classes == 2 else Softmax(classes)
    return Task(
        residuals=lambda margins, labels: -residual(margins, labels.astype(np.int64)),
        outputs=outputs,
        clip=_CLIP if classes == 2 else 1.0,
        curvature=0.12,  # average of p (1 - p) for margins of a few units
        scatter=1.0,
        spread=0.7,
        start=np.zeros(outputs),
        patience=(50.0, 1.0),
    )
