"""Heavy hitters, at the collector: frequent prefixes, then their frequent continuations."""

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats
from cloister.local.collector.counts import frequencies, tally, valid
from cloister.local.collector.hashing import supports
from cloister.local.mechanisms.heavy import HeavyHitters

__all__ = ["KEPT"]

# Prefixes followed up at each level.
KEPT = 64
# A value is named only if noise alone would lift any value so high in one collection out of a thousand.
_FALSE_ALARM = 1e-3


@valid.register
def _valid(mechanism: HeavyHitters, data: NDArray[Any]) -> NDArray[np.bool_]:
    levels = np.uint64(mechanism.levels)
    limits = [mechanism.seeds(level) * mechanism.buckets for level in range(mechanism.levels)]
    return np.asarray(data // levels < np.array(limits, dtype=np.uint64)[(data % levels).astype(np.int64)])


@tally.register
def _reports(mechanism: HeavyHitters, data: NDArray[Any]) -> NDArray[np.uint64]:
    """The reports themselves: which counts are needed is known only when the prefixes are."""
    return np.asarray(data, dtype=np.uint64)


@frequencies.register
def _shares(
    mechanism: HeavyHitters, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], Floats]:
    """Values found, most frequent first, or the shares of named ones, from those who were asked for whole values."""
    if values is not None:
        return values, _named(mechanism, table, values)
    found, shares = np.zeros(1, dtype=np.int64), np.ones(1)
    for level in range(mechanism.levels):
        reports = _level(mechanism, table, level)
        found, shares = _continued(mechanism, reports, found, level)
    return found, shares


def _continued(
    mechanism: HeavyHitters, reports: NDArray[np.uint64], prefixes: NDArray[np.int64], level: int
) -> tuple[NDArray[np.int64], Floats]:
    """The continuations of these prefixes that stand out from the noise, most frequent first."""
    if not prefixes.size:
        return prefixes, np.zeros(0)
    longer = (prefixes[:, None] << mechanism.chunk) + np.arange(1 << mechanism.chunk)
    shares = np.stack([_chunk(mechanism, reports, int(prefix), level) for prefix in prefixes]).ravel()
    tests = NormalDist().inv_cdf(1 - _FALSE_ALARM / shares.size)
    q = float(mechanism.q)
    error = (q * (1 - q) / max(1, len(reports))) ** 0.5 / float(mechanism.p - mechanism.q)
    # The last level names values to people; before it, a prefix too many costs only time.
    bar = tests * error if level == mechanism.levels - 1 else 3 * error
    order = np.argsort(-shares)[: KEPT if level < mechanism.levels - 1 else None]
    order = order[shares[order] > bar]
    return longer.ravel()[order], shares[order]


def _chunk(mechanism: HeavyHitters, reports: NDArray[np.uint64], prefix: int, level: int) -> Floats:
    """The shares of all continuations of one prefix.

    The hash of a longer prefix is that of the prefix plus that of its last chunk. So the prefix's part is
    subtracted from the reported bucket, and what is left is a local hashing of the chunk alone.
    """
    g, digits = mechanism.buckets, mechanism.digits
    own = g**digits
    seeds, buckets = reports // np.uint64(g), (reports % np.uint64(g)).astype(np.int64)
    rest = seeds // np.uint64(own)
    held = np.zeros(len(reports), dtype=np.int64)
    for _ in range(level):
        part, prefix = prefix & ((1 << mechanism.chunk) - 1), prefix >> mechanism.chunk
        for _ in range(digits):
            if part % g:
                held += (rest % np.uint64(g)).astype(np.int64) * (part % g)
            rest, part = rest // np.uint64(g), part // g
    index = (seeds % np.uint64(own)).astype(np.int64) * g + (buckets - held) % g
    table = np.bincount(index, minlength=own * g).astype(np.int32)
    counts = supports(table, g, digits)[: 1 << mechanism.chunk]
    return np.asarray((counts / max(1, len(reports)) - float(mechanism.q)) / float(mechanism.p - mechanism.q))


def _named(mechanism: HeavyHitters, table: NDArray[Any], values: NDArray[np.int64]) -> Floats:
    last = mechanism.levels - 1
    reports = _level(mechanism, table, last)
    shares = [
        _chunk(mechanism, reports, int(value) >> mechanism.chunk, last)[int(value) & ((1 << mechanism.chunk) - 1)]
        for value in values
    ]
    return np.array(shares)


def _level(mechanism: HeavyHitters, table: NDArray[Any], level: int) -> NDArray[np.uint64]:
    levels = np.uint64(mechanism.levels)
    return np.asarray(table[table % levels == np.uint64(level)] // levels)
