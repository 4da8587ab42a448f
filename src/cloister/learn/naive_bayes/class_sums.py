"""Sums by class on the integer grid for Gaussian naive Bayes, from an array or in an engine."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import repeat
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.dialect import literal
from cloister.data.schema import internal
from cloister.data.statistics import GroupKey, Value
from cloister.learn.base.inputs import Box
from cloister.learn.base.integer_rows import on_grid
from cloister.learn.base.private_data import PrivateTable, scaled_cell
from cloister.learn.naive_bayes.calibration import BINS, HALF, histogram

__all__ = ["EDGE", "ONE", "ClassSums", "EngineClassSums", "Weights", "count_scores", "long", "whole_weights"]

Floats = NDArray[np.float64]
_BITS = 15
ONE, EDGE = 2**_BITS, 2 ** (_BITS - 1)
_SCORE_BITS = 40
_BLOCK = 2**13
_COARSE = 2**7  # a coarse cell has eight bits, so that its fourth power fits
_STEEPEST = 1e3


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the log-odds of class 1 for a row of either class, as integers with 40 fractional bits.

    Attributes:
        constant, linear, square: a row v of class k has the score constant[k] + linear[k]·v + square[k]·v².
        fourth: unless None, for each feature an additional polynomial of degree four of the coarse cell: class ×
            feature × 5, the constant first.
    """

    constant: NDArray[np.int64]
    linear: NDArray[np.int64]
    square: NDArray[np.int64]
    fourth: NDArray[np.int64] | None = None


def whole_weights(constant: Floats, linear: Floats, square: Floats, fourth: Floats | None = None) -> Weights:
    """Return integer weights from those of numbers x within ±1/2, one row for either class."""
    # Scores beyond ±16 share one bin, so steep terms may be clipped, which avoids overflow of 63 bits.
    terms = None
    if fourth is not None:
        away = np.abs(fourth).sum(axis=2, keepdims=True)  # upper bound, since |x| is at most 1/2
        moved = _in_coarse_cells(fourth * np.minimum(1.0, _STEEPEST / np.maximum(away, 1e-300)))
        terms = np.rint(moved * 2.0**_SCORE_BITS).astype(np.int64)
    return Weights(
        np.rint(np.clip(constant, -1e5, 1e5) * 2.0**_SCORE_BITS).astype(np.int64),
        np.rint(np.clip(linear, -_STEEPEST, _STEEPEST) * 2.0 ** (_SCORE_BITS - _BITS)).astype(np.int64),
        np.rint(np.clip(square, -_STEEPEST, _STEEPEST) * 2.0 ** (_SCORE_BITS - 2 * _BITS)).astype(np.int64),
        terms,
    )


def _in_coarse_cells(terms: Floats) -> Floats:
    """Convert a polynomial of x to one of the coarse cell c with midpoint x = (c + 1/2) · 2^7 / 2^15."""
    step = _COARSE / ONE
    moved = np.zeros_like(terms)
    for power in range(terms.shape[-1]):
        for lower in range(power + 1):
            moved[..., lower] += terms[..., power] * step**power * comb(power, lower) * 0.5 ** (power - lower)
    return moved


class ClassSums:
    """Sums by class of an array's rows on the integer grid. Every method reads rows: call it inside a step."""

    most = whole = 1

    def __init__(self, look: Callable[[], tuple[Floats, NDArray[np.int64]]], classes: NDArray[Any], box: Box) -> None:
        self._look, self._classes, self._box = look, classes, box

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of classes and features."""
        return len(self._classes), len(self._box.low)

    def _blocks(self, each: Callable[[Floats, NDArray[np.int64]], Any]) -> Any:
        total: Any = 0
        rows, code = self._look()
        for start in range(0, max(len(rows), 1), _BLOCK):
            some = slice(start, start + _BLOCK)
            total = total + each(on_grid((self._box.to_unit(rows[some]) - 0.5) * ONE, EDGE), code[some])
        return total

    def _by_class(self, cells: Floats, code: NDArray[np.int64]) -> Any:
        member = (code[:, None] == np.arange(len(self._classes))).astype(np.float64)
        return (member.T @ cells).astype(np.int64)

    def sums(self) -> Any:
        """Return one row for each class: its size, then the sums of its features."""
        return self._blocks(
            lambda cells, code: self._by_class(np.column_stack([np.full(len(cells), ONE), cells]), code)
        )

    def squares(self) -> Any:
        """Return one row for each class: the sums of squares."""
        return self._blocks(lambda cells, code: self._by_class(cells**2, code))

    def histogram(self, weights: Weights) -> Any:
        """Return the histogram of scores by class."""

        def each(cells: Floats, code: NDArray[np.int64]) -> Any:
            integers = cells.astype(np.int64)
            scores = weights.constant + integers @ weights.linear.T + integers**2 @ weights.square.T
            if weights.fourth is not None:
                for power, terms in enumerate(np.moveaxis(weights.fourth, 2, 0)):
                    scores += (integers // _COARSE) ** power @ terms.T
            return histogram(np.where(code == 1, scores[:, 1], scores[:, 0]), _SCORE_BITS, code)

        return self._blocks(each)


@dataclass(frozen=True, slots=True)
class EngineClassSums:
    """Sums by class of a dataset, by statements in its engine."""

    relation: PrivateTable
    target: str
    classes: NDArray[Any]
    features: tuple[str, ...]
    fill: float | None
    _kept: list[Any] = field(default_factory=list, repr=False, compare=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of classes and features."""
        return len(self.classes), len(self.features)

    @property
    def most(self) -> int:
        """Return the largest contribution of one unit to a count."""
        return self.relation.most

    @property
    def whole(self) -> int:
        """Return the count of one row."""
        return self.relation.whole

    def _key(self) -> GroupKey:
        return self.relation.key(self.target, self.classes.tolist())

    def _cells(self) -> tuple[PrivateTable, list[Value]]:
        """Return the rows with each feature on the integer grid."""
        values = [scaled_cell(self.relation, name, _BITS, self.fill) for name in self.features]
        rows = self.relation.with_columns({internal(f"cell{i}"): value.sql for i, value in enumerate(values)})
        return rows, [
            replace(value, sql=exp.column(internal(f"cell{i}"), quoted=True)) for i, value in enumerate(values)
        ]

    def sums(self) -> Any:
        """Return the sums, as `ClassSums.sums` does."""
        return self._both()[0]

    def squares(self) -> Any:
        """Return the sums of squares, as `ClassSums.squares` does."""
        return self._both()[1]

    def _both(self) -> tuple[Any, Any]:
        """Return sums and squares from one statement, run for the first step that needs either."""
        if not self._kept:
            rows, cells = self._cells()
            squares = [Value(exp.Mul(this=cell.sql, expression=cell.sql.copy()), 0, cell.reach**2) for cell in cells]
            every = rows.sums([self._key()], [*cells, *squares]).run(rows.engine)
            count, *totals = (column.astype(object) for column in every)
            self._kept.append(np.column_stack([count * ONE, *totals[: len(cells)]]))
            self._kept.append(np.column_stack(totals[len(cells) :]))
        return self._kept[0], self._kept[1]

    def histogram(self, weights: Weights) -> Any:
        """Return the histogram, as `ClassSums.histogram` does."""
        rows, cells = self._cells()
        fine = [cell.sql for cell in cells]
        coarse = [exp.column(internal(f"coarse{i}"), quoted=True) for i in range(len(cells))]
        if weights.fourth is not None:
            coarse_cells = {column.name: _coarse(cell) for column, cell in zip(coarse, fine, strict=True)}
            rows = rows.with_columns({**{cell.name: cell for cell in fine}, **coarse_cells})

        def score_of(label: int) -> exp.Expression:
            score: exp.Expression = long(literal(int(weights.constant[label])))
            terms = [*zip(weights.linear[label], fine, repeat(1)), *zip(weights.square[label], fine, repeat(2))]
            for i, coarse_cell in enumerate(coarse if weights.fourth is not None else ()):
                terms += [(weight, coarse_cell, power) for power, weight in enumerate(weights.fourth[label, i])]  # type: ignore[index]
            for weight, cell, power in terms:
                if weight:
                    product: exp.Expression = long(literal(int(weight)))
                    for _ in range(power):
                        product = exp.Mul(this=product, expression=cell.copy())
                    score = exp.Add(this=score, expression=product)
            return score

        return count_scores(rows, self._key(), (score_of(0), score_of(1)), _SCORE_BITS)


def _coarse(cell: exp.Expression) -> exp.Expression:
    real = exp.Cast(this=cell.copy(), to=exp.DataType.build("DOUBLE"))
    return long(exp.Floor(this=exp.Mul(this=real, expression=literal(1 / _COARSE))))


def count_scores(
    rows: PrivateTable, classes: GroupKey, scores: tuple[exp.Expression, exp.Expression], bits: int
) -> Any:
    """Count the rows of each class in each bin of integer scores with the given number of fractional bits.

    Args:
        scores: the score of a row of the first class, and of one of the second.
    """
    second = exp.EQ(this=classes.sql.copy(), expression=literal(list(classes.values)[1]))
    score = exp.Case(ifs=[exp.If(this=second, true=scores[1])], default=scores[0])
    real = exp.Cast(this=exp.Paren(this=score), to=exp.DataType.build("DOUBLE"))
    placed = rows.with_columns({internal("place"): exp.Floor(this=exp.Mul(this=real, expression=literal(2.0**-bits)))})
    position, low, high = exp.column(internal("place"), quoted=True), literal(float(-HALF)), literal(float(HALF - 1))
    inside = exp.Case(
        ifs=[
            exp.If(this=exp.LT(this=position, expression=low), true=low.copy()),
            exp.If(this=exp.GT(this=position.copy(), expression=high), true=high.copy()),
        ],
        default=position.copy(),
    )
    key = GroupKey("score", long(inside), range(-HALF, BINS - HALF), "integer")
    return placed.sums([classes, key]).run(rows.engine)[0]


def long(sql: exp.Expression) -> exp.Expression:
    """Cast an expression to a 64-bit integer."""
    return exp.Cast(this=sql, to=exp.DataType.build("BIGINT"))
