"""Fewer, heavier cells: what is too light to be told from noise is taken together.

    grains = grains_of(domain, singles)         # the cells that a model keeps apart, from noisy counts of every column
    ladder = ladder_of(axis, weights)           # ever coarser versions of a column: at most 16, 8, 4, 2 groups of cells

A marginal of two columns with 32 cells each has a thousand cells, and noise on every one of them; in groups of eight by
eight it has sixty-four, and what is lost is small where neighbours are alike. So candidates to be measured come in
several resolutions, and the choice weighs what each would show against its noise.

Privacy: all of it follows from counts that were released.
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
_CUT = 2.0  # standard errors beyond which a difference is kept


def nonnegative(counts: Floats, total: float) -> Floats:
    """The nearest counts that are not negative and add up to the total (projection onto the simplex)."""
    # The same for counts that are all shifted: so the first one is kept for certain, however large the noise is.
    counts = counts - counts.max()
    falling = np.sort(counts)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(falling) + 1)
    kept = int(np.flatnonzero(falling - excess > 0)[-1])
    return np.asarray(np.maximum(counts - excess[kept], 0.0))


def smoothed(axis: Axis, counts: Floats, sigma: float) -> Floats:
    """Noisy counts of an ordered column with differences that are no larger than the noise levelled out.

    Haar wavelets at every shift, and the mean of all (Coifman & Donoho 1995): steps and peaks that stand out of the
    noise stay, neighbours that do not are given their mean. What is alike in neighbours is how many rows a value has,
    not how many a bin has: of bins that are nearly as wide as the usual one, wider ones hold more. Columns without an
    order are left as they are.
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
    """Orthonormal Haar coefficients below the cut set to zero."""
    if len(values) == 1:
        return values
    half = math.sqrt(0.5)
    sums, differences = (values[0::2] + values[1::2]) * half, (values[0::2] - values[1::2]) * half
    kept = np.where(np.abs(differences) > cut, differences, 0.0)
    coarse = _haar(sums, cut)
    answer = np.empty_like(values)
    answer[0::2], answer[1::2] = (coarse + kept) * half, (coarse - kept) * half
    return answer


def grains_of(domain: Domain, singles: Sequence[NoisyMarginal], total: float, least: float) -> tuple[Grain, ...]:
    """Cells that together hold at least `least` standard errors of rows, for each column.

    Columns of which something never occurs are kept as they are, so that it never does. Of the others none has more
    cells than leaves room for a pair of each (`most_grains`): there the lightest are taken together.
    """
    fixed = {place for zero in domain.zeros for place in zero.places}
    most, grains = most_grains(len(domain.shape)), []
    for place, (axis, single) in enumerate(zip(domain.modelled, singles, strict=True)):
        if place in fixed:
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
    """How many cells a column of a model has at most, so that as many pairs as there are columns can be held."""
    return max(16, math.isqrt(_PAIR_CELLS // max(columns - 1, 1)))


def _gathered(axis: Axis, counts: Floats, least: float) -> Cells:
    """Which group each cell is in: light neighbours together, or all light ones if cells have no order."""
    groups = np.zeros(axis.size, dtype=np.int64)
    if not axis.ordered:
        heavy = counts[: axis.known] >= least
        groups[: axis.known] = np.where(heavy, np.cumsum(heavy) - 1, heavy.sum())
    else:
        group, held = 0, 0.0
        for i in range(axis.known):
            if held > 0 and (held >= least or counts[i] >= least):
                group, held = group + 1, 0.0
            groups[i] = group
            held += max(counts[i], 1e-9)
    if axis.size > axis.known:  # what is missing is like no neighbour
        groups[axis.known] = groups[: axis.known].max() + 1
    return _in_order(groups)


def _in_order(groups: Cells) -> Cells:
    """The same groups, numbered as they first occur: cells that are all kept apart stay where they are."""
    _, first, member = np.unique(groups, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    return number[member]


def _grain(counts: Floats, groups: Cells) -> Grain:
    held = np.bincount(groups, counts)
    width = np.bincount(groups)
    shares = np.where(held[groups] > 0, counts / np.where(held > 0, held, 1.0)[groups], 1.0 / width[groups])
    return Grain(groups, shares)


def ladder_of(axis: Axis, grain: Grain, weights: Floats) -> list[Cells]:
    """Ever coarser groups of a column's finest cells, each made of groups of the one before."""
    known = grain.size - (1 if axis.size > axis.known else 0)
    ladder: list[Cells] = []
    groups = np.arange(grain.size)
    for most in _GROUPS:
        if int(groups[:known].max()) + 1 <= most:
            ladder.append(groups)
            continue
        held = np.asarray(np.bincount(groups[:known], weights[:known]), dtype=np.float64)
        coarse = _neighbours(held, most) if axis.ordered else _heaviest(held, most)
        groups = groups.copy()
        groups[:known] = coarse[groups[:known]]
        groups[known:] = groups[:known].max() + 1
        ladder.append(groups)
    return ladder


def _neighbours(held: Floats, most: int) -> Cells:
    """Join the two neighbouring groups that are lightest together, until few enough are left."""
    groups = [[i] for i in range(len(held))]
    weights = list(held)
    while len(groups) > most:
        i = int(np.argmin(np.add(weights[:-1], weights[1:])))
        groups[i : i + 2] = [groups[i] + groups[i + 1]]
        weights[i : i + 2] = [weights[i] + weights[i + 1]]
    coarse = np.zeros(len(held), dtype=np.int64)
    for number, group in enumerate(groups):
        coarse[group] = number
    return coarse


def _heaviest(held: Floats, most: int) -> Cells:
    """Keep the heaviest groups, take all others together."""
    order = np.argsort(-held, kind="stable")
    coarse = np.zeros(len(held), dtype=np.int64)
    coarse[order] = np.minimum(np.arange(len(held)), most - 1)
    return coarse


def grain_marginal(one: NoisyMarginal, grains: Sequence[Grain]) -> NoisyMarginal:
    """A marginal that was measured in the domain's cells, in those of a model: sums, whose variances add."""
    merges = tuple(grains[place].cells for place in one.places)
    spread = merged_counts(np.full(one.counts.shape, float(one.sigma) ** 2), merges)
    return NoisyMarginal(one.places, merged_counts(one.counts, merges), np.sqrt(spread), (), one.why)
