"""The accountant protocol, and the steps that it composes."""

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
        """The neighbour relation of its guarantee."""

    @property
    def pure(self) -> Loss | None:
        """Its loss as a pure epsilon, if it has one."""

    @property
    def zcdp(self) -> Loss | None:
        """Its loss as a rho, if it has one."""

    def rdp(self, alpha: float) -> float:
        """An upper bound on its Rényi divergence of order alpha > 1."""


class Accountant(Protocol):
    """An accountant that composes steps and returns their total loss.

    Privacy: every answer is rounded up: no epsilon and no delta is below the value that the theory gives. Composing
    refuses what the accountant cannot express, and changes nothing (accountants are values).
    """

    __slots__ = ()
    relation: Relation

    def compose(self, what: Loss | Step, count: int = 1) -> Self:
        """Return the accountant after `count` more such steps."""

    def epsilon(self, delta: Number) -> Fraction:
        """Return the epsilon of all steps, at this delta."""

    def delta(self, epsilon: Number) -> Fraction:
        """Return the delta of all steps, at this epsilon."""

    def loss(self, delta: Number) -> Loss:
        """Return the loss of all steps as one (epsilon, delta), the form in which it enters a ledger."""
        return Loss("epsilon", self.epsilon(delta), chosen_delta(delta), self.relation)


def checked(what: Loss | Step, count: int, relation: Relation) -> None:
    """Refuse anything but a loss or step of this relation, and a count that is no whole number."""
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
    """Return the caller's delta, in [0, 1); it must exceed the delta spent by the steps, unless that is zero."""
    exact = rational(delta, "delta")
    if not 0 <= exact < 1:
        raise BadLoss(f"delta must lie between 0 and 1, got {show(exact)}. Write for example '1e-6'.")
    if exact < least or (spent and exact <= spent):
        raise BadLoss(f"delta must be above {show(max(spent, least))} here, got {show(exact)}. Ask at a larger one.")
    return exact


def chosen_epsilon(epsilon: Number) -> Fraction:
    """Return the caller's epsilon, zero or more."""
    exact = rational(epsilon, "epsilon")
    if exact < 0:
        raise BadLoss(f"epsilon must not be negative, got {show(exact)}.")
    return exact
