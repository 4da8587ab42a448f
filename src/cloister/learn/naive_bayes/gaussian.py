"""Gaussian naive Bayes from noisy counts, sums and sums of squares by class."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloister.data.private_data import PrivateData
from cloister.learn.base.frame import find_box
from cloister.learn.base.inputs import (
    Box,
    check_method,
    codes,
    complete,
    is_dataset,
    keep_features,
    read_answers,
    read_box,
    read_classes,
    read_labels,
    read_table,
    wants_bounds,
)
from cloister.learn.base.integer_rows import weighted
from cloister.learn.base.private_data import (
    check_filled,
    classes_of,
    columns_as_parts,
    ends_of,
    is_number,
    read_relation,
)
from cloister.learn.naive_bayes.calibration import BINS, SHARE, BayesClassifier, CalibrationCurve, calibrate
from cloister.learn.naive_bayes.class_sums import EDGE, ONE, ClassSums, EngineClassSums, Weights, whole_weights
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import BudgetShare, PrivacyFilter, noise_for
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above

__all__ = ["GaussianNB"]

Floats = NDArray[np.float64]
_FINDING = Fraction(1, 10)
# Sums matter more than squares, and pooled squares have less noise.
_SUMS = Fraction(3, 5)
_CLEAR = 60  # times the noise of a whole histogram
_SQUARE = 0.005  # largest noise on a class's variance, in squared widths of the bounds


@dataclass(frozen=True, slots=True)
class _Model:
    """Released parameters for features scaled to [-1/2, 1/2]."""

    counts: Floats
    means: Floats
    variances: Floats
    curve: CalibrationCurve
    box: Box

    def quadratic(self) -> tuple[Floats, Floats, Floats]:
        """Return the terms of ln P(class, x) = constant + linear·x + square·x², one row for each class."""
        square = -0.5 / self.variances
        linear = self.means / self.variances
        prior = np.log(self.counts / self.counts.sum())
        constant = prior - 0.5 * (np.log(self.variances) + self.means**2 / self.variances).sum(axis=1)
        return constant, linear, square


def _without_itself(model: _Model, noise: float) -> Weights:
    """Return weights of the log-odds of a row by the model that the same noisy sums give without that row.

    So the score carries no more information about the row's class than a new row's. With K = count + noise, the
    divisor in `_estimate`, a mean m becomes (K m - x) / (K - 1), and x - m is stretched by K / (K - 1). A variance of
    the class's own, in deviations z = (x - m) / s, changes ln P by -(z² - 1)² / (2 count) to first order; a shared one
    carries no information about the class.

    Args:
        model: of two classes, as released.
        noise: the noise on a sum.
    """
    full = model.counts + noise
    factor = ((full / np.maximum(full - 1, 1.0)) ** 2)[:, None]
    (constant, linear, square), prior = model.quadratic(), np.log(np.maximum(model.counts - 1, 1.0) / model.counts)
    # All terms of the row's own class, with the stretch; the classes are 0 and 1.
    less = 0.5 * (factor - 1) * model.means**2 / model.variances
    stretched = constant + prior - less.sum(axis=1), factor * linear, factor * square
    first, second, third = (
        np.stack([plain[1] - mine[0], mine[1] - plain[0]])
        for plain, mine in zip((constant, linear, square), stretched, strict=True)
    )
    if (model.variances[0] == model.variances[1]).all():
        return whole_weights(first, second, third)
    means, variances = model.means, model.variances
    away = [means**2 / variances - 1, -2 * means / variances, 1 / variances]  # z² - 1, the constant first
    fourth = np.zeros((*means.shape, 5))
    for i, term in enumerate(away):
        for j, other in enumerate(away):
            fourth[..., i + j] += term * other
    fourth *= np.array([1.0, -1.0])[:, None, None] / (2 * model.counts)[:, None, None]
    return whole_weights(first, second, third, fourth)


def _likelier(curve: CalibrationCurve, other: CalibrationCurve) -> bool:
    """Return True if rows are more likely under the first curve, beyond noise."""
    (high, first), (low, second) = curve.likelihood, other.likelihood
    return high - low > float(np.hypot(first, second))


class GaussianNB(BayesClassifier):
    """Private naive Bayes with a normal distribution for each feature and class.

    Args:
        spend: privacy budget of the fit.
        bounds: public (low, high) of all features, or (lows, highs), or "find", which takes a tenth of the spend.
        classes: the public list of labels; rows with other labels are left out.
        variance: "shared" by all classes (less noise, and rare 0/1 features are not overweighted), "own" for each
            class, as in scikit-learn, or "auto" (the default): for two classes and where the noise allows, both are
            tried, each with half of the calibration budget, and the more likely one is kept; otherwise "shared".
        var_smoothing: the least variance, as a share of the squared width of the bounds.
        method: "sums", the only one.
        calibrate: for two classes, use a tenth of the spend to calibrate the probabilities
            (learn/naive_bayes/calibration.py).
        fill: replaces a missing number; without it the row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        theta_, var_, class_prior_, class_count_: as in scikit-learn, with noise.
        curve_: the calibration curve of the log-odds.
        expected_accuracy_: on rows like these, as `calibration.py` estimates it; None if nothing was calibrated, or
            noise and few rows hide it.
        release_, loss_: the release with its receipt, and the loss charged.

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
        variance: str = "auto",
        var_smoothing: float = 1e-3,
        method: str = "sums",
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
        self.method = method
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
        """Fit to rows, or inside the engine of a Cloister dataset.

        Args:
            X: an array or frame, or a dataset.
            y: labels; None for a dataset.
            target, features, table: for a dataset: the column to predict (its public values are the classes), columns
                that are numbers, and the table if there are several.

        Privacy: the spend, charged before a row is read.
        """
        if self.variance not in ("auto", "shared", "own"):
            raise BadInput("variance is 'auto', 'shared' or 'own'.")
        check_method(self, "sums")
        if is_dataset(X):
            return self._fit_dataset(X, target, features, table)
        inputs, listed = read_table(X, self.fill), read_classes(self.classes)
        labels, d = read_labels(y, listed, inputs.length), inputs.width

        @lru_cache(maxsize=1)
        def look() -> tuple[Floats, NDArray[np.int64]]:
            return complete(inputs.numbers(), codes(labels, list(listed)))  # type: ignore[return-value]

        given_box = None if wants_bounds(self.bounds) else read_box(self.bounds, d)

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> _Model:
            box = given_box
            if box is None:
                box = find_box(meter, lambda: look()[0], d, budget.part(_FINDING))
                budget = BudgetShare(budget.part(1 - _FINDING))
            return self._learn(meter, budget, ClassSums(look, listed, box), box)

        self._keep(self._train(steps), listed)
        keep_features(self, d, inputs.names)
        return self

    def _fit_dataset(
        self, data: PrivateData, target: str | None, features: Sequence[str] | None, table: str | None
    ) -> Self:
        if target is None or not features or target in features:
            raise BadInput("say what to predict from what: fit(ds, target='readmitted', features=['age']).")
        relation = read_relation(data, table, [*features, target])
        if not all(is_number(relation.columns[name]) for name in features):
            raise BadInput("GaussianNB is for numbers. MixedNB takes columns with categories too.")
        for name in features:
            check_filled(relation.columns[name], self.fill)
        listed = classes_of(relation, target, self.classes)
        ends = np.array([ends_of(relation.columns[name]) for name in features], dtype=np.float64)
        box = Box(ends[:, 0], ends[:, 1])
        rows = EngineClassSums(relation, target, listed, tuple(features), self.fill)
        self._keep(self._train(lambda meter, budget: self._learn(meter, budget, rows, box), data), listed)
        keep_features(self, len(features), features, columns_as_parts(relation.columns, features))
        return self

    def _learn(self, meter: PrivacyFilter, budget: BudgetShare, rows: ClassSums | EngineClassSums, box: Box) -> _Model:
        classes, d = rows.shape
        curved = self.calibrate and classes == 2
        rest = BudgetShare(budget.part(1 - SHARE)) if curved else budget
        sums = noise_for(rows.most * root_above(ONE**2 + d * EDGE**2), rows.most * (ONE + d * EDGE), rest.part(_SUMS))
        first = np.asarray(meter.release(rows.sums, sums), dtype=np.float64) / (ONE * rows.whole)
        squares = noise_for(rows.most * EDGE**2 * root_above(d), rows.most * EDGE**2 * d, rest.part(1 - _SUMS))
        noise = sums.standard_error / (ONE * rows.whole), squares.standard_error / (ONE**2 * rows.whole)
        kinds = self._kinds(
            first[:, 0], noise[1], noise_for(rows.most, rows.most, budget.part(SHARE / 2)), rows.whole, curved
        )

        def look() -> Any:
            squared = rows.squares()
            return squared if "own" in kinds else squared.sum(axis=0, keepdims=True)

        second = np.asarray(meter.release(look, squares), dtype=np.float64) / (ONE**2 * rows.whole)
        models = [self._estimate(first, second, noise, box, kind) for kind in kinds]
        if not curved:
            return models[0]
        tried = []
        for model in models:
            weights, loss = _without_itself(model, noise[0]), budget.part(SHARE / len(models))
            curve = calibrate(meter, lambda w=weights: rows.histogram(w), rows.most, rows.whole, loss)  # type: ignore[misc]
            tried.append(_Model(model.counts, model.means, model.variances, curve, box))
        return tried[0] if len(tried) == 1 or not _likelier(tried[1].curve, tried[0].curve) else tried[1]

    def _kinds(self, counts: Floats, noise: float, histogram: Any, whole: int, curved: bool) -> tuple[str, ...]:
        """Return the variances to try, from the released class sizes and the noise on squares and on a histogram."""
        if self.variance != "auto":
            return (self.variance,)
        clear = float(counts.sum()) > _CLEAR * (2 * BINS) ** 0.5 * histogram.standard_error / whole
        return ("shared", "own") if curved and clear and noise < _SQUARE * float(counts.min()) else ("shared",)

    def _estimate(self, first: Floats, second: Floats, noise: tuple[float, float], box: Box, kind: str) -> _Model:
        """Estimate means and variances from noisy sums; a class hidden by noise is shrunk towards all rows."""
        counts = np.maximum(first[:, 0], 1.0)
        total = counts.sum()
        overall = np.clip(first[:, 1:].sum(axis=0) / total, -0.5, 0.5)
        means = (first[:, 1:] + noise[0] * overall) / (counts + noise[0])[:, None]
        means = np.clip(means, -0.5, 0.5)
        doubt = noise[0] / counts[:, None]
        if kind == "shared":
            within = (second.sum(axis=0) - (counts[:, None] * means**2).sum(axis=0)) / total
            variances = np.broadcast_to(within, means.shape)
            unsure = np.full((len(counts), 1), noise[1] * len(second) ** 0.5 / total)
        else:
            variances = second / counts[:, None] - means**2
            unsure = (noise[1] / counts)[:, None]
        # A variance reduced by noise would make the feature decisive; a quarter of a deviation prevents that.
        least = np.minimum(float(self.var_smoothing) + 0.25 * (unsure + doubt * np.abs(means)), 0.25)
        return _Model(counts, means, np.clip(variances, least, 0.25), CalibrationCurve(), box)

    def _keep(self, model: _Model, classes: NDArray[Any]) -> None:
        width = model.box.high - model.box.low
        self.classes_ = classes
        self.class_count_, self.class_prior_ = model.counts, model.counts / model.counts.sum()
        self.theta_ = (model.box.low + model.box.high) / 2 + model.means * width
        self.var_ = model.variances * width**2
        self.curve_, self._model = model.curve, model
        self.expected_accuracy_ = model.curve.accuracy

    def _joint(self, rows: Any) -> Floats:
        box = self._model.box
        scaled = box.to_unit(box.settle(read_answers(self, rows, self.fill).numbers())) - 0.5
        constant, linear, square = self._model.quadratic()
        return np.asarray(constant + weighted(scaled, linear.T) + weighted(scaled**2, square.T))
