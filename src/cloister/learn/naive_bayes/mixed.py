"""Naive Bayes by counting: categories, and numbers in public bins."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloister.data.private_data import PrivateData
from cloister.learn.base.inputs import (
    check_method,
    is_dataset,
    keep_features,
    read_answers,
    read_classes,
    read_labels,
    read_table,
    wants_bounds,
)
from cloister.learn.base.private_data import classes_of, columns_as_parts, read_relation
from cloister.learn.naive_bayes.calibration import SHARE, BayesClassifier, CalibrationCurve, calibrate
from cloister.learn.naive_bayes.class_counts import SCORE_BITS, ClassCounts, EngineClassCounts
from cloister.learn.naive_bayes.count_features import CountFeature, features_of_schema, find_features, read_features
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import BudgetShare, PrivacyFilter, noise_for
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above

__all__ = ["MixedNB", "CategoricalNB"]

Floats = NDArray[np.float64]
_FINDING = Fraction(1, 10)


@dataclass(frozen=True, slots=True)
class _Model:
    """Released class sizes, and ln P(value | class) for each feature."""

    counts: Floats
    logs: tuple[Floats, ...]
    curve: CalibrationCurve


class MixedNB(BayesClassifier):
    """Private naive Bayes for numbers and categories, by noisy counts of each value in each class.

    Args:
        spend: privacy budget of the fit.
        bounds: public (low, high) of all numbers, or a dict from column to (low, high), or "find", which takes a tenth
            of the spend.
        categories: a dict from column (name or number) to its public values; other columns are numbers. Or a list with
            one list of values for each column.
        classes: the public list of labels; rows with other labels are left out.
        bins: number of equal bins of a number.
        alpha: added to each count, beside half the noise's deviation.
        method: "counts", the only one.
        calibrate: for two classes, use a tenth of the spend to calibrate the probabilities
            (learn/naive_bayes/calibration.py).
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        feature_log_prob_: ln P(value | class), one array of classes × values for each feature.
        class_prior_, class_count_: with noise.
        curve_: the calibration curve of the log-odds.
        expected_accuracy_: on rows like these, as `calibration.py` estimates it; None if nothing was calibrated, or
            noise and few rows hide it.
        release_, loss_: the release with its receipt, and the loss charged.

    A missing or unlisted value is ignored: its feature is left out for that row.

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
        method: str = "counts",
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
        self.method = method
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
        """Fit to rows, or inside the engine of a Cloister dataset.

        Args:
            X: an array or frame, or a dataset.
            y: labels; None for a dataset.
            target, features, table: for a dataset: the column to predict (its public values are the classes), the
                columns to predict from, and the table if there are several. Bounds and categories come from the schema.

        Privacy: the spend, charged before a row is read.
        """
        self._check_bins()
        check_method(self, "counts")
        if is_dataset(X):
            return self._fit_dataset(X, target, features, table)
        inputs, listed = read_table(X, numbers=False), read_classes(self.classes)
        columns, names = inputs.columns, inputs.names or range(inputs.width)
        find = wants_bounds(self._bounds())
        given_parts = read_features(list(names), self.categories, (-1, 1) if find else self._bounds(), self.bins)
        labels = read_labels(y, listed, inputs.length)

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> tuple[_Model, tuple[CountFeature, ...]]:
            parts = given_parts
            if find:
                parts = find_features(meter, budget.part(_FINDING), columns, given_parts)
                budget = BudgetShare(budget.part(1 - _FINDING))
            return self._learn(meter, budget, ClassCounts(columns, labels, listed, parts)), parts

        model, parts = self._train(steps)
        self._keep(model, listed, parts)
        keep_features(self, inputs.width, inputs.names)
        return self

    def _bounds(self) -> Any:
        return self.bounds

    def _check_bins(self) -> None:
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or not 2 <= self.bins <= 4096:
            raise BadInput("bins is a whole number from 2 to 4096.")

    def _fit_dataset(
        self, data: PrivateData, target: str | None, features: Sequence[str] | None, table: str | None
    ) -> Self:
        if target is None or not features or target in features:
            raise BadInput("say what to predict from what: fit(ds, target='readmitted', features=['age', 'ward']).")
        relation = read_relation(data, table, [*features, target])
        listed = classes_of(relation, target, self.classes)
        parts = features_of_schema([relation.columns[name] for name in features], self.bins)
        pairs = tuple(read_relation(data, table, [name, target]) for name in features)
        rows = EngineClassCounts(relation, pairs, target, listed, parts)
        self._keep(self._train(lambda meter, budget: self._learn(meter, budget, rows), data), listed, parts)
        keep_features(self, len(features), features, columns_as_parts(relation.columns, features))
        return self

    def _learn(self, meter: PrivacyFilter, budget: BudgetShare, rows: ClassCounts | EngineClassCounts) -> _Model:
        parts, classes = rows.features, len(rows.classes)
        curved = self.calibrate and classes == 2
        noise = noise_for(
            rows.most * root_above(len(parts) + 1),
            rows.most * (len(parts) + 1),
            budget.part(1 - SHARE) if curved else budget.loss,
        )
        released = np.asarray(meter.release(rows.counts, noise), dtype=np.float64) / rows.whole
        deviation = noise.standard_error / rows.whole
        counts = np.maximum(released[:classes], 1.0)
        ends = classes + classes * np.cumsum([part.size for part in parts])
        tables = [block.reshape(classes, -1) for block in np.split(released[classes:], (ends - classes)[:-1])]
        # Half a deviation is about the mean of an empty cell when negative counts are clipped to zero.
        raised = [np.maximum(table, 0.0) + max(float(self.alpha) + deviation / 2, 1e-9) for table in tables]
        logs = tuple(np.log(table / table.sum(axis=1, keepdims=True)) for table in raised)
        if not curved:
            return _Model(counts, logs, CalibrationCurve())
        # Each row is scored without itself: by the same noisy counts less its own contribution. So the score carries no
        # more information about the row's class than a new row's.
        fewer = np.maximum(released[:classes] - 1, 1.0)
        others = [_logs_without_one(table, full) for table, full in zip(tables, raised, strict=True)]
        constants = _whole(np.log([counts[1] / fewer[0], fewer[1] / counts[0]]))
        odds = [_whole(np.stack([log[1] - less[0], less[1] - log[0]])) for log, less in zip(logs, others, strict=True)]
        curve = calibrate(meter, lambda: rows.histogram(constants, odds), rows.most, rows.whole, budget.part(SHARE))
        return _Model(counts, logs, curve)

    def __sklearn_tags__(self) -> Any:
        """Declare that cells may be text, numbers, or missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags

    def _keep(self, model: _Model, classes: NDArray[Any], parts: tuple[CountFeature, ...]) -> None:
        self.classes_, self._parts = classes, parts
        self.class_count_, self.class_prior_ = model.counts, model.counts / model.counts.sum()
        self.feature_log_prob_, self.curve_ = list(model.logs), model.curve
        self.expected_accuracy_ = model.curve.accuracy

    def _joint(self, rows: Any) -> Floats:
        inputs = read_answers(self, rows, numbers=False)
        joint = np.tile(np.log(self.class_prior_), (inputs.length, 1))
        for part, logs, column in zip(self._parts, self.feature_log_prob_, inputs.columns, strict=True):
            code = part.codes(column)
            joint += np.where(code[:, None] >= 0, logs.T[np.maximum(code, 0)], 0.0)
        return joint


def _logs_without_one(released: Floats, raised: Floats) -> Floats:
    """Return ln P(value | class) with one row less of that value and class."""
    less = raised - np.maximum(released, 0.0) + np.maximum(released - 1, 0.0)
    return np.asarray(np.log(less / (raised.sum(axis=1, keepdims=True) - raised + less)))


def _whole(scores: Any) -> NDArray[np.int64]:
    return np.asarray(np.rint(np.asarray(scores) * 2.0**SCORE_BITS)).astype(np.int64)


# Naive Bayes by counting, where every column is categorical.


class CategoricalNB(MixedNB):
    """Private naive Bayes for categorical columns.

    Args:
        spend: privacy budget of the fit.
        categories: one list of public values for each column, or a number k for values 0 … k-1 in every column.
        classes, alpha, method, calibrate, ledger, account, random_state: see `MixedNB`.

    Privacy: as `MixedNB`.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        categories: Sequence[Sequence[Any]] | Mapping[Any, Sequence[Any]] | int | None = None,
        classes: Sequence[Any] | None = None,
        alpha: float = 1.0,
        method: str = "counts",
        calibrate: bool = True,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.categories = categories
        self.classes = classes
        self.alpha = alpha
        self.method = method
        self.calibrate = calibrate
        self.ledger = ledger
        self.account = account
        self.random_state = random_state

    bins = 16

    def _bounds(self) -> Any:
        return None
