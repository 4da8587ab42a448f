"""Directions of most variance, from a noisy scatter matrix or by noisy rounds of the power method."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from cloister.learn.exact import ROW_BITS, WEIGHT_BITS, ExactRows, noisy
from cloister.learn.frame import shorten
from cloister.learn.moments import Floats
from cloister.learn.purse import Purse
from cloister.privacy.meter import Meter

__all__ = ["CELLS", "Components", "main_directions", "power", "signed"]

_ROUNDS = 4
CELLS = 2**ROW_BITS
_BASIS_BITS = 36


@dataclass(frozen=True, slots=True)
class Components:
    """Released components, in the units of the data."""

    components: Floats
    variance: Floats
    total: float
    mean: Floats
    rows: float


def main_directions(
    scatter: Floats, noise: float, rows: float, mean: Floats, scale: Floats | float, count: int
) -> Components:
    """Eigenvectors of a noisy scatter matrix, and its eigenvalues without what the noise adds to them.

    A spike λ in symmetric noise of deviation s appears at λ + s²d/λ, if it is above s√d at all (Benaych-Georges &
    Nadakuditi 2011); that is undone here.
    """
    values, vectors = np.linalg.eigh(scatter)
    order = np.argsort(values)[::-1][:count]
    edge = 4 * noise**2 * len(values)
    found = values[order]
    spikes = np.where(found**2 > edge, (found + np.sqrt(np.maximum(found**2 - edge, 0.0))) / 2, 0.0)
    spikes = np.where(found > 0, spikes, 0.0)
    width = float(np.max(1 / np.asarray(scale))) ** 2
    freedom = max(rows - 1, 1.0)
    total = max(float(np.trace(scatter)), float(spikes.sum())) / freedom * width
    return Components(signed(vectors[:, order].T), spikes / freedom * width, total, mean, rows)


def power(
    meter: Meter, budget: Purse, look: Callable[[], Floats], features: int, count: int, start: Floats
) -> tuple[Floats, Floats]:
    """A few rounds of Q ← orthonormal(X'XQ + noise).

    A row x adds x (x'Q): of length |x| |x'Q| ≤ |x|², since Q is orthonormal. Both factors are integers here.
    """
    basis, loss = start, budget.part(Fraction(1, _ROUNDS))
    product = start
    for _ in range(_ROUNDS):

        def turned(basis: Floats = basis) -> Any:
            cells = look()
            # On a grid, so that every sum is a whole number below 2^53: else a matrix product may round one row's
            # numbers by which rows stand beside it.
            seen = (cells @ np.rint(basis * 2.0**_BASIS_BITS)) / 2.0**_BASIS_BITS
            weights = shorten(np.trunc(seen * (2.0**WEIGHT_BITS / CELLS)), 2**WEIGHT_BITS) / 2**WEIGHT_BITS
            return ExactRows(cells, 1.0, CELLS).weighted(weights)

        reach = CELLS * 2**WEIGHT_BITS
        if budget.pure:  # L1: both factors over all their coordinates
            reach *= math.isqrt(features * count) + 1
        product = noisy(meter, turned, reach, loss).T * (CELLS / 2.0**WEIGHT_BITS)
        basis = np.linalg.qr(product)[0]
    left, values, _ = np.linalg.svd(product, full_matrices=False)
    return signed(left.T), values


def signed(components: Floats) -> Floats:
    """The largest entry of every direction is positive, so that signs do not wander."""
    largest = np.abs(components).argmax(axis=1)
    return np.asarray(components * np.sign(components[np.arange(len(components)), largest])[:, None])
