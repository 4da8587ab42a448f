"""Columns of a schema as the features of a model fitted on a dataset."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.cells import Categories, numbers_in
from cloister.learn.base.containers import frame_names, read_column
from cloister.privacy.errors import BadInput

__all__ = ["prepare"]


def prepare(model: Any, rows: Any) -> NDArray[Any]:
    """Convert rows to the features, in order, of a model fitted on a dataset.

    A feature is a column (`age`), or one value of a column (`ward=surgery`), which is 1 where a row has it. A fit on a
    dataset keeps the column, the value and the schema's type of each, so values are told apart as the schema does: of a
    column of text, "1" and "1.0" are two.

    Args:
        model: fitted on a dataset, here or on a hub.
        rows: a frame, or a dict from column to values; other columns are ignored.
    """
    columns = list(rows) if isinstance(rows, Mapping) else list(frame_names(rows) or getattr(rows, "columns", []))
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    if not names:
        raise BadInput("the model does not know the names of its features: give it rows as it was given them.")
    parts = getattr(model, "_features", None) or [_guessed(columns, name) for name in names]
    features = _features(rows, columns, parts)
    if all(feature.dtype.kind in "iufb" for feature in features):
        return np.column_stack([feature.astype(np.float64) for feature in features])
    table = np.empty((len(features[0]), len(features)), dtype=object)
    for index, cells in enumerate(features):
        table[:, index] = cells
    return table


def _column(values: Any) -> NDArray[Any]:
    """Return a column as an array; a list of only numbers becomes a numeric array."""
    column = read_column(values)
    if isinstance(values, list | tuple) and set(map(type, column.tolist())) <= {int, float, bool}:
        return numbers_in(column)
    return column


def _features(rows: Any, columns: list[Any], parts: Sequence[tuple[str, Any, str]]) -> list[NDArray[Any]]:
    """Return the column of each feature."""
    codes: dict[str, tuple[list[Any], NDArray[Any]]] = {}
    features = []
    for column, value, kind in parts:
        if column not in columns:
            raise BadInput(f"there is no column for the feature {column if value is None else f'{column}={value}'}.")
        if value is None:
            features.append(_column(rows[column]))
        elif not kind:
            features.append(np.asarray(Categories([value]).codes(read_column(rows[column])) == 0, dtype=np.float64))
        else:
            if column not in codes:
                listed = [value for name, value, _ in parts if name == column]
                codes[column] = listed, Categories(listed, column, exact=True).codes(read_column(rows[column]))
            listed, code = codes[column]
            features.append(np.asarray(code == listed.index(value), dtype=np.float64))
    return features


def _guessed(columns: list[Any], name: str) -> tuple[str, Any, str]:
    """Return column, value and no type of a feature, by its name: for a model that an earlier version has kept."""
    if name in columns:
        return name, None, ""
    column = max((candidate for candidate in columns if name.startswith(f"{candidate}=")), key=len, default=None)
    if column is None:
        raise BadInput(f"there is no column for the feature {name}.")
    return column, name.removeprefix(f"{column}="), ""
