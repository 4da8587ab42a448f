"""Noisy means and covariances of groups of rows: summed in the engine, one release for all groups.

    found = measure_moments(survey, features, positions, groups, loss)
    found.count, found.mean, found.second      # one for each group, and their noise

Privacy: a row is in one group. It adds to it a one, one number within ±1 for each of c columns, and their products:
squares that sum to at most α² + c·β² + c(c+1)/2 and absolute values that sum to α + c·β + c(c+1)/2, where α and β
weight the count and the sums so that they have less noise. With squares only, c replaces c(c+1)/2. A unit adds m times
as much, independent of the number of groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import isqrt, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.private_table import PrivateTable
from cloister.data.statistics import GroupKey
from cloister.privacy.filter import noise_for
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, root_above
from cloister.synth.domain.domain import Positions
from cloister.synth.domain.features import ONE, Features
from cloister.synth.measure.marginals import Floats, Measurer, deviation

__all__ = ["GroupMoments", "law_of_moments", "measure_moments", "scaled"]


@dataclass(frozen=True, slots=True)
class GroupMoments:
    """Noisy moments of groups, in rows.

    Attributes:
        count: number of rows of each group.
        sums: sum of each feature, by group.
        gaps: number of rows of each group in which a number is missing, for each nullable number.
        products: sums of products of every two features, by group; symmetric.
        noise: standard deviations of the noise on a count, a sum and a product.
        gap_of: the feature of each of the gaps.
    """

    count: Floats
    sums: Floats
    gaps: Floats
    products: Floats
    noise: tuple[float, float, float]
    gap_of: tuple[int, ...] = ()

    @property
    def total(self) -> float:
        """Return the number of rows, at least one."""
        return max(1.0, float(self.count.sum()))

    @property
    def together(self) -> "GroupMoments":
        """Return all groups as one."""
        count, sums, gaps, products = (
            part.sum(axis=0, keepdims=True) for part in (self.count, self.sums, self.gaps, self.products)
        )
        grown = sqrt(len(self.count))
        noise = (grown * self.noise[0], grown * self.noise[1], grown * self.noise[2])
        return GroupMoments(count, sums, gaps, products, noise, self.gap_of)

    def means(self, group: int) -> tuple[Floats, Floats, Floats]:
        """Return means, means of products, and the missing share of each nullable number, for a group.

        Missing numbers are zero, so means are divided by the known share, and products by the share in which both are
        known, as if values were missing at random.
        """
        rows = max(1.0, float(self.count[group]))
        absent = np.clip(self.gaps[group] / rows, 0.0, 0.95)
        present = np.ones(self.sums.shape[1])
        present[list(self.gap_of)] -= absent
        both = np.outer(present, present) + np.diag(present - present**2)
        return self.sums[group] / rows / present, self.products[group] / rows / both, absent


def measure_moments(
    survey: Measurer,
    features: Features,
    positions: Positions,
    loss: Loss,
    rows: PrivateTable,
    keys: Sequence[GroupKey] = (),
    crossed: bool = True,
    weighed: bool = True,
) -> GroupMoments:
    """Measure the moments of some columns in each group.

    Args:
        survey: the survey that pays.
        features: features of the domain.
        positions: the columns.
        loss: the loss of all groups together.
        rows: the rows from `features.rows`.
        keys: the group keys: public lists, or released values; one group of all rows unless given.
        crossed: whether to measure products of different columns; if not, independence is assumed.
        weighed: whether counts and sums have less noise than products, which then have more.

    Privacy: the loss; see above. Discrete Gaussian noise for a rho, discrete Laplace for an epsilon.
    """
    chosen = features.of(positions)
    gaps = [column for column in features.gaps if column in positions]
    pairs = [(i, j) for i, j in combinations_with_replacement(range(len(chosen)), 2) if crossed or i == j]
    noise, (alpha, beta) = law_of_moments(survey, len(positions), loss, crossed, weighed)
    unit = ONE**2
    values = [features.value(i) for i in chosen]
    values += [features.gap(column) for column in gaps]
    values += [features.product(chosen[i], chosen[j]) for i, j in pairs]
    size = prod(len(key.values) for key in keys)
    scales = [alpha * unit, *([beta * ONE] * (len(chosen) + len(gaps))), *([1] * len(pairs))]

    def look() -> NDArray[Any]:
        totals = rows.sums(keys, values).run(rows.engine)
        return scaled(totals, scales)

    noisy = np.asarray(survey.meter.release(look, noise), dtype=np.float64).reshape(-1, size).T
    noisy /= unit * survey.whole
    first, last = 1 + len(chosen), 1 + len(chosen) + len(gaps)
    sums = noisy[:, 1:first] / beta
    products = sums[:, :, None] * sums[:, None, :] / np.maximum(noisy[:, 0] / alpha, 1.0)[:, None, None]
    for number, (i, j) in enumerate(pairs):
        products[:, i, j] = products[:, j, i] = noisy[:, last + number]
    sigma = deviation(noise, unit * survey.whole)
    return GroupMoments(
        noisy[:, 0] / alpha,
        sums,
        noisy[:, first:last] / beta,
        products,
        (sigma / alpha, sigma / beta, sigma),
        tuple(chosen.index(features.of([column])[0]) for column in gaps),
    )


def law_of_moments(
    survey: Measurer, c: int, loss: Loss, crossed: bool = True, weighed: bool = True
) -> tuple[DiscreteGaussian | DiscreteLaplace, tuple[int, int]]:
    """Return the noise on moments of c columns, in units of 1/ONE² row, and the weights of a count and of a sum.

    Privacy: the contribution of one unit, as above. It depends on public numbers only.
    """
    cells = c * (c + 1) // 2 if crossed else c
    # Means matter most with many groups or few rows: they distinguish classes and groups.
    alpha, beta = (max(1, isqrt(cells)), max(1, isqrt(c + 1))) if weighed else (1, 1)
    squares, sizes = alpha**2 + c * beta**2 + cells, alpha + c * beta + cells
    unit = ONE**2 * survey.most
    return noise_for(root_above(squares) * unit, sizes * unit, loss), (alpha, beta)


def scaled(sums: Sequence[NDArray[Any]], scales: Sequence[int]) -> NDArray[Any]:
    """Return all sums in one array, each times a whole number, as Python integers where 64 bits might overflow.

    A sum that wraps would jump by 2^64 for one row more, which no noise covers.
    """
    largest = max(
        scale * max(abs(int(array.max())), abs(int(array.min()))) for array, scale in zip(sums, scales, strict=True)
    )
    kind: Any = np.int64 if largest < 2**62 else object
    return np.concatenate([array.astype(kind) * scale for array, scale in zip(sums, scales, strict=True)])
