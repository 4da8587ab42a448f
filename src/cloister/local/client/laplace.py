"""Laplace noise on one number, on the device."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.client.coins import Words
from cloister.local.client.perturb import perturbed
from cloister.local.oracles.laplace import LaplaceNumber
from cloister.privacy.noise import discrete_laplace
from cloister.privacy.noise.source import Source

__all__ = ["laplace"]


@perturbed.register
def laplace(mechanism: LaplaceNumber, values: NDArray[np.int64], source: Source) -> Words:
    """The grid point and noise, cut at the limit, counted from the lowest report. The noise knows nothing of values."""
    noise = np.clip(discrete_laplace(mechanism.scale, len(values), source), -mechanism.limit, mechanism.limit)
    return np.asarray(values + noise.astype(np.int64) + mechanism.limit, dtype=np.uint64)
