"""Class shares of nodes from noisy counts of every level: post-processing, which costs nothing.

Counts of a node and of its children were released with noise of their own. The best estimates that add up come from
one pass up and one down (Hay et al. 2010); a node's shares are then drawn towards its parent's, the more so the less
its noisy count can say.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Level", "shares"]

_SPREAD = 0.02  # variance of a child's share around its parent's
_LEAST = 0.01


@dataclass(frozen=True, slots=True)
class Level:
    """Noisy counts of the nodes of one level.

    Attributes:
        counts: one row a node, one column a class.
        variance: of the noise on each.
    """

    counts: NDArray[np.float64]
    variance: float


def shares(levels: list[Level]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The class shares and the number of rows of each node of the last level."""
    counts, variances = _consistent(levels)
    found = _within(counts[0] / max(counts[0].sum(), 1.0))
    for level in range(1, len(counts)):
        above = np.repeat(found, 2, axis=0)
        rows = np.maximum(counts[level].sum(axis=1, keepdims=True), 1.0)
        classes = above.shape[1]
        noise = variances[level] * ((1 - above) ** 2 + (classes - 1) * above**2)
        doubt = (above * (1 - above) / rows + noise / rows**2).mean(axis=1, keepdims=True)
        trust = _SPREAD / (_SPREAD + doubt)
        found = _within(above + trust * (counts[level] / rows - above))
    return found, np.maximum(counts[-1].sum(axis=1), 0.0)


def _within(found: NDArray[np.float64]) -> NDArray[np.float64]:
    kept = np.clip(found, _LEAST, 1.0)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))


def _consistent(levels: list[Level]) -> tuple[list[NDArray[np.float64]], list[float]]:
    counts, variances = [levels[-1].counts], [levels[-1].variance]
    for level in reversed(levels[:-1]):
        below, doubt = _pairs(counts[0]).sum(axis=1), 2 * variances[0]
        trust = doubt / (doubt + level.variance)
        counts.insert(0, below + trust * (level.counts - below))
        variances.insert(0, trust * level.variance)
    for i in range(1, len(counts)):
        missing = counts[i - 1] - _pairs(counts[i]).sum(axis=1)
        counts[i] = counts[i] + np.repeat(missing / 2, 2, axis=0)
    return counts, variances


def _pairs(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    return counts.reshape(-1, 2, counts.shape[1])
