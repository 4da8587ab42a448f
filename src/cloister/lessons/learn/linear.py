"""Linear models by output, objective and input perturbation, for teaching; not private.

Falls to: `attack.mechanisms.floating.guess`: noise in floats shows what it was added to in its last bits (AT-17).
"""

import math
from typing import Any, ClassVar, Self

import numpy as np

from cloister.learn.base.cells import numbers_in
from cloister.learn.base.frame import Floats, Frame, read_frame
from cloister.learn.base.inputs import Box, complete, keep_features, read_goal, read_table
from cloister.learn.base.row_source import keep_input
from cloister.learn.linear_model.classifier import LinearModel, PrivateRows
from cloister.learn.linear_model.least_squares import trimmed
from cloister.learn.linear_model.logistic import LogisticRegression as PrivateLogisticRegression
from cloister.learn.linear_model.moments import Moments
from cloister.learn.linear_model.regression import LinearRegression as PrivateLinearRegression
from cloister.learn.linear_model.regression import Ridge as PrivateRidge
from cloister.learn.linear_model.regression_rows import Regression, read_ends
from cloister.learn.linear_model.svm import LinearSVC as PrivateLinearSVC
from cloister.lessons.learn.method import TextbookFit, TextbookModel, noisy_cells, noisy_codes, on_paper
from cloister.lessons.learn.perturbation import (
    Hinge,
    Logistic,
    Squares,
    from_unit,
    least,
    objective,
    output,
    unit_rows,
)
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.wishart import wishart

__all__ = ["LinearRegression", "LinearSVC", "LogisticRegression", "Ridge", "classify", "regress", "scaled_goal"]

_METHODS = ("output", "objective", "input")
_WAYS = {"output": output, "objective": objective}


class LogisticRegression(TextbookModel, PrivateLogisticRegression):
    """Logistic regression for two classes by a textbook method.

    Args:
        method: "output", "objective" or "input"; needs a `random_state`, and neither ledger nor account.
        spend, bounds, data_norm, classes, rows, fill, random_state: see `cloister.learn.LogisticRegression`.

    Privacy: none; see `TextbookModel`.
    """

    methods: ClassVar = _METHODS

    def fit(self, X: Any, y: Any = None, **columns: Any) -> Self:  # noqa: N803
        """Fit to rows as arrays or frames.

        Privacy: none; see `TextbookModel`.
        """
        self._check_rows(X)
        data = self._rows(X, y)
        model = self._teach(lambda lesson: classify(self.method, data, Logistic, lesson))
        self._keep(model, data.classes, data.frame)
        keep_input(self, data.source)
        self._finish(model)
        return self


class LinearSVC(TextbookModel, PrivateLinearSVC):
    """Linear support vector classifier for two classes by a textbook method.

    Args:
        method: "output", "objective" or "input"; needs a `random_state`, and neither ledger nor account.
        spend, bounds, data_norm, classes, rows, fill, random_state: see `cloister.learn.LinearSVC`.

    Privacy: none; see `TextbookModel`.
    """

    methods: ClassVar = _METHODS

    def fit(self, X: Any, y: Any = None, **columns: Any) -> Self:  # noqa: N803
        """Fit to rows as arrays or frames.

        Privacy: none; see `TextbookModel`.
        """
        self._check_rows(X)
        data = self._rows(X, y)
        model = self._teach(lambda lesson: classify(self.method, data, Hinge, lesson))
        self._keep(model, data.classes, data.frame)
        keep_input(self, data.source)
        return self


class LinearRegression(TextbookModel, PrivateLinearRegression):
    """Least squares regression by a textbook method.

    Args:
        method: "output", "objective" or "input"; needs a `random_state`, and neither ledger nor account.
        spend, bounds, data_norm, target_bounds, fill, random_state: see `cloister.learn.LinearRegression`.

    Privacy: none; see `TextbookModel`.
    """

    methods: ClassVar = _METHODS

    def fit(self, X: Any, y: Any = None, **columns: Any) -> Self:  # noqa: N803
        """Fit to rows as arrays or frames.

        Privacy: none; see `TextbookModel`.
        """
        if self.method == "wishart":
            wishart()
        self._check_rows(X)
        given_rows = read_table(X, self.fill)
        goal = read_goal(y, given_rows.length)
        frame, ends = read_frame(self.bounds, self.data_norm, given_rows.width), read_ends(self.target_bounds)

        def learn(lesson: TextbookFit) -> tuple[tuple[Regression, Box], Loss]:
            rows, targets = complete(given_rows.numbers(), numbers_in(goal))
            penalty, scaled = self._penalty(frame.scale), scaled_goal(targets, ends)
            (slopes, constant), loss = regress(self.method, frame.rows(rows), scaled, frame, penalty, lesson)
            height, middle = ends[1] - ends[0], (ends[0] + ends[1]) / 2
            model = Regression(slopes * height, constant * height + middle, None, math.nan, math.nan, ends)
            return (model, frame.ends), loss

        self._keep(*self._teach(learn))
        keep_features(self, given_rows.width, given_rows.names)
        return self


class Ridge(LinearRegression, PrivateRidge):
    """Least squares with a penalty alpha · |coefficients|², by a textbook method.

    Args:
        method: "output", "objective" or "input"; needs a `random_state`, and neither ledger nor account.
        spend, alpha, bounds, data_norm, target_bounds, fill, random_state: see `cloister.learn.Ridge`.

    Privacy: none; see `TextbookModel`.
    """


def classify(
    method: str, data: PrivateRows, risk: type[Logistic | Hinge], lesson: TextbookFit
) -> tuple[LinearModel, Loss]:
    """Return a classifier for two classes, and its nominal loss."""
    if len(data.classes) > 2:
        raise BadInput("the textbook's perturbations are for two classes. Use another method.")
    if method == "input":
        # Includes rows of no listed class: their number must not be revealed.
        numbers, code = complete(data.source.numbers(), data.source.labels())
        noisy, _ = noisy_cells(data.frame.rows(numbers), lesson.epsilon / 2, lesson)
        noisy_labels, _ = noisy_codes(code, 2, lesson.epsilon / 2, lesson)
        rows, labels = unit_rows(noisy, data.frame), np.where(noisy_labels == 1, 1.0, -1.0)
        size = rows.shape[1]
        weights = least(rows[noisy_labels < 2], risk(labels[noisy_labels < 2]), float(size), np.zeros(size))
        loss = on_paper(lesson)
    else:
        scaled, code = data.look()
        rows = unit_rows(scaled, data.frame)
        weights = _WAYS[method](rows, risk(np.where(code == 1, 1.0, -1.0)), lesson, np.zeros(rows.shape[1]))
        loss = lesson.loss
    slopes, intercept = from_unit(weights, data.frame)
    return LinearModel(slopes[None, :], np.array([intercept]), 1), loss


def regress(
    method: str, scaled: Floats, goal: Floats, frame: Frame, penalty: Floats, lesson: TextbookFit
) -> tuple[tuple[Floats, float], Loss]:
    """Return coefficients and intercept for a target within [-1/2, 1/2], and the nominal loss.

    Args:
        method: "output", "objective" or "input".
        scaled, goal: rows in the frame, and the scaled target.
        frame: the public scaling of the rows.
        penalty: a ridge on each scaled coefficient, the constant last.
        lesson: the nominal budget and the noise source.
    """
    if method == "input":
        return _from_noisy_rows(scaled, goal, frame, penalty, lesson), on_paper(lesson)
    rows = unit_rows(scaled, frame)
    weights = _WAYS[method](rows, Squares(goal), lesson, penalty / (2 * frame.reach**2))
    return from_unit(weights, frame), lesson.loss


def _from_noisy_rows(
    scaled: Floats, goal: Floats, frame: Frame, penalty: Floats, lesson: TextbookFit
) -> tuple[Floats, float]:
    """Fit least squares to noisy rows, corrected for the noise in their squares (errors in variables).

    A row with its target has an L1 range of features + 1.
    """
    n, d = scaled.shape
    noisy, scale = noisy_cells(np.column_stack([scaled, goal]), lesson.epsilon, lesson)
    rows, targets = np.column_stack([noisy[:, :-1], np.ones(n)]), noisy[:, -1]
    xx = rows.T @ rows
    xx[:d, :d] -= 2 * scale**2 * n * np.eye(d)
    doubt = 2 * scale**2 * math.sqrt(max(n, 1))
    moments = Moments(xx, rows.T @ targets, float(targets @ targets) - 2 * scale**2 * n, (doubt, doubt, doubt))
    beta = trimmed(moments, penalty).coefficients
    slopes = beta[:-1] * frame.scale
    return slopes, float(beta[-1] - slopes @ frame.centre)


def scaled_goal(goal: Floats, ends: tuple[float, float]) -> Floats:
    """Scale a target from its public bounds to [-1/2, 1/2]."""
    low, high = ends
    return np.asarray((np.clip(goal, low, high) - (low + high) / 2) / (high - low))
