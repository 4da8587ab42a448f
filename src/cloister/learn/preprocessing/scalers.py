"""Scalers and encoders from public facts. They read no row, so they need no budget and no ledger.

scikit-learn's own scalers fit on the data: the smallest and largest value of a column are then a person's. Here bounds
and categories are given. `StandardScaler` can also release the true mean and deviation for a spend.
"""

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin

from cloister.learn.base.estimator import PrivateEstimator, Quiet
from cloister.learn.base.frame import find_box
from cloister.learn.base.inputs import (
    Box,
    check_asked,
    complete_rows,
    is_dataset,
    keep_features,
    read_answers,
    read_box,
    read_table,
    wants_bounds,
)
from cloister.learn.base.integer_rows import on_grid
from cloister.learn.base.private_data import columns_as_parts, read_relation, values_of
from cloister.learn.base.row_source import keep_input, read_input
from cloister.learn.naive_bayes.count_features import read_features
from cloister.privacy.errors import BadBounds, BadInput, BadSchema
from cloister.privacy.filter import BudgetShare, PrivacyFilter, noise_for
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above

__all__ = ["MinMaxScaler", "OneHotEncoder", "StandardScaler"]

Floats = NDArray[np.float64]
_ONE, _EDGE = 2**15, 2**14
_FINDING = Fraction(1, 10)


class MinMaxScaler(Quiet, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Scale features so that their public bounds become 0 and 1; values outside are clipped.

    Args:
        bounds: public (low, high) of all features, or (lows, highs).
        feature_range: the range that the bounds are mapped to.

    Privacy: no cost: no row is read in `fit`.
    """

    def __init__(self, bounds: Any = None, feature_range: tuple[float, float] = (0.0, 1.0)) -> None:
        self.bounds = bounds
        self.feature_range = feature_range

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Store the bounds; only the number of columns of X is used.

        Args:
            X: an array or frame, or a Cloister dataset, whose schema has the bounds.
            y: not used.
            features, table: for a dataset: columns that are numbers, and the table if there are several.
        """
        check_asked({"features": features, "table": table})
        try:
            ends = read_box(self.feature_range, 1)
        except BadBounds:
            raise BadBounds("feature_range is (low, high).") from None
        low, high = float(ends.low[0]), float(ends.high[0])
        source = read_input(X, features=features, table=table, fill=0.0, numbers=True)
        box = source.box(self.bounds)
        keep_input(self, source)
        self.data_min_, self.data_max_ = box.low, box.high
        self.scale_ = (high - low) / (box.high - box.low)
        self.min_ = low - box.low * self.scale_
        return self

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Scale rows. The result is as sensitive as the rows."""
        rows = read_answers(self, X).numbers()
        return np.asarray(np.clip(rows, self.data_min_, self.data_max_) * self.scale_ + self.min_)

    def inverse_transform(self, X: Any) -> Floats:  # noqa: N803
        """Map scaled rows back to the units of the data."""
        return np.asarray((read_answers(self, X).numbers() - self.min_) / self.scale_)


class StandardScaler(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Scale features to about mean 0 and deviation 1.

    Args:
        spend: None uses the mean and deviation of a uniform distribution between the bounds, at no cost; with a spend
            those of the rows are released.
        bounds: public (low, high) of all features, or (lows, highs); with a spend also "find".
        fill: replaces a missing number; without it the row is left out.
        ledger, account, random_state: see `PrivateEstimator`.

    Privacy: no cost without a spend: no row is read in `fit`. Otherwise the spend, for one row added or removed:
        discrete Gaussian (or Laplace) noise on the number of rows, the sums and the sums of squares.
        Audited in tests/statistical/test_learn_moments_audit.py.
    """

    def __init__(
        self,
        spend: Loss | None = None,
        *,
        bounds: Any = None,
        fill: float | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: Account | None = None,
        random_state: Any = None,
    ) -> None:
        self.spend = spend
        self.bounds = bounds
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
        """Store the bounds, or release mean and deviation.

        Args:
            X: an array or frame, or a Cloister dataset. Its schema has the bounds; with a spend its rows are read into
                this process (learn/base/row_source.py).
            y: not used.
            features, table: for a dataset: columns that are numbers, and the table if there are several.

        Privacy: the spend, if there is one, charged before a row is read.
        """
        find = wants_bounds(self.bounds) and self.spend is not None
        source = read_input(X, features=features, table=table, fill=self.fill, find=find, numbers=True)
        given_box = None if find else source.box(self.bounds)
        steps = self._steps(source.numbers, source.width, given_box)
        paid = self._free(given_box) if self.spend is None else self._train_rows(steps, source)
        keep_input(self, source)
        self.mean_, self.var_ = paid
        self.scale_ = np.sqrt(self.var_)
        return self

    def _free(self, box: Box | None) -> tuple[Floats, Floats]:
        assert box is not None
        for name in ("loss_", "release_"):  # of an earlier fit with a spend
            self.__dict__.pop(name, None)
        return (box.low + box.high) / 2, (box.high - box.low) ** 2 / 12

    def _steps(
        self, look: Callable[[], Floats], features: int, given_box: Box | None
    ) -> Callable[[PrivacyFilter, BudgetShare], tuple[Floats, Floats]]:
        look = complete_rows(look)

        def steps(meter: PrivacyFilter, budget: BudgetShare) -> tuple[Floats, Floats]:
            box = given_box
            if box is None:
                box = find_box(meter, look, features, budget.part(_FINDING))
                budget = BudgetShare(budget.part(1 - _FINDING))
            return _mean_and_variance(meter, budget, look, box)

        return steps

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Scale rows. The result is as sensitive as the rows."""
        return np.asarray((read_answers(self, X, self.fill).numbers() - self.mean_) / self.scale_)

    def inverse_transform(self, X: Any) -> Floats:  # noqa: N803
        """Map scaled rows back to the units of the data."""
        return np.asarray(read_answers(self, X, self.fill).numbers() * self.scale_ + self.mean_)


def _mean_and_variance(
    meter: PrivacyFilter, budget: BudgetShare, look: Callable[[], Floats], box: Box
) -> tuple[Floats, Floats]:
    """Release mean and variance in two steps: the number of rows with the sums, then the sums of squares."""
    d, half = len(box.low), Fraction(1, 2)

    def cells() -> NDArray[np.int64]:
        return on_grid((box.to_unit(look()) - 0.5) * _ONE, _EDGE).astype(np.int64)

    def totals() -> NDArray[np.int64]:
        every = cells()
        return np.append(every.sum(axis=0), len(every) * _ONE)

    sums = noise_for(root_above(_ONE**2 + d * _EDGE**2), _ONE + d * _EDGE, budget.part(half))
    first = np.asarray(meter.release(totals, sums), dtype=np.float64)
    squares = noise_for(_EDGE**2 * root_above(d), _EDGE**2 * d, budget.part(half))
    second = np.asarray(meter.release(lambda: (cells() ** 2).sum(axis=0), squares), dtype=np.float64)
    count = max(float(first[-1]) / _ONE, 1.0)
    mean = np.clip(first[:-1] / _ONE / count, -0.5, 0.5)
    least = np.minimum(1e-6 + squares.standard_error / _ONE**2 / count, 0.25)
    variance = np.clip(second / _ONE**2 / count - mean**2, least, 0.25)
    width = box.high - box.low
    return (box.low + box.high) / 2 + mean * width, variance * width**2


class OneHotEncoder(Quiet, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode each public category as a column, 1 where a row has it; an unlisted value gives zeros.

    Args:
        categories: one list of public values for each column, a dict from column to values, or a number k for values
            0 … k-1 in every column.

    Privacy: no cost: no row is read in `fit`.
    """

    def __init__(self, categories: Any = None) -> None:
        self.categories = categories

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Store the categories; only the column names of X are used.

        Args:
            X: an array or frame, or a Cloister dataset, whose schema has the categories.
            y: not used.
            features, table: for a dataset: columns with categories, and the table if there are several.
        """
        check_asked({"features": features, "table": table})
        if is_dataset(X):
            columns = read_relation(X, table, features or ()).columns
            if not columns:
                raise BadInput("say which columns to encode: fit(ds, features=['ward']).")
            listed: Any = {name: values_of(column) for name, column in columns.items()}
            keep_features(self, len(listed), list(listed), columns_as_parts(columns, list(listed)))
            return self._take(list(listed), listed)
        if self.categories is None:
            raise BadSchema(
                "the categories are public and must be given: categories=[['a', 'b'], ['x', 'y']]. Reading them off "
                "data would tell which occur."
            )
        inputs = read_table(X, numbers=False)
        self._take(list(inputs.names or range(inputs.width)), self.categories)
        keep_features(self, inputs.width, inputs.names)
        return self

    def __sklearn_tags__(self) -> Any:
        """Declare that cells may be text, numbers, or missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags

    def _take(self, names: list[Any], categories: Any) -> Self:
        self._parts = read_features(names, categories, None, 1)
        self.categories_ = [np.asarray(part.values, dtype=object) for part in self._parts]
        return self

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Return the indicators. The result is as sensitive as the rows."""
        pairs = zip(self._parts, read_answers(self, X, numbers=False).columns, strict=True)
        return np.column_stack(
            [(part.codes(column)[:, None] == np.arange(part.size)) for part, column in pairs]
        ).astype(np.float64)

    def inverse_transform(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the category of each row and column; None where there is none."""
        numbers, columns, start = read_table(X).numbers(), [], 0
        for listed in self.categories_:
            part = numbers[:, start : start + len(listed)]
            start += len(listed)
            columns.append(np.where(part.any(axis=1), listed[part.argmax(axis=1)], None))
        return np.column_stack(columns)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> NDArray[Any]:
        """Return names such as `ward_surgery` (column ward, category surgery), or `x0_surgery` without column names."""
        names = [part.name if isinstance(part.name, str) else f"x{part.name}" for part in self._parts]
        names = names if input_features is None else list(input_features)
        pairs = zip(names, self.categories_, strict=True)
        return np.array([f"{name}_{value}" for name, listed in pairs for value in listed], dtype=object)
