"""Integer scores of splits with low sensitivity, for accurate choices at a small loss.

Two scores. Gini: the rows less the purity, n - sum n_c²/n over the two sides; one more row moves it by less than 2 and
never upwards. Balanced: each side counts for its heaviest class, with smaller weights for classes that are more common
in the node; one row moves it by at most the largest weight, and never downwards. Where both are above the noise, Gini
finds better splits; but a balanced score exceeds its noise by more (about threefold on Adult), so small nodes and small
budgets need it. Both are monotone, which doubles the rate of an exponential choice.
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
    """Return minus the remaining impurity, in units of 2^-9; the last axis of the counts is the class.

    A side's impurity g = n - sum n_c²/n rises by 0 up to (not including) 2 with a row: g is concave and homogeneous,
    hence superadditive, and a pure row has none; a row of class c adds 1 - (2 n_c + 1)/(n + 1) + sum n_c²/(n (n + 1)).
    The floor of 2^9 g then rises by 0 to 2^10.
    """
    return -(_impurity(left) + _impurity(right))


def _impurity(counts: Integers) -> Integers:
    rows = counts.sum(axis=-1)
    over = rows * rows - (counts * counts).sum(axis=-1)
    rows = np.maximum(rows, 1)
    quotient, rest = np.divmod(over, rows)
    return np.asarray(quotient * 2**9 + rest * 2**9 // rows)


def weights_of(shares: Any) -> Integers:
    """Return the weight of a row of each class, at most 2^10: the inverse of the class's released share in the node."""
    inverse = 1.0 / np.maximum(shares, 0.01)
    weights = np.rint(inverse / inverse.max(axis=-1, keepdims=True) * SENSITIVITY).astype(np.int64)
    return np.asarray(np.clip(weights, 1, SENSITIVITY))


def balanced(left: Integers, right: Integers, weights: Integers) -> Integers:
    """Return the sum of the weights of each side's heaviest class. One row moves it by 0 to 2^10."""
    return np.asarray((left * weights).max(axis=-1) + (right * weights).max(axis=-1))


@dataclass(frozen=True, slots=True)
class Apart:
    """Choice in each of several disjoint sets of rows.

    Privacy: the loss of one choice: a row added or removed moves the scores of one set only (parallel composition). The
        set of a row must follow from the row itself and from released values.
    """

    name: ClassVar[str] = "choices-apart"
    textbook: ClassVar[bool] = False

    one: Exponential | PermuteAndFlip

    @property
    def relation(self) -> Relation:
        """Return the neighbour relation of the loss."""
        return self.one.relation

    @property
    def loss(self) -> Loss:
        """Return the loss as stated."""
        return self.one.loss

    @property
    def pure(self) -> Loss:
        """Return the loss as a pure epsilon."""
        return self.one.pure

    @property
    def zcdp(self) -> Loss:
        """Return the loss as a rho."""
        return self.one.zcdp

    def rdp(self, alpha: float) -> float:
        """Return an upper bound on the Rényi divergence of order alpha between neighbours."""
        return self.one.rdp(alpha)

    def parameters(self) -> dict[str, str]:
        """Return the public, exact parameters, for a receipt."""
        return {"choice": self.one.name, **self.one.parameters()}

    def release(self, scores: list[Integers], source: Source | None = None) -> Integers:
        """Choose a candidate in each set.

        Privacy: the loss of the mechanism.
        """
        return np.array([self.one.release(set_scores, source) for set_scores in scores], dtype=np.int64)


def chooser(loss: Loss) -> Apart:
    """Return the mechanism of a level's splits: exponential for a rho (costs epsilon²/8), else permute-and-flip."""
    kind = Exponential if loss.measure == "rho" else PermuteAndFlip
    return Apart(kind.for_loss(SENSITIVITY, loss, monotone=True))
