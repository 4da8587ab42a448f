"""Numbers inside their bins: quantile cuts of the real rows, and the distance of each number's distribution.

Public bins of equal width hide a skewed number: nearly all of its rows are in one of them. The owner may read the
rows, so the owner's score also cuts at their quantiles, and compares distributions value by value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import log, sqrt
from typing import Any

import numpy as np

from cloister.synth.scoring.rows import EncodedRows, Floats, ScoreRows

__all__ = ["SHARES", "NumberDistance", "number_distances", "with_quantile_cuts", "worst_first"]

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
_UNLIKELY = 1e-4  # probability that chance takes the KS distance of any number of a table beyond its margin
_OUTERMOST, _STEPS = 5, 2001


@dataclass(frozen=True, slots=True)
class NumberDistance:
    """Distance of a number, date or moment's distribution from the real one; missing values are left out.

    Attributes:
        name: name of the column.
        ks: the Kolmogorov-Smirnov distance: the largest error of the share of rows up to some value.
        at: the value where that is.
        ks_margin: the contribution of chance to `ks`, exceeded in one table of 10,000, however many numbers it has.
        wasserstein: the mean distance that values have to move, in mean absolute deviations of the real ones from their
            median, without the five largest and smallest values, whose position is chance if a number has a long tail;
            None if the real values are constant or all missing.
        wasserstein_margin: three times that of a bootstrap of the real rows.
        real, synthetic: the quantiles at `SHARES`; empty if there is no value.
    """

    name: str
    ks: float
    at: Any
    ks_margin: float
    wasserstein: float | None
    wasserstein_margin: float
    real: tuple[Any, ...]
    synthetic: tuple[Any, ...]

    @property
    def table(self) -> list[tuple[str, list[str]]]:
        """Return the quantiles as text, real above synthetic."""
        return [(name, [_words(value) for value in getattr(self, name)]) for name in ("real", "synthetic")]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        both = [_plain(self.real), _plain(self.synthetic)]
        quantiles = [
            {"share": share, "real": real, "synthetic": synthetic}
            for share, real, synthetic in zip(SHARES, *both, strict=False)  # none where there is no value
        ]
        ks = {"value": self.ks, "margin": self.ks_margin, "at": _plain((self.at,))[0]}
        wasserstein = {"value": self.wasserstein, "margin": self.wasserstein_margin}
        return {"column": self.name, "ks": ks, "wasserstein": wasserstein, "quantiles": quantiles}


def worst_first(numbers: Sequence[NumberDistance], most: int) -> list[NumberDistance]:
    """Return the numbers with the largest distances, at most the given number."""
    return sorted((number for number in numbers if number.real), key=lambda number: -number.ks)[:most]


def number_distances(real: ScoreRows, synthetic: ScoreRows, bootstrap: ScoreRows) -> tuple[NumberDistance, ...]:
    """Return the distances of all ordered columns."""
    ordered = [j for j, side in enumerate(real.sides) if side.ordered]
    return tuple(_distance(real, synthetic, bootstrap, j, len(ordered)) for j in ordered)


def with_quantile_cuts(real: ScoreRows, tables: Sequence[ScoreRows], count: int, *, bins: bool) -> list[ScoreRows]:
    """Cut numbers at `count` quantiles of the real rows, in addition to their public bins or instead.

    Args:
        bins: whether to keep the ends of public bins. For several columns together, equal bins and quantiles make so
            many cells that hardly two rows share one, and chance dominates.

    Privacy: the cuts are real values. For the owner only.
    """
    finer = [_cut(side, real.points[:, j], count, bins) for j, side in enumerate(real.sides)]
    result = []
    for rows in tables:
        codes = [_code(rows, j, side) for j, side in enumerate(finer)]
        result.append(ScoreRows(tuple(finer), np.asfortranarray(np.stack(codes, axis=1)), rows.points, rows.left_out))
    return result


def _cut(side: EncodedRows, points: Floats, count: int, bins: bool) -> EncodedRows:
    present = points[~np.isnan(points)]
    if not side.ordered or side.axis.ends is None or not len(present) or count < 2:
        return side
    low, *inner, high = side.axis.ends
    cuts = side.numbers(np.quantile(present, np.arange(1, count) / count, method="inverted_cdf"))
    inside = np.unique([*(inner if bins else ()), *cuts])
    ends = (low, *(float(cut) for cut in inside if low < cut < high), high)
    return replace(side, axis=replace(side.axis, ends=ends))


def _code(rows: ScoreRows, j: int, side: EncodedRows) -> Any:
    if side is rows.sides[j] or side.axis.ends is None:
        return rows.codes[:, j]
    cells = np.searchsorted(np.array(side.axis.ends[1:-1]), side.numbers(rows.points[:, j]), side="right")
    return np.where(np.isnan(rows.points[:, j]), len(side.labels), cells)


def _distance(real: ScoreRows, synthetic: ScoreRows, bootstrap: ScoreRows, j: int, count: int) -> NumberDistance:
    from scipy.stats import ks_2samp

    side = real.sides[j]
    real_points, synthetic_points, repeated_points = (
        rows.points[~np.isnan(rows.points[:, j]), j] for rows in (real, synthetic, bootstrap)
    )
    if not len(real_points) or not len(synthetic_points):
        return NumberDistance(side.name, 0.0, None, 1.0, None, 0.0, (), ())
    ks = ks_2samp(real_points, synthetic_points, method="asymp")
    # The asymptotic law of Kolmogorov and Smirnov, at a level that all numbers share.
    margin = sqrt(log(2 * count / _UNLIKELY) / 2 * (1 / len(real_points) + 1 / len(synthetic_points)))
    spread = float(np.abs(real_points - np.median(real_points)).mean())
    away = [
        _way(real_points, points) / spread if spread > 0 and len(points) else None
        for points in (synthetic_points, repeated_points)
    ]
    quantiles = [
        tuple(side.value(float(point)) for point in np.quantile(points, SHARES, method="inverted_cdf"))
        for points in (real_points, synthetic_points)
    ]
    at = side.value(float(ks.statistic_location))
    return NumberDistance(side.name, float(ks.statistic), at, margin, away[0], 3 * (away[1] or 0.0), *quantiles)


def _way(left: Floats, right: Floats) -> float:
    """Return the Wasserstein distance without the smaller table's outermost values and the same share of the other."""
    outer = min(0.05, _OUTERMOST / min(len(left), len(right)))
    shares = np.linspace(outer, 1 - outer, _STEPS)
    return float(np.abs(np.subtract(*(np.quantile(x, shares, method="inverted_cdf") for x in (left, right)))).mean())


def _plain(values: Sequence[Any]) -> list[Any]:
    return [value if value is None or isinstance(value, int | float) else value.isoformat() for value in values]


def _words(value: Any) -> str:
    """Format a value in at most eleven characters."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d}"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 11 else f"{value:.4g}"
