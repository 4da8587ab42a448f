"""Randomised response: a yes-or-no answer with deniability."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from cloister.local.base.dyadic import WORD, exactly, word_above
from cloister.local.base.oracle import Kind, Oracle, epsilon, read_loss
from cloister.privacy.errors import BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.rounding import log_above
from cloister.privacy.number import Number, exp_down, rational

__all__ = ["RandomisedResponse"]


@dataclass(frozen=True, slots=True)
class RandomisedResponse(Oracle):
    """Say yes (1) with probability p if it is true and q if it is not. Warner 1965.

    Privacy: pure, max(p/q, (1-q)/(1-p)) <= e^epsilon exactly; verified by enumeration.

    >>> classroom = RandomisedResponse.coins()
    >>> classroom.p, classroom.q, round(float(classroom.epsilon), 4)
    (Fraction(3, 4), Fraction(1, 4), 1.0986)
    """

    name: ClassVar[str] = "randomised-response"
    kind: ClassVar[Kind] = "number"
    formula: ClassVar[str] = "e^ε / (n (e^ε-1)²)"

    p: Fraction
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_loss(self.loss, self.name)
        for field in ("p", "q"):
            object.__setattr__(self, field, exactly(getattr(self, field), field))
        if self.p <= self.q:
            raise BadProbability("yes must be likelier if true than if false; otherwise reports tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, loss: Loss) -> Self:
        """The symmetric form: a lie with probability 1/(e^epsilon + 1), rounded up to a multiple of 2^-64."""
        lie = Fraction(word_above(1 / (exp_down(read_loss(loss, cls.name)) + 1)), WORD)
        return cls(1 - lie, lie, loss)

    @classmethod
    def coins(cls, truth: Number = "1/2", yes: Number = "1/2") -> Self:
        """Two coins: the truth with probability `truth`, else yes with probability `yes`; the loss follows.

        Both are rounded to multiples of 2^-64 first; the loss is that of the rounded coins, rounded up.
        """
        t, h = (Fraction(round(rational(value, "a coin") * WORD), WORD) for value in (truth, yes))
        p, q = (Fraction(round(chance * WORD), WORD) for chance in (t + (1 - t) * h, (1 - t) * h))
        if not 0 < q < p < 1:
            raise BadProbability("both coins need two sides: probabilities strictly between 0 and 1.")
        return cls(p, q, epsilon(log_above(max(p / q, (1 - q) / (1 - p)))))

    @property
    def domain(self) -> int:  # type: ignore[override]  # no and yes
        """No and yes."""
        return 2

    @property
    def bits(self) -> int:
        """How many bits one answer takes."""
        return 1

    @property
    def outputs(self) -> int:
        """How many different reports there are."""
        return 2

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probabilities of no and yes on this value."""
        yes = self.p if value else self.q
        return 1 - yes, yes

    def largest_ratio(self) -> Fraction:
        """The larger of the ratios of yes and of no."""
        return max(self.p / self.q, (1 - self.q) / (1 - self.p))
