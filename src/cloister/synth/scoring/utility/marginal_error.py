"""Errors of the marginals of a synthetic table.

The error of a marginal is half the L1 distance between the two tables of shares: the share of the rows that would have
to move. Two reference tables give its scale: rows resampled from the real ones (bootstrap: the best for a table of
that size), and columns shuffled one by one (independent: every column right, no dependence).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.attack.report.interval import Interval, mean_of
from cloister.attack.tables.synthetic.coded_rows import cells, choose_columns
from cloister.synth.scoring.rows import EncodedRows, Floats, ScoreRows

__all__ = [
    "MarginalErrors",
    "frames",
    "half_l1",
    "marginal_errors",
    "RangeErrors",
    "range_errors",
]


# Range queries: the share of rows in a box of one to three columns, real against synthetic.
#
# An interval of a number includes its lower end and excludes its upper one. Boxes are sampled from the public schema,
# never from rows.


Box = dict[int, NDArray[np.bool_]]
"""For each column that is asked about, which of its codes are inside."""


@dataclass(frozen=True, slots=True)
class RangeErrors:
    """Absolute errors of the shares of rows in boxes.

    Attributes:
        errors: errors of the synthetic table, one for each box.
        fresh: the mean error of held-out rows, if there are some.
    """

    errors: tuple[float, ...]
    fresh: float | None

    @property
    def mean(self) -> Interval:
        """Return the mean over all boxes; the interval is for the choice of boxes."""
        return mean_of(self.errors, True, 0.0, 1.0)

    def quantile(self, share: float) -> float:
        """Return the error that this share of the boxes does not exceed."""
        return float(np.quantile(self.errors, share))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        ends = {"median": self.quantile(0.5), "95 %": self.quantile(0.95), "worst": self.quantile(1.0)}
        return {"boxes": len(self.errors), "mean": self.mean.to_json(), "fresh": self.fresh, **ends}


def range_errors(
    real: ScoreRows, synthetic: ScoreRows, holdout: ScoreRows | None, boxes: int, random: np.random.Generator
) -> RangeErrors:
    """Compute the errors of all tables on random boxes."""
    queries = [_box(real.sides, random) for _ in range(boxes)]
    tables = [real, synthetic, *([holdout] if holdout else [])]
    shares: Floats = np.array([[box_share(rows, box) for rows in tables] for box in queries])
    off = np.abs(shares[:, 1:] - shares[:, :1])
    return RangeErrors(tuple(off[:, 0].tolist()), float(off[:, 1].mean()) if holdout else None)


def box_share(rows: ScoreRows, box: Box) -> float:
    """Return the share of rows inside a box."""
    inside = np.ones(len(rows), dtype=bool)
    for j, codes in box.items():
        inside &= codes[rows.codes[:, j]]
    return float(inside.mean()) if len(rows) else 0.0


def _box(sides: tuple[EncodedRows, ...], random: np.random.Generator) -> Box:
    count = int(random.integers(1, min(3, len(sides)) + 1))
    return {int(j): _inside(sides[j], random) for j in random.choice(len(sides), count, replace=False)}


def _inside(side: EncodedRows, random: np.random.Generator) -> NDArray[np.bool_]:
    inside, count = np.zeros(side.size, dtype=bool), len(side.labels)
    if side.ordered:
        low, high = sorted(random.choice(count + 1, 2, replace=False).tolist())
        inside[low:high] = True
    else:
        inside[random.choice(count, int(random.integers(1, max(2, count // 2 + 1))), replace=False)] = True
    return inside


_MOST_CELLS = 2**22


@dataclass(frozen=True, slots=True)
class MarginalErrors:
    """Errors of marginals with the same number of columns.

    Attributes:
        way: number of columns of each marginal.
        columns: columns of each marginal.
        errors: error of each marginal of the synthetic table.
        drawn: whether the marginals are a random choice, or all there are.
        frames: the mean errors of the bootstrap, of independent columns, and of held-out rows if there are some.
    """

    way: int
    columns: tuple[tuple[str, ...], ...]
    errors: tuple[float, ...]
    drawn: bool
    frames: Mapping[str, float]

    @property
    def mean(self) -> Interval:
        """Return the mean of all errors; the interval is for the choice of marginals."""
        return mean_of(self.errors, self.drawn, 0.0, 1.0)

    @property
    def worst(self) -> tuple[tuple[str, ...], float]:
        """Return the marginal with the largest error."""
        index = int(np.argmax(self.errors))
        return self.columns[index], self.errors[index]

    @property
    def score(self) -> float | None:
        """Return 1 - (error - bootstrap)/(independent - bootstrap): 1 is fresh rows, 0 is independent columns."""
        low, high = self.frames["bootstrap"], self.frames["independent"]
        return None if high <= low else 1 - (self.mean.value - low) / (high - low)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        each = [
            {"columns": list(names), "error": error} for names, error in zip(self.columns, self.errors, strict=True)
        ]
        return {
            "way": self.way,
            "mean": self.mean.to_json(),
            "score": self.score if self.way > 1 else None,
            "chosen": "at random" if self.drawn else "all",
            "frames": dict(self.frames),
            "marginals": each,
        }


def marginal_errors(
    real: ScoreRows,
    synthetic: ScoreRows,
    others: Mapping[str, ScoreRows],
    way: int,
    most: int,
    random: np.random.Generator,
) -> MarginalErrors:
    """Compute the errors of all marginals of that many columns, or of `most` of them chosen at random.

    Args:
        others: tables to compare with, by name.
    """
    chosen = choose_columns(len(real.sides), way, most, random)
    errors = np.array([_errors(real, (synthetic, *others.values()), columns) for columns in chosen])
    names = tuple(tuple(real.names[j] for j in columns) for columns in chosen)
    means = dict(zip(others, (float(x) for x in errors[:, 1:].mean(axis=0)), strict=True))
    drawn = len(chosen) < comb(len(real.sides), way)
    return MarginalErrors(way, names, tuple(float(x) for x in errors[:, 0]), drawn, means)


def frames(real: ScoreRows, rows: int, random: np.random.Generator) -> dict[str, ScoreRows]:
    """Return the two reference tables of a score, with the given number of rows. Not private: for the owner."""
    again = random.integers(len(real), size=(rows, len(real.sides)))
    codes = np.take_along_axis(real.codes, again, axis=0)
    alone = ScoreRows(real.sides, np.asfortranarray(codes), np.zeros((0, 0)))
    return {"bootstrap": real.take(random.integers(len(real), size=rows)), "independent": alone}


def half_l1(one: ScoreRows, other: ScoreRows, columns: Sequence[int]) -> float:
    """Return half the L1 distance between the shares of two tables: 0 if equal, 1 if they have no cell in common."""
    return float(_errors(one, (other,), columns)[0])


def _errors(real: ScoreRows, tables: Sequence[ScoreRows], columns: Sequence[int]) -> Floats:
    placed = [cells(rows, columns) for rows in (real, *tables)]
    size = prod(real.sides[j].size for j in columns)
    if size > _MOST_CELLS:  # too many to list: only those that occur
        occupied, joint = np.unique(np.concatenate(placed), return_inverse=True)
        placed, size = np.split(joint, np.cumsum([len(codes) for codes in placed])[:-1]), len(occupied)
    shares = [np.bincount(codes, minlength=size) / max(len(codes), 1) for codes in placed]
    return np.array([np.abs(share - shares[0]).sum() / 2 for share in shares[1:]])
