"""Lower bound on the epsilon of sampled Gaussian steps: how far the charged upper bound can be from the truth.

Let H(x) be the hockey-stick divergence of one step at x = e^epsilon: convex, falling, H(0) = 1. An accountant replaces
H by a function with kinks on a grid of epsilons, composes, and reads epsilon off the result. Composition is monotone:
with any other pair of measures (p, q) it gives the integral of p H(x q/p), which is larger where H is larger. So a
function above H gives an upper bound (chords of H: Doroshenko et al. 2022, "Connect the Dots"), and one below H a lower
bound:

    v_i = H(x_i) - the largest distance of chord and curve in the two cells beside x_i

A convex curve is above the continuation of the chords of both neighbouring cells, which bounds that distance from the
values of H alone. The chords of v are then below H; their lower convex hull is the divergence of a pair of measures
with atoms on the grid. All roundings of the arithmetic are taken off (_SLACK).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.accountant.events import GaussianStep
from cloister.privacy.accountant.pld import convolution_error, pld_library

__all__ = ["lower_epsilon"]

Floats = NDArray[np.float64]

_SLACK = 1e-15  # on each value of a divergence


def lower_epsilon(steps: Sequence[tuple[GaussianStep, int]], delta: float, interval: float) -> float:
    """Return an epsilon that the composed steps exceed at this delta, for the worst neighbours; 0 if none is found.

    Args:
        steps: steps of normal noise, and how often each occurs.
        delta: a delta; whatever else is added to it for the noise that is drawn must be in it.
        interval: the grid of epsilons.
    """
    pld = pld_library()
    best, error = 0.0, convolution_error(sum(times for _, times in steps))
    for direction in (pld.privacy_loss_mechanism.AdjacencyType.REMOVE, pld.privacy_loss_mechanism.AdjacencyType.ADD):
        composed: Any = None
        for step, times in steps:
            with np.errstate(over="ignore"):
                one = _below(pld, step, direction, interval).self_compose(times)
                composed = one if composed is None else composed.compose(one)
        best = max(best, float(composed.get_epsilon_for_delta(delta + error)))
    return best * (1 - 1e-9)


def _below(pld: Any, step: GaussianStep, direction: Any, interval: float) -> Any:
    """Return a privacy loss distribution on the grid whose divergence is nowhere above that of the step."""
    # The other way round than for an upper bound: slightly more noise, slightly smaller samples.
    sigma = math.nextafter(float(step.sigma), math.inf)
    rate = math.nextafter(float(step.rate), 0.0) if step.rate < 1 else 1.0
    loss = pld.privacy_loss_mechanism.GaussianPrivacyLoss(sigma, sampling_prob=rate, adjacency_type=direction)
    ends = loss.connect_dots_bounds()
    first, last = math.floor(ends.epsilon_lower / interval), math.ceil(ends.epsilon_upper / interval)
    grid = np.arange(first, last + 1)
    x = np.exp(grid * interval)
    curve = np.asarray(loss.get_delta_for_epsilon(grid * interval), dtype=np.float64)
    lower = np.maximum(curve - _gaps(x, curve) - _SLACK, 0.0)
    lower[-1] = 0.0
    atoms, masses = _hull(np.concatenate([[0.0], x]), np.concatenate([[1.0], lower]))
    probabilities = np.zeros(len(grid))
    probabilities[atoms - 1] = masses
    return pld.pld_pmf.DensePLDPmf(interval, first, probabilities, 0.0, False)


def _gaps(x: Floats, curve: Floats) -> Floats:
    """Return for each point the largest distance of chord and curve in the cells beside it, or more."""
    slopes = np.diff(curve) / np.diff(x)
    before, after = np.concatenate([[-1.0], slopes[:-1]]), np.concatenate([slopes[1:], [0.0]])
    # The two continuations meet at distance t of the cell's left end; there the chord is t (slope - before) above.
    widths, left, right = np.diff(x), np.maximum(slopes - before, 0.0), np.maximum(after - slopes, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        cells = np.where(left + right > 0, widths * left * right / (left + right), 0.0)
    return np.asarray(np.maximum(np.concatenate([[0.0], cells]), np.concatenate([cells, [0.0]])))


def _hull(x: Floats, y: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the kinks of the lower convex hull right of the first point, and x times the change of slope there."""
    kept: list[int] = []
    xs, ys = x.tolist(), y.tolist()
    for i in range(len(xs)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (ys[b] - ys[a]) * (xs[i] - xs[b]) < (ys[i] - ys[b]) * (xs[b] - xs[a]):
                break
            kept.pop()
        kept.append(i)
    corners = np.array(kept)
    slopes = np.concatenate([np.diff(y[corners]) / np.diff(x[corners]), [0.0]])
    inner = corners[1:]
    return inner, np.asarray(x[inner] * np.maximum(np.diff(slopes), 0.0))
