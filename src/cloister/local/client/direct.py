"""Direct encoding and randomised response, on the device. One word each."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.dyadic import threshold
from cloister.local.client.coins import Words, below, tossed
from cloister.local.client.perturb import perturbed
from cloister.local.mechanisms.direct import DirectEncoding
from cloister.local.mechanisms.response import RandomisedResponse
from cloister.privacy.noise.source import Source

__all__ = ["direct", "response"]


@perturbed.register
def direct(mechanism: DirectEncoding, values: NDArray[np.int64], source: Source) -> Words:
    """The truth, or any other value."""
    return below(mechanism.thresholds, values.astype(np.uint64), mechanism.domain, source)


@perturbed.register
def response(mechanism: RandomisedResponse, values: NDArray[np.int64], source: Source) -> Words:
    """Yes if the word is below p or q, whichever is the answer's."""
    limits = np.array([threshold(mechanism.q), threshold(mechanism.p)], dtype=np.uint64)
    return (tossed(len(values), source) < limits[values]).astype(np.uint64)
