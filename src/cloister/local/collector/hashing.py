"""Local hashing, at the collector: one table of (seed, bucket), decoded digit by digit."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats
from cloister.local.collector.counts import frequencies, likelihood, tally
from cloister.local.collector.direct import chosen, debiased
from cloister.local.collector.projection import Likelihood
from cloister.local.mechanisms.hashing import LocalHashing

__all__ = ["supports", "walk"]


@tally.register
def _counts(mechanism: LocalHashing, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.bincount(data.astype(np.int64), minlength=mechanism.outputs)


@frequencies.register
def _shares(
    mechanism: LocalHashing, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    counts = supports(table, mechanism.buckets, mechanism.digits)[: mechanism.domain]
    return chosen(debiased(mechanism, counts, people), values)


@likelihood.register
def _likelihood(mechanism: LocalHashing, table: NDArray[Any], people: int) -> Likelihood:
    """Given its seed, a report is a direct encoding of the bucket; buckets hold the shares of their values."""
    g, digits, domain = mechanism.buckets, mechanism.digits, mechanism.domain
    p, lie = float(mechanism.p), float(mechanism.lie)

    def expected(shares: Floats) -> Floats:
        start = np.zeros((g**digits, g))
        start[:domain, 0] = shares
        held = walk(start.ravel(), g, digits, -1)
        return np.asarray((lie * shares.sum() + (p - lie) * held) / g**digits)

    def back(weights: Floats) -> Floats:
        hit = walk(weights, g, digits, 1).reshape(-1, g)[:domain, 0]
        return np.asarray((lie * weights.sum() + (p - lie) * hit) / g**digits)

    return Likelihood(table.astype(np.float64), expected, back)


def supports(table: NDArray[Any], base: int, digits: int) -> NDArray[Any]:
    """For each value, how many reports name its bucket: the sum over seeds a of table[a, a·x mod base]."""
    return walk(table, base, digits, 1, whole=False)


def walk(table: NDArray[Any], base: int, digits: int, sign: int, whole: bool = True) -> NDArray[Any]:
    """Exchange each digit a of a seed for a digit x of a value: new[x, r] = sum over a of old[a, r + sign·a·x].

    Digits are independent, so `digits` exchanges of base² shifted sums each do what base^(2·digits) evaluations would.
    With the other sign it is its own transpose. If not the `whole` is wanted, only r = 0 is.
    """
    rows, all_a = np.ascontiguousarray(table.reshape(-1, base).T), np.arange(base)  # a row for each r: long runs
    for left in reversed(range(digits)):
        old = rows.reshape(base, base, -1)  # the highest digit comes first; its exchange goes last
        wanted = base if whole or left else 1
        new = np.empty((wanted, old.shape[2], base), dtype=old.dtype)
        for x in range(base):
            for r in range(wanted):
                new[r, :, x] = old[(r + sign * x * all_a) % base, all_a].sum(axis=0, dtype=old.dtype)
        rows = new.reshape(wanted, -1)
    return np.asarray(rows.T.ravel())
