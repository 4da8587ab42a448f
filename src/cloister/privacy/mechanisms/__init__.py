"""Mechanisms: noise with a stated privacy loss. One file each; each registers itself in `REGISTRY`.

    numbers    discrete_laplace, discrete_gaussian      integers and integer vectors
               laplace, gaussian                        reals, on a grid
    choices    exponential, permute_and_flip, noisy_max, top_k
    many       above_threshold                          queries of which few are positive
    answers    randomised_response, kary_response       given by the people themselves
    refused    wishart                                  not private

A mechanism states one loss and converts it to a pure epsilon, a rho and a Rényi curve, where they exist. It computes
the error of its noise (`margin`, `interval`) and, conversely, the loss that an error requires (`within`).
"""

import warnings
from importlib import import_module

from cloister.privacy.mechanisms.above_threshold import AboveThreshold, Watch
from cloister.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from cloister.privacy.mechanisms.discrete_laplace import DiscreteLaplace
from cloister.privacy.mechanisms.exponential import Exponential
from cloister.privacy.mechanisms.kary_response import KaryResponse
from cloister.privacy.mechanisms.mechanism import REGISTRY, Mechanism, Numeric, Sensitivity, register, same_neighbours
from cloister.privacy.mechanisms.noisy_max import NoisyMax
from cloister.privacy.mechanisms.on_grid import Gaussian, Laplace
from cloister.privacy.mechanisms.permute_and_flip import PermuteAndFlip
from cloister.privacy.mechanisms.randomised_response import Estimate, RandomisedResponse
from cloister.privacy.mechanisms.top_k import TopK
from cloister.privacy.mechanisms.wishart import wishart
from cloister.privacy.number import root_above

__all__ = [
    "REGISTRY",
    "AboveThreshold",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Estimate",
    "Exponential",
    "Gaussian",
    "KaryResponse",
    "Laplace",
    "Mechanism",
    "NoisyMax",
    "Numeric",
    "PermuteAndFlip",
    "RandomisedResponse",
    "Sensitivity",
    "TopK",
    "Watch",
    "register",
    "root_above",
    "same_neighbours",
    "wishart",
]


def __getattr__(name: str) -> object:
    """Find the textbook mechanisms under their former name, with a warning."""
    if name not in ("Staircase", "Vector"):
        raise AttributeError(f"cloister.privacy.mechanisms has no {name!r}. It offers: {', '.join(__all__)}.")
    warnings.warn(f"privacy.mechanisms.{name} is lessons.noise.{name} now.", DeprecationWarning, stacklevel=2)
    return getattr(import_module("cloister.lessons.noise"), name)
