"""Samples of rows, and a random order of rows.

Falls to: `attack.tables.linkage` for those who are in the sample; `attack.tables.uniqueness` says how many are alone.
"""

import numpy as np
import pyarrow as pa

from cloister.anonymize.operations.operated import Operated, codes, generator, read
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadNumber, BadProbability

__all__ = ["sample", "shuffle"]

_SAMPLE = (
    "A sampled row is published in full: a person who is known to be in the sample, or is unique in the population, "
    "is identified as without sampling. The chance of being sampled is all that protects the others."
)
_SHUFFLE = "Random order hides the position of a row and nothing else."


def sample(
    rows: object,
    *,
    share: float | None = None,
    count: int | None = None,
    by: str | None = None,
    random_state: int | None = None,
) -> Operated:
    """Draw rows without replacement. They keep their order.

    Args:
        rows: the table.
        share: share of the rows to draw; the number of rows is rounded.
        count: in place of `share`: number of rows to draw.
        by: with `share`: draw this share of each value of a column (NULL is a value), rounded for each value.
        random_state: a seed for tests and lessons.

    >>> sample({"age": list(range(100))}, share=0.1, random_state=1).rows.num_rows
    10
    """
    table = to_arrow(rows)
    if (share is None) == (count is None) or (by is not None and share is None):
        raise BadNumber("give either the share or the count of rows; `by` needs a share.")
    if share is not None and not 0 < share <= 1:
        raise BadProbability("share is above 0 and at most 1.")
    if count is not None and not 0 <= count <= table.num_rows:
        raise BadNumber("count is a number of rows, at most those of the table.")
    rng = generator(random_state)
    if by is not None:
        assert share is not None
        read(table, by)
        kept = _stratified(codes(table, by)[0], share, rng)
    else:
        wanted = round(share * table.num_rows) if count is None and share is not None else count
        kept = np.sort(rng.permutation(table.num_rows)[:wanted])
    within = "" if by is None else f" of each value of {by}"
    log = f"{len(kept):,} of {table.num_rows:,} rows sampled at random{within}, without replacement."
    return Operated(table.take(pa.array(kept)), (log,), _SAMPLE)


def _stratified(positions: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    order = np.lexsort((rng.random(len(positions)), positions))
    counts = np.bincount(positions)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
    ranks = np.arange(len(positions)) - starts[positions[order]]
    return np.sort(order[ranks < np.rint(share * counts)[positions[order]]])


def shuffle(rows: object, *, random_state: int | None = None) -> Operated:
    """Put rows into a random order, so that a position does not identify a row.

    >>> sorted(shuffle({"age": [1, 2, 3]}).rows["age"].to_pylist())
    [1, 2, 3]
    """
    table = to_arrow(rows)
    order = generator(random_state).permutation(table.num_rows)
    return Operated(table.take(pa.array(order)), (f"{table.num_rows:,} rows put into random order.",), _SHUFFLE)
