"""One-way marginals in each class, to which Gaussians are matched.

    singles = measure_one_way(survey, label, loss)
    features = Features(domain, singles.shares, least=…)         # ranks, and categories that are frequent enough
    moments = singles.sharpen(moments, features, positions)          # means and squares, more precise with counts
    wanted = singles.wanted(classes, drawn, kinds)                # the share of rows for each cell

A Gaussian of 32 cells of a column has its mean and spread, but no peak at forty hours and no tail. Counts of single
columns cost little: a row is in one cell of each. Rows sampled from Gaussians are matched to them (gaussian.py), so
that a table is as close to each column as independent columns are.

Privacy: c marginals of one column, or of one column and the label: a unit moves them by √c·m in L2 and c·m in L1. The
rest is post-processing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import pi, sqrt

import numpy as np

from cloister.privacy.loss import Loss
from cloister.synth.domain.axis import Cells
from cloister.synth.domain.coarsening import nonnegative, smoothed
from cloister.synth.domain.domain import Domain
from cloister.synth.domain.features import Features
from cloister.synth.measure.marginals import Floats, Measurer, NoisyMarginal
from cloister.synth.measure.moments import GroupMoments

__all__ = ["OneWayMarginals", "measure_one_way"]

_DOUBT = 1.8  # times 1.5 standard errors: of 32 differences that are noise, about one in four tables keeps any


@dataclass(frozen=True)
class OneWayMarginals:
    """Noisy counts of single columns.

    Attributes:
        domain: the domain.
        counts: counts of each column, one row for each class; the label's own counts have one row.
        sigma: the standard deviation of the noise on a count; less for the label.
        measured: the released marginals.
        label: the column that defines classes, if there is one.
    """

    domain: Domain
    counts: tuple[Floats, ...]
    sigma: float
    measured: tuple[NoisyMarginal, ...]
    label: int | None = None

    @cached_property
    def classes(self) -> Floats:
        """Return the noisy number of rows of each class: the mean over all columns."""
        every = [counts.sum(axis=1) for column, counts in enumerate(self.counts) if column != self.label]
        return np.asarray(np.mean(every, axis=0))

    @property
    def total(self) -> float:
        """Return the number of rows, at least one."""
        return max(1.0, float(self.classes.sum()))

    @property
    def error(self) -> float:
        """Return the expected L1 distance caused by noise, averaged over columns, as a share of the rows."""
        cells = np.mean([counts.size for column, counts in enumerate(self.counts) if column != self.label])
        return float(cells) * self.sigma * sqrt(2 / pi) / self.total

    @cached_property
    def shares(self) -> tuple[Floats, ...]:
        """Return the shares of each column's cells, over all classes; ordered columns are smoothed."""
        column_shares = []
        for axis, counts in zip(self.domain.modelled, self.counts, strict=True):
            sigma = self.sigma * sqrt(len(counts))
            column_shares.append(
                nonnegative(smoothed(axis, counts.sum(axis=0), _DOUBT * sigma), self.total) / self.total
            )
        return tuple(column_shares)

    @property
    def even(self) -> tuple[Floats, ...]:
        """Return `shares` with equal shares for all cells of an ordered column, for use where noise dominates."""
        axes = self.domain.modelled
        return tuple(
            np.full(len(shares), 1 / len(shares)) if axis.ordered else shares
            for axis, shares in zip(axes, self.shares, strict=True)
        )

    def again(self, survey: Measurer, loss: Loss) -> "OneWayMarginals":
        """Measure the counts once more and combine them: the mean of least variance.

        Privacy: the loss; see above.
        """
        other = measure_one_way(survey, self.label, loss)
        counts = tuple(
            _mean(first, self.sigma, second, other.sigma)
            for first, second in zip(self.counts, other.counts, strict=True)
        )
        sigma = 1 / sqrt(self.sigma**-2 + other.sigma**-2)
        measured = tuple(
            replace(first, counts=_mean(first.counts, self.sigma, second.counts, other.sigma), sigma=sigma)
            for first, second in zip(self.measured, other.measured, strict=True)
        )
        return OneWayMarginals(self.domain, counts, sigma, measured, self.label)

    def sharpen(self, moments: GroupMoments, features: Features, positions: Sequence[int]) -> GroupMoments:
        """Combine moments of classes with the one-way marginals of the same numbers: the mean of least variance."""
        used = [counts.shape[1] for column, counts in enumerate(self.counts) if column != self.label]
        count = _mean(moments.count, moments.noise[0], self.classes, self.sigma * sqrt(sum(used)) / len(used))
        sums, products = moments.sums.copy(), moments.products.copy()
        ours = features.of(positions)
        for i, number in enumerate(ours):
            column, cell = features.listed[number].position, features.listed[number].cell
            counts = self.counts[column]
            if cell is not None:
                sums[:, i] = _mean(sums[:, i], moments.noise[1], counts[:, cell], self.sigma)
                beside = [j for j, other in enumerate(ours) if features.listed[other].position == column]
                products[:, i, beside] = products[:, beside, i] = 0.0  # a row has one category
                products[:, i, i] = sums[:, i]
                continue
            line = features.coordinates(column)
            present = counts[:, : len(line)]
            for at, noise, power in ((sums[:, i], moments.noise[1], 1), (products[:, i, i], moments.noise[2], 2)):
                estimate = present @ line**power, self.sigma * float(np.linalg.norm(line**power))
                at[:] = _mean(at, noise, *estimate)
        return replace(moments, count=count, sums=sums, products=products)

    def wanted(self, classes: Floats, drawn: Cells, kinds: Cells) -> dict[int, Floats]:
        """Return the shares of each column's cells in each class: the model's, except where counts clearly differ.

        Args:
            classes: number of rows of each class.
            drawn: rows of the model.
            kinds: the class of each row.
        """
        shares = {}
        for column, (axis, counts) in enumerate(zip(self.domain.modelled, self.counts, strict=True)):
            if column == self.label:
                continue
            lines = []
            for kind, (rows, noisy) in enumerate(zip(classes, counts, strict=True)):
                rows = max(1.0, float(rows))
                model = np.bincount(drawn[kinds == kind, column], minlength=axis.size) + 1e-3
                model = model * (rows / model.sum())
                far = noisy - model
                level = axis.ordered and axis.known >= 4
                change = smoothed(axis, far, _DOUBT * self.sigma) if level else _kept(far, self.sigma)
                lines.append(nonnegative(model + change, rows) / rows)
            shares[column] = np.array(lines)
        return shares


def measure_one_way(survey: Measurer, label: int | None, loss: Loss) -> OneWayMarginals:
    """Measure the counts of every column, in each class if there is a label.

    Privacy: the loss; see above.
    """
    others = [column for column in range(len(survey.domain.shape)) if column != label]
    sets = [(column,) if label is None else tuple(sorted((column, label))) for column in others]
    measured = survey.measure(sets, loss, why="every column by itself" + (", by class" if label is not None else ""))
    counts: list[Floats] = [np.zeros((1, 0))] * len(survey.domain.shape)
    for column, marginal in zip(others, measured, strict=True):
        counts[column] = (
            marginal.counts[None, :] if label is None else marginal.counts if label < column else marginal.counts.T
        )
    if label is not None:
        counts[label] = np.mean([counts[column].sum(axis=1) for column in others], axis=0)[None, :]
    return OneWayMarginals(survey.domain, tuple(counts), float(np.mean(measured[0].sigma)), tuple(measured), label)


def _mean(first: Floats, noise: float, second: Floats, its_noise: float) -> Floats:
    """Combine two measurements, weighted by their precision."""
    weight = its_noise**2 / (noise**2 + its_noise**2)
    return np.asarray(weight * first + (1 - weight) * second)


def _kept(far: Floats, sigma: float) -> Floats:
    """Shrink a distance by what noise explains (positive-part James & Stein 1961)."""
    return np.asarray(far * max(0.0, 1 - len(far) * sigma**2 / max(float(far @ far), 1e-12)))
