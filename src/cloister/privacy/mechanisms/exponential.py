"""The exponential mechanism: a candidate from a public list, more likely the better its score."""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy import noise
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.chooser import Chooser
from cloister.privacy.mechanisms.mechanism import register

__all__ = ["Exponential", "weights"]


@register
class Exponential(Chooser):
    """Choose candidate a with probability proportional to e^(rate · score(a)). McSherry & Talwar 2007.

    A rho is spent at epsilon = sqrt(8 rho), rounded down.

    Privacy: pure, and epsilon²/8-zCDP, four times better than pure privacy alone gives: the log-ratio of two output
        laws spans at most epsilon from its least to its largest (Cesar & Rogers 2021).
        The list of candidates must be public. Audited exactly in tests/statistical/test_mechanisms_exact.py.
    """

    __slots__ = ()
    name = "exponential"

    @property
    def _curvature(self) -> int:
        return 8

    def choose(self, scores: Any, source: noise.Source | None = None) -> int:
        """Return the index of a candidate, at the loss of the mechanism. Scores are integers or Fractions."""
        return noise.exponential_choice(checks.scores_of(scores), self.rate, source)

    def probabilities(self, scores: Any) -> NDArray[np.float64]:
        """Return the probability of each candidate, to double precision. As secret as the scores."""
        likely = weights(scores, self.rate)
        return np.asarray(likely / likely.sum())


def weights(scores: Any, rate: Fraction) -> NDArray[np.float64]:
    """Return e^(rate · (score - best)), for scores of any size."""
    exact = checks.scores_of(scores).astype(object)
    best = max(exact)
    return np.exp([-float(min(rate * (best - score), 10_000)) for score in exact])
