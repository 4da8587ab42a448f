"""Rows for DP-SGD: arrays, frames, npz files, and tables of a dataset, in Poisson lots.

    source = read_rows(data)                    before the charge: public facts alone
    for rows in source.lots(rate, steps, …):    inside the release

Every unit enters every lot independently with the same rate. The randomness is that of the noise source: a sample that
an outsider can guess amplifies nothing. The number of rows is private; nothing is refused because of it.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.cells import attempt
from cloister.learn.base.containers import as_plain, is_frame, read_column
from cloister.learn.base.inputs import is_dataset, read_table
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import ROW, Unit
from cloister.privacy.noise import Source, bernoulli, uniform

__all__ = ["ArrayLots", "Lots", "PassLots", "Rows", "read_rows"]

Rows = tuple[NDArray[Any], ...]


class Lots(Protocol):
    """Rows that are read in Poisson lots. Everything but `lots` and `count` is public."""

    @property
    def row(self) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """The shape and type of each part of one row."""

    @property
    def unit(self) -> Unit:
        """The unit that is sampled and clipped."""

    @property
    def grouped(self) -> bool:
        """Return True if an example is a unit with several rows: a mask and its rows, padded to one length."""

    # Private: called inside the release.

    def count(self) -> int:
        """Return the number of units."""

    def lots(self, rate: Fraction, steps: int, source: Source) -> Iterator[Rows]:
        """Yield this many lots."""


@dataclass(frozen=True, slots=True)
class ArrayLots:
    """Rows in memory.

    Attributes:
        arrays: one for each argument of the loss after params; the first axis is the row.
        groups: for each unit the positions of its rows; None where the unit is the row.
        most: rows of a unit at most.
    """

    arrays: Rows
    groups: tuple[NDArray[np.int64], ...] | None = None
    most: int = 1

    @property
    def row(self) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """The shape and type of each part of one row."""
        return tuple((array.shape[1:], array.dtype) for array in self.arrays)

    @property
    def unit(self) -> Unit:
        """The unit that is sampled and clipped."""
        return ROW if self.groups is None else Unit("unit", max_rows=self.most)

    @property
    def grouped(self) -> bool:
        """Return True if an example is a unit with several rows."""
        return self.groups is not None

    def count(self) -> int:
        """Return the number of units."""
        return len(self.arrays[0]) if self.groups is None else len(self.groups)

    def lots(self, rate: Fraction, steps: int, source: Source) -> Iterator[Rows]:
        """Yield this many Poisson lots."""
        for _ in range(steps):
            chosen = np.flatnonzero(bernoulli(rate, self.count(), source)) if rate < 1 else np.arange(self.count())
            yield self.take(chosen)

    def take(self, chosen: NDArray[Any]) -> Rows:
        """Return the rows (or units) at these positions."""
        if self.groups is None:
            return tuple(array[chosen] for array in self.arrays)
        return padded_units(self.arrays, [self.groups[place] for place in chosen], self.most)


@dataclass(frozen=True, slots=True)
class PassLots:
    """Rows in memory in passes: every unit enters one lot of each pass, always the same.

    Attributes:
        rows: the rows.
        parts: the number of lots of a pass.
        order: for each row its lot, from 0; of a unit with several rows the first one's. Drawn at random if None.
    """

    rows: ArrayLots
    parts: int
    order: NDArray[np.int64] | None = None

    @property
    def row(self) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """The shape and type of each part of one row."""
        return self.rows.row

    @property
    def unit(self) -> Unit:
        """The unit that is clipped."""
        return self.rows.unit

    @property
    def grouped(self) -> bool:
        """Return True if an example is a unit with several rows."""
        return self.rows.grouped

    def count(self) -> int:
        """Return the number of units."""
        return self.rows.count()

    def lots(self, rate: Fraction, steps: int, source: Source) -> Iterator[Rows]:
        """Yield this many lots; the rate is that of a lot in a pass."""
        if self.order is None:
            places = uniform(self.parts, (self.count(),), source)
        else:  # a unit's lot follows from its own rows, and no value is refused
            first = self.order if self.rows.groups is None else self.order[[group[0] for group in self.rows.groups]]
            places = np.clip(first, 0, self.parts - 1)
        for step in range(steps):
            yield self.rows.take(np.flatnonzero(places == step % self.parts))


def padded_units(arrays: Rows, groups: Sequence[NDArray[np.int64]], most: int) -> Rows:
    """Return units as (mask, rows, …): each unit's rows, filled up with copies of its first, which the mask hides."""
    places = np.zeros((len(groups), most), dtype=np.int64)
    real = np.zeros((len(groups), most), dtype=np.float32)
    for i, group in enumerate(groups):
        own = group[:most]
        places[i] = own[0]
        places[i, : len(own)] = own
        real[i, : len(own)] = 1.0
    return (real, *(array[places] for array in arrays))


def read_rows(data: Any, *, units: Any = None, max_rows: int | None = None, **columns: Any) -> Lots:
    """Read the public facts of training data. No row is looked at.

    Args:
        data: an array or frame X, or a pair (X, y), or any tuple of arrays of equal length; the path of an npz file
            with arrays x and y (or X and y); or a dataset, with target, features, table and so on in `columns`. Columns
            of polars, pyarrow and pandas' nullable types are floats, whether or not a cell is missing.
        units: one identifier for each row, if the unit is a person with several rows; rows without one (None, NaN) are
            left out.
        max_rows: rows of a unit that count; further ones are left out.
    """
    if is_dataset(data):
        from cloister.learn.deep.table_lots import read_table_lots

        if units is not None or max_rows is not None:
            raise BadInput("a dataset's schema names its unit and how many rows of one count. Leave units out.")
        return read_table_lots(data, **columns)
    if any(value is not None for value in columns.values()):
        raise BadInput(f"{', '.join(columns)} name columns of a dataset opened with cl.open, and this is none.")
    if isinstance(data, str | os.PathLike):
        data = _from_npz(data)
    parts = data if isinstance(data, tuple) else (data,)
    arrays = tuple(_array(part) for part in parts)
    if not arrays or len({len(array) for array in arrays}) != 1:
        raise BadInput("data is an array, or a tuple of arrays with one row for each example, all of one length.")
    if units is None:
        if max_rows is not None:
            raise BadInput("max_rows belongs to units=, one identifier for each row.")
        return ArrayLots(arrays)
    names = read_column(units)
    if len(names) != len(arrays[0]):
        raise BadInput("units has one identifier for each row of data.")
    if isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1:
        raise BadInput("say how many rows of a unit count: max_rows=8. Its summed gradient is clipped as one.")
    return ArrayLots(arrays, _groups(names), max_rows)


def _groups(names: NDArray[Any]) -> tuple[NDArray[np.int64], ...]:
    """Return for each unit the places of its rows. A row without an identifier belongs to no unit, and is left out.

    Whether an identifier is missing follows from its own cell: None, NaN and NaT are, and what cannot be compared is.
    """
    places: dict[Any, list[int]] = {}
    cells = names.tolist() if names.dtype.kind not in "mM" else list(names)
    for place, name in enumerate(cells):
        if name is not None and attempt(partial(_equals_itself, name)):
            places.setdefault(name, []).append(place)
    return tuple(np.array(group, dtype=np.int64) for group in places.values())


def _equals_itself(name: Any) -> bool:
    return bool(name == name) and hash(name) is not None


def _array(part: Any) -> NDArray[Any]:
    """Return one part of the data as an array of numbers, by its declared type alone."""
    if is_frame(part):
        array: NDArray[Any] = read_table(part).numbers()
    elif isinstance(part, list | tuple):  # a list has no type, and one cell would decide that of all
        raise BadInput(
            "data are arrays, whose type is declared, not lists. Write np.asarray(values, dtype=np.float32)."
        )
    else:
        array = as_plain(part)
    if array.dtype.kind not in "biuf" or array.ndim < 1:
        raise BadInput("data are arrays of numbers: features, pixels, class numbers. Encode text and categories first.")
    with np.errstate(all="ignore"):  # a number beyond single floats is infinite, and its row counts as zeros
        if array.dtype.kind == "f":
            return array.astype(np.float32, copy=False)
        return array.astype(np.int32, copy=False) if array.dtype.itemsize > 4 else array


def _from_npz(path: Any) -> tuple[NDArray[Any], ...]:
    """Return the arrays of an npz file: x and y, also named X, images, x_train; and labels, y_train."""
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            first = next((name for name in ("x", "X", "images", "x_train") if name in file.files), None)
            second = next((name for name in ("y", "labels", "y_train") if name in file.files), None)
            if first is None:
                raise BadInput("the npz file has no array named x, X, images or x_train. Pass arrays instead.")
            return (file[first],) if second is None else (file[first], file[second])
    except (OSError, ValueError, AttributeError, TypeError, BadZipFile):
        raise BadInput("data is a path, and there is no npz file of plain arrays at it.") from None
