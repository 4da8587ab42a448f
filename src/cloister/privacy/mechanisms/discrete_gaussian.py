"""Discrete Gaussian noise: the zCDP mechanism for integers and integer vectors, and its calibration to a loss.

    classical     the textbook's formula, for the continuous normal law and epsilon < 1
    analytic      the least sigma for the continuous normal law, any epsilon (Balle & Wang 2018)
    concentrated  sigma = sensitivity / sqrt(2 rho): zCDP, the same for the normal and the discrete law, any dimension
    discrete      the least sigma we can prove for the discrete law on one integer

The first two are theorems about reals, for teaching; noise is drawn at sigmas of the last two. All round sigma up.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cloister.privacy import conversion, noise
from cloister.privacy.errors import BadInput, BadLoss
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.mechanism import IntegerNoise, register, same_neighbours, whole_error
from cloister.privacy.number import Number, root_above, rounded_down, rounded_up, show

__all__ = [
    "DiscreteGaussian",
    "analytic",
    "classical",
    "concentrated",
    "discrete",
    "discrete_delta",
    "gaussian_at_least",
    "normal_delta",
    "rho_of",
]


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
            return discrete_delta(steps, self.sigma, self.loss.amount) <= self.loss.delta
        return self._exact_rho() <= rho_of(self.loss)

    @property
    def _by_delta(self) -> bool:
        return self.scalar and self.loss.measure == "epsilon" and self.loss.delta > 0

    def _exact_rho(self) -> Fraction:
        return self.sensitivity**2 / (2 * self.sigma**2)

    @classmethod
    def for_loss(cls, sensitivity: Number, loss: Loss, *, scalar: bool = False) -> Self:
        """Return the mechanism with this loss: the least sigma that can be proved, rounded up."""
        calibrate = concentrated
        if scalar and isinstance(loss, Loss) and loss.measure == "epsilon":
            calibrate = discrete
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
        integers = checks.integers(matrix)
        if not isinstance(integers, np.ndarray) or integers.ndim != 2 or integers.shape[0] != integers.shape[1]:
            raise BadInput("a symmetric release needs a square matrix of integers.")
        upper = np.triu_indices(len(integers))
        noisy = self.release(integers[upper], source)
        answer = np.zeros(integers.shape, dtype=noisy.dtype)
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


def gaussian_at_least(k: NDArray[Any], sigma: float) -> NDArray[np.float64]:
    """Return Pr[noise >= k] for each whole k; for a large sigma an upper bound, that of k - 1 of the normal law.

    The bound: p falls away from zero, so for k >= 1 the sum from k on is at most the integral from k - 1 on, and for
    k <= 0 one minus the sum from 1 - k on is at most one minus the integral from there on. The divisor differs from
    that of the normal law by less than 1e-76.
    """
    if sigma > _DIRECT:
        from scipy.special import ndtr  # half of this package's import time, and seldom needed

        return np.asarray(np.minimum(ndtr((1 - k) / sigma) * (1 + 1e-12), 1.0))
    beyond = np.append(_tails(sigma), _tails(sigma)[-1])  # of 0, 1, …: the last one bounds all further ones
    far = np.abs(np.where(k > 0, k, 1 - k))
    tail = beyond[np.minimum(far - 1, len(beyond) - 1).astype(np.int64)]
    return np.asarray(np.where(k > 0, tail, 1 - tail * (1 - 3e-12)))


# Calibration to a loss

# Up to this sigma the exact sum is taken term by term; beyond, by integral with a bound on the difference.
_SUMMED = 4096
# Simpson's panels on an interval of length below 1: its relative error stays below 1e-9.
_PANELS = 8
# Below this, sums of doubles underflow, and a delta of zero would be claimed. `concentrated` works with rationals.
_LEAST_DELTA = Fraction(1, 10**299)


def classical(sensitivity: Number, loss: Loss) -> Fraction:
    """sigma = sensitivity · sqrt(2 ln(1.25/delta)) / epsilon, proved for epsilon < 1 only (Dwork & Roth 2014, A.1)."""
    size = checks.positive(sensitivity, "sensitivity")
    _in_doubles(loss, "the classical calibration")
    if loss.amount >= 1:
        raise BadLoss(f"the classical calibration is proved for epsilon below 1, got {loss}. Use analytic().")
    return rounded_up(size * Fraction(math.sqrt(2 * math.log(Fraction(5, 4) / loss.delta)) * (1 + 1e-14)) / loss.amount)


def analytic(sensitivity: Number, loss: Loss) -> Fraction:
    """Return the least sigma for which the continuous Gaussian mechanism is (epsilon, delta)-private.

    Delta falls as sigma grows, and the search keeps a sigma whose `normal_delta`, an upper bound, is within the loss.
    """
    size = checks.positive(sensitivity, "sensitivity")
    _in_doubles(loss, "the analytic calibration")
    epsilon, delta = _float_below(loss.amount), _float_below(loss.delta)
    low, high = 0.0, 1.0  # sigma in units of the sensitivity
    while normal_delta(high, epsilon) > delta:
        low, high = high, high * 2
    while high - low > high * 1e-14:
        middle = (low + high) / 2
        low, high = (low, middle) if normal_delta(middle, epsilon) <= delta else (middle, high)
    return rounded_up(Fraction(high) * size)


def normal_delta(sigma: float, epsilon: float) -> float:
    """Return the delta of continuous Gaussian noise at sensitivity 1, rounded up (Balle & Wang 2018, Thm 8).

    With u = 1/sigma, a = epsilon sigma - u/2, phi the normal density and R(x) = Pr[N > x]/phi(x) Mills' ratio,

        delta = Pr[N > a] - e^epsilon Pr[N > a + u] = phi(a) (R(a) - R(a + u))
              = phi(a) times the integral of -R' over [a, a + u].

    The difference cancels for small u, the integral does not. -R'(x) = 1 - x R(x) is completely monotone, so its fourth
    derivative is positive and Simpson's rule errs upwards. Both are upper bounds, and the smaller one is returned.
    `ndtr` and `erfcx` are assumed exact to 1e-13; tests/unit/privacy/test_mechanisms_numbers.py compares with mpmath.
    """
    from scipy.special import erfcx, ndtr  # half of this package's import time, and seldom needed

    # Delta grows with u and falls with a: round both to the side that makes it larger.
    u = math.nextafter(1 / sigma, math.inf)
    a = epsilon * sigma - u / 2
    a -= 2.0**-50 * (epsilon * sigma + u / 2)
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    near, far = float(ndtr(-a)), density * float(_mills(erfcx, a + u))
    delta = near - far + 1e-12 * (near + far)
    if u < 1:
        x = a + u * np.linspace(0, 1, 2 * _PANELS + 1)
        ratio = x * _mills(erfcx, x)
        weights = np.array([1.0] + [4.0, 2.0] * (_PANELS - 1) + [4.0, 1.0]) / (6 * _PANELS)
        delta = min(delta, density * u * float(weights @ (1 - ratio + 1e-12 * (1 + np.abs(ratio)))) * (1 + 1e-12))
    return delta + 1e-300


def _mills(erfcx: Callable[[Any], Any], x: Any) -> Any:
    """Mills' ratio Pr[N > x]/phi(x)."""
    return math.sqrt(math.pi / 2) * erfcx(np.asarray(x) / math.sqrt(2))


def _float_below(value: Fraction) -> float:
    """Return about the largest double that is not above the value; values beyond the doubles become 1e300."""
    near = float(min(value, Fraction(10) ** 300))
    return math.nextafter(near, 0.0) if Fraction(near) > value else near


def concentrated(sensitivity: Number, loss: Loss) -> Fraction:
    """Return sigma for a rho; for an (epsilon, delta), through the largest rho that implies it.

    Canonne, Kamath & Steinke 2020, Thm 14: discrete Gaussian noise on integer vectors of L2 sensitivity D is
    D²/(2 sigma²)-zCDP, exactly as the continuous law.
    """
    size = checks.positive(sensitivity, "sensitivity")
    return root_above(size * size / (2 * rho_of(loss)))


def discrete(sensitivity: Number, loss: Loss) -> Fraction:
    """Return a sigma for which discrete Gaussian noise on one integer is (epsilon, delta)-private.

    The search starts from the continuous sigma and grows until the exact delta of the discrete law is within the loss.
    """
    steps = math.floor(checks.positive(sensitivity, "sensitivity")) or 1  # a single integer moves by whole steps
    start, growth = analytic(steps, loss), Fraction(1, 10**9)
    sigma = start
    while discrete_delta(steps, sigma, loss.amount) > loss.delta:
        sigma, growth = rounded_up(start * (1 + growth)), growth * 2
    return sigma


def discrete_delta(sensitivity: int, sigma: Fraction, epsilon: Fraction) -> float:
    """Return the least delta of discrete Gaussian noise on one integer, rounded up.

    Canonne, Kamath & Steinke 2020, Thm 7: the sum over k of max(0, p(k) - e^epsilon p(k + sensitivity)), which is
    positive for k > a = epsilon sigma²/sensitivity - sensitivity/2. It grows with the sensitivity, as p is log-concave.
    """
    first = math.floor(epsilon * sigma**2 / sensitivity - Fraction(sensitivity, 2)) + 1
    s, e = float(sigma), float(epsilon)
    if s <= _SUMMED:
        return _sum(first, sensitivity, sigma, e)
    return _integral(float(first), sensitivity, s, e)


def _sum(first: int, sensitivity: int, sigma: Fraction, epsilon: float) -> float:
    s = float(sigma)
    last = max(first, 0) + math.ceil(12 * s) + 12
    first = max(first, -math.ceil(39 * s) - 39)  # below, the sum of p(k) is under 1e-300
    k = np.arange(first, last, dtype=np.float64)
    gain = epsilon - sensitivity * (2 * k + sensitivity) / (2 * s * s)
    weights = np.exp(-((k / s) ** 2) / 2)
    terms = weights * (1e-14 * (1 + epsilon) - np.expm1(np.minimum(gain, 0)))  # the gain is rounded, by less than that
    rest = math.exp(-((last / s) ** 2) / 2) * (1 + s * s / last)  # a geometric series above the tail
    return float((terms.sum() + rest) / _normaliser(s) * (1 + 1e-11) + 1e-300)


def _integral(first: float, sensitivity: int, s: float, epsilon: float) -> float:
    """Bound the sum by trapezoids.

    |sum - integral - g(first)/2| <= (1/8) · the variation of g' (Peano), g = p(x) - e^epsilon p(x+D).
    """
    near, far = (_log_below(-(first + shift) / s) for shift in (0, sensitivity))
    upper = math.exp(near)
    area = upper * -math.expm1(min(0.0, epsilon + far - near))
    density = math.exp(-((first / s) ** 2) / 2) / (s * math.sqrt(2 * math.pi))
    end = density * -math.expm1(min(0.0, epsilon - sensitivity * (2 * first + sensitivity) / (2 * s * s)))
    if first >= s:  # beyond its inflection p' is monotone and varies by |p'(first)|; and e^epsilon p(x+D) <= p(x)
        variation = density * (2 * first + sensitivity) / s**2
    else:  # over the whole line p' varies by four times its largest value
        variation = 4 * math.exp(-0.5) / math.sqrt(2 * math.pi) / s**2 * (1 + math.exp(min(epsilon, 700)))
    # Beyond `first` the integrand is positive, so the area is also at most that of the continuous law.
    area = min(area + 1e-12 * upper, normal_delta(s / sensitivity, epsilon))
    return area + end / 2 + variation / 8 + 1e-300


def _log_below(x: float) -> float:
    """ln Pr[standard normal <= x]."""
    from scipy.special import log_ndtr  # half of this package's import time, and seldom needed

    return float(log_ndtr(x))


def _normaliser(s: float) -> float:
    """Return the sum of e^(-k²/2s²). For s >= 3 it differs from s sqrt(2 pi) by less than 1e-76 (Poisson summation)."""
    if s >= 3:
        return s * math.sqrt(2 * math.pi)
    return 1 + 2 * float(np.exp(-((np.arange(1, 130) / s) ** 2) / 2).sum())


def rho_of(loss: Loss) -> Fraction:
    """Return the rho that Gaussian noise may have under this loss."""
    if not isinstance(loss, Loss):
        raise BadLoss(f"Gaussian noise needs a loss, got a {type(loss).__name__}. Write rho('0.1').")
    if loss.measure == "rho" and not loss.delta and loss.amount:
        return loss.amount
    _approximate(loss, "Gaussian noise")
    return conversion.rho_within(loss.amount, loss.delta)


def _in_doubles(loss: Loss, who: str) -> None:
    _approximate(loss, who)
    if loss.delta < _LEAST_DELTA:
        raise BadLoss(f"{who} needs a delta of at least 1e-299, got {show(loss.delta)}. Use a rho.")


def _approximate(loss: Loss, who: str) -> None:
    if not isinstance(loss, Loss) or loss.measure != "epsilon" or not loss.delta or not loss.amount:
        text = loss if isinstance(loss, Loss) else f"a {type(loss).__name__}"
        raise BadLoss(f"{who} needs an epsilon with a delta, or a plain rho, got {text}. Write rho('0.1').")
