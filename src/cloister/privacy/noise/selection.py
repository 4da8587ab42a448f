"""Choose a candidate by its score, exactly: without Gumbel noise and without floats.

The exponential mechanism (McSherry & Talwar 2007), permute-and-flip (McKenna & Sheldon 2020) and report-noisy-max.
Scores are integers or fractions, one for each public candidate.
"""

from collections.abc import Iterable
from fractions import Fraction
from math import lcm
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadCandidates, BadInput
from cloister.privacy.noise import draws
from cloister.privacy.noise.bernoulli_exp import coins
from cloister.privacy.noise.laplace import discrete_laplace, geometric
from cloister.privacy.noise.source import SYSTEM, Source
from cloister.privacy.noise.uniform import uniform
from cloister.privacy.number import Number, rational

__all__ = ["exponential_choice", "noisy_max", "permute_and_flip"]

Scores = Iterable[int | Fraction] | NDArray[Any]


def exponential_choice(scores: Scores, rate: Number, source: Source | None = None) -> int:
    """Choose a candidate i with probability proportional to e^(rate · scores[i]).

    Privacy: with rate = epsilon/(2 D) for scores of sensitivity D this is epsilon-differentially private.
    """
    gaps, unit = _gaps(scores, rate)
    source = source or SYSTEM
    # Uniform candidates, each accepted with probability e^(-gap): the first accepted one has the required law.
    while True:
        tried = uniform(len(gaps), len(gaps), source)
        accepted = np.flatnonzero(coins(gaps[tried], unit, source))
        if accepted.size:
            return int(tried[accepted[0]])


def permute_and_flip(scores: Scores, rate: Number, source: Source | None = None) -> int:
    """Visit candidates in random order, flip a coin of probability e^(rate · (score - best)), return the first True.

    Privacy: with rate = epsilon/(2 D) this is epsilon-differentially private, and never worse than exponential_choice.
    """
    source = source or SYSTEM
    # Coins do not depend on the order, so the first True in a random order is uniform among all that are True; the best
    # candidate's coin is always True.
    heads = np.flatnonzero(coins(*_gaps(scores, rate), source))
    return int(heads[draws.uniform(len(heads), source)])


def noisy_max(
    scores: Scores, scale: Number, noise: Literal["laplace", "geometric"] = "laplace", source: Source | None = None
) -> int:
    """Return the candidate whose integer score is largest after noise; ties go to the lowest index.

    Privacy: with scale = 2 D/epsilon for integer scores of sensitivity D this is epsilon-differentially private;
        for monotone scores scale = D/epsilon is enough. Only the index may be released.
    """
    integers, unit = _read(scores)
    if unit != 1:
        raise BadCandidates("noisy_max needs whole scores. Put them on a grid first.")
    samplers = {"laplace": discrete_laplace, "geometric": geometric}
    if noise not in samplers:
        raise BadInput(f"noise must be 'laplace' or 'geometric', got {noise!r:.40}.")
    drawn = samplers[noise](scale, len(integers), source)
    if integers.dtype == object or drawn.dtype == object or max(_reach(integers), _reach(drawn)) >= 2**62:
        integers, drawn = integers.astype(object), drawn.astype(object)
    return int(np.argmax(integers + drawn))


def _gaps(scores: Scores, rate: Number) -> tuple[NDArray[Any], int]:
    """Return rate · (best - score) for each candidate, as integers over one common divisor."""
    (integers, unit), per_point = _read(scores), rational(rate, "rate")
    if per_point <= 0:
        raise BadInput("rate must be positive: a loss divided by a sensitivity.")
    # The 1 keeps a long rate out of int64 even if all scores are 0: an error would reveal that.
    if max(_reach(integers), 1) * per_point.numerator >= 2**61:
        integers = integers.astype(object)
    return (integers.max() - integers) * per_point.numerator, unit * per_point.denominator


def _read(scores: Scores) -> tuple[NDArray[Any], int]:
    """Return scores as integers over one common divisor: int64 if they fit, else Python integers."""
    array = np.asarray(scores if isinstance(scores, np.ndarray) else list(scores))
    if array.size == 0 or array.ndim != 1:
        raise BadCandidates("there must be a list of candidates, one score each. Take them from public knowledge.")
    if array.dtype.kind == "f":
        raise BadCandidates("scores must be integers or fractions: floats would leak. Put them on a grid first.")
    if array.dtype.kind == "i":
        return array.astype(np.int64), 1
    # Integers and fractions are not converted: `rational` limits their length, and its refusal would reveal a score.
    exact = [Fraction(score) if isinstance(score, int | Fraction) else rational(score, "score") for score in array]
    unit = lcm(*(score.denominator for score in exact))
    integers = np.empty(len(exact), dtype=object)
    integers[:] = [int(score * unit) for score in exact]
    return (integers.astype(np.int64) if _reach(integers) < 2**62 else integers), unit


def _reach(values: NDArray[Any]) -> int:
    """Return the largest absolute value."""
    return max(abs(int(values.max())), abs(int(values.min())))
