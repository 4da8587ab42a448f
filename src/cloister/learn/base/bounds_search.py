"""Private search for feature bounds, for a part of the spend: bounds="find".

    box = find_box(meter, look, features, loss)

One noisy histogram over public bins, signed powers of two: a row changes one count per feature by one. Everything
computed from the histogram is post-processing.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.inputs import Box
from cloister.learn.base.integer_rows import Integers
from cloister.privacy.budget_split import noise_for
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above

__all__ = ["find_box"]

Floats = NDArray[np.float64]

# From 1e-3 to 1e9: smaller magnitudes count as zero, larger ones are clipped.
_LEAST, _MOST = -10, 30
_BINS = _MOST - _LEAST


def find_box(meter: PrivacyFilter, look: Callable[[], Floats], features: int, loss: Loss) -> Box:
    """Find bounds of every feature, powers of two, that hold all values except those too few to detect.

    Args:
        meter: the privacy filter to charge.
        look: returns the rows; called once, inside the step.
        features: number of columns.
        loss: the loss of this step.

    Privacy: the loss, for one row added or removed: it counts once in one bin of each feature. A feature without a
        count above the noise gets the bounds (-1, 1).
    """
    noise = noise_for(root_above(features), features, loss)
    counts = meter.release(lambda: _counts(look()), noise)
    # With probability 1 - 1e-3 the noise on all bins of all features stays below this.
    threshold = noise.beyond(Fraction(1, 1000 * features * (2 * _BINS + 1)))
    ends = [_range(one > threshold) for one in np.asarray(counts, dtype=np.float64)]
    return Box(np.array([low for low, _ in ends]), np.array([high for _, high in ends]))


def _counts(rows: Floats) -> Integers:
    """Count the values of each feature in each bin: -_BINS … -1, 0, 1 … _BINS."""
    size = np.clip(np.abs(rows), 0.0, 2.0**_MOST * 0.75)
    # frexp is exact: 2^(e-1) <= size < 2^e, but for zero.
    power = np.frexp(size)[1] - 1
    place = np.where(size < 2.0**_LEAST, 0, power - _LEAST + 1) * np.where(rows < 0, -1, 1) + _BINS
    width = 2 * _BINS + 1
    known = ~np.isnan(rows)  # missing values are not counted
    flat = (np.where(known, place, 0) + width * np.arange(rows.shape[1]))[known]
    return np.bincount(flat, minlength=width * rows.shape[1]).reshape(rows.shape[1], width).astype(np.int64)


def _range(large: NDArray[np.bool_]) -> tuple[float, float]:
    places = np.flatnonzero(large) - _BINS
    if not places.size:
        return -1.0, 1.0
    low, high = _edges(int(places[0]))[0], _edges(int(places[-1]))[1]
    return low, high


def _edges(place: int) -> tuple[float, float]:
    """Return the lower and upper end of a bin."""
    if place == 0:
        return -(2.0**_LEAST), 2.0**_LEAST
    ends = 2.0 ** (_LEAST + abs(place) - 1), 2.0 ** (_LEAST + abs(place))
    return ends if place > 0 else (-ends[1], -ends[0])
