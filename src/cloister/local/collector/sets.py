"""Multiple choice, at the collector: shares of people who chose each option. They need not add up to 1."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats
from cloister.local.collector.counts import frequencies, tally, valid
from cloister.local.collector.direct import chosen, debiased
from cloister.local.collector.unary import columns, no_spare_bits
from cloister.local.mechanisms.padded import PaddedSample
from cloister.local.mechanisms.sets import OneOfSet, SetBits

__all__: list[str] = []


@valid.register
def _valid(mechanism: SetBits, data: NDArray[Any]) -> NDArray[np.bool_]:
    return no_spare_bits(data, mechanism.domain)


@valid.register
def _valid_inside(mechanism: PaddedSample, data: NDArray[Any]) -> NDArray[np.bool_]:
    return valid(mechanism.inner, data)


@tally.register
def _named(mechanism: OneOfSet, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.bincount(data.astype(np.int64), minlength=mechanism.outputs)


@tally.register
def _bits(mechanism: SetBits, data: NDArray[Any]) -> NDArray[np.int64]:
    return columns(data, mechanism.domain)


@tally.register
def _inside(mechanism: PaddedSample, data: NDArray[Any]) -> NDArray[Any]:
    return tally(mechanism.inner, data)


@frequencies.register
def _shares(
    mechanism: OneOfSet | SetBits, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(debiased(mechanism, table[: mechanism.domain], people), values)


@frequencies.register
def _sampled(
    mechanism: PaddedSample, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    _, shares = frequencies(mechanism.inner, table, people, None)
    return chosen(mechanism.most * shares[: mechanism.domain], values)
