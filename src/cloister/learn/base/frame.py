"""Where rows lie, publicly: features clipped and scaled by bounds, or rows shortened to a public length.

In a frame every row lies within `reach` of the origin, and reach is sqrt(features)/2 whichever way it was given:

    bounds       each feature is clipped and scaled to [-1/2, 1/2], the middle of its bounds at the origin
    data_norm    each row is shortened to that length, then all are scaled alike; bounds then only clip

What is computed for one row here never depends on which rows stand beside it, to the last bit: cell by cell, or in
integers whose sums are exact. So adding a row changes nothing but that row's own part of a sum.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.inputs import Box, check_norm, read_box
from cloister.learn.base.integer_rows import ROW_BITS, on_grid

__all__ = ["Floats", "Frame", "read_frame", "shorten", "squares"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Frame:
    """The public map from features to scaled features.

    Attributes:
        box: what features are clipped to; None if only their length is public.
        centre, scale: a scaled feature is (feature - centre) · scale.
        round: whether rows are shortened to `reach`; a box keeps them within it anyway.
    """

    box: Box | None
    centre: Floats
    scale: Floats
    round: bool

    @property
    def features(self) -> int:
        """How many there are."""
        return len(self.centre)

    @property
    def reach(self) -> float:
        """No scaled row is longer than this."""
        return math.sqrt(self.features) / 2

    def rows(self, table: Floats) -> Floats:
        """Scaled rows, clipped and shortened."""
        with np.errstate(over="ignore", invalid="ignore"):  # a warning would tell of one row
            clipped = table if self.box is None else self.box.clip(table)
            scaled = (clipped - self.centre) * self.scale
        if not self.round:
            return np.clip(scaled, -0.5, 0.5, out=scaled)  # where scaling rounded up
        return np.asarray(self.cells(scaled) * (self.reach / 2**ROW_BITS))

    def cells(self, scaled: Floats) -> Floats:
        """Scaled rows on an integer grid, none longer than 2^ROW_BITS."""
        # So that squares sum exactly; a row so far out keeps about its direction.
        limit = 2.0 ** (ROW_BITS + 5)
        with np.errstate(over="ignore", invalid="ignore"):
            return shorten(on_grid(scaled * (2**ROW_BITS / self.reach), limit), 2**ROW_BITS)

    @property
    def ends(self) -> Box:
        """How far each feature reaches, in its own unit."""
        if self.box is not None:
            return self.box
        return Box(self.centre - self.reach / self.scale, self.centre + self.reach / self.scale)

    def farthest(self, point: Floats, stretch: Floats | float = 1.0) -> float:
        """How far a scaled row can be from a point, in features that are stretched afterwards."""
        if self.round:
            return (self.reach + float(np.linalg.norm(point))) * float(np.max(stretch))
        return float(np.linalg.norm((0.5 + np.abs(point)) * stretch))


def read_frame(bounds: Any, data_norm: float | None, features: int) -> Frame:
    """The frame that bounds or a norm describe."""
    if data_norm is None:
        box = read_box(bounds, features)
        return Frame(box, (box.low + box.high) / 2, 1 / (box.high - box.low), round=False)
    norm = check_norm(data_norm)
    clip = None if bounds is None else read_box(bounds, features)
    scale = np.full(features, math.sqrt(features) / 2 / norm)
    return Frame(clip, np.zeros(features), scale, round=True)


def squares(cells: Floats) -> Floats:
    """The squared length of each row of integers, exact."""
    return np.asarray(np.einsum("ij,ij->i", cells, cells))


def shorten(cells: Floats, longest: int) -> Floats:
    """Rows of integers, those that are longer than `longest` (L2) shortened to it, towards zero."""
    found = squares(cells)
    over = found > float(longest) ** 2
    if not over.any():
        return cells
    # A little more than needed, so that rounding of the factor cannot leave a row too long.
    factor = np.where(over, longest * (1 - 1e-9) / np.sqrt(np.maximum(found, 1.0)), 1.0)
    return np.asarray(np.trunc(cells * factor[:, None]))
