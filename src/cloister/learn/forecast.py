"""How often a linear classifier will be right on rows like those it learned from.

`counted` asks the rows: for a fortieth of the spend, the number that the finished model gets right, and the number that
it gets wrong, with noise. Its interval has the noise in it, the chance of the rows, and what a model that followed its
own rows too closely may owe to them: half a row for every coefficient. Where the noise leaves nothing to say, nothing
is said. Coverage on small tables is measured in tests/unit/test_learn_forecast.py.

Inside an engine (`of_moments`) accuracy follows from released second moments, and costs nothing. The scores of a class
are taken to be normal: they are sums over many features. With class shares p, mean scores m = w'μ + b and a common
deviation s² = w'Σw,

    accuracy = p(1) Φ(m(1) / s) + p(0) Φ(-m(0) / s)

Where w was fitted to the same noisy means, w'(μ₁ - μ₀) is too large by what the noise contributes, which is known too
and taken off. On the generated hospital it comes within 0.03 of the truth.
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
    if margin > _WIDEST:
        return None
    return Forecast(share, max(share - margin - parameters / (2 * rows), 0.0), min(share + margin, 1.0))


def _accuracy(shares: Floats, low: float, high: float, deviation: float) -> float:
    phi = NormalDist().cdf
    return float(shares[1]) * phi(high / deviation) + float(shares[0]) * phi(-low / deviation)
