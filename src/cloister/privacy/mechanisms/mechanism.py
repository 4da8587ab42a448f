"""The mechanism protocol: a stated loss, its conversions, and public parameters; and the bases that mechanisms share.

`Pure` converts a pure loss, `Numeric` and `IntegerNoise` state the error of additive noise and release it on integers,
`Sensitivity` carries its neighbour relation.
"""

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadNumber, RelationMismatch
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import checks
from cloister.privacy.noise import Source
from cloister.privacy.number import Number, rational, root_below, show

__all__ = [
    "REGISTRY",
    "IntegerNoise",
    "Mechanism",
    "Numeric",
    "Pure",
    "Sensitivity",
    "epsilon_of",
    "pure_curve",
    "register",
    "same_neighbours",
    "whole_error",
]


@runtime_checkable
class Mechanism(Protocol):
    """The interface of every mechanism, as ledgers and accountants use it."""

    name: ClassVar[str]
    textbook: ClassVar[bool]

    @property
    def relation(self) -> Relation:
        """The neighbour relation of the loss."""

    @property
    def loss(self) -> Loss:
        """The stated loss."""

    @property
    def pure(self) -> Loss | None:
        """The loss as a pure epsilon, if it has one."""

    @property
    def zcdp(self) -> Loss | None:
        """The loss as a rho, if it has one."""

    def rdp(self, alpha: float) -> float:
        """An upper bound on the Rényi divergence of order alpha > 1 between neighbours."""

    def parameters(self) -> dict[str, str]:
        """Public, exact parameters for a receipt."""

    def release(self, statistic: Any, source: Source | None = None) -> Any:
        """Return the statistic with noise, or the choice made from it."""


REGISTRY: dict[str, type] = {}
_Kind = TypeVar("_Kind", bound=type)


def register(kind: _Kind) -> _Kind:
    """Register a mechanism under its name; a class decorator."""
    REGISTRY[kind.name] = kind  # type: ignore[attr-defined]
    return kind


class Pure:
    """A pure mechanism that states its loss as epsilon or rho; the other is derived, rounded conservatively."""

    __slots__ = ()
    name: ClassVar[str]
    textbook: ClassVar[bool] = False
    told: ClassVar[tuple[str, ...]] = ("sensitivity", "epsilon")
    loss: Loss

    @classmethod
    def for_loss(cls, sensitivity: Number, loss: Loss, **more: Any) -> Self:
        """Return the mechanism with this loss, where neighbours differ by at most `sensitivity`."""
        return cls(sensitivity=sensitivity, loss=loss, **more)  # type: ignore[call-arg]

    def _check(self, *, whole: bool = False) -> None:
        """Check and convert the fields of every pure mechanism."""
        same_neighbours(self.sensitivity, self.loss)  # type: ignore[attr-defined]
        read = checks.whole if whole else checks.positive
        object.__setattr__(self, "sensitivity", read(self.sensitivity, "sensitivity"))  # type: ignore[attr-defined]
        checks.pure_or_rho(self.loss, self.name)
        checks.positive(self.sensitivity / self.epsilon, "sensitivity / epsilon")  # type: ignore[attr-defined]

    @property
    def _curvature(self) -> int:
        """The c of rho = epsilon²/c. Two holds for every pure mechanism (Bun & Steinke 2016, Prop. 1.4)."""
        return 2

    @property
    def relation(self) -> Relation:
        """The neighbour relation of the loss."""
        return self.loss.relation

    @property
    def epsilon(self) -> Fraction:
        """The pure epsilon of the noise."""
        return epsilon_of(self.loss, self._curvature)

    @property
    def pure(self) -> Loss:
        """The loss as a pure epsilon."""
        return Loss("epsilon", self.epsilon, relation=self.relation)

    @property
    def zcdp(self) -> Loss:
        """The loss as a rho."""
        if self.loss.measure == "rho":
            return self.loss
        return Loss("rho", self.epsilon**2 / self._curvature, relation=self.relation)

    def rdp(self, alpha: float) -> float:
        """An upper bound on the Rényi divergence of order alpha between neighbours."""
        alpha, epsilon = checks.order(alpha), float(self.epsilon)
        return min(pure_curve(epsilon, alpha), alpha * epsilon**2 / self._curvature * (1 + 1e-12))

    def parameters(self) -> dict[str, str]:
        """Public, exact parameters for a receipt."""
        return {name.replace("_", " "): str(getattr(self, name)).lower() for name in self.told}


def epsilon_of(loss: Loss, curvature: int = 2) -> Fraction:
    """Return the pure epsilon that a stated epsilon or rho allows, where rho = epsilon²/curvature."""
    return loss.amount if loss.measure == "epsilon" else root_below(loss.amount * curvature)


def pure_curve(epsilon: float, alpha: float) -> float:
    """Return the Rényi divergence of randomised response, which no epsilon-private mechanism exceeds.

    Any pure pair of output laws is a post-processing of that of randomised response (Kairouz, Oh & Viswanath 2015).
    The divergence is ln(cosh((alpha - 1/2) epsilon) / cosh(epsilon/2)) / (alpha - 1), rounded up.
    """
    if alpha * epsilon > 600:
        log_cosh = [x + math.log1p(math.exp(-2 * x)) for x in ((alpha - 0.5) * epsilon, epsilon / 2)]
        value = (log_cosh[0] * (1 + 1e-15) - log_cosh[1]) / (alpha - 1)
    else:  # cosh a - cosh b as a product, so that nothing cancels
        rise = 2 * math.sinh(alpha * epsilon / 2) * math.sinh((alpha - 1) * epsilon / 2) / math.cosh(epsilon / 2)
        value = math.log1p(rise) / (alpha - 1)
    return min(epsilon, value * (1 + 1e-12)) * (1 + 1e-15)


# Additive noise


class Numeric:
    """A mechanism that adds noise to numbers and states its error."""

    __slots__ = ()

    @abstractmethod
    def release(self, statistic: Any, source: Source | None = None) -> Any:
        """Return the statistic with noise."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of the noise on one number."""

    @abstractmethod
    def margin(self, confidence: Number) -> Any:
        """Return the smallest bound on the absolute noise on one number, with at least this probability."""

    @property
    def standard_error(self) -> float:
        """Standard deviation of the noise on one number."""
        return math.sqrt(self.variance)

    def interval(self, value: Any, confidence: Number) -> tuple[Any, Any]:
        """Return limits around a released value that contain the true one with at least this confidence, per number."""
        margin = self.margin(confidence)
        return value - margin, value + margin


class IntegerNoise(Numeric):
    """A symmetric law on the integers. Its quantiles are exact, so an interval covers at least as often as stated."""

    __slots__ = ()

    @abstractmethod
    def beyond(self, beta: Fraction) -> int:
        """Return the smallest k >= 0 with Pr[noise > k] <= beta, for beta <= 1/2."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...] | None, source: Source | None) -> Any:
        """Draw noise of this shape."""

    def quantile(self, p: Number) -> int:
        """Return the smallest k with Pr[noise <= k] >= p."""
        exact = checks.probability(p, "p")
        return self.beyond(1 - exact) if exact >= Fraction(1, 2) else -self.beyond(exact)

    def margin(self, confidence: Number) -> int:
        """Return the smallest k with Pr[|noise| <= k] >= confidence, for one number."""
        return self.beyond(checks.confidence_left(confidence) / 2)

    def release(self, statistic: Any, source: Source | None = None) -> Any:
        """Return the statistic with noise on every number.

        Args:
            statistic: an int, or an array of integers. Floats are refused.
            source: the source of random bits; the operating system's unless given.

        Returns:
            An int, or an int64 array (an object array if a noisy value does not fit).

        Privacy: the loss of the mechanism, for neighbours under which the statistic moves by at most `sensitivity`
            in the mechanism's norm. The shape is taken as public.
            Audited in tests/statistical/test_mechanism_audits.py.
        """
        exact = checks.integers(statistic)
        if not isinstance(exact, np.ndarray):
            return exact + int(self.draw(None, source))
        noise = self.draw(exact.shape, source)
        if _small(exact) and _small(noise):
            return exact.astype(np.int64) + noise
        # Python integers cannot overflow. The type of the result depends on the noisy values only, not on private ones.
        noisy = exact.astype(object) + noise.astype(object)
        fits = all(-(2**63) <= number < 2**63 for number in noisy.flat)
        return noisy.astype(np.int64) if fits else noisy


def _small(part: NDArray[Any]) -> bool:
    return part.dtype.kind != "O" and part.max(initial=0) < 2**62 and part.min(initial=0) > -(2**62)


def whole_error(error: Number) -> int:
    """Return the largest integer within an error."""
    exact = rational(error, "error")
    if exact < 0:
        raise BadNumber(f"error must not be negative, got {show(exact)}. Say how far off an answer may be.")
    return math.floor(exact)


# Sensitivity


class Sensitivity(int):
    """An integer sensitivity with its neighbour relation: a mechanism refuses it with a loss of another relation.

    Its product with a whole number is a sensitivity too.

    >>> from cloister.privacy.loss import epsilon
    >>> Sensitivity(3, Relation.ADD_REMOVE) * 2, (Sensitivity(3, Relation.ADD_REMOVE) * 2).relation.value
    (6, 'add/remove')
    """

    relation: Relation

    def __new__(cls, steps: int, relation: Relation) -> "Sensitivity":
        """Create a sensitivity of this many steps for this relation."""
        sensitivity = super().__new__(cls, steps)
        sensitivity.relation = relation
        return sensitivity

    def __getnewargs__(self) -> Any:
        return int(self), self.relation

    def __mul__(self, other: Any) -> Any:
        product = int(self) * other
        return Sensitivity(product, self.relation) if type(product) is int else product

    __rmul__ = __mul__


def same_neighbours(sensitivity: object, loss: object) -> None:
    """Refuse a loss whose neighbour relation differs from that of a sensitivity.

    A number without a relation is accepted on the caller's responsibility.
    """
    if isinstance(sensitivity, Sensitivity) and isinstance(loss, Loss) and loss.relation is not sensitivity.relation:
        raise RelationMismatch(
            f"this statistic states its sensitivity for {sensitivity.relation} neighbours, and the loss is {loss}. "
            f"Give a loss that is {sensitivity.relation}; see Loss.as_replace_one."
        )
