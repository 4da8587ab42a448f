"""Memoised answers, on the device: the permanent report, and a fresh one of it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.dyadic import threshold
from cloister.local.client.coins import below, bit_coins
from cloister.local.client.perturb import perturbed
from cloister.local.client.unary import trim
from cloister.local.mechanisms.memoised import Memoised
from cloister.privacy.noise.source import Source

__all__ = ["again", "both_layers"]


@perturbed.register
def both_layers(mechanism: Memoised, values: NDArray[np.int64], source: Source) -> NDArray[Any]:
    """A permanent report that nobody keeps, and a fresh one of it: a first report, for simulations.

    A device keeps the first and calls `again`: see `memory.Wallet`.
    """
    return again(mechanism, perturbed(mechanism.permanent, values, source), source)


def again(mechanism: Memoised, permanent: NDArray[Any], source: Source) -> NDArray[Any]:
    """Fresh reports of permanent ones, one row a person.

    Direct: one little-endian word each, as in direct encoding, with `flip` as its q. Unary: coins of probability `flip`
    (`coins.bit_coins`), one for each bit, and a bit is flipped where its coin is 1.
    """
    if mechanism.encoding == "direct":
        keep = threshold(1 - (mechanism.domain - 1) * mechanism.flip)
        return below((keep, threshold(mechanism.flip)), permanent, mechanism.domain, source)
    flips = bit_coins(mechanism.flip, permanent.size, source).reshape(permanent.shape)
    return np.asarray(permanent ^ trim(flips, mechanism.domain))
