"""Coarser cells: merge cells too light to be distinguished from noise.

    grains = grains_of(domain, singles)         # the cells that a model distinguishes, from noisy one-way marginals
    ladder = ladder_of(axis, weights)           # ever coarser versions of a column: at most 16, 8, 4, 2 groups of cells

A marginal of two columns with 32 cells each has a thousand cells, each with noise; in groups of eight by eight it has
sixty-four, and little is lost where neighbours are similar. Candidate marginals therefore come in several resolutions,
and selection weighs the information of each against its noise.

Privacy: everything follows from released counts.
"""

import math
from collections.abc import Sequence

import numpy as np

from cloister.synth.domain.axis import Axis, Cells
from cloister.synth.domain.domain import Domain
from cloister.synth.measure.marginals import Floats, NoisyMarginal, merged_counts
from cloister.synth.model.inference import Grain

__all__ = ["grain_marginal", "grains_of", "ladder_of", "most_grains", "nonnegative", "smoothed"]

_GROUPS = (16, 8, 4, 2)
_PAIR_CELLS = 8_000_000  # of all pairs of a tree together
_SHIFTS = 1024  # at most, of columns with more cells
_CUT = 2.0  # standard errors above which a difference is kept


def nonnegative(counts: Floats, total: float) -> Floats:
    """Project counts onto the simplex: the nearest nonnegative counts with the given total."""
    # Shifting all counts does not change the result: so the first one is certainly kept, however large the noise is.
    counts = counts - counts.max()
    falling = np.sort(counts)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(falling) + 1)
    last = int(np.flatnonzero(falling - excess > 0)[-1])
    return np.asarray(np.maximum(counts - excess[last], 0.0))


def smoothed(axis: Axis, counts: Floats, sigma: float) -> Floats:
    """Smooth the noisy counts of an ordered column: remove differences no larger than the noise.

    Haar wavelets at every shift, averaged (Coifman & Donoho 1995): steps and peaks above the noise stay, and other
    neighbours are set to their mean. Neighbours are similar in rows per value, not in rows per bin: among bins of
    nearly the usual width, wider ones hold more. Columns without an order are unchanged.
    """
    if not axis.ordered or axis.known < 4:
        return counts
    width = axis.widths / np.median(axis.widths)
    width = np.where((width >= 0.5) & (width <= 2), width, 1.0)
    length = 1 << (axis.known - 1).bit_length()
    padded = np.zeros(length)
    padded[: axis.known] = counts[: axis.known] / width
    total, shifts = np.zeros(length), range(0, length, max(1, length // _SHIFTS))
    for shift in shifts:
        total += np.roll(_haar(np.roll(padded, shift), _CUT * sigma), -shift)
    answer = counts.copy()
    answer[: axis.known] = (total / len(shifts))[: axis.known] * width
    return answer


def _haar(values: Floats, cut: float) -> Floats:
    """Set orthonormal Haar coefficients below the cut to zero."""
    if len(values) == 1:
        return values
    half = math.sqrt(0.5)
    sums, differences = (values[0::2] + values[1::2]) * half, (values[0::2] - values[1::2]) * half
    details = np.where(np.abs(differences) > cut, differences, 0.0)
    coarse = _haar(sums, cut)
    answer = np.empty_like(values)
    answer[0::2], answer[1::2] = (coarse + details) * half, (coarse - details) * half
    return answer


def grains_of(domain: Domain, singles: Sequence[NoisyMarginal], total: float, least: float) -> tuple[Grain, ...]:
    """Merge cells of each column until each group holds at least `least` standard errors of rows.

    Columns with structural zeros are unchanged, so that the zeros hold. No other column has more cells than leaves room
    for a pair of each (`most_grains`): beyond that, the lightest cells are merged.
    """
    fixed = {column for zero in domain.zeros for column in zero.positions}
    most, grains = most_grains(len(domain.shape)), []
    for index, (axis, single) in enumerate(zip(domain.modelled, singles, strict=True)):
        if index in fixed:
            grains.append(Grain.whole(axis.size))
            continue
        counts = nonnegative(smoothed(axis, single.counts, float(np.mean(single.sigma))), total)
        heavy = least * float(np.mean(single.sigma))
        groups = _gathered(axis, counts, heavy)
        while int(groups.max()) >= most:
            heavy = max(2 * heavy, total / axis.size)
            groups = _gathered(axis, counts, heavy)
        grains.append(_grain(counts, groups))
    return tuple(grains)


def most_grains(columns: int) -> int:
    """Return the maximum number of cells of a model's column, so that a tree of pairs over all columns fits."""
    return max(16, math.isqrt(_PAIR_CELLS // max(columns - 1, 1)))


def _gathered(axis: Axis, counts: Floats, least: float) -> Cells:
    """Return the group of each cell: light neighbours merged, or all light cells if they have no order."""
    groups = np.zeros(axis.size, dtype=np.int64)
    if not axis.ordered:
        heavy = counts[: axis.known] >= least
        groups[: axis.known] = np.where(heavy, np.cumsum(heavy) - 1, heavy.sum())
    else:
        group, weight = 0, 0.0
        for i in range(axis.known):
            if weight > 0 and (weight >= least or counts[i] >= least):
                group, weight = group + 1, 0.0
            groups[i] = group
            weight += max(counts[i], 1e-9)
    if axis.size > axis.known:  # a missing value is similar to no neighbour
        groups[axis.known] = groups[: axis.known].max() + 1
    return _in_order(groups)


def _in_order(groups: Cells) -> Cells:
    """Renumber groups by first occurrence: cells that are all distinct stay in place."""
    _, first, member = np.unique(groups, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    return number[member]


def _grain(counts: Floats, groups: Cells) -> Grain:
    totals = np.bincount(groups, counts)
    width = np.bincount(groups)
    shares = np.where(totals[groups] > 0, counts / np.where(totals > 0, totals, 1.0)[groups], 1.0 / width[groups])
    return Grain(groups, shares)


def ladder_of(axis: Axis, grain: Grain, weights: Floats) -> list[Cells]:
    """Build ever coarser groups of a column's finest cells, each made of groups of the level before."""
    known_groups = grain.size - (1 if axis.size > axis.known else 0)
    ladder: list[Cells] = []
    groups = np.arange(grain.size)
    for most in _GROUPS:
        if int(groups[:known_groups].max()) + 1 <= most:
            ladder.append(groups)
            continue
        totals = np.asarray(np.bincount(groups[:known_groups], weights[:known_groups]), dtype=np.float64)
        coarse = _neighbours(totals, most) if axis.ordered else _heaviest(totals, most)
        groups = groups.copy()
        groups[:known_groups] = coarse[groups[:known_groups]]
        groups[known_groups:] = groups[:known_groups].max() + 1
        ladder.append(groups)
    return ladder


def _neighbours(totals: Floats, most: int) -> Cells:
    """Merge the two neighbouring groups with the smallest total weight, until few enough are left."""
    groups = [[i] for i in range(len(totals))]
    weights = list(totals)
    while len(groups) > most:
        i = int(np.argmin(np.add(weights[:-1], weights[1:])))
        groups[i : i + 2] = [groups[i] + groups[i + 1]]
        weights[i : i + 2] = [weights[i] + weights[i + 1]]
    coarse = np.zeros(len(totals), dtype=np.int64)
    for number, group in enumerate(groups):
        coarse[group] = number
    return coarse


def _heaviest(totals: Floats, most: int) -> Cells:
    """Keep the heaviest groups and merge all others."""
    order = np.argsort(-totals, kind="stable")
    coarse = np.zeros(len(totals), dtype=np.int64)
    coarse[order] = np.minimum(np.arange(len(totals)), most - 1)
    return coarse


def grain_marginal(one: NoisyMarginal, grains: Sequence[Grain]) -> NoisyMarginal:
    """Sum a marginal measured in the domain's cells to a model's cells; variances add."""
    merges = tuple(grains[column].cells for column in one.positions)
    spread = merged_counts(np.full(one.counts.shape, float(one.sigma) ** 2), merges)
    return NoisyMarginal(one.positions, merged_counts(one.counts, merges), np.sqrt(spread), (), one.why)
