"""How far one unit moves a statistic, together with the neighbours that this was worked out for."""

from typing import Any

from cloister.privacy.errors import RelationMismatch
from cloister.privacy.loss import Loss, Relation

__all__ = ["Sensitivity", "same_neighbours"]


class Sensitivity(int):
    """A whole sensitivity that knows its neighbours: a mechanism refuses it beside a loss of another relation.

    Times a whole number it stays one.

    >>> from cloister.privacy.loss import epsilon
    >>> Sensitivity(3, Relation.ADD_REMOVE) * 2, (Sensitivity(3, Relation.ADD_REMOVE) * 2).relation.value
    (6, 'add/remove')
    """

    relation: Relation

    def __new__(cls, steps: int, relation: Relation) -> "Sensitivity":
        """So many steps, between these neighbours."""
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
    """Refuse a loss that speaks of other neighbours than a sensitivity does.

    A number without a relation is the caller's word, and passes.
    """
    if isinstance(sensitivity, Sensitivity) and isinstance(loss, Loss) and loss.relation is not sensitivity.relation:
        raise RelationMismatch(
            f"this statistic states its sensitivity for {sensitivity.relation} neighbours, and the loss is {loss}. "
            f"Give a loss that is {sensitivity.relation}; see Loss.as_replace_one."
        )
