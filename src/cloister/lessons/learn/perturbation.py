"""Corrected output and objective perturbation of linear models, for teaching.

    output      the minimiser plus spherical noise (Chaudhuri, Monteleoni & Sarwate 2011, algorithm 1)
    objective   a random linear term in the objective (algorithm 2; Kifer, Smith & Thakurta 2012)

The objective is the sum over rows of a convex loss, plus (ridge/2)|w|². Corrections: sums, not means, so that
neighbours may differ in their number of rows and n stays private: one more row moves the minimiser by at most
slope/ridge, half of the printed replace-one 2/(n lambda), which belongs to output perturbation and is often quoted for
the other. Objective perturbation also pays for the Jacobian: ln(1 + bend/ridge) of epsilon; if that is more than half
of it, the ridge is raised. Rows are clipped to norm 1, including the intercept. Squared error has no bounded slope, so
a regression's errors count linearly beyond half the target's range (Huber); a hinge has a corner, so it is rounded.

Falls to: `attack.mechanisms.floating.guess` (AT-17), as all noise in floats; a minimiser that is not exact has no
proof.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol

import numpy as np

from cloister.learn.base.frame import Floats, Frame
from cloister.learn.linear_model.loss_gradients import sigmoid
from cloister.lessons.learn.method import TextbookFit
from cloister.lessons.noise import Vector
from cloister.privacy.loss import Loss

__all__ = [
    "Hinge",
    "Logistic",
    "Risk",
    "Squares",
    "from_unit",
    "least",
    "objective",
    "objective_terms",
    "output",
    "unit_rows",
]


class Risk(Protocol):
    """Convex loss of the scores w'x of all rows.

    Attributes:
        slope: bound on the absolute value of its derivative.
        bend: bound on its second derivative.
        blur: largest norm of the noise of output perturbation; the ridge follows from it.
    """

    slope: ClassVar[float]
    bend: ClassVar[float]
    blur: ClassVar[float]

    def value(self, scores: Floats) -> Floats: ...  # noqa: D102
    def first(self, scores: Floats) -> Floats: ...  # noqa: D102
    def second(self, scores: Floats) -> Floats: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Logistic:
    """Logistic loss ln(1 + e^(-label score)), labels -1 and 1."""

    slope: ClassVar[float] = 1.0
    bend: ClassVar[float] = 0.25
    blur: ClassVar[float] = 1.0

    labels: Floats

    def value(self, scores: Floats) -> Floats:
        """Return the loss of each row."""
        return np.asarray(np.logaddexp(0, -self.labels * scores))

    def first(self, scores: Floats) -> Floats:
        """Return the derivative by the score."""
        return np.asarray(-self.labels * sigmoid(-self.labels * scores))

    def second(self, scores: Floats) -> Floats:
        """Return the second derivative by the score."""
        return np.asarray(sigmoid(scores) * sigmoid(-scores))


@dataclass(frozen=True, slots=True)
class Hinge:
    """Hinge loss max(0, 1 - label score), its corner a parabola over margins from 0 to 2."""

    slope: ClassVar[float] = 1.0
    bend: ClassVar[float] = 0.5
    blur: ClassVar[float] = 1.0

    labels: Floats

    def value(self, scores: Floats) -> Floats:
        """Return the loss of each row."""
        short = 2 - self.labels * scores
        return np.asarray(np.where(short > 2, short - 1, np.maximum(short, 0.0) ** 2 / 4))

    def first(self, scores: Floats) -> Floats:
        """Return the derivative by the score."""
        return np.asarray(-self.labels * np.clip((2 - self.labels * scores) / 2, 0.0, 1.0))

    def second(self, scores: Floats) -> Floats:
        """Return the second derivative by the score."""
        return np.asarray(np.where(np.abs(1 - self.labels * scores) < 1, 0.5, 0.0))


@dataclass(frozen=True, slots=True)
class Squares:
    """Half the squared error, linear beyond 1/2, for targets within [-1/2, 1/2]."""

    slope: ClassVar[float] = 0.5
    bend: ClassVar[float] = 1.0
    blur: ClassVar[float] = 0.125

    targets: Floats

    def value(self, scores: Floats) -> Floats:
        """Return the loss of each row."""
        away = np.abs(scores - self.targets)
        return np.asarray(np.where(away > 0.5, away / 2 - 0.125, away**2 / 2))

    def first(self, scores: Floats) -> Floats:
        """Return the derivative by the score."""
        return np.asarray(np.clip(scores - self.targets, -0.5, 0.5))

    def second(self, scores: Floats) -> Floats:
        """Return the second derivative by the score."""
        return np.asarray(np.where(np.abs(scores - self.targets) < 0.5, 1.0, 0.0))


def output(rows: Floats, risk: Risk, lesson: TextbookFit, penalty: Floats) -> Floats:
    """Return the minimiser with noise.

    It moves by at most slope/ridge: gradients of rows have norm at most the slope, and the ridge is the least
    curvature; a public penalty beside it can only add to that.
    """
    size = rows.shape[1]
    ridge = size * risk.slope / (lesson.epsilon * risk.blur)
    noise = Vector.for_loss(Fraction(risk.slope / ridge), lesson.loss, dimension=size)
    return noise.release(least(rows, risk, ridge + penalty, np.zeros(size)), lesson.source)


def objective(rows: Floats, risk: Risk, lesson: TextbookFit, penalty: Floats) -> Floats:
    """Return the minimiser of a noisy objective."""
    size = rows.shape[1]
    ridge, left = objective_terms(lesson.epsilon, 1.0, risk.bend)
    noise = Vector.for_loss(Fraction(risk.slope), Loss("epsilon", Fraction(left)), dimension=size)
    return least(rows, risk, ridge + penalty, noise.release(np.zeros(size), lesson.source))


def objective_terms(epsilon: float, ridge: float, bend: float) -> tuple[float, float]:
    """Return the ridge of objective perturbation, and the epsilon left for its linear term."""
    left = epsilon - math.log1p(bend / ridge)
    if left >= epsilon / 2:
        return ridge, left
    return bend / math.expm1(epsilon / 2), epsilon / 2


def least(rows: Floats, risk: Risk, ridge: float | Floats, line: Floats) -> Floats:
    """Minimise the risk plus (1/2) w'(ridge)w plus line'w, by Newton's method."""
    weights, flat = np.zeros(rows.shape[1]), np.broadcast_to(ridge, rows.shape[1])

    def value(at: Floats) -> float:
        return float(risk.value(rows @ at).sum() + (flat * at) @ at / 2 + line @ at)

    for _ in range(100):
        scores = rows @ weights
        slope = rows.T @ risk.first(scores) + flat * weights + line
        bend = (rows * risk.second(scores)[:, None]).T @ rows + np.diag(flat)
        step, size = np.linalg.solve(bend, slope), 1.0
        gain = float(slope @ step)
        if gain < 1e-20:
            break
        while value(weights - size * step) > value(weights) - size * gain / 4 and size > 1e-6:
            size /= 2
        weights = weights - size * step
    return weights


def unit_rows(scaled: Floats, frame: Frame) -> Floats:
    """Return rows of norm at most 1, with a constant last."""
    return np.column_stack([scaled / frame.reach, np.ones(len(scaled))]) / math.sqrt(2)


def from_unit(weights: Floats, frame: Frame) -> tuple[Floats, float]:
    """Return coefficients and intercept for the unscaled features."""
    slopes = weights[:-1] / (frame.reach * math.sqrt(2)) * frame.scale
    return slopes, float(weights[-1] / math.sqrt(2) - slopes @ frame.centre)
