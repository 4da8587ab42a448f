"""One estimate from people who chose different levels."""

from collections.abc import Sequence
from typing import Literal, cast, overload

import numpy as np

from cloister.local.base.estimate import Estimate
from cloister.local.base.intervals import mixed
from cloister.local.base.mean import MeanEstimate, pooled, uneven
from cloister.local.base.oracle import Floats
from cloister.privacy.errors import BadInput
from cloister.privacy.mechanisms.checks import confidence_left
from cloister.privacy.number import Number

__all__ = ["combine", "selection"]


Weights = Literal["variance", "people"]


@overload
def combine(estimates: Sequence[Estimate], weights: Weights = ..., confidence: Number = ...) -> Estimate: ...
@overload
def combine(estimates: Sequence[MeanEstimate], weights: Weights = ..., confidence: Number = ...) -> MeanEstimate: ...
def combine(
    estimates: Sequence[Estimate] | Sequence[MeanEstimate], weights: Weights = "variance", confidence: Number = "0.95"
) -> Estimate | MeanEstimate:
    """Combine groups that answered at different levels (or with different mechanisms) into one raw estimate.

    Args:
        estimates: raw, over the same domain, one for each level; or raw means of numbers with the same bounds.
        weights: `"variance"`: by the inverse of each level's variance for a rare value: the least error, and unbiased
            if levels were chosen independently of the answers. `"people"`: by the number of people at each level:
            unbiased for all respondents however they chose, at a larger error. `selection` tests for a difference.
        confidence: of each interval.

    Intervals are for all respondents. Where a level's weight exceeds its share of people, they include the sampling
    error of who was in it, as if levels had been assigned at random.

    The weights depend on public facts (levels and the number of people at each), never on the answers: weights that
    depended on the shares would bias them.

    Privacy: post-processing. Publish the number of people at each level only in aggregate: the choice of a more private
        level may itself reveal something (spec ERR-17).
    """
    if estimates and all(isinstance(estimate, MeanEstimate) for estimate in estimates):
        means = _checked_means(cast(Sequence[MeanEstimate], estimates))
        return pooled(means, _weighed(means, weights), confidence)
    groups = _checked(cast(Sequence[Estimate], estimates))
    share = _weighed(groups, weights)
    shares = np.einsum("g,gv->v", share, np.stack([group.frequencies for group in groups]))
    left = float(confidence_left(confidence))
    parts = [group.spread for group in groups if group.spread is not None]
    # Weights by people are for levels that were chosen by the answer: their shares differ.
    alike = weights == "variance"
    spread = mixed(parts, share, uneven(share, [group.n for group in groups]), left, alike=alike)
    return Estimate(
        mechanism=None,
        frequencies=shares,
        standard_error=spread.error(shares),
        interval=spread.interval(shares, confidence),
        confidence=float(1 - confidence_left(confidence)),
        n=sum(group.n for group in groups),
        refused=sum(group.refused for group in groups),
        values=groups[0].values,
        private=all(group.private for group in groups),
        most=groups[0].most,
        spread=spread,
    )


def selection(estimates: Sequence[Estimate] | Sequence[MeanEstimate]) -> float:
    """Return the p value of the difference between levels if answers did not affect the choice of level.

    A chi-squared test for each share (or mean), on the variance that noise and sampling leave; the result is the least
    p value times their number, because the shares of one question are correlated. A small value is a warning.
    """
    from scipy.special import chdtrc  # here, because scipy takes longer to import than this package

    if estimates and all(isinstance(estimate, MeanEstimate) for estimate in estimates):
        numbers = _checked_means(cast(Sequence[MeanEstimate], estimates))
        observed = np.stack([np.atleast_1d(group.mean) for group in numbers])
        spread = np.stack([np.atleast_1d(group.population_error) ** 2 for group in numbers])
    else:
        shares = _checked(cast(Sequence[Estimate], estimates))
        observed = np.stack([group.frequencies for group in shares])
        likely = np.clip(observed.mean(axis=0), 0.0, 1.0)
        spread = np.stack([group.standard_error**2 + likely * (1 - likely) / group.n for group in shares])
    centre = (observed / spread).sum(axis=0) / (1 / spread).sum(axis=0)
    distance = ((observed - centre) ** 2 / spread).sum(axis=0)
    return float(min(1.0, observed.shape[1] * chdtrc(len(observed) - 1, distance).min()))


def _weighed(groups: Sequence[Estimate] | Sequence[MeanEstimate], weights: Weights) -> Floats:
    """Return public weights that add up to 1."""
    if weights == "variance":
        share = np.array([1 / _variance(group) for group in groups])
    elif weights == "people":
        share = np.array([float(group.n) for group in groups])
    else:
        raise BadInput(f"weights are 'variance' or 'people', got {weights!r:.40}.")
    return np.asarray(share / share.sum())


def _variance(group: Estimate | MeanEstimate) -> float:
    assert group.mechanism is not None
    return group.mechanism.mse(group.n)


def _checked(estimates: Sequence[Estimate]) -> list[Estimate]:
    groups = list(estimates)
    if not groups or any(
        not isinstance(group, Estimate) or not group.raw or group.mechanism is None or group.spread is None
        for group in groups
    ):
        raise BadInput("combine raw estimates, one for each level; project the result.")
    if len({(len(group.frequencies), group.values is None, group.most) for group in groups}) > 1:
        raise BadInput("estimates of different domains cannot be combined.")
    named = groups[0].values
    if named is not None and any(not np.array_equal(named, group.values) for group in groups):  # type: ignore[arg-type]
        raise BadInput("estimates of different values cannot be combined.")
    return groups


def _checked_means(estimates: Sequence[MeanEstimate]) -> list[MeanEstimate]:
    groups = list(estimates)
    if any(not group.raw or group.mechanism is None for group in groups):
        raise BadInput("combine raw means, one for each level.")
    if len({group.mechanism.ends for group in groups if group.mechanism}) > 1:
        raise BadInput("means of numbers with different bounds cannot be combined.")
    return groups
