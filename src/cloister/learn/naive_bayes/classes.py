"""Base class of naive Bayes classifiers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.naive_bayes.calibration import CalibrationCurve

__all__ = ["BayesClassifier"]

Floats = NDArray[np.float64]


class BayesClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Classifier that predicts from joint log-probabilities and, for two classes, a calibration curve."""

    classes_: NDArray[Any]
    curve_: CalibrationCurve

    def _joint(self, rows: Any) -> Floats:
        """Return ln P(class, row) for each row and class, up to a constant per row."""
        raise NotImplementedError

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the logarithm of the probability of each class."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "classes_")
        joint = self._joint(X)
        if joint.shape[1] == 2:
            odds = self.curve_(joint[:, 1] - joint[:, 0])
            return np.column_stack([-np.logaddexp(0, odds), -np.logaddexp(0, -odds)])
        return np.asarray(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Predict the most likely class of each row."""
        best = self.predict_log_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])
