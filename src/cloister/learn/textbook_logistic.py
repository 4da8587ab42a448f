"""The textbook's perturbations of logistic regression, corrected, for lessons: output, objective, input.

They rest on continuous noise (and on an exact minimiser), which no computer has: no ledger takes them.

    output      the minimiser plus spherical noise (Chaudhuri, Monteleoni & Sarwate 2011, algorithm 1)
    objective   a random linear term in the loss, then its minimiser (algorithm 2)
    input       noise on every cell of every row and on its label, then an ordinary fit

Corrections. Losses are sums over rows plus (ridge/2)|w|², not means, so that neighbours may differ in their number of
rows and n stays secret: one row more moves the minimiser by at most 1/ridge, half of the printed replace-one 2/(n
lambda), which belongs to output perturbation and is often quoted for the other. Objective perturbation pays for the
Jacobian too: ln(1 + c/ridge) of epsilon, c = 1/4 the steepest curvature; if that is more than half of it, the ridge is
raised. Rows are clipped to length 1 with the intercept inside. Noise on features alone would leave labels bare.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from cloister.learn.frame import Floats
from cloister.learn.linear_classifier import LinearModel, PrivateRows
from cloister.learn.purse import Purse, purse
from cloister.learn.residuals import sigmoid
from cloister.privacy.errors import BadInput, TextbookOnly
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import Vector
from cloister.privacy.mechanisms.mechanism import epsilon_of
from cloister.privacy.noise import Source
from cloister.privacy.release import Release
from cloister.privacy.unit import ROW

__all__ = ["TEXTBOOK", "least", "objective_terms", "teach"]

TEXTBOOK = ("output", "objective", "input")
_STEEPEST = 0.25


def teach(estimator: Any, data: PrivateRows) -> tuple[LinearModel, Release]:
    """Fit by a textbook method.

    Privacy: none. On paper the spend; but the noise is made of floats and repeats with its seed, so the release is
        marked `not private`, and a ledger or an account is refused.
    """
    if estimator.ledger is not None or estimator.account is not None or estimator.random_state is None:
        raise TextbookOnly(
            f"{estimator.method} perturbation rests on continuous noise and is for lessons: give a random_state and no "
            "ledger. For people use method='auto'."
        )
    if len(data.classes) > 2:
        raise BadInput("the textbook's perturbations are for two classes. Use another method.")
    budget, source = purse(estimator.spend), estimator._source()
    if estimator.method == "input":
        weights, loss = _input(data, budget, source)
    else:
        weights, loss = _WAYS[estimator.method](*_unit_rows(data), budget, source), budget.loss
    # Rows were (scaled row, reach) / (reach sqrt 2).
    reach, frame = data.frame.reach, data.frame
    slopes = weights[:-1] / (reach * math.sqrt(2)) * frame.scale
    model = LinearModel(slopes[None, :], np.array([weights[-1] / math.sqrt(2) - slopes @ frame.centre]), 1)
    return model, Release(model, loss, ROW, f"{estimator.method} perturbation (textbook)", {}, private=False)


def _unit_rows(data: PrivateRows) -> tuple[Floats, Floats]:
    """Rows of length at most 1, a constant last, and labels -1 and 1."""
    scaled, code = data.look()
    rows = np.column_stack([scaled / data.frame.reach, np.ones(len(scaled))]) / math.sqrt(2)
    return rows, np.where(code == 1, 1.0, -1.0)


def _output(rows: Floats, labels: Floats, budget: Purse, source: Source) -> Floats:
    """The minimiser moves by at most 1/ridge: gradients of rows are shorter than 1, and the ridge is the curvature."""
    size = rows.shape[1]
    ridge = size / float(epsilon_of(budget.loss))  # the noise is then about as long as 1
    noise = Vector.for_loss(Fraction(1 / ridge), budget.loss, dimension=size)
    return noise.release(least(rows, labels, ridge, np.zeros(size)), source)


def _objective(rows: Floats, labels: Floats, budget: Purse, source: Source) -> Floats:
    size, epsilon = rows.shape[1], float(epsilon_of(budget.loss))
    ridge, left = objective_terms(epsilon, 1.0)
    noise = Vector.for_loss(1, Loss("epsilon", Fraction(left)), dimension=size)
    return least(rows, labels, ridge, noise.release(np.zeros(size), source))


def objective_terms(epsilon: float, ridge: float) -> tuple[float, float]:
    """The ridge that objective perturbation uses, and the epsilon that is left for its linear term."""
    left = epsilon - math.log1p(_STEEPEST / ridge)
    if left >= epsilon / 2:
        return ridge, left
    return _STEEPEST / math.expm1(epsilon / 2), epsilon / 2


def _input(data: PrivateRows, budget: Purse, source: Source) -> tuple[Floats, Loss]:
    """Laplace noise for a record's whole range. As many noisy rows come out as went in, so neighbours replace a row."""
    rows, labels = _unit_rows(data)
    width = rows.shape[1] - 1
    epsilon = float(epsilon_of(budget.loss))
    # In L1 two rows of features lie at most sqrt(2 width) apart, two labels 2: half of epsilon for each.
    uniform = source.floats((len(rows), width + 1)) - 0.5
    laplace = -np.sign(uniform) * np.log1p(-2 * np.abs(uniform))
    noisy = rows.copy()
    noisy[:, :-1] += laplace[:, :-1] * (2 * math.sqrt(2 * width) / epsilon)
    guessed = labels + laplace[:, -1] * (4 / epsilon)
    told = np.where(guessed >= 0, 1.0, -1.0)
    weights = least(noisy, told, 1.0 + width, np.zeros(width + 1))
    return weights, replace(budget.loss, relation=Relation.REPLACE_ONE)


def least(rows: Floats, labels: Floats, ridge: float, line: Floats) -> Floats:
    """The minimiser of the sum of ln(1 + e^(-label w'row)), plus (ridge/2)|w|², plus line'w, by Newton's method."""
    weights = np.zeros(rows.shape[1])

    def value(at: Floats) -> float:
        return float(np.logaddexp(0, -labels * (rows @ at)).sum() + ridge / 2 * at @ at + line @ at)

    for _ in range(100):
        wrong = sigmoid(-labels * (rows @ weights))
        slope = -rows.T @ (labels * wrong) + ridge * weights + line
        bend = (rows * (wrong * (1 - wrong))[:, None]).T @ rows + ridge * np.eye(len(weights))
        step, size = np.linalg.solve(bend, slope), 1.0
        gain = float(slope @ step)
        if gain < 1e-20:
            break
        while value(weights - size * step) > value(weights) - size * gain / 4 and size > 1e-6:
            size /= 2
        weights = weights - size * step
    return weights


_WAYS = {"output": _output, "objective": _objective}
