"""Margins of weighted sums of integer noise, valid at every confidence and for every scale of the noise.

A standard deviation says little about a tail: noise that is mostly zero has a small deviation and a heavy tail. So
margins come from the law itself. Three bounds hold always, and the least is taken: a union bound over the terms,
Chernoff's bound with the exact moment generating function (for the discrete Gaussian, that of its sigma: Canonne,
Kamath & Steinke 2020), and, unless the tail is very rare, the law of the sum computed on a grid, with all noise rounded
up to it.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace
from cloister.privacy.mechanisms.discrete_gaussian import gaussian_at_least
from cloister.privacy.mechanisms.discrete_laplace import laplace_at_least

__all__ = ["margins"]

Floats = NDArray[np.float64]
_MOST_POINTS = 2**15  # of the grid on each side of zero
_FINE = 128  # points of the grid for each sigma or scale, at least
_RARE = Fraction(1, 10**6)  # the law on a grid is exact to about 1e-12: rarer tails come from the other bounds
_WRAPPED = Fraction(1, 10**10)  # most probability beyond the grid
_ALLOWANCE = 2e-10  # what is beyond the grid, and rounding in the Fourier transforms
_TRIED = np.linspace(0.002, 0.998, 499)  # points at which Chernoff's bound is tried: it holds at each


def margins(mechanism: Any, weights: Sequence[float], counts: NDArray[np.int64], beta: Fraction) -> Floats:
    """Return, for each row of counts, a bound that the sum of independent noise exceeds with probability at most beta.

    Args:
        mechanism: the noise of one number.
        weights: not negative. The law is symmetric, so a sign does not matter.
        counts: how many terms have each weight; one column for each.
        beta: at most 1/2.
    """
    rows, inverse = np.unique(counts, axis=0, return_inverse=True)
    return _margins(mechanism, tuple(weights), tuple(map(tuple, rows.tolist())), Fraction(beta))[inverse.ravel()]


@lru_cache(16)  # a plan is tried before it is charged, and several quantiles share a tree
def _margins(mechanism: Any, weights: tuple[float, ...], counts: tuple[tuple[int, ...], ...], beta: Fraction) -> Floats:
    size, numbers = np.array(weights), np.array(counts, dtype=np.float64)
    best = np.minimum(_union(mechanism, size, numbers, beta), _chernoff(mechanism, size, numbers, beta))
    if beta >= _RARE:
        best = np.minimum(best, _on_grid(mechanism, size, numbers, beta))
    best.setflags(write=False)
    return best


def _union(mechanism: Any, weights: Floats, counts: Floats, beta: Fraction) -> Floats:
    """Bound each term with its share of beta."""
    terms = counts.sum(axis=1)
    each = {n: float(mechanism.beyond(beta / int(n))) for n in set(terms.tolist()) if n}
    return np.asarray((counts @ weights) * np.array([each.get(n, 0.0) for n in terms.tolist()]))


def _chernoff(mechanism: Any, weights: Floats, counts: Floats, beta: Fraction) -> Floats:
    """Bound the moment generating function: Pr[S >= x] <= E e^(tS) / e^(tx) for every t > 0."""
    rare = math.log(1 / beta)
    if isinstance(mechanism, DiscreteGaussian):
        return np.asarray(float(mechanism.sigma) * np.sqrt(2 * rare * (counts @ weights**2)) * (1 + 1e-12))
    assert isinstance(mechanism, DiscreteLaplace)
    # E e^(tX) = (1-q)² / ((1 - q e^t)(1 - q e^-t)), q = e^(-1/scale), finite for t below 1/scale.
    x, most = float(1 / mechanism.scale), weights.max(initial=0.0)
    if not most:
        return np.zeros(len(counts))
    share = _TRIED[:, None] * (weights / most)[None, :]
    logs = 2 * math.log(-math.expm1(-x)) - np.log(-np.expm1(-(1 - share) * x)) - np.log(-np.expm1(-(1 + share) * x))
    bounds = (counts @ np.maximum(logs, 0).T + rare) / (_TRIED / most * x)
    return np.asarray(bounds.min(axis=1) * (1 + 1e-9))


def _on_grid(mechanism: Any, weights: Floats, counts: Floats, beta: Fraction) -> Floats:
    """Compute the law of the sum with every term rounded up to a multiple of a power of two.

    Fourier transforms on a circle: what is beyond the grid comes back at its other end. It is less than allowed for, or
    the answer is infinite.
    """
    scale = float(mechanism.sigma if isinstance(mechanism, DiscreteGaussian) else mechanism.scale)
    step = 2.0 ** math.floor(math.log2(max(scale, 1.0) / _FINE))
    allowed = float(beta) * (1 - 1e-12) - _ALLOWANCE
    far = _chernoff(mechanism, weights, counts, _WRAPPED) / step + counts.sum(axis=1) + 1  # in points
    half = min(2 ** math.ceil(math.log2(max(far.max(initial=1.0), 64 * max(scale, 1.0) / step))), _MOST_POINTS)
    powers = [_powers(mechanism, weight, step, int(counts.max(initial=0)), half) for weight in weights]
    answers = np.full(len(counts), np.inf)
    for i in np.flatnonzero(far <= half):
        law = np.ones(half + 1, dtype=np.complex128)
        for some, count in zip(powers, counts[i].astype(int), strict=True):
            law = law * some[count]
        mass = np.fft.fftshift(np.fft.irfft(law, 2 * half))
        beyond = np.cumsum(mass[::-1])[::-1]  # from each point on
        answers[i] = (int(np.flatnonzero(beyond > allowed)[-1]) - half) * step
    return np.asarray(np.maximum(answers, 0.0))


def _powers(mechanism: Any, weight: float, step: float, most: int, half: int) -> list[NDArray[np.complex128]]:
    """Return the transform of the law of weight · noise, rounded up to multiples of the step, to all powers."""
    if not weight:
        return [np.ones(half + 1, dtype=np.complex128)] * (most + 1)
    # Rounded up it is j or more where weight · noise > (j - 1) step: from this integer on.
    first = np.floor(np.arange(-half - 1, half) * step / weight) + 1
    at_least = gaussian_at_least if isinstance(mechanism, DiscreteGaussian) else laplace_at_least
    scale = float(mechanism.sigma if isinstance(mechanism, DiscreteGaussian) else mechanism.scale)
    tail = at_least(first, scale)
    tail[0] = 1.0
    transform = np.fft.rfft(np.fft.ifftshift(tail[:-1] - tail[1:]))
    powers = [np.ones_like(transform)]
    for _ in range(most):
        powers.append(powers[-1] * transform)
    return powers
