"""What a fit may spend, as the noise needs it: a pure epsilon, or a rho."""

from dataclasses import dataclass
from fractions import Fraction

from cloister.privacy import conversion
from cloister.privacy.errors import BadLoss
from cloister.privacy.loss import Loss, Relation

__all__ = ["Purse", "purse"]


@dataclass(frozen=True, slots=True)
class Purse:
    """A spend that can be split.

    Attributes:
        loss: a pure epsilon, or a rho.
    """

    loss: Loss

    @property
    def pure(self) -> bool:
        """Whether epsilons add (Laplace noise), or rhos (Gaussian noise)."""
        return self.loss.measure == "epsilon"

    def part(self, share: Fraction | int | str) -> Loss:
        """A share of it."""
        portion = Fraction(share)
        if not 0 < portion <= 1:
            raise BadLoss("a share of a spend lies above 0 and is at most 1.")
        return Loss(self.loss.measure, self.loss.amount * portion, relation=self.loss.relation)

    def of_a_row(self, rows: int) -> "Purse":
        """What a method may spend that protects one row, so that a unit with this many rows is within the whole.

        Group privacy: m rows cost m times a pure epsilon, and m² times a rho (Bun & Steinke 2016, Prop. 1.9).
        """
        return Purse(self.part(Fraction(1, rows if self.pure else rows**2)))


def purse(spend: Loss | None) -> Purse:
    """Read a spend. An (epsilon, delta) becomes the largest rho that implies it."""
    if not isinstance(spend, Loss):
        raise BadLoss("say what the fit may cost: spend=cl.epsilon(1, delta='1e-6') or spend=cl.rho('0.02').")
    if spend.relation is not Relation.ADD_REMOVE:
        raise BadLoss("estimators state add/remove neighbours. Give an add/remove spend; see Loss.as_replace_one.")
    if spend.measure == "epsilon" and spend.delta:
        return Purse(Loss("rho", conversion.rho_within(spend.amount, spend.delta), relation=spend.relation))
    if spend.delta:
        raise BadLoss("no estimator uses a delta of its own beside a rho. Write spend=cl.rho('0.02').")
    return Purse(spend)
