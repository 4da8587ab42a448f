"""Private logistic regression, binary and multinomial."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloister.data.private_data import PrivateData
from cloister.learn.base.frame import Floats, Frame
from cloister.learn.base.inputs import check_method, is_dataset, keep_features, wants_bounds
from cloister.learn.base.integer_rows import Integers
from cloister.learn.base.private_data import classes_of, read_names, read_relation
from cloister.learn.linear_model.classifier import LinearClassifier, LinearModel, PrivateRows
from cloister.learn.linear_model.discriminant import discriminant, moments_of_rows, optimism, taylor
from cloister.learn.linear_model.engine_moments import class_design, class_moments
from cloister.learn.linear_model.gradient_descent import Fitted, descend
from cloister.learn.linear_model.loss_gradients import Logistic, Softmax, sigmoid
from cloister.learn.linear_model.moments import ClassMoments
from cloister.learn.linear_model.newton import hessian
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import BudgetShare, PrivacyFilter, noise_for
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss

__all__ = ["LogisticRegression"]


# Expected accuracy of a linear classifier on rows like its training rows.
#
# `counted` releases, for a fortieth of the spend, the noisy numbers of rows that the finished model classifies rightly
# and wrongly. These are its training rows, so part of the accuracy may be overfitting. With p coefficients and n rows
# that part is at most about sqrt(2 p / (π n)) of all rows, however the half-space was chosen: this is the excess over
# one half of the best half-space on normal rows with random labels (Gardner & Derrida 1988), and learnable labels vary
# less and leave less to overfit. It is subtracted from the lower end of the interval, beside noise and sampling error.
# With too few rows no accuracy is reported. That is decided by the number of rows that the fit itself released. If it
# were decided by the two counts, they would be reported mostly where their noise is large, and intervals would not
# hold. The accuracy itself is corrected by the optimism of a fit without noise (`_corrected`). Coverage is measured in
# tests/unit/learn/test_forecast.py, also for random labels.
#
# Inside an engine (`of_moments`) accuracy follows from released second moments at no cost. The scores of a class are
# taken to be normal: they are sums over many features. With class shares p, mean scores m = w'μ + b and a common
# variance s² = w'Σw,
#
#     accuracy = p(1) Φ(m(1) / s) + p(0) Φ(-m(0) / s)
#
# Where w was fitted to the same noisy means, w'(μ₁ - μ₀) is too large by known contributions of the noise and of
# sampling, which are subtracted (`quadratic.optimism`). On the generated hospital the result is within 0.03 of the
# truth.


CHECK = Fraction(1, 40)  # of the spend
_LEAST_ROWS = 3.0  # times the noise on their number
_WIDEST = 0.2  # a wider margin is not reported
_SURE = NormalDist().inv_cdf(0.975)
_SHARES = np.linspace(0.0, 1.0, 1001)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected accuracy with its 95 % interval."""

    accuracy: float
    low: float
    high: float


def of_moments(found: ClassMoments, weights: Floats, shift: float, optimism: float = 0.0) -> float:
    """Return the accuracy that released moments of two classes imply.

    Args:
        found: the moments.
        weights, shift: the score of a row x is weights·x + shift.
        optimism: expected gap of the classes' mean scores due to noise in the means, if the weights were fitted to it.
    """
    means = np.clip(found.sums / found.counts[:, None], -1.0, 1.0)
    within = found.products - (means.T * found.counts) @ means
    total = float(found.counts.sum())
    # Lower bound of the variance under noise: the mean of its square over directions.
    least = float(weights @ weights) * found.product_noise / total
    variance = max(float(weights @ within @ weights) / total, least, 1e-12)
    scores = means @ weights + shift
    middle, half = float(scores.mean()), max(float(scores[1] - scores[0]) - optimism, 0.0) / 2
    return _accuracy(found.counts / total, middle - half, middle + half, math.sqrt(variance))


def counted(
    meter: PrivacyFilter, loss: Loss, look: Callable[[], NDArray[np.bool_]], parameters: int, rows: float
) -> Forecast | None:
    """Estimate the accuracy from noisy counts of rows that the model classifies rightly and wrongly.

    The interval holds all shares p at which (1 - p) right - p wrong, whose mean is then 0, is within noise and sampling
    error (Fieller 1954). It includes the noise in the number of rows, so it is valid for few rows too.

    Args:
        meter, loss: the privacy filter to charge, and the loss.
        look: returns True for each row that the model classifies rightly; called inside a step.
        parameters: number of fitted parameters.
        rows: approximate number of rows, released before with its own noise; decides if an accuracy is reported.

    Privacy: the loss: a row is in one of two counts, by itself and the released model.
    """
    noise = noise_for(1, 1, loss)

    def both() -> Integers:
        right = look()
        return np.array([int(right.sum()), int((~right).sum())], dtype=np.int64)

    right, wrong = (float(count) for count in meter.release(both, noise))
    # Laplace noise has longer tails than normal noise.
    hidden = noise.standard_error * max(_SURE, -math.log(0.05) / math.sqrt(2) if loss.measure == "epsilon" else 0.0)
    if rows < 1 or math.hypot(hidden / rows, _SURE / math.sqrt(2 * rows)) + _owed(parameters, rows) / 2 > _WIDEST:
        return None
    total = right + wrong
    least, most = max(total - math.sqrt(2) * hidden, 1.0), max(total + math.sqrt(2) * hidden, 1.0)
    chance = _SURE**2 * 2 * most * _SHARES * (1 - _SHARES)
    allowed = 0.5 + np.sqrt(hidden**2 * ((1 - _SHARES) ** 2 + _SHARES**2) + chance)
    shares = _SHARES[np.abs((1 - _SHARES) * right - _SHARES * wrong) <= allowed]
    if not len(shares):  # no share is consistent with the counts
        return None
    step = float(_SHARES[1])
    low, high = max(shares[0] - step - _owed(parameters, least), 0.0), min(shares[-1] + step, 1.0)
    share = right / total if total > 0 else 0.5
    return Forecast(float(np.clip(_corrected(share, parameters / least), low, high)), float(low), float(high))


def _owed(parameters: int, rows: float) -> float:
    """Return the share of training rows that may be classified rightly due to overfitting."""
    return math.sqrt(2 * parameters / (math.pi * rows))


def _corrected(share: float, each: float) -> float:
    """Return the accuracy on new rows, from that on training rows, of a fit with `each` coefficients per row.

    With normal scores a fit without noise is right on Φ(t) of its training rows and on Φ(t - each / t) of new ones, and
    on no fewer than by chance. With noise it overfits less, so this is rather too low.
    """
    if share <= 0.5 or share >= 1:
        return share
    normal = NormalDist()
    away = normal.inv_cdf(share)
    return max(normal.cdf(away - each / away), 0.5)


def _accuracy(shares: Floats, low: float, high: float, deviation: float) -> float:
    phi = NormalDist().cdf
    return float(shares[1]) * phi(high / deviation) + float(shares[0]) * phi(-low / deviation)


_METHODS = ("auto", "gradient", "newton", "quadratic", "functional")


class LogisticRegression(LinearClassifier):
    """Private logistic regression; requires a spend, public bounds and public classes.

    Args:
        spend: privacy budget of the fit: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`, for which
            noise is larger.
        bounds: public (low, high) of all features, or (lows, highs), or "find", which takes a tenth of the spend.
        data_norm: alternatively, the public norm that rows are clipped to (bounds then only clip).
        classes: the public list of labels; rows with other labels are left out.
        method: "auto" chooses between "gradient" and "newton" by the spend.
            gradient     noisy gradient descent around a private centre (learn/linear_model/gradient_descent.py)
            newton       noisy gradient descent through noisy second moments, with standard errors; for a large spend
            quadratic    one pass from noisy second moments, inside the engine of a dataset; "auto" uses it there
            functional   the functional mechanism (Zhang et al. 2012), for comparison
        rows: number of rows, if it is public; otherwise it is released for a part of the spend.
        fill: replaces a missing number; without it the row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        coef_, intercept_, classes_, n_iter_: as in scikit-learn.
        standard_errors_: root mean squared errors of coefficients and, last, of the intercept, for two classes by
            "newton". They include sampling, noise, the ridge, and steps that have not converged, so that ± 1.96 of them
            holds the true coefficient with 95 % or more. They are wide where the bias is not small, and directions that
            the noisy Hessian leaves in doubt count as flat. None for other methods, and where the spend is so small for
            the rows that gradients of typical rows are clipped: the coefficients then minimise another loss.
        expected_accuracy_: on rows like these (learn/linear_model/logistic.py), for a fortieth of the spend; None where
            noise hides it. Inside an engine, for two classes, at no cost.
        expected_accuracy_interval_: its 95 % interval; None inside an engine.
        release_, loss_: the release with its receipt, and the loss charged.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset). Bounds, classes, the number of
        features and all parameters are public; the number of rows is not. The noise is discrete Gaussian (discrete
        Laplace for a pure spend) on integers. Audited in tests/statistical/test_learn_logistic_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        bounds: Any = None,
        data_norm: float | None = None,
        classes: Sequence[Any] | None = None,
        method: str = "auto",
        rows: int | None = None,
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.bounds = bounds
        self.data_norm = data_norm
        self.classes = classes
        self.method = method
        self.rows = rows
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
        """Fit to rows, or to a Cloister dataset.

        Args:
            X: an array or frame, or a dataset: "auto" and "quadratic" fit inside its engine; for other methods, and
                where bounds are to be found, its rows are read into this process (learn/base/row_source.py).
            y: labels; None for a dataset.
            target, features, table: for a dataset: the column to predict (its public values are the classes), the
                columns to predict from (all others unless given), and the table if there are several.

        Privacy: the spend, charged before a row is read.
        """
        check_method(self, *_METHODS)
        if is_dataset(X) and self.method in ("auto", "quadratic") and not wants_bounds(self.bounds):
            return self._fit_engine(X, target, features, table)
        data = self._rows(X, y, target=target, features=features, table=table)
        if self.method == "functional" and len(data.classes) > 2:
            raise BadInput("the functional mechanism is for two classes. Use another method.")
        self._finish(self._fit(data, self._learn))
        return self

    def _learn(self, meter: PrivacyFilter, budget: BudgetShare, data: PrivateRows) -> LinearModel:
        model, count = self._descended(meter, BudgetShare(budget.part(1 - CHECK)), data)

        def right() -> NDArray[np.bool_]:
            rows, labels = data.look()
            return np.asarray(model.places(rows, data.frame) == labels)

        forecast = counted(meter, budget.part(CHECK), right, model.coefficients.size + model.intercepts.size, count)
        return (
            model
            if forecast is None
            else replace(model, accuracy=forecast.accuracy, accuracy_interval=(forecast.low, forecast.high))
        )

    def _descended(self, meter: PrivacyFilter, budget: BudgetShare, data: PrivateRows) -> tuple[LinearModel, float]:
        """Return the model and the approximate number of rows; 0 where noise hides it."""
        if self.method in ("quadratic", "functional"):
            laplace = self.method == "functional"
            moments = moments_of_rows(meter, budget, data, laplace=laplace)
            weights, shift = (taylor if laplace else discriminant)(moments)
            features = weights * (2 * data.frame.scale)
            count, noise = float(moments.counts.sum()), moments.line_noise / (2 * data.frame.reach)
            rows = count if count >= _LEAST_ROWS * noise * math.sqrt(len(data.classes)) else 0.0
            return LinearModel(features, shift - features @ data.frame.centre, 1), rows
        residual = Logistic() if len(data.classes) == 2 else Softmax(len(data.classes))
        newton = {"gradient": False, "newton": True}.get(self.method)
        binary = residual.outputs == 1
        fitted = descend(meter, budget, data.frame, residual, data.look, rows=self.rows, newton=newton, errors=binary)
        errors = _standard_errors(meter, budget, fitted, data.frame) if fitted.kept else None
        survey = fitted.survey
        rows = survey.rows if survey.rows >= _LEAST_ROWS * survey.noise else 0.0
        return LinearModel.of(fitted, data.frame, errors), rows

    def _fit_engine(
        self, data: PrivateData, target: str | None, features: Sequence[str] | None, table: str | None
    ) -> Self:
        names = read_names(data, table, target, features)
        assert target is not None
        relation = read_relation(data, table, [*names, target])
        listed = classes_of(relation, target, self.classes)
        facts = relation, names, target, listed.tolist(), self.fill
        design = class_design(*facts)

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> LinearModel:
            moments = class_moments(meter, budget, *facts)
            weights, shift = discriminant(moments)
            accuracy = (
                of_moments(moments, weights[0], float(shift[0]), optimism(moments)) if len(weights) == 1 else None
            )
            features = weights * design.scale
            return LinearModel(features, shift - features @ design.centre, 1, accuracy=accuracy)

        model = self._train(steps, data)
        self._keep(model, listed, None, design.box)
        keep_features(self, len(design.names), design.names, design.parts)
        self._finish(model)
        return self

    def _finish(self, model: LinearModel) -> None:
        self._model = model
        self.standard_errors_, self.expected_accuracy_ = model.errors, model.accuracy
        self.expected_accuracy_interval_ = model.accuracy_interval

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class.

        A clipped gradient is the gradient of another loss: linear where the logistic loss is steep. Its minimiser gives
        probabilities too: p min(s(-f), c) = (1 - p) min(s(f), c), where f is the score, s the sigmoid and c the limit
        set by the row's norm. Without a limit that is the sigmoid of f.
        """
        scores = self.decision_function(X)
        if scores.ndim > 1:
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            return np.asarray(weights / weights.sum(axis=1, keepdims=True))
        limit = self._limits(X)
        right, left = np.minimum(sigmoid(scores), limit), np.minimum(sigmoid(-scores), limit)
        share = right / (right + left)
        return np.column_stack([1 - share, share])

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the logarithm of each probability."""
        return np.asarray(np.log(np.maximum(self.predict_proba(X), 1e-300)))

    def _limits(self, rows: Any) -> Any:
        """Return the residual at which the gradient of each row is clipped."""
        if self._model.clip is None or self._model.middle is None or self._seen is None:
            return 1.0
        away = self._seen.rows(self._read(rows)) - self._model.middle
        if self._model.stretch is not None:
            away = away * self._model.stretch
        if self.loss_.is_pure:
            lengths = np.abs(away).sum(axis=1) + self._model.constant
        else:
            lengths = np.sqrt(np.einsum("ij,ij->i", away, away) + self._model.constant**2)
        return np.minimum(1.0, self._model.clip / lengths)


def _standard_errors(meter: PrivacyFilter, budget: BudgetShare, fitted: Fitted, frame: Frame) -> Floats | None:
    """Return the root mean squared errors of coefficients and intercept, for the unscaled features.

    Let H be a noisy Hessian at the released weights w, including the ridge and lowered by its own noise. Sampling has
    the covariance H⁻¹; the noise of the steps and their distance from convergence follow from the steps themselves
    (`Fitted.error`); and the ridge has shrunk the weights by H⁻¹ ridge w. The known bias is not subtracted but squared
    and added: an interval of 1.96 such errors then holds the truth with 95 % or more, however large the bias is. None
    where gradients of typical rows are clipped: the weights then minimise another loss. The Hessian is charged in both
    cases, since its budget was set aside before.
    """
    longest = 1.5 * float(np.hypot(fitted.survey.spread, fitted.plan.constant))
    curvature = hessian(meter, budget.part(fitted.kept), fitted.rows, fitted.weights, longest)
    if fitted.clips_typical_rows(pure=budget.pure):
        return None
    values, vectors = curvature.surely_at_least(fitted.plan.ridge)
    inverse = (vectors / values) @ vectors.T
    covariance = inverse + fitted.error((vectors * values) @ vectors.T)
    bias = fitted.plan.ridge * inverse @ fitted.weights[:, 0]
    back = np.diag([*(frame.scale * fitted.survey.stretch), fitted.plan.constant])
    back[-1, :-1] = -(fitted.survey.middle + frame.centre * frame.scale) * fitted.survey.stretch
    return np.asarray(np.sqrt(np.diag(back @ covariance @ back.T) + (back @ bias) ** 2))
