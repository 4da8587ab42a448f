"""Noisy means and covariances of a group, drawn towards what is known without them.

A group lies between known cuts, and how all rows lie is known well: a Gaussian of all rows, cut at the group's ends,
has a mean and a variance. Where the group's own moments have little noise they win; where they have much, it does.

Privacy: post-processing.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import truncnorm

from cloister.synth.marginals import Floats

__all__ = ["shrunk"]

_LEAST = 1e-4


def shrunk(
    mean: Floats,
    second: Floats,
    noise: tuple[float, float],
    usual: tuple[Floats, Floats],
    bounds: Sequence[tuple[float, float]],
) -> tuple[Floats, Floats]:
    """The mean and covariance of a group.

    Args:
        mean: of the group, with noise.
        second: means of products, with noise.
        noise: standard deviations of the noise on a mean and on a mean product.
        usual: mean and covariance of all rows.
        bounds: between which numbers each feature lies in the group.
    """
    expected, variance = _cut(usual, bounds)
    low = np.array([max(one, -1.0) for one, _ in bounds])
    high = np.array([min(one, 1.0) for _, one in bounds])
    own = (mean * variance + expected * noise[0] ** 2) / (variance + noise[0] ** 2)
    own = np.clip(own, low, high)
    spread = np.sqrt(np.diag(usual[1]))
    scale = np.sqrt(np.outer(variance, variance))
    prior = usual[1] / np.outer(spread, spread) * scale
    seen = second - np.outer(own, own)
    # The noise of a mean enters a covariance twice, times the mean.
    error = noise[1] ** 2 + 2 * noise[0] ** 2 * float(np.mean(own**2))
    weight = scale**2 / (scale**2 + error)
    covariance = weight * seen + (1 - weight) * prior
    widest = np.maximum((high - low) ** 2 / 4, _LEAST)
    diagonal = np.clip(np.diag(covariance), _LEAST, widest)
    limit = np.sqrt(np.outer(diagonal, diagonal))
    covariance = np.clip(covariance, -limit, limit)
    np.fill_diagonal(covariance, diagonal)
    return own, covariance


def _cut(usual: tuple[Floats, Floats], bounds: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    """The mean and variance of a Gaussian of all rows between the ends of a group."""
    middle, spread = usual[0], np.sqrt(np.diag(usual[1]))
    low, high = (np.array(ends) for ends in zip(*bounds, strict=True))
    with np.errstate(all="ignore"):
        mean, variance = truncnorm.stats(
            (low - middle) / spread, (high - middle) / spread, middle, spread, moments="mv"
        )
    odd = ~np.isfinite(mean) | ~np.isfinite(variance) | (variance <= 0) | (mean < low) | (mean > high)
    mean = np.where(odd, (np.maximum(low, -1) + np.minimum(high, 1)) / 2, mean)
    variance = np.where(odd, np.maximum((high - low) ** 2 / 12, _LEAST), variance)
    return np.asarray(mean), np.asarray(np.maximum(variance, _LEAST))
