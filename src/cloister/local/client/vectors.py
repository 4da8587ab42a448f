"""Several numbers, on the device: Duchi's signs for all of them, or reports on a few."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.dyadic import threshold
from cloister.local.client.coins import Bytes, tossed, uniform
from cloister.local.client.duchi import leaning
from cloister.local.client.perturb import perturbed, pieces
from cloister.local.mechanisms.duchi_vector import DuchiVector
from cloister.local.mechanisms.sampled import SampledNumbers
from cloister.privacy.noise.source import Source

__all__ = ["chosen", "duchi_vector", "sampled"]


@perturbed.register
def duchi_vector(mechanism: DuchiVector, values: NDArray[np.int64], source: Source) -> Bytes:
    """Packed bits, the first coordinate in the lowest bit of the first byte."""
    size, likely = mechanism.size, np.uint64(mechanism.likely)
    order = np.array(mechanism.agreements, dtype=np.uint32)
    p, q = (np.uint64(threshold(chance)) for chance in (mechanism.p, mechanism.q))
    rows = np.empty((len(values), mechanism.width), dtype=np.uint8)
    for piece in pieces(len(values)):
        own = values[piece]
        ones = leaning(mechanism.base, mechanism.rise, own, tossed(own.size, source).reshape(own.shape))
        signs = (ones.astype(np.uint32) << np.arange(size, dtype=np.uint32)).sum(axis=1, dtype=np.uint32)
        word = tossed(len(own), source)
        # The second quotient wraps where the first is taken, and is cut to something that the list has.
        other = np.minimum(likely + (word - likely * p) // q, np.uint64(len(order) - 1))
        agree = order[np.where(word < likely * p, word // p, other)]
        said = ~(signs ^ agree) & np.uint32(mechanism.outputs - 1)
        rows[piece] = said.astype("<u4").view(np.uint8).reshape(-1, 4)[:, : mechanism.width]
    return rows


@perturbed.register
def sampled(mechanism: SampledNumbers, values: NDArray[np.int64], source: Source) -> Bytes:
    """For each coordinate told, in rising order: two bytes with its number, then the inner report."""
    each = 2 + mechanism.inner.width
    rows = np.empty((len(values), mechanism.width), dtype=np.uint8)
    told = chosen(mechanism.size, mechanism.picked, len(values), source)
    for column in range(mechanism.picked):
        place = told[:, column]
        report = perturbed(mechanism.inner, np.take_along_axis(values, place[:, None], axis=1).ravel(), source)
        at = column * each
        rows[:, at : at + 2] = place.astype("<u2").view(np.uint8).reshape(-1, 2)
        rows[:, at + 2 : at + each] = report.astype("<u8").view(np.uint8).reshape(-1, 8)[:, : each - 2]
    return rows


def chosen(size: int, picked: int, people: int, source: Source) -> NDArray[np.int64]:
    """Sorted rows of `picked` different coordinates, every set alike. Floyd's way: Bentley & Floyd 1987.

    Of the coordinates 0 … j a uniform one is taken, or j itself if that one was taken before.
    """
    told = np.empty((people, picked), dtype=np.int64)
    for column, last in enumerate(range(size - picked, size)):
        drawn = uniform(last + 1, people, source).astype(np.int64)
        taken = (told[:, :column] == drawn[:, None]).any(axis=1)
        told[:, column] = np.where(taken, last, drawn)
    told.sort(axis=1)
    return told
