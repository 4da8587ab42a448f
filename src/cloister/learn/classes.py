"""What naive Bayes models share: classes, and answers from log-probabilities."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from cloister.learn.calibration import Curve
from cloister.learn.estimator import PrivateEstimator
from cloister.learn.inputs import codes
from cloister.learn.relation import Relation, is_number, values_of
from cloister.privacy.errors import BadInput, BadSchema

__all__ = ["BayesClassifier", "classes_of", "read_labels"]

Floats = NDArray[np.float64]


class BayesClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier whose answers come from joint log-probabilities and, for two classes, a calibrating curve."""

    classes_: NDArray[Any]
    curve_: Curve

    def _joint(self, rows: Any) -> Floats:
        """ln P(class, row) for each row and class, up to a constant of the row."""
        raise NotImplementedError

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """The logarithm of the probability of each class."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "classes_")
        joint = self._joint(X)
        if joint.shape[1] == 2:
            odds = self.curve_(joint[:, 1] - joint[:, 0])
            return np.column_stack([-np.logaddexp(0, odds), -np.logaddexp(0, -odds)])
        return np.asarray(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """The probability of each class."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likeliest class of each row."""
        best = self.predict_log_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])


def read_labels(y: Any, classes: NDArray[Any], length: int) -> NDArray[Any]:
    """A column of labels as long as the rows; checked by type and shape alone."""
    if y is None:
        raise BadInput("y is one column of labels, as long as X; requires y to be passed, but the target y is None.")
    from sklearn.utils.validation import column_or_1d

    given = np.asarray(y)
    if given.ndim > 2 or (given.ndim == 2 and given.shape[1] != 1) or len(given) != length:
        raise BadInput("y is one column of labels, as long as X.")
    given = np.asarray(column_or_1d(given, warn=True))
    codes(given[:0], list(classes))
    return given


def classes_of(relation: Relation, target: str, classes: Sequence[Any] | None) -> NDArray[Any]:
    """The public values of a target, or those of them that were named."""
    column = relation.columns[target]
    if is_number(column):
        raise BadSchema(f"{target} has no public values. Give it categories in the schema.")
    listed = [one for one in values_of(column) if classes is None or one in set(classes)]
    if len(listed) < 2:
        raise BadSchema("a target has at least two public values.")
    return np.asarray(sorted(listed))
