"""Rankings: people order items, and report the order of one pair, or the item at one place."""

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
    from cloister.local.base.counts import Counts
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from cloister.local.base.coins import Words, below, coins, uniform
from cloister.local.base.counts import Counts, tally
from cloister.local.base.intervals import coins as support_spread
from cloister.local.base.perturb import checked, perturbed
from cloister.privacy.errors import BadCandidates, BadInput, NotPrivate
from cloister.privacy.mechanisms.checks import confidence_left
from cloister.privacy.noise.source import Source

__all__ = ["ItemAtPlace", "PairOrder", "RankingEstimate"]

# The pairs of more items would fill a table of millions.
_LARGEST = 1 << 10


@dataclass(frozen=True, slots=True)
class PairOrder(Oracle):
    """A uniform pair of items i < j, and whether i comes before j: true with probability p.

    A ranking of k items is k (k-1) / 2 such answers, and one of them, reported with the whole epsilon, has less error
    than all, each with a part of it. It gives the share of people who prefer one item to another for every pair, and so
    the Borda scores. The report is 2 · pair + 1 if i is reported before j, else 2 · pair, where pairs are numbered
    (0,1), (0,2), … (1,2), ….

    Privacy: pure over all pairs of rankings, p / (1-p) <= e^epsilon exactly. The choice of pair does not depend
        on the ranking. Verified by enumeration in tests/unit/local/test_rankings.py.

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
        """Build the mechanism with a lie of probability 1/(e^epsilon + 1), rounded up to a multiple of 2^-64."""
        lie = Fraction(word_above(1 / (exp_down(read_loss(loss, cls.name)) + 1)), WORD)
        return cls(domain, 1 - lie, loss)

    @property
    def q(self) -> Fraction:  # type: ignore[override]  # follows from p
        """The probability of a lie."""
        return 1 - self.p

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.domain * (self.domain - 1) // 2

    @property
    def bits(self) -> int:
        """The number of bits per report."""
        return (self.outputs - 1).bit_length()

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return 2 * self.pairs

    @property
    def answers(self) -> int:
        """The number of rankings; a value is a ranking's number in lexicographic order."""
        return math.factorial(self.domain)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on the ranking of this number."""
        rank = {item: at for at, item in enumerate(_ranking(value, self.domain))}
        chances: list[Fraction] = []
        for i in range(self.domain):
            for j in range(i + 1, self.domain):
                before = self.p if rank[i] < rank[j] else self.q
                chances += [(1 - before) / self.pairs, before / self.pairs]
        return tuple(chances)

    def largest_ratio(self) -> Fraction:
        """Return p/q."""
        return self.p / self.q

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """Return the variance of the estimated share of people with one order of a pair, with random questions."""
        shares, p, q = np.asarray(frequencies, dtype=np.float64), float(self.p), float(self.q)
        reported = q + (p - q) * shares
        return np.asarray(self.pairs * reported * (1 - reported) / (people * (p - q) ** 2))

    def mse(self, people: int) -> float:
        """Return the expected squared error of a Borda score, at most, for many people: as if every pair were a tie."""
        return (self.domain - 1) * float(self.variance(np.array([0.5]), people)[0])

    def estimate(  # type: ignore[override]  # scores and pairs, not shares of values
        self, counts: "Counts", confidence: Number = "0.95"
    ) -> "RankingEstimate":
        """Estimate Borda scores and the matrix of preferences, unbiased, with standard errors and intervals."""
        return estimate_pairs(self, counts, confidence)


@dataclass(frozen=True, slots=True)
class ItemAtPlace(Oracle):
    """A uniform place, and the item there: the true one with probability p, each other with q.

    It gives the share of people who put an item first, second, and so on. The report is place · k + item. For Borda
    scores alone `PairOrder` has less error.

    Privacy: pure over all pairs of rankings, p/q <= e^epsilon exactly. The choice of place does not depend on the
        ranking. Verified by enumeration in tests/unit/local/test_rankings.py.
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
        """Build the mechanism with q = 1/(e^epsilon + items - 1), rounded up to a multiple of 2^-64."""
        power = exp_down(read_loss(loss, cls.name))
        return cls(domain, Fraction(word_above(1 / (power + read_domain(domain, cls.name, _LARGEST) - 1)), WORD), loss)

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from q
        """The probability of the truth."""
        return 1 - (self.domain - 1) * self.q

    @property
    def bits(self) -> int:
        """The number of bits per report."""
        return (self.outputs - 1).bit_length()

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return self.domain**2

    @property
    def answers(self) -> int:
        """The number of rankings; a value is a ranking's number in lexicographic order."""
        return math.factorial(self.domain)

    @property
    def thresholds(self) -> tuple[int, int]:
        """The word thresholds: below the first the truth; the rest in runs of the second."""
        return threshold(self.p), threshold(self.q)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on the ranking of this number."""
        k = self.domain
        return tuple(
            (self.p if reported == item else self.q) / k for item in _ranking(value, k) for reported in range(k)
        )

    def largest_ratio(self) -> Fraction:
        """Return p/q."""
        return self.p / self.q

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """Return the variance of the estimated share of people with an item at a place, with random questions."""
        shares, p, q = np.asarray(frequencies, dtype=np.float64), float(self.p), float(self.q)
        reported = q + (p - q) * shares
        return np.asarray(self.domain * reported * (1 - reported) / (people * (p - q) ** 2))

    def mse(self, people: int) -> float:
        """Return the expected squared error of a Borda score, if each item is equally often at each place."""
        k = self.domain
        return (k - 1) * k * (2 * k - 1) / 6 * float(self.variance(np.array([1 / k]), people)[0])

    def estimate(  # type: ignore[override]  # scores and places, not shares of values
        self, counts: "Counts", confidence: Number = "0.95"
    ) -> "RankingEstimate":
        """Estimate Borda scores and the matrix of places, unbiased, with standard errors and intervals."""
        return estimate_places(self, counts, confidence)


def _ranking(number: int, items: int) -> tuple[int, ...]:
    return next(islice(permutations(range(items)), number, None))


# Device: words for the pair or place, then one word for the answer.


@perturbed.register
def pair_order(mechanism: PairOrder, values: NDArray[np.int64], source: Source) -> Words:
    """Return 2 · pair + (i before j): a word for the pair (redrawn in the last, incomplete run), one for the lie.

    The true order is reported if the second word is below p·2^64.
    """
    people, k = np.arange(len(values)), mechanism.domain
    rank = np.empty_like(values)
    rank[people[:, None], values] = np.arange(k)
    first, second = np.triu_indices(k, 1)  # (0,1), (0,2), … (1,2), …
    pair = uniform(mechanism.pairs, len(values), source).astype(np.int64)
    truth = coins(threshold(mechanism.p), len(values), source)
    before = rank[people, first[pair]] < rank[people, second[pair]]
    return np.asarray(2 * pair + (before == truth), dtype=np.uint64)


@perturbed.register
def item_at_place(mechanism: ItemAtPlace, values: NDArray[np.int64], source: Source) -> Words:
    """Return place · k + item: a word for the place (redrawn in the last, incomplete run), then direct encoding."""
    k = np.uint64(mechanism.domain)
    place = uniform(mechanism.domain, len(values), source)
    item = values[np.arange(len(values)), place.astype(np.int64)].astype(np.uint64)
    return place * k + below(mechanism.thresholds, item, mechanism.domain, source)


@checked.register
def read_rankings(mechanism: PairOrder | ItemAtPlace, values: Any) -> NDArray[np.int64]:
    """Return one row a person: all items, the best first.

    Args:
        mechanism: the public facts.
        values: one person's items in order, or rows of such.
    """
    k = mechanism.domain
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.empty(0)
    rows = array.reshape(-1, k) if array.ndim in (1, 2) and array.shape[-1] == k else np.empty((1, 0))
    if rows.dtype.kind not in "iu" or not (np.sort(rows, axis=1) == np.arange(k)).all():
        raise BadCandidates(f"a ranking names each item from 0 to {k - 1} once, the best first; one row a person.")
    return rows.astype(np.int64)


# Collector: preferences, places and Borda scores, each with its error.


@dataclass(frozen=True, slots=True, eq=False)
class RankingEstimate:
    """Estimated preferences over the items.

    Attributes:
        mechanism: the mechanism of the reports.
        scores: Borda scores: the average number of items that people put below this one.
        standard_error: of each score, from the noise and from the random questions.
        interval: lower and upper ends for the scores, each with `confidence` individually.
        confidence: of each interval.
        matrix: `PairOrder`: [i, j] is the share of people who put i before j, one half on the diagonal.
            `ItemAtPlace`: [place, item] is the share who put the item there.
        matrix_error: of each entry; infinite where no one was asked.
        n: reports counted.
        refused: reports refused.
        raw: True for unbiased numbers, which may be outside the feasible range.
        private: False if randomness was seeded.
    """

    mechanism: Oracle
    scores: Floats
    standard_error: Floats
    interval: tuple[Floats, Floats]
    confidence: float
    matrix: Floats
    matrix_error: Floats
    n: int
    refused: int = 0
    raw: bool = True
    private: bool = True

    @property
    def order(self) -> NDArray[np.int64]:
        """The items by their scores, the best first."""
        return np.argsort(-self.scores, kind="stable")

    def projected(self) -> "RankingEstimate":
        """Return shares cut to [0, 1] and scores to [0, k-1], marked `raw=False`. They are biased, with less error."""
        if not self.raw:
            raise BadInput("these numbers are projected already. Project the raw estimate.")
        most = float(len(self.scores) - 1)
        low, high = (np.clip(end, 0.0, most) for end in self.interval)
        return replace(
            self,
            scores=np.clip(self.scores, 0.0, most),
            interval=(low, high),
            matrix=np.clip(self.matrix, 0.0, 1.0),
            raw=False,
        )

    def require_private(self) -> "RankingEstimate":
        """Return this estimate, or raise if its noise was seeded and so not private."""
        if not self.private:
            raise NotPrivate("these reports were drawn from a seeded source: for lessons and tests only.")
        return self


@tally.register
def _counts(mechanism: PairOrder | ItemAtPlace, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.bincount(data.astype(np.int64), minlength=mechanism.outputs)


def estimate_pairs(mechanism: PairOrder, counts: Counts, confidence: Number = "0.95") -> RankingEstimate:
    """Estimate the preferences of every pair from the people asked about it; a score is a sum over pairs."""
    _check(mechanism, counts)
    k = mechanism.domain
    table = counts.table.reshape(-1, 2)
    pairs = _shares(table[:, 1], table.sum(axis=1), counts, mechanism, confidence)
    first, second = np.triu_indices(k, 1)
    matrix = np.full((k, k), 0.5)
    error, below, above = (np.zeros((k, k)) for _ in range(3))
    matrix[first, second], matrix[second, first] = pairs.share, 1 - pairs.share
    error[first, second] = error[second, first] = pairs.error
    below[first, second] = above[second, first] = pairs.below
    above[first, second] = below[second, first] = pairs.above
    every = _Shares(matrix, error, below, above)
    return _made(mechanism, counts, confidence, matrix.sum(axis=1) - 0.5, every.summed(np.ones((k, k)), axis=1), every)


def estimate_places(mechanism: ItemAtPlace, counts: Counts, confidence: Number = "0.95") -> RankingEstimate:
    """Estimate the items at every place from the people asked about it; a score weights places by the number below."""
    _check(mechanism, counts)
    k = mechanism.domain
    table = counts.table.reshape(k, k)
    places = _shares(table, np.repeat(table.sum(axis=1)[:, None], k, axis=1), counts, mechanism, confidence)
    weights = np.arange(k - 1, -1, -1.0)
    # The last place has weight zero, even if no one was asked about it.
    return _made(mechanism, counts, confidence, weights @ places.share, places.summed(weights[:, None], axis=0), places)


@dataclass(frozen=True, slots=True, eq=False)
class _Shares:
    """Estimated shares, each from other people.

    Attributes:
        share: unbiased; 1/options where no one was asked.
        error: standard errors; infinite where no one was asked.
        below, above: how far the interval of each reaches.
    """

    share: Floats
    error: Floats
    below: Floats
    above: Floats

    def summed(self, weights: Floats, axis: int) -> tuple[Floats, Floats, Floats]:
        """Return the error, and the reach of the interval below and above, of weighted sums.

        The reach of a sum is the root of the sum of squares of the reaches of its parts (Zou & Donner 2008). So it is
        as wide as its parts need where few people differ from the rest, and no variance is plugged in.
        """
        weighted = np.broadcast_to(weights, self.share.shape)

        def root(reach: Floats) -> Floats:
            squares = np.where(weighted > 0, weighted * np.where(weighted > 0, reach, 0.0), 0.0) ** 2
            return np.asarray(np.sqrt(squares.sum(axis=axis)))

        return root(self.error), root(self.below), root(self.above)


def _shares(
    table: NDArray[Any], people: NDArray[Any], counts: Counts, mechanism: PairOrder | ItemAtPlace, confidence: Number
) -> _Shares:
    """Return the shares among the people asked, who were drawn from all."""
    p, q = float(mechanism.p), float(mechanism.q)
    guess = 0.5 if isinstance(mechanism, PairOrder) else 1 / mechanism.domain
    share = np.where(people > 0, (table / np.maximum(people, 1) - q) / (p - q), guess)
    error, below, above = (np.full(share.shape, np.inf) for _ in range(3))
    for asked in np.unique(people[people > 0]).tolist():
        mask = people == asked
        spread = support_spread(p, q, int(np.count_nonzero(mask)), asked).asking(asked / counts.n)
        low, high = spread.interval(share[mask], confidence)
        error[mask], below[mask], above[mask] = spread.error(share[mask]), share[mask] - low, high - share[mask]
    return _Shares(share, error, below, above)


def _check(mechanism: Oracle, counts: Counts) -> None:
    if not isinstance(counts, Counts) or counts.mechanism != mechanism:
        raise BadInput("these are not counts of this mechanism's reports. Make them with mechanism.aggregate().")
    if not counts.n:
        raise BadInput("no report was counted, so there is nothing to estimate.")


def _made(
    mechanism: Oracle,
    counts: Counts,
    confidence: Number,
    scores: Floats,
    reach: tuple[Floats, Floats, Floats],
    shares: _Shares,
) -> RankingEstimate:
    error, below, above = reach
    return RankingEstimate(
        mechanism=mechanism,
        scores=scores,
        standard_error=error,
        interval=(scores - below, scores + above),
        confidence=float(1 - confidence_left(confidence)),
        matrix=shares.share,
        matrix_error=shares.error,
        n=counts.n,
        refused=counts.refused,
        private=counts.private,
    )
