"""Rankings, at the collector: preferences, places and Borda scores, each with its error."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats, Oracle
from cloister.local.collector.counts import Counts, tally
from cloister.local.collector.estimate import interval
from cloister.local.mechanisms.rankings import ItemAtPlace, PairOrder
from cloister.privacy.errors import BadInput, NotPrivate
from cloister.privacy.mechanisms.checks import confidence_left
from cloister.privacy.number import Number

__all__ = ["RankingEstimate", "estimate_pairs", "estimate_places"]


@dataclass(frozen=True, slots=True, eq=False)
class RankingEstimate:
    """How people rank the items, estimated.

    Attributes:
        mechanism: what the reports were made with.
        scores: Borda scores: how many items people put below this one, on average.
        standard_error: of each score, due to the noise and to who was asked what.
        interval: lower and upper ends for the scores, each with `confidence` on its own.
        confidence: of each interval.
        matrix: `PairOrder`: [i, j] is the share of people who put i before j, one half on the diagonal.
            `ItemAtPlace`: [place, item] is the share who put the item there.
        matrix_error: of each entry; infinite where nobody was asked.
        n: reports counted.
        refused: reports refused.
        raw: True for unbiased numbers, which may lie outside what can be.
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
        """Shares cut to [0, 1], and scores to [0, k-1], marked `raw=False`. They are biased, and err less."""
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
        """This estimate, unless its noise was seeded and protected nobody."""
        if not self.private:
            raise NotPrivate("these reports were drawn from a seeded source: for lessons and tests only.")
        return self


@tally.register
def _counts(mechanism: PairOrder | ItemAtPlace, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.bincount(data.astype(np.int64), minlength=mechanism.outputs)


def estimate_pairs(mechanism: PairOrder, counts: Counts, confidence: Number = "0.95") -> RankingEstimate:
    """Preferences of every pair, from those who were asked about it; a score is a sum over pairs."""
    _check(mechanism, counts)
    k = mechanism.domain
    said = counts.table.reshape(-1, 2)
    share, variance = _shares(said[:, 1], said.sum(axis=1), mechanism)
    first, second = np.triu_indices(k, 1)
    matrix, spread = np.full((k, k), 0.5), np.zeros((k, k))
    matrix[first, second], matrix[second, first] = share, 1 - share
    spread[first, second] = spread[second, first] = variance
    scores, error = matrix.sum(axis=1) - 0.5, np.sqrt(spread.sum(axis=1))
    return _made(mechanism, counts, confidence, scores, error, matrix, np.sqrt(spread))


def estimate_places(mechanism: ItemAtPlace, counts: Counts, confidence: Number = "0.95") -> RankingEstimate:
    """Items at every place, from those who were asked about it; a score weighs places by how many are below them."""
    _check(mechanism, counts)
    k = mechanism.domain
    said = counts.table.reshape(k, k)
    matrix, spread = _shares(said, np.repeat(said.sum(axis=1)[:, None], k, axis=1), mechanism)
    below = np.arange(k - 1, -1, -1.0)
    scores = below @ matrix
    # The last place weighs nothing, even if nobody was asked about it.
    error = np.sqrt((below[:-1] ** 2) @ spread[:-1])
    return _made(mechanism, counts, confidence, scores, error, matrix, np.sqrt(spread))


def _shares(said: NDArray[Any], asked: NDArray[Any], mechanism: PairOrder | ItemAtPlace) -> tuple[Floats, Floats]:
    """Unbiased shares among those asked, and their variances; one in so many, and infinity, where nobody was."""
    p, q = float(mechanism.p), float(mechanism.q)
    guess = 0.5 if isinstance(mechanism, PairOrder) else 1 / mechanism.domain
    some = asked > 0
    share = np.where(some, (said / np.maximum(asked, 1) - q) / (p - q), guess)
    likely = q + (p - q) * np.clip(share, 0.0, 1.0)
    variance = np.where(some, likely * (1 - likely) / (np.maximum(asked, 1) * (p - q) ** 2), np.inf)
    return np.asarray(share), np.asarray(variance)


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
    error: Floats,
    matrix: Floats,
    matrix_error: Floats,
) -> RankingEstimate:
    return RankingEstimate(
        mechanism=mechanism,
        scores=scores,
        standard_error=error,
        interval=interval(scores, error, confidence),
        confidence=float(1 - confidence_left(confidence)),
        matrix=matrix,
        matrix_error=matrix_error,
        n=counts.n,
        refused=counts.refused,
        private=counts.private,
    )
