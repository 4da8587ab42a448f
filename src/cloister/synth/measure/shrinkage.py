"""Shrink noisy means and covariances of a group towards their expectation.

The cuts around a group are known, and the distribution of all rows is known well. A Gaussian of all rows, truncated by
some of its numbers, has a known mean and covariance (Lawley 1943): the expectation. Of the difference between the
group's own moments and this, each column and pair keeps the share that noise does not explain (James & Stein 1961).

Privacy: post-processing.
"""

from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
from scipy.stats import truncnorm

from cloister.synth.measure.marginals import Floats

__all__ = ["kept", "selected", "shrunk"]

_LEAST = 1e-4


def kept(far: Floats, noise: float, doubt: float = 1.0) -> Floats:
    """Shrink a distance by what noise explains: the positive part of James and Stein's estimate."""
    return np.asarray(far * max(0.0, 1 - doubt * far.size * noise**2 / max(float((far**2).sum()), 1e-12)))


def shrunk(
    mean: Floats,
    second: Floats,
    noise: tuple[float, float],
    usual: tuple[Floats, Floats],
    bounds: Sequence[tuple[float, float]],
    columns: Sequence[Sequence[int]],
) -> tuple[Floats, Floats]:
    """Return the mean and covariance of a group.

    Args:
        mean: noisy mean of the group.
        second: noisy means of products.
        noise: standard deviations of the noise on a mean and on a mean product.
        usual: mean and covariance of all rows.
        bounds: the bounds of each feature in the group.
        columns: the features of each column.
    """
    expected, covariance = selected(usual, bounds)
    centre = expected.copy()
    for column in columns:
        centre[column] += kept(mean[column] - expected[column], noise[0])
    low = np.array([max(bound, -1.0) for bound, _ in bounds])
    high = np.array([min(bound, 1.0) for _, bound in bounds])
    centre = np.clip(centre, low, high)
    observed = second - np.outer(centre, centre)
    # The noise of a mean enters a covariance twice, multiplied by the mean.
    error = float(np.sqrt(noise[1] ** 2 + 2 * noise[0] ** 2 * np.mean(centre**2)))
    for column, other in combinations_with_replacement(columns, 2):
        block = np.ix_(column, other)
        estimate = covariance[block] + kept(observed[block] - covariance[block], error)
        covariance[block] = estimate
        covariance[np.ix_(other, column)] = estimate.T
    diagonal = np.clip(np.diag(covariance), _LEAST, np.maximum((high - low) ** 2 / 4, _LEAST))
    limit = np.sqrt(np.outer(diagonal, diagonal))
    covariance = np.clip(covariance, -limit, limit)
    np.fill_diagonal(covariance, diagonal)
    return centre, covariance


def selected(usual: tuple[Floats, Floats], bounds: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    """Return the mean and covariance of a Gaussian of all rows with some numbers truncated to bounds."""
    mean, covariance = usual
    cut = [i for i, (low, high) in enumerate(bounds) if low > -1 or high <= 1]
    if not cut:
        return mean.copy(), covariance.copy()
    inside, spread = _truncated(mean[cut], np.sqrt(np.diag(covariance)[cut]), [bounds[i] for i in cut])
    before = covariance[np.ix_(cut, cut)]
    slope = np.linalg.solve(before + _LEAST * np.eye(len(cut)), covariance[cut]).T
    scale = np.sqrt(spread / np.diag(before))
    after = before * np.outer(scale, scale)
    return mean + slope @ (inside - mean[cut]), covariance - slope @ (before - after) @ slope.T


def _truncated(middle: Floats, spread: Floats, bounds: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    """Return the mean and variance of truncated Gaussian numbers."""
    low, high = (np.array(ends) for ends in zip(*bounds, strict=True))
    with np.errstate(all="ignore"):
        mean, variance = truncnorm.stats(
            (low - middle) / spread, (high - middle) / spread, middle, spread, moments="mv"
        )
    odd = ~np.isfinite(mean) | ~np.isfinite(variance) | (variance <= 0) | (mean < low) | (mean > high)
    mean = np.where(odd, (np.maximum(low, -1) + np.minimum(high, 1)) / 2, mean)
    variance = np.where(odd, np.maximum((high - low) ** 2 / 12, _LEAST), variance)
    return np.asarray(mean), np.asarray(np.maximum(variance, _LEAST))
