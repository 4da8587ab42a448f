"""Private search for a ball that holds most rows.

Public bounds are often far wider than the data: a box around projected pictures holds a ball a thirtieth as wide with
nearly all of them. Noise grows with the width, so a small part of the spend is used to find the ball, by a noisy
histogram of the rows' norms on public cells whose widths form a geometric series.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.learn.base.frame import Floats, shorten, squares
from cloister.learn.base.inputs import Box, check_norm, read_box
from cloister.learn.base.integer_rows import Integers, noisy_counts, on_grid
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.loss import Loss

__all__ = ["Ground", "radius_within", "read_ground"]

_CELLS, _RATIO = 48, 1.15  # down to 1/700 of the largest radius


@dataclass(frozen=True, slots=True)
class Ground:
    """Public integer grid for rows.

    Attributes:
        box: clips features; None if only the norm is bounded.
        centre: the point that norms are measured from.
        step: the real value of one; the largest norm is 2^bits.
    """

    box: Box | None
    centre: Floats
    step: float
    bits: int

    def cells(self, table: Floats) -> Floats:
        """Return rows as integers, with norm at most 2^bits."""
        with np.errstate(over="ignore", invalid="ignore"):  # a warning would reveal a row
            clipped = table if self.box is None else self.box.clip(table)
            near = (clipped - self.centre) / self.step
        return shorten(on_grid(near, float(2**self.bits)), 2**self.bits)

    @property
    def ends(self) -> Box:
        """Return the range of each feature, in its own unit."""
        if self.box is not None:
            return self.box
        longest = self.step * 2**self.bits
        return Box(self.centre - longest, self.centre + longest)


def read_ground(bounds: Any, data_norm: float | None, features: int) -> Ground:
    """Build the grid from bounds or a norm. All features share one scale, so that distances keep their meaning."""
    bits = min(20, (52 - math.ceil(math.log2(features))) // 2)  # squares of clipped rows then sum below 2^53
    if data_norm is not None:
        norm = check_norm(data_norm)
        box = None if bounds is None else read_box(bounds, features)
        return Ground(box, np.zeros(features), norm / 2**bits, bits)
    box = read_box(bounds, features)
    return Ground(box, (box.low + box.high) / 2, float(np.linalg.norm(box.high - box.low)) / 2 / 2**bits, bits)


def radius_within(
    meter: PrivacyFilter, loss: Loss, look: Callable[[], Floats], widest: int, share: float
) -> tuple[int, float]:
    """Release a radius that holds about this share of the rows, and the approximate number of rows.

    Args:
        meter, loss: the privacy filter to charge, and the loss.
        look: returns rows of integers, relative to the ball's centre.
        widest: largest radius; longer rows count as this long.
        share: the share of the rows.

    Privacy: the loss: a row is in one cell.
    """
    edges = np.maximum(1, np.rint(widest * _RATIO ** -np.arange(_CELLS - 1.0, -1.0, -1.0))).astype(np.int64)

    def lengths() -> Integers:
        cell = np.searchsorted(edges[:-1].astype(np.float64) ** 2, squares(look()), side="left")
        return np.bincount(cell, minlength=_CELLS).astype(np.int64)

    counts = noisy_counts(meter, lengths, loss)
    amount = float(loss.amount)
    noise = math.sqrt(1 / (2 * amount)) if loss.measure == "rho" else math.sqrt(2) / amount
    # Cells of pure noise would push the radius outwards: there are many, and they are wide.
    significant = np.where(counts > 2 * noise, counts, 0.0)
    total = significant.sum()
    if total <= 0:
        return int(edges[-1]), 1.0
    return int(edges[int(np.searchsorted(np.cumsum(significant), share * total))]), float(total)
