"""Shares with their errors: raw and unbiased, or projected to the simplex. Each states which it is."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.local.base.counts import Counts, frequencies, likelihood
from cloister.local.base.intervals import Spread, spread_of
from cloister.local.base.oracle import Floats, Oracle
from cloister.local.base.projection import Likelihood, capped, em, norm_sub, simplex
from cloister.privacy.errors import BadInput, NotPrivate
from cloister.privacy.mechanisms.checks import confidence_left
from cloister.privacy.number import Number

__all__ = ["Estimate", "Projection", "estimate"]

Projection = Literal["norm-sub", "simplex", "em"]


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Estimated shares of values among respondents.

    Attributes:
        mechanism: the mechanism of the reports; None when several were combined.
        frequencies: a share for each value.
        standard_error: of each raw share, from the noise (and, where levels were combined, from sampling). A
            projection moves all shares together no farther from the truth (it is one point of the simplex), so for
            projected shares it is an upper bound on average.
        interval: lower and upper ends, each with `confidence` individually: all shares that the test does not reject
            (`Spread`). Projected ones are cut to [0, 1].
        confidence: of each interval.
        n: reports counted.
        refused: reports refused.
        raw: True for unbiased shares, which may be negative; False after a projection.
        projection: its method.
        values: the values that the shares belong to; None for the whole domain in order.
        private: False if randomness was seeded.
        most: the most options a person may choose, if the shares are of sets: they need not add up to 1 then.
        spread: the law of estimates around true shares, from which errors and intervals follow.
    """

    mechanism: Oracle | None
    frequencies: Floats
    standard_error: Floats
    interval: tuple[Floats, Floats]
    confidence: float
    n: int
    refused: int = 0
    raw: bool = True
    projection: Projection | None = None
    values: NDArray[np.int64] | None = None
    private: bool = True
    most: int | None = None
    spread: Spread | None = field(default=None, repr=False)
    _likelihood: Callable[[], Likelihood | None] | None = field(default=None, repr=False)

    @property
    def counts(self) -> Floats:
        """Estimated numbers of people."""
        return self.frequencies * self.n

    def projected(self, method: Projection = "norm-sub") -> "Estimate":
        """Return non-negative shares that add up to 1, marked `raw=False`. They are biased, with less error.

        Shares of sets are instead at most 1 each and together at most `most`.

        Args:
            method: `"norm-sub"`, the nearest such shares (Wang et al. 2020); `"simplex"`, the nearest when each
                distance is measured in standard errors; `"em"`, the most likely ones given the table of counts.
        """
        if not self.raw:
            raise BadInput("these shares are projected already. Project the raw estimate.")
        if self.values is not None:
            raise BadInput("a projection needs the shares of the whole domain: only then do they add up to 1.")
        shares = self._projected(method)
        low, high = (np.clip(end, 0.0, 1.0) for end in self.interval)
        ends = np.minimum(low, shares), np.maximum(high, shares)
        return replace(self, frequencies=shares, interval=ends, raw=False, projection=method)

    def _projected(self, method: Projection) -> Floats:
        if self.most is not None:
            if method != "norm-sub":
                raise BadInput("shares of sets are projected with 'norm-sub'.")
            return capped(self.frequencies, self.most)
        if method == "norm-sub":
            return norm_sub(self.frequencies)
        if method == "simplex":
            return simplex(self.frequencies, self.standard_error**2)
        if method == "em":
            model = self._likelihood() if self._likelihood else None
            if model is None:
                raise BadInput("these counts have no likelihood to climb. Use 'norm-sub' or 'simplex'.")
            return em(model, norm_sub(self.frequencies))
        raise BadInput(f"a projection is 'norm-sub', 'simplex' or 'em', got {method!r:.40}.")

    def require_private(self) -> "Estimate":
        """Return this estimate, or raise if its noise was seeded and so not private."""
        if not self.private:
            raise NotPrivate("these reports were drawn from a seeded source: for lessons and tests only.")
        return self


def estimate(
    mechanism: Oracle, counts: Counts, confidence: Number = "0.95", values: ArrayLike | None = None
) -> Estimate:
    """Estimate unbiased shares with standard errors and intervals.

    Args:
        mechanism: the public facts.
        counts: of reports of that mechanism.
        confidence: of each interval individually.
        values: the values to estimate; default the whole domain.
    """
    if not isinstance(counts, Counts) or counts.mechanism != mechanism:
        raise BadInput("these are not counts of this mechanism's reports. Make them with mechanism.aggregate().")
    if not counts.n:
        raise BadInput("no report was counted, so there is nothing to estimate.")
    wanted = None if values is None else _wanted(values, mechanism.domain)
    named, shares = frequencies(mechanism, counts.table, counts.n, wanted)
    spread = _spread(mechanism, counts, shares, named)
    return Estimate(
        mechanism=mechanism,
        frequencies=shares,
        standard_error=spread.error(shares),
        interval=spread.interval(shares, confidence),
        confidence=float(1 - confidence_left(confidence)),
        n=counts.n,
        refused=counts.refused,
        values=named,
        private=counts.private,
        most=getattr(mechanism, "most", None),
        spread=spread,
        _likelihood=lambda: likelihood(mechanism, counts.table, counts.n),
    )


def _spread(mechanism: Oracle, counts: Counts, shares: Floats, values: NDArray[np.int64] | None) -> Spread:
    """Return the law of these estimates; for heavy hitters, of the people asked at the last level."""
    if not counts.kept:
        return spread_of(mechanism, counts.table, counts.n, shares, values)
    levels = np.uint64(mechanism.levels)  # type: ignore[attr-defined]  # only heavy hitters keep reports
    people = max(1, int(np.count_nonzero(counts.table % levels == levels - np.uint64(1))))
    return spread_of(mechanism, counts.table, people, shares, values).asking(people / max(people, counts.n))


def _wanted(values: ArrayLike, domain: int) -> NDArray[np.int64]:
    codes = np.atleast_1d(np.asarray(values))
    if codes.dtype.kind not in "iu" or not ((codes >= 0) & (codes < domain)).all():
        raise BadInput(f"values are whole numbers from 0 to {domain - 1}.")
    return codes.astype(np.int64).ravel()
