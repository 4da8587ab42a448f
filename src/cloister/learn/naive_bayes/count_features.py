"""Countable columns: categories, or numbers in equal bins between public bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.schema import Column
from cloister.data.statistics import GroupKey
from cloister.data.summaries import axis
from cloister.learn.base.cells import Categories, numbers_in
from cloister.learn.base.frame import find_box
from cloister.learn.base.inputs import read_box, read_values
from cloister.privacy.errors import BadBounds, BadSchema
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.loss import Loss

__all__ = ["CountFeature", "features_of_schema", "find_features", "read_features"]

_MOST = 1_000_000  # values 0 … k-1 of a column


@dataclass(frozen=True, slots=True)
class CountFeature:
    """Column whose values are counted.

    Attributes:
        name: name or number of the column.
        values: every category; None for a number in bins.
        low, high, bins: those of a number.
        column: the schema's column, if it comes from one.
    """

    name: Any
    values: tuple[Any, ...] | None = None
    low: float = 0.0
    high: float = 1.0
    bins: int = 0
    column: Column | None = None

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return self.bins if self.values is None else len(self.values)

    def codes(self, given: NDArray[Any]) -> NDArray[np.int64]:
        """Return the cell of each value; -1 for a missing or unknown one."""
        if self.values is not None:
            return Categories(self.values, f"column {self.name}", exact=self.column is not None).codes(given)
        numbers = numbers_in(given)
        present = ~np.isnan(numbers)
        inside = np.clip(np.where(present, numbers, self.low), self.low, self.high)
        place_of = np.floor((inside - self.low) * (1 / ((self.high - self.low) / self.bins)))
        return np.where(present, np.clip(place_of, 0, self.bins - 1), -1).astype(np.int64)

    @property
    def key(self) -> GroupKey:
        """Return the cells as group keys of an engine; NULL is in no group."""
        if self.column is None:
            raise BadSchema("this feature does not come from a schema.")
        key = axis(self.column, self.bins or 1).key
        return GroupKey(key.name, key.sql, tuple(value for value in key.values if value is not None), key.type)


def read_features(names: Sequence[Any], categories: Any, bounds: Any, bins: int) -> tuple[CountFeature, ...]:
    """Read the features from the public facts of each column."""
    if isinstance(categories, int) and not isinstance(categories, bool):
        if not 1 <= categories <= _MOST:
            raise BadSchema(f"a number of categories is between 1 and {_MOST:,}.")
        categories = {name: range(categories) for name in names}
    elif categories is None or isinstance(categories, Mapping):
        categories = dict(categories or {})
    elif isinstance(categories, list | tuple | np.ndarray) and len(categories) == len(names):
        categories = dict(zip(names, categories, strict=True))
    else:
        raise BadSchema(f"categories has one list of values for each of the {len(names)} columns, or is a dict.")
    if set(categories) - set(names):
        raise BadSchema("categories names a column that is not there.")
    if isinstance(bounds, Mapping) and set(bounds) - set(names):
        raise BadSchema("bounds names a column that is not there.")
    features = []
    for name in names:
        if name in categories:
            listed = tuple(read_values(categories[name]) or ())
            if not listed:
                raise BadSchema(f"the categories of column {name} must be a list of different values, at least one.")
            Categories(listed, f"column {name}")
            features.append(CountFeature(name, listed))
            continue
        ends = bounds.get(name) if isinstance(bounds, Mapping) else bounds
        if ends is None:
            raise BadBounds(f"column {name} has neither public categories nor bounds. Give one of them.")
        box = read_box(ends, 1)
        features.append(CountFeature(name, None, float(box.low[0]), float(box.high[0]), bins))
    return tuple(features)


def features_of_schema(columns: Sequence[Column], bins: int) -> tuple[CountFeature, ...]:
    """Read the features from a schema."""
    features = []
    for column in columns:
        cells = axis(column, bins)
        if any(isinstance(label, tuple) for label in cells.labels):  # the ends of a bin
            low, high = (float(end) for end in column.bounds or (0, 1))  # type: ignore[arg-type]
            features.append(CountFeature(column.name, None, low, high, bins, column))
        else:
            listed = tuple(label for label in cells.labels if label is not None)
            features.append(CountFeature(column.name, listed, bins=bins, column=column))
    return tuple(features)


def find_features(
    meter: PrivacyFilter, loss: Loss, columns: Sequence[NDArray[Any]], features: tuple[CountFeature, ...]
) -> tuple[CountFeature, ...]:
    """Return the features, with bounds of numbers found privately.

    Privacy: the loss, for one row added or removed.
    """
    places = [i for i, feature in enumerate(features) if feature.values is None]
    if not places:
        return features
    bounded = list(features)
    box = find_box(meter, lambda: np.column_stack([numbers_in(columns[i]) for i in places]), len(places), loss)
    for i, low, high in zip(places, box.low, box.high, strict=True):
        bounded[i] = replace(bounded[i], low=float(low), high=float(high))
    return tuple(bounded)
