"""Ratios of two noisy numbers, such as a share "of those who smoke", with a valid interval."""

from dataclasses import dataclass

import numpy as np

from cloister.local.base.oracle import Floats

__all__ = ["Ratio", "ratio"]

# Below this many standard errors a denominator is compatible with 0, and a ratio is unbounded.
_LEAST = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Ratio:
    """Ratios with their errors; all are NaN where there are too few people.

    Attributes:
        value: numerator over denominator, raw.
        standard_error: by the delta method.
        low, high: Fieller's interval.
    """

    value: Floats
    standard_error: Floats
    low: Floats
    high: Floats

    @property
    def told(self) -> Floats:
        """True where there are enough people."""
        return ~np.isnan(self.value)


def ratio(top: Floats, bottom: Floats, top_variance: Floats, both: Floats, bottom_variance: Floats, z: float) -> Ratio:
    """Return ratios of means with known variances and covariance.

    Fieller's interval holds every r for which top - r·bottom is within z of its own standard errors from 0. That
    difference is a mean, which is close to normal where the ratio itself is not, so the interval keeps its confidence
    also with a noisy denominator. It is finite only if the denominator is more than z standard errors away from 0.

    Args:
        top: numerators.
        bottom: denominators, which must be positive to mean anything.
        top_variance: of the numerators.
        both: covariances of numerator and denominator.
        bottom_variance: of the denominators.
        z: the normal quantile of the confidence.
    """
    top, bottom, top_variance, both, bottom_variance = np.broadcast_arrays(
        top, bottom, top_variance, both, bottom_variance
    )
    enough = bottom > max(_LEAST, z) * np.sqrt(np.maximum(bottom_variance, 0))
    enough &= bottom > 0
    under = np.where(enough, bottom, 1.0)
    value = top / under
    error = np.sqrt(np.maximum(top_variance - 2 * value * both + value**2 * bottom_variance, 0)) / under
    a = under**2 - z * z * bottom_variance
    b = top * under - z * z * both
    c = top**2 - z * z * top_variance
    a = np.where(enough, a, 1.0)
    reach = np.sqrt(np.maximum(b * b - a * c, 0))
    low, high = (b - reach) / a, (b + reach) / a
    return Ratio(*(np.where(enough, array, np.nan) for array in (value, error, low, high)))
