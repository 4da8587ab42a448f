"""Duchi's mechanism, on the device: one word against a threshold that rises with the number."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.dyadic import threshold
from cloister.local.client.coins import Words, tossed
from cloister.local.client.perturb import perturbed
from cloister.local.mechanisms.duchi import Duchi
from cloister.privacy.noise.source import Source

__all__ = ["duchi", "leaning"]


@perturbed.register
def duchi(mechanism: Duchi, values: NDArray[np.int64], source: Source) -> Words:
    """One bit a person."""
    word = tossed(len(values), source)
    return leaning(threshold(mechanism.q), mechanism.rise, values, word).astype(np.uint64)


def leaning(base: int, rise: int, values: NDArray[np.int64], word: Words) -> NDArray[np.bool_]:
    """Whether a word is below base + rise·value, which no value takes to 2^64."""
    return np.asarray(word < np.uint64(base) + values.astype(np.uint64) * np.uint64(rise))
