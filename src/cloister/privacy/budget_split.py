"""Split the spend of a call with several looks: a pure epsilon, or a rho."""

from dataclasses import dataclass, replace
from fractions import Fraction

from cloister.privacy import conversion
from cloister.privacy.errors import BadLoss, RelationMismatch
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace
from cloister.privacy.number import rounded_down

__all__ = ["BudgetShare", "noise_for", "budget_share"]

_LONGEST_BITS = 256
_LEAST = Fraction(1, 10**40)  # below this the noise of a part could exceed what a mechanism can draw


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """A spend that can be split.

    Attributes:
        loss: a pure epsilon, or a rho.
    """

    loss: Loss

    @property
    def pure(self) -> bool:
        """Return True if epsilons add (Laplace noise), False if rhos add (Gaussian noise)."""
        return self.loss.measure == "epsilon"

    def part(self, share: Fraction | int | str) -> Loss:
        """Return a share of the spend."""
        portion = Fraction(share)
        if not 0 < portion <= 1:
            raise BadLoss("a share of a spend is above 0 and is at most 1.")
        return Loss(self.loss.measure, self.loss.amount * portion, relation=self.loss.relation)

    def of_a_row(self, rows: int) -> "BudgetShare":
        """Return the spend per row that keeps a unit with this many rows within the whole.

        Group privacy: m rows cost m times a pure epsilon, and m² times a rho (Bun & Steinke 2016, Prop. 1.9).
        """
        return BudgetShare(self.part(Fraction(1, rows if self.pure else rows**2)))


def budget_share(spend: Loss | None, what: str = "the fit", who: str = "estimators") -> BudgetShare:
    """Read a spend; an (epsilon, delta) becomes the largest rho that implies it.

    An amount with very many digits is rounded down once, by less than 1e-30 of itself, so that its parts are short.

    Args:
        spend: the caller's loss.
        what: the purpose of the spend, for messages.
        who: the requester of the spend, for messages.
    """
    if not isinstance(spend, Loss):
        raise BadLoss(f"say what {what} may cost: spend=cl.epsilon(1, delta='1e-6') or spend=cl.rho('0.02').")
    if spend.relation is not Relation.ADD_REMOVE:
        raise BadLoss(f"{who} state add/remove neighbours. Give an add/remove spend; see Loss.as_replace_one.")
    if spend.measure == "epsilon" and spend.delta:
        spend = Loss("rho", conversion.rho_within(spend.amount, spend.delta), relation=spend.relation)
    elif spend.delta:
        raise BadLoss(f"{who} use no delta of their own beside a rho. Write spend=cl.rho('0.02').")
    elif spend.amount.denominator.bit_length() > _LONGEST_BITS:
        spend = replace(spend, amount=rounded_down(spend.amount, digits=30))
    if spend.amount < _LEAST:
        raise BadLoss(f"{what} would be noise alone: a spend is an epsilon or a rho of at least {float(_LEAST):g}.")
    return BudgetShare(spend)


def noise_for(l2: Fraction | int, l1: int, loss: Loss) -> DiscreteGaussian | DiscreteLaplace:
    """Return the noise on integers: Gaussian for a rho, Laplace for a pure epsilon.

    Args:
        l2, l1: sensitivity of the integers in either norm, for adding or removing one unit.
        loss: the loss of this step.
    """
    if loss.relation is not Relation.ADD_REMOVE:
        raise RelationMismatch(f"this noise is for {Relation.ADD_REMOVE} neighbours, and the loss is {loss}.")
    if loss.measure == "rho":
        return DiscreteGaussian.for_loss(l2, loss)
    return DiscreteLaplace.for_loss(l1, loss)
