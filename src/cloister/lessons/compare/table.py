"""Rows with their public facts; and the rows with noise on every cell, the textbook's "private data"."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.hospital import SCHEMA, hospital
from cloister.data.schema import Column, Schema
from cloister.learn.base.inputs import codes
from cloister.privacy.errors import BadBounds, BadInput, BadSchema, BadSource
from cloister.privacy.loss import Loss, epsilon
from cloister.privacy.mechanisms import KaryResponse, Laplace
from cloister.privacy.noise import Source

__all__ = ["ExerciseTable", "read_lesson", "read_file"]


# Tables for the exercise: a CSV or Parquet file, or the demo's hospital.


def read_file(name: str) -> tuple[Any, Any, str | None]:
    """Read a table, its schema and its usual target. The last two are None for a file."""
    if name == "demo":
        return hospital(), SCHEMA, "readmitted"
    import pyarrow as pa
    from pyarrow import csv, parquet

    path = Path(name)
    try:
        if path.suffix == ".parquet":
            return parquet.read_table(path), None, None
        return csv.read_csv(path), None, None
    except (OSError, pa.ArrowInvalid):
        raise BadSource(f"{path} is no CSV or Parquet file that can be read. Give one, or the word demo.") from None


_MOST_CLASSES = 20


@dataclass(frozen=True, slots=True)
class ExerciseTable:
    """A table and its public facts.

    Attributes:
        columns: the features as given.
        labels: the index of each row's class in `classes`.
        classes: the public labels.
        bounds, categories: every feature has one or the other.
        target, group: names; the group is a feature with categories, used for fairness measures, or None.
    """

    columns: Mapping[str, NDArray[Any]]
    labels: NDArray[np.int64]
    classes: tuple[Any, ...]
    bounds: Mapping[str, tuple[float, float]]
    categories: Mapping[str, tuple[Any, ...]]
    target: str
    group: str | None

    @property
    def rows(self) -> int:
        """The number of rows, which is no secret in a lesson."""
        return len(self.labels)

    def take(self, places: NDArray[np.int64]) -> "ExerciseTable":
        """Return some of the rows."""
        some = {name: values[places] for name, values in self.columns.items()}
        return replace(self, columns=some, labels=self.labels[places])

    def matrix(self) -> NDArray[np.float64]:
        """Return numbers scaled by their bounds to [0, 1] and categories as indicators."""
        parts = []
        for name, values in self.columns.items():
            if name in self.bounds:
                low, high = self.bounds[name]
                parts.append(np.clip((self.numbers(name) - low) / (high - low), 0, 1)[:, None])
            else:
                code = _codes(values, self.categories[name])
                parts.append((code[:, None] == np.arange(len(self.categories[name]))).astype(np.float64))
        return np.hstack(parts)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column with bounds. A missing value becomes their middle."""
        values = np.array([np.nan if value is None else value for value in self.columns[name]], dtype=np.float64)
        return np.where(np.isnan(values), sum(self.bounds[name]) / 2, values)

    def indicators(self) -> list[bool]:
        """Return the columns of the matrix that are indicators."""
        widths = [(name in self.bounds, len(self.categories.get(name, ()))) for name in self.columns]
        return [flag for number, size in widths for flag in ([False] if number else [True] * size)]

    def groups(self) -> NDArray[np.int64] | None:
        """Return the group of each row; -1 for rows without one."""
        return None if self.group is None else _codes(self.columns[self.group], self.categories[self.group])

    def noisy(self, amount: Any, source: Source) -> "ExerciseTable":
        """Return the rows with noise for the full range on each cell: Laplace on numbers, randomised response on words.

        Privacy: nominally `amount` in epsilon, replace-one: the cells of a row (its label too) share it equally. Noise
            on some columns only, or for less than their range, would protect no one.
        """
        each = epsilon(amount, relation="replace-one").split(len(self.columns) + 1)
        columns = {name: self._noisy(name, values, each, source) for name, values in self.columns.items()}
        labels = KaryResponse.for_loss(len(self.classes), each).release(np.maximum(self.labels, 0), source)
        return replace(self, columns=columns, labels=np.asarray(labels, dtype=np.int64))

    def _noisy(self, name: str, values: NDArray[Any], each: Loss, source: Source) -> NDArray[Any]:
        if name in self.bounds:
            low, high = self.bounds[name]
            law = Laplace.for_bounds(low, high, each)
            released = law.release(law.grid.encode(self.numbers(name), low, high), source)
            return np.asarray(np.clip(released, low, high))
        listed = self.categories[name]
        if len(listed) < 2:
            return values
        code = np.maximum(_codes(values, listed), 0)  # an unlisted word counts as the first
        words: NDArray[Any] = np.empty(len(listed), dtype=object)
        words[:] = listed
        return np.asarray(words[np.asarray(KaryResponse.for_loss(len(listed), each).release(code, source))])


def read_lesson(
    table: Any,
    target: str,
    *,
    schema: Any = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    classes: Sequence[Any] | None = None,
    group: str | None = None,
) -> ExerciseTable:
    """Read a table as a lesson. Features are the columns with known bounds or categories.

    Args:
        table: columns by name: a dict, an Arrow table, a pandas or polars frame.
        target: the column to predict.
        schema: a schema, or its file, whose table has the target; or
        bounds, categories, classes: the same facts by hand. They extend and override a schema.
        group: a feature with categories to compare.
    """
    columns = _columns(table)
    numbers, words = _public_facts(schema, target, bounds or {}, categories or {})
    listed = tuple(classes) if classes is not None else words.get(target) or _whole(numbers.get(target))
    if target not in columns:
        raise BadInput(f"there is no column {target!r:.60} to predict.")
    if len(listed) < 2:
        raise BadSchema(f"say which classes {target} has: classes=['no', 'yes']. Reading them off would tell.")
    names = [name for name in columns if name != target and name in {*numbers, *words}]
    if not names or group not in {None, *words} & {None, *names}:
        raise BadSchema("name bounds or categories for the columns to learn from, and categories for the group.")
    labels = _codes(columns[target], listed)
    lesson = ExerciseTable(
        {name: columns[name] for name in names},
        labels,
        listed,
        {name: numbers[name] for name in names if name in numbers and name not in words},
        {name: words[name] for name in names if name in words},
        target,
        group,
    )
    return lesson.take(np.flatnonzero(labels >= 0))


def _public_facts(
    schema: Any, target: str, bounds: Mapping[str, tuple[float, float]], categories: Mapping[str, Sequence[Any]]
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[Any, ...]]]:
    """Return the bounds and the categories of a schema, extended and overridden by those given."""
    facts = _from_schema(schema, target) if schema is not None else {}
    numbers = {name: _pair(one.bounds) for name, one in facts.items() if one.bounds and one.type in ("integer", "real")}
    words = {name: tuple(column.categories) for name, column in facts.items() if column.categories}
    numbers.update({name: _pair(ends) for name, ends in bounds.items()})
    words.update({name: tuple(listed) for name, listed in categories.items()})
    return numbers, words


def _columns(table: Any) -> dict[str, NDArray[Any]]:
    if hasattr(table, "column_names"):  # Arrow
        names = table.column_names
        return {name: np.asarray(table.column(name).to_pylist(), dtype=object) for name in names}
    names = list(table) if isinstance(table, Mapping) else list(getattr(table, "columns", ()))
    if not names:
        raise BadInput("a table has columns with names: give a dict, an Arrow table or a frame.")
    return {str(name): np.asarray(table[name]) for name in names}


def _from_schema(schema: Any, target: str) -> Mapping[str, Column]:
    read = Schema.load(schema)
    read.check()
    tables = [table for table in read.tables.values() if target in table.columns]
    if len(tables) != 1:
        raise BadSchema(f"the schema needs one table with the column {target}.")
    return tables[0].columns


def _pair(ends: Any) -> tuple[float, float]:
    low, high = (float(end) for end in ends)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise BadBounds("bounds are (low, high), finite, the lower one first.")
    return low, high


def _whole(ends: tuple[float, float] | None) -> tuple[Any, ...]:
    """Return the integers within bounds, if there are few: a target of 0 and 1 needs no list."""
    if ends is None or not all(end.is_integer() for end in ends) or ends[1] - ends[0] >= _MOST_CLASSES:
        return ()
    return tuple(range(int(ends[0]), int(ends[1]) + 1))


def _codes(values: NDArray[Any], listed: Sequence[Any]) -> NDArray[np.int64]:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in listed):
        return codes(np.array([np.nan if value is None else value for value in values], dtype=np.float64), list(listed))
    return codes(np.array([str(value) for value in values]), [str(value) for value in listed])
