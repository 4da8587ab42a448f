"""Laplace noise for real numbers, exact on a grid."""

from dataclasses import dataclass
from typing import ClassVar

from cloister.privacy.mechanisms.discrete_laplace import DiscreteLaplace
from cloister.privacy.mechanisms.mechanism import register
from cloister.privacy.mechanisms.on_grid import OnGrid
from cloister.privacy.noise import Grid

__all__ = ["Laplace"]


@register
@dataclass(frozen=True, slots=True)
class Laplace(OnGrid):
    """Reals, summed on a public grid, plus discrete Laplace noise of the same grid.

    Textbook Laplace noise in floats reveals the true answer through its last bits (Mironov 2012). Here rows are
    rounded to the grid before they are summed, and noise is added to the integer.

    Args:
        steps: the mechanism in grid steps.
        grid: the grid of the values.

    Privacy: pure, for the stated loss and its relation; rounding is part of the sensitivity.

    >>> from cloister.privacy.loss import epsilon
    >>> laplace = Laplace.for_bounds(0, 5, epsilon(1))
    >>> total = laplace.grid.total(laplace.grid.encode([1.5, 7.0], 0, 5))
    >>> round(laplace.standard_error, 3), isinstance(laplace.release(total), float)
    (7.071, True)
    """

    name: ClassVar[str] = "laplace"
    law = DiscreteLaplace

    steps: DiscreteLaplace
    grid: Grid
