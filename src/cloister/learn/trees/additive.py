"""Additive models on public cells, boosted by noisy sums of residuals.

    count every cell ──► round: sum the residuals in every cell, all features at once ──► a step ──► next round …

Explainable boosting (Nori et al. 2021) visits one feature after another. Here a round sums over all features in one
release: a row is in one cell of each, so F features cost sqrt(F) in L2, as F visits would, but each is in all rounds.
Three things make a round worth its noise:

- The step is the Bayesian one for known noise: values of a feature have a Gaussian prior (near cells of an ordered
  feature are correlated), the curvature comes from the noisy counts. Small cells hardly move.
- Steps shrink like 1/t, so that the last value is an average over all rounds and no round's spend is lost.
- Residuals are clipped, which halves the noise: the loss is linear for large errors, as Huber's is.

All features sum the same residuals, so their totals must agree: the differences are noise, and are removed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.binned_estimator import BinnedRows
from cloister.learn.base.bins import BinnedFeature
from cloister.learn.base.frame import Floats, shorten
from cloister.learn.base.integer_rows import Integers, on_grid
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace

__all__ = ["Additive", "Task", "boost"]

_COUNTS = Fraction(6, 100)  # of the spend
_UNIT = 2**16  # of a residual
_GRID = 2**12  # of a value: margins are then integers
_FIRST = 5  # rounds before steps begin to shrink
# Noise grows with the square root of the rounds for Laplace, not at all for Gaussian noise, which averages out.
_MOST_ROUNDS, _MOST_PURE_ROUNDS = 40, 8


@dataclass(frozen=True, slots=True)
class Task:
    """Loss and hyperparameters of an additive model.

    Attributes:
        residuals: direction in which margins should move, from margins (one column per output) and targets of rows.
        outputs: number of margins of a row.
        clip: clipping norm of a row's residuals.
        curvature: rate at which residuals shrink as margins move.
        scatter: the variance of residuals, in curvatures: 1 for likelihoods.
        spread: expected standard deviation of the values of a feature.
        start: the first intercepts.
        patience: rows (relative to the noise) that justify one more round: for a pure spend, and for a rho.
    """

    residuals: Callable[[Floats, NDArray[np.float64]], Floats]
    outputs: int
    clip: float
    curvature: float
    scatter: float
    spread: float
    start: Floats
    patience: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Additive:
    """Released additive model: a row's margin is the intercept plus the value of its cell of every feature.

    Attributes:
        axes: the public cells.
        values: one row per cell (features one after the other), one column per output; weighted means are zero.
        errors: their standard errors, from noise and sampling, for the assumed curvature.
        intercept: one number per output.
        counts: noisy number of rows in each cell.
        rounds: number of times residuals were summed.
    """

    axes: tuple[BinnedFeature, ...]
    values: Floats
    errors: Floats
    intercept: Floats
    counts: Floats
    rounds: int

    def margins(self, cells: Integers) -> Floats:
        """Return the margins of rows of cells."""
        return np.asarray(self.values[cells + _starts(self.axes)].sum(axis=1) + self.intercept)


def _starts(axes: tuple[BinnedFeature, ...]) -> Integers:
    return np.cumsum([0, *(axis.size for axis in axes)])[:-1]


class _Sums:
    """Noisy sums over all cells of all features, with consistent totals.

    Args:
        meter, budget: the privacy filter and the budget to charge.
        data: the rows.
    """

    def __init__(self, meter: PrivacyFilter, budget: BudgetShare, data: BinnedRows) -> None:
        self.meter, self.budget, self.data = meter, budget, data
        self.sizes = np.array([axis.size for axis in data.axes])
        self.starts = _starts(data.axes)
        self._kept: Integers | None = None

    def _places(self) -> Integers:
        """Return the index of each row's cells among all cells, one row per feature. Call it inside a step."""
        if self._kept is None:
            self._kept = np.ascontiguousarray((self.data.look()[0] + self.starts).T)
        return self._kept

    def release(
        self, share: Fraction, longest: int, outputs: int, look: Callable[[Integers], Floats]
    ) -> tuple[Floats, Floats, float]:
        """Release sums and totals; return also the standard deviation of the noise on a sum before totals agree.

        Args:
            share: share of the budget.
            longest: bound on the L2 norm of a row's contribution to its cell of each feature.
            outputs: number of values that a row adds there.
            look: returns integers for each row, given the index of its cells: one row per feature.

        Privacy: that share. A row adds to one cell of each feature: sqrt(features) · longest in L2, and
            features · sqrt(outputs) · longest in L1.
        """
        features, loss = len(self.sizes), self.budget.part(share)
        law: DiscreteGaussian | DiscreteLaplace
        if self.budget.pure:
            law = DiscreteLaplace.for_loss(features * _root_above(outputs * longest**2), loss)
        else:
            law = DiscreteGaussian.for_loss(_root_above(features * longest**2), loss)

        def statistic() -> Integers:
            places = self._places()
            added = look(places).T
            cell_sums = np.zeros((outputs, int(self.sizes.sum())))
            for cells in places:  # feature by feature: no copy of all cells
                for k in range(outputs):  # integers far below 2^53: exact
                    cell_sums[k] += np.bincount(cells, weights=added[k], minlength=cell_sums.shape[1])
            return cell_sums.T.astype(np.int64)

        sums = np.asarray(self.meter.release(statistic, law), dtype=np.float64)
        totals = np.add.reduceat(sums, self.starts, axis=0)
        # A total of m cells has m times the noise variance of one: weigh it by 1/m, and spread the difference evenly.
        agreed = np.average(totals, axis=0, weights=1 / self.sizes)
        sums += np.repeat((agreed - totals) / self.sizes[:, None], self.sizes, axis=0)
        return sums, agreed, math.sqrt(law.variance)


def boost(
    meter: PrivacyFilter, budget: BudgetShare, data: BinnedRows, task: Task, rounds: int | None, share: Fraction
) -> Additive:
    """Fit an additive model.

    Args:
        meter, budget: the privacy filter and the budget to charge.
        data: the rows.
        task: loss and hyperparameters.
        rounds: number of times residuals are summed; None decides by the spend and the noisy count of rows.
        share: share of the budget.

    Privacy: that share of the budget: one count and `rounds` sums of clipped residuals over all cells, in equal parts.
    """
    sums = _Sums(meter, budget, data)
    counts, rows = _counted(sums, share * _COUNTS)
    rounds = rounds or _worthwhile(budget, rows, len(data.axes), task)
    longest = math.ceil(task.clip * _UNIT)
    part = share * (1 - _COUNTS) / rounds
    step = _Step(data.axes, counts, rows, task)
    values, intercept = np.zeros((len(counts), task.outputs)), task.start.astype(np.float64)
    pace = min(0.5, 1.5 / math.sqrt(len(data.axes)))
    before = np.zeros_like(values), np.zeros(task.outputs), values, intercept
    for turn in range(rounds):
        rounded = np.rint(values * _GRID), np.rint((intercept - step.means @ values) * _GRID)

        def residuals(places: Integers, grid_values: tuple[Floats, Floats] = rounded) -> Floats:
            margins = sum((grid_values[0][cells] for cells in places), start=grid_values[1]) / _GRID
            # Within a multiple of the norm, so that squares sum exactly and `shorten` bounds the row, whatever it is.
            integers = on_grid(task.residuals(margins, data.look()[1]) * _UNIT, 32.0 * longest)
            return shorten(integers, longest)

        released, total, noise = sums.release(part, longest, task.outputs, residuals)
        noise /= _UNIT
        step.prepare(noise / math.sqrt(rounds))
        state = released / _UNIT, total / _UNIT, values, intercept
        if _turned(state[0], before[0], noise):
            pace, state = pace / 2, before  # overshoot, as features are correlated: halve the step
        before = state
        now = pace if turn < _FIRST else pace * _FIRST / turn
        values = state[2] + now * step.of(state[0], state[1], state[2])
        intercept = state[3] + now * state[1] / (task.curvature * rows)
    centred = values - np.repeat(step.by_feature(values), sums.sizes, axis=0)
    return Additive(data.axes, centred, step.errors(), intercept, counts, rounds)


def _worthwhile(budget: BudgetShare, rows: float, features: int, task: Task) -> int:
    """Return the number of rounds for this many rows at this spend.

    Noise on a sum is that of features/epsilon rows, or sqrt(features)/(2 sqrt(rho)). One more round makes each of them
    noisier: for Laplace noise the mean of T rounds is worse by sqrt(T), and for either noise the first rounds, which
    are not averaged, are worse. Chosen on generated tables.
    """
    amount = float(budget.loss.amount)
    if budget.pure:
        return round(min(max(rows * amount / features / task.patience[0], 1), _MOST_PURE_ROUNDS))
    return round(min(max(rows * 2 * math.sqrt(amount / features) / task.patience[1], 1), _MOST_ROUNDS))


def _turned(gradient: Floats, before: Floats, noise: float) -> bool:
    """Return True if the gradient reverses its direction, beyond noise."""
    variance = np.square(before).sum() + noise**2 * gradient.size
    return float((gradient * before).sum()) < -3 * noise * float(np.sqrt(variance))


def _counted(sums: _Sums, share: Fraction) -> tuple[Floats, float]:
    """Release the rows in every cell, scaled to the same total for every feature.

    None is less than noise can hide, nor less than one row in all: a spend so large that its noise is zero would leave
    nothing to divide by.
    """
    released, total, noise = sums.release(share, 1, 1, lambda places: np.ones((places.shape[1], 1)))
    rows = max(float(total[0]), 2 * noise, 1.0)
    floored = np.maximum(released[:, 0], max(2 * noise, 1e-9))
    by_feature = np.add.reduceat(floored, sums.starts)
    return np.asarray(floored * np.repeat(rows / by_feature, sums.sizes)), rows


class _Step:
    """Step of the values for a noisy gradient: the posterior mean under a Gaussian prior.

    With curvature H, prior precision P and noise of variance s² on the gradient g of values v, the step d minimises
    |g - H d|²/s² + (v + d)' P (v + d): d = (H² + s² P)⁻¹ (H g - s² P v). Features are taken to be independent of each
    other, so that H has one block per feature.
    """

    def __init__(self, axes: tuple[BinnedFeature, ...], counts: Floats, rows: float, task: Task) -> None:
        self.starts, self.rows, self.counts = _starts(axes), rows, counts
        self.sizes = [axis.size for axis in axes]
        self.means = counts / rows
        self.curvature, self.scatter = task.curvature, task.scatter
        self.slices = [slice(start, start + size) for start, size in zip(self.starts, self.sizes, strict=True)]
        self.hessians = [self._hessian(counts[cells]) for cells in self.slices]
        self.precisions = [_precision(axis, task.spread) for axis in axes]
        self.noise = -1.0

    def _hessian(self, counts: Floats) -> Floats:
        return np.asarray(self.curvature * (np.diag(counts) - np.outer(counts, counts) / self.rows))

    def prepare(self, noise: float) -> None:
        """Compute the inverses for a standard deviation of the noise, averaged over all rounds."""
        if noise != self.noise:
            self.noise = noise
            pairs = zip(self.hessians, self.precisions, strict=True)
            self.inverses = [np.linalg.inv(h @ h + noise**2 * p) for h, p in pairs]

    def of(self, gradient: Floats, total: Floats, values: Floats) -> Floats:
        """Return the step for each value."""
        steps = np.empty_like(values)
        for i, cells in enumerate(self.slices):
            centred = gradient[cells] - np.outer(self.means[cells], total)
            pull = self.noise**2 * (self.precisions[i] @ values[cells])
            steps[cells] = self.inverses[i] @ (self.hessians[i] @ centred - pull)
        return steps

    def by_feature(self, values: Floats) -> Floats:
        """Return the mean of each feature's values over rows."""
        return np.asarray(np.add.reduceat(values * self.means[:, None], self.starts, axis=0))

    def errors(self) -> Floats:
        """Return the standard errors of (H² + s² P)⁻¹ H g, where g has noise s and sampling variance scatter · H."""
        deviations = np.empty(len(self.counts))
        for cells, inverse, hessian in zip(self.slices, self.inverses, self.hessians, strict=True):
            through = inverse @ hessian
            spread = through @ (self.scatter * hessian + self.noise**2 * np.eye(len(hessian))) @ through.T
            deviations[cells] = np.sqrt(np.maximum(np.diag(spread), 0.0))
        return deviations


def _precision(axis: BinnedFeature, spread: float) -> Floats:
    """Return the prior precision: independent categories; ordered cells correlated over about half the axis."""
    if not axis.ordered:
        return np.eye(axis.size) / spread**2
    apart = np.abs(np.subtract.outer(np.arange(axis.size), np.arange(axis.size)))
    alike = np.exp(-2.0 * apart / axis.size) + 0.15 * np.eye(axis.size)
    return np.asarray(np.linalg.inv(alike) / spread**2)


def _root_above(square: int) -> int:
    root = math.isqrt(square)
    return root if root * root == square else root + 1
