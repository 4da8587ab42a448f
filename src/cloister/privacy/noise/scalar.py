"""One draw at a time, in Python integers of any size: the algorithms as published.

Canonne, Kamath & Steinke, "The Discrete Gaussian for Differential Privacy", 2020, algorithms 2 and 3. The arrays in
`laplace.py` and `gaussian.py` draw from the same laws, a million at a time; single draws and magnitudes beyond int64
come from here.
"""

from cloister.privacy.noise.lazy_uniform import Toss
from cloister.privacy.noise.source import Source, integer

__all__ = ["bernoulli", "bernoulli_exp", "gaussian", "geometric", "laplace", "uniform"]


def uniform(below: int, source: Source) -> int:
    """Draw uniformly from 0 … below - 1, by rejection."""
    bits = (below - 1).bit_length()
    while (drawn := integer(bits, source)) >= below:
        pass
    return drawn


def bernoulli(p: int, q: int, source: Source) -> bool:
    """Return True with probability p/q."""
    return uniform(q, source) < p


def bernoulli_exp(p: int, q: int, source: Source) -> bool:
    """Return True with probability e^(-p/q)."""
    return p == 0 or Toss(source).below_exp(p, q)


def geometric(p: int, q: int, source: Source) -> int:
    """Draw k >= 0 with probability proportional to e^(-k q/p), that is of scale p/q."""
    # X = U + p V has P(X = x) ∝ e^(-x/p): U is its remainder, V its quotient, and they are independent.
    while True:
        remainder = uniform(p, source)
        if bernoulli_exp(remainder, p, source):
            break
    toss, quotient = Toss(source), 0
    while toss.below_exp(quotient + 1, 1):
        quotient += 1
    return (remainder + p * quotient) // q


def laplace(p: int, q: int, source: Source) -> int:
    """Draw k with probability proportional to e^(-|k| q/p), that is of scale p/q."""
    while True:
        size = geometric(p, q, source)
        negative = integer(1, source)
        if size or not negative:  # zero has one sign only
            return -size if negative else size


def gaussian(p: int, q: int, source: Source) -> int:
    """Draw k with probability proportional to e^(-k²/(2 sigma²)), sigma = p/q."""
    scale, a, b = p // q + 1, p * p, q * q
    while True:
        drawn = laplace(scale, 1, source)
        if bernoulli_exp((abs(drawn) * scale * b - a) ** 2, 2 * a * b * scale * scale, source):
            return drawn
