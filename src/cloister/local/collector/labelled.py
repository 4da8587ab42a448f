"""Labelled numbers, at the collector: add the vectors up."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats
from cloister.local.collector.counts import frequencies, tally, valid
from cloister.local.collector.direct import chosen
from cloister.local.collector.spread import Spread, known_noise, spread_of
from cloister.local.mechanisms.labelled import STEPS, LabelledNumber

__all__: list[str] = []


@valid.register
def _valid(mechanism: LabelledNumber, data: NDArray[Any]) -> NDArray[np.bool_]:
    """No component beyond the limit: without it one liar could move a sum at will."""
    limit = mechanism.limit
    return np.asarray(((data >= -limit) & (data <= limit)).all(axis=1))


@tally.register
def _sums(mechanism: LabelledNumber, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.asarray(data.sum(axis=0, dtype=np.int64))


@frequencies.register
def _means(
    mechanism: LabelledNumber, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(table / (people * STEPS), values)


@spread_of.register
def _noise(
    mechanism: LabelledNumber, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    return known_noise(len(shares), n, float(mechanism.scale), STEPS)
