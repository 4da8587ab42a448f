"""The k best of a public list, best first: choose repeatedly without replacement."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.privacy import noise
from cloister.privacy.errors import BadCandidates
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.chooser import Chooser
from cloister.privacy.mechanisms.exponential import weights
from cloister.privacy.mechanisms.mechanism import register
from cloister.privacy.number import Number

__all__ = ["TopK"]


@register
@dataclass(frozen=True, slots=True)
class TopK(Chooser):
    """Run k rounds of the exponential mechanism, each at epsilon/k, without candidates already chosen.

    The loss is that of all rounds together; a rho is spent at epsilon = sqrt(8 k rho), rounded down.

    Privacy: pure, and epsilon²/(8k)-zCDP: k rounds of (epsilon/k)²/8 (Durfee & Rogers 2019; Cesar & Rogers 2021).
        The list of candidates must be public. Audited exactly in tests/statistical/test_mechanisms_exact.py.
    """

    name: ClassVar[str] = "top-k"
    told: ClassVar[tuple[str, ...]] = ("sensitivity", "epsilon", "monotone", "k")

    k: int = 1

    def __post_init__(self) -> None:
        checks.count(self.k, "k")
        Chooser.__post_init__(self)

    @property
    def _curvature(self) -> int:
        return 8 * self.k

    @property
    def rate(self) -> Fraction:
        """Points of log-probability per point of score, in each round."""
        return self.epsilon / self.k / self.sensitivity / (1 if self.monotone else 2)

    def choose(self, scores: Any, source: noise.Source | None = None) -> list[int]:
        """Return the indices of k candidates, best first, at the mechanism's loss. Scores are integers or Fractions."""
        left = self._enough(scores)
        index, chosen = np.arange(len(left)), []
        for _ in range(self.k):
            position = noise.exponential_choice(left, self.rate, source)
            chosen.append(int(index[position]))
            left, index = np.delete(left, position), np.delete(index, position)
        return chosen

    def probabilities(self, scores: Any) -> dict[tuple[int, ...], float]:
        """Return the probability of each ordered choice; for short lists. As secret as the scores."""
        likely = weights(self._enough(scores), self.rate)
        chances = {}
        for chosen in permutations(range(len(likely)), self.k):
            left = [likely.sum() - likely[list(chosen[:i])].sum() for i in range(self.k)]
            chances[chosen] = float(np.prod(likely[list(chosen)] / left))
        return chances

    def _rate_within(self, error: Fraction, beta: Fraction) -> Fraction:
        return Chooser._rate_within(self, error, beta / self.k)  # every round must be within the error

    def margin(self, confidence: Number, candidates: int) -> float:
        """Return the largest gap of each chosen score to the best remaining one, with this joint confidence."""
        return Chooser.margin(self, 1 - checks.confidence_left(confidence) / self.k, candidates)

    def _enough(self, scores: Any) -> NDArray[Any]:
        exact = checks.scores_of(scores)
        if len(exact) < self.k:
            raise BadCandidates(f"{self.k} are to be chosen, and the list has {len(exact)}. Lower k or name more.")
        return exact
