"""How wrong answers from a synthetic table are expected to be, from what was released alone.

Half the L1 distance between two tables of shares is the most by which any count over these columns can differ, as a
share of the rows. For columns inside a measured marginal it follows from the noise; for others it comes from the
review, which bought the mean distance; and a finite number of synthetic rows adds its own. The review is noisy itself:
only where it is surely smaller does it take the place of what the noise says.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cloister.synth.domain import Domain, Places
from cloister.synth.marginals import Floats

if TYPE_CHECKING:
    from cloister.synth.run import Made

__all__ = ["Expected", "expected_error", "least_told", "workload_errors"]

_MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Expected:
    """A number and how wrong it is expected to be.

    Attributes:
        value: the estimate.
        error: its expected error; NaN if nothing was bought that would tell.
        known_from: "noise" of a measured marginal, the "review" of the model, or "nothing".
    """

    value: float
    error: float
    known_from: Literal["noise", "review", "nothing"] = "noise"


def expected_error(made: "Made", domain: Domain, places: Places, rows: int | None) -> Expected:
    """The expected half L1 distance of some columns, as a share of the rows.

    Args:
        made: the model and what it was made of.
        domain: its cells.
        places: the columns.
        rows: how many synthetic rows are asked; None for the model itself.
    """
    counts = made.model.marginal(places)
    shares = counts / max(counts.sum(), 1e-12)
    drawn = 0.0 if rows is None else _sampling(shares, rows)
    error, source = _of_model(made, places, counts.size)
    if math.isnan(error):
        return Expected(math.nan, math.nan, "nothing")
    # More columns tell tables apart no worse than each of them alone.
    alone = [_of_model(made, (place,), domain.shape[place])[0] for place in places]
    whole = min(1.0, math.hypot(max(error, *alone, 0.0), drawn))
    return Expected(whole, whole, source)


def workload_errors(made: "Made", domain: Domain, rows: int) -> dict[str, Any]:
    """For a side file: means that were bought; expected errors of columns, pairs, workload and what was measured."""
    columns = range(len(domain.modelled))
    several = [*made.workload, *(one.places for one in made.measured if one.places)]
    every = [*(places for k in (1, 2) for places in combinations(columns, k)), *several]
    sets = list(dict.fromkeys(every))[:_MOST_LISTED]
    told: dict[str, Any] = {
        "meaning": "half the L1 distance to the real table, as a share of the rows: no count over these columns is "
        "expected to be further off",
        "marginals": [],
    }
    for places in sets:
        one = expected_error(made, domain, places, rows)
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


def _of_model(made: "Made", places: Places, cells: int) -> tuple[float, Literal["noise", "review", "nothing"]]:
    """The expected distance of the model itself, and how it is known."""
    by_noise = math.inf
    for one in made.measured:
        if set(places) <= set(one.places) and _keeps(one, places):
            # Cells of the columns that are not asked are added up, noise and all; the fit can only do better.
            others = one.counts.size / math.prod(one.counts.shape[one.places.index(place)] for place in places)
            noise = float(np.mean(one.sigma)) * math.sqrt(others) * cells
            by_noise = min(by_noise, 0.5 * math.sqrt(2 / math.pi) * noise / made.model.total)
    if made.review is None:
        return (by_noise, "noise") if math.isfinite(by_noise) else (math.nan, "nothing")
    reviewed = _reviewed(made.review, places)
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


def _reviewed(review: Any, places: Places) -> float:
    """The mean error of marginals of that many columns, more or less by how these columns did in pairs."""
    ways = review.ways[min(len(places), len(review.ways)) - 1]
    usual = float(np.mean(review.columns))
    own = float(np.mean([review.columns[place] for place in places]))
    return float(ways * (own / usual if usual > review.column_margin and len(places) > 1 else 1.0))


def _sampling(shares: Floats, rows: int) -> float:
    """The expected half L1 distance of so many independent rows; systematic ones do better."""
    return float(0.5 * math.sqrt(2 / math.pi) * np.sqrt(shares * (1 - shares) / rows).sum())
