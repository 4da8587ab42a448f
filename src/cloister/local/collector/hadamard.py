"""Hadamard response, at the collector: a fast Walsh-Hadamard transform of the counts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats
from cloister.local.collector.counts import frequencies, likelihood, tally
from cloister.local.collector.direct import chosen
from cloister.local.collector.projection import Likelihood
from cloister.local.collector.spread import Spread, coins, spread_of
from cloister.local.mechanisms.hadamard import HadamardResponse

__all__ = ["transform"]


@tally.register
def _counts(mechanism: HadamardResponse, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.bincount(data.astype(np.int64), minlength=mechanism.outputs)


@frequencies.register
def _shares(
    mechanism: HadamardResponse, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    gain = float((mechanism.inside - mechanism.outside) * (mechanism.order // 2))
    block, row = _places(mechanism)
    return chosen(_rows(mechanism, table)[block, row] / (people * gain), values)


@likelihood.register
def _likelihood(mechanism: HadamardResponse, table: NDArray[Any], people: int) -> Likelihood:
    inside, outside = float(mechanism.inside), float(mechanism.outside)
    block, row = _places(mechanism)

    def expected(shares: Floats) -> Floats:
        """A codeword is `inside` for the values of its block whose row is +1 there: (1 + sign)/2 of their shares."""
        placed = np.zeros((mechanism.blocks, mechanism.order))
        placed[block, row] = shares
        held = (placed.sum(axis=1, keepdims=True) + transform(placed)) / 2
        return np.asarray(outside * shares.sum() + (inside - outside) * held).ravel()

    def back(weights: Floats) -> Floats:
        spread = _rows(mechanism, weights)
        held = (spread[block, 0] + spread[block, row]) / 2
        return np.asarray(outside * weights.sum() + (inside - outside) * held)

    return Likelihood(table.astype(np.float64), expected, back)


def _places(mechanism: HadamardResponse) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every value's block and row, as in HadamardResponse.place."""
    values = np.arange(mechanism.domain)
    return values % mechanism.blocks, 1 + values // mechanism.blocks


def _rows(mechanism: HadamardResponse, table: NDArray[Any]) -> Floats:
    return transform(table.reshape(mechanism.blocks, mechanism.order).astype(np.float64))


def transform(table: Floats) -> Floats:
    """The Walsh-Hadamard transform of each row: sums and differences, at doubling distance."""
    rows, order = table.shape
    step = 1
    while step < order:
        pairs = table.reshape(rows, -1, 2, step)
        table = np.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), axis=2)
        step *= 2
    return np.asarray(table.reshape(rows, order))


@spread_of.register
def _spread(
    mechanism: HadamardResponse, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    """With one block, counts of support are sums of coins. With more, how many share a value's block matters too.

    A report counts +1, -1 or 0 for a value; its square is 1 if it fell into the value's block. What share of the people
    lives there is not known: the largest that fits is taken.
    """
    half, inside, outside = mechanism.order // 2, float(mechanism.inside), float(mechanism.outside)
    if mechanism.blocks == 1:
        return coins(half * inside, 0.5, len(shares), n)
    gain, here, elsewhere = half * (inside - outside), half * (inside + outside), 2 * half * outside
    held = table.reshape(mechanism.blocks, mechanism.order).sum(axis=1)
    block = coins(here, elsewhere, mechanism.blocks, n)
    mass = np.clip(block.interval((held / n - elsewhere) / (here - elsewhere), "0.95")[1], 0.0, 1.0)
    mine = mass[(np.arange(mechanism.domain) if values is None else values) % mechanism.blocks]
    flat = (mine * here + (1 - mine) * elsewhere) / (n * gain**2)
    return Spread(n, flat, np.full(len(shares), -1 / n), np.full(len(shares), 1 / (n * gain)))
