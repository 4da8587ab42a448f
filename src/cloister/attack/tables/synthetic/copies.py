"""Exact copies: rows that occur with all values in the synthetic table, real against held-out."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.attack.report.interval import Interval, share
from cloister.attack.tables.synthetic.coded_rows import CodedRows

__all__ = ["Copies", "count_copies", "held_back_in", "keys_of"]

_IMPOSSIBLE = 1e-9  # probability below which the rows were not split


@dataclass(frozen=True, slots=True)
class Copies:
    """Number of rows that occur in a synthetic table.

    Attributes:
        synthetic: number of synthetic rows that are equal to a real one.
        rows: number of synthetic rows.
        real: the share of real rows that occur in the synthetic table.
        fresh: the same for as many held-out rows, which occur there by chance; None if there are none.
        chance: probability of that many more real than held-out rows, if the synthetic table is independent of both
            (Fisher's exact test: the choice of held-out rows is a shuffle).
    """

    synthetic: int
    rows: int
    real: Interval
    fresh: Interval | None
    chance: float | None

    @property
    def excess(self) -> float | None:
        """Return the share of real rows that occur beyond chance; None without held-out rows."""
        return None if self.fresh is None else self.real.value - self.fresh.value

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        return {
            "synthetic rows equal to a real one": self.synthetic,
            "synthetic rows": self.rows,
            "real rows copied": self.real.to_json(),
            "held-back rows met by chance": None if self.fresh is None else self.fresh.to_json(),
            "chance of this": self.chance,
        }


def count_copies(real: CodedRows, synthetic: CodedRows, holdout: CodedRows | None) -> Copies:
    """Count copies; numbers are equal only to the last digit."""
    synthetic_keys, real_keys = keys_of(synthetic), keys_of(real)
    listed, real_set = set(synthetic_keys), set(real_keys)
    copied = sum(key in real_set for key in synthetic_keys)
    hits = sum(key in listed for key in real_keys)
    rate = share(hits, len(real))
    if holdout is None:
        return Copies(copied, len(synthetic), rate, None, None)
    from scipy.stats import hypergeom

    met = sum(key in listed for key in keys_of(holdout))
    chance = float(hypergeom.sf(hits - 1, len(real) + len(holdout), hits + met, len(real)))
    return Copies(copied, len(synthetic), rate, share(met, len(holdout)), chance)


def held_back_in(real: CodedRows, holdout: CodedRows) -> float | None:
    """Return the share of held-out rows that are also real ones, beyond natural duplicates; None if not decidable.

    If rows were split, each of them went to one side. Of the rows that occur once in both tables together, some are
    then held out; of those that occur twice, only some occur once on either side. In a table of few distinct rows
    neither can be decided.
    """
    from scipy.stats import binom

    real_counts, holdout_counts = Counter(keys_of(real)), Counter(keys_of(holdout))
    total = len(real) + len(holdout)
    part = len(holdout) / total
    once = [
        real_counts[key] == 0
        for key in real_counts.keys() | holdout_counts.keys()
        if real_counts[key] + holdout_counts[key] == 1
    ]
    twice = [
        real_counts[key] == 1
        for key in real_counts.keys() | holdout_counts.keys()
        if real_counts[key] + holdout_counts[key] == 2
    ]
    none_apart = not any(once) and binom.cdf(0, len(once), part) < _IMPOSSIBLE
    parted = 2 * part * (1 - part) * total / max(total - 1, 1)
    both = binom.sf(sum(twice) - 1, len(twice), min(parted, 1.0)) < _IMPOSSIBLE
    if not (none_apart or both):
        return None
    return sum(count for key, count in holdout_counts.items() if real_counts[key]) / len(holdout)


def keys_of(rows: CodedRows) -> list[bytes]:
    """Return a key for each row, equal where all values are."""
    points = np.ascontiguousarray(np.where(np.isnan(rows.points), -1.0, rows.points) + 0.0)  # no negative zero
    return [row.tobytes() for row in points]
