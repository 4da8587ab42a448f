"""Naive Bayes by counting: categories as they are, numbers in public bins."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.literals import literal
from cloister.data.statistics import GroupKey
from cloister.learn.calibration import SHARE, Curve, calibrate, histogram
from cloister.learn.classes import BayesClassifier, classes_of, read_labels
from cloister.learn.count_features import CountFeature, columns_of, features_of_schema, read_features
from cloister.learn.found import law
from cloister.learn.inputs import codes, is_dataset, read_classes
from cloister.learn.naive_bayes import count_scores, long
from cloister.learn.purse import Purse
from cloister.learn.relation import Relation, read_relation
from cloister.privacy.errors import BadInput
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above
from cloister.privacy.meter import Meter

__all__ = ["CategoricalNB", "MixedNB"]

Floats = NDArray[np.float64]
_SCORE_BITS = 20


@dataclass(frozen=True, slots=True)
class _Model:
    """Released: class sizes, and ln P(value | class) for each feature."""

    counts: Floats
    logs: tuple[Floats, ...]
    curve: Curve


class MixedNB(BayesClassifier):
    """Naive Bayes for tables of numbers and categories, by noisy counts of each value in each class.

    Args:
        spend: what the fit may cost.
        bounds: public (low, high) of all numbers, or a dict from column to (low, high).
        categories: a dict from column (name or place) to its public values; columns without are numbers. Or a list with
            one list of values for each column.
        classes: the public list of labels; rows with other labels are left out.
        bins: into how many equal bins numbers are cut.
        alpha: added to each count, beside half the noise's deviation.
        calibrate: for two classes, a tenth of the spend makes the probabilities honest (learn/calibration.py).
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        feature_log_prob_: ln P(value | class), one array of classes × values for each feature.
        class_prior_, class_count_: with noise.
        curve_: what calibrates the log-odds.
        release_, loss_: the receipt and what was paid.

    A value that is missing, or not among the categories, says nothing: its feature is left out for that row.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset): a row counts once in one cell of
        each feature, and once for its class. Bounds, categories and classes are public. Discrete Gaussian noise
        (discrete Laplace for a pure spend). Audited in tests/statistical/test_learn_moments_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        bounds: Any = None,
        categories: Any = None,
        classes: Sequence[Any] | None = None,
        bins: int = 16,
        alpha: float = 1.0,
        calibrate: bool = True,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.bounds = bounds
        self.categories = categories
        self.classes = classes
        self.bins = bins
        self.alpha = alpha
        self.calibrate = calibrate
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Learn from rows, or inside the engine of a Cloister dataset.

        Args:
            X: an array or frame, or a dataset.
            y: labels; None for a dataset.
            target, features, table: of a dataset: the column to predict (its public values are the classes), the
                columns to predict from, and the table if there are several. Bounds and categories come from the schema.

        Privacy: charges the spend before it reads a row.
        """
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or not 2 <= self.bins <= 4096:
            raise BadInput("bins is a whole number from 2 to 4096.")
        if not 0 <= self.alpha < np.inf:
            raise BadInput("alpha is a public number that is not negative.")
        if is_dataset(X):
            return self._fit_dataset(X, target, features, table)
        columns, listed = columns_of(X), read_classes(self.classes)
        parts = read_features(list(columns), self.categories, self._bounds(), self.bins)
        labels = read_labels(y, listed, len(next(iter(columns.values()))))
        rows = _Rows(columns, labels, listed, parts)
        self._keep(self._train(lambda meter, budget: self._learn(meter, budget, rows)), listed, parts)
        return self

    def _bounds(self) -> Any:
        return self.bounds

    def _fit_dataset(self, data: Any, target: str | None, features: Sequence[str] | None, table: str | None) -> Self:
        if target is None or not features or target in features:
            raise BadInput("say what to predict from what: fit(ds, target='readmitted', features=['age', 'ward']).")
        relation = read_relation(data, table, [*features, target])
        listed = classes_of(relation, target, self.classes)
        parts = features_of_schema([relation.columns[name] for name in features], self.bins)
        pairs = tuple(read_relation(data, table, [name, target]) for name in features)
        rows = _EngineRows(relation, pairs, target, listed, parts)
        self._keep(self._train(lambda meter, budget: self._learn(meter, budget, rows), data), listed, parts)
        self.feature_names_in_ = np.array(list(features), dtype=object)
        return self

    def _learn(self, meter: Meter, budget: Purse, rows: "_Rows | _EngineRows") -> _Model:
        parts, classes = rows.features, len(rows.classes)
        curved = self.calibrate and classes == 2
        noise = law(
            rows.most * root_above(len(parts) + 1),
            rows.most * (len(parts) + 1),
            budget.part(1 - SHARE) if curved else budget.loss,
        )
        released = np.asarray(meter.release(rows.counts, noise), dtype=np.float64) / rows.whole
        deviation = noise.standard_error / rows.whole
        counts = np.maximum(released[:classes], 1.0)
        ends = classes + classes * np.cumsum([one.size for one in parts])
        tables = [one.reshape(classes, -1) for one in np.split(released[classes:], (ends - classes)[:-1])]
        # Half a deviation is what a cell without rows shows on average when negative counts are cut to zero.
        raised = [np.maximum(one, 0.0) + max(self.alpha + deviation / 2, 1e-9) for one in tables]
        logs = tuple(np.log(one / one.sum(axis=1, keepdims=True)) for one in raised)
        if not curved:
            return _Model(counts, logs, Curve())
        constant = int(np.rint(np.log(counts[1] / counts[0]) * 2.0**_SCORE_BITS))
        odds = [np.rint((one[1] - one[0]) * 2.0**_SCORE_BITS).astype(np.int64) for one in logs]
        curve = calibrate(meter, lambda: rows.histogram(constant, odds), rows.most, rows.whole, budget.part(SHARE))
        return _Model(counts, logs, curve)

    def _keep(self, model: _Model, classes: NDArray[Any], parts: tuple[CountFeature, ...]) -> None:
        self.classes_, self.n_features_in_, self._parts = classes, len(parts), parts
        self.class_count_, self.class_prior_ = model.counts, model.counts / model.counts.sum()
        self.feature_log_prob_, self.curve_ = list(model.logs), model.curve

    def _joint(self, rows: Any) -> Floats:
        columns = columns_of(rows)
        if len(columns) != self.n_features_in_:
            raise BadInput(
                f"X has {len(columns)} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        first = next(iter(columns.values()))
        joint = np.tile(np.log(self.class_prior_), (len(first), 1))
        for part, logs, given in zip(self._parts, self.feature_log_prob_, columns.values(), strict=True):
            code = part.codes(columns.get(part.name, given))
            joint += np.where(code[:, None] >= 0, logs.T[np.maximum(code, 0)], 0.0)
        return joint


class CategoricalNB(MixedNB):
    """Naive Bayes for columns of categories.

    Args:
        spend: what the fit may cost.
        categories: one list of public values for each column, or a number k for values 0 … k-1 in every column.
        classes, alpha, calibrate, ledger, account, random_state: see `MixedNB`.

    Privacy: as `MixedNB`.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        categories: Sequence[Sequence[Any]] | Mapping[Any, Sequence[Any]] | int | None = None,
        classes: Sequence[Any] | None = None,
        alpha: float = 1.0,
        calibrate: bool = True,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.categories = categories
        self.classes = classes
        self.alpha = alpha
        self.calibrate = calibrate
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    bins = 16

    def _bounds(self) -> Any:
        return None


class _Rows:
    """Rows in columns: counts of values by class. Every method reads rows: call it inside a step."""

    most = whole = 1

    def __init__(
        self,
        columns: Mapping[Any, NDArray[Any]],
        labels: NDArray[Any],
        classes: NDArray[Any],
        features: tuple[CountFeature, ...],
    ) -> None:
        self._columns, self._labels, self.classes, self.features = columns, labels, classes, features

    def _codes(self) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        each = [part.codes(one) for part, one in zip(self.features, self._columns.values(), strict=True)]
        return codes(self._labels, list(self.classes)), each

    def counts(self) -> Any:
        """The size of each class, then classes × values for each feature."""
        label, each = self._codes()
        k = len(self.classes)
        found = [np.bincount(label[label >= 0], minlength=k)]
        for part, code in zip(self.features, each, strict=True):
            known = (label >= 0) & (code >= 0)
            found.append(np.bincount((label * part.size + code)[known], minlength=k * part.size))
        return np.concatenate(found).astype(np.int64)

    def histogram(self, constant: int, odds: list[NDArray[np.int64]]) -> Any:
        """Scores by class."""
        label, each = self._codes()
        scores = np.full(len(label), constant, dtype=np.int64)
        for weights, code in zip(odds, each, strict=True):
            scores += np.where(code >= 0, weights[np.maximum(code, 0)], 0)
        return histogram(scores, _SCORE_BITS, label)


@dataclass(frozen=True, slots=True)
class _EngineRows:
    """The same of a dataset, by statements in its engine.

    Attributes:
        relation: the rows with all columns.
        pairs: for each feature the rows with it and the target alone: a view of two columns is read faster.
    """

    relation: Relation
    pairs: tuple[Relation, ...]
    target: str
    classes: NDArray[Any]
    features: tuple[CountFeature, ...]

    @property
    def most(self) -> int:
        return self.relation.most

    @property
    def whole(self) -> int:
        return self.relation.whole

    def _key(self) -> GroupKey:
        key = self.relation.key(self.target)
        return GroupKey(key.name, key.sql, tuple(self.classes.tolist()), key.type)

    def counts(self) -> Any:
        found = [self.pairs[0].sums([self._key()]).run(self.relation.engine)[0]]
        for part, rows in zip(self.features, self.pairs, strict=True):
            found.append(rows.sums([self._key(), part.key]).run(rows.engine)[0])
        return np.concatenate(found)

    def histogram(self, constant: int, odds: list[NDArray[np.int64]]) -> Any:
        keys = [part.key for part in self.features]
        rows = self.relation.with_columns({f"_code{i}": key.sql for i, key in enumerate(keys)})
        score: exp.Expression = long(literal(constant))
        for i, (key, weights) in enumerate(zip(keys, odds, strict=True)):
            code = exp.column(f"_code{i}", quoted=True)
            score = exp.Add(this=score, expression=_weight_of(code, list(key.values), weights.tolist()))
        return count_scores(rows, self._key(), score, _SCORE_BITS)


def _weight_of(code: exp.Expression, values: list[Any], weights: list[int]) -> exp.Expression:
    """The weight of a value; nothing for NULL. Bins, which are ordered, are found by halving."""
    ordered = all(isinstance(one, int) and not isinstance(one, bool) for one in values) and values == sorted(values)
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
