"""Textbook perturbations of linear models, for teaching: output, objective, input."""

import math

import numpy as np

from cloister.learn.base.frame import Floats, Frame
from cloister.learn.base.inputs import codes, complete
from cloister.learn.linear_model.classifier import LinearModel, PrivateRows
from cloister.learn.linear_model.least_squares import trimmed
from cloister.learn.linear_model.moments import Moments
from cloister.learn.textbook.input_perturbation import noisy_cells, noisy_codes, on_paper
from cloister.learn.textbook.method import TextbookFit
from cloister.learn.textbook.perturbation import (
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

__all__ = ["TEXTBOOK", "classify", "regress", "scaled_goal"]

TEXTBOOK = ("output", "objective", "input")
_WAYS = {"output": output, "objective": objective}


def classify(
    method: str, data: PrivateRows, risk: type[Logistic | Hinge], lesson: TextbookFit
) -> tuple[LinearModel, Loss]:
    """Return a classifier for two classes, and its nominal loss."""
    if len(data.classes) > 2:
        raise BadInput("the textbook's perturbations are for two classes. Use another method.")
    if method == "input":
        # Includes rows of no listed class: their number must not be revealed.
        known, code = complete(data.raw(), codes(data.labels, list(data.classes)))
        noisy, _ = noisy_cells(data.frame.rows(known), lesson.epsilon / 2, lesson)
        told, _ = noisy_codes(code, 2, lesson.epsilon / 2, lesson)
        rows, labels = unit_rows(noisy, data.frame), np.where(told == 1, 1.0, -1.0)
        size = rows.shape[1]
        weights = least(rows[told < 2], risk(labels[told < 2]), float(size), np.zeros(size))
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
        method: one of `TEXTBOOK`.
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
    rows, told = np.column_stack([noisy[:, :-1], np.ones(n)]), noisy[:, -1]
    xx = rows.T @ rows
    xx[:d, :d] -= 2 * scale**2 * n * np.eye(d)
    doubt = 2 * scale**2 * math.sqrt(max(n, 1))
    moments = Moments(xx, rows.T @ told, float(told @ told) - 2 * scale**2 * n, (doubt, doubt, doubt))
    beta = trimmed(moments, penalty).coefficients
    slopes = beta[:-1] * frame.scale
    return slopes, float(beta[-1] - slopes @ frame.centre)


def scaled_goal(goal: Floats, ends: tuple[float, float]) -> Floats:
    """Scale a target from its public bounds to [-1/2, 1/2]."""
    low, high = ends
    return np.asarray((np.clip(goal, low, high) - (low + high) / 2) / (high - low))
