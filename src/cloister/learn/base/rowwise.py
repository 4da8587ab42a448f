"""Rows times weights, each row's result from that row alone, to the last bit.

A product of matrices rounds differently for three rows than for four. Where predictions are counted and the count is
released, that would let one person's row move another's across an edge, and a count by more than its sensitivity.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["distances", "weighted"]


def weighted(rows: ArrayLike, weights: ArrayLike) -> NDArray[np.float64]:
    """`rows @ weights`, added up column by column: cell by cell the same sums, whichever rows stand beside.

    >>> weighted([[1.0, 2.0], [3.0, 4.0]], [0.5, 0.25])
    array([1. , 2.5])
    """
    table, factors = np.asarray(rows, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    total = np.zeros((len(table), *factors.shape[1:]))
    with np.errstate(over="ignore", invalid="ignore"):  # a warning would tell of one row
        for column, factor in zip(table.T, factors, strict=True):
            total += np.multiply.outer(column, factor)
    return total


def distances(rows: ArrayLike, points: ArrayLike) -> NDArray[np.float64]:
    """How far each row is from each point.

    >>> distances([[0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]])
    array([[5., 1.]])
    """
    table, places = np.asarray(rows, dtype=np.float64), np.asarray(points, dtype=np.float64)
    total = np.zeros((len(table), len(places)))
    with np.errstate(over="ignore", invalid="ignore"):
        for column, ends in zip(table.T, places.T, strict=True):
            total += np.subtract.outer(column, ends) ** 2
    return np.sqrt(total)
