"""The base of mechanisms that choose from a public list: sensitivity, rate and error."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.mechanism import Pure
from cloister.privacy.noise import Source
from cloister.privacy.number import Number, rounded_up

__all__ = ["Chooser", "monotone_allowed"]


@dataclass(frozen=True, slots=True)
class Chooser(Pure):
    """A choice by score, at a rate of epsilon/(2 sensitivity) per point, or twice that for monotone scores.

    Scores are monotone if a neighbour moves all of them in the same direction, as one more row moves counts.

    Args:
        sensitivity: the largest change of any one score between neighbours.
        loss: a pure epsilon, or a rho.
        monotone: True if neighbours move all scores in the same direction, which doubles the rate.
    """

    told: ClassVar[tuple[str, ...]] = ("sensitivity", "epsilon", "monotone")

    sensitivity: Fraction
    loss: Loss
    monotone: bool = False

    def __post_init__(self) -> None:
        self._check()
        monotone_allowed(self.monotone, self.relation)

    @classmethod
    def within(
        cls,
        error: Number,
        confidence: Number,
        sensitivity: Number,
        *,
        candidates: int,
        relation: str | Relation = Relation.ADD_REMOVE,
        **more: Any,
    ) -> Self:
        """Return the mechanism of least loss that is proved to choose a score at most `error` below the best."""
        reference = cls.for_loss(sensitivity, Loss("epsilon", Fraction(1), relation=Relation.of(relation)), **more)
        beta = checks.confidence_left(confidence) / checks.count(candidates, "candidates")
        amount = rounded_up(reference._rate_within(checks.positive(error, "error"), beta) / reference.rate)
        return cls.for_loss(sensitivity, Loss("epsilon", amount, relation=reference.relation), **more)

    def _rate_within(self, error: Fraction, beta: Fraction) -> Fraction:
        return Fraction(-math.log(beta) * (1 + 1e-12)) / error

    def release(self, scores: Any, source: Source | None = None) -> Any:
        """Call `choose`: every mechanism has a release.

        Privacy: the loss of the mechanism.
        """
        return self.choose(scores, source)

    @abstractmethod
    def choose(self, scores: Any, source: Source | None = None) -> Any:
        """Return the index (or indices) of the chosen candidates."""

    @property
    def rate(self) -> Fraction:
        """Points of log-probability per point of score."""
        return self.epsilon / self.sensitivity / (1 if self.monotone else 2)

    def margin(self, confidence: Number, candidates: int) -> float:
        """Return the largest gap of the chosen score to the best, with this confidence: ln(candidates/beta)/rate."""
        beta = checks.confidence_left(confidence) / checks.count(candidates, "candidates")
        return -math.log(beta) / float(self.rate) * (1 + 1e-12)


def monotone_allowed(monotone: bool, relation: Relation) -> None:
    """Refuse `monotone` unless it is a bool, and True only under add/remove: replacing a row moves counts both ways."""
    if not isinstance(monotone, bool):
        raise BadInput(f"monotone must be True or False, got {monotone!r:.40}. Name the argument that you meant.")
    if monotone and relation is not Relation.ADD_REMOVE:
        raise BadInput("scores are monotone under add/remove only: replacing a row moves some up and others down.")
