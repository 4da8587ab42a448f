"""Private interpretable boosting for numbers: one shape per feature (the rounds are in learn/trees/additive.py)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from cloister.learn.base.binned_estimator import BinnedRows, FetchedCells
from cloister.learn.base.frame import Floats
from cloister.learn.base.inputs import read_box
from cloister.learn.base.integer_rows import Integers, noisy_counts, on_grid
from cloister.learn.trees.additive import Additive, Task, boost
from cloister.learn.trees.boosting import Boosting
from cloister.learn.trees.shapes import chart
from cloister.privacy.errors import BadBounds
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss

__all__ = ["GradientBoostingRegressor"]

_SURVEY, _CELLS = Fraction(1, 25), 64  # a share of the spend, for a histogram of targets


@dataclass(frozen=True, slots=True)
class _Target:
    """Public target bounds of a regression, and released facts about targets, in units of half the width."""

    low: float
    high: float

    def scaled(self, given: Floats) -> Floats:
        """Return targets within [-1, 1], on a grid."""
        clipped = np.clip(given, self.low, self.high)
        # Integers within 2^16, for any input.
        return on_grid(np.rint((clipped - self.middle) / self.half * 2**16), 2**16) / 2**16

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


class GradientBoostingRegressor(RegressorMixin, Boosting):  # type: ignore[misc]
    """Private gradient boosting regressor with one shape per feature.

    Args:
        target_bounds: public (low, high) of the target; targets beyond are clipped.
        spend, bounds, bins, categories, rounds, fill, ledger, account, random_state: as in
            `GradientBoostingClassifier`.

    Attributes:
        shapes_: the contribution of each feature, in the target's unit; `shape_chart(feature)` draws it.
        intercept_, n_iter_, feature_importances_, n_features_in_, feature_names_in_, release_, loss_.

    A 25th of the spend releases a noisy histogram of targets; residuals beyond 2.5 of their standard deviations are
    clipped, so the tails of a skewed target weigh less, as in Huber's regression.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset); as `GradientBoostingClassifier`,
        and target_bounds are public.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        target_bounds: tuple[float, float] | None = None,
        bounds: Any = None,
        bins: int | Mapping[Any, Any] = 32,
        categories: Mapping[Any, Sequence[Any]] | None = None,
        rounds: int | None = None,
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.target_bounds = target_bounds
        self.bounds = bounds
        self.bins = bins
        self.categories = categories
        self.rounds = rounds
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
            y: numbers; None for a dataset.
            target, features, table: for a dataset: the column to predict, the columns to predict from (all others
                unless given), and the table if there are several. Bounds and categories come from the schema.

        Privacy: the spend, charged before a row is read.
        """
        data = self._rows(X, y, None, target=target, features=features, table=table, numeric=True)
        goal = self._goal(data)

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> Additive:
            mean, deviation = _survey(meter, budget.part(_SURVEY), data, goal)
            task = _number_task(goal, mean, deviation)
            return boost(meter, budget, data, task, self.rounds, 1 - _SURVEY)

        model = self._grow_on(data, steps)
        scaled = Additive(
            model.axes,
            model.values * goal.half,
            model.errors * goal.half,
            model.intercept * goal.half + goal.middle,
            model.counts,
            model.rounds,
        )
        self._keep(X, data, scaled)
        self._target = goal
        return self

    def _goal(self, data: BinnedRows) -> _Target:
        """Return the bounds of the target: those of a schema, or those given."""
        if isinstance(data, FetchedCells):
            return _Target(*data.target_ends)
        if self.target_bounds is None:
            raise BadBounds("target_bounds are public and must be given: target_bounds=(0, 100).")
        box = read_box(self.target_bounds, 1)
        return _Target(float(box.low[0]), float(box.high[0]))

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Predict the target of each row, within its bounds."""
        margins = self._margins(X)[:, 0]
        return np.asarray(np.clip(margins, self._target.low, self._target.high))

    def shape_chart(self, feature: Any) -> Any:
        """Return an Altair chart of one feature's contribution to the prediction."""
        self._check_fitted()
        return chart(self.shapes_, feature, ["prediction"], "added to the prediction")


def _survey(meter: PrivacyFilter, loss: Loss, data: BinnedRows, target: _Target) -> tuple[float, float]:
    """Release the approximate mean and standard deviation of scaled targets, from a noisy histogram."""
    edges = np.linspace(-1.0, 1.0, _CELLS + 1)

    def look() -> Integers:
        cell = np.searchsorted(edges[1:-1], target.scaled(data.look()[1]), side="right")
        return np.bincount(cell, minlength=_CELLS).astype(np.int64)

    counts = noisy_counts(meter, look, loss)
    amount = float(loss.amount)
    noise = (1 / (2 * amount)) ** 0.5 if loss.measure == "rho" else 2**0.5 / amount
    significant = np.where(counts > 2 * noise, counts, 0.0)
    if significant.sum() <= 0:
        return 0.0, 1.0
    middles = (edges[:-1] + edges[1:]) / 2
    # With few rows, cells of pure noise are among those kept: they shrink the mean to the middle of the bounds.
    mean = float(significant @ middles) / (float(significant.sum()) + noise * _CELLS**0.5)
    variance = float(np.average((middles - mean) ** 2, weights=significant))
    return mean, max(variance**0.5, 1.0 / _CELLS)


def _number_task(target: _Target, mean: float, deviation: float) -> Task:
    return Task(
        residuals=lambda margins, targets: target.scaled(targets)[:, None] - margins,
        outputs=1,
        clip=min(2.0, 2.5 * deviation),
        curvature=1.0,
        scatter=deviation**2,  # before the fit: an overestimate
        spread=0.5 * deviation,
        start=np.array([mean]),
        patience=(400.0, 8.0),  # squares need fewer steps than likelihoods
    )
