"""The hybrid mechanism, on the device: one word chooses, one word reports."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.dyadic import threshold
from cloister.local.client.coins import Words, tossed
from cloister.local.client.duchi import leaning
from cloister.local.client.perturb import perturbed
from cloister.local.client.piecewise import windowed
from cloister.local.mechanisms.hybrid import Hybrid
from cloister.privacy.noise.source import Source

__all__ = ["hybrid"]


@perturbed.register
def hybrid(mechanism: Hybrid, values: NDArray[np.int64], source: Source) -> Words:
    """A report of the piecewise mechanism, or, behind those, one of Duchi's two."""
    near, bit = mechanism.piecewise, mechanism.duchi
    choice, word = tossed(len(values), source), tossed(len(values), source)
    bits = leaning(threshold(bit.q), bit.rise, values, word).astype(np.uint64)
    chosen = choice < np.uint64(threshold(mechanism.share))
    return np.where(chosen, windowed(near, values, word), np.uint64(near.outputs) + bits)
