"""Gradients of linear models in integers, each row's part clipped exactly.

A row's gradient is its residuals times itself, so its norm is the product of the two norms. Both are integers here: the
residuals are reduced until the product is within the bound, which is checked in integers. Margins are exact too:
weights are rounded to a grid that is fine enough to be negligible and coarse enough that every sum of products with a
row is an integer below 2^53. So the contribution of a row depends on that row alone.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.frame import Floats, shorten, squares
from cloister.learn.base.integer_rows import ROW_BITS, WEIGHT_BITS, ExactRows, Integers, on_grid
from cloister.learn.linear_model.loss_gradients import Residual

__all__ = ["ClippedRows"]

_BLOCK = 2**12  # rows that fit a core's cache while they are read twice
_MARGIN_BITS = 36  # of a column of weights; with the 2^15 of a row, margins stay below 2^52


class ClippedRows:
    """Private rows and classes, read inside the first step.

    Args:
        look: returns the scaled rows and their classes.
    """

    def __init__(self, look: Callable[[], tuple[Floats, NDArray[np.int64]]]) -> None:
        self._look = look
        self._found: tuple[Floats, NDArray[np.int64]] | None = None
        self._exact: ExactRows | None = None
        self._limits: dict[tuple[int, bool], Integers] = {}
        self._centre: Floats = np.zeros(0)
        self._stretch: Floats = np.zeros(0)
        self._constant = 0.0
        self.step = 1.0

    @property
    def rows(self) -> Floats:
        """Return the scaled rows."""
        return self._read()[0]

    def _read(self) -> tuple[Floats, NDArray[np.int64]]:
        if self._found is None:
            self._found = self._look()
        return self._found

    def centre(self, middle: Floats, stretch: Floats, constant: float, farthest: float) -> None:
        """Centre rows at a public point from now on, with each feature stretched and a constant as last feature."""
        self._centre, self._stretch, self._constant = middle, stretch, constant
        self._exact, self._limits = None, {}
        self.step = math.hypot(farthest, constant) / (2**ROW_BITS - 1)

    @property
    def features(self) -> int:
        """Return the number of features of a centred row, including the constant."""
        return len(self._centre) + 1

    @property
    def worth(self) -> float:
        """Return the real value of one in a gradient."""
        return float(self.step / 2**WEIGHT_BITS)

    @property
    def exact(self) -> ExactRows:
        """Return the centred rows as integers."""
        if self._exact is None:
            rows = self.rows
            cells = np.empty((len(rows), len(self._centre) + 1))
            cells[:, :-1] = on_grid((rows - self._centre) * (self._stretch / self.step), 2.0**ROW_BITS)
            cells[:, -1] = math.trunc(self._constant / self.step)
            self._exact = ExactRows(shorten(cells, 2**ROW_BITS), self.step, 2**ROW_BITS)
        return self._exact

    def bound(self, clip: float) -> int:
        """Return the clipping norm in integers, at most 2^31, so that its square fits into 64 bits."""
        return max(1, min(math.floor(clip / self.worth), 2**31))

    def gradient(self, weights: Floats, residual: Residual, bound: int, *, pure: bool) -> Integers:
        """Return the sum of the rows' clipped gradients: features × outputs.

        Privacy: a row adds at most `bound` in L2 (in L1 if pure), over all outputs together.
        """
        cells, labels, limits = self.exact.cells, self._read()[1], self._limit(bound, pure=pure)
        total = np.zeros((cells.shape[1], residual.outputs), dtype=np.int64)
        for start in range(0, len(cells), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows = cells[block]
            slopes = residual(self._margins(rows, weights), labels[block])
            parts = _clipped(slopes, limits[block], pure=pure)
            total += (rows.T @ parts).astype(np.int64)
        return total

    def margins(self, weights: Floats) -> Floats:
        """Return rows times weights, exact up to the grid of the weights."""
        return self._margins(self.exact.cells, weights)

    def _margins(self, cells: Floats, weights: Floats) -> Floats:
        longest = float(np.sqrt((weights**2).sum(axis=0)).max(initial=0.0))
        grid = 2.0 ** (_MARGIN_BITS - math.frexp(max(longest, 1e-9))[1] - 1)
        return np.asarray((cells @ np.rint(weights * grid)) * (self.step / grid))

    def _limit(self, bound: int, *, pure: bool) -> Integers:
        """Return the largest integer norm of each row's residuals whose product with the row is within the bound.

        Computed in integers: bound² is at most 2^62.
        """
        if (bound, pure) not in self._limits:
            if pure:
                limit = bound // np.maximum(np.abs(self.exact.cells).sum(axis=1), 1.0).astype(np.int64)
            else:
                length = np.maximum(squares(self.exact.cells), 1.0)
                limit = np.floor(bound / np.sqrt(length)).astype(np.int64)
                limit -= limit**2 * length.astype(np.int64) > bound**2
            self._limits[bound, pure] = limit
        return self._limits[bound, pure]


def _clipped(slopes: Floats, limits: Integers, *, pure: bool) -> Floats:
    """Clip each row's residuals to its limit, in integers."""
    integers, most = np.trunc(slopes * 2**WEIGHT_BITS), limits[:, None].astype(np.float64)
    if integers.shape[1] == 1:
        return np.asarray(np.clip(integers, -most, most))
    longest = np.abs(integers).sum(axis=1) if pure else np.sqrt(squares(integers))
    # Clip slightly below the bound, so that rounding of the factor cannot leave a gradient too long.
    factor = most / np.maximum(longest, 1.0)[:, None] * (1 - 1e-9)
    return np.asarray(np.where(factor < 1, np.trunc(integers * np.minimum(factor, 1.0)), integers))
