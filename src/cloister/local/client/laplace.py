"""Laplace noise on one number, on the device."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.client.coins import Words
from cloister.local.client.noise import laplace_rows
from cloister.local.client.perturb import perturbed
from cloister.local.mechanisms.laplace import LaplaceNumber
from cloister.privacy.noise.source import Source

__all__ = ["laplace"]


@perturbed.register
def laplace(mechanism: LaplaceNumber, values: NDArray[np.int64], source: Source) -> Words:
    """The grid point and noise, counted from the lowest report and cut there and at the highest.

    The sum is cut, not the noise: cut noise would end where the value says.
    """
    noisy = values + laplace_rows(mechanism.scale, len(values), 1, source).ravel() + mechanism.limit
    return np.asarray(np.clip(noisy, 0, mechanism.outputs - 1), dtype=np.uint64)
