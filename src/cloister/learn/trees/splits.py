"""Where to split: scores in integers, of a sensitivity so low that a choice stays good at a small loss.

Two scores. Gini: the rows less the purity, n - sum n_c²/n over the two sides; one row more moves it by less than 2 and
never upwards. Balanced: each side counts for its heaviest class, classes weighing the less the more common they are in
the node; one row moves it by at most the largest weight, and never downwards. Where both find something, Gini finds
better splits; but a balanced score stands out further from its noise (about threefold on Adult), so that small nodes
and small budgets need it. Both are monotone, which doubles the rate of an exponential choice.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cloister.learn.base.integer_rows import Integers
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import Exponential, PermuteAndFlip
from cloister.privacy.noise import Source

__all__ = ["Apart", "SENSITIVITY", "balanced", "chooser", "gini", "weights_of"]

SENSITIVITY = 2**10  # of either score, in integers


def gini(left: Integers, right: Integers) -> Integers:
    """Minus the impurity that is left, in units of 2^-9: counts have the classes last.

    A side's impurity g = n - sum n_c²/n rises by 0 up to (not including) 2 with a row: g is concave and homogeneous,
    hence superadditive, and a pure row has none; a row of class c adds 1 - (2 n_c + 1)/(n + 1) + sum n_c²/(n (n + 1)).
    The floor of 2^9 g then rises by 0 to 2^10.
    """
    return -(_impurity(left) + _impurity(right))


def _impurity(counts: Integers) -> Integers:
    rows = counts.sum(axis=-1)
    over = rows * rows - (counts * counts).sum(axis=-1)
    rows = np.maximum(rows, 1)
    whole, rest = np.divmod(over, rows)
    return np.asarray(whole * 2**9 + rest * 2**9 // rows)


def weights_of(shares: Any) -> Integers:
    """What a row of each class weighs, at most 2^10: the inverse of the class's released share in the node."""
    inverse = 1.0 / np.maximum(shares, 0.01)
    whole = np.rint(inverse / inverse.max(axis=-1, keepdims=True) * SENSITIVITY).astype(np.int64)
    return np.asarray(np.clip(whole, 1, SENSITIVITY))


def balanced(left: Integers, right: Integers, weights: Integers) -> Integers:
    """The weight of each side's heaviest class. One row moves it by 0 to 2^10."""
    return np.asarray((left * weights).max(axis=-1) + (right * weights).max(axis=-1))


@dataclass(frozen=True, slots=True)
class Apart:
    """A choice in each of several places, where no row is in two of them.

    Privacy: the loss of one choice: a row added or removed moves the scores of one place only (parallel composition).
        Which row is in which place must follow from the row itself and from what was released.
    """

    name: ClassVar[str] = "choices-apart"
    textbook: ClassVar[bool] = False

    one: Exponential | PermuteAndFlip

    @property
    def relation(self) -> Relation:
        """The neighbours the loss speaks of."""
        return self.one.relation

    @property
    def loss(self) -> Loss:
        """The loss as it was stated."""
        return self.one.loss

    @property
    def pure(self) -> Loss:
        """The loss as a pure epsilon."""
        return self.one.pure

    @property
    def zcdp(self) -> Loss:
        """The loss as a rho."""
        return self.one.zcdp

    def rdp(self, alpha: float) -> float:
        """An upper bound on the Rényi divergence of order alpha between neighbours."""
        return self.one.rdp(alpha)

    def parameters(self) -> dict[str, str]:
        """Public and exact, for a receipt."""
        return {"choice": self.one.name, **self.one.parameters()}

    def release(self, scores: list[Integers], source: Source | None = None) -> Integers:
        """The candidate chosen in each place.

        Privacy: the loss of the mechanism.
        """
        return np.array([self.one.release(place, source) for place in scores], dtype=np.int64)


def chooser(loss: Loss) -> Apart:
    """Of a split in every node of a level: exponential for a rho (it costs epsilon²/8), else permute-and-flip."""
    kind = Exponential if loss.measure == "rho" else PermuteAndFlip
    return Apart(kind.for_loss(SENSITIVITY, loss, monotone=True))
