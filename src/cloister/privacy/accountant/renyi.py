"""Rényi privacy: divergences add, order by order."""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Self

from cloister.privacy.accountant.contract import Accountant, Step, checked, chosen_delta, chosen_epsilon
from cloister.privacy.conversion import delta_of_renyi, epsilon_of_renyi
from cloister.privacy.errors import BadLoss, WrongMeasure
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import Number

__all__ = ["ORDERS", "RenyiAccountant"]

# Eighths up to 10, then coarser. Every order is exactly a float: a curve evaluated at a rounded order would be invalid.
ORDERS = tuple(
    Fraction(order)
    for order in [1 + eighth / 8 for eighth in range(1, 73)]
    + [*range(10, 64), *range(64, 128, 8), *range(128, 256, 32), 256, 384, 512, 768, 1024]
)


@dataclass(frozen=True, slots=True)
class RenyiAccountant(Accountant):
    """An accountant that adds Rényi divergences at fixed orders (Mironov 2017) and converts at the best one.

    Privacy: for one release whose steps and number are fixed before the first row is read. The curve is a sum and
    therefore valid adaptively, but the best order is chosen afterwards, which a filter may not do.

    >>> from cloister.privacy.accountant.events import GaussianStep
    >>> round(float(RenyiAccountant().compose(GaussianStep(1, rate="0.01"), count=1000).epsilon(1e-5)), 3)
    2.101
    """

    relation: Relation = Relation.ADD_REMOVE
    orders: tuple[Fraction, ...] = field(default=ORDERS, repr=False)
    # One divergence per order; None is infinite. Rationals, so that the order of composing cannot matter.
    curve: tuple[Fraction | None, ...] = field(default=(), repr=False)
    spent_delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if not self.orders or any(order <= 1 or Fraction(float(order)) != order for order in self.orders):
            raise BadLoss("Rényi orders are floats above 1, exactly. Leave them out for the usual ones.")
        if not self.curve:
            object.__setattr__(self, "curve", (Fraction(0),) * len(self.orders))

    def compose(self, what: Loss | Step, count: int = 1) -> Self:
        """Return the accountant after `count` more steps; an (epsilon, delta) loss adds its delta too."""
        checked(what, count, self.relation)
        added = [_divergence(what, order) for order in self.orders]
        curve = tuple(
            None if old is None or (new is None and count) else old + (new or 0) * count
            for old, new in zip(self.curve, added, strict=True)
        )
        spent = what.delta * count if isinstance(what, Loss) else Fraction(0)
        return replace(self, curve=curve, spent_delta=min(self.spent_delta + spent, Fraction(1)))

    def epsilon(self, delta: Number) -> Fraction:
        """Return the epsilon at a total delta, at the order where it is smallest."""
        exact = chosen_delta(delta, self.spent_delta)
        if not any(value != 0 for value in self.curve):
            return Fraction(0)
        if exact == 0:
            raise BadLoss("a Rényi curve becomes an epsilon only at a positive delta. Write for example '1e-6'.")
        return min(epsilon_of_renyi(*point, exact - self.spent_delta) for point in self._finite())

    def delta(self, epsilon: Number) -> Fraction:
        """Return the total delta at this epsilon, at the order where it is smallest."""
        exact = chosen_epsilon(epsilon)
        if not any(value != 0 for value in self.curve):
            return self.spent_delta
        least = min(delta_of_renyi(*point, exact) for point in self._finite())
        return min(self.spent_delta + least, Fraction(1))

    def _finite(self) -> list[tuple[Fraction, Fraction]]:
        points = [(order, value) for order, value in zip(self.orders, self.curve, strict=True) if value is not None]
        if not points:
            raise WrongMeasure("these steps have no finite Rényi divergence at any order, so they promise nothing.")
        return points


def _divergence(step: Loss | Step, order: Fraction) -> Fraction | None:
    """The step's divergence at one order; None if infinite."""
    if isinstance(step, Loss):
        return order * step.amount if step.measure == "rho" else _of_pure(step.amount, order)
    value = step.rdp(float(order))
    if not value >= 0:
        raise BadLoss(f"a Rényi divergence is never negative, yet a step gives {value} at order {float(order)}.")
    return None if math.isinf(value) else Fraction(value)


def _of_pure(epsilon: Fraction, order: Fraction) -> Fraction:
    """The largest divergence of a pure epsilon, that of randomised response (Bun & Steinke 2016, Lemma 2.4 ff.).

    (ln cosh((alpha-½)epsilon) - ln cosh(epsilon/2))/(alpha-1). The subtraction costs a factor below 6 at alpha >= 1.1
    on top of a few float roundings, so 1e-12 covers it; two simpler bounds take over where they are smaller.
    """
    simple = min(epsilon, order * epsilon * epsilon / 2)
    if order < Fraction(11, 10) or not Fraction(1, 10**100) < epsilon < 10**100:
        return simple
    e, alpha = float(epsilon), float(order)
    difference = _log_cosh((alpha - 0.5) * e) - _log_cosh(e / 2)
    return min(simple, Fraction(difference / (alpha - 1) * (1 + 1e-12)))


def _log_cosh(x: float) -> float:
    """ln cosh x for x > 0: through sinh² near zero, where cosh is 1 to all digits."""
    return math.log1p(2 * math.sinh(x / 2) ** 2) if x < 1 else x - math.log(2) + math.log1p(math.exp(-2 * x))
