"""DP-SGD: noisy sums of clipped gradients over Poisson lots, and an optimiser (Abadi et al. 2016).

    lot ──► exact sum of clipped gradients ──► discrete Gaussian noise ──► / expected lot ──► optimiser step

Of a lot only the noisy sum is used: its number of rows, its loss and its gradients leave nothing behind. A lot larger
than a micro-lot is processed in several of the same size; an empty lot is noise. The divisor is the expected lot, which
is public.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import optax
from numpy.typing import NDArray

from cloister.learn.deep.clipping import GRID, PrivateGradient
from cloister.learn.deep.progress import Reporter
from cloister.learn.deep.rows import Lots, Rows
from cloister.privacy.accountant.banded import BandedNoise, BandedRelease
from cloister.privacy.accountant.planned import NoiseSteps, PlannedRelease

__all__ = ["Descent", "TrainState", "descend"]

_ADAPT = 0.2  # how fast an adaptive norm follows the noisy share of unclipped gradients (Andrew et al. 2021)
_QUANTILE = 0.5


@dataclass(frozen=True, slots=True)
class TrainState:
    """All that one step leaves to the next: post-processing of noisy sums.

    Attributes:
        step: steps done.
        params, optimizer: the parameters and the optimiser's state.
        average: the exponential moving average of the parameters.
        clip: the clipping norm, which adaptive clipping moves.
        lot: the expected lot, by which sums are divided; 0 while it is not known.
    """

    step: int
    params: Any
    optimizer: Any
    average: Any
    clip: float
    lot: float


@dataclass(frozen=True, slots=True)
class Descent:
    """A planned training run, made of public facts alone.

    Attributes:
        gradient: the private gradient.
        optimizer: an optax optimiser.
        release: the planned noise, and the loss.
        rate: the probability with which a unit enters a lot.
        steps: the number of lots.
        counted: True if the number of units is bought in a first step.
        averaging: the decay of the average of parameters.
    """

    gradient: PrivateGradient
    optimizer: Any
    release: PlannedRelease | BandedRelease
    rate: Fraction
    steps: int
    counted: bool
    averaging: float

    def start(self, params: Any, lot: float) -> TrainState:
        """Return the state before the first step."""
        params = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float32), params)
        return TrainState(0, params, self.optimizer.init(params), params, self.gradient.clip, lot)


def descend(
    descent: Descent,
    rows: Lots,
    state: TrainState,
    noise: NoiseSteps | BandedNoise,
    reporter: Reporter,
    keep: Callable[[TrainState], None] = lambda _state: None,
) -> TrainState:
    """Carry out the remaining steps.

    Privacy: reads rows; the caller has charged for `descent.release`. The state that it returns, and every state given
        to `keep`, is post-processing of noisy sums.
    """
    if descent.counted and not state.lot:
        # Counted in grid steps, so that noise of the same fineness covers the count.
        noisy = noise.release(np.array([rows.count() * GRID], dtype=np.int64))
        units = max(float(noisy[0]) / GRID, 1.0)
        state = replace(state, lot=units * float(descent.rate))
        keep(state)
    update = _updater(descent.optimizer, descent.averaging)
    keys: Iterator[Any] = _keys(noise)
    for lot in rows.lots(descent.rate, descent.steps - state.step, noise.source):
        noisy = noise.release(lot_sum(descent.gradient, state, lot, next(keys)))
        state = stepped(descent, state, noisy, update)
        keep(state)
        reporter.done(state.step)
    return state


def lot_sum(gradient: PrivateGradient, state: TrainState, lot: Rows, key: Any) -> NDArray[np.int64]:
    """Return the exact sum of a lot's clipped gradients. Not private."""
    return gradient.sums(state.params, lot, key, state.clip)


def stepped(descent: Descent, state: TrainState, noisy: NDArray[Any], update: Any = None) -> TrainState:
    """Return the state after one noisy sum."""
    update = update or _updater(descent.optimizer, descent.averaging)
    clip = state.clip
    if descent.gradient.clipping == "adaptive":
        share = float(noisy[-1]) / descent.gradient.bit / state.lot
        clip = float(np.clip(clip * math.exp(-_ADAPT * (min(max(share, 0.0), 1.0) - _QUANTILE)), 1e-12, 1e12))
        noisy = noisy[:-1]
    slope = descent.gradient.tree(noisy, state.params, state.clip)
    weight = 1.0 - min(descent.averaging, (state.step + 1.0) / (state.step + 10.0))
    params, optimizer, average = update(state.params, state.optimizer, state.average, slope, state.lot, weight)
    return TrainState(state.step + 1, params, optimizer, average, clip, state.lot)


@lru_cache(maxsize=32)
def _updater(optimizer: Any, averaging: float) -> Any:
    """Return the compiled update of parameters, optimiser and average; compiled once for each optimiser."""

    def update(params: Any, state: Any, average: Any, slope: Any, lot: Any, weight: Any) -> Any:
        slope = jax.tree.map(lambda leaf: leaf / lot, slope)
        changes, state = optimizer.update(slope, state, params)
        params = optax.apply_updates(params, changes)
        average = jax.tree.map(lambda old, new: old + weight * (new - old), average, params) if averaging else params
        return params, state, average

    return jax.jit(update)


def _keys(noise: NoiseSteps | BandedNoise) -> Iterator[Any]:
    """Yield a key for the augmentation of each step: no secret, since an example's own numbers decide the rest."""
    while True:
        yield jax.random.wrap_key_data(jax.numpy.asarray(np.frombuffer(noise.source.bytes(8), dtype=np.uint32)))
