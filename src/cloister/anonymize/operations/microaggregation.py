"""Micro-aggregation: groups of at least k similar rows, each value replaced by the mean of its group.

MDAV (maximum distance to average vector; Domingo-Ferrer and Torra 2005) takes the row farthest from the centre and the
row farthest from that one, and groups each with its k − 1 nearest rows, until fewer than 3k rows are left. Every group
has k rows except the last, which has k to 2k − 1. It takes about n/2k rounds of three passes over the rest of the rows,
O(n²·d/k) for n rows and d columns. For one column the optimum is found in O(n·k) after sorting (Hansen and Mukherjee
2003): its groups are runs of the sorted values of k to 2k − 1 rows.

Falls to: `attack.tables.scored_linkage`, since a group's mean is near its rows; `attack.tables.homogeneity` in groups
that are alike.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cloister.anonymize.operations.operated import (
    Floats,
    Integers,
    Operated,
    from_numbers,
    read,
    to_numbers,
    with_column,
)
from cloister.privacy.errors import BadNumber

__all__ = ["Microaggregated", "mdav", "microaggregate", "microaggregate_column", "optimal_runs"]

Selection = npt.NDArray[np.bool_]
_NOTE = (
    "Rows of a group are equal in these columns only; others may still tell them apart, and the sensitive values of a "
    "group may all be equal. Groups move when one row changes, so this is not differentially private, and the means "
    "are not a private release."
)


@dataclass(frozen=True)
class Microaggregated(Operated):
    """Rows after micro-aggregation.

    Attributes:
        groups: the group of each row of `rows`, from 0.
        loss: share of the standardised variance within groups, from 0 (nothing lost) to 1 (all lost).
    """

    groups: Integers
    loss: float


def microaggregate(rows: object, columns: str | Iterable[str], k: int) -> Microaggregated:
    """Replace numbers by the means of groups of at least k rows, made by MDAV on standardised columns.

    Every combination of values in these columns then occurs at least k times. Rows are grouped with rows that have
    NULLs in the same columns. Where fewer than k rows share such a pattern, all of these cells are set to NULL; if
    fewer than k rows are NULL throughout, those rows are dropped.

    Args:
        rows: the table.
        columns: columns of numbers, dates or timestamps. Means are rounded to the column's type.
        k: smallest size of a group.

    Raises:
        BadNumber: k is below 2 or above the number of rows.

    >>> microaggregate({"salary": [10, 12, 90, 94]}, "salary", 2).rows.to_pydict()
    {'salary': [11, 11, 92, 92]}
    """
    return _microaggregate(rows, columns, k, mdav, "MDAV")


def microaggregate_column(rows: object, column: str, k: int) -> Microaggregated:
    """Replace the numbers of one column by the means of the optimal groups: the least squared error for this k.

    See `microaggregate` for the options, NULL and errors.

    >>> microaggregate_column({"age": [1, 2, 3, 10, 11]}, "age", 2).rows.to_pydict()
    {'age': [2, 2, 2, 10, 10]}
    """
    return _microaggregate(rows, [column], k, lambda points, size: optimal_runs(points[:, 0], size), "the optimum")


def _microaggregate(
    rows: object, columns: str | Iterable[str], k: int, grouping: Callable[[Floats, int], Integers], name: str
) -> Microaggregated:
    table, names = read(rows, columns)
    if isinstance(k, bool) or not isinstance(k, int) or k < 2:
        raise BadNumber("k is a whole number, 2 or more.")
    if k > table.num_rows:
        raise BadNumber(f"k = {k} is greater than the number of rows. Choose a smaller k.")
    values = np.column_stack([to_numbers(table, column) for column in names])
    values, suppressed, dropped = _patterns(values, k)
    table, values = table.filter(pa.array(~dropped)), values[~dropped]
    centred = values - _means(values)
    spread = np.sqrt(_means(centred**2))
    points = centred / np.where(spread > 0, spread, 1.0)
    groups = _groups(points, k, grouping)
    loss = min(1.0, _within(points, groups) / max(float(np.nansum(points**2)), 1e-300))
    means = _group_means(values, groups)
    log = []
    for position, column in enumerate(names):
        replaced = from_numbers(means[:, position], table.column(column).type)
        count = len(replaced) - replaced.null_count
        log.append(
            f"Column {column} micro-aggregated by {name} at k = {k}: {count:,} cells "
            f"in {groups.max(initial=-1) + 1:,} groups, {int(suppressed[:, position].sum()):,} cells suppressed."
        )
        table = with_column(table, column, replaced)
    if dropped.any():
        log.append(f"{int(dropped.sum()):,} rows suppressed: their pattern of NULLs occurs in fewer than k rows.")
    log.append(f"Information loss of the {len(names)} columns: {loss:.3f} of the standardised variance.")
    return Microaggregated(table, tuple(log), _NOTE, groups, loss)


def _means(values: Floats) -> Floats:
    known = ~np.isnan(values)
    return np.asarray(np.where(known, values, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))


def _patterns(values: Floats, k: int) -> tuple[Floats, Selection, Selection]:
    """Set rows of rare patterns of NULL to NULL; return values, suppressed cells and dropped rows."""
    gone = np.isnan(values)
    _, positions, counts = np.unique(gone, axis=0, return_inverse=True, return_counts=True)
    rare = counts[positions.ravel()] < k
    suppressed = ~gone & rare[:, None]
    values = np.where(suppressed, np.nan, values)
    empty = np.asarray(np.isnan(values).all(axis=1))
    return values, suppressed, empty & (empty.sum() < k)


def _groups(points: Floats, k: int, grouping: Callable[[Floats, int], Integers]) -> Integers:
    """Group rows within each pattern of NULL; rows without any value are one group."""
    gone = np.isnan(points)
    patterns, positions = np.unique(gone, axis=0, return_inverse=True)
    groups = np.zeros(len(points), dtype=np.int64)
    start = 0
    for position, pattern in enumerate(patterns):
        members = np.flatnonzero(positions.ravel() == position)
        part = np.zeros(len(members), np.int64) if pattern.all() else grouping(points[members][:, ~pattern], k)
        groups[members] = start + part
        start += int(part.max()) + 1
    return groups


def _group_means(values: Floats, groups: Integers) -> Floats:
    count = int(groups.max(initial=-1)) + 1
    sizes = np.maximum(np.bincount(groups, minlength=count), 1)
    columns = [np.bincount(groups, weights=column, minlength=count) / sizes for column in values.T]
    return np.column_stack(columns)[groups]


def _within(points: Floats, groups: Integers) -> float:
    return float(np.nansum((points - _group_means(points, groups)) ** 2))


def mdav(points: Floats, k: int) -> Integers:
    """Group rows of numbers by MDAV.

    Args:
        points: a row for each record, without NaN, standardised as wanted.
        k: smallest size of a group; there are at least k rows.

    Returns:
        The group of each row, from 0: k rows each, the last one k to 2k − 1.
    """
    groups = np.zeros(len(points), dtype=np.int64)
    # The rows that are left are the first ones of two arrays; a grouped row is overwritten by one from the end.
    left, index = np.ascontiguousarray(points.T.astype(float)), np.arange(len(points))
    count, number, total = len(points), 0, points.sum(axis=0, dtype=float)

    def distances(point: Floats) -> Floats:
        squares: Floats = np.square(left[0, :count] - point[0])
        for axis in range(1, len(left)):
            squares += np.square(left[axis, :count] - point[axis])
        return squares

    def take(from_centre: Floats) -> None:
        nonlocal count, number, total
        nearest = np.argpartition(from_centre, k - 1)[:k] if count > k else np.arange(count)
        groups[index[nearest]] = number
        total = total - left[:, nearest].sum(axis=1)
        holes = nearest[nearest < count - k]
        kept = np.setdiff1d(np.arange(count - k, count), nearest, assume_unique=True)
        left[:, holes], index[holes] = left[:, kept], index[kept]
        count, number = count - k, number + 1

    while count >= 3 * k:
        farthest = left[:, distances(total / count).argmax()].copy()
        from_farthest = distances(farthest)
        opposite = left[:, from_farthest.argmax()].copy()
        take(from_farthest)
        take(distances(opposite))
    if count >= 2 * k:
        centre = left[:, :count].mean(axis=1)
        take(distances(left[:, distances(centre).argmax()].copy()))
    groups[index[:count]] = number
    return groups


def optimal_runs(values: Floats, k: int) -> Integers:
    """Group numbers so that the squared distances to the group means are least, with at least k in a group.

    An optimal group is a run of k to 2k − 1 sorted values, so the best groups of the first j values end with such a
    run. The last k positions do not depend on each other and are computed at once.

    Args:
        values: at least k numbers without NaN.
        k: smallest size of a group.

    Returns:
        The group of each value, from 0 in ascending order.
    """
    count, order = len(values), np.argsort(values, kind="stable")
    ordered = values[order] - values.mean()
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    squares = np.concatenate([[0.0], np.cumsum(ordered**2)])
    best, begin = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=np.int64)
    best[0] = 0.0
    sizes = np.arange(k, 2 * k)
    for first in range(k, count + 1, k):
        ends = np.arange(first, min(first + k, count + 1))[:, None]
        starts = ends - sizes[None, :]
        clean = np.maximum(starts, 0)
        error = squares[ends] - squares[clean] - (sums[ends] - sums[clean]) ** 2 / sizes
        costs = np.where(starts >= 0, best[clean] + np.maximum(error, 0), np.inf)
        choice = costs.argmin(axis=1)
        best[ends[:, 0]] = costs[np.arange(len(ends)), choice]
        begin[ends[:, 0]] = ends[:, 0] - sizes[choice]
    cuts, end = [], count
    while end > 0:
        end = int(begin[end])
        cuts.append(end)
    groups = np.empty(count, dtype=np.int64)
    groups[order] = np.searchsorted(np.array(cuts[::-1]), np.arange(count), side="right") - 1
    return groups
