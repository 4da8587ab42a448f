"""Histogram encoding with summation, at the collector: add the vectors up."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats
from cloister.local.collector.counts import frequencies, tally, valid
from cloister.local.collector.direct import chosen
from cloister.local.collector.spread import Spread, known_noise, spread_of
from cloister.local.mechanisms.histogram import HistogramEncoding

__all__: list[str] = []


@valid.register
def _valid(mechanism: HistogramEncoding, data: NDArray[Any]) -> NDArray[np.bool_]:
    """No component beyond the limit: without it one liar could move a sum at will."""
    limit = mechanism.limit
    return np.asarray(((data >= -limit) & (data <= limit)).all(axis=1))


@tally.register
def _sums(mechanism: HistogramEncoding, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.asarray(data.sum(axis=0, dtype=np.int64))


@frequencies.register
def _shares(
    mechanism: HistogramEncoding, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(table / people, values)


@spread_of.register
def _noise(
    mechanism: HistogramEncoding, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    return known_noise(len(shares), n, float(mechanism.scale), 1.0)
