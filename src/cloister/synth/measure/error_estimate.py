"""The distance between a model and the table (the review), measured with a small part of the spend.

Adding a row moves a mean of L1 distances over many marginals by no more than one of them, so the means can be measured
almost exactly: three numbers for all marginals of one, two and three columns, and one for each column. The error bars
of a synthetic table come from them.

Distances are in the domain's cells. Where there are too many to list, they are computed from the cells that have rows:
in all others the distance is the model's expected number of rows.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.filter import noise_for
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above
from cloister.synth.domain.domain import Positions
from cloister.synth.measure.marginals import MOST_PLACES, gaps, in_parts, l1, parts_of
from cloister.synth.model.marginal_oracle import LARGEST

if TYPE_CHECKING:
    from cloister.synth.domain.domain import Domain
    from cloister.synth.measure.marginals import MarginalCounts, Measurer
    from cloister.synth.model.inference import AnyModel, Asks

__all__ = ["ErrorEstimate", "estimate_error", "rising"]

_GRID = 64  # distances are measured in parts of a row
_MOST_SETS = 600  # marginals measured, for each number of columns
_LISTED = 100_000  # cells of a marginal that are all listed; beyond this, those with rows


@dataclass(frozen=True)
class ErrorEstimate:
    """Half the mean L1 distance between model and table, as a share of the rows.

    Attributes:
        ways: for marginals of one, two and three columns; fewer where there are fewer, or all have too many cells.
        columns: for each column, over the pairs that include it (the column itself, if there is only one).
        margin: margin of `ways`: the largest effect of noise on each, with 95 % confidence.
        column_margin: margin of `columns`.
    """

    ways: tuple[float, ...]
    columns: tuple[float, ...]
    margin: float
    column_margin: float


def estimate_error(survey: "Measurer", model: "AnyModel", loss: Loss) -> ErrorEstimate:
    """Measure the mean errors of a model.

    Privacy: the loss. Each mean of L1 distances moves by at most m rows with a unit of m rows, all of them together by
        m·√k in L2 and m·k in L1; the grid of 1/64 row adds one step each. Distances are integers, and rounded once.
    """
    columns, oracle = len(model.grains), model.asked()
    sets = [positions for positions in _looked_at(columns) if _answerable(positions, oracle, survey.domain)]
    ways = max(map(len, sets))
    numbers = ways + columns
    step = -(-survey.most * _GRID // survey.whole) + 1
    noise = noise_for(root_above(numbers * step**2), numbers * step, loss)

    def look() -> NDArray[Any]:
        far = {
            positions: _distance(oracle, model.total, positions, counts, survey.whole)
            for positions, counts in survey.counted(sets)
        }
        means = [
            _mean([far[positions] for positions in sets if len(positions) == k], survey.parts)
            for k in range(1, ways + 1)
        ]
        for i in range(columns):  # a column without a measurable pair is represented by itself
            distances = [far[positions] for positions in sets if len(positions) == 2 and i in positions]
            means.append(_mean(distances or [far[i,]], survey.parts))
        return np.array(means, dtype=np.int64 if max(means) < 2**62 else object)

    errors = np.asarray(survey.meter.release(look, noise), dtype=np.float64) / _GRID
    half = 0.5 / max(model.total, 1.0)
    errors[:ways] = rising(errors[:ways])
    shares = np.clip(errors * half, 0.0, 1.0)
    margin = float(noise.margin("0.95")) / _GRID * half
    return ErrorEstimate(tuple(map(float, shares[:ways])), tuple(map(float, shares[ways:])), margin, margin)


def rising(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the closest nondecreasing numbers: with more columns tables differ no less, so a decrease is noise.

    No number gets further from the truth than the worst of the given ones (isotonic regression).
    """
    count = range(len(values))
    return np.array([max(min(values[a : b + 1].mean() for b in count[i:]) for a in count[: i + 1]) for i in count])


def _looked_at(columns: int) -> list[Positions]:
    """Return marginals of one, two and three columns, as many as time allows, spread evenly: a public choice."""
    sets: list[Positions] = [(column,) for column in range(columns)]
    if comb(columns, 2) <= _MOST_SETS:
        sets += combinations(range(columns), 2)
    else:  # every column with equally many others
        steps = max(1, _MOST_SETS // columns)
        apart = [1 + k * (columns // 2 - 1) // steps for k in range(steps)]
        sets += dict.fromkeys(tuple(sorted((i, (i + step) % columns))) for step in apart for i in range(columns))
    if comb(columns, 3) <= _MOST_SETS:
        return [*sets, *combinations(range(columns), 3)]
    drawn, triples = np.random.default_rng(0), dict[Positions, None]()
    while len(triples) < _MOST_SETS:
        triples[tuple(sorted(drawn.choice(columns, 3, replace=False).tolist()))] = None
    return [*sets, *triples]


def _answerable(positions: Positions, oracle: "Asks", domain: "Domain") -> bool:
    """Return True if a marginal needs no huge table. The model is released, so the omission depends on no row."""
    return len(positions) == 1 or (oracle.part_cells(positions) <= LARGEST and domain.cells(positions) < MOST_PLACES)


def _mean(distances: list[int], parts: int) -> int:
    """Return the mean on the grid, rounded down in integers."""
    return sum(distances) * _GRID // (len(distances) * parts)


def _distance(oracle: "Asks", total: float, positions: Positions, counts: "MarginalCounts", whole: int) -> int:
    """Return the L1 distance between model and table, in whole parts of a row. Inside a step only.

    If only cells with rows are listed, the distance in all others is the model's expected number of rows there: its
    total, minus the listed cells. A cell that a unit adds to the list moves this by no more than the cell's count.
    """
    if prod(counts.shape) <= _LISTED and oracle.cells(positions) <= LARGEST:
        return l1(gaps(counts.table(), oracle.marginal(positions), total, whole))
    expected, parts = oracle.at(positions, counts.positions), parts_of(whole)
    listed = int(in_parts(expected, total, parts).sum())
    return l1(gaps(counts.numbers, expected, total, whole)) + int(in_parts(np.array(total), total, parts)) - listed
