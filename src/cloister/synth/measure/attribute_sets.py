"""Sets of correlated columns, from a noisy correlation matrix.

Agglomerative clustering: each column starts as its own set; the two nearest sets are joined repeatedly, until the
nearest are farther apart than the cut. The distance of columns is 1 - |correlation|.

Privacy: the correlations were released, so the sets are post-processing. (Sets computed from the rows would reveal
private facts: which columns correlate is a fact of the data.)
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np

from cloister.synth.domain.domain import Positions
from cloister.synth.domain.features import Features
from cloister.synth.measure.marginals import Floats
from cloister.synth.measure.moments import GroupMoments

__all__ = ["Linkage", "attribute_sets", "cleared", "correlations", "pooled"]

Linkage = Literal["average", "single", "complete"]
_DOUBT = 1.5
_LINKS: dict[str, Any] = {"average": np.mean, "single": np.min, "complete": np.max}


def pooled(moments: GroupMoments) -> tuple[Floats, Floats]:
    """Return group means and the covariance within groups, clipped to what numbers between -1 and 1 can have."""
    weights = np.maximum(moments.count, 0.0)
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(len(weights), 1 / len(weights))
    group_moments = [moments.means(group) for group in range(len(weights))]
    means = np.array([np.clip(mean, -1.0, 1.0) for mean, _, _ in group_moments])
    covariance = sum(
        weight * (second - np.outer(mean, mean))
        for weight, mean, (_, second, _) in zip(weights, means, group_moments, strict=True)
    )
    covariance = np.asarray(covariance)
    spread = np.clip(np.diag(covariance), 1e-3, 1.0)
    limit = 0.99 * np.sqrt(np.outer(spread, spread))
    covariance = np.clip(covariance, -limit, limit)
    np.fill_diagonal(covariance, spread)
    return means, covariance


def cleared(features: Features, positions: Sequence[int], covariance: Floats, noise: float) -> Floats:
    """Shrink each column pair's covariance by the share that noise explains (positive-part James & Stein 1961).

    Args:
        features: features of the domain.
        positions: the columns.
        covariance: noisy covariance of their features.
        noise: standard deviation of the noise.
    """
    shrunk = covariance.copy()
    indices = _own(features, positions)
    for a, b in combinations(range(len(positions)), 2):
        block = shrunk[np.ix_(indices[a], indices[b])]
        factor = max(0.0, 1 - _DOUBT * block.size * noise**2 / max(float((block**2).sum()), 1e-12))
        shrunk[np.ix_(indices[a], indices[b])] = factor * block
        shrunk[np.ix_(indices[b], indices[a])] = factor * block.T
    return shrunk


def correlations(features: Features, positions: Sequence[int], covariance: Floats) -> Floats:
    """Return the correlation of columns, between 0 and 1: the maximum over their features."""
    spread = np.sqrt(np.diag(covariance))
    absolute = np.abs(covariance / np.outer(spread, spread))
    indices = _own(features, positions)
    strength = np.eye(len(positions))
    for a, b in combinations(range(len(positions)), 2):
        strength[a, b] = strength[b, a] = min(1.0, float(absolute[np.ix_(indices[a], indices[b])].max(initial=0.0)))
    return strength


def _own(features: Features, positions: Sequence[int]) -> list[list[int]]:
    ours = features.of(positions)
    return [[ours.index(number) for number in features.of([column])] for column in positions]


def attribute_sets(strength: Floats, linkage: Linkage, cut: float, largest: int) -> list[Positions]:
    """Return sets of columns, none larger than `largest`.

    Args:
        strength: correlation of every two columns, between 0 and 1.
        linkage: distance of two sets: the mean, the minimum or the maximum over their columns.
        cut: sets farther apart than this are not joined.
        largest: maximum number of columns in a set.
    """
    far = 1.0 - strength
    sets: list[list[int]] = [[column] for column in range(len(far))]
    while True:
        best = _nearest(far, sets, linkage, largest)
        if best is None or best[0] > cut:
            return [tuple(sorted(members)) for members in sets]
        _, a, b = best
        sets[a] += sets.pop(b)


def _nearest(
    far: Floats, sets: Sequence[Sequence[int]], linkage: Linkage, largest: int
) -> tuple[float, int, int] | None:
    best: tuple[float, int, int] | None = None
    for a in range(len(sets)):
        for b in range(a + 1, len(sets)):
            if len(sets[a]) + len(sets[b]) <= largest:
                apart = float(_LINKS[linkage](far[np.ix_(sets[a], sets[b])]))
                if best is None or apart < best[0]:
                    best = (apart, a, b)
    return best
