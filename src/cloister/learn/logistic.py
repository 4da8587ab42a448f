"""Private logistic regression, binary and multinomial."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloister.learn.descent import Fitted, descend
from cloister.learn.engine_moments import class_design, class_moments
from cloister.learn.forecast import CHECK, counted, of_moments
from cloister.learn.found import wants_bounds
from cloister.learn.frame import Floats, Frame
from cloister.learn.inputs import is_dataset, keep_features, read_classes
from cloister.learn.linear_classifier import FetchedRows, LinearClassifier, LinearModel, PrivateRows
from cloister.learn.newton import hessian
from cloister.learn.purse import Purse
from cloister.learn.quadratic import discriminant, moments_of_rows, optimism, taylor
from cloister.learn.relation import classes_of, read_names, read_relation
from cloister.learn.residuals import Logistic, Softmax, sigmoid
from cloister.learn.textbook import learned_once
from cloister.learn.textbook_linear import TEXTBOOK, classify
from cloister.learn.textbook_risk import Logistic as LogisticRisk
from cloister.privacy.errors import BadInput
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.meter import Meter

__all__ = ["LogisticRegression"]

_METHODS = ("auto", "gradient", "newton", "quadratic", "functional", *TEXTBOOK)


class LogisticRegression(LinearClassifier):
    """Logistic regression that needs nothing but a spend, public bounds and public classes.

    Args:
        spend: what the fit may cost: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`, for which
            noise is larger.
        bounds: public (low, high) of all features, or (lows, highs), or "find", which takes a tenth of the spend; or
        data_norm: the public length that rows are shortened to (bounds then only clip).
        classes: the public list of labels; rows with other labels are left out.
        method: "auto" chooses between "gradient" and "newton" by what the spend can pay for.
            gradient     noisy gradient descent around a private centre (learn/descent.py)
            newton       the same through noisy second moments, with standard errors; for a large spend
            quadratic    one shot from noisy second moments; for a dataset, inside its engine, and what "auto" is there
            functional   the functional mechanism (Zhang et al. 2012), for comparison
            output, objective, input   the textbook's perturbations (learn/textbook.py): no ledger takes
                them, and they need a `random_state`
        rows: how many rows there are, if that is public; else it is released for a part of the spend.
        fill: what stands for a missing number; without it the row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        coef_, intercept_, classes_, n_iter_: as in scikit-learn.
        standard_errors_: root mean squared errors of coefficients and, last, of the intercept, for two classes by
            "newton". Sampling, noise, the ridge, and steps that have not converged together, so that ± 1.96 of them
            holds the true coefficient with 95 % or more; they are wide where the bias is not small, and directions
            that the noisy Hessian leaves in doubt count as flat. None for other methods, and where the spend is so
            small for the rows that gradients of typical rows are clipped: the coefficients are another loss's then.
        expected_accuracy_: on rows like these (learn/forecast.py), for a fortieth of the spend; None where the noise
            leaves nothing to say. Inside an engine, for two classes, at no cost.
        expected_accuracy_interval_: that holds it with 95 %; None inside an engine.
        release_, loss_: the receipt and what was paid.

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
        """Learn from rows, or from a Cloister dataset.

        Args:
            X: an array or frame, or a dataset: "auto" and "quadratic" learn inside its engine; for other methods, and
                where bounds are to be found, its rows are read into this process (learn/fetched.py).
            y: labels; None for a dataset.
            target, features, table: of a dataset: the column to predict (its public values are the classes), the
                columns to predict from (all others unless given), and the table if there are several.

        Privacy: charges the spend before it reads a row.
        """
        if self.method not in _METHODS:
            raise BadInput(f"method is one of {', '.join(_METHODS)}.")
        engine = is_dataset(X) and self.method in ("auto", "quadratic") and not wants_bounds(self.bounds)
        if engine:
            return self._fit_engine(X, target, features, table)
        if is_dataset(X) and self.method in TEXTBOOK:
            raise BadInput("the textbook's perturbations need rows as arrays. Other methods take a dataset.")
        if is_dataset(X):
            data: PrivateRows | FetchedRows = self._table_rows(X, target, features, table)
        else:
            data = self._rows(X, y)
        if self.method == "functional" and len(data.classes) > 2:
            raise BadInput("the functional mechanism is for two classes. Use another method.")
        if self.method in TEXTBOOK:
            assert isinstance(data, PrivateRows)
            return self._fit_textbook(data)
        self._finish(self._fit(data, self._learn))
        return self

    def _learn(self, meter: Meter, budget: Purse, data: PrivateRows | FetchedRows) -> LinearModel:
        model = self._descended(meter, Purse(budget.part(1 - CHECK)), data)

        def right() -> NDArray[np.bool_]:
            rows, labels = data.look()
            return np.asarray(model.places(rows, data.frame) == labels)

        seen = counted(meter, budget.part(CHECK), right, model.coefficients.size + model.intercepts.size)
        return (
            model if seen is None else replace(model, accuracy=seen.accuracy, accuracy_interval=(seen.low, seen.high))
        )

    def _descended(self, meter: Meter, budget: Purse, data: PrivateRows | FetchedRows) -> LinearModel:
        if self.method in ("quadratic", "functional"):
            laplace = self.method == "functional"
            found = moments_of_rows(meter, budget, data, laplace=laplace)
            weights, shift = (taylor if laplace else discriminant)(found)
            features = weights * (2 * data.frame.scale)
            return LinearModel(features, shift - features @ data.frame.centre, 1)
        residual = Logistic() if len(data.classes) == 2 else Softmax(len(data.classes))
        newton = {"gradient": False, "newton": True}.get(self.method)
        binary = residual.outputs == 1
        fitted = descend(meter, budget, data.frame, residual, data.look, rows=self.rows, newton=newton, errors=binary)
        errors = _standard_errors(meter, budget, fitted, data.frame) if fitted.kept else None
        return LinearModel.of(fitted, data.frame, errors)

    def _fit_engine(self, data: Any, target: str | None, features: Sequence[str] | None, table: str | None) -> Self:
        names = read_names(data, table, target, features)
        assert target is not None
        relation = read_relation(data, table, [*names, target])
        listed = classes_of(relation, target, self.classes)
        told = relation, names, target, listed.tolist(), self.fill
        design = class_design(*told)

        def steps(meter: Meter, budget: Purse) -> LinearModel:
            found = class_moments(meter, budget, *told)
            weights, shift = discriminant(found)
            accuracy = of_moments(found, weights[0], float(shift[0]), optimism(found)) if len(weights) == 1 else None
            features = weights * design.scale
            return LinearModel(features, shift - features @ design.centre, 1, accuracy=accuracy)

        model = self._train(steps, data)
        self._keep(model, read_classes(listed), None, design.box)
        keep_features(self, len(design.names), design.names, dataset=True)
        self._finish(model)
        return self

    def _fit_textbook(self, data: PrivateRows) -> Self:
        model = learned_once(self, lambda lesson: classify(self.method, data, LogisticRisk, lesson))
        self._keep(model, data.classes, data.frame)
        self._keep_names(data)
        self._finish(model)
        return self

    def _finish(self, model: LinearModel) -> None:
        self._model = model
        self.standard_errors_, self.expected_accuracy_ = model.errors, model.accuracy
        self.expected_accuracy_interval_ = model.accuracy_interval

    def predict_proba(self, rows: Any) -> Floats:
        """The probability of each class.

        A clipped gradient is the gradient of another loss: linear where the logistic loss is steep. Its minimiser has
        probabilities too: p min(s(-f), c) = (1 - p) min(s(f), c), where f is the score, s the sigmoid and c the limit
        that the row's length sets. Without a limit that is the sigmoid of f.
        """
        scores = self.decision_function(rows)
        if scores.ndim > 1:
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            return np.asarray(weights / weights.sum(axis=1, keepdims=True))
        limit = self._limits(rows)
        right, left = np.minimum(sigmoid(scores), limit), np.minimum(sigmoid(-scores), limit)
        share = right / (right + left)
        return np.column_stack([1 - share, share])

    def predict_log_proba(self, rows: Any) -> Floats:
        """The logarithm of each probability."""
        return np.asarray(np.log(np.maximum(self.predict_proba(rows), 1e-300)))

    def _limits(self, rows: Any) -> Any:
        """At what residual a gradient of each row is clipped."""
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


def _standard_errors(meter: Meter, budget: Purse, fitted: Fitted, frame: Frame) -> Floats | None:
    """The root mean squared error of coefficients and intercept, for features as they came.

    With H a noisy Hessian at the released weights w, ridge included, and lowered by its own noise: the rows' chance has
    the covariance H⁻¹; the noise of the steps, and how far the last of them are from the end, follow from the steps
    themselves (`Fitted.error`); and the ridge has drawn the weights in by H⁻¹ ridge w. What is known of the bias is
    not undone but squared and added: an interval of 1.96 such errors then holds the truth with 95 % or more, however
    large the bias is beside the rest. None where gradients of typical rows are clipped: then the weights are those of
    another loss. The Hessian is paid for either way, since its price was set aside before.
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
