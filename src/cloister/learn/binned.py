"""What estimators on public cells share: how they read rows, and that what they read is private until it is noisy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.bins import Axis, Columns, feature_names, read_axes, read_columns
from cloister.learn.estimator import PrivateEstimator
from cloister.learn.exact import Integers
from cloister.learn.inputs import codes, is_dataset, read_classes
from cloister.privacy.errors import BadInput
from cloister.privacy.noise import Source

__all__ = ["BinnedEstimator", "BinnedRows", "public_generator"]


@dataclass(slots=True)
class BinnedRows:
    """Private rows; `cells` and `targets` are called inside a step, after the charge.

    Attributes:
        axes: the public cells.
        classes: the public labels; None if the target is a number. Rows of no listed class are left out.
    """

    columns: Columns
    labels: NDArray[Any]
    axes: tuple[Axis, ...]
    classes: NDArray[Any] | None
    _read: tuple[Integers, NDArray[Any]] | None = field(default=None, repr=False)

    def look(self) -> tuple[Integers, NDArray[Any]]:
        """The cell of each row and feature, and the code of its class (or its target as it came)."""
        if self._read is None:
            cells = self.columns.cells(self.axes)
            if self.classes is None:
                self._read = cells, self.labels
            else:
                code = codes(self.labels, list(self.classes))
                self._read = cells[code >= 0], code[code >= 0]
        return self._read


class BinnedEstimator(PrivateEstimator):
    """An estimator that sees features through public cells."""

    bounds: Any
    bins: Any
    categories: Mapping[Any, Sequence[Any]] | None
    fill: float | None
    n_features_in_: int
    _usual_bins = 16

    def _rows(self, rows: Any, labels: Any, classes: Any, numeric: bool = False) -> BinnedRows:
        """Check what is public about the input: shapes, types, bounds, classes."""
        from sklearn.utils.validation import column_or_1d

        if is_dataset(rows):
            raise BadInput(
                f"{type(self).__name__} needs rows as arrays or frames, and rows never leave an engine. "
                "Naive Bayes, linear regression, PCA and logistic regression train inside one."
            )
        columns = read_columns(rows, self.categories, self.fill)
        axes = read_axes(columns.names, self.bounds, self.bins, self.categories, self._usual_bins)
        listed = None if numeric else read_classes(classes)
        if labels is None:
            raise BadInput(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        given = np.asarray(column_or_1d(labels, warn=True))
        if len(given) != columns.length:
            raise BadInput("y is one column, as long as X.")
        if listed is not None:
            codes(given[:0], list(listed))
        return BinnedRows(columns, given, axes, listed)

    def _keep_names(self, rows: Any, data: BinnedRows) -> None:
        names = feature_names(rows)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_features_in_ = len(data.axes)
        self._axes = data.axes

    def _cells(self, rows: Any) -> Integers:
        """The cells of rows to answer about."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "n_features_in_")
        columns = read_columns(rows, self.categories, self.fill)
        if len(columns.names) != self.n_features_in_:
            raise BadInput(
                f"X has {len(columns.names)} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        named = feature_names(rows)
        if named is not None and hasattr(self, "feature_names_in_") and named != list(self.feature_names_in_):
            raise BadInput("The feature names should match those that were passed during fit, in the same order.")
        return columns.cells(self._axes)


def public_generator(source: Source) -> np.random.Generator:
    """Randomness for what needs no secrecy, such as which features a split may use; repeats if the source does."""
    return np.random.default_rng(int.from_bytes(source.bytes(16), "little"))
