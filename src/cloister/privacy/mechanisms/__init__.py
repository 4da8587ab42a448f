"""Mechanisms: how noise becomes a promise. One file each; each enters itself into `REGISTRY`.

    numbers    discrete_laplace, discrete_gaussian      integers and integer vectors
               laplace, gaussian                        reals, on a grid
    choices    exponential, permute_and_flip, noisy_max, top_k
    many       above_threshold                          questions of which few are positive
    answers    randomised_response, kary_response       given by the people themselves
    textbook   vector, staircase                        float noise: for lessons, refused by every ledger
    refused    wishart                                  not private

A mechanism states one loss and reads it as pure epsilon, as rho and as a Rényi curve, wherever it has them; it knows
the error of its noise (`margin`, `interval`) and, the other way round, the loss that an error needs (`within`).
"""

from cloister.privacy.mechanisms.above_threshold import AboveThreshold, Watch
from cloister.privacy.mechanisms.additive import Numeric
from cloister.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from cloister.privacy.mechanisms.discrete_laplace import DiscreteLaplace
from cloister.privacy.mechanisms.exponential import Exponential
from cloister.privacy.mechanisms.gaussian import Gaussian
from cloister.privacy.mechanisms.kary_response import KaryResponse
from cloister.privacy.mechanisms.laplace import Laplace
from cloister.privacy.mechanisms.mechanism import REGISTRY, Mechanism, register
from cloister.privacy.mechanisms.noisy_max import NoisyMax
from cloister.privacy.mechanisms.permute_and_flip import PermuteAndFlip
from cloister.privacy.mechanisms.randomised_response import Estimate, RandomisedResponse
from cloister.privacy.mechanisms.rounding import root_above
from cloister.privacy.mechanisms.sensitivity import Sensitivity, same_neighbours
from cloister.privacy.mechanisms.staircase import Staircase
from cloister.privacy.mechanisms.top_k import TopK
from cloister.privacy.mechanisms.vector import Vector
from cloister.privacy.mechanisms.wishart import wishart

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
    "Staircase",
    "TopK",
    "Vector",
    "Watch",
    "register",
    "root_above",
    "same_neighbours",
    "wishart",
]
