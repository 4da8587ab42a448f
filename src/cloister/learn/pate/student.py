"""The student: what is released. It learns from public rows and noisy labels, so it costs nothing more."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.frame import Floats
from cloister.learn.base.integer_rows import Integers
from cloister.privacy.errors import BadInput

__all__ = ["LinearStudent", "check_student", "learn_student", "probabilities"]

_SURE = 0.9  # probability from which a student's own label counts
_ROUNDS = 5
_NEVER = -1e6  # intercept of a class without a label


@dataclass(frozen=True, slots=True)
class LinearStudent:
    """Multinomial logistic regression on standardised features.

    Attributes:
        centre, scale: those of the public rows.
        weights: features × classes.
        intercepts: one for each class.
    """

    centre: Floats
    scale: Floats
    weights: Floats
    intercepts: Floats

    @classmethod
    def of(cls, line: Any, classes: int) -> "LinearStudent":
        """Return the released part of a fitted pipeline of scaler and logistic regression."""
        scaler, model = line.steps[0][1], line.steps[1][1]
        weights = np.zeros((len(scaler.scale_), classes))
        intercepts = np.full(classes, _NEVER)
        if len(model.classes_) == 2:
            weights[:, model.classes_[1]], intercepts[model.classes_] = model.coef_[0], [0.0, model.intercept_[0]]
        else:
            weights[:, model.classes_], intercepts[model.classes_] = model.coef_.T, model.intercept_
        return cls(scaler.mean_, scaler.scale_, weights, intercepts)

    @classmethod
    def constant(cls, features: int, classes: int, code: int) -> "LinearStudent":
        """Return the student that knows one class only."""
        intercepts = np.full(classes, _NEVER)
        intercepts[code] = 0.0
        return cls(np.zeros(features), np.ones(features), np.zeros((features, classes)), intercepts)

    def predict_proba(self, rows: Floats) -> Floats:
        """Return the probability of each class."""
        scores = (rows - self.centre) / self.scale @ self.weights + self.intercepts
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def predict(self, rows: Floats) -> Integers:
        """Return the class code of each row."""
        return np.asarray(self.predict_proba(rows).argmax(axis=1), dtype=np.int64)


def check_student(student: Any, *, pseudo_labels: bool) -> None:
    """Refuse a student that cannot label public rows by its own probabilities, if it should."""
    if pseudo_labels and student is not None and not hasattr(student, "predict_proba"):
        raise BadInput(
            f"pseudo_labels need a student with predict_proba, and a {type(student).__name__:.60} has none. Say "
            "pseudo_labels=False."
        )


def learn_student(
    student: Any, rows: Floats, positions: Integers, codes: Integers, classes: int, *, pseudo_labels: bool
) -> Any:
    """Return the fitted student.

    Args:
        student: an unfitted classifier; None for a `LinearStudent`.
        rows: the public pool.
        positions, codes: the labelled rows of it, and their released labels.
        classes: number of classes.
        pseudo_labels: True if rows without a label get the student's own, where it is sure (self-training).

    Privacy: no cost: post-processing of released labels and public rows.
    """
    from sklearn.base import clone
    from sklearn.semi_supervised import SelfTrainingClassifier

    if len(np.unique(codes)) < 2:
        return LinearStudent.constant(rows.shape[1], classes, int(codes[0]) if len(codes) else 0)
    model = _linear() if student is None else clone(student)
    if pseudo_labels and len(positions) < len(rows):
        labels = np.full(len(rows), -1, dtype=np.int64)
        labels[positions] = codes
        trained = SelfTrainingClassifier(model, threshold=_SURE, max_iter=_ROUNDS).fit(rows, labels).estimator_
    else:
        trained = model.fit(rows[positions], codes)
    return LinearStudent.of(trained, classes) if student is None else trained


def _linear() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def probabilities(student: Any, rows: Floats, classes: int) -> NDArray[np.float64]:
    """Return the probability of each class, 0 for a class that the student has never seen."""
    told = np.asarray(student.predict_proba(rows), dtype=np.float64)
    if isinstance(student, LinearStudent):
        return told
    whole = np.zeros((len(rows), classes))
    whole[:, np.asarray(student.classes_, dtype=np.int64)] = told
    return whole
