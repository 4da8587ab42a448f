"""Rows from multivariate Gaussians: a mixture for each set of columns; the sets are independent.

Numbers of a set come from the Gaussian of a group. Categories follow, one column after the other: the expectation of
each indicator given all sampled values, clipped at zero, is used as a probability. Shares and linear dependence are
then as measured, and the result is a category.

Where the share of each cell is known (`wanted`), rows are matched to it (gaussian.py): numbers keep their ranks and
take the cells of these ranks (a Gaussian copula); probabilities of categories are scaled.

Privacy: post-processing of released means and covariances. Randomness comes from numpy; no protection depends on it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput
from cloister.synth.domain.axis import Cells
from cloister.synth.domain.domain import Domain, Positions
from cloister.synth.domain.features import Features
from cloister.synth.measure.marginals import Floats
from cloister.synth.model.inference import Grain, Model, propagate
from cloister.synth.model.junction_tree import junction_tree
from cloister.synth.model.sampling import systematic

__all__ = ["GaussianModel", "GaussianPart", "nearest_covariance"]


# Match sampled rows to the wanted shares of a column's cells, with minimal change.
#
#     cell = ranked(values, absent, kind, wanted, known, generator)    # numbers keep their ranks
#     chances = raked(chances, kind, wanted)                           # probabilities of categories are scaled
#
# Privacy: post-processing of released shares.


_ROUNDS = 6


def ranked(
    values: Floats, absent: Floats, kind: Cells, wanted: Floats, known: int, generator: np.random.Generator
) -> Cells:
    """Assign the cell of each number by rank: in each class the lowest values get the first cells, by their shares.

    Args:
        values: the value of each row.
        absent: probability that each row's number is missing, up to a factor.
        kind: the class of each row.
        wanted: for each class the share of each cell; one cell beyond `known` stands for missing numbers.
        known: number of cells that hold numbers.
        generator: random generator.
    """
    cell = np.zeros(len(values), dtype=np.int64)
    for group in np.unique(kind):
        rows = np.flatnonzero(kind == group)
        shares = wanted[group]
        missing = float(shares[known:].sum())
        likely = absent[rows] + 1e-9
        gone = generator.random(len(rows)) < likely * (missing / likely.mean())
        cell[rows[gone]] = known
        left = rows[~gone]
        bounds = np.cumsum(shares[:known])
        order = np.argsort(values[left], kind="stable")
        spot = (np.arange(len(left)) + generator.random()) / max(1, len(left)) * bounds[-1]
        cell[left[order]] = np.minimum(np.searchsorted(bounds, spot, side="right"), known - 1)
    return cell


def raked(chances: Floats, kind: Cells, wanted: Floats) -> Floats:
    """Scale probabilities of categories, by category and by row in turn, to the wanted mean in each class."""
    scaled = chances.copy()
    for group in np.unique(kind):
        rows = kind == group
        part, shares = scaled[rows], wanted[group]
        for _ in range(_ROUNDS):
            part = part * (shares / np.maximum(part.mean(axis=0), 1e-12))
            part = part / np.maximum(part.sum(axis=1, keepdims=True), 1e-12)
        scaled[rows] = part
    return scaled


_EVEN = 10_000  # rows that stand for all possible ones
_ASKED = 100_000  # rows that represent the model when a marginal is queried
_TRIES, _REDRAWS = 60, 8
_RIDGE = 1e-6
_DOUBT = 1.0


@dataclass(frozen=True)
class GaussianPart:
    """A mixture of Gaussians for a set of columns.

    Attributes:
        positions: the columns.
        weights: for each class (a row) the share of each group.
        means: means of every feature of the columns, by group.
        covariances: covariances of the features, by group.
        gaps: probability that a number is missing, by group and column.
        noise: standard deviation of the noise in the covariances of each group; none unless given.
    """

    positions: Positions
    weights: Floats
    means: Floats
    covariances: Floats
    gaps: Mapping[int, Floats]
    noise: Floats | None = None


@dataclass
class GaussianModel:
    """A released distribution of all columns.

    Attributes:
        domain: the domain.
        parts: one for each set of columns; independent of each other, given the class.
        total: number of rows it represents.
        label: the column that defines classes; None if there is one class.
        classes: the share of each class.
        features: the features of the means; equally spaced cells unless given.
        wanted: for some columns the share of each cell (a row for each class) that rows are matched to.
    """

    domain: Domain
    parts: Sequence[GaussianPart]
    total: float
    label: int | None = None
    classes: Floats = field(default_factory=lambda: np.ones(1))
    features: Features | None = None
    wanted: Mapping[int, Floats] = field(default_factory=dict)
    _sample: Cells | None = field(default=None, repr=False)
    grains: tuple[Grain, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.grains = tuple(Grain.whole(size) for size in self.domain.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of cells of each column."""
        return self.domain.shape

    def asked(self) -> "GaussianModel":
        """Return the model itself: it keeps the rows that it answers from."""
        return self

    def cells(self, positions: Positions) -> int:
        """Return the size of the answer: it is counted in rows and needs no other table."""
        return math.prod(self.shape[column] for column in positions)

    def part_cells(self, positions: Positions) -> int:
        """Return the size needed by `at` and `weighed`, which are answered from rows."""
        return _ASKED

    def marginal(self, positions: Positions) -> Floats:
        """Return the expected rows in each cell of some columns: shares of many rows sampled once."""
        shape = [self.shape[column] for column in positions]
        sample = self._rows()
        where = np.ravel_multi_index(tuple(sample[:, column] for column in positions), shape)
        counts = np.bincount(where, minlength=math.prod(shape)).reshape(shape)
        return np.asarray(counts * (self.total / len(sample)))

    def at(self, positions: Positions, cells: Sequence[Cells]) -> Floats:
        """Return the expected rows in some cells only: for each column the cell of each of them."""
        shape, sample = [self.shape[column] for column in positions], self._rows()
        occupied, counts = np.unique(
            np.ravel_multi_index(tuple(sample[:, column] for column in positions), shape), return_counts=True
        )
        where = np.ravel_multi_index(tuple(cells), shape)
        near = np.minimum(np.searchsorted(occupied, where), len(occupied) - 1)
        return np.where(occupied[near] == where, counts[near], 0) * (self.total / len(sample))

    def weighed(self, positions: Positions, weights: Sequence[Floats]) -> float:
        """Return the expected sum over rows of the product of their cells' weights."""
        sample = self._rows()
        each = np.ones(len(sample))
        for column, weight in zip(positions, weights, strict=True):
            each *= weight[sample[:, column]]
        return float(each.mean() * self.total)

    def _rows(self) -> Cells:
        """Sample many rows once."""
        if self._sample is None:
            self._sample = self.draw(_ASKED, np.random.default_rng(20190))
        return self._sample

    def draw(self, rows: int, generator: np.random.Generator, given: Mapping[int, Floats] | None = None) -> Cells:
        """Sample the cells of rows. Rows that are impossible or violate the condition are sampled again."""
        parts: list[Cells] = []
        count = drawn = 0
        for _ in range(_TRIES):
            some = self._drawn(max(2 * (rows - count), 64) if parts else rows, generator)
            drawn += len(some)
            some = some[self._fitting(some, given, generator)]
            parts.append(some)
            count += len(some)
            if count >= rows:
                return np.concatenate(parts)[:rows]
            if not count and drawn > _ASKED:
                break
        if not count:
            parts.append(self._anywhere(generator, given))
            if not len(parts[-1]):
                raise BadInput("no row of the model meets this condition. Ask for a wider one.")
        every = np.concatenate(parts)
        return every[generator.integers(0, len(every), rows)]

    def _fitting(
        self, cells: Cells, given: Mapping[int, Floats] | None, generator: np.random.Generator
    ) -> NDArray[np.bool_]:
        fits = np.ones(len(cells), dtype=bool)
        for zero in self.domain.zeros:
            fits &= zero.allowed[tuple(cells[:, column] for column in zero.positions)]
        for column, weights in (given or {}).items():
            fits &= generator.random(len(cells)) < weights[cells[:, column]]
        return fits

    def _anywhere(self, generator: np.random.Generator, given: Mapping[int, Floats] | None) -> Cells:
        """Return valid rows from the whole domain where the model has none, so that a released table is never lost.

        They are sampled from the rules themselves, evenly: however few rows are possible, some are (`Domain.possible`).
        """
        if given:
            return np.zeros((0, len(self.shape)), dtype=np.int64)
        zeros = self.domain.zeros
        tree = junction_tree(self.shape, [zero.positions for zero in zeros])
        even = Model(self.shape, tree, {}, zeros, 1.0, self.grains)
        even.beliefs = propagate(even)
        return even.draw(_EVEN, generator)

    def _drawn(self, rows: int, generator: np.random.Generator) -> Cells:
        return self.drawn(rows, generator)[0]

    def drawn(self, rows: int, generator: np.random.Generator) -> tuple[Cells, Cells]:
        """Sample rows from the Gaussians, possible or not, and the class of each."""
        cells = np.zeros((rows, len(self.shape)), dtype=np.int64)
        kind = systematic(self.classes[None, :], np.zeros(rows, dtype=np.int64), generator)
        if self.label is not None:
            cells[:, self.label] = kind
        for part in self.parts:
            self._fill(cells, kind, part, generator)
        return cells, kind

    def _fill(self, cells: Cells, kind: Cells, part: GaussianPart, generator: np.random.Generator) -> None:
        features = self.features or Features(self.domain)
        group = systematic(part.weights, kind, generator)
        groups = [(int(index), np.flatnonzero(group == index)) for index in np.unique(group)]
        ours = features.of(part.positions)
        values = np.zeros((len(cells), len(ours)))
        numbers = [column for column in part.positions if features.numeric(column)]
        sampled = [ours.index(features.of([column])[0]) for column in numbers]
        free = all(column in self.wanted for column in numbers)
        for index, rows in groups:
            mean, spread = part.means[index][sampled], part.covariances[index][np.ix_(sampled, sampled)]
            values[rows[:, None], sampled] = _gaussian(mean, spread, len(rows), generator, free)
        for i, column in zip(sampled, numbers, strict=True):
            line = features.coordinates(column)
            absent = part.gaps[column][group] if column in part.gaps else np.zeros(len(cells))
            wanted = self.wanted.get(column)
            if wanted is None:
                cell = np.searchsorted((line[1:] + line[:-1]) / 2, values[:, i])
                cell = np.where(generator.random(len(cells)) < absent, len(line), cell)
            else:
                cell = ranked(values[:, i], absent, kind, wanted, len(line), generator)
                values[:, i] = np.append(line, 0.0)[np.minimum(cell, len(line))]
            cells[:, column] = cell
        for column in (column for column in part.positions if not features.numeric(column)):
            indices = [ours.index(number) for number in features.of([column])]
            expected = np.zeros((len(cells), len(indices)))
            for index, rows in groups:
                noise = 0.0 if part.noise is None else float(part.noise[index])
                mean, slope = part.means[index], _slope(part.covariances[index], sampled, indices, noise)
                expected[rows] = mean[indices] + (values[rows[:, None], sampled] - mean[sampled]) @ slope
            cell = _category(expected, features, column, kind, self.wanted.get(column), generator)
            cells[:, column] = cell
            values[:, indices] = cell[:, None] == np.array(features.cells(column), dtype=np.int64)
            sampled = [*sampled, *indices]


def _category(
    expected: Floats,
    features: Features,
    column: int,
    kind: Cells,
    wanted: Floats | None,
    generator: np.random.Generator,
) -> Cells:
    """Sample a category for each row from the expectations of its indicators; rare ones by their overall share."""
    size = features.domain.modelled[column].size
    chances = np.zeros((len(expected), size))
    if features.shares is not None:
        chances += features.shares[column]
    chances[:, features.cells(column)] = expected
    chances[:, features.reference(column)] = 0.0
    chances[:, features.reference(column)] = 1 - chances.sum(axis=1)
    chances = np.clip(chances, 1e-9, None)
    chances /= chances.sum(axis=1, keepdims=True)
    if wanted is not None:
        chances = raked(chances, kind, wanted)
    bounds = np.cumsum(chances, axis=1)
    return np.asarray((generator.random(len(chances))[:, None] > bounds[:, :-1]).sum(axis=1))


def _gaussian(mean: Floats, covariance: Floats, rows: int, generator: np.random.Generator, free: bool) -> Floats:
    """Sample Gaussian numbers; unless free, within ±1: resampled a few times where they are beyond, then clipped."""
    if not len(mean):
        return np.zeros((rows, 0))
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = mean + generator.standard_normal((rows, len(mean))) @ root.T
    if free:
        return np.asarray(drawn)
    for _ in range(_REDRAWS):
        beyond = np.flatnonzero((np.abs(drawn) > 1).any(axis=1))
        if not len(beyond):
            break
        drawn[beyond] = mean + generator.standard_normal((len(beyond), len(mean))) @ root.T
    return np.asarray(np.clip(drawn, -1.0, 1.0))


def _slope(covariance: Floats, given: Sequence[int], wanted: Sequence[int], noise: float) -> Floats:
    """Return the regression of some features on the known ones.

    Noise of n by n numbers has eigenvalues up to √n times its size (Wigner), and a direction with less spread than that
    carries no information: this amount is added to all directions.
    """
    if not given:
        return np.zeros((0, len(wanted)))
    inside = covariance[np.ix_(given, given)]
    ridge = _RIDGE + 1e-3 * float(np.mean(np.diag(inside))) + _DOUBT * noise * sqrt(len(given))
    return np.asarray(np.linalg.solve(inside + ridge * np.eye(len(given)), covariance[np.ix_(given, wanted)]))


def nearest_covariance(matrix: Floats, floor: float = 1e-6) -> Floats:
    """Return a symmetric matrix with no eigenvalue below a floor."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)
