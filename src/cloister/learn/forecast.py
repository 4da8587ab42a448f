"""How often a linear classifier of two classes will be right, from what its fit released anyway. Costs nothing.

The scores of a class are taken to be normal: they are sums over many features. With class shares p, mean scores m and
a common deviation s,

    accuracy = p(1) Φ(m(1) / s) + p(0) Φ(-m(0) / s)

From second moments (`of_moments`) all of it is known: m = w'μ + b and s² = w'Σw. Where w was fitted to the same noisy
means, w'(μ₁ - μ₀) is too large by what the noise contributes, which is known too and taken off.

A descent (`of_first_gradient`) has released no Σ. But its first gradient, at zero, is the sum of (1/2 - y) x̃ over rows
x̃ seen from their middle: so it holds the difference of the class sums, hence both class means; and for scores that are
honest log-odds of normal classes s² = m(1) - m(0). Clipping makes that difference a little too small, and weights that
a ridge has shrunk are too humble: the forecast then errs on the low side.

On normal classes both come within 0.02 of the truth, on the generated hospital within 0.03
(tests/unit/test_learn_forecast.py).
"""

import math
from statistics import NormalDist

import numpy as np

from cloister.learn.frame import Floats
from cloister.learn.quadratic import Moments

__all__ = ["of_first_gradient", "of_moments"]


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


def of_first_gradient(first: Floats, weights: Floats, constant: float, rows: float) -> float:
    """Accuracy from the gradient at zero, features around their middle with the constant last.

    Args:
        first: the sum of (1/2 - y) x̃.
        weights: of x̃.
        constant: the last feature.
        rows: about how many there are.
    """
    # 2 · first = Σ over class 0 - Σ over class 1. The middle makes both sums opposite, but for the constant.
    share = float(np.clip(0.5 - first[-1] / (constant * rows), 0.01, 0.99))
    apart = -float(first[:-1] @ weights[:-1])  # the sum of scores of class 1, and minus that of class 0
    shift = float(weights[-1]) * constant
    low, high = shift - apart / (rows * (1 - share)), shift + apart / (rows * share)
    return _accuracy(np.array([1 - share, share]), low, high, math.sqrt(max(high - low, 1e-6)))


def _accuracy(shares: Floats, low: float, high: float, deviation: float) -> float:
    phi = NormalDist().cdf
    return float(shares[1]) * phi(high / deviation) + float(shares[0]) * phi(-low / deviation)
