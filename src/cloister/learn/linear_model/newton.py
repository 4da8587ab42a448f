"""Noisy second moments for preconditioned steps and standard errors.

X'X times the loss's largest curvature bounds every Hessian, so one noisy copy of it serves all steps. It is worth its
cost only where the spend is large for the number of features: below, its noise hides all but the largest directions.
Its diagonal alone costs less: for a pure spend it is used to stretch features whose bounds are far wider than their
values.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from cloister.learn.base.frame import Floats, Frame, shorten
from cloister.learn.base.integer_rows import ExactRows, Integers
from cloister.learn.linear_model.clipped_gradients import ClippedRows
from cloister.learn.linear_model.loss_gradients import root_weights
from cloister.learn.linear_model.moments import SHARE, ScaleProbe, release_matrix, release_sums
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.loss import Loss

__all__ = ["Curvature", "affords", "affords_stretch", "hessian", "second_moments", "stretched"]

_LONGEST = 1.5  # rows are clipped to this many root mean squared norms
_NARROWEST = 0.03  # least spread of a feature that is stretched for, relative to the mean one


@dataclass(frozen=True, slots=True)
class Curvature:
    """Noisy symmetric matrix.

    Attributes:
        matrix: as released.
        noise: approximate largest eigenvalue of the noise alone.
    """

    SHARE: ClassVar[Fraction] = Fraction(3, 20)

    matrix: Floats
    noise: float

    def inverse(self, times: float, ridge: float) -> Floats:
        """Return the inverse of (times · matrix + ridge), with eigenvalues raised to at least the noise."""
        values, vectors = np.linalg.eigh(self.matrix)
        flat = times * (np.maximum(values, 0.0) + self.noise) + ridge
        return np.asarray((vectors / flat) @ vectors.T)

    def surely_at_least(self, ridge: float) -> tuple[Floats, Floats]:
        """Return lower bounds of the eigenvalues without noise, plus the ridge; and the eigenvectors."""
        values, vectors = np.linalg.eigh(self.matrix)
        return np.maximum(values - self.noise, 0.0) + ridge, vectors


def affords(budget: BudgetShare, found: ScaleProbe, features: int) -> float:
    """Return a tenth of the ratio of mean eigenvalue to noise; second moments are worth releasing above 1."""
    size, amount = features + 1, float(budget.part(Curvature.SHARE).amount)
    entry = math.sqrt(2) * (size + 1) / 2 / amount if budget.pure else 1 / math.sqrt(2 * amount)
    return 0.1 * found.rows / size / (2 * math.sqrt(size) * _LONGEST**2 * entry)


def affords_stretch(budget: BudgetShare, found: ScaleProbe, features: int) -> bool:
    """Return True if the noise on the features' variances would be below a quarter of the mean variance."""
    noise = math.sqrt(2) * _LONGEST**2 / float(budget.part(SHARE).amount)
    return budget.pure and noise < found.rows / features / 4


def stretched(
    meter: PrivacyFilter, budget: BudgetShare, frame: Frame, data: ClippedRows, found: ScaleProbe
) -> ScaleProbe:
    """Release the features' variances, and stretch features of small variance to about the spread of the others.

    Privacy: a twentieth of the budget, a pure epsilon. A row is clipped to a public norm L, so the squares of its
        features add up to at most L².
    """
    data.centre(found.middle, found.stretch, 0.0, frame.farthest(found.middle))
    most = max(1, min(math.ceil(_LONGEST * found.spread / data.step), 2**15))

    def look() -> Integers:
        return np.asarray((shorten(data.exact.cells[:, :-1], most) ** 2).sum(axis=0)).astype(np.int64)

    released, noise = release_sums(meter, look, (most**2, most**2), budget.part(SHARE))
    variances = np.maximum(released, noise) * (data.step**2 / found.rows)
    clear = variances + _NARROWEST**2 * variances.mean()
    stretch = np.sqrt(clear.mean() / clear)
    return replace(found, stretch=stretch, spread=math.sqrt(float((variances * stretch**2).sum())))


def second_moments(
    meter: PrivacyFilter, budget: BudgetShare, data: ClippedRows, length: float, room: float = 1.0
) -> Curvature:
    """Release X'X of the centred rows, each clipped to a public norm.

    Args:
        meter, budget: the privacy filter and the budget to charge.
        data: the rows.
        length: the root of their mean squared norm.
        room: factor by which the noise is below its limit; the clipping norm is raised for it, since the matrix
            understates the curvature of clipped rows.

    Privacy: 3/20 of the budget. A row x of norm L moves the matrix by at most L² in Frobenius norm, and its upper
        triangle by sum |x_i x_j| = ((sum |x_i|)² + L²)/2 <= (features + 1) L²/2 in L1.
    """
    most = max(1, min(math.ceil(_LONGEST * length * math.sqrt(max(room, 1.0)) / data.step), 2**15))

    def look() -> ExactRows:
        return ExactRows(shorten(data.exact.cells, most), data.step, most)

    return _release(meter, look, budget.part(Curvature.SHARE), most**2, data)


def hessian(meter: PrivacyFilter, loss: Loss, data: ClippedRows, weights: Floats, longest: float) -> Curvature:
    """Release the logistic Hessian at public weights, from rows times the root of p (1 - p), which is at most 1/2.

    Privacy: the loss. A row moves it by at most a quarter of what it moves the second moments by.
    """
    most = max(2, min(math.ceil(longest / data.step), 2**15))

    def look() -> ExactRows:
        cells = shorten(data.exact.cells, most)
        # Rounding towards zero keeps the norm of every row within half of `most`.
        return ExactRows(np.trunc(cells * root_weights(data.margins(weights))), data.step, most)

    return _release(meter, look, loss, -(-(most**2) // 4), data)


def _release(
    meter: PrivacyFilter, look: Callable[[], ExactRows], loss: Loss, squared: int, data: ClippedRows
) -> Curvature:
    """Release X'X of rows whose squared norm is at most `squared`, with noise on its upper triangle."""
    size, worth = data.features, data.step**2
    reach = squared, -(-squared * (size + 1) // 2)
    matrix, noise = release_matrix(meter, lambda: look().products(), reach, loss)
    return Curvature(matrix * worth, 2 * math.sqrt(size) * noise * worth)
