"""Private search for the bounds of numbers: counts in public bins, by sign and power of two.

    counts    how many values are in each bin; one value is in one bin
    noise     added by the caller, who pays for it
    bounds    the outer edges of the bins whose counts the noise cannot explain

`Dataset.find_bounds` counts in an engine (query/discovery.py), bounds="find" of a model counts rows in memory
(learn/base/frame.py). Bins and bounds are those of this file for both.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace

__all__ = ["BINS", "POWERS", "bounds_of", "count_by_power"]

POWERS = range(-20, 64)  # from 1e-6 to 1e19: smaller magnitudes count as zero, larger ones are in the outermost bins
BINS = 2 * len(POWERS) + 1  # negative powers, zero, positive powers
_UNSURE = Fraction(1, 1000)  # probability that noise alone exceeds the threshold in some bin


def count_by_power(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """Count the values of each column in each bin (columns × bins); missing values are not counted."""
    size = np.clip(np.abs(rows), 0.0, 2.0 ** POWERS[-1] * 1.5)
    # frexp is exact: 2^(e-1) <= size < 2^e, but for zero.
    power = np.frexp(size)[1] - 1
    index = np.where(size < 2.0 ** POWERS[0], 0, power - POWERS[0] + 1) * np.where(rows < 0, -1, 1) + len(POWERS)
    present = ~np.isnan(rows)
    flat = (np.where(present, index, 0) + BINS * np.arange(rows.shape[1]))[present]
    return np.bincount(flat, minlength=BINS * rows.shape[1]).reshape(rows.shape[1], BINS).astype(np.int64)


def bounds_of(noisy: Any, noise: DiscreteGaussian | DiscreteLaplace, columns: int = 1) -> tuple[float, float]:
    """Return the outer edges of the bins with counts that the noise cannot explain. Post-processing.

    Args:
        noisy: the noisy counts of one column.
        noise: their noise.
        columns: number of columns that are searched together.

    Returns:
        Low and high, low being less: (-1, 1) if no count stands out.
    """
    # Except with probability 1e-3 the noise of all bins of all columns stays below this.
    threshold = noise.beyond(_UNSURE / (columns * BINS))
    large = np.flatnonzero(np.asarray(noisy, dtype=np.float64) > threshold) - len(POWERS)
    if not large.size:
        return -1.0, 1.0
    low, high = _edge(int(large[0]), lower=True), _edge(int(large[-1]), lower=False)
    return (low, high) if low < high else (-(2.0 ** POWERS[0]), 2.0 ** POWERS[0])


def _edge(index: int, *, lower: bool) -> float:
    """Return the outer edge of a bin."""
    if index == 0:
        return 0.0
    power = POWERS[0] + abs(index) - 1
    if index > 0:
        return 0.0 if lower and power == POWERS[0] else 2.0 ** (power if lower else power + 1)
    return -(2.0 ** (power + 1 if lower else power))
