"""Randomised response: a yes-or-no answer, randomised by the person who gives it."""

import math
from dataclasses import dataclass
from decimal import localcontext
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cloister.privacy import noise
from cloister.privacy.errors import BadCandidates, BadLoss, BadProbability, RelationMismatch
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.mechanism import Pure, epsilon_of, register
from cloister.privacy.number import DIGITS, Number, exp_decimal, log_above, ratio_within, rounded_up

__all__ = ["Estimate", "RandomisedResponse", "answers_of", "channel_rdp", "debiased", "of_replacement"]


class Estimate(NamedTuple):
    """Shares of the people asked, unbiased, and the standard error that the noise alone gives them."""

    value: Any
    standard_error: Any


@register
@dataclass(frozen=True, slots=True)
class RandomisedResponse(Pure):
    """Say yes with probability `yes_if_true` or `yes_if_false`, exact rationals. Warner 1965.

    `for_loss` is the symmetric form, the most useful; `coin` is the classroom form: toss a coin that shows heads with
    probability p; at heads tell the truth, at tails toss again and say yes at heads.

    Privacy: pure, for one person's answer against another's (replace-one); participation is not hidden.
        Audited exactly in tests/statistical/test_mechanisms_exact.py.

    >>> fair = RandomisedResponse.coin("1/2")
    >>> fair.yes_if_true, fair.yes_if_false, round(float(fair.epsilon), 4)
    (Fraction(3, 4), Fraction(1, 4), 1.0986)
    """

    name: ClassVar[str] = "randomised-response"
    told: ClassVar[tuple[str, ...]] = ("yes_if_true", "yes_if_false")

    yes_if_true: Fraction
    yes_if_false: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        for field in self.told:
            object.__setattr__(self, field, checks.probability(getattr(self, field), field))
        if self.yes_if_true <= self.yes_if_false:
            raise BadProbability("yes must be likelier if true than if false; otherwise answers tell nothing.")
        of_replacement(self.loss, self.name)
        if not ratio_within(_ratio(self.yes_if_true, self.yes_if_false), self.epsilon):
            raise BadLoss(f"these answers cost more than {self.loss}. Use RandomisedResponse.for_loss().")

    @classmethod
    def for_loss(cls, loss: Loss) -> Self:  # type: ignore[override]  # an answer has no sensitivity
        """Return the symmetric form: the truth with probability e^epsilon / (1 + e^epsilon), rounded down."""
        of_replacement(loss, cls.name)
        lie = rounded_up(1 / (1 + Fraction(exp_decimal(epsilon_of(loss)))))
        return cls(1 - lie, lie, loss)

    @classmethod
    def coin(cls, p: Number) -> Self:
        """Return the classroom form for a coin that shows heads with probability p."""
        heads = checks.probability(p, "p")
        a, b = heads + (1 - heads) * heads, (1 - heads) * heads
        return cls(a, b, Loss("epsilon", log_above(_ratio(a, b)), relation=Relation.REPLACE_ONE))

    @staticmethod
    def coin_for_loss(loss: Loss) -> Fraction:
        """Return the p of the coin with this loss, rounded down.

        epsilon = ln(1 + p/(1-p)²) for p >= 1/2 and ln(1 + 1/(1-p)) below: no coin has a loss below ln 2.
        """
        of_replacement(loss, "a coin")
        with localcontext() as context:
            context.prec = DIGITS
            c = exp_decimal(epsilon_of(loss)) - 1
            if c <= 1:
                raise BadLoss(f"no coin costs as little as {loss}: it always costs more than ln 2. Use for_loss().")
            tails = 1 / c if c <= 2 else ((4 * c + 1).sqrt() - 1) / (2 * c)
        return 1 - rounded_up(Fraction(tails))

    def rdp(self, alpha: float) -> float:
        """The Rényi divergence of order alpha between the laws of the two answers."""
        yes, no = ((float(p), float(1 - p)) for p in (self.yes_if_true, self.yes_if_false))
        return min(Pure.rdp(self, alpha), max(channel_rdp(yes, no, alpha), channel_rdp(no, yes, alpha)))

    def release(self, answers: Any, source: noise.Source | None = None) -> Any:
        """Return randomised answers.

        Args:
            answers: a bool (or 0 or 1), or an array of them, one per person.
            source: the source of random bits; the operating system's unless given.

        Privacy: the loss of the mechanism for each person, against any observer of the answers.
        """
        truth = answers_of(answers, 2)
        yes, no = (noise.bernoulli(p, truth.shape or None, source) for p in (self.yes_if_true, self.yes_if_false))
        return np.where(truth, yes, no) if truth.ndim else bool(yes if truth else no)

    def probabilities(self, answer: bool) -> tuple[Fraction, Fraction]:
        """The exact probabilities of no and yes."""
        yes = self.yes_if_true if answer else self.yes_if_false
        return 1 - yes, yes

    def estimate(self, answers: Any) -> Estimate:
        """Return the unbiased share of yes among the people; with few people it may be outside [0, 1]."""
        codes = answers_of(answers, 2)
        return debiased(float(codes.sum()), codes.size, self.yes_if_true, self.yes_if_false)


def answers_of(answers: Any, choices: int) -> NDArray[np.int64]:
    """Return answers from a public list, as integers below `choices`."""
    codes = np.asarray(answers)
    if codes.dtype.kind not in "biu" or not ((codes >= 0) & (codes < choices)).all():
        raise BadCandidates(f"answers are whole numbers from 0 to {choices - 1} (or False and True).")
    return codes.astype(np.int64)


def debiased(seen: Any, people: int, if_true: Fraction, if_false: Fraction) -> Estimate:
    """Estimate shares from counts, given the probabilities of an answer if true and if false."""
    a, b = float(if_true), float(if_false)
    share = (seen / checks.count(people, "the number of answers") - b) / (a - b)
    likely = np.clip(share, 0, 1)
    return Estimate(share, np.sqrt((likely * a * (1 - a) + (1 - likely) * b * (1 - b)) / people) / (a - b))


def of_replacement(loss: Loss, name: str) -> None:
    """Refuse a loss that is not replace-one: a local mechanism hides an answer, not participation."""
    checks.pure_or_rho(loss, name)
    if loss.relation is not Relation.REPLACE_ONE:
        raise RelationMismatch(
            f"{name} protects what a person answers, so its loss is replace-one, got {loss.relation}. "
            "Write epsilon(1, relation='replace-one')."
        )


def channel_rdp(left: tuple[float, ...], right: tuple[float, ...], alpha: float) -> float:
    """Return the Rényi divergence of two finite laws, rounded up."""
    alpha = checks.order(alpha)
    pairs = [(math.log(p), math.log(q)) for p, q in zip(left, right, strict=True)]
    logs = [alpha * p + (1 - alpha) * q for p, q in pairs]
    # The two products cancel, so the error is one of their size: a few roundings of each, at large orders too.
    slack = 1e-13 + 4e-15 * alpha * max(4 - p - q for p, q in pairs)
    return float(max(0.0, np.logaddexp.reduce(logs)) + slack) / (alpha - 1)


def _ratio(a: Fraction, b: Fraction) -> Fraction:
    return max(a / b, (1 - b) / (1 - a))
