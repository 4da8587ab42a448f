"""Report-noisy-max: add noise to every score, release only the index of the largest."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.chooser import Chooser
from cloister.privacy.mechanisms.discrete_laplace import laplace_at, laplace_at_least, laplace_beyond, laplace_rate
from cloister.privacy.mechanisms.mechanism import register
from cloister.privacy.noise import Source, noisy_max
from cloister.privacy.number import Number, short_above

__all__ = ["NoisyMax"]


@register
@dataclass(frozen=True, slots=True)
class NoisyMax(Chooser):
    """The candidate whose integer score is largest after noise of scale 1/rate; ties go to the lower index.

    Dwork & Roth 2014, section 3.3, on integers: a shift by `sensitivity` steps changes Pr[noise >= t] by at most
    e^(sensitivity/scale), and a fixed rule for ties is part of t. Sensitivity and scores are whole numbers.

    Args:
        noise: "laplace", or "geometric": one-sided, and never worse.

    Privacy: pure. Only the index may be released. The list of candidates must be public.
        Audited exactly in tests/statistical/test_mechanisms_exact.py.
    """

    name: ClassVar[str] = "noisy-max"
    told: ClassVar[tuple[str, ...]] = ("sensitivity", "epsilon", "monotone", "noise", "scale")

    noise: Literal["laplace", "geometric"] = "laplace"

    def __post_init__(self) -> None:
        Chooser.__post_init__(self)
        checks.whole(self.sensitivity, "sensitivity")
        if self.noise not in _LAWS:
            raise BadInput(f"noise must be 'laplace' or 'geometric', got {self.noise!r:.40}.")

    @property
    def scale(self) -> Fraction:
        """Scale of the noise on every score."""
        return short_above(1 / self.rate)

    def choose(self, scores: Any, source: Source | None = None) -> int:
        """Return the index of a candidate, at the loss of the mechanism. Scores are integers."""
        return noisy_max(checks.scores_of(scores, whole_only=True), self.scale, self.noise, source)

    def probabilities(self, scores: Any) -> NDArray[np.float64]:
        """Return the probability of each candidate, by summation to about 1e-12. As secret as the scores."""
        exact = [int(score) for score in checks.scores_of(scores, whole_only=True)]
        (at, below), scale = _LAWS[self.noise], float(self.scale)
        reach = math.ceil(40 * scale) + 40
        marks = np.arange(-2 * reach, reach) + max(exact)  # the range of the winning noisy score
        chances = []
        for i, score in enumerate(exact):
            # Those before i must stay below the mark, those after it may tie.
            lost = [below(marks - other + (j > i), scale) for j, other in enumerate(exact) if j != i]
            chances.append((at(marks - score, scale) * np.prod(lost, axis=0)).sum())
        return np.array(chances)

    def _rate_within(self, error: Fraction, beta: Fraction) -> Fraction:
        if self.noise == "geometric":
            return Chooser._rate_within(self, error, beta)
        return Fraction(laplace_rate(int(error / 2), beta / 2))

    def margin(self, confidence: Number, candidates: int) -> float:
        """Return the largest gap of the chosen score to the best, with this confidence."""
        if self.noise == "geometric":  # the winner's noise is at most the largest of all
            return Chooser.margin(self, confidence, candidates)
        beta = checks.confidence_left(confidence) / checks.count(candidates, "candidates")
        return 2 * laplace_beyond(self.scale, beta / 2)


def _laplace_below(k: NDArray[Any], scale: float) -> NDArray[np.float64]:
    return laplace_at_least(1 - k, scale)


def _geometric_at(k: NDArray[Any], scale: float) -> NDArray[np.float64]:
    return np.where(k < 0, 0.0, -math.expm1(-1 / scale) * np.exp(-np.maximum(k, 0) / scale))


def _geometric_below(k: NDArray[Any], scale: float) -> NDArray[np.float64]:
    return np.asarray(-np.expm1(-np.maximum(k, 0) / scale))


# Pr[noise = k] and Pr[noise < k].
_LAWS = {"laplace": (laplace_at, _laplace_below), "geometric": (_geometric_at, _geometric_below)}
