"""Sensitivities that carry their neighbour relation."""

from typing import Any

from cloister.privacy.errors import RelationMismatch
from cloister.privacy.loss import Loss, Relation

__all__ = ["Sensitivity", "same_neighbours"]


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
        made = super().__new__(cls, steps)
        made.relation = relation
        return made

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
