"""Stateless transformers of scikit-learn, applied to each private row alone.

A transformer that learns nothing may still combine rows (`X - X.mean(0)`) or refuse a value (scikit-learn's own refuse
a missing number, which reveals that there is one). So `select` and `cross_val_score` pass it one row at a time, as
numbers; a row on which it fails becomes missing.
"""

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer
from sklearn.utils._set_output import _get_output_config

from cloister.learn.base.cells import attempt
from cloister.learn.base.estimator import Quiet, quiet
from cloister.learn.base.inputs import keep_features, read_answers, read_table
from cloister.privacy.errors import BadInput

__all__ = ["STATELESS", "EachRow", "Passthrough"]

Floats = NDArray[np.float64]
STATELESS = (FunctionTransformer, Normalizer, Binarizer)  # by exact type: a subclass may learn
_MADE_UP = (0.0, 1.0, 0.5)


class EachRow(Quiet, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Stateless transformer applied to each row alone.

    Args:
        transformer: one of `STATELESS`. It is fitted on a synthetic row, and gets one row of floats at a time, with NaN
            for anything that is not a number.

    Privacy: no cost. The result for a row depends on that row alone, provided that the transformer's own function keeps
        no state between calls, which the caller asserts. A row on which it fails, or for which it returns another
        number of columns, becomes missing.
    """

    def __init__(self, transformer: Any = None) -> None:
        self.transformer = transformer

    @quiet
    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Learn the number of columns from a synthetic row."""
        table = read_table(X)
        keep_features(self, table.width, table.names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for value in _MADE_UP:
                row = np.full((1, table.width), value)
                fitted = _fitted(self.transformer, row)
                transformed = None if fitted is None else _answer(fitted, row)
                if transformed is not None:
                    self.transformer_, self.width_ = fitted, transformed.shape[1]
                    return self
        raise BadInput(
            f"{type(self.transformer).__name__} fails on a made-up row. Here it is given one row at a time, as an "
            f"array of {table.width} floats, and returns an array of one row."
        )

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Transform each row alone; NaN in all columns where that fails."""
        rows = read_answers(self, X).numbers()
        output = np.full((len(rows), self.width_), np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning would reveal a row
            for index in range(len(rows)):
                transformed = _answer(self.transformer_, rows[index : index + 1])
                if transformed is not None and transformed.shape[1] == self.width_:
                    output[index] = transformed[0]
        return output

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the input names, if the number of columns is unchanged."""
        names = getattr(self, "feature_names_in_", None) if input_features is None else input_features
        if names is None or len(names) != self.width_:
            name = type(self.transformer).__name__.lower()
            names = [f"{name}{index}" for index in range(self.width_)]
        return np.array(list(names), dtype=object)


def _fitted(transformer: Any, row: Floats) -> Any:
    """Return a copy of a transformer fitted on a synthetic row; None if it fails."""
    return attempt(lambda: clone(transformer).fit(row.copy()))


def _answer(transformer: Any, row: Floats) -> Floats | None:
    """Return the transform of one row; None if it fails in any way."""
    transformed = attempt(lambda: np.asarray(transformer.transform(row.copy()), dtype=np.float64))
    return transformed if transformed is not None and transformed.ndim == 2 and len(transformed) == 1 else None


class Passthrough(Quiet, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Return columns unchanged, read by declared type: floats if all are numbers, otherwise objects.

    It replaces "passthrough" in a ColumnTransformer or FeatureUnion, where numpy would choose the type of a frame's
    column by whether a cell is missing. Where a pandas frame is wanted it makes that itself: scikit-learn would let
    pandas infer that a column is of dates or durations, unless one cell is a word.

    Privacy: no cost: no row is read in `fit`.
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Store the names and number of the columns."""
        table = read_table(X, numbers=False)
        keep_features(self, table.width, table.names)
        return self

    def __sklearn_tags__(self) -> Any:
        """Declare that cells may be text, numbers, or missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Return the cells unchanged, as an array; as a frame if `set_output` asks for pandas."""
        table = read_answers(self, X, numbers=False)
        if all(column.dtype.kind in "iufb" for column in table.columns):
            return table.numbers()
        cells = np.empty((table.length, table.width), dtype=object)
        for index, column in enumerate(table.columns):
            cells[:, index] = column if column.dtype == object else np.fromiter(column, dtype=object, count=len(column))
        if _get_output_config("transform", self)["dense"] != "pandas":
            return cells
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(cells, index=X.index if isinstance(X, pd.DataFrame) else None, dtype=object)
