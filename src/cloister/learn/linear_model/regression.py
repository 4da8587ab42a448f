"""Linear regression from noisy second moments, with standard errors and intervals."""

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from cloister.data.private_data import PrivateData
from cloister.learn.base.cells import numbers_in
from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.frame import Frame, find_box, read_frame
from cloister.learn.base.inputs import (
    Box,
    check_method,
    complete,
    is_dataset,
    keep_features,
    read_answers,
    read_goal,
    read_table,
    wants_bounds,
)
from cloister.learn.base.integer_rows import weighted
from cloister.learn.base.private_data import read_relation
from cloister.learn.linear_model.engine_moments import EngineDesign
from cloister.learn.linear_model.least_squares import CoefficientErrors, Fit, adaptive_ridge, solve, trimmed
from cloister.learn.linear_model.moments import SHARE, Floats, Moments, Reach, cautious_length, once, probe_scale
from cloister.learn.linear_model.regression_rows import (
    Regression,
    RegressionRows,
    in_units,
    read_ends,
    release_regression,
)
from cloister.privacy.errors import BadInput, BadProbability
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.wishart import wishart

__all__ = ["LinearRegression", "Ridge"]

_SOLVERS: dict[str, Callable[[Moments, Floats], Fit]] = {
    "moments": solve,
    "adassp": adaptive_ridge,
    "functional": trimmed,
}
_FINDING = Fraction(1, 10)
_FARTHEST = 1.15
_SURE = NormalDist().inv_cdf(0.975)


class LinearRegression(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Private least squares regression.

    Args:
        spend: privacy budget of the fit: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`, whose noise
            is larger.
        bounds: public (low, high) of all features, or (lows, highs), or "find", which takes a tenth of the spend.
        data_norm: instead of bounds or beside them, the public norm that rows are clipped to.
        target_bounds: public (low, high) of y, or "find"; predictions stay within them.
        method: "moments" (the default; learn/linear_model/least_squares.py), "adassp" (Wang 2018), or "functional"
            (Zhang et al. 2012: Laplace noise on the objective's coefficients).
        fill: replaces a missing number; without it the row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        coef_, intercept_: as in scikit-learn; from a dataset, one coefficient for each name in `feature_names_in_`.
        standard_errors_: those of the coefficients and, last, of the intercept; sampling error, noise and shrinkage
            together, so that ± 1.96 of them holds the true coefficient with 95 % or more: they allow for the noise on
            the residual variance too. They assume errors of one variance. The part of a coefficient hidden by noise is
            assumed to be at most half the target's range over the feature's range: where bounds are far wider than the
            rows and a slope is steeper than that, they are too small, and the coefficient is shrunk to zero. Give
            narrower bounds, or `bounds="find"`. They are about the rows as clipped: where bounds, a norm or bounds that
            were found clip many rows or targets, they do not hold for the coefficients of the rows as they are. None
            for the methods that have no theory for them.
        expected_score_: the R² that the released moments imply.
        n_rows_: approximate number of rows, as released.
        release_, loss_: the release with its receipt, and the loss charged.

    Where columns are linearly dependent (all indicators of a category beside the intercept), coefficients are not
    identified: those of least norm are estimated, predictions are good, and the intervals are wide.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset). Bounds, the number of features
        and all parameters are public; the number of rows is not. Rows beyond the bounds are clipped. Discrete Gaussian
        noise (discrete Laplace for a pure spend) on integers. Audited in tests/statistical/test_learn_moments_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        bounds: Any = None,
        data_norm: float | None = None,
        target_bounds: Any = None,
        method: str = "moments",
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.bounds = bounds
        self.data_norm = data_norm
        self.target_bounds = target_bounds
        self.method = method
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
            y: numbers; None for a dataset.
            target, features, table: for a dataset: the column to predict, the columns to predict from (those with
                categories become indicators), and the table if there are several. Bounds come from the schema.

        Privacy: the spend, charged before a row is read.
        """
        if self.method == "wishart":
            wishart()
        check_method(self, *_SOLVERS)
        if is_dataset(X):
            return self._fit_dataset(X, target, features, table)
        columns = read_table(X, self.fill)
        goal, width = read_goal(y, columns.length), columns.width
        look = once(lambda: complete(columns.numbers(), numbers_in(goal)))
        public = self._public(width)

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> tuple[Regression, Box]:
            box = None
            if public[0] is None or public[1] is None:
                box = find_box(meter, lambda: np.column_stack(look()), width + 1, budget.part(_FINDING))
                budget = BudgetShare(budget.part(1 - _FINDING))
            frame, ends = self._known(public, box)
            probe = probe_scale(meter, budget, frame, lambda: frame.rows(look()[0]), None)
            longest = cautious_length(probe, frame, budget, _FARTHEST)
            table = RegressionRows(look, frame, ends, probe.middle, longest)
            scaled = frame.centre + probe.middle / frame.scale, frame.scale
            rest = BudgetShare(budget.part(1 - SHARE))
            return self._learn(meter, rest, table.look, table.reach, table.unit, scaled, ends), frame.ends

        self._keep(*self._train(steps))
        keep_features(self, width, columns.names)
        return self

    def _fit_dataset(
        self, data: PrivateData, target: str | None, features: Sequence[str] | None, table: str | None
    ) -> Self:
        if target is None or not features or target in features:
            raise BadInput("say what to predict from what: fit(ds, target='stay_days', features=['age', 'ward']).")
        design = EngineDesign(read_relation(data, table, [*features, target]), tuple(features), target, self.fill)
        design.check()
        low, high = (float(end) for end in design.relation.columns[target].bounds or (0, 1))  # type: ignore[arg-type]

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> Regression:
            scaled = design.centre, design.scale
            return self._learn(meter, budget, design.matrix, design.reach, design.unit, scaled, (low, high))

        self._keep(self._train(steps, data), design.box)
        keep_features(self, len(design.names), design.names, design.parts)
        return self

    def _learn(
        self,
        meter: PrivacyFilter,
        budget: BudgetShare,
        look: Callable[[], Any],
        reach: Reach,
        unit: float,
        scaled: tuple[Floats, Floats],
        ends: tuple[float, float],
    ) -> Regression:
        """Release the moments, solve, and convert to the units of the data."""
        moments = release_regression(
            meter, budget, once(look), reach, unit, len(scaled[0]), self.method == "functional"
        )
        fit = _SOLVERS[self.method](moments, self._penalty(scaled[1]))
        return in_units(moments, fit, scaled, ends)

    def _penalty(self, scale: Floats) -> Floats:
        return np.zeros(len(scale) + 1)

    def _public(self, features: int) -> tuple[Frame | None, tuple[float, float] | None]:
        """Read the public frame and target bounds, once and before the charge; None for what is to be found."""
        frame = None if wants_bounds(self.bounds) else read_frame(self.bounds, self.data_norm, features)
        return frame, None if wants_bounds(self.target_bounds) else read_ends(self.target_bounds)

    def _known(
        self, public: tuple[Frame | None, tuple[float, float] | None], box: Box | None
    ) -> tuple[Frame, tuple[float, float]]:
        """Return the frame and target bounds, as given or as found."""
        frame, ends = public
        if box is not None and frame is None:
            frame = read_frame((box.low[:-1], box.high[:-1]), self.data_norm, len(box.low) - 1)
        if box is not None and ends is None:
            ends = float(box.low[-1]), float(box.high[-1])
        assert frame is not None
        assert ends is not None
        return frame, ends

    def _keep(self, model: Regression, box: Box) -> None:
        self._box = box
        self.coef_, self.intercept_ = model.coefficients, model.intercept
        self._errors = model.errors
        self.standard_errors_ = None if model.errors is None else model.errors.margins(0.95) / _SURE
        self.expected_score_, self.n_rows_ = model.score, model.rows
        self._target_ends = model.ends

    def confidence_intervals(self, confidence: float = 0.95) -> Floats:
        """Return lower and upper limits of the coefficients and, last, of the intercept. Post-processing.

        Each holds by itself with this confidence or more.
        """
        if not 0 < confidence < 1:
            raise BadProbability("confidence must lie strictly between 0 and 1. Write 0.95.")
        if self.standard_errors_ is None:
            raise BadInput(f"{self.method} has no standard errors. Use method='moments'.")
        errors: CoefficientErrors | None = getattr(self, "_errors", None)
        if errors is None:
            raise BadInput("a file of an earlier version has standard errors that were too small. Fit the model again.")
        margin = errors.margins(confidence)
        middle = np.append(self.coef_, self.intercept_)
        return np.column_stack([middle - margin, middle + margin])

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Predict the target of each row, within the bounds of the target."""
        rows = read_answers(self, X, self.fill).numbers()
        predictions = weighted(self._box.settle(rows), self.coef_) + self.intercept_
        low, high = self._target_ends
        # Of numbers near the end of the floats, terms that cancel have overflowed.
        return np.asarray(np.where(np.isnan(predictions), (low + high) / 2, np.clip(predictions, low, high)))


# Ridge regression from noisy second moments.


_HEAVIEST = 1e15  # in rows: coefficients are zero beyond it, and a larger penalty makes the matrix singular


class Ridge(LinearRegression):
    """Private least squares with a penalty alpha · |coefficients|², as in scikit-learn.

    Args:
        alpha: the penalty, public; the noise adds what it makes necessary.
        spend, bounds, data_norm, target_bounds, method, fill, ledger, account, random_state: see `LinearRegression`.

    Standard errors refer to the ridge coefficients of the same rows without errors in the target. A row farther from
    the mean than 1.15 times the spread counts less in the fit, and the penalty so much more: a strong penalty shrinks
    coefficients more than scikit-learn's, and standard errors do not include that.

    Privacy: as `LinearRegression`.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        alpha: float = 1.0,
        bounds: Any = None,
        data_norm: float | None = None,
        target_bounds: Any = None,
        method: str = "moments",
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            spend,
            bounds=bounds,
            data_norm=data_norm,
            target_bounds=target_bounds,
            method=method,
            fill=fill,
            ledger=ledger,
            account=account,
            random_state=random_state,
        )
        self.alpha = alpha

    def _penalty(self, scale: Floats) -> Floats:
        # A coefficient of the data is height · scale times a scaled one; the height cancels in the objective.
        return np.append(np.minimum(float(self.alpha) * scale**2, _HEAVIEST), 0.0)
