"""Count-mean sketch, at the collector: a table of rows and buckets, read at each value's bucket."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats
from cloister.local.collector.counts import frequencies, tally, valid
from cloister.local.collector.spread import Spread, spread_of
from cloister.local.collector.unary import columns, no_spare_bits
from cloister.local.mechanisms.sketch import ROW_BYTES, CountMeanSketch
from cloister.privacy.errors import BadInput

__all__: list[str] = []

# A domain up to this size is estimated as a whole; of a larger one, the values must be named.
_LISTED = 1 << 20


@valid.register
def _valid(mechanism: CountMeanSketch, data: NDArray[Any]) -> NDArray[np.bool_]:
    return no_spare_bits(data, mechanism.buckets) & (_row(data) < mechanism.rows)


@tally.register
def _counts(mechanism: CountMeanSketch, data: NDArray[Any]) -> NDArray[np.int64]:
    """For each row: its bits' counts, and in the last column how many reports it had."""
    table = np.zeros((mechanism.rows, mechanism.buckets + 1), dtype=np.int64)
    rows = _row(data)
    table[:, -1] = np.bincount(rows, minlength=mechanism.rows)
    order = np.argsort(rows.astype(np.uint16), kind="stable")  # sixteen bits are sorted in two passes
    ends = np.cumsum(table[:, -1])
    for row in np.flatnonzero(table[:, -1]).tolist():
        here = np.take(data, order[ends[row] - table[row, -1] : ends[row]], axis=0)
        table[row, :-1] = columns(here[:, ROW_BYTES:], mechanism.buckets)
    return table


@frequencies.register
def _shares(
    mechanism: CountMeanSketch, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    if values is None and mechanism.domain > _LISTED:
        raise BadInput(f"a domain of {mechanism.domain:,} values is not listed. Name the values to estimate.")
    named = np.arange(mechanism.domain) if values is None else values
    p, q, meet = float(mechanism.p), float(mechanism.q), 1 / mechanism.buckets
    held = (table[:, :-1] - table[:, -1:] * q) / (p - q)
    total = np.zeros(len(named))
    for row in range(mechanism.rows):
        total += held[row, mechanism.hashed(row, named)]
    # A value's bucket holds its own people and, on average, 1/buckets of everybody else.
    return values, np.asarray((total / people - meet) / (1 - meet))


def _row(data: NDArray[Any]) -> NDArray[np.int64]:
    return np.ascontiguousarray(data[:, :ROW_BYTES]).view("<u2").ravel().astype(np.int64)


@spread_of.register
def _spread(
    mechanism: CountMeanSketch, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    """The variance is a straight line in a value's own share, but for those who meet it together: see `variance`.

    In a row where all of a frequent value's people meet it, they move its estimate at once, by a step of their own.
    """
    likely = np.clip(shares, 0.0, 1.0)
    first, last = (mechanism.variance(np.full(1, share), n)[0] for share in (0.0, 1.0))
    together = mechanism.variance(likely, n) - (first + (last - first) * likely)
    p, q, meet = float(mechanism.p), float(mechanism.q), 1 / mechanism.buckets
    step = np.full(len(shares), 1 / (n * (p - q)) + likely.max() / mechanism.rows) / (1 - meet)
    return Spread(n, first + np.maximum(together, 0.0), np.full(len(shares), last - first), step)
