"""Memoised answers, at the collector: one round's reports are a pure protocol with the p and q of both layers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats
from cloister.local.collector.counts import frequencies, likelihood, tally, valid
from cloister.local.collector.direct import chosen, debiased
from cloister.local.collector.projection import Likelihood, pairs
from cloister.local.collector.unary import columns, no_spare_bits
from cloister.local.mechanisms.memoised import Memoised

__all__: list[str] = []


@valid.register
def _valid(mechanism: Memoised, data: NDArray[Any]) -> NDArray[np.bool_]:
    if mechanism.encoding == "direct":
        return np.asarray(data < np.uint64(mechanism.domain))
    return no_spare_bits(data, mechanism.domain)


@tally.register
def _counts(mechanism: Memoised, data: NDArray[Any]) -> NDArray[np.int64]:
    if mechanism.encoding == "direct":
        return np.bincount(data.astype(np.int64), minlength=mechanism.domain)
    return columns(data, mechanism.domain)


@frequencies.register
def _shares(
    mechanism: Memoised, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(debiased(mechanism, table, people), values)


@likelihood.register
def _likelihood(mechanism: Memoised, table: NDArray[Any], people: int) -> Likelihood:
    return pairs(table.astype(np.float64), people, float(mechanism.p), float(mechanism.q))
