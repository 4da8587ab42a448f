"""The sparse vector technique: many queries, with a loss only for those above a threshold."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np

from cloister.privacy import noise
from cloister.privacy.errors import BadInput, ChargeClosed
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms import checks
from cloister.privacy.mechanisms.chooser import monotone_allowed
from cloister.privacy.mechanisms.discrete_laplace import laplace_at, laplace_at_least, laplace_beyond
from cloister.privacy.mechanisms.mechanism import Pure, register
from cloister.privacy.number import Number, rounded_up, short_above

__all__ = ["AboveThreshold", "Watch"]


@register
@dataclass(frozen=True, slots=True)
class AboveThreshold(Pure):
    """Compare a sequence of integer answers with a public threshold, until `positives` of them are above it.

    Lyu, Su & Li 2017, algorithm 1 (several published variants are not private at all): the threshold gets its noise
    once, of scale sensitivity/epsilon1; every answer gets fresh noise of scale 2·positives·sensitivity/epsilon2, half
    of that for monotone answers; only above or below is released. On integers every step of the proof is a shift by
    whole steps. epsilon1 : epsilon2 is about 1 : (2·positives)^(2/3), their best split.

    Args:
        threshold: public, a whole number.
        sensitivity: the largest change of any one answer between neighbours; a whole number.
        loss: a pure epsilon, or a rho (epsilon = sqrt(2 rho), rounded down), for any number of queries.
        positives: number of answers above the threshold that are released before the watch ends.
        monotone: True if neighbours move all answers in the same direction.

    Privacy: pure, for adaptively chosen queries. Audited exactly in tests/statistical/test_mechanisms_exact.py.
    """

    name: ClassVar[str] = "above-threshold"
    told: ClassVar[tuple[str, ...]] = (
        *("sensitivity", "epsilon", "threshold", "positives", "monotone"),
        *("threshold_scale", "answer_scale"),
    )

    threshold: int
    sensitivity: int
    loss: Loss
    positives: int = 1
    monotone: bool = False

    def __post_init__(self) -> None:
        self._check(whole=True)
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int):
            raise BadInput(f"threshold must be a whole number, got a {type(self.threshold).__name__}.")
        checks.count(self.positives, "positives")
        monotone_allowed(self.monotone, self.relation)

    @classmethod
    def within(
        cls,
        error: Number,
        confidence: Number,
        sensitivity: Number,
        *,
        questions: int,
        relation: str | Relation = Relation.ADD_REMOVE,
        **more: Any,
    ) -> "AboveThreshold":
        """Return a mechanism that errs on no answer further than `error` from the threshold, with this confidence."""
        most = checks.positive(error, "error")

        def at(amount: Fraction) -> "AboveThreshold":
            return cls.for_loss(sensitivity, Loss("epsilon", amount, relation=Relation.of(relation)), **more)

        low, high = Fraction(0), Fraction(1)
        while at(high).margin(confidence, questions) > most:
            low, high = high, high * 2
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if at(middle).margin(confidence, questions) <= most else (middle, high)
        return at(rounded_up(high))

    @property
    def _weight(self) -> int:
        return self.positives if self.monotone else 2 * self.positives

    @property
    def threshold_scale(self) -> Fraction:
        """Scale of the noise on the threshold."""
        share = Fraction(round(self._weight ** (2 / 3) * 100), 100)
        return short_above(self.sensitivity * (1 + share) / self.epsilon)

    @property
    def answer_scale(self) -> Fraction:
        """Scale of the noise on each answer, from exactly the epsilon that the threshold leaves."""
        return short_above(self._weight * self.sensitivity / (self.epsilon - self.sensitivity / self.threshold_scale))

    def watch(self, source: noise.Source | None = None) -> "Watch":
        """Begin a watch: draw the threshold's noise. The loss covers all later answers and is paid once."""
        return Watch(self, source)

    def release(self, answers: Any, source: noise.Source | None = None) -> list[bool]:
        """Return above or below for each answer in turn, ending after the last positive.

        Privacy: the loss of the mechanism, for any number of answers.
        """
        watch, transcript = self.watch(source), []
        for answer in checks.integers(np.atleast_1d(np.array(answers, dtype=object))):
            transcript.append(watch.ask(answer))
            if not watch.left:
                break
        return transcript

    def probabilities(self, answers: Any) -> dict[tuple[bool, ...], float]:
        """Return the probability of each transcript; for few answers. As secret as the answers."""
        reach = int(40 * self.threshold_scale) + 40
        shift = np.arange(-reach, reach + 1)
        base, scale = laplace_at(shift, float(self.threshold_scale)), float(self.answer_scale)
        gaps = [self.threshold + shift - int(answer) for answer in answers]
        sides = [(laplace_at_least(1 - gap, scale), laplace_at_least(gap, scale)) for gap in gaps]
        transcripts = {self._cut(signs) for signs in product((False, True), repeat=len(gaps))}
        return {
            transcript: float(
                np.prod([base, *(side[sign] for side, sign in zip(sides, transcript, strict=False))], axis=0).sum()
            )
            for transcript in transcripts
        }

    def _cut(self, signs: tuple[bool, ...]) -> tuple[bool, ...]:
        """Cut a transcript after its last positive."""
        ends = np.flatnonzero(np.cumsum(signs) == self.positives)
        return signs[: int(ends[0]) + 1] if ends.size else signs

    def margin(self, confidence: Number, questions: int) -> int:
        """Return the distance to the threshold beyond which all `questions` answers are right, with this confidence."""
        beta = checks.confidence_left(confidence) / 4  # two kinds of noise, two sides
        each = beta / checks.count(questions, "questions")
        return laplace_beyond(self.threshold_scale, beta) + laplace_beyond(self.answer_scale, each)


class Watch:
    """A running sparse vector, queried with one integer answer after another.

    Privacy: its noisy threshold is a secret; it is neither shown nor stored, and serves this watch only.
    """

    __slots__ = ("_mechanism", "_source", "_threshold", "left")

    def __init__(self, mechanism: AboveThreshold, source: noise.Source | None) -> None:
        self._mechanism, self._source, self.left = mechanism, source, mechanism.positives
        self._threshold = mechanism.threshold + noise.discrete_laplace(mechanism.threshold_scale, None, source)

    def ask(self, answer: int) -> bool:
        """Return True if this answer with noise is at or above the noisy threshold."""
        if not self.left:
            raise ChargeClosed("this watch has told all its positives. Begin another, at its own loss.")
        noisy = checks.integers(answer) + noise.discrete_laplace(self._mechanism.answer_scale, None, self._source)
        above = bool(noisy >= self._threshold)
        self.left -= above
        return above
