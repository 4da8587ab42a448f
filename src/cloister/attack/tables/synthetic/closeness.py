"""Distance to the closest record: compare synthetic rows' distances to real and to held-out rows."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.attack.report.interval import Interval
from cloister.attack.tables.synthetic.coded_rows import CodedColumn, CodedRows, Floats, Integers
from cloister.attack.tables.synthetic.membership import area

__all__ = ["Closeness", "compare_closeness", "closest", "encoded", "width"]


# The distance to the closest row, for tables of mixed columns, by matrix products.
#
# The distance of two rows is the root of the mean, over columns, of: the squared difference of positions between the
# public bounds, or 1 for two different categories, or about 1 if one of the two is missing. It is between 0 and 1.
#
# The negative squared distance of two rows is one inner product: of positions, of one-hot codes, and of their own
# squares beside a 1. A block of distances is therefore a matrix product in single precision, and the closest rows, of
# each row of one table and of each of the other, are its largest entries by row and by column. The distance to the row
# found is then computed exactly; single precision can only have preferred one whose square is about 1e-6 of a column
# larger. A column of more than 256 categories is compared by two public hashes into 64 each, so that two different
# values may count as half equal: an equal row is always found, another may be up to half a column farther than the
# closest.


_BLOCK = 1024
_MOST_WORKERS = 4
_MOST_CODES, _HASHES = 256, 64
_GONE = 0.75  # missing values are in the middle, at this (squared) distance from all others
Progress = Callable[[float, str], None]


def closest(one: CodedRows, other: CodedRows, progress: Progress | None = None) -> tuple[Floats, Floats]:
    """Return for each row of one table the distance to the closest row of the other, and the reverse."""
    if not len(one) or not len(other):
        return np.full(len(one), np.inf), np.full(len(other), np.inf)
    blocks = [slice(i, i + _BLOCK) for i in range(0, len(other), _BLOCK)]
    right = [np.ascontiguousarray(encoded(other, block, mirrored=True).T) for block in blocks]
    near, far = _Best(len(one)), _Best(len(other))
    workers = min(_MOST_WORKERS, os.cpu_count() or 1)
    per_worker = [_Best(len(other)) for _ in range(workers)]
    starts = range(0, len(one), _BLOCK)

    def compare(worker: int, start: int) -> None:
        rows = slice(start, start + _BLOCK)
        left = encoded(one, rows)
        for block, turned in zip(blocks, right, strict=True):
            products = left @ turned
            near.improve(rows, products, block.start)
            per_worker[worker].improve(block, products.T, start)

    with _one_thread_each(), ThreadPoolExecutor(workers) as pool:
        for at in range(0, len(starts), workers):
            if progress is not None:
                progress(at / len(starts), "looking for the closest rows")
            list(pool.map(compare, range(workers), starts[at : at + workers]))
    for each in per_worker:
        better = each.value > far.value
        far.value[better], far.place[better] = each.value[better], each.place[better]
    everyone, everybody = np.arange(len(one)), np.arange(len(other))
    return distances(one, everyone, other, near.place), distances(other, everybody, one, far.place)


def _one_thread_each() -> AbstractContextManager[Any]:
    """Limit linear algebra to one thread: products are small, and threads would mostly wait for each other."""
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        return nullcontext()
    limits: AbstractContextManager[Any] = threadpool_limits(1)
    return limits


class _Best:
    """The largest product of each row so far, and the matching row."""

    def __init__(self, rows: int) -> None:
        self.value = np.full(rows, -np.inf, dtype=np.float32)
        self.place = np.zeros(rows, dtype=np.int64)

    def improve(self, rows: slice, products: NDArray[np.float32], start: int) -> None:
        """Compare with one more block. Few rows improve, so only those are searched."""
        highest = products.max(axis=1)
        better = np.flatnonzero(highest > self.value[rows])
        if len(better):
            self.value[rows][better] = highest[better]
            self.place[rows][better] = start + products[better].argmax(axis=1)


def distances(one: CodedRows, i: Integers, other: CodedRows, j: Integers) -> Floats:
    """Return the distance of row i of one table and row j of the other, for many pairs."""
    total = np.zeros(len(i))
    for column, side in enumerate(one.sides):
        if side.ordered:
            a, b = one.points[i, column], other.points[j, column]
            gone = np.isnan(a), np.isnan(b)
            apart = np.where(gone[0], 0.5, a) - np.where(gone[1], 0.5, b)
            total += apart**2 + _GONE * (gone[0] != gone[1])
        else:
            total += one.codes[i, column] != other.codes[j, column]
    return np.sqrt(total / len(one.sides))


def encoded(rows: CodedRows, chosen: slice, mirrored: bool = False) -> NDArray[np.float32]:
    """Encode rows as vectors whose inner product with mirrored ones is the negative squared distance, times columns."""
    parts: list[Any] = []
    for j, side in enumerate(rows.sides):
        if side.ordered:
            points = rows.points[chosen, j]
            gone = np.isnan(points)
            parts += [np.where(gone, 0.0, points - 0.5) * np.sqrt(2), gone * np.sqrt(2 * _GONE)]
        elif side.size <= _MOST_CODES:
            parts += list(rows.codes[chosen, j] == np.arange(side.size)[:, None])
        else:
            for hashed in np.random.default_rng(side.size).integers(_HASHES, size=(2, side.size)):
                alike = hashed[rows.codes[chosen, j]] == np.arange(_HASHES)[:, None]
                parts += list(alike * np.sqrt(0.5))
    vectors = np.stack([np.asarray(part, dtype=np.float32) for part in parts], axis=1)
    half = -(vectors.astype(np.float64) ** 2).sum(axis=1) / 2
    ends = [np.ones(len(half)), half] if mirrored else [half, np.ones(len(half))]
    return np.concatenate([vectors, np.stack(ends, axis=1).astype(np.float32)], axis=1)


def width(sides: Sequence[CodedColumn]) -> int:
    """Return the number of values that encode a row: the cost of a product of two rows."""
    each = (2 if side.ordered else side.size if side.size <= _MOST_CODES else 2 * _HASHES for side in sides)
    return sum(each) + 2


_QUANTILES = (0.001, 0.01, *(i / 20 for i in range(1, 20)), 0.99)


@dataclass(frozen=True, slots=True)
class Closeness:
    """Distances between 0 and 1, of real rows against as many held-out rows.

    Attributes:
        closer: the share of synthetic rows that are closer to a real row than to a held-out one, ties half; 1/2 is
            chance. Its interval treats synthetic rows as independent, which they nearly are.
        nearer: the probability that a real row has a closer synthetic row than a held-out one has (DeLong's interval).
        real, fresh: quantiles of the distances of synthetic rows to the closest real and held-out row.
        zero: the shares of synthetic rows at distance 0 of a real, and of a held-out row.
    """

    closer: Interval
    nearer: Interval
    real: dict[float, float]
    fresh: dict[float, float]
    zero: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        quantiles = [{"share": q, "real": self.real[q], "fresh": self.fresh[q]} for q in self.real]
        rates = {"closer to real": self.closer.to_json(), "real rows are nearer": self.nearer.to_json()}
        return {**rates, "quantiles": quantiles, "distance 0": {"real": self.zero[0], "fresh": self.zero[1]}}


def compare_closeness(to_real: tuple[Floats, Floats], to_fresh: tuple[Floats, Floats]) -> Closeness:
    """Compare the results of `closest`, for each synthetic row and for each real or held-out one."""
    wins = np.where(to_real[0] == to_fresh[0], 0.5, to_real[0] < to_fresh[0])
    error = float(wins.std(ddof=1) / np.sqrt(len(wins))) if len(wins) > 1 else 0.5
    return Closeness(
        Interval.of(float(wins.mean()), error, 0.0, 1.0),
        area(-to_real[1], -to_fresh[1]),
        {q: float(np.quantile(to_real[0], q)) for q in _QUANTILES},
        {q: float(np.quantile(to_fresh[0], q)) for q in _QUANTILES},
        (float((to_real[0] == 0).mean()), float((to_fresh[0] == 0).mean())),
    )
