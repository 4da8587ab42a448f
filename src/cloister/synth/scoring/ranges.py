"""Range queries: which share of the rows lies in a box of one to three columns, real against synthetic.

An interval of a number holds its lower end and not its upper one. Boxes are drawn from the public schema, never from
rows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.synth.scoring.figure import Figure, mean_of
from cloister.synth.scoring.rows import Floats, Rows, Side

__all__ = ["Box", "RangeErrors", "box_share", "range_errors"]

Box = dict[int, NDArray[np.bool_]]
"""For each column that is asked about, which of its codes are inside."""


@dataclass(frozen=True, slots=True)
class RangeErrors:
    """Absolute errors of the shares that boxes hold.

    Attributes:
        errors: of the synthetic table, one for each box.
        fresh: the mean error of held-back rows, if there are some.
    """

    errors: tuple[float, ...]
    fresh: float | None

    @property
    def mean(self) -> Figure:
        """Of all boxes; the interval is for the choice of boxes."""
        return mean_of(self.errors, True, 0.0, 1.0)

    def quantile(self, share: float) -> float:
        """The error that this share of the boxes does not exceed."""
        return float(np.quantile(self.errors, share))

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        ends = {"median": self.quantile(0.5), "95 %": self.quantile(0.95), "worst": self.quantile(1.0)}
        return {"boxes": len(self.errors), "mean": self.mean.to_json(), "fresh": self.fresh, **ends}


def range_errors(
    real: Rows, synthetic: Rows, holdout: Rows | None, boxes: int, random: np.random.Generator
) -> RangeErrors:
    """Ask all tables about so many random boxes."""
    asked = [_box(real.sides, random) for _ in range(boxes)]
    tables = [real, synthetic, *([holdout] if holdout else [])]
    shares: Floats = np.array([[box_share(one, box) for one in tables] for box in asked])
    off = np.abs(shares[:, 1:] - shares[:, :1])
    return RangeErrors(tuple(off[:, 0].tolist()), float(off[:, 1].mean()) if holdout else None)


def box_share(rows: Rows, box: Box) -> float:
    """The share of rows inside."""
    inside = np.ones(len(rows), dtype=bool)
    for j, codes in box.items():
        inside &= codes[rows.codes[:, j]]
    return float(inside.mean()) if len(rows) else 0.0


def _box(sides: tuple[Side, ...], random: np.random.Generator) -> Box:
    way = int(random.integers(1, min(3, len(sides)) + 1))
    return {int(j): _inside(sides[j], random) for j in random.choice(len(sides), way, replace=False)}


def _inside(side: Side, random: np.random.Generator) -> NDArray[np.bool_]:
    inside, count = np.zeros(side.size, dtype=bool), len(side.labels)
    if side.ordered:
        low, high = sorted(random.choice(count + 1, 2, replace=False).tolist())
        inside[low:high] = True
    else:
        inside[random.choice(count, int(random.integers(1, max(2, count // 2 + 1))), replace=False)] = True
    return inside
