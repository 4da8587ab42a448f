"""Exact noise: samplers on integers, in reading order.

    source ──► draws                                                    one draw, Python integers, any size
                 └──► uniform, bernoulli_exp ──► laplace ──► gaussian   a million draws, int64
                                           │                └──► gaussian_tiles   many draws of one large scale
                                           └───► selection              a choice
    grid                                                                values to integers, before summing

Floats and numpy's generators are not used. Every sampler draws from exactly the law it names: integers and rational
arithmetic throughout, random bits from the operating system.
"""

from cloister.privacy.noise.bernoulli_exp import bernoulli_exp
from cloister.privacy.noise.gaussian import discrete_gaussian
from cloister.privacy.noise.grid import Grid
from cloister.privacy.noise.laplace import discrete_laplace, geometric
from cloister.privacy.noise.selection import exponential_choice, noisy_max, permute_and_flip
from cloister.privacy.noise.source import SYSTEM, SeededSource, Source, SystemSource
from cloister.privacy.noise.uniform import bernoulli, uniform

__all__ = [
    "SYSTEM",
    "Grid",
    "SeededSource",
    "Source",
    "SystemSource",
    "bernoulli",
    "bernoulli_exp",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential_choice",
    "geometric",
    "noisy_max",
    "permute_and_flip",
    "uniform",
]
