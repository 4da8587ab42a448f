"""What an accountant is, and what it may be asked to compose."""

from fractions import Fraction
from typing import Protocol, Self, runtime_checkable

from cloister.privacy.errors import BadLoss, RelationMismatch
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import Number, rational, show

__all__ = ["Accountant", "Step", "checked", "chosen_delta", "chosen_epsilon"]


@runtime_checkable
class Step(Protocol):
    """One release, as an accountant sees it. Every mechanism is one."""

    @property
    def relation(self) -> Relation:
        """The neighbours its guarantee speaks of."""

    @property
    def pure(self) -> Loss | None:
        """Its loss as a pure epsilon, if it has one."""

    @property
    def zcdp(self) -> Loss | None:
        """Its loss as a rho, if it has one."""

    def rdp(self, alpha: float) -> float:
        """An upper bound on its Rényi divergence of order alpha > 1."""


class Accountant(Protocol):
    """Composes steps and says what they cost together.

    Privacy: every answer is rounded against us: no epsilon and no delta is below what the theory behind the accountant
    gives. Composing refuses what the accountant cannot express, and then nothing has changed (accountants are values).
    """

    __slots__ = ()
    relation: Relation

    def compose(self, what: Loss | Step, count: int = 1) -> Self:
        """The accountant after `count` more such steps."""

    def epsilon(self, delta: Number) -> Fraction:
        """The epsilon of everything composed, at this delta."""

    def delta(self, epsilon: Number) -> Fraction:
        """The delta of everything composed, at this epsilon."""

    def loss(self, delta: Number) -> Loss:
        """Everything composed as one (epsilon, delta), the form in which it enters a ledger."""
        return Loss("epsilon", self.epsilon(delta), chosen_delta(delta), self.relation)


def checked(what: Loss | Step, count: int, relation: Relation) -> None:
    """Refuse what no accountant composes."""
    if isinstance(what, type) or not isinstance(what, Loss | Step):
        raise BadLoss(f"an accountant composes a Loss or a mechanism, got {type(what).__name__}. Write epsilon('0.1').")
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise BadLoss(f"count must be a whole number of releases, got {count!r:.40}.")
    if what.relation is not relation:
        raise RelationMismatch(
            f"this accountant speaks of {relation} neighbours, the step of {what.relation} ones. "
            "Convert an add/remove loss with as_replace_one(), or open an accountant with the step's relation."
        )


def chosen_delta(delta: Number, spent: Fraction = Fraction(0), least: Fraction = Fraction(0)) -> Fraction:
    """The delta a caller chose, in [0, 1); it must exceed what the steps spent already, unless they spent nothing."""
    exact = rational(delta, "delta")
    if not 0 <= exact < 1:
        raise BadLoss(f"delta must lie between 0 and 1, got {show(exact)}. Write for example '1e-6'.")
    if exact < least or (spent and exact <= spent):
        raise BadLoss(f"delta must be above {show(max(spent, least))} here, got {show(exact)}. Ask at a larger one.")
    return exact


def chosen_epsilon(epsilon: Number) -> Fraction:
    """The epsilon a caller chose, zero or more."""
    exact = rational(epsilon, "epsilon")
    if exact < 0:
        raise BadLoss(f"epsilon must not be negative, got {show(exact)}.")
    return exact
