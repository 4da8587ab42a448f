"""Second moments with noise: steps that fit the data's shape, and standard errors.

X'X times the loss's steepest curvature bounds every Hessian, so one noisy copy of it serves all steps. It pays only
where the spend is large for the number of features: below, its noise hides all but the largest directions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from cloister.learn.clipped import ClippedRows
from cloister.learn.exact import ExactRows, Integers
from cloister.learn.frame import Floats, shorten
from cloister.learn.purse import Purse
from cloister.learn.residuals import root_weights
from cloister.learn.survey import Survey
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.meter import Meter

__all__ = ["Curvature", "affords", "hessian", "second_moments"]


@dataclass(frozen=True, slots=True)
class Curvature:
    """A symmetric matrix with noise.

    Attributes:
        matrix: as released.
        noise: about the largest eigenvalue that the noise alone has.
    """

    SHARE: ClassVar[Fraction] = Fraction(3, 20)

    matrix: Floats
    noise: float

    def inverse(self, times: float, ridge: float) -> Floats:
        """Of (times · matrix + ridge), where no direction is taken to be flatter than the noise."""
        values, vectors = np.linalg.eigh(self.matrix)
        flat = times * (np.maximum(values, 0.0) + self.noise) + ridge
        return np.asarray((vectors / flat) @ vectors.T)

    def surely_at_least(self, ridge: float) -> tuple[Floats, Floats]:
        """Eigenvalues that the matrix without noise has at least, with the ridge added; and their vectors."""
        values, vectors = np.linalg.eigh(self.matrix)
        return np.maximum(values - self.noise, 0.0) + ridge, vectors


def affords(budget: Purse, found: Survey, features: int) -> bool:
    """Whether noisy second moments would be clear enough: their noise below a tenth of the mean eigenvalue."""
    if budget.pure:
        return False
    size = features + 1
    noise = 2 * math.sqrt(size) * 2.25 / math.sqrt(2 * float(budget.part(Curvature.SHARE).amount))
    return noise < 0.1 * found.rows / size


def second_moments(meter: Meter, budget: Purse, data: ClippedRows, longest: float) -> Curvature:
    """X'X of the centred rows, each shortened to a public length.

    Privacy: 3/20 of the budget, a rho. A row moves the matrix by at most its squared length, in Frobenius norm.
    """
    most = max(1, min(math.ceil(longest / data.step), 2**15))

    def look() -> ExactRows:
        return ExactRows(shorten(data.exact.cells, most), data.step, most)

    return _release(meter, look, budget.part(Curvature.SHARE), most**2, data.step**2)


def hessian(meter: Meter, loss: Loss, data: ClippedRows, weights: Floats, longest: float) -> Curvature:
    """The logistic Hessian at public weights: rows times the root of p (1 - p), which is at most 1/2.

    Privacy: the loss, a rho. A row moves it by at most a quarter of its squared length.
    """
    most = max(2, min(math.ceil(longest / data.step), 2**15))

    def look() -> ExactRows:
        cells = shorten(data.exact.cells, most)
        # Cutting towards zero makes no row longer than half of `most`.
        return ExactRows(np.trunc(cells * root_weights(data.margins(weights))), data.step, most)

    return _release(meter, look, loss, -(-(most**2) // 4), data.step**2)


def _release(meter: Meter, look: Callable[[], ExactRows], loss: Loss, sensitivity: int, worth: float) -> Curvature:
    law = DiscreteGaussian.for_loss(sensitivity, loss)
    upper = meter.release(lambda: _upper(look().products()), law)
    size = (math.isqrt(8 * len(upper) + 1) - 1) // 2
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = np.asarray(upper, dtype=np.float64) * worth
    whole = matrix + np.triu(matrix, 1).T
    return Curvature(whole, 2 * math.sqrt(size) * law.standard_error * worth)


def _upper(matrix: Integers) -> Integers:
    return matrix[np.triu_indices(len(matrix))]
