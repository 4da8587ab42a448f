"""Spherical noise with a Gamma radius: pure privacy in L2 norm, for lessons."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.mechanism import Numeric, Pure, register
from cloister.privacy.noise import SYSTEM, Source
from cloister.privacy.number import Number, rounded_up

__all__ = ["Vector"]


@register
@dataclass(frozen=True, slots=True)
class Vector(Pure, Numeric):
    """Reals plus noise b of density proportional to e^(-epsilon |b| / sensitivity), |b| the L2 norm.

    Chaudhuri, Monteleoni & Sarwate 2011. The length is Gamma(dimension, sensitivity/epsilon), the direction uniform.
    Independent Laplace noise of that scale on each coordinate, as sometimes printed, is not private.

    Args:
        sensitivity: the largest L2 distance between neighbours.
        loss: a pure epsilon, or a rho.
        dimension: number of coordinates.

    Privacy: pure in theory, for real numbers. This implementation adds floats: a ledger refuses it. Use
        `DiscreteGaussian`.
    """

    name: ClassVar[str] = "vector"
    textbook: ClassVar[bool] = True
    told: ClassVar[tuple[str, ...]] = ("sensitivity", "epsilon", "dimension")

    sensitivity: Fraction
    loss: Loss
    dimension: int

    def __post_init__(self) -> None:
        self._check()
        checks.count(self.dimension, "dimension")

    @classmethod
    def within(
        cls,
        error: Number,
        confidence: Number,
        sensitivity: Number,
        *,
        dimension: int,
        relation: str | Relation = Relation.ADD_REMOVE,
    ) -> Self:
        """Return the mechanism of least loss whose noise has length at most `error` with this confidence."""
        c, size = float(checks.probability(confidence, "confidence")), checks.positive(sensitivity, "sensitivity")
        radius = Fraction(_length(checks.count(dimension, "dimension"), c) * (1 + 1e-12))
        amount = rounded_up(radius * size / checks.positive(error, "error"))
        return cls(size, Loss("epsilon", amount, relation=Relation.of(relation)), dimension)

    @property
    def scale(self) -> Fraction:
        """sensitivity / epsilon."""
        return self.sensitivity / self.epsilon

    @property
    def variance(self) -> float:
        """Variance of the noise on one coordinate: (dimension + 1) scale²."""
        return (self.dimension + 1) * float(self.scale) ** 2

    def quantile(self, p: Number) -> float:
        """Return the p-quantile of the length of the noise."""
        return _length(self.dimension, float(checks.probability(p, "p"))) * float(self.scale)

    def margin(self, confidence: Number) -> float:
        """Return the radius of a ball around the release that contains the true vector with this confidence."""
        return self.quantile(confidence)

    def release(self, statistic: Any, source: Source | None = None) -> NDArray[np.float64]:
        """Return the vector with noise. For lessons only, never for real data: see the class."""
        given = np.asarray(statistic, dtype=np.float64)
        if given.shape != (self.dimension,):
            raise BadInput(f"this mechanism was made for {self.dimension} coordinates in one row.")
        radial, angle, exponential = (source or SYSTEM).floats((3, self.dimension))
        direction = np.sqrt(-2 * np.log(radial)) * np.cos(2 * np.pi * angle)  # Box & Muller: normal, so no direction
        length = -np.log(exponential).sum() * float(self.scale)  # a sum of exponentials is Gamma
        return np.asarray(given + direction / np.linalg.norm(direction) * length)


def _length(dimension: int, p: float) -> float:
    """Return the p-quantile of Gamma(dimension)."""
    from scipy.special import gammaincinv  # half of this package's import time, and seldom needed

    return float(gammaincinv(dimension, p))
