"""Histogram encoding with summation, on the device: discrete Laplace noise on every component."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.client.noise import laplace_rows
from cloister.local.client.perturb import perturbed
from cloister.local.mechanisms.histogram import HistogramEncoding
from cloister.privacy.noise.source import Source

__all__ = ["histogram"]


@perturbed.register
def histogram(mechanism: HistogramEncoding, values: NDArray[np.int64], source: Source) -> NDArray[np.int32]:
    """One row of integers a person, cut at the limit: a draw a component, from the first to the last."""
    noisy = np.empty((len(values), mechanism.domain), dtype=np.int32)
    for row in range(0, len(values), 64):
        own = values[row : row + 64]
        drawn = laplace_rows(mechanism.scale, len(own), mechanism.domain, source)
        drawn[np.arange(len(own)), own] += 1
        noisy[row : row + 64] = np.clip(drawn, -mechanism.limit, mechanism.limit)
    return noisy
