"""Discrete Gaussian noise: the zCDP mechanism for integers and integer vectors."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cloister.privacy import noise
from cloister.privacy.errors import BadInput, BadLoss
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import calibration, checks
from cloister.privacy.mechanisms.additive import IntegerNoise, whole_error
from cloister.privacy.mechanisms.mechanism import register
from cloister.privacy.mechanisms.sensitivity import same_neighbours
from cloister.privacy.number import Number, rounded_down, rounded_up

__all__ = ["DiscreteGaussian"]

# Beyond this sigma tails come from the normal law. The midpoint rule is then off by at most (1/8) of the variation of
# the density's derivative, 0.121/sigma² < 1e-9; beyond one sigma the density is convex and the error conservative.
_DIRECT = 2**14
_ALLOWANCE = 1e-9
_NORMAL = NormalDist()


@register
@dataclass(frozen=True, slots=True)
class DiscreteGaussian(IntegerNoise):
    """Integers plus noise k of probability proportional to e^(-k²/(2 sigma²)).

    Canonne, Kamath & Steinke 2020. Made with `for_loss` or `within`; the constructor checks that the claim holds.

    Args:
        sensitivity: the largest L2 distance between neighbours. `root_above(2)` is a square root, rounded up.
        sigma: the exact rational that is sampled.
        loss: a rho, or an (epsilon, delta).
        scalar: True if single integers are released, never vectors, so that the exact delta may be claimed;
            a vector's (epsilon, delta) comes from its rho.

    Privacy: rho = sensitivity²/(2 sigma²) zCDP; an (epsilon, delta) for the stated loss. Not pure.

    >>> from cloister.privacy.loss import rho
    >>> DiscreteGaussian.for_loss(1, rho("0.02")).sigma
    Fraction(5, 1)
    """

    name: ClassVar[str] = "discrete-gaussian"
    textbook: ClassVar[bool] = False

    sensitivity: Fraction
    sigma: Fraction
    loss: Loss
    scalar: bool = False

    def __post_init__(self) -> None:
        same_neighbours(self.sensitivity, self.loss)
        object.__setattr__(self, "sensitivity", checks.positive(self.sensitivity, "sensitivity"))
        object.__setattr__(self, "sigma", checks.positive(self.sigma, "sigma"))
        if not self._holds():
            raise BadLoss(f"noise of this sigma costs more than {self.loss}. Use DiscreteGaussian.for_loss().")

    def _holds(self) -> bool:
        """Return True if the stated loss can be proved."""
        if self._by_delta:
            steps = math.floor(self.sensitivity) or 1
            return calibration.discrete_delta(steps, self.sigma, self.loss.amount) <= self.loss.delta
        return self._exact_rho() <= calibration.rho_of(self.loss)

    @property
    def _by_delta(self) -> bool:
        return self.scalar and self.loss.measure == "epsilon" and self.loss.delta > 0

    def _exact_rho(self) -> Fraction:
        return self.sensitivity**2 / (2 * self.sigma**2)

    @classmethod
    def for_loss(cls, sensitivity: Number, loss: Loss, *, scalar: bool = False) -> Self:
        """Return the mechanism with this loss: the least sigma that can be proved, rounded up."""
        calibrate = calibration.concentrated
        if scalar and isinstance(loss, Loss) and loss.measure == "epsilon":
            calibrate = calibration.discrete
        return cls(sensitivity, calibrate(sensitivity, loss), loss, scalar)  # type: ignore[arg-type]

    @classmethod
    def within(
        cls, error: Number, confidence: Number, sensitivity: Number, relation: str | Relation = Relation.ADD_REMOVE
    ) -> Self:
        """Return the mechanism of least rho whose noise on one number is at most `error` with this confidence."""
        beta = checks.confidence_left(confidence) / 2
        size, k = checks.positive(sensitivity, "sensitivity"), whole_error(error)
        low, high = 0.0, k + 1.0
        while _beyond(high, beta) <= k:
            low, high = high, high * 2
        while high - low > high * 1e-13:
            middle = (low + high) / 2
            low, high = (middle, high) if _beyond(middle, beta) <= k else (low, middle)
        sigma = rounded_down(low)
        return cls(size, sigma, Loss("rho", rounded_up(size**2 / (2 * sigma**2)), relation=Relation.of(relation)))

    @property
    def relation(self) -> Relation:
        """The neighbour relation of the loss."""
        return self.loss.relation

    @property
    def pure(self) -> None:
        """Gaussian noise has no pure guarantee."""
        return None

    @property
    def zcdp(self) -> Loss:
        """The loss as a rho; if an (epsilon, delta) was stated, from sigma, rounded up in the twelfth digit."""
        if self.loss.measure == "rho":
            return self.loss
        return Loss("rho", rounded_up(self._exact_rho()), relation=self.relation)

    def rdp(self, alpha: float) -> float:
        """The Rényi divergence of order alpha: alpha · sensitivity²/(2 sigma²)."""
        return math.nextafter(checks.order(alpha) * float(self._exact_rho()) * (1 + 1e-15), math.inf)

    @property
    def variance(self) -> float:
        """Variance of the noise on one number: at most sigma², and within 1e-70 of it from sigma = 3 on."""
        s = float(self.sigma)
        if s >= 3:
            return s * s
        squares = np.arange(1, 130, dtype=np.float64) ** 2
        weights = np.exp(-squares / (2 * s * s))
        return float(2 * (squares * weights).sum() / (1 + 2 * weights.sum()))

    def beyond(self, beta: Fraction) -> int:
        """Return the smallest k >= 0 with Pr[noise > k] <= beta (for a large sigma, to within 1e-9)."""
        return _beyond(float(self.sigma), beta)

    def draw(self, shape: tuple[int, ...] | None, source: noise.Source | None) -> Any:
        """Draw noise of this shape."""
        if self.scalar and shape is not None and math.prod(shape) > 1:
            raise BadInput("this loss was stated for a single number. For vectors leave scalar=True out.")
        return noise.discrete_gaussian(self.sigma, shape, source)

    def release_symmetric(self, matrix: Any, source: noise.Source | None = None) -> NDArray[Any]:
        """Return a symmetric integer matrix, such as a scatter matrix on a grid, with symmetric noise.

        Privacy: the loss of the mechanism, if neighbours differ by at most `sensitivity` in the L2 norm of the upper
            triangle with its diagonal (the Frobenius norm of the whole is never smaller).
        """
        given = checks.integers(matrix)
        if not isinstance(given, np.ndarray) or given.ndim != 2 or given.shape[0] != given.shape[1]:
            raise BadInput("a symmetric release needs a square matrix of integers.")
        upper = np.triu_indices(len(given))
        noisy = self.release(given[upper], source)
        answer = np.zeros(given.shape, dtype=noisy.dtype)
        answer[upper] = noisy
        answer.T[upper] = noisy
        return answer

    def parameters(self) -> dict[str, str]:
        """Public, exact parameters for a receipt."""
        proof = "exact delta" if self._by_delta else "zCDP"
        return {"sensitivity": str(self.sensitivity), "sigma": str(self.sigma), "proof": proof}


def _beyond(sigma: float, beta: Fraction) -> int:
    """Return the smallest k >= 0 with Pr[noise > k] <= beta."""
    if sigma <= _DIRECT:
        tails = _tails(sigma)
        k = len(tails) - int(np.searchsorted(tails[::-1], float(beta), side="right"))
        if k < len(tails):
            return k
    # Pr[noise > k] <= Q((k + 1/2)/sigma): the density is convex there and the discrete law's divisor is not smaller.
    z = -_NORMAL.inv_cdf(float(beta))
    if z < 1:
        z = -_NORMAL.inv_cdf(float(beta) - _ALLOWANCE)
    return max(0, math.ceil(Fraction(z * (1 + 1e-12)) * Fraction(sigma) - Fraction(1, 2)))


@lru_cache(maxsize=4)
def _tails(sigma: float) -> NDArray[np.float64]:
    """Return Pr[noise > k] for k = 0, 1, … up to twelve sigma, summed from the far end and rounded up."""
    weights = np.exp(-((np.arange(math.ceil(15 * sigma) + 15) / sigma) ** 2) / 2)
    above = np.cumsum(weights[::-1])[::-1]
    return np.asarray(above[1 : math.ceil(12 * sigma) + 12] / (2 * above[0] - 1) * (1 + 1e-12))
