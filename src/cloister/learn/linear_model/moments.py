"""Noisy moments of rows: their number, mean and spread; their second moments; counts, sums and products by class.

    probe_scale              one release of features + 2 numbers, at a twentieth of the spend: the first of a descent
    release_matrix           second moments, sufficient for linear regression and principal components
    release_class_moments    counts and sums by class with products, sufficient for a discriminant

All go through `release_sums`. The scale replaces three things that would otherwise have to be known or guessed: the
step size (from the number of rows), the centring (one-hot columns and positive numbers are far from the origin, and
half of the gradient noise would go to their mean), and the norm that gradients are clipped to.

For second moments each row is a vector z of integers: features on a public grid, a constant, and for a regression the
target. One exact matrix product gives Z'Z; noise is added to its upper triangle, once for each pair.

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

from cloister.learn.base.frame import Frame, squares
from cloister.learn.base.integer_rows import ROW_BITS, Integers
from cloister.privacy.filter import BudgetShare, PrivacyFilter, noise_for
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteLaplace, root_above

__all__ = [
    "LINES",
    "SHARE",
    "ClassMoments",
    "Moments",
    "Reach",
    "ScaleProbe",
    "Sensitivity",
    "cautious_length",
    "exact_product",
    "once",
    "probe_scale",
    "release_class_moments",
    "release_matrix",
    "release_sums",
    "release_together",
    "symmetric",
    "whole_root",
]

Floats = NDArray[np.float64]
_BLOCK = 2**13
SHARE = Fraction(1, 20)  # of the spend, for the scale of the rows
LINES = Fraction(1, 2)  # of a class's budget for counts and sums, the rest for products
_ONE = 2**ROW_BITS


# The release of sums


def release_sums(
    meter: PrivacyFilter,
    look: Callable[[], Integers],
    reach: tuple[Fraction | int, int],
    loss: Loss,
    *,
    laplace: bool = False,
) -> tuple[Floats, float]:
    """Release sums of integers with noise, as doubles; return also the noise's standard deviation.

    Args:
        meter: the privacy filter to charge.
        look: returns the integers.
        reach: their sensitivity in L2 and L1.
        loss: the loss of this step.
        laplace: use Laplace noise whatever the measure of the loss.

    Privacy: the loss, if one unit moves the integers within the reach.
    """
    noise = DiscreteLaplace.for_loss(reach[1], loss) if laplace else noise_for(*reach, loss)
    return np.asarray(meter.release(look, noise), dtype=np.float64), noise.standard_error


def release_matrix(
    meter: PrivacyFilter, look: Callable[[], Integers], reach: tuple[Fraction | int, int], loss: Loss
) -> tuple[Floats, float]:
    """Release a symmetric matrix with symmetric noise; return also the noise's standard deviation.

    Args:
        meter, loss: as in `release_sums`.
        look: returns the whole matrix.
        reach: the sensitivity of its upper triangle in L2 and L1.

    Privacy: the loss, as in `release_sums`.
    """

    def upper() -> Integers:
        matrix = look()
        return np.asarray(matrix[np.triu_indices(len(matrix))])

    triangle, noise = release_sums(meter, upper, reach, loss)
    return symmetric(triangle), noise


def release_together(
    meter: PrivacyFilter, look: Callable[[], Integers], reach: "Reach", features: int, loss: Loss
) -> tuple[Floats, Floats, float, float]:
    """Release X'X, X'y and y'y with Laplace noise of one scale: the functional mechanism's coefficients."""
    noisy, noise = release_sums(meter, look, (reach.together, reach.together), loss, laplace=True)
    cut = features * (features + 1) // 2
    return symmetric(noisy[:cut]), noisy[cut:-1], float(noisy[-1]), noise


def symmetric(upper: Floats) -> Floats:
    """Return the symmetric matrix of an upper triangle given row by row."""
    size = (math.isqrt(8 * len(upper) + 1) - 1) // 2
    matrix = np.zeros((size, size))
    places = np.triu_indices(size)
    matrix[places] = upper
    matrix.T[places] = upper
    return matrix


def once(look: Callable[[], Any]) -> Callable[[], Any]:
    """Cache `look` for several steps; it is computed inside the first."""
    cached: list[Any] = []

    def again() -> Any:
        if not cached:
            cached.append(look())
        return cached[0]

    return again


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


def whole_root(square: int) -> int:
    """Return the smallest integer whose square is at least this one."""
    return math.isqrt(square - 1) + 1


# The scale of rows


@dataclass(frozen=True, slots=True)
class ScaleProbe:
    """Released scale of the rows.

    Attributes:
        rows: approximate number of rows; at least one, and no less than the noise could hide.
        middle: approximate mean, in the frame.
        spread: approximate root mean squared distance from it.
        stretch: the factor of each feature applied afterwards; `spread` is that of the stretched rows.
        noise: the standard deviation of the noise on `rows`; 0 if their number is public.
    """

    rows: float
    middle: Floats
    spread: float
    stretch: Floats
    noise: float = 0.0


def probe_scale(
    meter: PrivacyFilter, budget: BudgetShare, frame: Frame, look: Callable[[], Floats], rows: int | None
) -> ScaleProbe:
    """Release the number, mean and spread of the rows.

    Args:
        meter, budget: the privacy filter and the budget to charge.
        frame: the public scaling of the rows.
        look: returns the scaled rows.
        rows: the number of rows, if it is public.

    Privacy: a twentieth of the budget. A row adds a vector of norm at most 2^ROW_BITS, 2^ROW_BITS for its count, and at
        most that for its squared norm: sqrt(3) 2^ROW_BITS in L2, (sqrt(features) + 2) 2^ROW_BITS in L1.
    """
    d = frame.features
    reach = whole_root(3 * _ONE**2), whole_root(d * _ONE**2) + 2 * _ONE
    released, noise = release_sums(meter, lambda: _totals(frame.cells(look())), reach, budget.part(SHARE))
    released, noise = released / _ONE, noise / _ONE
    count = max(float(released[d]) if rows is None else float(rows), 2 * noise, 1.0)
    middle = released[:d] / count * frame.reach
    middle = np.clip(middle, -0.5, 0.5) if not frame.round else _within(middle, frame.reach)
    # The noise adds its variance to the squared norm of the mean.
    around = float(released[d + 1]) / count * frame.reach**2 - float(middle @ middle) + d * (noise / count) ** 2
    spread = math.sqrt(min(max(around, frame.reach**2 / 100), frame.reach**2))
    return ScaleProbe(count, middle, spread, np.ones(d), noise if rows is None else 0.0)


def _totals(cells: Floats) -> Integers:
    lengths = np.floor(squares(cells) / _ONE)
    return np.concatenate([cells.sum(axis=0), [len(cells) * float(_ONE), lengths.sum()]]).astype(np.int64)


def _within(point: Floats, reach: float) -> Floats:
    return np.asarray(point * min(1.0, reach / max(float(np.linalg.norm(point)), 1e-300)))


def cautious_length(seen: ScaleProbe, frame: Frame, budget: BudgetShare, times: float) -> float:
    """Return the norm that rows are clipped to around the released mean: a multiple of the released spread.

    For few rows the spread is noise. So its square is raised by what the survey's noise may have subtracted.
    """
    d = frame.features
    noise = noise_for(root_above(3), math.isqrt(d) + 3, budget.part(SHARE)).standard_error
    square = (times * seen.spread) ** 2 + frame.reach**2 * min(noise / seen.rows, 1.0)
    return min(math.sqrt(square), frame.farthest(seen.middle))


# Second moments


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
        pure: True if it is Laplace noise.
        grid: the most by which a cell was rounded.
    """

    xx: Floats
    xy: Floats
    yy: float
    noise: tuple[float, float, float]
    pure: bool = False
    grid: float = 0.0

    @property
    def rows(self) -> float:
        """Return the approximate number of rows; at least one."""
        return max(float(self.xx[-1, -1]), 1.0)


# Moments by class


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Sensitivity of counts and sums together, and of products together, in L2 and L1; integers."""

    lines: int
    lines_l1: int
    products: int
    products_l1: int


@dataclass(frozen=True, slots=True)
class ClassMoments:
    """Released moments of features within [-1, 1], or of rows within sqrt(features).

    Attributes:
        counts: rows of each class.
        sums: sums of each class (classes × features).
        products: X'X.
        line_noise, product_noise: standard deviations of the noise on a sum and on a product.
    """

    counts: Floats
    sums: Floats
    products: Floats
    line_noise: float
    product_noise: float


def release_class_moments(
    meter: PrivacyFilter,
    budget: BudgetShare,
    look: Callable[[], tuple[Integers, Integers]],
    reach: Sensitivity,
    shape: tuple[int, int],
    worth: tuple[float, float, float],
    *,
    laplace: bool = False,
) -> ClassMoments:
    """Release counts, sums and products with noise.

    Args:
        meter, budget: the privacy filter and the budget to charge.
        look: returns the lines (for each class its sums, then its count) and the upper triangle of the products.
        reach: the sensitivity.
        shape: classes, features.
        worth: the real value of one in a count, a sum and a product.
        laplace: use Laplace noise whatever the budget's measure.

    Privacy: the budget: half for the lines, half for the products.
    """
    both = once(look)
    first, second = (reach.lines, reach.lines_l1), (reach.products, reach.products_l1)
    lines, line_noise = release_sums(meter, lambda: both()[0], first, budget.part(LINES), laplace=laplace)
    upper, noise = release_sums(meter, lambda: both()[1], second, budget.part(1 - LINES), laplace=laplace)
    lines = lines.reshape(shape[0], shape[1] + 1)
    counts = np.maximum(lines[:, -1] * worth[0], max(1.0, line_noise * worth[0]))
    return ClassMoments(
        counts, lines[:, :-1] * worth[1], symmetric(upper) * worth[2], line_noise * worth[1], noise * worth[2]
    )
