"""Data swapping: values exchanged between rows of similar rank, or between rows that are near each other.

The values of a column stay the same, as a whole; which row has which is disturbed.

Falls to: `attack.tables.scored_linkage`: swapped values stay near the true ones, and the other columns are exact.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.spatial import cKDTree

from cloister.anonymize.operations.operated import (
    Floats,
    Integers,
    Operated,
    changed_cells,
    codes,
    columns_of,
    generator,
    is_number,
    read,
    to_numbers,
    with_column,
)
from cloister.privacy.errors import BadNumber, BadProbability, BadSchema

__all__ = ["swap_nearest", "swap_ranks"]

_RANKS = (
    "Every value of the column is still published, so an extreme value still shows that somebody has it. A swapped "
    "value is near the true one in rank, so an attacker who knows the reach bounds it. The other columns still link."
)
_NEAREST = (
    "The sensitive values are all published, and rows that were not swapped keep theirs. Where similar rows have equal "
    "values a swap changes nothing; the log counts it. The columns that are not swapped still link."
)


def swap_ranks(
    rows: object,
    columns: str | Iterable[str],
    *,
    reach: float = 0.05,
    rate: float = 1.0,
    random_state: int | None = None,
) -> Operated:
    """Swap values of each column between rows of similar rank, independently for each column.

    The ranks are cut at a random offset into blocks of `reach` times the number of rows, and ranks within a block are
    paired at random: no value moves by more than the reach. Ties are ranked at random. NULL stays in its row.

    Args:
        rows: the table.
        columns: columns of any type with an order: numbers, dates, text, truth values.
        reach: largest difference of ranks, as a share of the values.
        rate: share of the values to swap.
        random_state: a seed for tests and lessons.

    >>> result = swap_ranks({"salary": [10, 20, 30, 40]}, "salary", reach=1, random_state=1)
    >>> sorted(result.rows["salary"].to_pylist())
    [10, 20, 30, 40]
    """
    table, names = read(rows, columns)
    _check_share(reach, "reach")
    _check_share(rate, "rate")
    rng = generator(random_state)
    log = []
    for name in names:
        column = table.column(name)
        order = _ranked(column, rng)
        block = min(len(order), max(2, int(reach * len(order)) + 1))
        first, second = _pairs(len(order), block, rng)
        kept = rng.random(len(first)) < rate
        first, second = order[first[kept]], order[second[kept]]
        source = np.arange(len(column))
        source[first], source[second] = second, first
        swapped = column.take(pa.array(source))
        log.append(
            f"Column {name}: {2 * len(first):,} of {len(column):,} cells swapped with a partner at most {block - 1:,} "
            f"ranks away; {changed_cells(column, swapped):,} cells have another value."
        )
        table = with_column(table, name, swapped)
    return Operated(table, tuple(log), _RANKS)


def _check_share(share: float, name: str) -> None:
    if not 0 < share <= 1:
        raise BadProbability(f"{name} is a share above 0 and at most 1.")


def _ranked(column: pa.ChunkedArray, rng: np.random.Generator) -> Integers:
    """Return the positions of values that are not NULL, in their order; ties in random order."""
    known = np.flatnonzero(column.is_valid().to_numpy())
    shuffled = rng.permutation(known)
    try:
        order = pc.array_sort_indices(column.take(pa.array(shuffled)))
    except pa.ArrowNotImplementedError:
        raise BadSchema(f"values of type {column.type} have no order. Swap numbers, dates or text.") from None
    return np.asarray(shuffled[order.to_numpy()], dtype=np.int64)


def _pairs(count: int, block: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Pair ranks at random within blocks; return the two ranks of each pair."""
    if count < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ranks = np.arange(count)
    offset = int(rng.integers(block)) if block < count else 0
    blocks = (ranks + offset) // block
    order = np.lexsort((rng.random(count), blocks))
    starts = np.searchsorted(blocks, blocks[order])
    leads = ((ranks - starts) % 2 == 0)[:-1] & (blocks[order][1:] == blocks[order][:-1])
    return order[:-1][leads], order[1:][leads]


def swap_nearest(
    rows: object,
    columns: str | Iterable[str],
    by: str | Iterable[str],
    *,
    rate: float = 0.1,
    random_state: int | None = None,
) -> Operated:
    """Swap sensitive values between random rows and their nearest neighbours.

    Half of the rows to swap are drawn at random. Each exchanges its values with the nearest row that is still free, by
    Euclidean distance on standardised numbers, where two different categories (NULL is one) are 1 apart. A row is
    swapped once at most; several columns are exchanged together.

    Args:
        rows: the table.
        columns: the sensitive columns.
        by: the columns that make rows similar: numbers, dates, text, truth values.
        rate: share of the rows to swap.
        random_state: a seed for tests and lessons.
    """
    table, names = read(rows, columns)
    similar = columns_of(table, by)
    if set(names) & set(similar):
        raise BadSchema("a column cannot be swapped and make rows similar at once.")
    _check_share(rate, "rate")
    if table.num_rows < 2:
        raise BadNumber("swapping needs at least two rows.")
    rng = generator(random_state)
    first, second = _nearest_pairs(_points(table, similar), max(1, int(rate * table.num_rows / 2)), rng)
    source = np.arange(table.num_rows)
    source[first], source[second] = second, first
    log = []
    for name in names:
        swapped = table.column(name).take(pa.array(source))
        log.append(
            f"Column {name}: {2 * len(first):,} of {table.num_rows:,} cells swapped with the nearest free row by "
            f"{', '.join(similar)}; {changed_cells(table.column(name), swapped):,} cells have another value."
        )
        table = with_column(table, name, swapped)
    return Operated(table, tuple(log), _NEAREST)


def _points(table: pa.Table, names: Iterable[str]) -> Floats:
    """Return coordinates: numbers divided by their standard deviation, categories as indicators 1 apart."""
    coordinates: list[Floats] = []
    for name in names:
        kind = table.column(name).type
        if is_number(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            values = to_numbers(table, name)
            gone = np.isnan(values)
            known = values[~gone]
            spread = (known.std() if len(known) else 0.0) or 1.0
            centre = known.mean() if len(known) else 0.0
            coordinates.append((np.where(gone, centre, values) - centre)[:, None] / spread)
            if gone.any():
                coordinates.append(gone[:, None].astype(float))
        else:
            positions, values = codes(table, name)
            if len(values) > 200:
                raise BadSchema(f"column {name} has {len(values):,} categories; generalise it to 200 or fewer first.")
            coordinates.append(np.eye(len(values))[positions] / np.sqrt(2))
    return np.hstack(coordinates)


def _nearest_pairs(points: Floats, pairs: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Match random targets with their nearest free rows, in rounds; in each round a row accepts one target."""
    order = rng.permutation(len(points))
    targets, free = order[:pairs], np.sort(order[pairs:])
    # Equal rows would all propose to the same neighbour: a small random offset breaks ties at random.
    points = points + rng.normal(0, 1e-6, points.shape)
    first, second = [], []
    while len(targets):
        _, nearest = cKDTree(points[free]).query(points[targets])
        taken, winners = np.unique(nearest, return_index=True)
        first.append(targets[winners])
        second.append(free[taken])
        targets, free = np.delete(targets, winners), np.delete(free, taken)
    return np.concatenate(first), np.concatenate(second)
