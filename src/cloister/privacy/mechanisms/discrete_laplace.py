"""Two-sided geometric noise: the pure mechanism for counts, histograms and other integers."""

import math
from dataclasses import dataclass
from decimal import localcontext
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cloister.privacy import noise
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.mechanism import IntegerNoise, Pure, pure_curve, register, whole_error
from cloister.privacy.number import DIGITS, Number, decimal, rounded_up, short_above

__all__ = ["DiscreteLaplace", "laplace_at_least", "laplace_at", "laplace_beyond", "laplace_rate"]


@register
@dataclass(frozen=True, slots=True)
class DiscreteLaplace(Pure, IntegerNoise):
    """Integers plus noise k of probability proportional to e^(-|k| epsilon / sensitivity).

    Ghosh, Roughgarden & Sundararajan 2009. Better than rounding Laplace noise, and exact.

    Args:
        sensitivity: the largest L1 distance between neighbours; a whole number.
        loss: a pure epsilon, or a rho (epsilon = sqrt(2 rho), rounded down).

    Privacy: pure, for the stated loss and its relation.

    >>> from cloister.privacy.loss import epsilon
    >>> count = DiscreteLaplace.for_loss(1, epsilon("0.1"))
    >>> count.scale, round(count.standard_error, 2), count.margin("0.95")
    (Fraction(10, 1), 14.14, 30)
    """

    name: ClassVar[str] = "discrete-laplace"
    told: ClassVar[tuple[str, ...]] = ("sensitivity", "epsilon", "scale")

    sensitivity: int
    loss: Loss

    def __post_init__(self) -> None:
        self._check(whole=True)

    @classmethod
    def within(
        cls, error: Number, confidence: Number, sensitivity: Number, relation: str | Relation = Relation.ADD_REMOVE
    ) -> Self:
        """Return the mechanism of least loss whose noise on one number is at most `error` with this confidence."""
        steps = checks.whole(sensitivity, "sensitivity")
        rate = laplace_rate(whole_error(error), checks.confidence_left(confidence) / 2)
        amount = rounded_up(Fraction(rate) * steps)
        return cls(steps, Loss("epsilon", amount, relation=Relation.of(relation)))

    @property
    def scale(self) -> Fraction:
        """sensitivity / epsilon; rounded up if its terms are too long to sample quickly."""
        return short_above(self.sensitivity / self.epsilon)

    @property
    def variance(self) -> float:
        """Variance of the noise on one number: 2q/(1-q)² with q = e^(-1/scale)."""
        x = float(1 / self.scale)
        return 2 * math.exp(-x) / math.expm1(-x) ** 2

    def beyond(self, beta: Fraction) -> int:
        """Return the smallest k >= 0 with Pr[noise > k] <= beta."""
        return laplace_beyond(self.scale, beta)

    def draw(self, shape: tuple[int, ...] | None, source: noise.Source | None) -> Any:
        """Draw noise of this shape."""
        return noise.discrete_laplace(self.scale, shape, source)

    def rdp(self, alpha: float) -> float:
        """Return the Rényi divergence of order alpha, exact for the discrete law and rounded up.

        With q = e^(-1/scale) and neighbours d apart, e^((alpha-1) D) = A q^((1-alpha) d) + (1-A) q^(alpha d), where
        A = (1 - q^(2 alpha)) / ((1+q)(1 - q^(2 alpha - 1))) is in (0, 1): sum the three parts of the line. It is
        log-convex in d and 1 at d = 0, so of all vectors of one L1 norm the worst moves a single coordinate.
        The limit of large scales is that of Mironov 2017, Prop. 6.
        """
        alpha, x, epsilon = checks.order(alpha), float(1 / self.scale), float(self.epsilon)
        a = math.expm1(-2 * alpha * x) / ((1 + math.exp(-x)) * math.expm1(-(2 * alpha - 1) * x))
        if (alpha - 1) * epsilon > 1:
            log_moment = (alpha - 1) * epsilon + math.log(a + (1 - a) * math.exp(-(2 * alpha - 1) * epsilon))
            slack = 1e-14 * (alpha - 1) * epsilon + 1e-15
        else:
            rise, fall = a * math.expm1((alpha - 1) * epsilon), (1 - a) * math.expm1(-alpha * epsilon)
            slack = 1e-14 * (rise - fall) + 1e-15 * alpha * epsilon  # the two nearly cancel
            log_moment = math.log1p(max(0.0, rise + fall))
        return min(pure_curve(epsilon, alpha), (log_moment + slack) / (alpha - 1))


def laplace_beyond(scale: Fraction, beta: Fraction) -> int:
    """Return the smallest k >= 0 with Pr[noise > k] = q^(k+1)/(1+q) <= beta, q = e^(-1/scale)."""
    with localcontext() as context:
        size = decimal(scale)
        context.prec = DIGITS + max(0, size.adjusted())
        tail = size * (1 / ((1 + (-1 / size).exp()) * decimal(beta))).ln()
        return max(0, int(tail.to_integral_value("ROUND_CEILING")) - 1)


def laplace_rate(k: int, beta: Fraction) -> float:
    """Return the smallest 1/scale with Pr[noise > k] <= beta, rounded up."""
    log_beta = float(decimal(beta).ln())
    low, high = 0.0, (1 - log_beta) / (k + 1)
    for _ in range(200):
        middle = (low + high) / 2
        if -(k + 1) * middle - math.log1p(math.exp(-middle)) <= log_beta:
            high = middle
        else:
            low = middle
    return high * (1 + 1e-12)


def laplace_at(k: NDArray[Any], scale: float) -> NDArray[np.float64]:
    """Return Pr[noise = k] for each k."""
    return np.asarray(math.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale))


def laplace_at_least(k: NDArray[Any], scale: float) -> NDArray[np.float64]:
    """Return Pr[noise >= k] for each k; by symmetry Pr[noise < k] is that of 1 - k."""
    tail = np.exp(-np.abs(np.where(k > 0, k, 1 - k)) / scale) / (1 + math.exp(-1 / scale))
    return np.asarray(np.where(k > 0, tail, 1 - tail))
