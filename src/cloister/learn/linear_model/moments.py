"""Noisy second moments, sufficient for linear regression and principal components.

Each row is a vector z of integers: features on a public grid, a constant, and for a regression the target. One exact
matrix product gives Z'Z; noise is added to its upper triangle, once for each pair.

Sensitivity of the triangle of X'X to one row: the squares of its cells sum to (|z|⁴ + Σ z_i⁴)/2, since each product of
two different features is in it once and in |z|⁴ = |zz'|² twice. In absolute values: (|z|₁² + |z|²)/2. The fourth powers
are small where features are bounded one by one, so this is a factor √2 below the Frobenius norm that is usually taken.
X'y moves by |z| |y|, y'y by y². The three are released separately, each for a share of the spend, so that the target's
part does not get the noise needed for the many features.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.bounds_search import noise_for
from cloister.learn.base.frame import Frame
from cloister.learn.base.integer_rows import Integers
from cloister.learn.linear_model.scale_probe import SHARE, ScaleProbe
from cloister.privacy.budget_split import BudgetShare
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteLaplace, root_above

__all__ = ["Moments", "Reach", "cautious_length", "exact_product", "release_matrix", "release_vector", "symmetric"]

Floats = NDArray[np.float64]
_BLOCK = 2**13


@dataclass(frozen=True, slots=True)
class Reach:
    """Bounds on the integers of one row: sums of their absolute values, squares and fourth powers.

    Attributes:
        first, second, fourth: those sums over the features with the constant.
        target: the largest absolute value of the target.
        weight: total weight of the rows of one unit; 1 where the unit is the row.
    """

    first: int
    second: int
    fourth: int
    target: int = 0
    weight: int = 1

    @property
    def matrix(self) -> tuple[Fraction, int]:
        """Return the sensitivity of the upper triangle of X'X to one unit: L2 and L1."""
        square = Fraction(self.second**2 + min(self.fourth, self.second**2), 2)
        return self.weight * root_above(square), self.weight * -(-(self.first**2 + self.second) // 2)

    @property
    def vector(self) -> tuple[Fraction, int]:
        """Return the sensitivity of X'y to one unit: L2 and L1."""
        return self.weight * self.target * root_above(self.second), self.weight * self.target * self.first

    @property
    def number(self) -> tuple[Fraction, int]:
        """Return the sensitivity of y'y to one unit: L2 and L1."""
        return Fraction(self.weight * self.target**2), self.weight * self.target**2

    @property
    def together(self) -> int:
        """Return the L1 sensitivity of all three together to one unit."""
        return self.matrix[1] + self.vector[1] + self.number[1]


@dataclass(frozen=True, slots=True)
class Moments:
    """Released second moments, in the units of the scaled features and target.

    Attributes:
        xx: features and, last, the constant.
        xy, yy: with the target.
        noise: standard deviations of the noise on each number of xx, xy and yy.
    """

    xx: Floats
    xy: Floats
    yy: float
    noise: tuple[float, float, float]

    @property
    def rows(self) -> float:
        """Return the approximate number of rows; at least one."""
        return max(float(self.xx[-1, -1]), 1.0)


def cautious_length(seen: ScaleProbe, frame: Frame, budget: BudgetShare, times: float) -> float:
    """Return the norm that rows are clipped to around the released mean: a multiple of the released spread.

    For few rows the spread is noise. So its square is raised by what the survey's noise may have subtracted.
    """
    d = frame.features
    noise = noise_for(root_above(3), math.isqrt(d) + 3, budget.part(SHARE)).standard_error
    square = (times * seen.spread) ** 2 + frame.reach**2 * min(noise / seen.rows, 1.0)
    return min(math.sqrt(square), frame.farthest(seen.middle))


def exact_product(length: int, cells: Callable[[slice], Floats]) -> Integers:
    """Return Z'Z of integers up to 2^15, exactly: sums stay below 2^53. Works in blocks of rows, for the cache.

    Args:
        length: number of rows.
        cells: returns the integers of a slice of them.
    """
    total: Any = 0
    for start in range(0, max(length, 1), _BLOCK):
        part = cells(slice(start, start + _BLOCK))
        total = total + (part.T @ part).astype(np.int64)
    return np.asarray(total)


def release_matrix(
    meter: PrivacyFilter, look: Callable[[], Integers], reach: Reach, loss: Loss
) -> tuple[Floats, float]:
    """Release a symmetric matrix with symmetric noise; return also the noise's standard deviation.

    Args:
        look: returns the whole matrix.

    Privacy: the loss, if the matrix is a sum over rows within the reach.
    """
    noise = noise_for(*reach.matrix, loss)

    def upper() -> Integers:
        whole = look()
        return np.asarray(whole[np.triu_indices(len(whole))])

    return symmetric(np.asarray(meter.release(upper, noise), dtype=np.float64)), noise.standard_error


def release_vector(
    meter: PrivacyFilter, look: Callable[[], Integers], reach: tuple[Fraction, int], loss: Loss
) -> tuple[Floats, float]:
    """Release integers with noise; return also its standard deviation."""
    noise = noise_for(*reach, loss)
    return np.asarray(meter.release(look, noise), dtype=np.float64), noise.standard_error


def release_together(
    meter: PrivacyFilter, look: Callable[[], Integers], reach: Reach, features: int, loss: Loss
) -> tuple[Floats, Floats, float, float]:
    """Release X'X, X'y and y'y with Laplace noise of one scale: the functional mechanism's coefficients."""
    noise = DiscreteLaplace.for_loss(reach.together, loss)
    noisy = np.asarray(meter.release(look, noise), dtype=np.float64)
    cut = features * (features + 1) // 2
    return symmetric(noisy[:cut]), noisy[cut:-1], float(noisy[-1]), noise.standard_error


def symmetric(upper: Floats) -> Floats:
    """Return the symmetric matrix of an upper triangle given row by row."""
    size = (math.isqrt(8 * len(upper) + 1) - 1) // 2
    matrix = np.zeros((size, size))
    places = np.triu_indices(size)
    matrix[places] = upper
    matrix.T[places] = upper
    return matrix
