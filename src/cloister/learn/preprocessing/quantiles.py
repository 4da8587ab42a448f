"""Private quantile transform by noisy trees of counts."""

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.frame import find_box
from cloister.learn.base.inputs import (
    Box,
    complete_rows,
    read_answers,
    wants_bounds,
)
from cloister.learn.base.integer_rows import on_grid
from cloister.learn.base.row_source import keep_input, read_input
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import BudgetShare, PrivacyFilter, noise_for
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above

__all__ = ["QuantileTransformer"]

Floats = NDArray[np.float64]
_BRANCH, _LEVELS = 4, 5
_LEAVES = _BRANCH**_LEVELS
_FINDING = Fraction(1, 10)


class QuantileTransformer(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Map each feature to its rank among all rows, between 0 and 1, or to a normal distribution.

    Args:
        spend: privacy budget of the fit; ranks cannot be released without one.
        bounds: public (low, high) of all features, or (lows, highs), or "find", which takes a tenth of the spend.
        output_distribution: "uniform" or "normal".
        fill: replaces a missing number; without it the row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        grid_, ranks_: 1,025 points between the bounds of each feature, and the share of rows below them.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset): a row counts once on each of 5
        levels of a tree of counts over 1,024 equal bins, for each feature. The levels are then made consistent (Hay et
        al. 2010), which is post-processing. Audited in tests/statistical/test_learn_moments_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        bounds: Any = None,
        output_distribution: str = "uniform",
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.bounds = bounds
        self.output_distribution = output_distribution
        self.fill = fill
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Release the trees of counts.

        Args:
            X: an array or frame, or a Cloister dataset, whose rows are read into this process
                (learn/base/row_source.py).
            y: not used.
            features, table: for a dataset: columns that are numbers, and the table if there are several.

        Privacy: the spend, charged before a row is read.
        """
        if self.output_distribution not in ("uniform", "normal"):
            raise BadInput("output_distribution is 'uniform' or 'normal'.")
        find = wants_bounds(self.bounds)
        source = read_input(X, features=features, table=table, fill=self.fill, find=find, numbers=True)
        given_box = None if find else source.box(self.bounds)
        box, self.ranks_ = self._train_rows(self._steps(source.numbers, source.width, given_box), source)
        keep_input(self, source)
        self.grid_ = np.linspace(box.low, box.high, _LEAVES + 1).T
        return self

    def _steps(
        self, look: Callable[[], Floats], features: int, given_box: Box | None
    ) -> Callable[[PrivacyFilter, BudgetShare], tuple[Box, Floats]]:
        look = complete_rows(look)

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> tuple[Box, Floats]:
            box = given_box
            if box is None:
                box = find_box(meter, look, features, budget.part(_FINDING))
                budget = BudgetShare(budget.part(1 - _FINDING))
            noise = noise_for(root_above(features * _LEVELS), features * _LEVELS, budget.loss)
            released = np.asarray(meter.release(lambda: _tree(box.to_unit(look())), noise), dtype=np.float64)
            return box, np.array([_ranks(nodes) for nodes in released])

        return steps

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Return the ranks of rows. The result is as sensitive as the rows."""
        rows = read_answers(self, X, self.fill).numbers()
        ranks = np.column_stack([np.interp(rows[:, j], self.grid_[j], self.ranks_[j]) for j in range(rows.shape[1])])
        if self.output_distribution == "uniform":
            return ranks
        from scipy.special import ndtri

        return np.asarray(ndtri(np.clip(ranks, 1e-7, 1 - 1e-7)))

    def inverse_transform(self, X: Any) -> Floats:  # noqa: N803
        """Map ranks back to values."""
        ranks = read_answers(self, X, self.fill).numbers()
        if self.output_distribution == "normal":
            from scipy.special import ndtr

            ranks = ndtr(ranks)
        return np.column_stack([np.interp(ranks[:, j], self.ranks_[j], self.grid_[j]) for j in range(ranks.shape[1])])


def _tree(unit: Floats) -> NDArray[np.int64]:
    """Return the counts of all nodes for each feature, level by level, the leaves last."""
    places = np.maximum(on_grid(unit * _LEAVES, _LEAVES - 1), 0).astype(np.int64)
    trees = []
    for column in places.T:
        leaves = np.bincount(column, minlength=_LEAVES).astype(np.int64)
        levels = [leaves.reshape(_BRANCH**level, -1).sum(axis=1) for level in range(1, _LEVELS + 1)]
        trees.append(np.concatenate(levels))
    return np.array(trees)


def _ranks(nodes: Floats) -> Floats:
    """Return the share of rows below each end of the leaves: the least-squares tree, then made monotone."""
    ends = np.cumsum([_BRANCH**level for level in range(1, _LEVELS + 1)])
    levels = np.split(nodes, ends[:-1])
    # Upwards: combine a node with the sum of its children, weighted by their noise.
    estimates, variance = [levels[-1]], 1.0
    for measured in reversed(levels[:-1]):
        below = estimates[0].reshape(-1, _BRANCH).sum(axis=1)
        share = 1 / (1 + 1 / (_BRANCH * variance))
        estimates.insert(0, share * measured + (1 - share) * below)
        variance = share
    # Downwards: distribute the parent's correction to its children in equal parts.
    for level in range(1, _LEVELS):
        children = estimates[level].reshape(-1, _BRANCH)
        children = children + (estimates[level - 1] - children.sum(axis=1))[:, None] / _BRANCH
        estimates[level] = children.ravel()
    below = np.concatenate([[0.0], np.cumsum(estimates[-1])])
    rising = np.maximum.accumulate(below)
    falling = np.minimum.accumulate(below[::-1])[::-1]
    total = max(float(below[-1]), 1.0)
    ranks = np.clip((rising + falling) / 2 / total, 0.0, 1.0)
    ranks[0], ranks[-1] = 0.0, 1.0
    # Mix in a small linear part, so that every rank has one value.
    return np.asarray((1 - 1e-6) * ranks + 1e-6 * np.linspace(0, 1, len(ranks)))
