"""Expected errors of answers from a synthetic table, from released values only.

Half the L1 distance between two tables of shares bounds the difference of any count over these columns, as a share of
the rows. For columns inside a measured marginal it follows from the noise; for others it comes from the review, which
measured the mean distance; a finite number of synthetic rows adds its own error. The review is noisy itself: it
replaces the noise-based estimate only where it is certainly smaller.

Rows are counted as the unit allows: where a person has more than `max_rows`, each counts less. The resulting loss of
rows from the real table is in no error here, as it was not measured.

The distribution inside a bin was not measured either. A count whose condition ends inside one takes a share of the bin,
by its width, and its error includes the largest possible effect: all that the bin holds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput
from cloister.privacy.loss import ROW, Unit
from cloister.synth.domain.axis import Axis
from cloister.synth.domain.domain import Domain, Positions
from cloister.synth.measure.marginals import Floats, NoisyMarginal
from cloister.synth.model.inference import total_of
from cloister.synth.model.marginal_oracle import LARGEST

if TYPE_CHECKING:
    from cloister.synth.run import GeneratorResult

__all__ = [
    "RangeCondition",
    "ExpectedError",
    "MarginalQuery",
    "bounded",
    "expected_error",
    "least_told",
    "plain_condition",
    "query_error",
    "total_error",
    "workload_errors",
]

_MOST_CELLS = 4_000_000  # of a marginal that is listed
_MOST_LISTED = 1000  # beside the caller's marginals
_MEAN_SIZE = math.sqrt(2 / math.pi)  # of normal noise with standard deviation 1

Source = Literal["noise", "review", "nothing"]


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """A number and its expected error.

    Attributes:
        value: the estimate.
        error: its expected error; NaN if no measurement determines it.
        known_from: "noise" of a measured marginal, the "review" of the model, or "nothing".
    """

    value: float
    error: float
    known_from: Source = "noise"


@dataclass(frozen=True, slots=True, eq=False)
class RangeCondition:
    """A condition on one column, as cells.

    Attributes:
        inside: the share of each cell that meets it, from 0 to 1.
        least: 1 where all of a cell meets it.
        most: 1 where some of a cell meets it.
    """

    inside: Floats
    least: Floats
    most: Floats

    @classmethod
    def of(cls, axis: Axis, wanted: Any) -> "RangeCondition":
        """Read a condition as in `Axis.weights_of`."""
        inside = axis.weights_of(wanted)
        return cls(inside, (inside >= 1).astype(np.float64), axis.cells_of(wanted).astype(np.float64))

    def take(self, cells: NDArray[np.int64]) -> "RangeCondition":
        """Return the condition for each of some rows, given their cells; a cell below 0 meets nothing."""
        valid = cells >= 0
        return RangeCondition(
            *(np.where(valid, weights[cells], 0.0) for weights in (self.inside, self.least, self.most))
        )


def bounded(weigh: Callable[[Sequence[Floats]], float], conditions: Sequence[RangeCondition]) -> tuple[float, float]:
    """Return a count under conditions, and its possible error because some of them end inside a bin.

    Args:
        weigh: returns the sum over rows of the product of their cells' weights, for a model or a table.
        conditions: one for each column.
    """
    inside, least, most = (
        weigh([getattr(condition, name) for condition in conditions]) for name in ("inside", "least", "most")
    )
    return inside, max(most - inside, inside - least, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class MarginalQuery:
    """A count that matters to the caller.

    Attributes:
        where: its condition, as given.
        positions: the columns of the condition, in ascending order.
        conditions: the condition on each of them.
    """

    where: Mapping[str, Any]
    positions: Positions
    conditions: tuple[RangeCondition, ...]


def expected_error(made: "GeneratorResult", positions: Positions, rows: int | None) -> ExpectedError:
    """Return the expected half L1 distance of some columns, as a share of the rows.

    Args:
        made: the model and its measurements.
        positions: the columns.
        rows: number of synthetic rows that are queried; None for the model itself.
    """
    oracle = made.model.asked()
    cells = math.prod(len(made.model.grains[column].cells) for column in positions)
    counts = oracle.marginal(positions) if cells <= _MOST_CELLS and oracle.cells(positions) <= _MOST_CELLS else None
    drawn = 0.0 if rows is None else _sampling(counts, cells, rows)
    error, source = _of_model(made, positions, counts, told=True)
    if math.isnan(error):
        return ExpectedError(math.nan, math.nan, "nothing")
    # With more columns, tables differ no less than with each of them alone.
    alone = [_of_model(made, (column,), oracle.marginal((column,)))[0] for column in positions]
    combined = min(1.0, math.hypot(max(error, *alone, 0.0), drawn))
    return ExpectedError(combined, combined, source)


def query_error(
    made: "GeneratorResult", positions: Positions, conditions: Sequence[RangeCondition], rows: int | None
) -> ExpectedError:
    """Return the model's count under a condition, and its expected error, both in rows of the real table.

    Args:
        made: the model and its measurements.
        positions: the columns of the condition, in ascending order.
        conditions: the condition on each of them.
        rows: number of synthetic rows that are queried; None for the model itself.
    """
    total, model = made.model.total, made.model.asked()
    if model.part_cells(positions) > LARGEST:
        raise BadInput("these columns have too many values for a count over all of them. Ask about fewer columns.")
    count, cut = bounded(lambda weights: model.weighed(positions, weights), conditions)
    share = min(max(count / total, 0.0), 1.0)
    drawn = 0.0 if rows is None else _MEAN_SIZE * math.sqrt(share * (1 - share) / rows) * total
    direct = _asked(made.measured, positions, conditions)
    around = expected_error(made, positions, None)
    if direct is not None:
        # It was measured itself. The model's error is the noise of the measurement, plus its distance from it.
        error = abs(count - direct.value) + _MEAN_SIZE * direct.error
        if math.isnan(around.error) or error <= around.error * total:
            return ExpectedError(count, math.hypot(error, drawn), "noise")
    return ExpectedError(count, math.hypot(around.error * total, drawn) + cut, around.known_from)


def total_error(made: "GeneratorResult") -> float:
    """Return the standard error of the number of rows, in rows."""
    few = [marginal for marginal in made.measured if len(marginal.positions) < 2]
    # Generators estimate it from all measurements, from one-way marginals, or from a separate first measurement.
    for told_by in (made.measured, few, made.measured[:1]):
        if told_by and math.isclose(total_of(told_by), made.model.total, rel_tol=1e-9):
            break
    else:
        told_by = few or made.measured
    variances = [float(np.mean(np.square(marginal.sigma))) * marginal.counts.size for marginal in told_by]
    if not variances:
        return math.nan
    return 1 / math.sqrt(sum(1 / max(variance, 1e-18) for variance in variances))


def workload_errors(made: "GeneratorResult", domain: Domain, rows: int, unit: Unit = ROW) -> dict[str, Any]:
    """Return expected errors for a metadata file: the caller's workload, columns, pairs, and the measured means.

    The caller's marginals come first and are always included; of the rest, the most useful ones.
    """
    columns = range(len(domain.modelled))
    every = [*(positions for k in (1, 2) for positions in combinations(columns, k))]
    every += [marginal.positions for marginal in made.measured if marginal.positions]
    named = dict.fromkeys(made.workload)
    sets = [*named, *[positions for positions in dict.fromkeys(every) if positions not in named][:_MOST_LISTED]]
    report: dict[str, Any] = {"meaning": _meaning(unit), "marginals": []}
    if made.queries:
        report["queries"] = [_told_query(made, query, rows) for query in made.queries]
        report["meaning of queries"] = "rows of the real table that meet a condition, and by how many that may be off"
    for positions in sets:
        estimate = expected_error(made, positions, rows)
        report["marginals"].append(
            {
                "columns": list(domain.words(positions)),
                "error": None if math.isnan(estimate.error) else round(estimate.error, 6),
                "known from": estimate.known_from,
            }
        )
    if made.review is not None:
        report["mean over marginals of so many columns"] = {
            str(k): round(share, 6) for k, share in enumerate(made.review.ways, 1)
        }
        report["margin of these means (95 %)"] = round(made.review.margin, 6)
    return report


def plain_condition(where: Mapping[str, Any]) -> dict[str, Any]:
    """Return a condition in JSON values, in canonical form."""

    def plain(wanted: Any) -> Any:
        if isinstance(wanted, Mapping):
            return {str(end): plain(value) for end, value in wanted.items()}
        if isinstance(wanted, set | frozenset):
            return sorted(map(plain, wanted), key=str)
        if isinstance(wanted, list | tuple):
            return [plain(value) for value in wanted]
        return wanted if wanted is None or isinstance(wanted, bool | int | float | str) else str(wanted)

    return {name: plain(wanted) for name, wanted in where.items()}


def _meaning(unit: Unit) -> str:
    text = "half the L1 distance to the real table, as a share of the rows, over whole bins: no count of whole bins of "
    text += "these columns is expected to be further off, and one that ends inside a bin by what that bin holds more"
    if unit == ROW:
        return text
    return f"{text}; where one {unit.name} has more rows than may count, each counts less, which is in no error"


def _told_query(result: "GeneratorResult", query: MarginalQuery, rows: int) -> dict[str, Any]:
    estimate = query_error(result, query.positions, query.conditions, rows)
    return {
        "query": plain_condition(query.where),
        "count": round(estimate.value, 1),
        "error": None if math.isnan(estimate.error) else round(estimate.error, 1),
        "known from": estimate.known_from,
    }


def _asked(
    measured: Sequence[NoisyMarginal], positions: Positions, conditions: Sequence[RangeCondition]
) -> ExpectedError | None:
    """Return the direct measurements of this count: the mean of least variance, and its standard error."""
    matches = []
    for marginal in measured:
        if marginal.positions == positions and len(marginal.merges) == len(positions):
            pairs = zip(marginal.merges, conditions, strict=True)
            if all(merge is not None and np.array_equal(merge, cells.inside) for merge, cells in pairs):
                cell = (1,) * len(positions)
                matches.append(
                    (float(marginal.counts[cell]), float(np.broadcast_to(marginal.sigma, marginal.counts.shape)[cell]))
                )
    if not matches:
        return None
    worth = [1 / max(sigma, 1e-9) ** 2 for _, sigma in matches]
    mean = sum(w * count for w, (count, _) in zip(worth, matches, strict=True)) / sum(worth)
    return ExpectedError(mean, 1 / math.sqrt(sum(worth)))


def _of_model(
    result: "GeneratorResult", positions: Positions, counts: Floats | None, told: bool = False
) -> tuple[float, Source]:
    """Return the expected distance of the model itself, and its source. Its counts are given unless there are too many.

    Args:
        told: whether it is reported for one column: the review's mean over all columns is then not enough.
    """
    by_noise = math.inf
    for marginal in result.measured:
        if set(positions) <= set(marginal.positions) and _keeps(marginal, positions):
            # Cells of the columns that are not queried are summed, including their noise.
            summed = marginal.counts.sum(
                axis=tuple(i for i, column in enumerate(marginal.positions) if column not in positions)
            )
            noise = (
                _MEAN_SIZE
                * float(np.mean(marginal.sigma))
                * math.sqrt(marginal.counts.size / summed.size)
                * summed.size
            )
            # A model farther from the measurement than the noise could not follow it.
            apart = math.inf if counts is None else float(np.abs(counts - summed).sum())
            by_noise = min(by_noise, 0.5 * max(noise, apart) / result.model.total)
    if result.review is None:
        return (by_noise, "noise") if math.isfinite(by_noise) else (math.nan, "nothing")
    reviewed = (
        _single(result.review, positions[0]) if told and len(positions) == 1 else _reviewed(result.review, positions)
    )
    if math.isnan(reviewed):
        return (by_noise, "noise") if math.isfinite(by_noise) else (math.nan, "nothing")
    if math.isinf(by_noise):
        return max(reviewed, least_told(result.review.margin)), "review"
    surely = reviewed + result.review.margin
    return (by_noise, "noise") if by_noise <= surely else (surely, "review")


def least_told(margin: float) -> float:
    """Return the smallest error that a review with this margin (95 %) can show: one standard error of its own noise."""
    return min(1.0, margin / 1.96)


def _keeps(marginal: Any, positions: Sequence[int]) -> bool:
    """Return True if a marginal was measured in the full cells of these columns."""
    return all(marginal.merge(column) is None for column in positions)


def _single(review: Any, column: int) -> float:
    """Bound the error of one column: by its pairs with another column, and by all columns together."""
    return float(min(review.columns[column], len(review.columns) * review.ways[0] + review.margin))


def _reviewed(review: Any, positions: Positions) -> float:
    """Return the mean error of marginals of that many columns, scaled by the errors of these columns in pairs."""
    wanted = min(len(positions), 3, len(review.columns))
    if wanted > len(review.ways):  # marginals of that many columns had too many cells to be measured
        return math.nan
    ways = review.ways[wanted - 1]
    usual = float(np.mean(review.columns))
    mean = float(np.mean([review.columns[column] for column in positions]))
    return float(ways * (mean / usual if usual > review.column_margin and len(positions) > 1 else 1.0))


def _sampling(counts: Floats | None, cells: int, rows: int) -> float:
    """Return the expected half L1 distance of that many independent rows; systematic sampling does better."""
    if not rows:  # no rows were sampled
        return 1.0
    if counts is None:  # largest if all cells are equal (Cauchy and Schwarz)
        return min(1.0, 0.5 * _MEAN_SIZE * math.sqrt(cells / rows))
    shares = counts / max(counts.sum(), 1e-12)
    return float(0.5 * _MEAN_SIZE * np.sqrt(np.clip(shares * (1 - shares), 0.0, None) / rows).sum())
