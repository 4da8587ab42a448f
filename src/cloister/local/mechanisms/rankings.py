"""Rankings: people put items in order, and report the order of one pair, or the item at one place."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, permutations
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from cloister.local.base.dyadic import WORD, exactly, threshold, word_above
from cloister.local.base.oracle import Floats, Kind, Oracle, read_domain, read_loss
from cloister.privacy.errors import BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.number import Number, exp_down

if TYPE_CHECKING:
    from cloister.local.collector.counts import Counts
    from cloister.local.collector.rankings import RankingEstimate

__all__ = ["ItemAtPlace", "PairOrder"]

# The pairs of more items would fill a table of millions.
_LARGEST = 1 << 10


@dataclass(frozen=True, slots=True)
class PairOrder(Oracle):
    """A uniform pair of items i < j, and whether i comes before j: true with probability p.

    A ranking of k items is k (k-1) / 2 such answers, and one of them, told with the whole epsilon, errs less than all,
    each told with its part of it. It gives the share of people who prefer one item to another for every pair, and so
    the Borda scores. The report is 2 · pair + 1 if i is said to come before j, else 2 · pair, where pairs are
    numbered (0,1), (0,2), … (1,2), ….

    Privacy: pure over all pairs of rankings, p / (1-p) <= e^epsilon exactly. Which pair is told does not depend
        on the ranking. Verified by enumeration in tests/unit/test_local_rankings.py.

    >>> from cloister.local import epsilon
    >>> films = PairOrder.for_loss(6, epsilon(1))
    >>> films.pairs, round(float(films.p), 3), films.bits
    (15, 0.731, 5)
    """

    name: ClassVar[str] = "pair-order"
    kind: ClassVar[Kind] = "number"
    formula: ClassVar[str] = "(k-1)·k(k-1)/2 · (e^ε+1)² / (4n (e^ε-1)²) for a score"

    domain: int
    p: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, _LARGEST)
        read_loss(self.loss, self.name)
        object.__setattr__(self, "p", exactly(self.p, "p"))
        if self.p <= self.q:
            raise BadProbability("the true order must be likelier than the other; otherwise reports tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, loss: Loss) -> Self:
        """A lie with probability 1/(e^epsilon + 1), rounded up to a multiple of 2^-64."""
        lie = Fraction(word_above(1 / (exp_down(read_loss(loss, cls.name)) + 1)), WORD)
        return cls(domain, 1 - lie, loss)

    @property
    def q(self) -> Fraction:  # type: ignore[override]  # follows from p
        """The probability of a lie."""
        return 1 - self.p

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        return self.domain * (self.domain - 1) // 2

    @property
    def bits(self) -> int:
        """How many bits one answer takes."""
        return (self.outputs - 1).bit_length()

    @property
    def outputs(self) -> int:
        """How many different reports there are."""
        return 2 * self.pairs

    @property
    def answers(self) -> int:
        """How many rankings there are; as a value each is its number in the order of the dictionary."""
        return math.factorial(self.domain)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on the ranking of this number."""
        place = {item: at for at, item in enumerate(_ranking(value, self.domain))}
        chances: list[Fraction] = []
        for i in range(self.domain):
            for j in range(i + 1, self.domain):
                before = self.p if place[i] < place[j] else self.q
                chances += [(1 - before) / self.pairs, before / self.pairs]
        return tuple(chances)

    def largest_ratio(self) -> Fraction:
        """p/q."""
        return self.p / self.q

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """The variance of the estimated share of people with one order of a pair, who are asked as chance has it."""
        shares, p, q = np.asarray(frequencies, dtype=np.float64), float(self.p), float(self.q)
        said = q + (p - q) * shares
        return np.asarray(self.pairs * said * (1 - said) / (people * (p - q) ** 2))

    def mse(self, people: int) -> float:
        """The expected squared error of a Borda score, at most: as if every pair were a tie."""
        return (self.domain - 1) * float(self.variance(np.array([0.5]), people)[0])

    def estimate(  # type: ignore[override]  # scores and pairs, not shares of values
        self, counts: "Counts", confidence: Number = "0.95"
    ) -> "RankingEstimate":
        """Borda scores and the matrix of preferences, unbiased, with standard errors and intervals."""
        from cloister.local.collector import rankings

        return rankings.estimate_pairs(self, counts, confidence)


@dataclass(frozen=True, slots=True)
class ItemAtPlace(Oracle):
    """A uniform place, and the item there: the true one with probability p, each other with q.

    It gives the share of people who put an item first, second, and so on. The report is place · k + item. For Borda
    scores alone `PairOrder` errs less.

    Privacy: pure over all pairs of rankings, p/q <= e^epsilon exactly. Which place is told does not depend on the
        ranking. Verified by enumeration in tests/unit/test_local_rankings.py.
    """

    name: ClassVar[str] = "item-at-place"
    kind: ClassVar[Kind] = "number"
    formula: ClassVar[str] = "k²(k-1)(2k-1)/6 · q(1-q) / (n (p-q)²), q = 1 / (e^ε+k-1), for a score"

    domain: int
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, _LARGEST)
        read_loss(self.loss, self.name)
        object.__setattr__(self, "q", exactly(self.q, "q"))
        if self.p <= self.q:
            raise BadProbability("the true item must be likelier than any other; otherwise reports tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, loss: Loss) -> Self:
        """q = 1/(e^epsilon + items - 1), rounded up to a multiple of 2^-64."""
        power = exp_down(read_loss(loss, cls.name))
        return cls(domain, Fraction(word_above(1 / (power + read_domain(domain, cls.name, _LARGEST) - 1)), WORD), loss)

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from q
        """The probability of the truth."""
        return 1 - (self.domain - 1) * self.q

    @property
    def bits(self) -> int:
        """How many bits one answer takes."""
        return (self.outputs - 1).bit_length()

    @property
    def outputs(self) -> int:
        """How many different reports there are."""
        return self.domain**2

    @property
    def answers(self) -> int:
        """How many rankings there are; as a value each is its number in the order of the dictionary."""
        return math.factorial(self.domain)

    @property
    def thresholds(self) -> tuple[int, int]:
        """A word below the first tells the truth; the rest is shared out in runs of the second."""
        return threshold(self.p), threshold(self.q)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on the ranking of this number."""
        k = self.domain
        return tuple((self.p if said == item else self.q) / k for item in _ranking(value, k) for said in range(k))

    def largest_ratio(self) -> Fraction:
        """p/q."""
        return self.p / self.q

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """The variance of the estimated share of people with an item at a place, who are asked as chance has it."""
        shares, p, q = np.asarray(frequencies, dtype=np.float64), float(self.p), float(self.q)
        said = q + (p - q) * shares
        return np.asarray(self.domain * said * (1 - said) / (people * (p - q) ** 2))

    def mse(self, people: int) -> float:
        """The expected squared error of a Borda score, if each item is as often at each place."""
        k = self.domain
        return (k - 1) * k * (2 * k - 1) / 6 * float(self.variance(np.array([1 / k]), people)[0])

    def estimate(  # type: ignore[override]  # scores and places, not shares of values
        self, counts: "Counts", confidence: Number = "0.95"
    ) -> "RankingEstimate":
        """Borda scores and the matrix of places, unbiased, with standard errors and intervals."""
        from cloister.local.collector import rankings

        return rankings.estimate_places(self, counts, confidence)


def _ranking(number: int, items: int) -> tuple[int, ...]:
    return next(islice(permutations(range(items)), number, None))
