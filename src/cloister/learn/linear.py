"""Linear and ridge regression from second moments with noise, with standard errors and intervals."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from cloister.learn.engine_moments import EngineDesign
from cloister.learn.estimator import PrivateEstimator
from cloister.learn.exact import ROW_BITS
from cloister.learn.found import find_box, wants_bounds
from cloister.learn.frame import Frame, read_frame, squares
from cloister.learn.inputs import Box, is_dataset, read_box, read_rows
from cloister.learn.least_squares import Fit, adaptive_ridge, solve, trimmed
from cloister.learn.moments import (
    Floats,
    Moments,
    Reach,
    cautious_length,
    exact_product,
    release_matrix,
    release_together,
    release_vector,
)
from cloister.learn.purse import Purse
from cloister.learn.relation import read_relation
from cloister.learn.survey import SHARE, survey
from cloister.privacy.errors import BadBounds, BadInput, BadProbability
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.meter import Meter

__all__ = ["LinearRegression", "Ridge"]

_SOLVERS: dict[str, Callable[[Moments, Floats], Fit]] = {
    "moments": solve,
    "adassp": adaptive_ridge,
    "functional": trimmed,
}
_FINDING = Fraction(1, 10)
_FARTHEST = 1.15


@dataclass(frozen=True, slots=True)
class _Model:
    """A released regression, in the units of the data."""

    coefficients: Floats
    intercept: float
    covariance: Floats | None
    score: float
    rows: float


class LinearRegression(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Least squares.

    Args:
        spend: what the fit may cost: `epsilon(1, delta="1e-6")`, `rho("0.02")`, or a pure `epsilon(1)`, whose noise is
            larger.
        bounds: public (low, high) of all features, or (lows, highs), or "find", which takes a tenth of the spend.
        data_norm: instead, or beside them, the public length that rows are shortened to.
        target_bounds: public (low, high) of y, or "find".
        method: "moments" (the default; learn/least_squares.py), "adassp" (Wang 2018), or "functional" (Zhang et al.
            2012: Laplace noise on the objective's coefficients, the textbook's objective perturbation). All three rest
            on integers and exact noise.
        fill: what stands for NaN; without it NaN is refused.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        coef_, intercept_: as in scikit-learn; from a dataset, one coefficient for each name in `feature_names_in_`.
        standard_errors_: of the coefficients and, last, of the intercept; sampling error and noise together. They rest
            on errors of one variance. None for the methods that have no theory for them.
        expected_score_: the R² that the released moments let expect.
        n_rows_: about how many rows there were, as released.
        release_, loss_: the receipt and what was paid.

    Where columns depend on each other (all indicators of a category beside the intercept), coefficients are not
    determined by any data: the ones of least length are estimated, predictions are good, and the intervals are wide.

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
        """Learn from rows, or inside the engine of a Cloister dataset.

        Args:
            X: an array or frame, or a dataset.
            y: numbers; None for a dataset.
            target, features, table: of a dataset: the column to predict, the columns to predict from (those with
                categories become indicators), and the table if there are several. Bounds come from the schema.

        Privacy: charges the spend before it reads a row.
        """
        if self.method not in _SOLVERS:
            raise BadInput(f"method is one of {', '.join(_SOLVERS)}.")
        if is_dataset(X):
            return self._fit_dataset(X, target, features, table)
        rows = read_rows(X, self.fill)
        goal = _numbers(y, len(rows))
        finding = wants_bounds(self.bounds) or wants_bounds(self.target_bounds)
        self._check(rows.shape[1])

        def steps(meter: Meter, budget: Purse) -> _Model:
            box = None
            if finding:
                every = np.column_stack([rows, goal])
                box = find_box(meter, lambda: every, every.shape[1], budget.part(_FINDING))
                budget = Purse(budget.part(1 - _FINDING))
            frame, ends = self._public(rows.shape[1], box)
            seen = survey(meter, budget, frame, lambda: frame.rows(rows), None)
            longest = cautious_length(seen, frame, budget, _FARTHEST)
            table = _Rows(rows, goal, frame, ends, seen.middle, longest)
            scaled = frame.centre + seen.middle / frame.scale, frame.scale
            rest = Purse(budget.part(1 - SHARE))
            return self._learn(meter, rest, table.look, table.reach, table.unit, scaled, ends)

        self._keep(self._train(steps))
        return self

    def _fit_dataset(self, data: Any, target: str | None, features: Sequence[str] | None, table: str | None) -> Self:
        if target is None or not features or target in features:
            raise BadInput("say what to predict from what: fit(ds, target='stay_days', features=['age', 'ward']).")
        design = EngineDesign(read_relation(data, table, [*features, target]), tuple(features), target, self.fill)
        design.check()
        self._penalty(np.ones(1))
        low, high = (float(end) for end in design.relation.columns[target].bounds or (0, 1))  # type: ignore[arg-type]

        def steps(meter: Meter, budget: Purse) -> _Model:
            scaled = design.centre, design.scale
            return self._learn(meter, budget, design.matrix, design.reach, design.unit, scaled, (low, high))

        self._keep(self._train(steps, data))
        self.feature_names_in_ = np.array(design.names, dtype=object)
        return self

    def _learn(
        self,
        meter: Meter,
        budget: Purse,
        look: Callable[[], Any],
        reach: Reach,
        unit: float,
        scaled: tuple[Floats, Floats],
        ends: tuple[float, float],
    ) -> _Model:
        """Release the moments, solve, and go back to the units of the data."""
        moments = _release(meter, budget, _once(look), reach, unit, len(scaled[0]), self.method == "functional")
        fit = _SOLVERS[self.method](moments, self._penalty(scaled[1]))
        height, middle = ends[1] - ends[0], (ends[0] + ends[1]) / 2
        # y = middle + height · (Σ beta_j (x_j - centre_j) scale_j + beta_0)
        back = np.diag([*(height * scaled[1]), height])
        back[-1, :-1] = -height * scaled[1] * scaled[0]
        raw = back @ fit.coefficients
        spread = max(moments.yy / moments.rows - (moments.xy[-1] / moments.rows) ** 2, 1e-9)
        return _Model(
            raw[:-1],
            float(raw[-1] + middle),
            None if fit.covariance is None else back @ fit.covariance @ back.T,
            float(np.clip(1 - fit.residual / spread, 0.0, 1.0)),
            moments.rows,
        )

    def _penalty(self, scale: Floats) -> Floats:
        return np.zeros(len(scale) + 1)

    def _check(self, features: int) -> None:
        """Refuse what is wrong with the public parameters before anything is charged."""
        self._penalty(np.ones(1))
        if not wants_bounds(self.bounds):
            read_frame(self.bounds, self.data_norm, features)
        if not wants_bounds(self.target_bounds):
            _target_box(self.target_bounds)

    def _public(self, features: int, found: Box | None) -> tuple[Frame, tuple[float, float]]:
        """Bounds as they were given, or as they were found."""
        bounds, goal = self.bounds, self.target_bounds
        if found is not None and wants_bounds(bounds):
            bounds = (found.low[:-1], found.high[:-1])
        if found is not None and wants_bounds(goal):
            goal = (float(found.low[-1]), float(found.high[-1]))
        return read_frame(bounds, self.data_norm, features), _target_box(goal)

    def _keep(self, model: _Model) -> None:
        self.coef_, self.intercept_ = model.coefficients, model.intercept
        self.covariance_ = model.covariance
        self.standard_errors_ = None if model.covariance is None else np.sqrt(np.diag(model.covariance))
        self.expected_score_, self.n_rows_ = model.score, model.rows
        self.n_features_in_ = len(model.coefficients)

    def confidence_intervals(self, confidence: float = 0.95) -> Floats:
        """Lower and upper limits of the coefficients and, last, of the intercept. Costs nothing."""
        if not 0 < confidence < 1:
            raise BadProbability("confidence must lie strictly between 0 and 1. Write 0.95.")
        if self.standard_errors_ is None:
            raise BadInput(f"{self.method} has no standard errors. Use method='moments'.")
        margin = NormalDist().inv_cdf((1 + confidence) / 2) * self.standard_errors_
        middle = np.append(self.coef_, self.intercept_)
        return np.column_stack([middle - margin, middle + margin])

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """The expected target of each row."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "coef_")
        rows = read_rows(X, self.fill)
        if rows.shape[1] != self.n_features_in_:
            raise BadInput(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        return np.asarray(rows @ self.coef_ + self.intercept_)


class Ridge(LinearRegression):
    """Least squares with a penalty alpha · |coefficients|², as in scikit-learn.

    Args:
        alpha: the penalty, public; the noise adds what it makes necessary.
        spend, bounds, data_norm, target_bounds, method, fill, ledger, account, random_state: see `LinearRegression`.

    Standard errors speak of the ridge solution of the population, which is what is estimated.

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
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, int | float) or not 0 <= self.alpha < np.inf:
            raise BadInput("alpha is a public number that is not negative.")
        # A coefficient of the data is height · scale times a scaled one; the height goes out of the whole objective.
        return np.append(self.alpha * scale**2, 0.0)


class _Rows:
    """Rows of an array with the target, on the integer grid, seen from their released middle.

    A row that lies farther from it than about `_FARTHEST` times the spread is shortened, together with its constant and
    its target: it then counts less, as in weighted least squares, and y = Xβ still holds.
    """

    _step: float

    def __init__(
        self, rows: Floats, goal: Floats, frame: Frame, ends: tuple[float, float], middle: Floats, longest: float
    ) -> None:
        self._rows, self._goal, self._frame, self._ends = rows, goal, frame, ends
        self.middle, self._longest = middle, longest
        self._step = max(self._longest, 1.0) / 2**ROW_BITS

    @property
    def unit(self) -> float:
        return float(self._step**2)

    @property
    def reach(self) -> Reach:
        one, half, longest = int(1 / self._step), int(0.5 / self._step), self._most_cells
        widest = longest if self._frame.round else min(longest, math.ceil((0.5 + abs(self.middle).max()) / self._step))
        return Reach(
            first=math.isqrt(self._frame.features * longest**2) + 1 + one,
            second=longest**2 + one**2,
            fourth=widest**2 * longest**2 + one**4,
            target=half,
        )

    @property
    def _most_cells(self) -> int:
        return math.ceil(self._longest / self._step)

    def look(self) -> Any:
        """Z'Z. What is computed for one row never depends on which rows stand beside it."""
        return exact_product(len(self._rows), self._cells)

    def _cells(self, some: slice) -> Floats:
        scaled = self._frame.rows(self._rows[some])
        if not self._frame.round:
            scaled = np.clip(scaled, -0.5, 0.5)  # where scaling rounded up
        cells = np.trunc((scaled - self.middle) / self._step)
        lengths, longest = squares(cells), self._most_cells
        share = np.where(lengths > longest**2, longest * (1 - 1e-9) / np.sqrt(np.maximum(lengths, 1.0)), 1.0)
        low, high = self._ends
        goal = np.clip((np.clip(self._goal[some], low, high) - (low + high) / 2) / (high - low), -0.5, 0.5)
        every = np.column_stack([cells, np.full(len(cells), float(int(1 / self._step))), np.trunc(goal / self._step)])
        return np.asarray(np.trunc(every * share[:, None]))


def _release(
    meter: Meter, budget: Purse, look: Callable[[], Any], reach: Reach, unit: float, features: int, together: bool
) -> Moments:
    d = features + 1
    if together:
        places = np.triu_indices(d)

        def every() -> Any:
            whole = look()
            return np.concatenate([whole[:d, :d][places], whole[:d, d], whole[d:, d]])

        xx, xy, own, noise = release_together(meter, every, reach, d, budget.loss)
        return Moments(xx * unit, xy * unit, own * unit, (noise * unit,) * 3)
    # Half for the many products of features, half for the few with the target, a little for the target's own.
    shares = (Fraction(49, 100), Fraction(49, 100), Fraction(2, 100))
    xx, first = release_matrix(meter, lambda: look()[:d, :d], reach, budget.part(shares[0]))
    xy, second = release_vector(meter, lambda: look()[:d, d], reach.vector, budget.part(shares[1]))
    yy, third = release_vector(meter, lambda: look()[d:, d], reach.number, budget.part(shares[2]))
    return Moments(xx * unit, xy * unit, float(yy[0]) * unit, (first * unit, second * unit, third * unit))


def _once(look: Callable[[], Any]) -> Callable[[], Any]:
    """The same look for several steps: computed inside the first."""
    kept: list[Any] = []

    def again() -> Any:
        if not kept:
            kept.append(look())
        return kept[0]

    return again


def _numbers(y: Any, rows: int) -> Floats:
    from sklearn.utils.validation import column_or_1d

    if y is None:
        raise BadInput("y is one column of numbers, as long as X; requires y to be passed, but the target y is None.")
    goal = np.asarray(column_or_1d(y, dtype=np.float64, warn=True))
    if len(goal) != rows or not np.isfinite(goal).all():
        raise BadInput("y is one column of finite numbers, as long as X.")
    return goal


def _target_box(bounds: Any) -> tuple[float, float]:
    if bounds is None:
        raise BadBounds("target_bounds are public and must be given: target_bounds=(0, 100).")
    box = read_box(bounds, 1)
    return float(box.low[0]), float(box.high[0])
