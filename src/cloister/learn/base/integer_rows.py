"""Rows as integers, whose sums are exact in any order at the speed of a matrix product.

Every row is clipped to a public norm and rounded to an integer grid. A double holds integers up to 2^53 exactly, so a
product of integer matrices over a block of rows is exact in floating-point hardware, in any order of summation; blocks
are added as 64-bit integers. No float that depends on a row is rounded after rows are combined.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace

__all__ = ["ExactRows", "Integers", "distances", "noisy", "noisy_counts", "on_grid", "weighted"]

Integers = NDArray[np.int64]

# Row entries have 15 bits, weights 16: a block of 2^20 rows sums to less than 2^51.
ROW_BITS, WEIGHT_BITS, _BLOCK = 15, 16, 2**20


@dataclass(frozen=True, slots=True)
class ExactRows:
    """Rows of integers with a public bound on their Euclidean norm.

    Attributes:
        cells: the integers, held as doubles; a cell times `step` is its real value.
        step: the real value of one.
        norm: the bound on the norm of a row, in integers.
    """

    cells: NDArray[np.float64]
    step: float
    norm: int

    @classmethod
    def of(cls, rows: NDArray[Any], norm: float) -> "ExactRows":
        """Clip every row to the norm, then round it towards zero to the grid, so that its norm does not grow."""
        step = norm / 2**ROW_BITS
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        # Slightly less than the norm, so that rounding of the computed norm cannot push a row beyond it.
        shrink = np.minimum(1.0, norm * (1 - 1e-9) / np.maximum(lengths, norm * 1e-9))
        return cls(on_grid(rows * (shrink / step)[:, None], 2.0**ROW_BITS), step, 2**ROW_BITS)

    def __len__(self) -> int:
        return len(self.cells)

    def weighted(self, weights: NDArray[np.float64]) -> Integers:
        """Sum the rows, each times a weight within [-1, 1]; one column of weights gives one row of the result.

        One row moves each column of the result by at most `norm · 2^WEIGHT_BITS` in L2, times its weight. The unit of
        the result is `step / 2^WEIGHT_BITS`.
        """
        integers = on_grid(weights * 2.0**WEIGHT_BITS, 2.0**WEIGHT_BITS)
        columns = integers if integers.ndim > 1 else integers[:, None]  # also for no rows
        total = _in_blocks(columns, self.cells)
        return total if weights.ndim > 1 else total[0]

    def products(self) -> Integers:
        """Return X'X: one row moves it by at most norm² in Frobenius norm. The unit of the result is step²."""
        return _in_blocks(self.cells, self.cells)


def on_grid(values: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    """Round values towards zero to integers within ∓limit; NaN becomes 0.

    The last step before a sum: it bounds a row's contribution, whatever was computed for the row before.
    """
    rounded = np.trunc(np.clip(values, -limit, limit))
    missing = np.isnan(rounded)
    if missing.any():
        rounded[missing] = 0.0
    return rounded


def _in_blocks(left: NDArray[np.float64], right: NDArray[np.float64]) -> Integers:
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    for start in range(0, len(left), _BLOCK):
        part = left[start : start + _BLOCK].T @ right[start : start + _BLOCK]
        total += part.astype(np.int64)
    return total


def noisy(meter: PrivacyFilter, look: Callable[[], Any], sensitivity: int, loss: Loss) -> NDArray[np.float64]:
    """Release a sum of integers with noise, as doubles: Gaussian for a rho, Laplace for a pure epsilon.

    Args:
        meter: the privacy filter to charge.
        look: returns the integers.
        sensitivity: how far one unit moves them: in L2 for a rho, in L1 for an epsilon.
        loss: the loss of this step.
    """
    law: Any = DiscreteGaussian if loss.measure == "rho" else DiscreteLaplace
    return np.asarray(meter.release(look, law.for_loss(sensitivity, loss)), dtype=np.float64)


def noisy_counts(meter: PrivacyFilter, look: Callable[[], Any], loss: Loss, most: int = 1) -> NDArray[np.float64]:
    """Release counts of rows in disjoint cells; a unit has at most `most` rows, possibly all in one cell."""
    return noisy(meter, look, most, loss)


# Rows times weights, computed for each row from that row alone, to the last bit. A matrix product may round
# differently for three rows than for four. Where predictions are counted and the count is released, one person's row
# could then move another row's prediction, and a count by more than its sensitivity.


def weighted(rows: ArrayLike, weights: ArrayLike) -> NDArray[np.float64]:
    """Return `rows @ weights`, summed column by column, so that a row's result does not depend on other rows.

    >>> weighted([[1.0, 2.0], [3.0, 4.0]], [0.5, 0.25])
    array([1. , 2.5])
    """
    table, factors = np.asarray(rows, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    total = np.zeros((len(table), *factors.shape[1:]))
    with np.errstate(over="ignore", invalid="ignore"):  # a warning would reveal a row
        for column, factor in zip(table.T, factors, strict=True):
            total += np.multiply.outer(column, factor)
    return total


def distances(rows: ArrayLike, points: ArrayLike) -> NDArray[np.float64]:
    """Return the distance of each row from each point.

    >>> distances([[0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]])
    array([[5., 1.]])
    """
    table, places = np.asarray(rows, dtype=np.float64), np.asarray(points, dtype=np.float64)
    total = np.zeros((len(table), len(places)))
    with np.errstate(over="ignore", invalid="ignore"):
        for column, ends in zip(table.T, places.T, strict=True):
            total += np.subtract.outer(column, ends) ** 2
    return np.sqrt(total)
