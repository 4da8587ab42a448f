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
    known = list(rows) if isinstance(rows, Mapping) else list(frame_names(rows) or getattr(rows, "columns", []))
    names = [str(one) for one in getattr(model, "feature_names_in_", ())]
    if not names:
        raise BadInput("the model does not know the names of its features: give it rows as it was given them.")
    parts = getattr(model, "_features", None) or [_guessed(known, name) for name in names]
    made = _features(rows, known, parts)
    if all(one.dtype.kind in "iufb" for one in made):
        return np.column_stack([one.astype(np.float64) for one in made])
    whole = np.empty((len(made[0]), len(made)), dtype=object)
    for place, one in enumerate(made):
        whole[:, place] = one
    return whole


def _column(given: Any) -> NDArray[Any]:
    """Return a column as an array; a list of only numbers becomes a numeric array."""
    found = read_column(given)
    if isinstance(given, list | tuple) and set(map(type, found.tolist())) <= {int, float, bool}:
        return numbers_in(found)
    return found


def _features(rows: Any, known: list[Any], parts: Sequence[tuple[str, Any, str]]) -> list[NDArray[Any]]:
    """Return the column of each feature."""
    codes: dict[str, tuple[list[Any], NDArray[Any]]] = {}
    made = []
    for column, value, kind in parts:
        if column not in known:
            raise BadInput(f"there is no column for the feature {column if value is None else f'{column}={value}'}.")
        if value is None:
            made.append(_column(rows[column]))
        elif not kind:
            made.append(np.asarray(Categories([value]).codes(read_column(rows[column])) == 0, dtype=np.float64))
        else:
            if column not in codes:
                listed = [one for name, one, _ in parts if name == column]
                codes[column] = listed, Categories(listed, column, exact=True).codes(read_column(rows[column]))
            listed, found = codes[column]
            made.append(np.asarray(found == listed.index(value), dtype=np.float64))
    return made


def _guessed(known: list[Any], name: str) -> tuple[str, Any, str]:
    """Return column, value and no type of a feature, by its name: for a model that an earlier version has kept."""
    if name in known:
        return name, None, ""
    column = max((one for one in known if name.startswith(f"{one}=")), key=len, default=None)
    if column is None:
        raise BadInput(f"there is no column for the feature {name}.")
    return column, name.removeprefix(f"{column}="), ""
