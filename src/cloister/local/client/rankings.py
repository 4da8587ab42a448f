"""Rankings, on the device: words for the pair or place, then one word for the answer."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.dyadic import threshold
from cloister.local.client.coins import Words, below, coins, uniform
from cloister.local.client.perturb import checked, perturbed
from cloister.local.mechanisms.rankings import ItemAtPlace, PairOrder
from cloister.privacy.errors import BadCandidates
from cloister.privacy.noise.source import Source

__all__ = ["item_at_place", "pair_order", "read_rankings"]


@perturbed.register
def pair_order(mechanism: PairOrder, values: NDArray[np.int64], source: Source) -> Words:
    """2 · pair + (i is said to come before j): a word for the pair (again in the last, incomplete run), one to lie.

    The true order is told if the second word is below p·2^64.
    """
    people, k = np.arange(len(values)), mechanism.domain
    place = np.empty_like(values)
    place[people[:, None], values] = np.arange(k)
    first, second = np.triu_indices(k, 1)  # (0,1), (0,2), … (1,2), …
    pair = uniform(mechanism.pairs, len(values), source).astype(np.int64)
    truth = coins(threshold(mechanism.p), len(values), source)
    before = place[people, first[pair]] < place[people, second[pair]]
    return np.asarray(2 * pair + (before == truth), dtype=np.uint64)


@perturbed.register
def item_at_place(mechanism: ItemAtPlace, values: NDArray[np.int64], source: Source) -> Words:
    """place · k + item: a word for the place (again in the last, incomplete run), then one as in direct encoding."""
    k = np.uint64(mechanism.domain)
    place = uniform(mechanism.domain, len(values), source)
    item = values[np.arange(len(values)), place.astype(np.int64)].astype(np.uint64)
    return place * k + below(mechanism.thresholds, item, mechanism.domain, source)


@checked.register
def read_rankings(mechanism: PairOrder | ItemAtPlace, values: Any) -> NDArray[np.int64]:
    """One row a person: all items, the best first.

    Args:
        mechanism: the public facts.
        values: one person's items in order, or rows of such.
    """
    k = mechanism.domain
    try:
        given = np.asarray(values)
    except ValueError:  # rows of different lengths
        given = np.empty(0)
    rows = given.reshape(-1, k) if given.ndim in (1, 2) and given.shape[-1] == k else np.empty((1, 0))
    if rows.dtype.kind not in "iu" or not (np.sort(rows, axis=1) == np.arange(k)).all():
        raise BadCandidates(f"a ranking names each item from 0 to {k - 1} once, the best first; one row a person.")
    return rows.astype(np.int64)
