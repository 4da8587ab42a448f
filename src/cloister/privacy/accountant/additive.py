"""Additive accountants: epsilons add for pure privacy, rho and delta for zero-concentrated privacy."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Self

from cloister.privacy.accountant.contract import Accountant, Step, checked, chosen_delta, chosen_epsilon
from cloister.privacy.conversion import delta_of_rho, epsilon_of_rho
from cloister.privacy.errors import BadLoss, WrongMeasure
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import Number, exp_down, log_up, rounded_up

__all__ = ["ZcdpAccountant", "PureAccountant"]


# Pure privacy: epsilons add.


@dataclass(frozen=True, slots=True)
class PureAccountant(Accountant):
    """An accountant that adds pure epsilons, exactly.

    Privacy: valid under adaptive choice: a step may be chosen after seeing all earlier answers (Dwork et al. 2006). The
    steps read the same data; the output of one need not be the input of another.

    >>> from cloister.privacy.loss import epsilon
    >>> PureAccountant().compose(epsilon("0.1")).compose(epsilon("0.2")).epsilon(0)
    Fraction(3, 10)
    """

    total: Fraction = Fraction(0)
    relation: Relation = Relation.ADD_REMOVE

    def compose(self, what: Loss | Step, count: int = 1) -> Self:
        """Return the accountant after `count` more steps, each with a pure guarantee."""
        checked(what, count, self.relation)
        loss = what if isinstance(what, Loss) else what.pure
        if loss is None or not loss.is_pure:
            raise WrongMeasure("a pure accountant adds pure epsilons; this step has none. Use ZcdpAccountant.")
        return replace(self, total=self.total + loss.amount * count)

    def epsilon(self, delta: Number = 0) -> Fraction:
        """Return the total at delta 0; at a larger delta the smallest epsilon that a pure loss of that total implies.

        Randomised response is the worst mechanism of a given pure loss T, and its epsilon at delta is
        ln(e^T (1 - delta) - delta) (Kairouz, Oh & Viswanath 2015).
        """
        exact = chosen_delta(delta)
        if exact == 0 or self.total == 0:
            return self.total
        inside = 1 - exact - exact * exp_down(-self.total)
        if inside <= 0:
            return Fraction(0)
        return min(self.total, rounded_up(max(self.total + log_up(inside), Fraction(0))))

    def delta(self, epsilon: Number) -> Fraction:
        """Return the delta at this epsilon: 0 from the total upward."""
        exact = chosen_epsilon(epsilon)
        if exact >= self.total:
            return Fraction(0)
        # (e^T - e^epsilon)/(e^T + 1), both sides divided by e^T; smaller powers make it larger.
        return rounded_up((1 - exp_down(exact - self.total)) / (1 + exp_down(-self.total)))


@dataclass(frozen=True, slots=True)
class ZcdpAccountant(Accountant):
    """An accountant that adds rho and delta, exactly; an epsilon counts as rho = epsilon²/2, with its delta.

    Privacy: approximate zCDP (Bun & Steinke 2016, section 8). Both sums are valid under adaptive choice (Whitehouse et
    al. 2023).

    >>> from cloister.privacy.loss import rho
    >>> float(ZcdpAccountant().compose(rho("0.01"), count=10).epsilon(1e-6))
    2.141938928386
    """

    rho: Fraction = Fraction(0)
    spent_delta: Fraction = field(default=Fraction(0), kw_only=True)
    relation: Relation = Relation.ADD_REMOVE

    def compose(self, what: Loss | Step, count: int = 1) -> Self:
        """Return the accountant after `count` more steps, each with a zCDP guarantee."""
        checked(what, count, self.relation)
        loss = what if isinstance(what, Loss) else what.zcdp
        if loss is None:
            raise WrongMeasure("a zCDP accountant adds rho; this step has none. Use RenyiAccountant for a fixed plan.")
        more = loss.as_rho() * count
        return replace(self, rho=self.rho + more.amount, spent_delta=min(self.spent_delta + more.delta, Fraction(1)))

    def epsilon(self, delta: Number) -> Fraction:
        """Return the epsilon at a total delta; the delta not spent by the steps is used for the conversion."""
        exact = chosen_delta(delta, self.spent_delta)
        if self.rho == 0:
            return Fraction(0)
        if exact == 0:
            raise BadLoss("a rho becomes an epsilon only at a positive delta. Write for example '1e-6'.")
        return epsilon_of_rho(self.rho, exact - self.spent_delta)

    def delta(self, epsilon: Number) -> Fraction:
        """Return the total delta at this epsilon."""
        return min(self.spent_delta + delta_of_rho(self.rho, chosen_epsilon(epsilon)), Fraction(1))
