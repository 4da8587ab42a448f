"""Integer noise on a grid, in the units of real values: Laplace and Gaussian noise for real numbers, exact."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

from cloister.privacy.errors import BadInput, BadLoss
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from cloister.privacy.mechanisms.discrete_laplace import DiscreteLaplace
from cloister.privacy.mechanisms.mechanism import Numeric, register
from cloister.privacy.noise import Grid, Source
from cloister.privacy.noise.grid import read_bounds
from cloister.privacy.number import Number

__all__ = ["Gaussian", "Laplace", "OnGrid"]


class OnGrid(Numeric):
    """A mechanism on grid steps, whose answers and errors are in the units of the values."""

    __slots__ = ()
    textbook: ClassVar[bool] = False
    law: ClassVar[type[DiscreteLaplace] | type[DiscreteGaussian]]
    steps: DiscreteLaplace | DiscreteGaussian
    grid: Grid

    @classmethod
    def for_bounds(cls, lower: Number, upper: Number, loss: Loss, *, rows: int = 1, **more: Any) -> Self:
        """Return the mechanism for a sum of values clipped to the bounds, with at most `rows` per unit.

        The sensitivity is exact. With one row, a replaced unit leaves one row. With several, it may be replaced by a
        unit of fewer rows, so that its sum can also fall to zero: then the range from lower to upper is not enough.
        """
        if not isinstance(loss, Loss):
            raise BadLoss(f"{cls.__name__} needs a loss, got a {type(loss).__name__}. Write epsilon(1) or rho('0.1').")
        low, high = read_bounds(lower, upper)
        if checks.count(rows, "rows") > 1:
            low, high = min(low, Fraction(0)), max(high, Fraction(0))
        reach = high - low if loss.relation is Relation.REPLACE_ONE else max(abs(low), abs(high))
        grid = Grid.for_scale(reach, lower, upper)
        steps = grid.sensitivity(low, high, loss.relation) * rows
        return cls(cls.law.for_loss(steps, loss, **more), grid)  # type: ignore[call-arg]

    @classmethod
    def for_loss(
        cls, sensitivity: Number, loss: Loss, *, grid: Grid | None = None, roundings: int = 1, **more: Any
    ) -> Self:
        """Return the mechanism with this loss.

        Args:
            sensitivity: the largest distance between neighbours, a positive real (L1 for Laplace, L2 for Gaussian).
            loss: the loss.
            grid: chosen from the sensitivity unless given.
            roundings: number of rounded numbers of one unit: its rows times the coordinates.
            more: further arguments of the mechanism on the integers.
        """
        steps, grid = _steps(sensitivity, grid, roundings)
        return cls(cls.law.for_loss(steps, loss, **more), grid)  # type: ignore[call-arg]

    @classmethod
    def within(
        cls, error: Number, confidence: Number, sensitivity: Number, relation: str | Relation = Relation.ADD_REMOVE
    ) -> Self:
        """Return the mechanism of least loss whose noise on one number is at most `error` with this confidence."""
        steps, grid = _steps(sensitivity, None, 1)
        most = checks.positive(error, "error") / grid.step
        return cls(cls.law.within(most, confidence, steps, relation), grid)  # type: ignore[call-arg]

    @property
    def loss(self) -> Loss:
        """The stated loss."""
        return self.steps.loss

    @property
    def relation(self) -> Relation:
        """The neighbour relation of the loss."""
        return self.steps.relation

    @property
    def pure(self) -> Loss | None:
        """The loss as a pure epsilon, if it has one."""
        return self.steps.pure

    @property
    def zcdp(self) -> Loss:
        """The loss as a rho."""
        return self.steps.zcdp

    def rdp(self, alpha: float) -> float:
        """The Rényi divergence of order alpha: that of the discrete law on the grid."""
        return self.steps.rdp(alpha)

    @property
    def variance(self) -> float:
        """Variance of the noise on one number."""
        return self.steps.variance * float(self.grid.step) ** 2

    def quantile(self, p: Number) -> float:
        """Return the smallest grid value with Pr[noise <= value] >= p."""
        return float(self.steps.quantile(p) * self.grid.step)

    def margin(self, confidence: Number) -> float:
        """Return the smallest grid bound on the absolute noise, with at least this probability."""
        return float(self.steps.margin(confidence) * self.grid.step)

    def release(self, statistic: Any, source: Source | None = None) -> Any:
        """Return the statistic with noise, as floats.

        Args:
            statistic: grid integers, from `grid.total(grid.encode(values, lower, upper))`.
            source: the source of random bits; the operating system's unless given.

        Privacy: the loss of the mechanism. Noise is added to integers; floats appear only afterwards.
            Audited in tests/statistical/test_mechanism_audits.py.
        """
        return self.grid.decode(self.steps.release(statistic, source))

    def parameters(self) -> dict[str, str]:
        """Public, exact parameters for a receipt; the sensitivity and the noise in grid steps."""
        return {**self.steps.parameters(), "step": str(self.grid.step)}


def _steps(sensitivity: Number, grid: Grid | None, roundings: int) -> tuple[int, Grid]:
    """Return a sensitivity in whole grid steps. Rounding moves a number by half a step, so a difference by one step."""
    size = checks.positive(sensitivity, "sensitivity")
    used_grid = Grid.for_scale(size, -size, size) if grid is None else grid
    if not isinstance(used_grid, Grid):
        raise BadInput(f"grid must be a Grid, got a {type(used_grid).__name__}.")
    return math.ceil(size / used_grid.step) + checks.count(roundings, "roundings"), used_grid


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
