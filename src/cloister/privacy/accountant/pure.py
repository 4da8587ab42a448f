"""Pure privacy: epsilons add."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from cloister.privacy.accountant.contract import Accountant, Step, checked, chosen_delta, chosen_epsilon
from cloister.privacy.errors import WrongMeasure
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import Number, exp_down, log_up, rounded_up

__all__ = ["PureAccountant"]


@dataclass(frozen=True, slots=True)
class PureAccountant(Accountant):
    """Adds pure epsilons, exactly.

    Privacy: valid under adaptive choice: a step may be chosen after seeing all earlier answers (Dwork et al. 2006). The
    steps look at the same data; one's output need not be the other's input.

    >>> from cloister.privacy.loss import epsilon
    >>> PureAccountant().compose(epsilon("0.1")).compose(epsilon("0.2")).epsilon(0)
    Fraction(3, 10)
    """

    total: Fraction = Fraction(0)
    relation: Relation = Relation.ADD_REMOVE

    def compose(self, what: Loss | Step, count: int = 1) -> Self:
        """The accountant after `count` more steps, each with a pure guarantee."""
        checked(what, count, self.relation)
        loss = what if isinstance(what, Loss) else what.pure
        if loss is None or not loss.is_pure:
            raise WrongMeasure("a pure accountant adds pure epsilons; this step has none. Use ZcdpAccountant.")
        return replace(self, total=self.total + loss.amount * count)

    def epsilon(self, delta: Number = 0) -> Fraction:
        """The total at delta 0; at a larger delta the smallest epsilon that a pure loss of that total implies.

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
        """The delta at this epsilon: 0 from the total upward."""
        exact = chosen_epsilon(epsilon)
        if exact >= self.total:
            return Fraction(0)
        # (e^T - e^epsilon)/(e^T + 1), both sides divided by e^T; smaller powers make it larger.
        return rounded_up((1 - exp_down(exact - self.total)) / (1 + exp_down(-self.total)))
