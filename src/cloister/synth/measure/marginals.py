"""Noisy marginals: charged before rows are read, counted in the engine, with exact noise.

    survey = Measurer(domain, relation, meter, budget)
    ages = survey.measure([(0,), (1,)], loss)               # two marginals under one loss
    best = survey.choose(scores, loss)                      # a private selection by scores over exact marginals

A generator accesses rows through a survey only. Marginals are counts by public cells, computed by statements in the
engine (DuckDB, PostgreSQL, Spark) and kept as integers inside this process until noise is added.

Privacy: a unit's rows count at most m (the rows of a person with more are weighted down, data/statistics.py), so it
moves one marginal by at most m in L1 and in L2, and k marginals together by k·m in L1 and √k·m in L2. Scores that are
L1 distances to one marginal move by at most m. A model's expectations are rounded to whole parts of a row, in which
counts are integers too, before a distance is taken (`gaps`): no value that depends on a row is rounded.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.statistics import GroupKey
from cloister.privacy.errors import BadLoss
from cloister.privacy.filter import BudgetShare, PrivacyFilter, noise_for
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, Exponential, root_above
from cloister.synth.domain.axis import Cells
from cloister.synth.domain.domain import Domain, Positions

if TYPE_CHECKING:
    from cloister.data.private_table import PrivateTable

__all__ = [
    "MOST_PLACES",
    "MarginalCounts",
    "Floats",
    "Merges",
    "NoisyMarginal",
    "Measurer",
    "check_noise",
    "deviation",
    "gaps",
    "in_parts",
    "l1",
    "merged_counts",
    "parts_of",
]

Floats = NDArray[np.float64]
# For each column, the coarser cell of each of its cells; None where cells are unchanged.
Merges = tuple[Cells | None, ...]

MOST_PLACES = 2**62  # cells of a marginal with 64-bit indices
_AT_ONCE = 24  # marginals in one statement: more take long to plan
_KEPT = 2**25  # cells with rows, of all marginals together, that are kept in memory
_LEAST_NOISE, _MOST_NOISE = 1e-12, 1e8  # rows
_GRID = 64  # scores are counted in parts of a row
_PARTS = 2**20  # of a row, in which distances to a model are counted
_MOST_COUNTED = 2**60  # parts of rows that a model can expect in all cells together


@dataclass(frozen=True, slots=True)
class NoisyMarginal:
    """A released marginal.

    Attributes:
        positions: indices of its columns among the modelled columns, ascending.
        counts: noisy number of rows in each cell; one dimension for each column.
        sigma: the standard deviation of the noise on a cell, in rows: one for all, or one for each.
        merges: for each column, the map from its cells to merged cells; None if its cells are unchanged.
        why: the reason for measuring it, in words.
    """

    positions: Positions
    counts: Floats
    sigma: float | Floats
    merges: Merges = ()
    why: str = ""

    def merge(self, position: int) -> Cells | None:
        """Return the map from the cells of one of its columns to merged cells."""
        return self.merges[self.positions.index(position)] if self.merges else None


@dataclass(frozen=True, slots=True)
class MarginalCounts:
    """True counts of a marginal, listed only where there are rows. As sensitive as the rows.

    Attributes:
        shape: number of cells of each column.
        cells: the cells with rows, as flat indices into a table of that shape.
        numbers: the count in each, in the survey's integers.
    """

    shape: tuple[int, ...]
    cells: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @property
    def positions(self) -> tuple[Cells, ...]:
        """Return for each column the cell of each listed one."""
        return tuple(np.asarray(cells) for cells in np.unravel_index(self.cells, self.shape))

    def table(self, merges: Merges = ()) -> NDArray[np.int64]:
        """Return all cells, merged if given; summed exactly."""
        shape, where = self.shape, self.cells
        if any(merge is not None for merge in merges):
            shape = merged_shape(self.shape, merges)
            taken = [cells if how is None else how[cells] for cells, how in zip(self.positions, merges, strict=True)]
            where = np.ravel_multi_index(tuple(taken), shape)
        counts = np.zeros(math.prod(shape), dtype=self.numbers.dtype)
        np.add.at(counts, where, self.numbers)
        return counts.reshape(shape)


@dataclass(slots=True)
class Measurer:
    """Access of a generator to private rows, within one charge.

    Attributes:
        domain: the public cells.
        relation: the rows.
        meter: the privacy filter that tracks the reserved loss.
        budget: the whole spend, to be split.
    """

    domain: Domain
    relation: "PrivateTable"
    meter: PrivacyFilter
    budget: BudgetShare
    _exact: dict[Positions, MarginalCounts] = field(default_factory=dict, repr=False)

    @property
    def whole(self) -> int:
        """Return the weight of one row in the exact integers."""
        return self.relation.whole

    @property
    def parts(self) -> int:
        """Return the number of parts of a row in which distances to a model are counted."""
        return parts_of(self.whole)

    @property
    def most(self) -> int:
        """Return the maximum weight of all rows of one unit, in the same integers."""
        return self.relation.most

    @property
    def most_parts(self) -> int:
        """Return `most` in parts of a row: an exact integer, as one row has a whole number of parts."""
        return self.most * (self.parts // self.whole)

    @property
    def rows_each(self) -> float:
        """Return `most` in rows: the sensitivity of a marginal to one unit, in L1 and in L2."""
        return self.most / self.whole

    def measure(
        self,
        marginals: Sequence[Positions],
        loss: Loss,
        merges: Sequence[Merges] | None = None,
        why: str = "",
    ) -> list[NoisyMarginal]:
        """Measure some marginals in one step, with equal noise.

        Args:
            marginals: their columns, each in ascending order.
            loss: the loss of all of them together.
            merges: for each marginal, the maps to merged cells.
            why: the reason for measuring them, for the metadata file.

        Privacy: the loss. Discrete Gaussian noise for a rho, discrete Laplace for an epsilon; a unit moves k marginals
            together by √k·m in L2 and k·m in L1.
        """
        taken = list(merges) if merges is not None else [()] * len(marginals)
        k = len(marginals)
        noise = noise_for(root_above(k * self.most**2), k * self.most, loss)

        def look() -> NDArray[np.int64]:
            counted = zip(self.counted(marginals), taken, strict=True)
            return np.concatenate([counts.table(how).ravel() for (_, counts), how in counted])

        noisy = np.asarray(self.meter.release(look, noise), dtype=np.float64) / self.whole
        sigma = deviation(noise, self.whole)
        released, start = [], 0
        for positions, how in zip(marginals, taken, strict=True):
            shape = merged_shape([self.domain.shape[column] for column in positions], how)
            size = math.prod(shape)
            counts = noisy[start : start + size].reshape(shape)
            released.append(NoisyMarginal(tuple(positions), counts, sigma, how, why))
            start += size
        return released

    def choose(self, scores: Callable[["Measurer"], Sequence[int]], loss: Loss, scale: int = 1) -> int:
        """Select the index of a candidate, likelier the higher its score (exponential mechanism).

        Args:
            scores: returns an exact score for each candidate of a public list: a Python integer, in parts of which
                `scale * parts` are one row. May call `counted`.
            loss: the loss of the selection.
            scale: number of units per part, so that weights need not be whole.

        Privacy: the loss, if one unit moves no score by more than `rows_each` rows. Scores are integers of any size,
            and rounded down to a grid of 1/64 row once, in integers; the sensitivity includes one extra step for that.
        """
        mechanism = Exponential.for_loss(math.ceil(Fraction(self.most * _GRID, self.whole)) + 1, loss)

        def look() -> list[int]:
            return [operator.index(score) * _GRID // (scale * self.parts) for score in scores(self)]

        return int(self.meter.release(look, mechanism))

    def noise(self, loss: Loss) -> float:
        """Return the standard deviation of the noise on a cell of one marginal, in rows."""
        return deviation(noise_for(self.most, self.most, loss), self.whole)

    # Private: called inside a step, after the charge.

    def exact(self, positions: Positions, merges: Merges = ()) -> Floats:
        """Return the true counts, in rows. As sensitive as the rows: only inside `measure` and `choose`."""
        [(_, counts)] = self.counted([positions])
        return counts.table(merges) / self.whole

    def count(self, marginals: Iterable[Positions]) -> None:
        """Count in the engine the marginals that are still missing."""
        for _ in self.counted(marginals):
            pass

    def counted(self, marginals: Iterable[Positions]) -> Iterator[tuple[Positions, MarginalCounts]]:
        """Yield true counts of marginals, one after the other; as many as memory allows are cached."""
        wanted = list(marginals)
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            missing = [positions for positions in dict.fromkeys(some) if positions not in self._exact]
            fresh = dict(zip(missing, self._counted(missing), strict=True)) if missing else {}
            cached = sum(len(counts.cells) for counts in self._exact.values())
            for positions, counts in fresh.items():
                cached += len(counts.cells)
                if cached <= _KEPT:
                    self._exact[positions] = counts
            yield from (
                (positions, fresh[positions] if positions in fresh else self._exact[positions]) for positions in some
            )

    def _counted(self, marginals: Sequence[Positions]) -> list[MarginalCounts]:
        positions = sorted({column for marginal in marginals for column in marginal})
        keys: list[GroupKey] = [self.domain.modelled[column].key() for column in positions]
        sets = [[positions.index(column) for column in marginal] for marginal in marginals]
        occupied = self.relation.sums(keys).run_occupied(self.relation.engine, sets)
        return [
            MarginalCounts(
                tuple(self.domain.shape[column] for column in marginal), cells, np.asarray(numbers, dtype=np.int64)
            )
            for marginal, (cells, numbers) in zip(marginals, occupied, strict=True)
        ]


def deviation(noise: DiscreteGaussian | DiscreteLaplace, worth: int) -> float:
    """Return the standard deviation of noise on integers, in units of `worth` integers.

    Positive even where a large loss leaves noise too small for a float: callers divide by it.
    """
    return max(noise.standard_error / worth, _LEAST_NOISE)


def check_noise(relation: "PrivateTable", loss: Loss) -> None:
    """Refuse a spend whose noise hides every table. From public facts only; nothing is charged or read.

    No guarantee depends on it: distances to counts are exact at any spend. It keeps models within the range of floats.
    """
    noise = deviation(noise_for(relation.most, relation.most, loss), relation.whole)
    if noise > _MOST_NOISE:
        raise BadLoss(
            f"this spend buys noise of about {noise:.0e} rows on a single count, in which any table is lost. "
            f"Spend more: {_MOST_NOISE:.0e} rows are the most."
        )


def parts_of(whole: int) -> int:
    """Return the number of parts of a row in which distances to a model are counted.

    Args:
        whole: the weight of one row in exact counts.
    """
    return whole * max(1, _PARTS // whole)


def in_parts(expected: Floats, total: float, parts: int) -> NDArray[np.int64]:
    """Return a model's expectation in some cells, in whole parts of a row; each cell by itself.

    Args:
        expected: rows in each cell.
        total: rows that the model expects in all cells. If they overflow 64 bits, all cells are scaled down.
        parts: parts of a row.

    Privacy: the same for neighbouring tables: it depends on the released model and public facts only, also where the
        listed cells are those with rows, as the number of a cell does not depend on the others.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = expected * (min(1.0, _MOST_COUNTED / max(total * parts, 1.0)) * parts)
    return np.asarray(np.clip(np.nan_to_num(np.rint(scaled)), 0, 2 * _MOST_COUNTED), dtype=np.int64)


def gaps(exact: NDArray[np.int64], expected: Floats, total: float, whole: int) -> NDArray[np.int64]:
    """Return exact counts minus a model's expectation, in parts of a row: exact integers.

    Args:
        exact: the counts, of which `whole` are one row.
        expected: rows in the same cells.
        total, whole: as for `in_parts` and `parts_of`.

    Privacy: as sensitive as the counts. A unit moves all of them together by what it moves the counts, in L1.
    """
    parts = parts_of(whole)
    return exact * (parts // whole) - in_parts(expected, total, parts)


def l1(gaps: NDArray[Any]) -> int:
    """Return the sum of absolute integers, exactly. Integers with a sum below 2^53 may be given as floats."""
    return int(np.abs(gaps).sum())


def merged_shape(shape: Sequence[int], merges: Merges) -> tuple[int, ...]:
    """Return the shape of a marginal with merged cells."""
    how = merges or (None,) * len(shape)
    return tuple(size if merge is None else int(merge.max()) + 1 for size, merge in zip(shape, how, strict=True))


def merged_counts(counts: NDArray[Any], merges: Merges) -> NDArray[Any]:
    """Merge the cells of a marginal, summed exactly."""
    for side, merge in enumerate(merges):
        if merge is not None:
            moved = np.moveaxis(counts, side, 0)
            summed = np.zeros((int(merge.max()) + 1, *moved.shape[1:]), dtype=counts.dtype)
            np.add.at(summed, merge, moved)
            counts = np.moveaxis(summed, 0, side)
    return counts
