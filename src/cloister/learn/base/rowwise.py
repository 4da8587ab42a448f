"""Rows times weights, computed for each row from that row alone, to the last bit.

A matrix product may round differently for three rows than for four. Where predictions are counted and the count is
released, one person's row could then move another row's prediction, and a count by more than its sensitivity.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["distances", "weighted"]


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
