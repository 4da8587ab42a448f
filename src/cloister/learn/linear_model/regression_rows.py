"""Rows and target of a linear regression on the integer grid, and the release of their second moments."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from cloister.learn.base.frame import Frame, squares
from cloister.learn.base.inputs import read_box
from cloister.learn.base.integer_rows import ROW_BITS, on_grid
from cloister.learn.linear_model.least_squares import CoefficientErrors, Fit
from cloister.learn.linear_model.moments import (
    Floats,
    Moments,
    Reach,
    exact_product,
    release_matrix,
    release_sums,
    release_together,
)
from cloister.privacy.errors import BadBounds
from cloister.privacy.filter import BudgetShare, PrivacyFilter

__all__ = ["Regression", "RegressionRows", "in_units", "read_ends", "release_regression"]


@dataclass(frozen=True, slots=True)
class Regression:
    """Released regression, in the units of the data.

    Attributes:
        coefficients, intercept: for the unscaled features.
        errors: those of both; None where theory gives none.
        score: the expected R².
        rows: approximate number of rows.
        ends: the target's public bounds, which predictions are clipped to.
    """

    coefficients: Floats
    intercept: float
    errors: CoefficientErrors | None
    score: float
    rows: float
    ends: tuple[float, float]


class RegressionRows:
    """Rows of an array with the target, on the integer grid, centred at their released mean.

    A row farther from it than about `_FARTHEST` times the spread is scaled down, together with its constant and its
    target: it then counts less, as in weighted least squares, and y = Xβ still holds.
    """

    _step: float

    def __init__(
        self,
        look: Callable[[], tuple[Floats, Floats]],
        frame: Frame,
        ends: tuple[float, float],
        middle: Floats,
        longest: float,
    ) -> None:
        self._look, self._frame, self._ends = look, frame, ends
        self.middle, self._longest = middle, longest
        self._step = max(self._longest, 1.0) / 2**ROW_BITS

    @property
    def unit(self) -> float:
        """Return the real value of one in a product of two cells."""
        return float(self._step**2)

    @property
    def reach(self) -> Reach:
        """Return the bounds on one row's integers."""
        constant, half, longest = int(1 / self._step), int(0.5 / self._step), self._most_cells
        widest = longest if self._frame.round else min(longest, math.ceil((0.5 + abs(self.middle).max()) / self._step))
        return Reach(
            first=math.isqrt(self._frame.features * longest**2) + 1 + constant,
            second=longest**2 + constant**2,
            fourth=widest**2 * longest**2 + constant**4,
            target=half,
        )

    @property
    def _most_cells(self) -> int:
        return math.ceil(self._longest / self._step)

    def look(self) -> Any:
        """Return Z'Z. The contribution of a row does not depend on the other rows."""
        rows, goal = self._look()
        return exact_product(len(rows), lambda some: self._cells(rows[some], goal[some]))

    def _cells(self, rows: Floats, target: Floats) -> Floats:
        cells = on_grid((self._frame.rows(rows) - self.middle) / self._step, 2.0**20)  # squares sum exactly
        lengths, longest = squares(cells), self._most_cells
        share = np.where(lengths > longest**2, longest * (1 - 1e-9) / np.sqrt(np.maximum(lengths, 1.0)), 1.0)
        low, high = self._ends
        goal = (np.clip(target, low, high) - (low + high) / 2) / (high - low)
        constant, half = float(int(1 / self._step)), float(int(0.5 / self._step))
        every = np.column_stack([cells, np.full(len(cells), constant), on_grid(goal / self._step, half)])
        return np.asarray(np.trunc(every * share[:, None]))


def release_regression(
    meter: PrivacyFilter,
    budget: BudgetShare,
    look: Callable[[], Any],
    reach: Reach,
    unit: float,
    features: int,
    together: bool,
) -> Moments:
    """Release second moments with noise, in the units of the frame.

    Args:
        meter, budget: the privacy filter and the budget to charge.
        look: returns Z'Z of features, constant and target.
        reach, unit: the bounds and the unit of its integers.
        features: number of features.
        together: True for one Laplace noise on all of it, as in the functional mechanism; False for three releases.

    Privacy: the budget.
    """
    d = features + 1
    if together:
        places = np.triu_indices(d)

        def every() -> Any:
            matrix = look()
            return np.concatenate([matrix[:d, :d][places], matrix[:d, d], matrix[d:, d]])

        xx, xy, square, noise = release_together(meter, every, reach, d, budget.loss)
        return Moments(xx * unit, xy * unit, square * unit, (noise * unit,) * 3)
    # Half for products of features, half for those with the target, and a little for the target's square: with less,
    # intervals are wide, since they must allow for its noise.
    shares = (Fraction(47, 100), Fraction(47, 100), Fraction(6, 100))
    xx, first = release_matrix(meter, lambda: look()[:d, :d], reach.matrix, budget.part(shares[0]))
    xy, second = release_sums(meter, lambda: look()[:d, d], reach.vector, budget.part(shares[1]))
    yy, third = release_sums(meter, lambda: look()[d:, d], reach.number, budget.part(shares[2]))
    deviations = first * unit, second * unit, third * unit
    # A cell is rounded twice, each time by less than one: the target's largest integer is one half.
    return Moments(xx * unit, xy * unit, float(yy[0]) * unit, deviations, budget.pure, 1 / reach.target)


def in_units(moments: Moments, fit: Fit, scaled: tuple[Floats, Floats], ends: tuple[float, float]) -> Regression:
    """Convert a fit to the units of the data.

    Args:
        moments, fit: those of scaled features and target.
        scaled: centre and scale of the features.
        ends: bounds of the target.
    """
    height, middle = ends[1] - ends[0], (ends[0] + ends[1]) / 2
    # y = middle + height · (Σ beta_j (x_j - centre_j) scale_j + beta_0)
    back = np.diag([*(height * scaled[1]), height])
    back[-1, :-1] = -height * scaled[1] * scaled[0]
    raw = back @ fit.coefficients
    spread = max(moments.yy / moments.rows - (moments.xy[-1] / moments.rows) ** 2, 1e-9)
    return Regression(
        raw[:-1],
        float(raw[-1] + middle),
        None if fit.errors is None else fit.errors.of(back),
        float(np.clip(1 - fit.residual / spread, 0.0, 1.0)),
        moments.rows,
        ends,
    )


def read_ends(bounds: Any) -> tuple[float, float]:
    """Read the public bounds of a target."""
    if bounds is None:
        raise BadBounds("target_bounds are public and must be given: target_bounds=(0, 100).")
    box = read_box(bounds, 1)
    return float(box.low[0]), float(box.high[0])
