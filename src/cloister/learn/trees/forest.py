"""Private random forest: trees that share the spend, each split choosing from some of the features.

    count the classes ──► number and depth of trees ──► grow them ──► add their log-odds ──► calibrate the sum

Trees could also get disjoint rows and the whole spend each. Sharing is better: with k trees, Gaussian noise grows by
sqrt(k) if they share, rows shrink by k if they divide (with Laplace noise the two are equal, but each tree then still
learns from fewer rows).

A tree from noisy counts is shrunk towards the shares of all rows, so the mean of many trees predicts the larger class
nearly everywhere, though it ranks rows well. Log-odds are added instead, as for partly independent evidence: with m(y)
the mean of the sum G in class y and s² its variance within classes, both from the released leaves,

    log-odds = prior + a (G - (m(0) + m(1))/2),    a = (m(1) - m(0)) / s²    (normal classes of one variance)

Where a histogram of these scores would exceed its noise it is released, and slope and intercept are fitted to it
(learn/naive_bayes/calibration.py).
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.binned_estimator import BinnedRows, public_generator
from cloister.learn.base.frame import Floats
from cloister.learn.base.integer_rows import Integers, noisy_counts
from cloister.learn.naive_bayes.calibration import BINS, SHARE, calibrate, histogram
from cloister.learn.trees.splits import Apart
from cloister.learn.trees.tree import TreeClassifier
from cloister.learn.trees.tree_growth import Tree, grow
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import Exponential, PermuteAndFlip
from cloister.privacy.noise import uniform

__all__ = ["Forest", "RandomForestClassifier"]


# The textbook's forest of random trees, exact: the structure is public randomness, and only the leaves read rows.
#
# Every row is assigned to one tree at random, and is in one leaf of it; so all leaves of all trees cost as much as one.
# A leaf is labelled with a class by permute-and-flip (exponential for a rho) on its class counts: the textbook's
# exponential mechanism on label frequencies, with the sensitivity 1 of counts.


_DOUBT = 0.05  # probability of the other classes in a leaf, so that no row has probability zero


def grow_at_random(meter: PrivacyFilter, budget: BudgetShare, data: BinnedRows, depth: int, count: int) -> list[Tree]:
    """Grow the forest.

    Args:
        meter, budget: the privacy filter and the budget to charge.
        data: the rows.
        depth: number of splits on the path to a leaf.
        count: number of trees.

    Privacy: the budget, once: a row added or removed moves one count of one leaf by one. Its tree is chosen by a
        private coin.
    """
    assert data.classes is not None
    classes, public = len(data.classes), public_generator(meter.source)
    shapes = [_structure(data, depth, public) for _ in range(count)]

    def counts() -> list[Integers]:
        rows, labels = data.look()
        assigned = uniform(count, (len(rows),), meter.source)
        leaf_counts: list[Integers] = []
        for tree, shape in enumerate(shapes):
            cell = shape.leaves(rows[assigned == tree]) * classes + labels[assigned == tree]
            leaf_counts.extend(np.bincount(cell, minlength=2**depth * classes).reshape(-1, classes).astype(np.int64))
        return leaf_counts

    kind = PermuteAndFlip if budget.pure else Exponential
    choice = Apart(kind.for_loss(1, budget.part(Fraction(1)), monotone=True))
    labels = np.asarray(meter.release(counts, choice)).reshape(count, -1)
    return [
        Tree(shape.axes, shape.features, shape.cells, _shares(leaf, classes))
        for shape, leaf in zip(shapes, labels, strict=True)
    ]


def _structure(data: BinnedRows, depth: int, public: np.random.Generator) -> Tree:
    """Return a full tree whose splits are drawn from the public cells."""
    features, cells = [], []
    for level in range(depth):
        drawn = public.integers(len(data.axes), size=2**level)
        features.append(drawn)
        cells.append(
            np.array([public.integers(data.axes[i].size - data.axes[i].ordered) for i in drawn], dtype=np.int64)
        )
    return Tree(data.axes, tuple(features), tuple(cells), np.zeros((2**depth, 1)))


def _shares(labels: Integers, classes: int) -> Floats:
    shares = np.full((len(labels), classes), _DOUBT / max(classes - 1, 1))
    shares[np.arange(len(labels)), labels] = 1 - _DOUBT
    return shares


_BITS = 20  # fractional bits of a score
_COUNTS = Fraction(1, 20)
_FEW = 100  # rows times epsilon: below, splits cannot be distinguished
_CLEAR = 20  # times the noise of a whole histogram
_LEAST = 0.02  # least share of a class in the prior
_ALIKE = 0.3  # the correlation of two trees' log-odds within a class


@dataclass(frozen=True, slots=True)
class Forest:
    """Released trees, and their voting weights.

    Attributes:
        trees: one or more.
        slope, shift: the log-odds of a class are slope times the sum of the logarithms of its shares, plus its shift,
            up to a constant per row; without a shift, the shares are averaged.
    """

    trees: tuple[Tree, ...]
    slope: float = 1.0
    shift: NDArray[np.float64] | None = None

    def shares(self, rows: Integers) -> NDArray[np.float64]:
        """Return the probability of each class for rows of cells."""
        if self.shift is None:
            return np.asarray(sum(tree.shares[tree.leaves(rows)] for tree in self.trees) / len(self.trees))
        scores = self.shift + sum(self.slope * np.log(tree.shares)[tree.leaves(rows)] for tree in self.trees)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


class RandomForestClassifier(TreeClassifier):
    """Private random forest classifier.

    Args:
        spend: privacy budget of the fit: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`.
        n_estimators: number of trees that share it; an upper limit with "auto".
        method: "auto" (the default) counts rows first: few rows for the spend get few and shallow greedy trees, very
            few get random ones.
            greedy   splits are chosen by noisy scores (learn/trees/tree_growth.py)
            random   the textbook's forest of random trees over disjoint rows (learn/trees/forest.py), also exact
        max_features: the share of features that a split may choose from, drawn anew for each.
        bounds, bins, categories, classes, max_depth, fill: as in `DecisionTreeClassifier`; with "auto" trees may be
            less deep.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        estimators_: the released trees.
        classes_, n_features_in_, feature_names_in_: as in scikit-learn.
        release_, loss_: the release with its receipt, and the loss charged.

    Privacy: the spend, for one row added or removed: a twentieth for the class counts, a tenth for the histogram of
        scores if it is released, the rest in equal parts for the trees. Number and depth of the trees, and the release
        of the histogram, follow from the spend and the noisy counts. The features that a split may use are public
        randomness. Otherwise as `DecisionTreeClassifier`; audited in tests/statistical/test_learn_trees_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        n_estimators: int = 10,
        method: str = "auto",
        max_features: float = 0.4,
        bounds: Any = None,
        bins: int | Mapping[Any, Any] = 16,
        categories: Mapping[Any, Sequence[Any]] | None = None,
        classes: Sequence[Any] | None = None,
        max_depth: int = 6,
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.n_estimators = n_estimators
        self.method = method
        self.max_features = max_features
        self.bounds = bounds
        self.bins = bins
        self.categories = categories
        self.classes = classes
        self.max_depth = max_depth
        self.fill = fill
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Fit to rows, or to those of a Cloister dataset.

        Args:
            X: an array or frame, or a dataset, whose rows are read into this process (learn/base/row_source.py).
            y: labels; None for a dataset.
            target, features, table: for a dataset: the column to predict (its public values are the classes), the
                columns to predict from (all others unless given), and the table if there are several. Bounds and
                categories come from the schema.

        Privacy: the spend, charged before a row is read.
        """
        if self.method not in ("auto", "greedy", "random"):
            raise BadInput("method is one of auto, greedy, random.")
        data = self._prepare(X, y, target, features, table)
        self._forest = self._grow_on(data, lambda meter, budget: self._grow(meter, budget, data))
        self.estimators_ = list(self._forest.trees)
        self.classes_ = data.classes
        self._keep_names(X, data)
        return self

    def _grow(self, meter: PrivacyFilter, budget: BudgetShare, data: BinnedRows) -> Forest:
        trees, depth = self.n_estimators, self.max_depth
        if self.method == "random":
            return Forest(tuple(grow_at_random(meter, budget, data, depth, trees)))
        assert data.classes is not None
        classes = len(data.classes)
        loss = budget.part(_COUNTS)
        class_counts = noisy_counts(
            meter, lambda: np.bincount(data.look()[1], minlength=classes).astype(np.int64), loss
        )
        rows = max(float(class_counts.sum()), 1.0)
        left = 1 - _COUNTS
        if self.method == "auto":
            plan = _size(budget, rows)
            if plan is None:
                return Forest(tuple(grow_at_random(meter, BudgetShare(budget.part(left)), data, depth, trees)))
            trees, depth = min(trees, plan[0]), min(depth, plan[1])
        clear = classes == 2 and rows > _CLEAR * math.sqrt(2 * BINS) * _noise(budget.part(SHARE))
        share = (left - (SHARE if clear else 0)) / trees
        some = math.ceil(self.max_features * len(data.axes))
        grown = [grow(meter, budget, data, depth, share, some) for _ in range(trees)]
        forest = _added(grown, np.maximum(class_counts, max(_noise(loss), _LEAST * rows)))
        return _calibrated(forest, meter, budget.part(SHARE), data) if clear else forest

    def _trees(self) -> Sequence[Tree]:
        return self.estimators_

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each class, from the sum of the trees' log-odds."""
        cells = self._cells(X)
        return self._forest.shares(cells)


def _noise(loss: Loss) -> float:
    """Return the standard deviation of the noise on a count."""
    amount = float(loss.amount)
    return 1 / math.sqrt(2 * amount) if loss.measure == "rho" else math.sqrt(2) / amount


def _size(budget: BudgetShare, rows: float) -> tuple[int, int] | None:
    """Return the number and depth of trees for about this many rows at this spend; None for too few rows.

    The choice of a split is good where the node's rows times the choice's epsilon are large. The spend is shared by all
    choices, so their number should grow with `reach`, the rows times the epsilon. Chosen on generated tables and
    scikit-learn's bundled ones.
    """
    amount = float(budget.loss.amount)
    # For a rho the choices' epsilons add up in squares; at about twenty choices the two are equal.
    reach = rows * (amount if budget.pure else 15 * math.sqrt(amount))
    if reach < _FEW:
        return None
    return max(1, round((reach / 150) ** 0.7)), max(2, round(math.log2(reach) / 2 - 1.6))


def _added(trees: list[Tree], counts: NDArray[np.float64]) -> Forest:
    """Return the forest that adds log-odds, with slope and centre from the released leaves.

    Args:
        trees: as released.
        counts: counts of the classes, positive.
    """
    prior = np.log(counts / counts.sum())
    if len(trees) == 1:
        return Forest(tuple(trees))
    classes, centre = len(counts), np.zeros(len(counts))
    gap, spreads = 0.0, []
    for tree in trees:
        logs = np.log(tree.shares)
        weights = (tree.rows[:, None] * tree.shares + 1e-9).T
        within = weights / weights.sum(axis=1, keepdims=True)  # classes × leaves
        means = within @ logs  # [y, c]: mean of ln share of c, in class y
        centre += means.mean(axis=0)
        # Over all pairs of classes c, e: E[G(c) - G(e) | c] - E[G(c) - G(e) | e], and the variance of G(c) - G(e).
        gap += 2 * (classes * float(np.trace(means)) - float(means.sum()))
        away = logs[None, :, :] - means[:, None, :]
        scatter = np.einsum("yl,ylc,yle->ce", weights, away, away) / weights.sum()
        spreads.append(math.sqrt(max(2 * (classes * float(np.trace(scatter)) - float(scatter.sum())), 1e-12)))
    together = (1 - _ALIKE) * sum(spread**2 for spread in spreads) + _ALIKE * sum(spreads) ** 2
    slope = min(max(gap / together, 1 / len(trees)), 1.0)
    return Forest(tuple(trees), slope, prior - slope * centre)


def _calibrated(forest: Forest, meter: PrivacyFilter, loss: Loss, data: BinnedRows) -> Forest:
    """Return the forest with slope and intercept fitted to a noisy histogram of its scores, for two classes.

    Privacy: the loss: a row is in one cell. Its score is a sum of integers from released tables.
    """
    odds = [_whole(forest.slope * (np.log(tree.shares[:, 1]) - np.log(tree.shares[:, 0]))) for tree in forest.trees]
    prior = 0.0 if forest.shift is None else float(forest.shift[1] - forest.shift[0])

    def look() -> Integers:
        rows, labels = data.look()
        scores = sum(
            (leaf_odds[tree.leaves(rows)] for leaf_odds, tree in zip(odds, forest.trees, strict=True)),
            start=_whole(prior),
        )
        return histogram(np.broadcast_to(scores, labels.shape), _BITS, labels)

    # The curve's slope is near one half where noise hides it, so the scores are twice the log-odds.
    curve = calibrate(meter, look, 1, 1, loss)
    slope, shift = 2 * curve.slope, 2 * curve.slope * prior + curve.shift
    return Forest(forest.trees, slope * forest.slope, np.array([0.0, shift]))


def _whole(odds: Any) -> Integers:
    """Return twice the log-odds, as integers."""
    return np.asarray(np.rint(2 * odds * 2.0**_BITS)).astype(np.int64)
