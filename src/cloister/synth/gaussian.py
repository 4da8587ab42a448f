"""Rows from multivariate Gaussians: a mixture for each set of columns, and sets that do not depend on each other.

Numbers of a set come from the Gaussian of a group. Categories follow, one column after the other: the expectation of
each indicator given all that is drawn already is a probability once it is cut to be none below zero. So shares and
linear dependence are as measured, and what comes out is a category.

Privacy: post-processing of released means and covariances. Randomness comes from numpy; nobody is protected by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput
from cloister.synth.axes import Cells
from cloister.synth.domain import Domain, Places
from cloister.synth.features import Features
from cloister.synth.inference import Grain
from cloister.synth.marginals import Floats
from cloister.synth.sampling import systematic

__all__ = ["GaussianModel", "Part", "nearest_covariance"]

_ASKED = 100_000  # rows that stand for the model when a marginal is asked
_TRIES, _REDRAWS = 60, 8
_RIDGE = 1e-6


@dataclass(frozen=True)
class Part:
    """A mixture of Gaussians for a set of columns.

    Attributes:
        places: the columns.
        weights: for each class (a line) the share of each group.
        means: of each group, for every feature of the columns.
        covariances: likewise.
        gaps: for each group the chance that a number is missing, by its column.
    """

    places: Places
    weights: Floats
    means: Floats
    covariances: Floats
    gaps: Mapping[int, Floats]


@dataclass
class GaussianModel:
    """A released distribution of all columns.

    Attributes:
        domain: the cells.
        parts: one for each set of columns; independent of each other, given the class.
        total: how many rows it stands for.
        label: the column that tells classes; None where there is one class.
        classes: the share of each.
    """

    domain: Domain
    parts: Sequence[Part]
    total: float
    label: int | None = None
    classes: Floats = field(default_factory=lambda: np.ones(1))
    _sample: Cells | None = field(default=None, repr=False)
    grains: tuple[Grain, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.grains = tuple(Grain.whole(size) for size in self.domain.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many cells each column has."""
        return self.domain.shape

    def asked(self) -> "GaussianModel":
        """It keeps the rows that answer for it."""
        return self

    def marginal(self, places: Places) -> Floats:
        """The rows that it expects in each cell of some columns: shares of many rows that were drawn once."""
        if self._sample is None:
            self._sample = self.draw(_ASKED, np.random.default_rng(20190))
        shape = [self.shape[place] for place in places]
        where = np.ravel_multi_index(tuple(self._sample[:, place] for place in places), shape)
        counts = np.bincount(where, minlength=int(np.prod(shape))).reshape(shape)
        return np.asarray(counts * (self.total / len(self._sample)))

    def draw(
        self, rows: int, generator: np.random.Generator, given: Mapping[int, NDArray[np.bool_]] | None = None
    ) -> Cells:
        """The cells of rows. What can never be, or is not asked for, is drawn again until it is right."""
        kept: list[Cells] = []
        found = 0
        for _ in range(_TRIES):
            some = self._drawn(max(2 * (rows - found), 64) if kept else rows, generator)
            some = some[self._fitting(some, given)]
            kept.append(some)
            found += len(some)
            if found >= rows:
                return np.concatenate(kept)[:rows]
        if not found:
            kept.append(self._anywhere(generator, given))
            if not len(kept[-1]):
                raise BadInput("no row of the model meets this condition. Ask for a wider one.")
        every = np.concatenate(kept)
        return every[generator.integers(0, len(every), rows)]

    def _fitting(self, cells: Cells, given: Mapping[int, NDArray[np.bool_]] | None) -> NDArray[np.bool_]:
        fits = np.ones(len(cells), dtype=bool)
        for zero in self.domain.zeros:
            fits &= zero.allowed[tuple(cells[:, place] for place in zero.places)]
        for place, allowed in (given or {}).items():
            fits &= allowed[cells[:, place]]
        return fits

    def _anywhere(self, generator: np.random.Generator, given: Mapping[int, NDArray[np.bool_]] | None) -> Cells:
        """Rows that fit, from all there are, where the model has none: so that a released table is never lost."""
        if given:
            return np.zeros((0, len(self.shape)), dtype=np.int64)
        even = np.column_stack([generator.integers(0, size, _ASKED) for size in self.shape])
        return even[self._fitting(even, None)]

    def _drawn(self, rows: int, generator: np.random.Generator) -> Cells:
        cells = np.zeros((rows, len(self.shape)), dtype=np.int64)
        features = Features(self.domain)
        kind = systematic(self.classes[None, :], np.zeros(rows, dtype=np.int64), generator)
        if self.label is not None:
            cells[:, self.label] = kind
        for part in self.parts:
            group = systematic(part.weights, kind, generator)
            for number in np.unique(group):
                _fill(cells, np.flatnonzero(group == number), part, int(number), features, generator)
        return cells


def _fill(
    cells: Cells, rows: Cells, part: Part, group: int, features: Features, generator: np.random.Generator
) -> None:
    places = part.places
    ours = features.of(places)
    at = {number: i for i, number in enumerate(ours)}
    mean, covariance = part.means[group], part.covariances[group]
    numbers = [place for place in places if features.numeric(place)]
    order = [at[features.of([place])[0]] for place in numbers]
    drawn = _within(mean[order], covariance[np.ix_(order, order)], len(rows), generator)
    for i, place in enumerate(numbers):
        line = features.coordinates(place)
        known = len(line)
        scaled = (drawn[:, i] - line[0]) / (line[-1] - line[0])
        # A cell stands for all values around its middle, so the place within it is left to chance.
        cell = np.clip(np.rint(scaled * (known - 1)), 0, known - 1).astype(np.int64)
        if place in part.gaps:
            cell = np.where(generator.random(len(rows)) < part.gaps[place][group], known, cell)
        cells[rows, place] = cell
    for place in (place for place in places if not features.numeric(place)):
        own = [at[number] for number in features.of([place])]
        if own:
            expected = mean[own] + (drawn - mean[order]) @ _slope(covariance, order, own)
        else:
            expected = np.zeros((len(rows), 0))
        chances = np.clip(np.column_stack([expected, 1 - expected.sum(axis=1)]), 1e-9, None)
        bounds = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)
        cell = (generator.random(len(rows))[:, None] > bounds[:, :-1]).sum(axis=1)
        cells[rows, place] = cell
        drawn = np.column_stack([drawn, cell[:, None] == np.arange(len(own))])
        order = [*order, *own]


def _within(mean: Floats, covariance: Floats, rows: int, generator: np.random.Generator) -> Floats:
    """Gaussian numbers within ±1: drawn again a few times where they are beyond, then clipped."""
    if not len(mean):
        return np.zeros((rows, 0))
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = mean + generator.standard_normal((rows, len(mean))) @ root.T
    for _ in range(_REDRAWS):
        beyond = np.flatnonzero((np.abs(drawn) > 1).any(axis=1))
        if not len(beyond):
            break
        drawn[beyond] = mean + generator.standard_normal((len(beyond), len(mean))) @ root.T
    return np.asarray(np.clip(drawn, -1.0, 1.0))


def _slope(covariance: Floats, given: Sequence[int], wanted: Sequence[int]) -> Floats:
    """How expectations of some features move with those that are known."""
    if not given:
        return np.zeros((0, len(wanted)))
    inside = covariance[np.ix_(given, given)]
    ridge = _RIDGE + 1e-3 * float(np.mean(np.diag(inside)))
    return np.asarray(np.linalg.solve(inside + ridge * np.eye(len(given)), covariance[np.ix_(given, wanted)]))


def nearest_covariance(matrix: Floats, floor: float = 1e-6) -> Floats:
    """A symmetric matrix with no direction of less variance than a floor."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)
