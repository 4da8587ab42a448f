"""Permute-and-flip: the guarantee of the exponential mechanism, never with a worse choice."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy import noise
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.chooser import Chooser
from cloister.privacy.mechanisms.exponential import weights
from cloister.privacy.mechanisms.mechanism import register

__all__ = ["PermuteAndFlip"]


@register
class PermuteAndFlip(Chooser):
    """Visit candidates in random order and take the first whose coin of e^(rate · (score - best)) shows heads.

    McKenna & Sheldon 2020. It has the law of report-noisy-max with exponential noise (Ding et al. 2021), hence the same
    proof, for monotone scores too. A rho is spent at epsilon = sqrt(2 rho): the better bound of `Exponential` does not
    hold here.

    Privacy: pure. The list of candidates must be public. Audited exactly in tests/statistical/test_mechanisms_exact.py.
    """

    __slots__ = ()
    name = "permute-and-flip"

    def choose(self, scores: Any, source: noise.Source | None = None) -> int:
        """Return the index of a candidate, at the loss of the mechanism. Scores are integers or Fractions."""
        return noise.permute_and_flip(checks.scores_of(scores), self.rate, source)

    def probabilities(self, scores: Any) -> NDArray[np.float64]:
        """Return the probability of each candidate, to double precision. As secret as the scores.

        Give every candidate a uniform arrival time. One arriving at t with heads p wins if none of the others came
        earlier with heads: p times the integral of the product of (1 - t p'). Gauss's rule of k/2 points is exact.
        """
        heads = weights(scores, self.rate)
        nodes, shares = np.polynomial.legendre.leggauss(len(heads) // 2 + 1)
        unbeaten = 1 - np.outer((nodes + 1) / 2, heads)
        chances = [p * (shares @ np.delete(unbeaten, i, axis=1).prod(axis=1)) / 2 for i, p in enumerate(heads)]
        return np.array(chances)
