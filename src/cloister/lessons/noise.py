"""Continuous noise of textbooks: the staircase, and spherical noise with a Gamma radius. Every ledger refuses it.

Both are drawn in floats, whose gaps reveal values (docs/decisions/0001). For people, use the discrete mechanisms of
`cloister.privacy.mechanisms`.

Falls to: `attack.mechanisms.floating.guess`, which reads the answer off the last bits.
"""

import math
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

__all__ = ["Staircase", "Vector"]


@register
@dataclass(frozen=True, slots=True)
class Staircase(Pure, Numeric):
    """Add noise to a real, with a density that falls in steps, by e^(-epsilon) every `sensitivity`.

    Geng & Viswanath 2014. The first step of each stair has a share gamma = 1/(1 + e^(epsilon/2)) of its width, which
    minimises the expected absolute noise.

    Args:
        sensitivity: the largest distance between neighbours.
        loss: a pure epsilon, or a rho.

    Privacy: pure in theory, for real numbers. This implementation adds floats: a ledger refuses it. Use `Laplace`.
    """

    name: ClassVar[str] = "staircase"
    textbook: ClassVar[bool] = True

    sensitivity: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        self._check()

    @classmethod
    def within(
        cls, error: Number, confidence: Number, sensitivity: Number, relation: str | Relation = Relation.ADD_REMOVE
    ) -> Self:
        """Return the mechanism of least loss whose noise is at most `error` with this confidence."""
        most, size = float(checks.positive(error, "error")), checks.positive(sensitivity, "sensitivity")
        low, high = 1e-9, 1e9
        for _ in range(200):
            middle = math.sqrt(low * high)
            near = cls(size, Loss("epsilon", Fraction(middle))).margin(confidence) <= most
            low, high = (low, middle) if near else (middle, high)
        return cls(size, Loss("epsilon", rounded_up(high * (1 + 1e-12)), relation=Relation.of(relation)))

    @property
    def gamma(self) -> float:
        """Width of the first step."""
        return 1 / (1 + math.exp(min(float(self.epsilon) / 2, 700)))

    @property
    def _shape(self) -> tuple[float, float, float]:
        """The fall b = e^(-epsilon), the width gamma, and the probability of the higher step of a stair."""
        b, g = math.exp(-float(self.epsilon)), self.gamma
        return b, g, g / (g + (1 - g) * b)

    def density(self, x: Any) -> NDArray[np.float64]:
        """Density of the noise at x."""
        b, g, _ = self._shape
        stair, part = np.divmod(np.abs(np.asarray(x, dtype=np.float64)) / float(self.sensitivity), 1)
        top = (1 - b) / (2 * float(self.sensitivity) * (g + b * (1 - g)))
        return np.asarray(top * b ** (stair + (part >= g)))

    @property
    def variance(self) -> float:
        """Variance of the noise: whole stairs are geometric, the rest uniform on one of two steps."""
        b, g, high = self._shape
        mean, square = b / (1 - b), b * (1 + b) / (1 - b) ** 2
        first = square + mean * g + g * g / 3
        second = square + mean * (1 + g) + (1 + g + g * g) / 3
        return float(self.sensitivity) ** 2 * (high * first + (1 - high) * second)

    def quantile(self, p: Number) -> float:
        """Return the p-quantile of the noise."""
        exact = checks.probability(p, "p")
        side = 2 * exact - 1
        return math.copysign(self.margin(abs(side)), side) if side else 0.0

    def margin(self, confidence: Number) -> float:
        """Return the bound on the absolute noise with this probability."""
        b, g, high = self._shape
        left = 1 - checks.probability(confidence, "confidence")  # Pr[noise beyond k stairs] = b^k
        stairs = math.floor(-math.log(left) / float(self.epsilon))
        inside = min(1.0, (1 - float(left) / b**stairs) / (1 - b))  # of the stair where it ends
        within = g * inside / high if inside <= high else g + (1 - g) * (inside - high) / (1 - high)
        return float(self.sensitivity) * (stairs + within)

    def release(self, statistic: Any, source: Source | None = None) -> Any:
        """Return the statistic with noise. For lessons only, never for real data: see the class."""
        exact = np.asarray(statistic, dtype=np.float64)
        _, g, high = self._shape
        sign, whole, step, part = (source or SYSTEM).floats((4, *exact.shape))
        stairs = np.floor(-np.log(whole) / float(self.epsilon))
        rest = np.where(step < high, g * part, g + (1 - g) * part)
        noisy = exact + np.where(sign < 0.5, -1, 1) * float(self.sensitivity) * (stairs + rest)
        return noisy if exact.ndim else float(noisy)


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
        exact = np.asarray(statistic, dtype=np.float64)
        if exact.shape != (self.dimension,):
            raise BadInput(f"this mechanism was made for {self.dimension} coordinates in one row.")
        radial, angle, exponential = (source or SYSTEM).floats((3, self.dimension))
        direction = np.sqrt(-2 * np.log(radial)) * np.cos(2 * np.pi * angle)  # Box & Muller: normal, so no direction
        length = -np.log(exponential).sum() * float(self.scale)  # a sum of exponentials is Gamma
        return np.asarray(exact + direction / np.linalg.norm(direction) * length)


def _length(dimension: int, p: float) -> float:
    """Return the p-quantile of Gamma(dimension)."""
    from scipy.special import gammaincinv  # half of this package's import time, and seldom needed

    return float(gammaincinv(dimension, p))
