"""Private linear support vector classifier."""

import os
from collections.abc import Sequence
from typing import Any, Self

from cloister.learn.base.inputs import check_method
from cloister.learn.linear_model.classifier import LinearClassifier, LinearModel, PrivateRows
from cloister.learn.linear_model.gradient_descent import descend
from cloister.learn.linear_model.loss_gradients import Hinge
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss

__all__ = ["LinearSVC"]


class LinearSVC(LinearClassifier):
    """Private linear classifier with a smoothed hinge loss; one against the rest for more than two classes.

    Fitted by noisy gradient descent. The model holds only coefficients, no training rows as support vectors.

    Args:
        spend: privacy budget of the fit: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`.
        bounds: public (low, high) of all features, or (lows, highs), or "find", which takes a tenth of the spend.
        data_norm: alternatively, the public norm that rows are clipped to (bounds then only clip).
        classes: the public list of labels; rows with other labels are left out.
        method: "gradient", the only one.
        rows: number of rows, if it is public; otherwise it is released for a part of the spend.
        fill: replaces a missing number; without it the row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        coef_, intercept_, classes_, n_iter_: as in scikit-learn.
        release_, loss_: the release with its receipt, and the loss charged.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset). Bounds, classes and the number of
        features are public. The noise is discrete Gaussian (discrete Laplace for a pure spend) on integer gradients;
        see learn/linear_model/gradient_descent.py. Audited in tests/statistical/test_learn_logistic_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        bounds: Any = None,
        data_norm: float | None = None,
        classes: Sequence[Any] | None = None,
        method: str = "gradient",
        rows: int | None = None,
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.bounds = bounds
        self.data_norm = data_norm
        self.classes = classes
        self.method = method
        self.rows = rows
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
                columns to predict from (all others unless given), and the table if there are several.

        Privacy: the spend, charged before a row is read.
        """
        check_method(self, "gradient")
        data = self._rows(X, y, target=target, features=features, table=table)
        loss = Hinge(1 if len(data.classes) == 2 else len(data.classes))

        def learn(meter: PrivacyFilter, budget: BudgetShare, rows: PrivateRows) -> LinearModel:
            return LinearModel.of(descend(meter, budget, rows.frame, loss, rows.look, rows=self.rows), rows.frame)

        self._fit(data, learn)
        return self
