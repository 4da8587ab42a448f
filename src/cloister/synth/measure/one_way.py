"""One-way marginals in each class, to which Gaussians are matched.

    singles = measure_one_way(survey, label, loss)
    features = Features(domain, singles.shares, least=…)         # ranks, and categories that are frequent enough
    moments = singles.sharpen(moments, features, places)          # means and squares, more precise with counts
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
        every = [one.sum(axis=1) for place, one in enumerate(self.counts) if place != self.label]
        return np.asarray(np.mean(every, axis=0))

    @property
    def total(self) -> float:
        """Return the number of rows, at least one."""
        return max(1.0, float(self.classes.sum()))

    @property
    def error(self) -> float:
        """Return the expected L1 distance caused by noise, averaged over columns, as a share of the rows."""
        cells = np.mean([one.size for place, one in enumerate(self.counts) if place != self.label])
        return float(cells) * self.sigma * sqrt(2 / pi) / self.total

    @cached_property
    def shares(self) -> tuple[Floats, ...]:
        """Return the shares of each column's cells, over all classes; ordered columns are smoothed."""
        found = []
        for axis, counts in zip(self.domain.modelled, self.counts, strict=True):
            sigma = self.sigma * sqrt(len(counts))
            found.append(nonnegative(smoothed(axis, counts.sum(axis=0), _DOUBT * sigma), self.total) / self.total)
        return tuple(found)

    @property
    def even(self) -> tuple[Floats, ...]:
        """Return `shares` with equal shares for all cells of an ordered column, for use where noise dominates."""
        axes = self.domain.modelled
        return tuple(
            np.full(len(one), 1 / len(one)) if axis.ordered else one
            for axis, one in zip(axes, self.shares, strict=True)
        )

    def again(self, survey: Measurer, loss: Loss) -> "OneWayMarginals":
        """Measure the counts once more and combine them: the mean of least variance.

        Privacy: the loss; see above.
        """
        other = measure_one_way(survey, self.label, loss)
        counts = tuple(
            _mean(one, self.sigma, two, other.sigma) for one, two in zip(self.counts, other.counts, strict=True)
        )
        sigma = 1 / sqrt(self.sigma**-2 + other.sigma**-2)
        measured = tuple(
            replace(one, counts=_mean(one.counts, self.sigma, two.counts, other.sigma), sigma=sigma)
            for one, two in zip(self.measured, other.measured, strict=True)
        )
        return OneWayMarginals(self.domain, counts, sigma, measured, self.label)

    def sharpen(self, moments: GroupMoments, features: Features, places: Sequence[int]) -> GroupMoments:
        """Combine moments of classes with the one-way marginals of the same numbers: the mean of least variance."""
        used = [one.shape[1] for place, one in enumerate(self.counts) if place != self.label]
        count = _mean(moments.count, moments.noise[0], self.classes, self.sigma * sqrt(sum(used)) / len(used))
        sums, products = moments.sums.copy(), moments.products.copy()
        ours = features.of(places)
        for i, number in enumerate(ours):
            place, cell = features.listed[number].place, features.listed[number].cell
            counts = self.counts[place]
            if cell is not None:
                sums[:, i] = _mean(sums[:, i], moments.noise[1], counts[:, cell], self.sigma)
                beside = [j for j, other in enumerate(ours) if features.listed[other].place == place]
                products[:, i, beside] = products[:, beside, i] = 0.0  # a row has one category
                products[:, i, i] = sums[:, i]
                continue
            line = features.coordinates(place)
            known = counts[:, : len(line)]
            for at, noise, power in ((sums[:, i], moments.noise[1], 1), (products[:, i, i], moments.noise[2], 2)):
                told = known @ line**power, self.sigma * float(np.linalg.norm(line**power))
                at[:] = _mean(at, noise, *told)
        return replace(moments, count=count, sums=sums, products=products)

    def wanted(self, classes: Floats, drawn: Cells, kinds: Cells) -> dict[int, Floats]:
        """Return the shares of each column's cells in each class: the model's, except where counts clearly differ.

        Args:
            classes: number of rows of each class.
            drawn: rows of the model.
            kinds: the class of each row.
        """
        found = {}
        for place, (axis, counts) in enumerate(zip(self.domain.modelled, self.counts, strict=True)):
            if place == self.label:
                continue
            lines = []
            for kind, (rows, noisy) in enumerate(zip(classes, counts, strict=True)):
                rows = max(1.0, float(rows))
                model = np.bincount(drawn[kinds == kind, place], minlength=axis.size) + 1e-3
                model = model * (rows / model.sum())
                far = noisy - model
                level = axis.ordered and axis.known >= 4
                kept = smoothed(axis, far, _DOUBT * self.sigma) if level else _kept(far, self.sigma)
                lines.append(nonnegative(model + kept, rows) / rows)
            found[place] = np.array(lines)
        return found


def measure_one_way(survey: Measurer, label: int | None, loss: Loss) -> OneWayMarginals:
    """Measure the counts of every column, in each class if there is a label.

    Privacy: the loss; see above.
    """
    others = [place for place in range(len(survey.domain.shape)) if place != label]
    sets = [(place,) if label is None else tuple(sorted((place, label))) for place in others]
    measured = survey.measure(sets, loss, why="every column by itself" + (", by class" if label is not None else ""))
    counts: list[Floats] = [np.zeros((1, 0))] * len(survey.domain.shape)
    for place, one in zip(others, measured, strict=True):
        counts[place] = one.counts[None, :] if label is None else one.counts if label < place else one.counts.T
    if label is not None:
        counts[label] = np.mean([counts[place].sum(axis=1) for place in others], axis=0)[None, :]
    return OneWayMarginals(survey.domain, tuple(counts), float(np.mean(measured[0].sigma)), tuple(measured), label)


def _mean(one: Floats, noise: float, other: Floats, its_noise: float) -> Floats:
    """Combine two measurements, weighted by their precision."""
    weight = its_noise**2 / (noise**2 + its_noise**2)
    return np.asarray(weight * one + (1 - weight) * other)


def _kept(far: Floats, sigma: float) -> Floats:
    """Shrink a distance by what noise explains (positive-part James & Stein 1961)."""
    return np.asarray(far * max(0.0, 1 - len(far) * sigma**2 / max(float(far @ far), 1e-12)))
