"""Principal components of noisy second moments."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from cloister.data.private_data import PrivateData
from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.frame import Frame, find_box, read_frame, shorten
from cloister.learn.base.inputs import (
    Box,
    check_method,
    complete_rows,
    is_dataset,
    keep_features,
    read_answers,
    read_table,
    wants_bounds,
)
from cloister.learn.base.integer_rows import ROW_BITS, WEIGHT_BITS, ExactRows, noisy, on_grid, weighted
from cloister.learn.base.private_data import is_number, read_relation
from cloister.learn.base.row_source import InputRows, keep_input, read_input
from cloister.learn.linear_model.engine_moments import EngineDesign
from cloister.learn.linear_model.moments import (
    SHARE,
    Floats,
    Reach,
    cautious_length,
    exact_product,
    probe_scale,
    release_matrix,
)
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.wishart import wishart
from cloister.privacy.noise import SeededSource

__all__ = ["PCA"]


# Directions of largest variance, from a noisy scatter matrix or by the noisy power method.


_ROUNDS = 4
CELLS = 2**ROW_BITS
_BASIS_BITS = 36


@dataclass(frozen=True, slots=True)
class Components:
    """Released components, in the units of the data."""

    components: Floats
    variance: Floats
    total: float
    mean: Floats
    rows: float


def main_directions(
    scatter: Floats, noise: float, rows: float, mean: Floats, scale: Floats | float, count: int
) -> Components:
    """Return the eigenvectors of a noisy scatter matrix, and its eigenvalues corrected for the noise.

    A spike λ in symmetric noise of deviation s appears at λ + s²d/λ, if it is above s√d at all (Benaych-Georges &
    Nadakuditi 2011); the correction inverts this.
    """
    values, vectors = np.linalg.eigh(scatter)
    order = np.argsort(values)[::-1][:count]
    edge = 4 * noise**2 * len(values)
    eigenvalues = values[order]
    spikes = np.where(eigenvalues**2 > edge, (eigenvalues + np.sqrt(np.maximum(eigenvalues**2 - edge, 0.0))) / 2, 0.0)
    spikes = np.where(eigenvalues > 0, spikes, 0.0)
    width = float(np.max(1 / np.asarray(scale))) ** 2
    freedom = max(rows - 1, 1.0)
    total = max(float(np.trace(scatter)), float(spikes.sum())) / freedom * width
    return Components(signed(vectors[:, order].T), spikes / freedom * width, total, mean, rows)


def power(
    meter: PrivacyFilter, budget: BudgetShare, look: Callable[[], Floats], features: int, count: int, start: Floats
) -> tuple[Floats, Floats]:
    """Run a few rounds of Q ← orthonormal(X'XQ + noise).

    A row x adds x (x'Q), of norm |x| |x'Q| ≤ |x|², since Q is orthonormal. Both factors are integers here.
    """
    basis, loss = start, budget.part(Fraction(1, _ROUNDS))
    product = start
    for _ in range(_ROUNDS):

        def turned(basis: Floats = basis) -> Any:
            cells = look()
            # On a grid, so that every sum is an integer below 2^53: otherwise the rounding of one row's numbers could
            # depend on the other rows.
            projected = (cells @ np.rint(basis * 2.0**_BASIS_BITS)) / 2.0**_BASIS_BITS
            weights = shorten(on_grid(projected * (2.0**WEIGHT_BITS / CELLS), 2.0**22), 2**WEIGHT_BITS) / 2**WEIGHT_BITS
            return ExactRows(cells, 1.0, CELLS).weighted(weights)

        reach = CELLS * 2**WEIGHT_BITS
        if budget.pure:  # L1: both factors over all their coordinates
            reach *= math.isqrt(features * count) + 1
        product = noisy(meter, turned, reach, loss).T * (CELLS / 2.0**WEIGHT_BITS)
        basis = np.linalg.qr(product)[0]
    left, values, _ = np.linalg.svd(product, full_matrices=False)
    return signed(left.T), values


def signed(components: Floats) -> Floats:
    """Make the largest entry of every direction positive, to fix the signs."""
    largest = np.abs(components).argmax(axis=1)
    return np.asarray(components * np.sign(components[np.arange(len(components)), largest])[:, None])


_METHODS = ("covariance", "power")
_FINDING = Fraction(1, 10)
_FARTHEST = 1.1


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Private principal component analysis. The projection is released, not the projected rows.

    Args:
        spend: privacy budget of the fit.
        n_components: number of directions; all unless given.
        bounds: public (low, high) of all features, or (lows, highs), or "find", which takes a tenth of the spend.
        data_norm: instead of bounds or beside them, the public norm that rows are clipped to.
        method: "covariance" adds noise to the scatter matrix around a released mean (Dwork et al. 2014, "Analyze
            Gauss"). "power" is the noisy power method (Hardt & Price 2014), also exact; for many features and few
            components.
        fill: replaces a missing number; without it the row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        components_, mean_: as in scikit-learn.
        explained_variance_, explained_variance_ratio_: of the released scatter, corrected for the noise; clipped rows
            count with their clipped variance.
        n_rows_: approximate number of rows, as released.
        release_, loss_: the release with its receipt, and the loss charged.

    Features are shifted but not rescaled one by one: give bounds of equal width, or scale them by public bounds first.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset). Rows farther from the released
        mean than about 1.1 times the released spread are clipped to that. Discrete Gaussian noise (discrete Laplace
        for a pure spend) on integers. Audited in tests/statistical/test_learn_moments_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        n_components: int | None = None,
        *,
        bounds: Any = None,
        data_norm: float | None = None,
        method: str = "covariance",
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.n_components = n_components
        self.bounds = bounds
        self.data_norm = data_norm
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
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Fit to rows, or inside the engine of a Cloister dataset.

        Args:
            X: an array or frame, or a dataset. Methods that an engine cannot run read its rows into this process
                (learn/base/row_source.py).
            y: not used.
            features, table: for a dataset: columns that are numbers, and the table if there are several.

        Privacy: the spend, charged before a row is read.
        """
        if self.method == "wishart":
            wishart()
        check_method(self, *_METHODS)
        find = wants_bounds(self.bounds)
        if is_dataset(X) and self.method == "covariance" and not find:
            return self._fit_engine(X, features, table)
        source = read_input(X, features=features, table=table, fill=self.fill, find=find, numbers=True)
        count = self._count(source.width)
        schema = source.box(None) if source.dataset and not find else None
        public = None if find else self._frame(source.width, schema)
        self._keep(self._train_rows(self._steps(source, count, public), source), count)
        keep_input(self, source)
        return self

    def _steps(
        self, source: InputRows, count: int, public: Frame | None
    ) -> Callable[[PrivacyFilter, BudgetShare], Components]:
        look, features = complete_rows(source.numbers), source.width

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> Components:
            frame = public
            if frame is None:
                frame = self._frame(features, find_box(meter, look, features, budget.part(_FINDING)))
                budget = BudgetShare(budget.part(1 - _FINDING))
            return self._learn(meter, budget, look, frame, count)

        return steps

    def _learn(
        self, meter: PrivacyFilter, budget: BudgetShare, look: Callable[[], Floats], frame: Frame, count: int
    ) -> Components:
        """Release the mean and the spread, then the directions around the mean."""
        probe = probe_scale(meter, budget, frame, lambda: frame.rows(look()), None)
        rest = BudgetShare(budget.part(1 - SHARE))
        longest = cautious_length(probe, frame, budget, _FARTHEST)

        def cells(some: slice = slice(None)) -> Floats:
            away = (frame.rows(look()[some]) - probe.middle) * (CELLS / longest)
            return shorten(on_grid(away, 32.0 * CELLS), CELLS)

        unit, mean = longest / CELLS, frame.centre + probe.middle / frame.scale
        if self.method == "power":
            directions, values = power(meter, rest, cells, frame.features, count, self._start(frame.features, count))
            variance = values * unit**2 / probe.rows * float((1 / frame.scale).max()) ** 2
            return Components(directions, variance, math.nan, mean, probe.rows)
        widest = math.ceil(min(longest, 0.5 + abs(probe.middle).max()) / unit) if not frame.round else CELLS
        d = frame.features
        reach = Reach(math.isqrt(d * CELLS**2) + 1, CELLS**2, min(widest, CELLS) ** 2 * CELLS**2)
        scatter, noise = release_matrix(meter, lambda: exact_product(len(look()), cells), reach.matrix, rest.loss)
        return main_directions(scatter * unit**2, noise * unit**2, probe.rows, mean, frame.scale, count)

    def _fit_engine(self, data: PrivateData, features: Sequence[str] | None, table: str | None) -> Self:
        if not features:
            raise BadInput("say which columns to look at: fit(ds, features=['age', 'stay_days']).")
        relation = read_relation(data, table, features)
        design = EngineDesign(relation, tuple(features), None, self.fill)
        design.check()
        if not all(is_number(relation.columns[name]) for name in features):
            raise BadInput("principal components are of numbers. Leave columns with categories out.")
        count = self._count(len(features))

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> Components:
            gram, noise = release_matrix(meter, design.matrix, design.reach.matrix, budget.loss)
            gram, noise = gram * design.unit, noise * design.unit
            rows = max(float(gram[-1, -1]), 1.0)
            middle = np.clip(gram[-1, :-1] / rows, -0.5, 0.5)
            scatter = gram[:-1, :-1] - rows * np.outer(middle, middle)
            mean = design.centre + middle / design.scale
            # Relative to the widest column: fourth powers of its width may be beyond the range of floats.
            least = float(design.scale.min())
            back = np.diag(least / design.scale)
            return main_directions(back @ scatter @ back, noise, rows, mean, least, count)

        self._keep(self._train(steps, data), count)
        keep_features(self, len(design.names), design.names, design.parts)
        return self

    def _frame(self, features: int, box: Box | None) -> Frame:
        """Build the public frame, with one scale for all features, so that directions keep their meaning."""
        bounds = None if box is None else (box.low, box.high)
        frame = read_frame(self.bounds if bounds is None else bounds, self.data_norm, features)
        if frame.round:
            return frame
        # The smallest scale for all: a feature with narrower bounds stays within its part of [-1/2, 1/2].
        return Frame(frame.box, frame.centre, np.full(features, float(frame.scale.min())), round=False)

    def _start(self, features: int, count: int) -> Floats:
        """Return a public random start."""
        bits = SeededSource(f"power method {features} {count} {self.random_state}")
        return np.asarray(np.linalg.qr(bits.floats((features, count)) - 0.5)[0])

    def _count(self, features: int) -> int:
        count = features if self.n_components is None else self.n_components
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= features:
            raise BadInput(f"n_components is a whole number from 1 to the number of features, {features}.")
        return count

    def _keep(self, model: Components, count: int) -> None:
        self.components_, self.mean_ = model.components, model.mean
        self.explained_variance_: Floats | None = model.variance
        ratio = None if math.isnan(model.total) else model.variance / max(model.total, 1e-300)
        self.explained_variance_ratio_ = ratio
        self.n_components_, self.n_rows_ = count, model.rows

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Project rows on the components. The result is as sensitive as the rows."""
        rows = read_answers(self, X, self.fill).numbers()
        return weighted(rows - self.mean_, self.components_.T)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def inverse_transform(self, X: Any) -> Floats:  # noqa: N803
        """Map components back to features."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "components_")
        rows = read_table(X)
        if rows.width != self.n_components_:
            raise BadInput(f"X has {rows.width} columns, one for each component is expected: {self.n_components_}.")
        return np.asarray(weighted(rows.numbers(), self.components_) + self.mean_)
