"""Local hashing, on the device: a seed of one's own, then direct encoding of the value's bucket."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.dyadic import threshold
from cloister.local.client.coins import Words, below, tossed, uniform
from cloister.local.client.perturb import perturbed
from cloister.local.mechanisms.hashing import LocalHashing
from cloister.local.mechanisms.heavy import HeavyHitters
from cloister.privacy.noise.source import Source

__all__ = ["hashing", "heavy"]


@perturbed.register
def hashing(mechanism: LocalHashing, values: NDArray[np.int64], source: Source) -> Words:
    """seed · buckets + bucket: the seed's words first, then one word for the bucket."""
    g = mechanism.buckets
    seeds = uniform(mechanism.seeds, len(values), source)
    own = _products(seeds, values.astype(np.uint64), mechanism.digits, g)
    return seeds * np.uint64(g) + below(mechanism.thresholds, own, g, source)


@perturbed.register
def heavy(mechanism: HeavyHitters, values: NDArray[np.int64], source: Source) -> Words:
    """level + levels · (seed · buckets + bucket): a word for the level, then the seed's, then one for the bucket.

    People of one level are served together, from the first level to the last.
    """
    g, levels = mechanism.buckets, mechanism.levels
    ends = np.cumsum([threshold(mechanism.share(level)) for level in range(levels - 1)], dtype=np.uint64)
    level_of = np.searchsorted(ends, tossed(len(values), source), side="right")
    reports = np.empty(len(values), dtype=np.uint64)
    for level in range(levels):
        here = np.flatnonzero(level_of == level)
        prefixes = values[here].astype(np.uint64) >> np.uint64(mechanism.length - mechanism.chunk * (level + 1))
        seeds = uniform(mechanism.seeds(level), here.size, source)
        own, rest = np.zeros(here.size, dtype=np.uint64), seeds
        for _ in range(level + 1):
            part = prefixes & np.uint64((1 << mechanism.chunk) - 1)
            own += _products(rest, part, mechanism.digits, g)
            prefixes, rest = prefixes >> np.uint64(mechanism.chunk), rest // np.uint64(g**mechanism.digits)
        sent = seeds * np.uint64(g) + below(mechanism.thresholds, own % np.uint64(g), g, source)
        reports[here] = np.uint64(level) + np.uint64(levels) * sent
    return reports


def _products(seeds: Words, values: Words, digits: int, base: int) -> Words:
    """The sum of the products of the lowest digits, modulo the base."""
    g, total = np.uint64(base), np.zeros(len(values), dtype=np.uint64)
    for _ in range(digits):
        total += (seeds % g) * (values % g)
        seeds, values = seeds // g, values // g
    return total % g
