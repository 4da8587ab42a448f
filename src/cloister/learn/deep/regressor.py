"""Private neural network regressor."""

import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from cloister.learn.base.inputs import is_dataset, read_box
from cloister.learn.deep.networks import Floats, NetworkEstimator
from cloister.privacy.errors import BadBounds
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss

__all__ = ["NeuralNetworkRegressor"]


class NeuralNetworkRegressor(RegressorMixin, NetworkEstimator):  # type: ignore[misc]
    """Private neural network for numbers, trained by DP-SGD; half the squared error of the scaled target.

    Args:
        target_bounds: public (low, high) of the target; targets beyond are clipped.
        spend, bounds, hidden_layer_sizes, image_shape, image_features, batch_size, max_iter, learning_rate_init, clip,
            rows, fill, progress, ledger, account, random_state: as in `NeuralNetworkClassifier`.

    Attributes:
        coefs_, intercepts_, n_layers_, n_outputs_: as in MLPRegressor; the output is scaled to [-1, 1].
        n_iter_: steps of the optimiser.
        release_, loss_: the release with its receipt, and the loss charged.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset); as `NeuralNetworkClassifier`, and
        target_bounds are public.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        bounds: Any = None,
        target_bounds: tuple[float, float] | None = None,
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
        self.target_bounds = target_bounds
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
            y: numbers; None for a dataset.
            target, features, table: for a dataset: the column to predict, the columns to predict from (all others
                unless given), and the table if there are several. Bounds come from the schema.

        Privacy: the spend, charged before a row is read.
        """
        given = self._input(X, y, "number", self._ends(X), target=target, features=features, table=table)
        self._fit(given)
        self._target_ends = given.ends
        return self

    def _ends(self, rows: Any) -> tuple[float, float]:
        """Return the bounds of the target; those of a dataset are read from its schema."""
        if is_dataset(rows):
            return 0.0, 1.0
        if self.target_bounds is None:
            raise BadBounds("target_bounds are public and must be given: target_bounds=(0, 100).")
        box = read_box(self.target_bounds, 1)
        return float(box.low[0]), float(box.high[0])

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Predict the target of each row, within its bounds."""
        unit = (np.clip(self._outputs(X)[:, 0], -1.0, 1.0) + 1) / 2
        low, high = self._target_ends
        return np.asarray(low + (high - low) * unit)
