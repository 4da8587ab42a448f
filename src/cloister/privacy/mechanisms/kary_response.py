"""Randomised response with several answers: the true one, or a uniform other one."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from cloister.privacy import noise
from cloister.privacy.errors import BadCandidates, BadLoss, BadProbability
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.mechanism import Pure, epsilon_of, register
from cloister.privacy.mechanisms.randomised_response import (
    Estimate,
    answers_of,
    channel_rdp,
    debiased,
    of_replacement,
)
from cloister.privacy.number import Number, exp_decimal, log_above, ratio_within, rounded_up

__all__ = ["KaryResponse"]


@register
@dataclass(frozen=True, slots=True)
class KaryResponse(Pure):
    """One of `choices` public answers, numbered from 0: the truth with probability `truth`, else a uniform other one.

    Kairouz, Oh & Viswanath 2014. With two choices it is symmetric randomised response.

    Privacy: pure, for one person's answer against another's (replace-one); participation is not hidden.
        Audited exactly in tests/statistical/test_mechanisms_exact.py.
    """

    name: ClassVar[str] = "k-ary-response"
    told: ClassVar[tuple[str, ...]] = ("choices", "truth")

    choices: int
    truth: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        if not 2 <= checks.count(self.choices, "choices") <= 2**62:  # twice as many must fit into int64
            raise BadCandidates("there must be at least two answers to choose from, and at most 2^62.")
        object.__setattr__(self, "truth", checks.probability(self.truth, "truth"))
        of_replacement(self.loss, self.name)
        if self.truth <= self.lie:
            raise BadProbability("the truth must be likelier than any other answer; otherwise answers tell nothing.")
        if not ratio_within(self.truth / self.lie, self.epsilon):
            raise BadLoss(f"these answers cost more than {self.loss}. Use KaryResponse.for_loss().")

    @classmethod
    def for_loss(cls, choices: int, loss: Loss) -> Self:  # type: ignore[override]  # an answer has no sensitivity
        """Return the mechanism with truth probability e^epsilon / (e^epsilon + choices - 1), rounded down."""
        of_replacement(loss, cls.name)
        others = checks.count(choices, "choices") - 1
        return cls(choices, 1 - rounded_up(others / (Fraction(exp_decimal(epsilon_of(loss))) + others)), loss)

    @classmethod
    def with_truth(cls, choices: int, truth: Number) -> Self:
        """Return the mechanism of a stated truth probability; epsilon = ln(truth/lie), rounded up."""
        p = checks.probability(truth, "truth")
        ratio = p * (checks.count(choices, "choices") - 1) / (1 - p)
        amount = log_above(ratio) if ratio > 1 else Fraction(1)  # the constructor will refuse it
        return cls(choices, p, Loss("epsilon", amount, relation=Relation.REPLACE_ONE))

    @property
    def lie(self) -> Fraction:
        """The probability of each answer that is not the truth."""
        return (1 - self.truth) / (self.choices - 1)

    def rdp(self, alpha: float) -> float:
        """The Rényi divergence of order alpha between the laws of two answers."""
        p, q = float(self.truth), float(self.lie)
        rest = ((self.choices - 2) * q,) if self.choices > 2 else ()
        return min(Pure.rdp(self, alpha), channel_rdp((p, q, *rest), (q, p, *rest), alpha))

    def release(self, answers: Any, source: noise.Source | None = None) -> Any:
        """Return randomised answers.

        Args:
            answers: an integer in [0, choices), or an array of them, one per person.
            source: the source of random bits; the operating system's unless given.

        Privacy: the loss of the mechanism for each person, against any observer of the answers.
        """
        truth = answers_of(answers, self.choices)
        shape = truth.shape or None
        truthful = noise.bernoulli(self.truth, shape, source)
        other = (truth + 1 + noise.uniform(self.choices - 1, shape, source)) % self.choices
        return np.where(truthful, truth, other) if truth.ndim else int(truth if truthful else other)

    def probabilities(self, answer: int) -> tuple[Fraction, ...]:
        """The exact probability of each answer."""
        return tuple(self.truth if other == answer else self.lie for other in range(self.choices))

    def estimate(self, answers: Any) -> Estimate:
        """Return the unbiased share of each answer among the people; with few people some may be below 0."""
        codes = answers_of(answers, self.choices).ravel()
        return debiased(np.bincount(codes, minlength=self.choices), codes.size, self.truth, self.lie)
