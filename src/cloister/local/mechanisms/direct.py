"""Direct encoding, also generalised or k-ary randomised response: the true value, or any other uniformly."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.local.base.coins import Words, below, tossed
from cloister.local.base.counts import chosen, debiased, frequencies, likelihood, tally
from cloister.local.base.dyadic import WORD, exactly, threshold, word_above
from cloister.local.base.intervals import Spread, coins, spread_of
from cloister.local.base.oracle import Floats, Kind, Oracle, epsilon, read_domain, read_loss
from cloister.local.base.perturb import perturbed
from cloister.local.base.projection import Likelihood
from cloister.privacy.errors import BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import Number, exp_down, log_above, rational

__all__ = ["DirectEncoding", "RandomisedResponse"]


# Randomised response: a yes-or-no answer with deniability.


@dataclass(frozen=True, slots=True)
class RandomisedResponse(Oracle):
    """Report yes (1) with probability p if it is true and q if it is not. Warner 1965.

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
        """Return the symmetric form: a lie with probability 1/(e^epsilon + 1), rounded up to a multiple of 2^-64."""
        lie = Fraction(word_above(1 / (exp_down(read_loss(loss, cls.name)) + 1)), WORD)
        return cls(1 - lie, lie, loss)

    @classmethod
    def coins(cls, truth: Number = "1/2", yes: Number = "1/2") -> Self:
        """Build the form with two coins: the truth with probability `truth`, else yes with probability `yes`.

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
        """The number of bits per report."""
        return 1

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return 2

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probabilities of no and yes on this value."""
        yes = self.p if value else self.q
        return 1 - yes, yes

    def largest_ratio(self) -> Fraction:
        """The larger of the ratios of yes and of no."""
        return max(self.p / self.q, (1 - self.q) / (1 - self.p))

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """Return the variances of the estimated shares of no and yes, which are the same; of a single share, of yes.

        True no reports no with probability 1 - q, so p and q are not those of no.
        """
        shares = np.asarray(frequencies, dtype=np.float64)
        if shares.shape == (2,):
            shares = np.array([1 - shares[0], shares[1]])
        return Oracle.variance(self, shares, people)


# In a larger domain each value would get too few of the 2^64 words, and rounding up would dominate.
_LARGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class DirectEncoding(Oracle):
    """Report the truth with probability p, each other value with probability q. Kairouz, Bonawitz & Ramage 2016.

    One 64-bit word u decides: below p·2^64 the truth, else the other value number (u - p·2^64) div (q·2^64), counted
    upwards from the truth, modulo the domain. No value has probability 0, which the textbook's listing 4.7 (spec E-01)
    gets wrong.

    Privacy: pure, p/q <= e^epsilon exactly; verified by enumeration in tests/unit/local/test_verify.py.

    >>> from cloister.local import epsilon
    >>> jobs = DirectEncoding.for_loss(14, epsilon(5))
    >>> round(float(jobs.p), 4), round(float(jobs.q), 5), jobs.bits
    (0.9195, 0.0062, 4)
    """

    name: ClassVar[str] = "direct-encoding"
    kind: ClassVar[Kind] = "number"
    formula: ClassVar[str] = "(d-2+e^ε) / (n (e^ε-1)²) for a rare value"

    domain: int
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, _LARGEST)
        read_loss(self.loss, self.name)
        object.__setattr__(self, "q", exactly(self.q, "q"))
        if self.p <= self.q:
            raise BadProbability("the truth must be likelier than any other value; otherwise reports tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, loss: Loss) -> Self:
        """Build the mechanism with q = 1/(e^epsilon + domain - 1), rounded up to a multiple of 2^-64."""
        power = exp_down(read_loss(loss, cls.name))
        return cls(domain, Fraction(word_above(1 / (power + read_domain(domain, cls.name, _LARGEST) - 1)), WORD), loss)

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from q
        """The probability of the truth."""
        return 1 - (self.domain - 1) * self.q

    @property
    def bits(self) -> int:
        """The number of bits per report."""
        return (self.domain - 1).bit_length()

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return self.domain

    @property
    def thresholds(self) -> tuple[int, int]:
        """The word thresholds: below the first the truth; the rest in runs of the second."""
        return threshold(self.p), threshold(self.q)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this value."""
        return tuple(self.p if report == value else self.q for report in range(self.domain))

    def largest_ratio(self) -> Fraction:
        """Return p/q."""
        return self.p / self.q


# Device: one word each.


@perturbed.register
def direct(mechanism: DirectEncoding, values: NDArray[np.int64], source: Source) -> Words:
    """Return the truth, or any other value."""
    return below(mechanism.thresholds, values.astype(np.uint64), mechanism.domain, source)


@perturbed.register
def response(mechanism: RandomisedResponse, values: NDArray[np.int64], source: Source) -> Words:
    """Return yes if the word is below the answer's threshold, p or q."""
    limits = np.array([threshold(mechanism.q), threshold(mechanism.p)], dtype=np.uint64)
    return (tossed(len(values), source) < limits[values]).astype(np.uint64)


# Collector


@tally.register
def _counts(mechanism: DirectEncoding | RandomisedResponse, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.bincount(data.astype(np.int64), minlength=mechanism.domain)


@frequencies.register
def _direct(
    mechanism: DirectEncoding, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(debiased(mechanism, table, people), values)


@frequencies.register
def _response(
    mechanism: RandomisedResponse, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    yes = float(debiased(mechanism, table[1:], people)[0])
    return chosen(np.array([1 - yes, yes]), values)


@likelihood.register
def _direct_likelihood(mechanism: DirectEncoding, table: NDArray[Any], people: int) -> Likelihood:
    p, q = float(mechanism.p), float(mechanism.q)

    def through(shares: Floats) -> Floats:  # the channel is symmetric: it is its own transpose
        return np.asarray(q * shares.sum() + (p - q) * shares)

    return Likelihood(table.astype(np.float64), through, through)


@likelihood.register
def _response_likelihood(mechanism: RandomisedResponse, table: NDArray[Any], people: int) -> Likelihood:
    channel = np.array([[float(chance) for chance in mechanism.law(value)] for value in (0, 1)])
    return Likelihood(table.astype(np.float64), lambda shares: shares @ channel, lambda weights: channel @ weights)


@spread_of.register
def _response_spread(
    mechanism: RandomisedResponse, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    """Return the spread of no and yes: true no reports no with probability 1 - q, true yes with 1 - p."""
    p, q = float(mechanism.p), float(mechanism.q)
    named = slice(None) if values is None else values
    return coins(np.array([1 - q, p])[named], np.array([1 - p, q])[named], len(shares), n)
