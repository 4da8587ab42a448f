"""Exact copies: rows of which every value occurs together in the synthetic table, real against held back."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.synth.scoring.report.interval import Interval, share
from cloister.synth.scoring.rows import ScoreRows

__all__ = ["Copies", "count_copies", "keys_of"]


@dataclass(frozen=True, slots=True)
class Copies:
    """How many rows occur in a synthetic table.

    Attributes:
        synthetic: how many synthetic rows are equal to a real one.
        rows: of how many synthetic ones.
        real: the share of real rows that occur in the synthetic table.
        fresh: the same of as many held-back rows, which occur there by chance; None if there are none.
        chance: how likely so many more real than held-back rows are, if the synthetic table knows neither (Fisher's
            exact test: which rows were held back is a shuffle).
    """

    synthetic: int
    rows: int
    real: Interval
    fresh: Interval | None
    chance: float | None

    @property
    def excess(self) -> float | None:
        """The share of real rows that are there beyond chance; None without held-back rows."""
        return None if self.fresh is None else self.real.value - self.fresh.value

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            "synthetic rows equal to a real one": self.synthetic,
            "synthetic rows": self.rows,
            "real rows copied": self.real.to_json(),
            "held-back rows met by chance": None if self.fresh is None else self.fresh.to_json(),
            "chance of this": self.chance,
        }


def count_copies(real: ScoreRows, synthetic: ScoreRows, holdout: ScoreRows | None) -> Copies:
    """Count copies; numbers are equal only if they are to the last digit."""
    made, there = keys_of(synthetic), keys_of(real)
    listed, known = set(made), set(there)
    copied = sum(key in known for key in made)
    hits = sum(key in listed for key in there)
    found = share(hits, len(real))
    if holdout is None:
        return Copies(copied, len(synthetic), found, None, None)
    from scipy.stats import hypergeom

    met = sum(key in listed for key in keys_of(holdout))
    chance = float(hypergeom.sf(hits - 1, len(real) + len(holdout), hits + met, len(real)))
    return Copies(copied, len(synthetic), found, share(met, len(holdout)), chance)


def keys_of(rows: ScoreRows) -> list[bytes]:
    """One thing for each row, equal where all values are."""
    points = np.ascontiguousarray(np.where(np.isnan(rows.points), -1.0, rows.points) + 0.0)  # no negative zero
    return [row.tobytes() for row in points]
