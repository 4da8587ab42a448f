"""The piecewise mechanism and the square wave, on the device: one word each."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.dyadic import threshold
from cloister.local.client.coins import Words, tossed
from cloister.local.client.perturb import perturbed
from cloister.local.mechanisms.piecewise import Piecewise
from cloister.local.mechanisms.square_wave import SquareWave
from cloister.privacy.noise.source import Source

__all__ = ["piecewise", "windowed"]


@perturbed.register
def piecewise(mechanism: Piecewise | SquareWave, values: NDArray[np.int64], source: Source) -> Words:
    """A report in the window or outside it."""
    return windowed(mechanism, values, tossed(len(values), source))


def windowed(mechanism: Piecewise | SquareWave, values: NDArray[np.int64], word: Words) -> Words:
    """The first window·P words are for the window, P a report; the others for the rest, Q a report, round the window.

    Subtractions wrap where their branch is not the one taken, and are not used there.
    """
    p, q = (np.uint64(threshold(chance)) for chance in (mechanism.p, mechanism.q))
    window, first = np.uint64(mechanism.window), values.astype(np.uint64) * np.uint64(mechanism.shift)
    rest = (word - window * p) // q
    far = rest + np.where(rest >= first, window, np.uint64(0))
    return np.where(word < window * p, first + word // p, far)
