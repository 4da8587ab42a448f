"""How often a linear classifier will be right on rows like those it learned from.

`counted` asks the rows: for a fortieth of the spend, the number that the finished model gets right, and the number that
it gets wrong, with noise. These are the rows it was fitted to, so it may owe some of them to having followed them. With
p coefficients and n rows that is at most about sqrt(2 p / (π n)) of all rows, however the half-space was chosen: the
best of all half-spaces is right on so many more than half of normal rows with labels at random (Gardner & Derrida
1988), and labels that can be learned vary less and leave less to follow. So much is taken off the lower end of the
interval, beside noise and the chance of rows. Where that leaves nothing to say, nothing is said. The number itself is
corrected by what a fit without noise gains (`_corrected`). Coverage is measured in tests/unit/test_learn_forecast.py,
for labels at random too.

Inside an engine (`of_moments`) accuracy follows from released second moments, and costs nothing. The scores of a class
are taken to be normal: they are sums over many features. With class shares p, mean scores m = w'μ + b and a common
deviation s² = w'Σw,

    accuracy = p(1) Φ(m(1) / s) + p(0) Φ(-m(0) / s)

Where w was fitted to the same noisy means, w'(μ₁ - μ₀) is too large by what the noise and the rows' own chance
contribute, which are known too and taken off (`quadratic.optimism`). On the generated hospital it comes within 0.03 of
the truth.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from cloister.learn.exact import Integers
from cloister.learn.frame import Floats
from cloister.learn.quadratic import Moments
from cloister.privacy.loss import Loss
from cloister.privacy.meter import Meter
from cloister.privacy.purse import law

__all__ = ["CHECK", "Forecast", "counted", "of_moments"]

CHECK = Fraction(1, 40)  # of the spend
_LEAST_ROWS = 4.0  # times the noise on a count
_WIDEST = 0.2  # a wider margin says nothing


@dataclass(frozen=True, slots=True)
class Forecast:
    """An accuracy to expect, with an interval of 95 %."""

    accuracy: float
    low: float
    high: float


def of_moments(found: Moments, weights: Floats, shift: float, optimism: float = 0.0) -> float:
    """Accuracy from released moments of two classes.

    Args:
        found: the moments.
        weights, shift: the score of a row x is weights·x + shift.
        optimism: how far noise in the means alone moves the classes' mean scores apart, if the weights follow it.
    """
    means = np.clip(found.sums / found.counts[:, None], -1.0, 1.0)
    within = found.products - (means.T * found.counts) @ means
    total = float(found.counts.sum())
    # A variance is not below what the noise leaves of it: the mean of its square over directions.
    least = float(weights @ weights) * found.product_noise / total
    variance = max(float(weights @ within @ weights) / total, least, 1e-12)
    scores = means @ weights + shift
    middle, half = float(scores.mean()), max(float(scores[1] - scores[0]) - optimism, 0.0) / 2
    return _accuracy(found.counts / total, middle - half, middle + half, math.sqrt(variance))


def counted(meter: Meter, loss: Loss, look: Callable[[], NDArray[np.bool_]], parameters: int) -> Forecast | None:
    """Accuracy from a noisy count of rows that the model gets right, and of those it does not.

    Args:
        meter, loss: pay.
        look: gives whether the model is right about each row; call it inside a step.
        parameters: how many numbers were fitted.

    Privacy: the loss: a row is in one of two counts, by itself and the released model.
    """
    noise = law(1, 1, loss)

    def both() -> Integers:
        right = look()
        return np.array([int(right.sum()), int((~right).sum())], dtype=np.int64)

    right, wrong = (float(one) for one in meter.release(both, noise))
    rows = right + wrong
    if rows < _LEAST_ROWS * noise.standard_error:
        return None
    share = min(max(right / rows, 0.0), 1.0)
    hidden = noise.standard_error * math.hypot(share, 1 - share) / rows
    # Where all rows seem right the chance of rows is not none: at least that of a row or two.
    spread = max(share * (1 - share), 1 / rows)
    margin = NormalDist().inv_cdf(0.975) * math.sqrt(hidden**2 + 2 * spread / rows)
    owed = math.sqrt(2 * parameters / (math.pi * rows))
    if margin + owed / 2 > _WIDEST:  # half of the interval's width
        return None
    low, high = max(share - margin - owed, 0.0), min(share + margin, 1.0)
    return Forecast(min(max(_corrected(share, parameters / rows), low), high), low, high)


def _corrected(share: float, each: float) -> float:
    """The accuracy on new rows, from that on its own rows, of a fit with so many coefficients for each row.

    With normal scores a fit without noise is right on Φ(t) of its own rows and on Φ(t - each / t) of new ones, and on
    no fewer than by chance. With noise it follows its rows less, so that this is rather too low.
    """
    if share <= 0.5 or share >= 1:
        return share
    normal = NormalDist()
    away = normal.inv_cdf(share)
    return max(normal.cdf(away - each / away), 0.5)


def _accuracy(shares: Floats, low: float, high: float, deviation: float) -> float:
    phi = NormalDist().cdf
    return float(shares[1]) * phi(high / deviation) + float(shares[0]) * phi(-low / deviation)
