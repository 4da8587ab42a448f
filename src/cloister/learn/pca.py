"""Principal components of noisy second moments."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import TransformerMixin

from cloister.learn.engine_moments import EngineDesign
from cloister.learn.estimator import PrivateEstimator
from cloister.learn.exact import ROW_BITS, WEIGHT_BITS, ExactRows, noisy
from cloister.learn.found import find_box, wants_bounds
from cloister.learn.frame import Frame, read_frame, shorten
from cloister.learn.inputs import Box, is_dataset, read_rows
from cloister.learn.moments import Floats, Reach, cautious_length, exact_product, release_matrix
from cloister.learn.purse import Purse, purse
from cloister.learn.relation import is_number, read_relation
from cloister.learn.subspace import sample_subspace
from cloister.learn.survey import SHARE, survey
from cloister.privacy.errors import BadInput, TextbookOnly
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.meter import Meter
from cloister.privacy.noise import SeededSource
from cloister.privacy.release import Release
from cloister.privacy.unit import ROW

__all__ = ["PCA"]

_METHODS = ("covariance", "power", "subspace")
_FINDING = Fraction(1, 10)
_FARTHEST = 1.1
_ROUNDS = 4
_CELLS = 2**ROW_BITS
_BASIS_BITS = 36


@dataclass(frozen=True, slots=True)
class _Model:
    """Released components, in the units of the data."""

    components: Floats
    variance: Floats
    total: float
    mean: Floats
    rows: float


class PCA(TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Directions of most variance: the projection is released, never the projected rows.

    Args:
        spend: what the fit may cost.
        n_components: how many directions; all unless given.
        bounds: public (low, high) of all features, or (lows, highs), or "find", which takes a tenth of the spend.
        data_norm: instead, or beside them, the public length that rows are shortened to.
        method: "covariance" adds noise to the scatter matrix around a released mean (Dwork et al. 2014, "Analyze
            Gauss"). "power" is the noisy power method (Hardt & Price 2014), exact too; for many features and few
            components. "subspace" is the exponential mechanism (Chaudhuri, Sarwate & Sinha 2013): it samples with
            floats, so it is for lessons, needs a `random_state`, and no ledger takes it.
        fill: what stands for NaN; without it NaN is refused.
        ledger, account, random_state: see `PrivateEstimator`.

    Attributes:
        components_, mean_: as in scikit-learn.
        explained_variance_, explained_variance_ratio_: of the released scatter, less what the noise added to it; rows
            that were shortened count with the variance that is left to them. None for "subspace".
        n_rows_: about how many rows there were, as released.
        release_, loss_: the receipt and what was paid.

    Features are shifted, and never rescaled one by one: give bounds of equal width, or scale them publicly before.

    Privacy: the spend, for one row added or removed (or for the unit of the dataset). Rows farther from the released
        mean than about 1.1 times the released spread are shortened to that. Discrete Gaussian noise (discrete Laplace
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
        """Learn from rows, or inside the engine of a Cloister dataset.

        Args:
            X: an array or frame, or a dataset.
            y: not used.
            features, table: of a dataset: columns that are numbers, and the table if there are several.

        Privacy: charges the spend before it reads a row.
        """
        if self.method not in _METHODS:
            raise BadInput(f"method is one of {', '.join(_METHODS)}.")
        if is_dataset(X):
            return self._fit_dataset(X, features, table)
        rows = read_rows(X, self.fill)
        d = rows.shape[1]
        count = self._count(d)
        if not wants_bounds(self.bounds):
            self._frame(d, None)
        if self.method == "subspace":
            return self._teach(rows, count)

        def steps(meter: Meter, budget: Purse) -> _Model:
            box = None
            if wants_bounds(self.bounds):
                box = find_box(meter, lambda: rows, d, budget.part(_FINDING))
                budget = Purse(budget.part(1 - _FINDING))
            return self._learn(meter, budget, rows, self._frame(d, box), count)

        self._keep(self._train(steps), count)
        return self

    def _learn(self, meter: Meter, budget: Purse, rows: Floats, frame: Frame, count: int) -> _Model:
        """Find the middle and the spread, then the directions around it."""
        seen = survey(meter, budget, frame, lambda: frame.rows(rows), None)
        rest = Purse(budget.part(1 - SHARE))
        longest = cautious_length(seen, frame, budget, _FARTHEST)

        def cells(some: slice = slice(None)) -> Floats:
            away = (frame.rows(rows[some]) - seen.middle) * (_CELLS / longest)
            return shorten(np.trunc(np.clip(away, -32.0 * _CELLS, 32.0 * _CELLS)), _CELLS)

        unit, mean = longest / _CELLS, frame.centre + seen.middle / frame.scale
        if self.method == "power":
            directions, values = _power(meter, rest, cells, frame.features, count, self._start(frame.features, count))
            return _Model(directions, values * unit**2 / seen.rows, math.nan, mean, seen.rows)
        widest = math.ceil(min(longest, 0.5 + abs(seen.middle).max()) / unit) if not frame.round else _CELLS
        d = frame.features
        reach = Reach(math.isqrt(d * _CELLS**2) + 1, _CELLS**2, min(widest, _CELLS) ** 2 * _CELLS**2)
        scatter, noise = release_matrix(meter, lambda: exact_product(len(rows), cells), reach, rest.loss)
        return _directions(scatter * unit**2, noise * unit**2, seen.rows, mean, frame.scale, count)

    def _fit_dataset(self, data: Any, features: Sequence[str] | None, table: str | None) -> Self:
        if self.method != "covariance":
            raise BadInput(f"{self.method} needs rows as arrays. In an engine the method is 'covariance'.")
        if not features:
            raise BadInput("say which columns to look at: fit(ds, features=['age', 'stay_days']).")
        relation = read_relation(data, table, features)
        design = EngineDesign(relation, tuple(features), None, self.fill)
        design.check()
        if not all(is_number(relation.columns[name]) for name in features):
            raise BadInput("principal components are of numbers. Leave columns with categories out.")
        count = self._count(len(features))

        def steps(meter: Meter, budget: Purse) -> _Model:
            whole, noise = release_matrix(meter, design.matrix, design.reach, budget.loss)
            whole, noise = whole * design.unit, noise * design.unit
            rows = max(float(whole[-1, -1]), 1.0)
            middle = np.clip(whole[-1, :-1] / rows, -0.5, 0.5)
            scatter = whole[:-1, :-1] - rows * np.outer(middle, middle)
            mean = design.centre + middle / design.scale
            back = np.diag(1 / design.scale)  # from scaled columns to the units of the data
            return _directions(
                back @ scatter @ back, noise * float((1 / design.scale).max()) ** 2, rows, mean, 1.0, count
            )

        self._keep(self._train(steps, data), count)
        self.feature_names_in_ = np.array(design.names, dtype=object)
        return self

    def _teach(self, rows: Floats, count: int) -> Self:
        """The exponential mechanism on subspaces, by floats: a lesson."""
        if self.random_state is None or self.ledger is not None or self.account is not None:
            raise TextbookOnly(
                "the subspace method samples with floats: a ledger does not accept it. Give a random_state and neither "
                "ledger nor account in a lesson, or use method='covariance'."
            )
        spend = purse(self.spend).loss
        if not spend.is_pure:
            raise BadInput("the exponential mechanism is pure. Give spend=cl.epsilon(1).")
        frame = self._frame(rows.shape[1], None)
        scaled = frame.rows(rows)
        components = sample_subspace(
            scaled.T @ scaled, frame.reach, float(spend.amount), count, SeededSource(str(self.random_state))
        )
        model = _Model(_signed(components), np.full(count, math.nan), math.nan, frame.centre, math.nan)
        self._keep(model, count)
        self.loss_ = spend
        self.release_ = Release(model, spend, ROW, "subspace exponential (textbook)", {}, private=False)
        return self

    def _frame(self, features: int, box: Box | None) -> Frame:
        """Where rows lie, publicly; one scale for all features, so that directions keep their meaning."""
        found = None if box is None else (box.low, box.high)
        frame = read_frame(self.bounds if found is None else found, self.data_norm, features)
        if frame.round:
            return frame
        # Shortest scale for all: a feature with narrower bounds stays within its part of [-1/2, 1/2].
        return Frame(frame.box, frame.centre, np.full(features, float(frame.scale.min())), round=False)

    def _start(self, features: int, count: int) -> Floats:
        """A public random start: nothing about it is secret."""
        bits = SeededSource(f"power method {features} {count} {self.random_state}")
        return np.asarray(np.linalg.qr(bits.floats((features, count)) - 0.5)[0])

    def _count(self, features: int) -> int:
        count = features if self.n_components is None else self.n_components
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= features:
            raise BadInput(f"n_components is a whole number from 1 to the number of features, {features}.")
        return count

    def _keep(self, model: _Model, count: int) -> None:
        self.components_, self.mean_ = model.components, model.mean
        self.explained_variance_ = None if self.method == "subspace" else model.variance
        ratio = None if math.isnan(model.total) else model.variance / max(model.total, 1e-300)
        self.explained_variance_ratio_ = ratio
        self.n_components_, self.n_features_in_, self.n_rows_ = count, model.components.shape[1], model.rows

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Rows seen along the components. What comes out is as private as the rows that go in."""
        rows = self._given(X, self.n_features_in_ if hasattr(self, "components_") else 0)
        return np.asarray((rows - self.mean_) @ self.components_.T)

    def inverse_transform(self, X: Any) -> Floats:  # noqa: N803
        """Back from components to features."""
        rows = self._given(X, self.n_components_ if hasattr(self, "components_") else 0)
        return np.asarray(rows @ self.components_ + self.mean_)

    def _given(self, given: Any, width: int) -> Floats:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "components_")
        rows = read_rows(given, self.fill)
        if rows.shape[1] != width:
            raise BadInput(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting {width} features as input."
            )
        return rows


def _directions(scatter: Floats, noise: float, rows: float, mean: Floats, scale: Floats | float, count: int) -> _Model:
    """Eigenvectors of a noisy scatter matrix, and its eigenvalues without what the noise adds to them.

    A spike λ in symmetric noise of deviation s appears at λ + s²d/λ, if it is above s√d at all (Benaych-Georges &
    Nadakuditi 2011); that is undone here.
    """
    values, vectors = np.linalg.eigh(scatter)
    order = np.argsort(values)[::-1][:count]
    edge = 4 * noise**2 * len(values)
    found = values[order]
    spikes = np.where(found**2 > edge, (found + np.sqrt(np.maximum(found**2 - edge, 0.0))) / 2, 0.0)
    spikes = np.where(found > 0, spikes, 0.0)
    width = float(np.max(1 / np.asarray(scale))) ** 2
    freedom = max(rows - 1, 1.0)
    total = max(float(np.trace(scatter)), float(spikes.sum())) / freedom * width
    return _Model(_signed(vectors[:, order].T), spikes / freedom * width, total, mean, rows)


def _power(
    meter: Meter, budget: Purse, look: Callable[[], Floats], features: int, count: int, start: Floats
) -> tuple[Floats, Floats]:
    """A few rounds of Q ← orthonormal(X'XQ + noise).

    A row x adds x (x'Q): of length |x| |x'Q| ≤ |x|², since Q is orthonormal. Both factors are integers here.
    """
    basis, loss = start, budget.part(Fraction(1, _ROUNDS))
    product = start
    for _ in range(_ROUNDS):

        def turned(basis: Floats = basis) -> Any:
            cells = look()
            # On a grid, so that every sum is a whole number below 2^53: else a matrix product may round one row's
            # numbers by which rows stand beside it.
            seen = (cells @ np.rint(basis * 2.0**_BASIS_BITS)) / 2.0**_BASIS_BITS
            weights = shorten(np.trunc(seen * (2.0**WEIGHT_BITS / _CELLS)), 2**WEIGHT_BITS) / 2**WEIGHT_BITS
            return ExactRows(cells, 1.0, _CELLS).weighted(weights)

        reach = _CELLS * 2**WEIGHT_BITS
        if budget.pure:  # L1: both factors over all their coordinates
            reach *= math.isqrt(features * count) + 1
        product = noisy(meter, turned, reach, loss).T * (_CELLS / 2.0**WEIGHT_BITS)
        basis = np.linalg.qr(product)[0]
    left, values, _ = np.linalg.svd(product, full_matrices=False)
    return _signed(left.T), values


def _signed(components: Floats) -> Floats:
    """The largest entry of every direction is positive, so that signs do not wander."""
    largest = np.abs(components).argmax(axis=1)
    return np.asarray(components * np.sign(components[np.arange(len(components)), largest])[:, None])
