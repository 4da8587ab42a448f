"""Multiple choice: each person chooses up to `most` of `domain` options. One option named, or bits for all."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import ClassVar, Self

import numpy as np

from cloister.local.base.dyadic import WORD, exactly, threshold, word_above
from cloister.local.base.oracle import Kind, Oracle, read_domain, read_loss
from cloister.privacy.errors import BadCandidates, BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.number import exp_down

__all__ = ["OneOfSet", "SetBits", "count_sets", "read_most", "sets_of"]

_LARGEST = 1 << 20
# The thresholds of SetBits are exact numbers of `most` times some ten bits.
_MOST_BITS = 1 << 10


def read_most(most: int, domain: int, name: str, limit: int = _LARGEST) -> int:
    """How many options a person may choose."""
    allowed = min(domain, limit)
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= allowed:
        raise BadCandidates(f"{name} lets people choose up to 1 … {allowed:,} options, got {most!r:.40}.")
    return most


def count_sets(domain: int, most: int) -> int:
    """How many sets of at most `most` options there are."""
    return sum(math.comb(domain, size) for size in range(most + 1))


def sets_of(domain: int, most: int) -> tuple[int, ...]:
    """All sets of at most `most` options, each as a number whose bits are the options."""
    return tuple(
        sum(1 << option for option in chosen)
        for size in range(most + 1)
        for chosen in combinations(range(domain), size)
    )


@dataclass(frozen=True, slots=True)
class OneOfSet(Oracle):
    """One number: each chosen option with probability p, each other with q, else `domain`, which says nothing.

    A set is filled up to `most` with silent options of its own, and one of domain + most is named: this is PrivSet
    (Wang et al. 2018) with one item, or padding and sampling with direct encoding at the amplified level
    ln(1 + most (e^epsilon - 1)) (Wang, Li & Jha 2018). The silent ones are not told apart, which tells less yet.

    One 64-bit word u decides: below most·p·2^64 the chosen option number u div (p·2^64), counted upwards, or nothing if
    there are fewer; then the other option number (u - most·p·2^64) div (q·2^64), counted upwards, or nothing.

    Privacy: pure over all pairs of sets of at most `most` options, p/q <= e^epsilon exactly; how many were chosen is
        hidden too. Verified by enumeration in tests/unit/test_local_sets.py.

    >>> from cloister.local import epsilon
    >>> hobbies = OneOfSet.for_loss(10, 3, epsilon(1))
    >>> round(float(hobbies.p), 4), round(float(hobbies.q), 4), hobbies.bits
    (0.1497, 0.0551, 4)
    """

    name: ClassVar[str] = "one-of-set"
    kind: ClassVar[Kind] = "number"
    formula: ClassVar[str] = "(m e^ε+d-1) / (n (e^ε-1)²) for a rare option"

    domain: int
    most: int
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, _LARGEST)
        read_most(self.most, self.domain, self.name)
        read_loss(self.loss, self.name)
        object.__setattr__(self, "q", exactly(self.q, "q"))
        if self.p <= self.q:
            raise BadProbability("a chosen option must be likelier than any other; otherwise reports tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, most: int, loss: Loss) -> Self:
        """q = 1/(most e^epsilon + domain), rounded up to a multiple of 2^-64."""
        power = exp_down(read_loss(loss, cls.name))
        options = read_domain(domain, cls.name, _LARGEST)
        chosen = read_most(most, options, cls.name)
        return cls(domain, most, Fraction(word_above(1 / (chosen * power + options)), WORD), loss)

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from q
        """The probability of each chosen option; the few words that cannot be shared out say nothing."""
        return Fraction((WORD - self.domain * threshold(self.q)) // self.most, WORD)

    @property
    def bits(self) -> int:
        """How many bits one answer takes."""
        return self.domain.bit_length()

    @property
    def outputs(self) -> int:
        """How many different reports there are."""
        return self.domain + 1

    @property
    def thresholds(self) -> tuple[int, int]:
        """How many words each chosen option has, and each other one."""
        return threshold(self.p), threshold(self.q)

    @property
    def answers(self) -> int:
        """How many sets there are."""
        return count_sets(self.domain, self.most)

    @property
    def inputs(self) -> tuple[int, ...]:
        """All sets, as numbers whose bits are the chosen options."""
        return sets_of(self.domain, self.most)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this set."""
        named = [self.p if value >> option & 1 else self.q for option in range(self.domain)]
        return (*named, 1 - sum(named, start=Fraction(0)))

    def mse(self, people: int) -> float:
        """The expected squared error of a share, averaged over the options, if all choose as many as they may."""
        return float(self.variance(np.array([self.most / self.domain]), people)[0])

    def largest_ratio(self) -> Fraction:
        """p/q: an option chosen against one not chosen. Saying nothing has a smaller ratio."""
        return self.p / self.q


@dataclass(frozen=True, slots=True)
class SetBits(Oracle):
    """A bit for each option: 1 with probability p if it was chosen, q if not; chosen bits share one budget.

    All bits are coins of probability q, and the law is tilted once: towards reports in which some chosen option (or one
    of the silent ones that fill the set up) is 1, and equally to all of those. So the price does not grow with every
    chosen option, as with bits tossed on their own at epsilon/most each: the variance grows like `most`, not like its
    square. It is PrivSet (Wang et al. 2018) with coins for its sets of fixed size; with most = 1 it is unary encoding.

    One 64-bit word says which chosen option, counted upwards, is the first that is 1 (see `thresholds`; none if there
    are fewer, or if the word is not below the last). Those before it are 0, it is 1, those after it and all
    options that were not chosen are as the coins fell.

    Privacy: pure over all pairs of sets of at most `most` options, exactly `largest_ratio()`; how many were chosen
        is hidden too. Verified by enumeration in tests/unit/test_local_sets.py.

    >>> from cloister.local import epsilon
    >>> topics = SetBits.for_loss(100, 3, epsilon(1))
    >>> round(float(topics.p), 3), topics.q, topics.bits
    (0.166, Fraction(11, 128), 100)
    """

    name: ClassVar[str] = "set-bits"
    kind: ClassVar[Kind] = "bits"
    formula: ClassVar[str] = "q(1-q) / (n (p-q)²), p = q e^ε / (a+(1-a)e^ε), a = (1-q)^m: near 2e·m / (n ε²)"

    domain: int
    most: int
    p: Fraction
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, _LARGEST)
        read_most(self.most, self.domain, self.name, _MOST_BITS)
        read_loss(self.loss, self.name)
        for field in ("p", "q"):
            object.__setattr__(self, field, exactly(getattr(self, field), field))
        ends = (0, *self.thresholds)
        if self.p <= self.q or ends[-1] >= WORD or any(low == high for low, high in pairwise(ends)):
            raise BadProbability("a chosen option must be likelier than any other, able to show, and not sure to.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, most: int, loss: Loss) -> Self:
        """With a q of six binary digits near that of least error; p is rounded down to a multiple of 2^-64."""
        amount = read_loss(loss, cls.name)
        options = read_domain(domain, cls.name, _LARGEST)
        chosen = read_most(most, options, cls.name, _MOST_BITS)
        q, power = _best_coin(chosen, float(amount)), exp_down(amount)
        none = (1 - q) ** chosen
        return cls(domain, most, Fraction(math.floor(WORD * q * power / (none + power * (1 - none))), WORD), q, loss)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """A word below number j, but not below the one before, makes the chosen option number j the first 1.

        Its probability is p (1-q)^j rounded down, so options differ by less than most·2^-64 in their own p.
        """
        top, rest, digits = threshold(self.p), *self._tails
        ends, total = [], 0
        for place in range(self.most):
            total += top >> digits * place
            ends.append(total)
            top *= rest
        return tuple(ends)

    @property
    def bits(self) -> int:
        """How many bits one answer takes."""
        return self.domain

    @property
    def outputs(self) -> int:
        """How many different reports there are."""
        return 1 << self.domain

    @property
    def answers(self) -> int:
        """How many sets there are."""
        return count_sets(self.domain, self.most)

    @property
    def inputs(self) -> tuple[int, ...]:
        """All sets, as numbers whose bits are the chosen options."""
        return sets_of(self.domain, self.most)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this set."""
        chosen = [option for option in range(self.domain) if value >> option & 1]
        ends = (0, *self.thresholds)
        first = [Fraction(ends[j + 1] - ends[j], WORD) for j in range(len(chosen))]
        chances = []
        for report in range(self.outputs):
            shown = [j for j, option in enumerate(chosen) if report >> option & 1]
            ones, free = report.bit_count(), self.domain
            if shown:
                chance, ones, free = first[shown[0]], ones - 1, free - shown[0] - 1
            else:
                chance, free = 1 - sum(first, start=Fraction(0)), free - len(chosen)
            chances.append(chance * self.q**ones * (1 - self.q) ** (free - ones))
        return tuple(chances)

    def mse(self, people: int) -> float:
        """The expected squared error of a share, averaged over the options, if all choose as many as they may."""
        return float(self.variance(np.array([self.most / self.domain]), people)[0])

    def largest_ratio(self) -> Fraction:
        """The largest ratio of any report's probabilities under two sets.

        Beside coins that fell for nobody, a report is likelier by shown[j] if its first chosen 1 is number j, and by
        unseen[c] if none of c chosen options is 1. Words are rounded down one by one, so each of these is looked at: in
        exact integers, all multiplied by the same number. A report with a 1 leaves no room for a set of all options.
        """
        rest, digits = self._tails
        powers = [1]
        for _ in range(self.most):
            powers.append(powers[-1] * rest)
        coin, ends = int(self.q * (1 << digits)), (0, *self.thresholds)
        shown = [ends[j + 1] - ends[j] << digits * (j + 1) for j in range(self.most)]
        shown = [words * powers[self.most - j] for j, words in enumerate(shown)]
        unseen = [((WORD - ends[c]) * coin << digits * c) * powers[self.most - c] for c in range(self.most + 1)]
        beside = [*shown, *unseen[: self.domain]]
        return max(Fraction(max(some), min(some)) for some in (beside, unseen))

    @property
    def _tails(self) -> tuple[int, int]:
        """How likely the coin of an option is 0, as a whole number of 2^-digits, and the digits."""
        digits = self.q.denominator.bit_length() - 1
        return (1 << digits) - int(self.q * (1 << digits)), digits


def _best_coin(most: int, amount: float) -> Fraction:
    """The coin of least q(1-q)/(p-q)², to six binary digits. In floats: it decides the error and nothing else."""
    q = np.geomspace(1e-4 * math.exp(-amount), 0.5, 4000) / most
    none = (1 - q) ** most
    # p/q - 1 in a form that does not cancel when epsilon is small.
    gap = -none * np.expm1(-amount) / (none * math.exp(-amount) + 1 - none)
    best = float(q[np.argmin((1 - q) / (q * gap**2))])
    places = 5 - math.floor(math.log2(best))
    return Fraction(round(best * 2**places), 1 << places)
