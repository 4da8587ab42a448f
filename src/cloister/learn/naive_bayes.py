"""Gaussian naive Bayes from noisy counts, sums and sums of squares by class."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.literals import literal
from cloister.data.statistics import GroupKey, Value
from cloister.learn.calibration import BINS, HALF, SHARE, Curve, calibrate, histogram
from cloister.learn.classes import BayesClassifier, classes_of, read_labels
from cloister.learn.found import find_box, law, wants_bounds
from cloister.learn.inputs import Box, codes, is_dataset, read_box, read_classes, read_rows
from cloister.learn.purse import Purse
from cloister.learn.relation import Relation, check_filled, is_number, read_relation, scaled_cell
from cloister.privacy.errors import BadInput
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above
from cloister.privacy.meter import Meter

__all__ = ["GaussianNB"]

Floats = NDArray[np.float64]
_BITS = 15
_ONE, _EDGE = 2**_BITS, 2 ** (_BITS - 1)
_SCORE_BITS = 40
_BLOCK = 2**13
_FINDING = Fraction(1, 10)
# Sums decide more than squares, and squares of all classes together have less noise.
_SUMS = Fraction(3, 5)


@dataclass(frozen=True, slots=True)
class _Model:
    """Released parameters, in features scaled to [-1/2, 1/2]."""

    counts: Floats
    means: Floats
    variances: Floats
    curve: Curve
    box: Box

    def quadratic(self) -> tuple[Floats, Floats, Floats]:
        """ln P(class, x) = constant + linear·x + square·x², one row for each class."""
        square = -0.5 / self.variances
        linear = self.means / self.variances
        prior = np.log(self.counts / self.counts.sum())
        constant = prior - 0.5 * (np.log(self.variances) + self.means**2 / self.variances).sum(axis=1)
        return constant, linear, square


class GaussianNB(BayesClassifier):
    """Naive Bayes with a normal law for each feature and class.

    Args:
        spend: what the fit may cost.
        bounds: public (low, high) of all features, or (lows, highs), or "find", which takes a tenth of the spend.
        classes: the public list of labels; rows with other labels are left out.
        variance: "shared" by all classes (the default: less noise, and rare 0/1 features are not taken for proof), or
            "own" of each class, as in scikit-learn.
        var_smoothing: the least variance, as a share of the squared width of the bounds.
        calibrate: for two classes, a tenth of the spend makes the probabilities honest (learn/calibration.py).
        fill: what stands for NaN; without it NaN is refused.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        theta_, var_, class_prior_, class_count_: as in scikit-learn, with noise.
        curve_: what calibrates the log-odds.
        release_, loss_: the receipt and what was paid.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset). Bounds, classes and the number of
        features are public; class sizes and the number of rows are not. Discrete Gaussian noise (discrete Laplace for a
        pure spend) on integers. Audited in tests/statistical/test_learn_moments_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        bounds: Any = None,
        classes: Sequence[Any] | None = None,
        variance: str = "shared",
        var_smoothing: float = 1e-3,
        calibrate: bool = True,
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.bounds = bounds
        self.classes = classes
        self.variance = variance
        self.var_smoothing = var_smoothing
        self.calibrate = calibrate
        self.fill = fill
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
            target, features, table: of a dataset: the column to predict (its public values are the classes), columns
                that are numbers, and the table if there are several.

        Privacy: charges the spend before it reads a row.
        """
        if self.variance not in ("shared", "own") or not 0 < self.var_smoothing <= 0.25:
            raise BadInput("variance is 'shared' or 'own', and var_smoothing lies above 0 and is at most 0.25.")
        if is_dataset(X):
            return self._fit_dataset(X, target, features, table)
        rows, listed = read_rows(X, self.fill), read_classes(self.classes)
        labels, d = read_labels(y, listed, len(rows)), rows.shape[1]
        given = None if wants_bounds(self.bounds) else read_box(self.bounds, d)

        def steps(meter: Meter, budget: Purse) -> _Model:
            box = given
            if box is None:
                box = find_box(meter, lambda: rows, d, budget.part(_FINDING))
                budget = Purse(budget.part(1 - _FINDING))
            return self._learn(meter, budget, _Rows(rows, labels, listed, box), box)

        self._keep(self._train(steps), listed)
        return self

    def _fit_dataset(self, data: Any, target: str | None, features: Sequence[str] | None, table: str | None) -> Self:
        if target is None or not features or target in features:
            raise BadInput("say what to predict from what: fit(ds, target='readmitted', features=['age']).")
        relation = read_relation(data, table, [*features, target])
        if not all(is_number(relation.columns[name]) for name in features):
            raise BadInput("GaussianNB is for numbers. MixedNB takes columns with categories too.")
        for name in features:
            check_filled(relation.columns[name], self.fill)
        listed = classes_of(relation, target, self.classes)
        ends = np.array([relation.columns[name].bounds for name in features], dtype=np.float64)
        box = Box(ends[:, 0], ends[:, 1])
        rows = _EngineRows(relation, target, listed, tuple(features), self.fill)
        self._keep(self._train(lambda meter, budget: self._learn(meter, budget, rows, box), data), listed)
        self.feature_names_in_ = np.array(list(features), dtype=object)
        return self

    def _learn(self, meter: Meter, budget: Purse, rows: "_Rows | _EngineRows", box: Box) -> _Model:
        classes, d = rows.shape
        curved = self.calibrate and classes == 2
        rest = Purse(budget.part(1 - SHARE)) if curved else budget
        sums = law(rows.most * root_above(_ONE**2 + d * _EDGE**2), rows.most * (_ONE + d * _EDGE), rest.part(_SUMS))
        first = np.asarray(meter.release(rows.sums, sums), dtype=np.float64) / (_ONE * rows.whole)
        squares = law(rows.most * _EDGE**2 * root_above(d), rows.most * _EDGE**2 * d, rest.part(1 - _SUMS))

        def look() -> Any:
            found = rows.squares()
            return found.sum(axis=0, keepdims=True) if self.variance == "shared" else found

        second = np.asarray(meter.release(look, squares), dtype=np.float64) / (_ONE**2 * rows.whole)
        noise = sums.standard_error / (_ONE * rows.whole), squares.standard_error / (_ONE**2 * rows.whole)
        model = self._estimate(first, second, noise, box)
        if not curved:
            return model
        weights = _whole_weights(model)
        curve = calibrate(meter, lambda: rows.histogram(weights), rows.most, rows.whole, budget.part(SHARE))
        return _Model(model.counts, model.means, model.variances, curve, box)

    def _estimate(self, first: Floats, second: Floats, noise: tuple[float, float], box: Box) -> _Model:
        """Means and variances from noisy sums; a class that the noise hides is drawn towards all rows."""
        counts = np.maximum(first[:, 0], 1.0)
        total = counts.sum()
        overall = np.clip(first[:, 1:].sum(axis=0) / total, -0.5, 0.5)
        means = (first[:, 1:] + noise[0] * overall) / (counts + noise[0])[:, None]
        means = np.clip(means, -0.5, 0.5)
        doubt = noise[0] / counts[:, None]
        if self.variance == "shared":
            within = (second[0] - (counts[:, None] * means**2).sum(axis=0)) / total
            variances = np.broadcast_to(within, means.shape)
            unsure = np.full((len(counts), 1), noise[1] / total)
        else:
            variances = second / counts[:, None] - means**2
            unsure = (noise[1] / counts)[:, None]
        # A variance that the noise took away would be read as proof; a quarter of a deviation is enough to prevent it.
        least = np.minimum(self.var_smoothing + 0.25 * (unsure + doubt * np.abs(means)), 0.25)
        return _Model(counts, means, np.clip(variances, least, 0.25), Curve(), box)

    def _keep(self, model: _Model, classes: NDArray[Any]) -> None:
        width = model.box.high - model.box.low
        self.classes_, self.n_features_in_ = classes, len(width)
        self.class_count_, self.class_prior_ = model.counts, model.counts / model.counts.sum()
        self.theta_ = (model.box.low + model.box.high) / 2 + model.means * width
        self.var_ = model.variances * width**2
        self.curve_, self._model = model.curve, model

    def _joint(self, rows: Any) -> Floats:
        table = read_rows(rows, self.fill)
        if table.shape[1] != self.n_features_in_:
            raise BadInput(
                f"X has {table.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        scaled = self._model.box.to_unit(table) - 0.5
        constant, linear, square = self._model.quadratic()
        return np.asarray(constant + scaled @ linear.T + scaled**2 @ square.T)


@dataclass(frozen=True, slots=True)
class _Weights:
    """Log-odds of class 1 in whole numbers: constant + linear·v + square·v², with 40 bits behind the point."""

    constant: int
    linear: NDArray[np.int64]
    square: NDArray[np.int64]


def _whole_weights(model: _Model) -> _Weights:
    constant, linear, square = (part[1] - part[0] for part in model.quadratic())
    # Scores beyond ±16 are all one bin, so steep terms may be cut: with them nothing overflows 63 bits.
    return _Weights(
        int(np.clip(constant, -1e5, 1e5) * 2.0**_SCORE_BITS),
        np.rint(np.clip(linear, -1e3, 1e3) * 2.0 ** (_SCORE_BITS - _BITS)).astype(np.int64),
        np.rint(np.clip(square, -1e3, 1e3) * 2.0 ** (_SCORE_BITS - 2 * _BITS)).astype(np.int64),
    )


class _Rows:
    """Rows of an array: sums by class on the integer grid. Every method reads rows: call it inside a step."""

    most = whole = 1

    def __init__(self, rows: Floats, labels: NDArray[Any], classes: NDArray[Any], box: Box) -> None:
        self._rows, self._labels, self._classes, self._box = rows, labels, classes, box

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._classes), self._rows.shape[1]

    def _blocks(self, each: Callable[[Floats, NDArray[np.int64]], Any]) -> Any:
        total: Any = 0
        code = codes(self._labels, list(self._classes))
        for start in range(0, max(len(self._rows), 1), _BLOCK):
            some = slice(start, start + _BLOCK)
            scaled = np.clip(self._box.to_unit(self._rows[some]) - 0.5, -0.5, 0.5)
            total = total + each(np.trunc(scaled * _ONE), code[some])
        return total

    def _by_class(self, cells: Floats, code: NDArray[np.int64]) -> Any:
        member = (code[:, None] == np.arange(len(self._classes))).astype(np.float64)
        return (member.T @ cells).astype(np.int64)

    def sums(self) -> Any:
        """One row for each class: its size, then the sums of its features."""
        return self._blocks(
            lambda cells, code: self._by_class(np.column_stack([np.full(len(cells), _ONE), cells]), code)
        )

    def squares(self) -> Any:
        """One row for each class: the sums of squares."""
        return self._blocks(lambda cells, code: self._by_class(cells**2, code))

    def histogram(self, weights: _Weights) -> Any:
        """Scores by class."""

        def each(cells: Floats, code: NDArray[np.int64]) -> Any:
            whole = cells.astype(np.int64)
            return histogram(weights.constant + whole @ weights.linear + whole**2 @ weights.square, _SCORE_BITS, code)

        return self._blocks(each)


@dataclass(frozen=True, slots=True)
class _EngineRows:
    """The same of a dataset, by statements in its engine."""

    relation: Relation
    target: str
    classes: NDArray[Any]
    features: tuple[str, ...]
    fill: float | None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.classes), len(self.features)

    @property
    def most(self) -> int:
        return self.relation.most

    @property
    def whole(self) -> int:
        return self.relation.whole

    def _key(self) -> GroupKey:
        key = self.relation.key(self.target)
        return GroupKey(key.name, key.sql, tuple(self.classes.tolist()), key.type)

    def _cells(self) -> tuple[Relation, list[Value]]:
        """The rows with each feature on the integer grid."""
        made = [scaled_cell(self.relation.columns[name], _BITS, self.fill) for name in self.features]
        rows = self.relation.with_columns({f"_cell{i}": one.sql for i, one in enumerate(made)})
        return rows, [replace(one, sql=exp.column(f"_cell{i}", quoted=True)) for i, one in enumerate(made)]

    def sums(self) -> Any:
        rows, cells = self._cells()
        count, *found = rows.sums([self._key()], cells).run(rows.engine)
        return np.column_stack([count.astype(object) * _ONE, *(one.astype(object) for one in found)])

    def squares(self) -> Any:
        rows, cells = self._cells()
        values = [Value(exp.Mul(this=one.sql, expression=one.sql.copy()), 0, one.reach**2) for one in cells]
        _, *found = rows.sums([self._key()], values).run(rows.engine)
        return np.column_stack([one.astype(object) for one in found])

    def histogram(self, weights: _Weights) -> Any:
        rows, cells = self._cells()
        score: exp.Expression = long(literal(weights.constant))
        for cell, linear, square in zip(cells, weights.linear.tolist(), weights.square.tolist(), strict=True):
            for weight, terms in ((linear, (cell.sql,)), (square, (cell.sql, cell.sql))):
                if weight:
                    product: exp.Expression = long(literal(weight))
                    for term in terms:
                        product = exp.Mul(this=product, expression=term.copy())
                    score = exp.Add(this=score, expression=product)
        return count_scores(rows, self._key(), score, _SCORE_BITS)


def count_scores(rows: Relation, classes: GroupKey, score: exp.Expression, bits: int) -> Any:
    """How many rows of each class have an integer score, with so many bits behind the point, in each bin."""
    real = exp.Cast(this=exp.Paren(this=score), to=exp.DataType.build("DOUBLE"))
    placed = rows.with_columns({"_place": exp.Floor(this=exp.Mul(this=real, expression=literal(2.0**-bits)))})
    place, low, high = exp.column("_place", quoted=True), literal(float(-HALF)), literal(float(HALF - 1))
    inside = exp.Case(
        ifs=[
            exp.If(this=exp.LT(this=place, expression=low), true=low.copy()),
            exp.If(this=exp.GT(this=place.copy(), expression=high), true=high.copy()),
        ],
        default=place.copy(),
    )
    key = GroupKey("score", long(inside), range(-HALF, BINS - HALF), "integer")
    return placed.sums([classes, key]).run(rows.engine)[0]


def long(sql: exp.Expression) -> exp.Expression:
    """An expression as a 64-bit integer."""
    return exp.Cast(this=sql, to=exp.DataType.build("BIGINT"))
