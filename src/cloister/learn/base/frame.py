"""Scaling of features: clipped and scaled by bounds, public or found, or rows clipped to a public norm.

In a frame every row has norm at most `reach`, which is sqrt(features)/2 in both cases:

    bounds       each feature is clipped and scaled to [-1/2, 1/2], the middle of its bounds at the origin
    data_norm    each row is clipped to that norm, then all are scaled alike; bounds then only clip

The result for one row does not depend on the other rows, to the last bit: it is computed cell by cell, or in integers
whose sums are exact. So adding a row changes only that row's own term of a sum.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.bounds_search import bounds_of, count_by_power
from cloister.learn.base.inputs import Box, check_norm, read_box
from cloister.learn.base.integer_rows import ROW_BITS, on_grid
from cloister.privacy.filter import PrivacyFilter, noise_for
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above

__all__ = ["Floats", "Frame", "find_box", "read_frame", "shorten", "squares"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Frame:
    """Public map from features to scaled features.

    Attributes:
        box: the bounds that features are clipped to; None if only the norm is public.
        centre, scale: a scaled feature is (feature - centre) · scale.
        round: True to clip rows to norm `reach`; a box bounds the norm anyway.
    """

    box: Box | None
    centre: Floats
    scale: Floats
    round: bool

    @property
    def features(self) -> int:
        """Return the number of features."""
        return len(self.centre)

    @property
    def reach(self) -> float:
        """Return the largest norm of a scaled row."""
        return math.sqrt(self.features) / 2

    def rows(self, table: Floats) -> Floats:
        """Return scaled rows, clipped by bounds and norm."""
        with np.errstate(over="ignore", invalid="ignore"):  # a warning would reveal a row
            clipped = table if self.box is None else self.box.clip(table)
            scaled = (clipped - self.centre) * self.scale
        if not self.round:
            return np.clip(scaled, -0.5, 0.5, out=scaled)  # in case scaling rounded up
        return np.asarray(self.cells(scaled) * (self.reach / 2**ROW_BITS))

    def cells(self, scaled: Floats) -> Floats:
        """Return scaled rows on an integer grid, with norm at most 2^ROW_BITS."""
        # So that squares sum exactly; a row that far out keeps its approximate direction.
        limit = 2.0 ** (ROW_BITS + 5)
        with np.errstate(over="ignore", invalid="ignore"):
            return shorten(on_grid(scaled * (2**ROW_BITS / self.reach), limit), 2**ROW_BITS)

    @property
    def ends(self) -> Box:
        """Return the range of each feature, in its own unit."""
        if self.box is not None:
            return self.box
        return Box(self.centre - self.reach / self.scale, self.centre + self.reach / self.scale)

    def farthest(self, point: Floats, stretch: Floats | float = 1.0) -> float:
        """Return the largest distance of a scaled row from a point, after the features are stretched."""
        if self.round:
            return (self.reach + float(np.linalg.norm(point))) * float(np.max(stretch))
        return float(np.linalg.norm((0.5 + np.abs(point)) * stretch))


def read_frame(bounds: Any, data_norm: float | None, features: int) -> Frame:
    """Build the frame from bounds or a norm."""
    if data_norm is None:
        box = read_box(bounds, features)
        return Frame(box, (box.low + box.high) / 2, 1 / (box.high - box.low), round=False)
    norm = check_norm(data_norm)
    clip = None if bounds is None else read_box(bounds, features)
    scale = np.full(features, math.sqrt(features) / 2 / norm)
    return Frame(clip, np.zeros(features), scale, round=True)


def find_box(meter: PrivacyFilter, look: Callable[[], Floats], features: int, loss: Loss) -> Box:
    """Find bounds of every feature, powers of two, that hold all values except those too few to detect.

    Args:
        meter: the privacy filter to charge.
        look: returns the rows; called once, inside the step.
        features: number of columns.
        loss: the loss of this step.

    Privacy: the loss, for one row added or removed: it counts once in one bin of each feature
        (data/bounds_search.py). A feature without a count above the noise gets the bounds (-1, 1).
    """
    noise = noise_for(root_above(features), features, loss)
    counts = meter.release(lambda: count_by_power(look()), noise)
    ends = [bounds_of(histogram, noise, features) for histogram in counts]
    return Box(np.array([low for low, _ in ends]), np.array([high for _, high in ends]))


def squares(cells: Floats) -> Floats:
    """Return the exact squared norm of each row of integers."""
    return np.asarray(np.einsum("ij,ij->i", cells, cells))


def shorten(cells: Floats, longest: int) -> Floats:
    """Clip rows of integers to L2 norm `longest`, rounding towards zero."""
    squared = squares(cells)
    over = squared > float(longest) ** 2
    if not over.any():
        return cells
    # Clip slightly below the bound, so that rounding of the factor cannot leave a row too long.
    factor = np.where(over, longest * (1 - 1e-9) / np.sqrt(np.maximum(squared, 1.0)), 1.0)
    return np.asarray(np.trunc(cells * factor[:, None]))
