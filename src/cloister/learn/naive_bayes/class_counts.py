"""Counts of values by class for naive Bayes, from columns or in an engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.dialect import literal
from cloister.data.schema import internal
from cloister.data.statistics import GroupKey
from cloister.learn.base.inputs import codes
from cloister.learn.base.private_data import PrivateTable
from cloister.learn.naive_bayes.calibration import histogram
from cloister.learn.naive_bayes.class_sums import count_scores, long
from cloister.learn.naive_bayes.count_features import CountFeature

__all__ = ["SCORE_BITS", "ClassCounts", "EngineClassCounts"]

SCORE_BITS = 20


class ClassCounts:
    """Counts of values by class from columns. Every method reads rows: call it inside a step."""

    most = whole = 1

    def __init__(
        self,
        columns: Sequence[NDArray[Any]],
        labels: NDArray[Any],
        classes: NDArray[Any],
        features: tuple[CountFeature, ...],
    ) -> None:
        self._columns, self._labels, self.classes, self.features = columns, labels, classes, features

    def codes(self) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """Return the class of each row, and the value of each feature; -1 for unlisted ones."""
        each = [part.codes(column) for part, column in zip(self.features, self._columns, strict=True)]
        return codes(self._labels, list(self.classes)), each

    def counts(self) -> Any:
        """Return the size of each class, then classes × values for each feature."""
        label, each = self.codes()
        k = len(self.classes)
        tables = [np.bincount(label[label >= 0], minlength=k)]
        for part, code in zip(self.features, each, strict=True):
            listed = (label >= 0) & (code >= 0)
            tables.append(np.bincount((label * part.size + code)[listed], minlength=k * part.size))
        return np.concatenate(tables).astype(np.int64)

    def histogram(self, constants: NDArray[np.int64], odds: list[NDArray[np.int64]]) -> Any:
        """Return the histogram of scores by class.

        Args:
            constants: constant term of the score for a row of either class.
            odds: for each feature, the contribution of a value to the score: classes × values.
        """
        label, each = self.codes()
        own_class = np.maximum(label, 0)
        scores = constants[own_class].astype(np.int64)
        for weights, code in zip(odds, each, strict=True):
            scores += np.where(code >= 0, weights[own_class, np.maximum(code, 0)], 0)
        return histogram(scores, SCORE_BITS, label)


@dataclass(frozen=True, slots=True)
class EngineClassCounts:
    """Counts of values by class of a dataset, by statements in its engine.

    Attributes:
        relation: the rows with all columns.
        pairs: for each feature the rows with it and the target alone: where features are counted one by one, a view of
            two columns is read faster.
    """

    relation: PrivateTable
    pairs: tuple[PrivateTable, ...]
    target: str
    classes: NDArray[Any]
    features: tuple[CountFeature, ...]

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

    def counts(self) -> Any:
        """Return the counts, as `ClassCounts.counts` does."""
        if self.relation.max_rows is not None:
            every = [[self._key()], *([self._key(), part.key] for part in self.features)]
            return np.concatenate([count for count, *_ in self.relation.tables(every)])
        tables = [self.pairs[0].sums([self._key()]).run(self.relation.engine)[0]]
        for part, rows in zip(self.features, self.pairs, strict=True):
            tables.append(rows.sums([self._key(), part.key]).run(rows.engine)[0])
        return np.concatenate(tables)

    def histogram(self, constants: NDArray[np.int64], odds: list[NDArray[np.int64]]) -> Any:
        """Return the histogram, as `ClassCounts.histogram` does."""
        keys = [part.key for part in self.features]
        rows = self.relation.with_columns({internal(f"code{i}"): key.sql for i, key in enumerate(keys)})

        def score_of(label: int) -> exp.Expression:
            score: exp.Expression = long(literal(int(constants[label])))
            for i, (key, weights) in enumerate(zip(keys, odds, strict=True)):
                code = exp.column(internal(f"code{i}"), quoted=True)
                score = exp.Add(this=score, expression=_weight_of(code, list(key.values), weights[label].tolist()))
            return score

        return count_scores(rows, self._key(), (score_of(0), score_of(1)), SCORE_BITS)


def _weight_of(code: exp.Expression, values: list[Any], weights: list[int]) -> exp.Expression:
    """Return the weight of a value; none for NULL. Ordered bins are found by bisection."""
    ordered = all(isinstance(value, int) and not isinstance(value, bool) for value in values) and values == sorted(
        values
    )
    if len(values) > 4 and ordered:
        middle = len(values) // 2
        ends = [
            _weight_of(code, values[:middle], weights[:middle]),
            _weight_of(code, values[middle:], weights[middle:]),
        ]
        below = exp.LT(this=code.copy(), expression=literal(values[middle]))
        return exp.Case(ifs=[exp.If(this=below, true=ends[0])], default=ends[1])
    cases = [
        exp.If(this=exp.EQ(this=code.copy(), expression=literal(value)), true=long(literal(weight)))
        for value, weight in zip(values, weights, strict=True)
    ]
    return exp.Case(ifs=cases, default=long(literal(0)))
