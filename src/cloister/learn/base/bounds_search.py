"""Bounds that are not public, found for a part of the spend: bounds="find".

    box = find_box(meter, look, features, loss)

A noisy histogram over public bins, powers of two with a sign: one row moves one count for each feature by one. What is
read off it afterwards is post-processing.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.inputs import Box
from cloister.learn.base.integer_rows import Integers
from cloister.privacy.budget_split import noise_for
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above

__all__ = ["find_box", "noise_for", "wants_bounds"]

Floats = NDArray[np.float64]

# From a thousandth to a thousand million: what is nearer to zero is zero, what is farther away is clipped.
_LEAST, _MOST = -10, 30
_BINS = _MOST - _LEAST


def wants_bounds(bounds: Any) -> bool:
    """Whether bounds are to be found: bounds="find"."""
    return isinstance(bounds, str) and bounds == "find"


def find_box(meter: PrivacyFilter, look: Callable[[], Floats], features: int, loss: Loss) -> Box:
    """Bounds of every feature, between powers of two, that hold all values but those that are too few to be seen.

    Args:
        meter: pays.
        look: gives the rows; called once, inside the step.
        features: how many columns they have.
        loss: of this step.

    Privacy: the loss, for one row added or removed: it counts once in one bin of each feature. A feature in which no
        count stands out gets the bounds (-1, 1).
    """
    noise = noise_for(root_above(features), features, loss)
    counts = meter.release(lambda: _counts(look()), noise)
    # All bins of all features together stay below this but with probability 1e-3.
    threshold = noise.beyond(Fraction(1, 1000 * features * (2 * _BINS + 1)))
    ends = [_range(one > threshold) for one in np.asarray(counts, dtype=np.float64)]
    return Box(np.array([low for low, _ in ends]), np.array([high for _, high in ends]))


def _counts(rows: Floats) -> Integers:
    """How many values each feature has in each bin: -_BINS … -1, 0, 1 … _BINS."""
    size = np.clip(np.abs(rows), 0.0, 2.0**_MOST * 0.75)
    # frexp is exact: 2^(e-1) <= size < 2^e, but for zero.
    power = np.frexp(size)[1] - 1
    place = np.where(size < 2.0**_LEAST, 0, power - _LEAST + 1) * np.where(rows < 0, -1, 1) + _BINS
    width = 2 * _BINS + 1
    known = ~np.isnan(rows)  # what is missing counts nowhere
    flat = (np.where(known, place, 0) + width * np.arange(rows.shape[1]))[known]
    return np.bincount(flat, minlength=width * rows.shape[1]).reshape(rows.shape[1], width).astype(np.int64)


def _range(large: NDArray[np.bool_]) -> tuple[float, float]:
    places = np.flatnonzero(large) - _BINS
    if not places.size:
        return -1.0, 1.0
    low, high = _edges(int(places[0]))[0], _edges(int(places[-1]))[1]
    return low, high


def _edges(place: int) -> tuple[float, float]:
    """The lower and upper end of a bin."""
    if place == 0:
        return -(2.0**_LEAST), 2.0**_LEAST
    ends = 2.0 ** (_LEAST + abs(place) - 1), 2.0 ** (_LEAST + abs(place))
    return ends if place > 0 else (-ends[1], -ends[0])
