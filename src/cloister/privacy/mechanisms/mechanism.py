"""The mechanism protocol: a stated loss, its conversions, and public parameters."""

import math
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.rounding import root_below
from cloister.privacy.mechanisms.sensitivity import same_neighbours
from cloister.privacy.noise import Source
from cloister.privacy.number import Number

__all__ = ["REGISTRY", "Mechanism", "Pure", "epsilon_of", "pure_curve", "register"]


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
