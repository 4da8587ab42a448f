"""How wrong answers from a synthetic table are expected to be, from what was released alone.

Half the L1 distance between two tables of shares is the most by which any count over these columns can differ, as a
share of the rows. For columns inside a measured marginal it follows from the noise; for others it comes from the
review, which bought the mean distance; and a finite number of synthetic rows adds its own. The review is noisy itself:
only where it is surely smaller does it take the place of what the noise says.

Rows are counted as the unit allows: where a person has more of them than `max_rows`, each counts less. What that takes
away from the real table is in no error here; nothing was bought that would tell.

What lies inside a bin was not measured either. A count whose condition ends inside one takes a part of the bin, by its
width, and its error is larger by what that may be off: by all that the bin holds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput
from cloister.privacy.unit import ROW, Unit
from cloister.synth.domain.axis import Axis
from cloister.synth.domain.domain import Domain, Places
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
_MOST_LISTED = 1000  # beside what the caller named
_MEAN_SIZE = math.sqrt(2 / math.pi)  # of normal noise with standard deviation 1

Source = Literal["noise", "review", "nothing"]


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """A number and how wrong it is expected to be.

    Attributes:
        value: the estimate.
        error: its expected error; NaN if nothing was bought that would tell.
        known_from: "noise" of a measured marginal, the "review" of the model, or "nothing".
    """

    value: float
    error: float
    known_from: Source = "noise"


@dataclass(frozen=True, slots=True, eq=False)
class RangeCondition:
    """A condition on one column, as cells.

    Attributes:
        inside: how much of each cell meets it, from 0 to 1.
        least: 1 where all of a cell does.
        most: 1 where some of it does.
    """

    inside: Floats
    least: Floats
    most: Floats

    @classmethod
    def of(cls, axis: Axis, wanted: Any) -> "RangeCondition":
        """As `Axis.weights_of` reads it."""
        inside = axis.weights_of(wanted)
        return cls(inside, (inside >= 1).astype(np.float64), axis.cells_of(wanted).astype(np.float64))

    def take(self, cells: NDArray[np.int64]) -> "RangeCondition":
        """The same for each of some rows, whose cells are given; a cell below 0 meets nothing."""
        known = cells >= 0
        return RangeCondition(*(np.where(known, one[cells], 0.0) for one in (self.inside, self.least, self.most)))


def bounded(weigh: Callable[[Sequence[Floats]], float], conditions: Sequence[RangeCondition]) -> tuple[float, float]:
    """A count under conditions, and how far it may be off because some of them end inside a bin.

    Args:
        weigh: rows, each counted by the product of what its cells weigh: of a model, or of a table.
        conditions: one for each column.
    """
    inside, least, most = (weigh([getattr(one, name) for one in conditions]) for name in ("inside", "least", "most"))
    return inside, max(most - inside, inside - least, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class MarginalQuery:
    """A count that the caller said matters.

    Attributes:
        where: its condition, as it was asked.
        places: the columns of the condition, in rising order.
        conditions: on each of them.
    """

    where: Mapping[str, Any]
    places: Places
    conditions: tuple[RangeCondition, ...]


def expected_error(made: "GeneratorResult", places: Places, rows: int | None) -> ExpectedError:
    """The expected half L1 distance of some columns, as a share of the rows.

    Args:
        made: the model and what it was made of.
        places: the columns.
        rows: how many synthetic rows are asked; None for the model itself.
    """
    asked = made.model.asked()
    cells = math.prod(len(made.model.grains[place].cells) for place in places)
    counts = asked.marginal(places) if cells <= _MOST_CELLS and asked.cells(places) <= _MOST_CELLS else None
    drawn = 0.0 if rows is None else _sampling(counts, cells, rows)
    error, source = _of_model(made, places, counts, told=True)
    if math.isnan(error):
        return ExpectedError(math.nan, math.nan, "nothing")
    # More columns tell tables apart no worse than each of them alone.
    alone = [_of_model(made, (place,), asked.marginal((place,)))[0] for place in places]
    whole = min(1.0, math.hypot(max(error, *alone, 0.0), drawn))
    return ExpectedError(whole, whole, source)


def query_error(
    made: "GeneratorResult", places: Places, conditions: Sequence[RangeCondition], rows: int | None
) -> ExpectedError:
    """A count under a condition as the model estimates it, and its expected error, both in rows of the real table.

    Args:
        made: the model and what it was made of.
        places: the columns of the condition, in rising order.
        conditions: on each of them.
        rows: how many synthetic rows are asked; None for the model itself.
    """
    total, model = made.model.total, made.model.asked()
    if model.part_cells(places) > LARGEST:
        raise BadInput("these columns have too many values for a count over all of them. Ask about fewer columns.")
    count, cut = bounded(lambda weights: model.weighed(places, weights), conditions)
    share = min(max(count / total, 0.0), 1.0)
    drawn = 0.0 if rows is None else _MEAN_SIZE * math.sqrt(share * (1 - share) / rows) * total
    asked = _asked(made.measured, places, conditions)
    around = expected_error(made, places, None)
    if asked is not None:
        # It was bought itself. The model is off by the noise of what was told, and by how far it is from that.
        error = abs(count - asked.value) + _MEAN_SIZE * asked.error
        if math.isnan(around.error) or error <= around.error * total:
            return ExpectedError(count, math.hypot(error, drawn), "noise")
    return ExpectedError(count, math.hypot(around.error * total, drawn) + cut, around.known_from)


def total_error(made: "GeneratorResult") -> float:
    """The standard error of the number of rows, in rows."""
    few = [one for one in made.measured if len(one.places) < 2]
    # Generators estimate it from all that they measured, from single columns, or from what they bought first.
    for told_by in (made.measured, few, made.measured[:1]):
        if told_by and math.isclose(total_of(told_by), made.model.total, rel_tol=1e-9):
            break
    else:
        told_by = few or made.measured
    variances = [float(np.mean(np.square(one.sigma))) * one.counts.size for one in told_by]
    if not variances:
        return math.nan
    return 1 / math.sqrt(sum(1 / max(one, 1e-18) for one in variances))


def workload_errors(made: "GeneratorResult", domain: Domain, rows: int, unit: Unit = ROW) -> dict[str, Any]:
    """For a side file: expected errors of the caller's workload, of columns, pairs and what was measured; bought means.

    What the caller named comes first and is always there; of the rest as many as are worth reading.
    """
    columns = range(len(domain.modelled))
    every = [*(places for k in (1, 2) for places in combinations(columns, k))]
    every += [one.places for one in made.measured if one.places]
    named = dict.fromkeys(made.workload)
    sets = [*named, *[one for one in dict.fromkeys(every) if one not in named][:_MOST_LISTED]]
    told: dict[str, Any] = {"meaning": _meaning(unit), "marginals": []}
    if made.queries:
        told["queries"] = [_told_query(made, one, rows) for one in made.queries]
        told["meaning of queries"] = "rows of the real table that meet a condition, and by how many that may be off"
    for places in sets:
        one = expected_error(made, places, rows)
        told["marginals"].append(
            {
                "columns": list(domain.words(places)),
                "error": None if math.isnan(one.error) else round(one.error, 6),
                "known from": one.known_from,
            }
        )
    if made.review is not None:
        told["mean over marginals of so many columns"] = {
            str(k): round(share, 6) for k, share in enumerate(made.review.ways, 1)
        }
        told["margin of these means (95 %)"] = round(made.review.margin, 6)
    return told


def plain_condition(where: Mapping[str, Any]) -> dict[str, Any]:
    """A condition in values that JSON has, written one way."""

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
    said = "half the L1 distance to the real table, as a share of the rows, over whole bins: no count of whole bins of "
    said += "these columns is expected to be further off, and one that ends inside a bin by what that bin holds more"
    if unit == ROW:
        return said
    return f"{said}; where one {unit.name} has more rows than may count, each counts less, which is in no error"


def _told_query(made: "GeneratorResult", one: MarginalQuery, rows: int) -> dict[str, Any]:
    found = query_error(made, one.places, one.conditions, rows)
    return {
        "query": plain_condition(one.where),
        "count": round(found.value, 1),
        "error": None if math.isnan(found.error) else round(found.error, 1),
        "known from": found.known_from,
    }


def _asked(
    measured: Sequence[NoisyMarginal], places: Places, conditions: Sequence[RangeCondition]
) -> ExpectedError | None:
    """What was measured of this very count: the mean of least variance, and its standard error."""
    found = []
    for one in measured:
        if one.places == places and len(one.merges) == len(places):
            pairs = zip(one.merges, conditions, strict=True)
            if all(merge is not None and np.array_equal(merge, cells.inside) for merge, cells in pairs):
                cell = (1,) * len(places)
                found.append((float(one.counts[cell]), float(np.broadcast_to(one.sigma, one.counts.shape)[cell])))
    if not found:
        return None
    worth = [1 / max(sigma, 1e-9) ** 2 for _, sigma in found]
    mean = sum(w * count for w, (count, _) in zip(worth, found, strict=True)) / sum(worth)
    return ExpectedError(mean, 1 / math.sqrt(sum(worth)))


def _of_model(
    made: "GeneratorResult", places: Places, counts: Floats | None, told: bool = False
) -> tuple[float, Source]:
    """The expected distance of the model itself, whose counts are given unless there are too many, and its source.

    Args:
        told: whether it is told of one column: then what a review knows of all columns alone is not enough.
    """
    by_noise = math.inf
    for one in made.measured:
        if set(places) <= set(one.places) and _keeps(one, places):
            # Cells of the columns that are not asked are added up, noise and all.
            seen = one.counts.sum(axis=tuple(i for i, place in enumerate(one.places) if place not in places))
            noise = _MEAN_SIZE * float(np.mean(one.sigma)) * math.sqrt(one.counts.size / seen.size) * seen.size
            # A model that is farther from what was told than noise is could not follow it.
            apart = math.inf if counts is None else float(np.abs(counts - seen).sum())
            by_noise = min(by_noise, 0.5 * max(noise, apart) / made.model.total)
    if made.review is None:
        return (by_noise, "noise") if math.isfinite(by_noise) else (math.nan, "nothing")
    reviewed = _single(made.review, places[0]) if told and len(places) == 1 else _reviewed(made.review, places)
    if math.isnan(reviewed):
        return (by_noise, "noise") if math.isfinite(by_noise) else (math.nan, "nothing")
    if math.isinf(by_noise):
        return max(reviewed, least_told(made.review.margin)), "review"
    surely = reviewed + made.review.margin
    return (by_noise, "noise") if by_noise <= surely else (surely, "review")


def least_told(margin: float) -> float:
    """The smallest error that a review with this margin (95 %) can tell: one standard error of its own noise."""
    return min(1.0, margin / 1.96)


def _keeps(one: Any, places: Sequence[int]) -> bool:
    """Whether a marginal was measured in the full cells of these columns."""
    return all(one.merge(place) is None for place in places)


def _single(review: Any, place: int) -> float:
    """At most how far off one column is: no further than with another beside it, nor than all columns together."""
    return float(min(review.columns[place], len(review.columns) * review.ways[0] + review.margin))


def _reviewed(review: Any, places: Places) -> float:
    """The mean error of marginals of that many columns, more or less by how these columns did in pairs."""
    wanted = min(len(places), 3, len(review.columns))
    if wanted > len(review.ways):  # so many columns had too many cells to be looked at
        return math.nan
    ways = review.ways[wanted - 1]
    usual = float(np.mean(review.columns))
    own = float(np.mean([review.columns[place] for place in places]))
    return float(ways * (own / usual if usual > review.column_margin and len(places) > 1 else 1.0))


def _sampling(counts: Floats | None, cells: int, rows: int) -> float:
    """The expected half L1 distance of so many independent rows; systematic ones do better."""
    if not rows:  # nothing was drawn, and tells nothing
        return 1.0
    if counts is None:  # at most what it is if all cells are alike (Cauchy and Schwarz)
        return min(1.0, 0.5 * _MEAN_SIZE * math.sqrt(cells / rows))
    shares = counts / max(counts.sum(), 1e-12)
    return float(0.5 * _MEAN_SIZE * np.sqrt(np.clip(shares * (1 - shares), 0.0, None) / rows).sum())
