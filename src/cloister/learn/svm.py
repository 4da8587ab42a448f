"""A private linear support vector classifier."""

import os
from collections.abc import Sequence
from typing import Any, Self

from cloister.learn.descent import descend
from cloister.learn.inputs import is_dataset
from cloister.learn.linear_classifier import LinearClassifier, LinearModel
from cloister.learn.purse import Purse
from cloister.learn.residuals import Hinge
from cloister.privacy.errors import BadInput
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.meter import Meter

__all__ = ["LinearSVC"]


class LinearSVC(LinearClassifier):
    """Hinge loss with a rounded corner, by noisy gradient descent. More than two classes: one against the rest.

    An ordinary support vector machine carries training rows about; this model is its coefficients only.

    Args:
        spend: what the fit may cost: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`.
        bounds: public (low, high) of all features, or (lows, highs); or
        data_norm: the public length that rows are shortened to (bounds then only clip).
        classes: the public list of labels; rows with other labels are left out.
        rows: how many rows there are, if that is public; else it is released for a part of the spend.
        fill: what stands for NaN; without it NaN is refused.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        coef_, intercept_, classes_, n_iter_: as in scikit-learn.
        release_, loss_: the receipt and what was paid.

    Privacy: the spend, for one row added or removed. Bounds, classes and the number of features are public. The noise
        is discrete Gaussian (discrete Laplace for a pure spend) on integer gradients; see learn/descent.py.
        Audited in tests/statistical/test_learn_logistic_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        bounds: Any = None,
        data_norm: float | None = None,
        classes: Sequence[Any] | None = None,
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
        self.rows = rows
        self.fill = fill
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Learn from rows.

        Privacy: charges the spend before it reads a row.
        """
        if is_dataset(X):
            raise BadInput("LinearSVC needs rows as arrays or frames. LogisticRegression is fitted inside an engine.")
        data = self._rows(X, y)
        loss = Hinge(1 if len(data.classes) == 2 else len(data.classes))

        def steps(meter: Meter, budget: Purse) -> LinearModel:
            return LinearModel.of(descend(meter, budget, data.frame, loss, data.look, rows=self.rows), data.frame)

        self._keep(self._train(steps), data.classes)
        return self
