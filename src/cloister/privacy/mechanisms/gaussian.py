"""Gaussian noise for real numbers, exact on a grid."""

from dataclasses import dataclass
from typing import ClassVar

from cloister.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from cloister.privacy.mechanisms.mechanism import register
from cloister.privacy.mechanisms.on_grid import OnGrid
from cloister.privacy.noise import Grid

__all__ = ["Gaussian"]


@register
@dataclass(frozen=True, slots=True)
class Gaussian(OnGrid):
    """Reals, summed on a public grid, plus discrete Gaussian noise of the same grid.

    Args:
        steps: the mechanism in grid steps.
        grid: the grid of the values.

    Privacy: the stated rho or (epsilon, delta), for its relation; rounding is part of the sensitivity.

    >>> from cloister.privacy.loss import epsilon, rho
    >>> round(Gaussian.for_loss(1, rho("0.5")).standard_error, 4)
    1.0
    >>> round(Gaussian.for_loss(1, epsilon(1, delta="1e-5"), scalar=True).standard_error, 2)
    3.73
    """

    name: ClassVar[str] = "gaussian"
    law = DiscreteGaussian

    steps: DiscreteGaussian
    grid: Grid
