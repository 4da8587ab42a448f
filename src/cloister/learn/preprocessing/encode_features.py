"""Columns of a schema as the features of a model fitted on a dataset."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.cells import Categories, numbers_in
from cloister.learn.base.containers import read_column
from cloister.privacy.errors import BadInput

__all__ = ["prepare"]


def prepare(model: Any, rows: Any) -> NDArray[Any]:
    """Convert rows to the features, in order, of a model fitted on a dataset.

    A feature is a column (`age`), or one value of a column (`ward=surgery`), which is 1 where a row has it.

    Args:
        model: fitted on a dataset, here or on a hub.
        rows: a frame, or a dict from column to values; other columns are ignored.
    """
    named = getattr(rows, "column_names", None)  # of pyarrow
    known = list(rows) if isinstance(rows, Mapping) else list(named or getattr(rows, "columns", []))
    names = [str(one) for one in getattr(model, "feature_names_in_", ())]
    if not names:
        raise BadInput("the model does not know the names of its features: give it rows as it was given them.")
    made = [_feature(rows, known, name) for name in names]
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


def _feature(rows: Any, known: list[Any], name: str) -> NDArray[Any]:
    if name in known:
        return _column(rows[name])
    column = max((one for one in known if name.startswith(f"{one}=")), key=len, default=None)
    if column is None:
        raise BadInput(f"there is no column for the feature {name}.")
    value = name.removeprefix(f"{column}=")
    return np.asarray(Categories([value], name).codes(read_column(rows[column])) == 0, dtype=np.float64)
