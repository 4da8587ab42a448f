"""Private neural network classifier."""

import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from cloister.learn.deep.networks import Floats, NetworkEstimator
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss

__all__ = ["NeuralNetworkClassifier"]


class NeuralNetworkClassifier(ClassifierMixin, NetworkEstimator):  # type: ignore[misc]
    """Private neural network for classes, trained by DP-SGD.

    Rows of a table go through dense layers with tanh; images through a public scattering transform and one linear layer
    (learn/deep/scattering.py), unless told otherwise. All settings but spend, bounds and classes have defaults, which
    follow from public facts. Clipping shortens the gradients of rows that are classified wrongly: scores rank rows, but
    with hidden layers the probability of a rare class is too low.

    Args:
        spend: privacy budget of the fit: `epsilon(1, delta="1e-6")`, for which sampling of lots counts; or
            `rho("0.1")`, for which it does not, and every step reads all rows. A pure epsilon is refused.
        bounds: public (low, high) of all features or pixels, or (lows, highs).
        classes: the public list of labels; rows with other labels are left out.
        hidden_layer_sizes: sizes of the hidden layers, as in MLPClassifier; none (a linear model) unless given, and 32
            for pixels.
        image_shape: (height, width) if rows are flat images; an array (images, height, width) needs none.
        image_features: "scattering", or "pixels".
        batch_size: the expected lot; needs rows. An eighth of the rows unless given.
        max_iter: passes over the rows.
        learning_rate_init: the step size.
        clip: the norm to which each example's gradient is clipped.
        rows: number of rows, if it is public; otherwise it is released for a part of the spend.
        fill: replaces a missing number; without it the row is left out.
        progress: True for a bar in the terminal.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        coefs_, intercepts_, classes_, n_layers_, n_outputs_: as in MLPClassifier.
        n_iter_: steps of the optimiser.
        expected_accuracy_: accuracy on public rows, by `expect_accuracy`; None before.
        release_, loss_: the release with its receipt, and the loss charged.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset, whose rows are clipped as one).
        Bounds, classes, shapes and all parameters are public. The noise is discrete Gaussian on integer sums
        (learn/deep/dense.py, clipping.py); the loss is that of a fixed number of sampled steps, by privacy loss
        distributions. Audited in tests/statistical/test_deep_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        bounds: Any = None,
        classes: Sequence[Any] | None = None,
        hidden_layer_sizes: Any = None,
        image_shape: Any = None,
        image_features: str = "scattering",
        batch_size: int | None = None,
        max_iter: int | None = None,
        learning_rate_init: float | None = None,
        clip: float | None = None,
        rows: int | None = None,
        fill: float | None = None,
        progress: bool = False,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.bounds = bounds
        self.classes = classes
        self.hidden_layer_sizes = hidden_layer_sizes
        self.image_shape = image_shape
        self.image_features = image_features
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate_init = learning_rate_init
        self.clip = clip
        self.rows = rows
        self.fill = fill
        self.progress = progress
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
            X: an array or frame, an array of images (images, height, width), or a dataset, whose rows are read in lots.
            y: labels; None for a dataset.
            target, features, table: for a dataset: the column to predict (its public values are the classes), the
                columns to predict from (all others unless given), and the table if there are several.

        Privacy: the spend, charged before a row is read.
        """
        given = self._input(X, y, "classes", (0.0, 1.0), target=target, features=features, table=table)
        self._fit(given)
        self.classes_ = np.asarray(given.classes)
        self.expected_accuracy_: float | None = None
        return self

    def expect_accuracy(self, rows: Any, labels: Any) -> float:
        """Return the accuracy on public rows that resemble the private ones, and keep it as `expected_accuracy_`.

        Privacy: none of the spend: the rows must be public, and the model is released.
        """
        accuracy = float(self.score(rows, labels))
        self.expected_accuracy_ = accuracy
        return accuracy

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Return one score for each class; for two classes, the score of `classes_[1]`."""
        outputs = self._outputs(X)
        return np.asarray(outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Predict the class of each row."""
        places = self._outputs(X).argmax(axis=1)
        return np.asarray(self.classes_[places])

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class."""
        outputs = self._outputs(X)
        weights = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the logarithm of each probability."""
        return np.asarray(np.log(np.maximum(self.predict_proba(X), 1e-300)))
