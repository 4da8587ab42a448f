"""Dependence between columns: correlations of numbers and mutual information, real against synthetic.

Mutual information of n rows in a marginal of r × c cells is biased by about (r - 1)(c - 1)/(2 n ln 2) bits, in both
tables; with equal numbers of rows, the difference is not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.attack.tables.synthetic.coded_rows import cells
from cloister.synth.scoring.rows import Floats, Integers, ScoreRows

__all__ = ["Map", "correlation_map", "information_map"]

_MOST_CELLS = 2**22


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """A number for each pair of columns.

    Attributes:
        names: the columns.
        real, synthetic: symmetric; NaN on the diagonal, and where a column is constant.
        fresh: the mean difference between held-out and real rows, if there are held-out rows: the effect of chance.
    """

    names: tuple[str, ...]
    real: Floats
    synthetic: Floats
    fresh: float | None = None

    @property
    def difference(self) -> Floats:
        """Return synthetic minus real."""
        return self.synthetic - self.real

    @property
    def mean(self) -> float | None:
        """Return the mean absolute difference."""
        return _mean(self.difference)

    @property
    def worst(self) -> tuple[str, str, float] | None:
        """Return the pair with the largest difference."""
        off = np.abs(self.difference)
        if not np.isfinite(off).any():
            return None
        i, j = np.unravel_index(int(np.nanargmax(off)), off.shape)
        return self.names[i], self.names[j], float(self.difference[i, j])

    def strongest(self, count: int) -> list[tuple[str, str, float, float]]:
        """Return the pairs with the strongest dependence in the real rows: names, real, synthetic."""
        size = np.abs(np.triu(np.nan_to_num(self.real), 1))
        pairs = sorted(np.argwhere(size > 0).tolist(), key=lambda pair: -size[pair[0], pair[1]])[:count]
        return [(self.names[i], self.names[j], float(self.real[i, j]), float(self.synthetic[i, j])) for i, j in pairs]

    def off_by(self, more: float) -> list[tuple[str, str, float, float]]:
        """Return the pairs that differ by more than the given amount, the worst first: names, real, synthetic."""
        off = np.abs(np.triu(np.nan_to_num(self.difference), 1))
        pairs = sorted(np.argwhere(off > more).tolist(), key=lambda pair: -off[pair[0], pair[1]])
        both = [(float(self.real[i, j]), float(self.synthetic[i, j])) for i, j in pairs]
        return [(self.names[i], self.names[j], *values) for (i, j), values in zip(pairs, both, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        matrices = {name: _listed(getattr(self, name)) for name in ("real", "synthetic", "difference")}
        return {"columns": list(self.names), "mean": self.mean, "fresh": self.fresh, **matrices}


def correlation_map(real: ScoreRows, synthetic: ScoreRows, holdout: ScoreRows | None) -> Map | None:
    """Return Pearson's correlations of the ordered columns; None if there are fewer than two."""
    ordered = [j for j, side in enumerate(real.sides) if side.ordered]
    if len(ordered) < 2:
        return None
    matrices = [_correlations(rows.points[:, ordered]) for rows in (real, synthetic, *([holdout] if holdout else []))]
    fresh = _mean(matrices[2] - matrices[0]) if holdout else None
    return Map(tuple(real.names[j] for j in ordered), matrices[0], matrices[1], fresh)


def information_map(real: ScoreRows, synthetic: ScoreRows, holdout: ScoreRows | None) -> Map:
    """Return the mutual information of every two columns, in bits; numbers in public bins."""
    matrices = [_information(rows) for rows in (real, synthetic, *([holdout] if holdout else []))]
    fresh = _mean(matrices[2] - matrices[0]) if holdout else None
    return Map(tuple(real.names), matrices[0], matrices[1], fresh)


def _correlations(points: Floats) -> Floats:
    """Compute correlations over the rows in which both columns are known, for all pairs at once."""
    present = ~np.isnan(points)
    weight, x = present.astype(np.float64), np.where(present, points - 0.5, 0.0)
    n, sums, squares = weight.T @ weight, x.T @ weight, (x**2).T @ weight
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = squares / n - (sums / n) ** 2
        both = (x.T @ x) / n - sums / n * (sums / n).T
        spread[spread < 1e-15] = np.nan  # constant, but for rounding
        correlations = np.clip(both / np.sqrt(spread * spread.T), -1.0, 1.0)
    np.fill_diagonal(correlations, np.nan)
    return np.asarray(correlations)


def _information(rows: ScoreRows) -> Floats:
    """Compute H(x) + H(y) - H(x, y), for all pairs."""
    count = len(rows.sides)
    alone = [_entropy(rows.codes[:, j]) for j in range(count)]
    bits = np.full((count, count), np.nan)
    for i in range(count):
        for j in range(i):
            bits[i, j] = bits[j, i] = max(0.0, alone[i] + alone[j] - _entropy(cells(rows, (i, j))))
    return bits


def _entropy(codes: Integers) -> float:
    """Return the entropy of the shares of codes, in bits."""
    few = len(codes) and int(codes.max()) < _MOST_CELLS
    counts = np.bincount(codes) if few else np.unique(codes, return_counts=True)[1]
    shares = counts[counts > 0] / max(len(codes), 1)
    return float(-(shares * np.log2(shares)).sum())


def _mean(difference: Floats) -> float | None:
    finite = np.abs(difference[np.isfinite(difference)])
    return float(finite.mean()) if finite.size else None


def _listed(values: Floats) -> list[list[float | None]]:
    return [[float(x) if np.isfinite(x) else None for x in row] for row in values]
