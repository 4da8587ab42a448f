"""Values of l-diversity, t-closeness, (alpha, k) and beta-likeness of one sensitive column.

Every function takes the counts of values in each class (`Cells`) and returns one number per class; values that do not
occur in a class are never listed, so the work grows with the pairs that occur, not with classes times values.

p is the distribution in a class, q the one in the whole table (or a reference distribution).

    t, equal distance      (1/2) Σ |p - q|, which is also the total variation
    t, ordered             Σ_i |Σ_{j ≤ i} (p_j - q_j)| / (m - 1), for m values in their order (Li et al. 2007)
    t, hierarchical        the mean over the levels of the tree, leaves to children of the root, of the total
                           variation between nodes of the level; equal to Σ_N height(N)/H min(pos_N, neg_N)
    KL                     Σ p ln(p / q) of a class from the table; the reverse, Σ q ln(q / p), is infinite where a
                           class lacks a value
    beta, basic            max (p - q) / q over values more frequent in the class (Cao and Karras 2012)
    beta, enhanced         the same if also (p - q) / q ≤ -ln q for every value, infinite otherwise
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cloister.anonymize.checking.classes import Cells, Floats
from cloister.anonymize.checking.columns import Integers

__all__ = ["Measures", "measure"]


@dataclass(frozen=True, slots=True)
class Measures:
    """Values of one sensitive column, and the number of the class that decides each.

    Attributes:
        worst: for each name, the value over all classes and the class that decides it.
        recursive: for l = 1, 2, …, the largest r_1 / (r_l + … + r_m) and its class; further ones are infinite.
        few: the class with the fewest values, which decides recursive diversity beyond that number.
        alphas: for each value, its largest frequency in a class, and that class (-1 if it does not occur).
    """

    worst: Mapping[str, tuple[float, int]]
    recursive: list[tuple[float, int]]
    few: int
    alphas: Floats
    alpha_classes: Integers


def measure(
    cells: Cells,
    q: Floats,
    order: Integers | None = None,
    levels: list[Integers] | None = None,
    domain: int = 0,
    null: int | None = None,
) -> Measures:
    """Return all values of a sensitive column.

    Args:
        cells: the counts in each class.
        q: for each value, its share in the table or in a reference population.
        order: for each value, its position in the order; None if there is none.
        levels: for each level of a hierarchy from the leaves, the node of each value; None if there is none.
        domain: number of positions of the order.
        null: the number of NULL among the values, which distinct l does not count; None if it does not occur.
    """
    starts, counts = cells.starts, cells.counts.astype(np.float64)
    sizes = np.add.reduceat(counts, starts)
    lengths = np.diff(np.append(starts, len(counts)))
    p = counts / np.repeat(sizes, lengths)
    share = q[cells.values]
    top = np.maximum.reduceat(counts, starts) / sizes
    entropy = np.add.reduceat(-p * np.log(p), starts)
    equal = _variation(p, share, starts)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(p / share)
        kl = np.maximum(np.add.reduceat(p * ratio, starts), 0.0)
        gain = p / share - 1
        reverse = np.maximum(np.add.reduceat(-share * np.where(share > 0, ratio, 0.0), starts), 0.0)
        beyond = gain > -np.log(share) + 1e-12
    shared = np.add.reduceat((share > 0).astype(np.int64), starts)
    reverse[shared < np.count_nonzero(q)] = np.inf
    beta = np.maximum(np.maximum.reduceat(gain, starts), 0.0)
    enhanced = np.where(np.logical_or.reduceat(beyond, starts), np.inf, beta)
    per_class = {
        "frequency_l": -1 / top, "entropy_l": -np.exp(entropy), "t_equal": equal, "kl": kl, "kl_reverse": reverse,
        "alpha": top, "beta": beta, "beta_enhanced": enhanced,
    }  # fmt: skip
    if order is not None:
        per_class["t_ordered"] = _ordered(cells, q, order, domain)
    if levels is not None:
        per_class["t_hierarchical"] = _hierarchical(cells, p, q, levels, equal)
    few = int(np.argmin(lengths))
    worst = {name: _largest(values) for name, values in per_class.items()}
    worst = {name: (abs(value), number) for name, (value, number) in worst.items()}
    present = lengths if null is None else np.add.reduceat((cells.values != null).astype(np.int64), starts)
    fewest = int(np.argmin(present))
    worst["distinct_l"] = float(present[fewest]), fewest
    alphas, alpha_classes = _alphas(cells, p, len(q))
    return Measures(worst, _recursive(cells, sizes, int(lengths[few])), few, alphas, alpha_classes)


def _largest(values: Floats) -> tuple[float, int]:
    number = int(np.argmax(values))
    return float(values[number]), number


def _variation(p: Floats, share: Floats, starts: Integers) -> Floats:
    """Return total variations. Values that a class lacks contribute their whole share."""
    excess: Floats = np.add.reduceat(np.maximum(p - share, 0.0), starts)
    return excess  # (1/2) Σ |p - q| is the sum of the positive differences, since both sum to 1


def _ordered(cells: Cells, q: Floats, order: Integers, domain: int) -> Floats:
    """Return ordered distances.

    Between two values that follow each other in a class its cumulative share is constant, and that of the table grows:
    the sum over such a stretch is split where the two cross.
    """
    if domain < 2:
        return np.zeros(len(cells.starts))
    shares = np.zeros(domain)
    np.add.at(shares, order, q)
    cumulative = np.cumsum(shares)
    sums = np.concatenate(([0.0], np.cumsum(cumulative)))  # sums[b] - sums[a]: cumulative shares of positions a … b - 1
    position, counts, starts = order[cells.values], cells.counts, cells.starts
    if np.any(np.diff(position)[np.diff(cells.classes) == 0] < 0):
        sorting = np.argsort(cells.classes * domain + position, kind="stable")
        position, counts = position[sorting], counts[sorting]
    lasts = np.append(starts[1:], len(counts)) - 1
    running = np.cumsum(counts)  # integers: no rounding over many classes
    below_class = (running - counts)[starts]
    lengths = lasts - starts + 1
    level = (running - np.repeat(below_class, lengths)) / np.repeat(running[lasts] - below_class, lengths)
    ends = np.append(position[1:], domain)
    ends[lasts] = domain
    split = np.clip(np.searchsorted(cumulative, level, side="right"), position, ends)
    below = level * (split - position) - (sums[split] - sums[position])
    above = (sums[ends] - sums[split]) - level * (ends - split)
    total = np.add.reduceat(below + above, starts) + sums[position[starts]]
    distances: Floats = np.maximum(total, 0.0) / (domain - 1)
    return distances


def _hierarchical(cells: Cells, p: Floats, q: Floats, levels: list[Integers], equal: Floats) -> Floats:
    """Return hierarchical distances. The first level holds the values themselves."""
    total = equal.copy()
    for nodes in levels[1:]:
        width = int(nodes.max()) + 1
        shares = np.bincount(nodes, weights=q, minlength=width)
        keys = cells.classes * width + nodes[cells.values]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        classes = keys[firsts] // width
        starts = np.flatnonzero(np.concatenate(([True], classes[1:] != classes[:-1])))
        total += _variation(np.add.reduceat(p[order], firsts), shares[keys[firsts] % width], starts)
    return total / len(levels)


def _recursive(cells: Cells, sizes: Floats, fewest: int) -> list[tuple[float, int]]:
    """Return the largest r_1 / (r_l + … + r_m) for l = 1 … the fewest values of a class."""
    if fewest == 1:
        return [_largest(np.maximum.reduceat(cells.counts, cells.starts) / sizes)]
    # Sorted by class, then by falling count, in one key: many times faster than a sort by two columns.
    most = int(cells.counts.max()) + 1
    keys = np.sort(cells.classes * most + (most - 1 - cells.counts))
    counts = (most - 1 - keys % most).astype(np.float64)
    first, tail, bounds = counts[cells.starts], sizes.copy(), []
    for level in range(fewest):
        bounds.append(_largest(first / tail))
        tail = tail - counts[cells.starts + level]
    return bounds


def _alphas(cells: Cells, p: Floats, values: int) -> tuple[Floats, Integers]:
    """Return for each value its largest frequency, and the first class that has it."""
    alphas, classes = np.zeros(values), np.full(values, -1, dtype=np.int64)
    np.maximum.at(alphas, cells.values, p)
    deciding = np.flatnonzero(p == alphas[cells.values])[::-1]
    classes[cells.values[deciding]] = cells.classes[deciding]
    return alphas, classes
