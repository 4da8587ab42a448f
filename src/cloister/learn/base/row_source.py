"""Rows for methods that need rows: those of an array or frame, or those of a dataset, with one interface.

    source = read_input(X, y, target=…, classes=…)      before the charge: public facts alone
    source.numbers(), source.labels()                   inside a step

The rows of a dataset are read into this process with a contribution bound:

    charge ──► step: read the columns, clipped by their view, at most m rows per unit ──► the method, at a row's budget

Most models need only sums of integers, which are computed in the engine. Gradient descent, trees and clustering read
every row many times: for them the rows leave the engine once, inside the first step, and stay in this process until
the fit ends. The user who runs the fit must be trusted with them (a curator); the release is as private as that of
any other fit. Of a unit with more than m rows, m are kept, chosen by a keyed hash of the rows. Since the method
protects one row, its budget is the one at which m rows together cost the spend (`BudgetShare.of_a_row`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cloister.data.private_data import PrivateData
from cloister.data.schema import Column
from cloister.learn.base.bins import BinnedFeature, Columns, read_axes
from cloister.learn.base.cells import numbers_in
from cloister.learn.base.frame import Floats
from cloister.learn.base.inputs import (
    Box,
    InputTable,
    check_fill,
    codes,
    is_dataset,
    keep_features,
    read_box,
    read_classes,
    read_goal,
    read_labels,
    read_table,
    wants_bounds,
)
from cloister.learn.base.integer_rows import Integers
from cloister.learn.base.private_data import (
    Part,
    PrivateTable,
    check_filled,
    check_names,
    classes_of,
    ends_of,
    is_number,
    names_of,
    parts_of,
    read_names,
    read_relation,
    values_of,
)
from cloister.privacy.errors import BadInput, BadSchema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrayRows", "FetchedTable", "InputRows", "fetch", "fetch_numbers", "keep_input", "read_input"]


@dataclass(slots=True)
class ArrayRows:
    """Rows of an array or frame. Everything but `numbers` and `labels` is public.

    Attributes:
        table: the columns as given.
        given: the labels or the target as given; None for none.
        classes: the public labels; None if the target is a number.
    """

    dataset: ClassVar[Literal[False]] = False

    table: InputTable
    given: NDArray[Any] | None = None
    classes: NDArray[Any] | None = None

    @property
    def names(self) -> Sequence[str | int] | None:
        """Return the names of a frame's columns; None for an array."""
        return self.table.names

    @property
    def width(self) -> int:
        """Return the number of features."""
        return self.table.width

    def bounds(self, given: Any, data_norm: float | None = None) -> Any:
        """Return the bounds of the features: those given."""
        return given

    def box(self, given: Any) -> Box:
        """Return the bounds of the features, read and checked."""
        return read_box(given, self.width)

    # Private: called inside a step, after the charge.

    def numbers(self) -> Floats:
        """Return all columns as numbers."""
        return self.table.numbers()

    def labels(self) -> NDArray[Any]:
        """Return the index of each row's class in `classes`, -1 for none; or the target, if it is a number."""
        assert self.given is not None
        return numbers_in(self.given) if self.classes is None else codes(self.given, list(self.classes))


@dataclass(slots=True)
class FetchedTable:
    """Columns of a dataset that a step will read. Everything but `numbers`, `labels` and `columns` is public.

    Attributes:
        data: the dataset, whose account is charged.
        relation: its rows.
        features: names of columns, in order.
        target: the column to predict; None for none.
        classes: the target's public values; None if it is a number.
        fill: replaces NULL in numbers.
    """

    dataset: ClassVar[Literal[True]] = True

    data: PrivateData
    relation: PrivateTable
    features: tuple[str, ...]
    target: str | None
    classes: NDArray[Any] | None
    fill: float | None
    _read: dict[str, Any] | None = field(default=None, repr=False)
    _numbers: Floats | None = field(default=None, repr=False)

    @property
    def names(self) -> list[str]:
        """Return the names of the features of `numbers`: `age` for a number, `ward=surgery` for a category."""
        return names_of(self.parts)

    @property
    def parts(self) -> list[Part]:
        """Return column, value and type of each feature of `numbers`."""
        return parts_of(self._column(name) for name in self.features)

    @property
    def width(self) -> int:
        """Return the number of features of `numbers`."""
        return len(self.parts)

    def bounds(self, given: Any, data_norm: float | None = None) -> Any:
        """Return the bounds of the features: those of the schema, unless they are to be found or a norm is given."""
        if wants_bounds(given) or data_norm is not None:
            return given
        box = self.box()
        return box.low, box.high

    def box(self, _given: Any = None) -> Box:
        """Return the public bounds of the features of `numbers`, from the schema."""
        ends = [(0.0, 1.0) if value is not None else ends_of(self._column(name)) for name, value, _ in self.parts]
        return Box(np.array([low for low, _ in ends]), np.array([high for _, high in ends]))

    def axes(self, bins: Any, usual: int) -> tuple[BinnedFeature, ...]:
        """Return the public cells of the features, one for each column."""
        bounds = {name: ends_of(self._column(name)) for name in self.features if is_number(self._column(name))}
        listed = {name: values_of(self._column(name)) for name in self.features if name not in bounds}
        return read_axes(self.features, bounds, bins, listed, usual, exact=True)

    @property
    def asked(self) -> str:
        """Describe the columns that are read, for the ledger."""
        columns = f"{', '.join(self.features)} of {self.relation.table}"
        most = self.relation.rows_each
        return (
            f"{columns} for {self.target}, {most} rows of a unit at most"
            if self.target
            else f"{columns}, {most} a unit"
        )

    # Private: called inside a step, after the charge.

    def portion(self, table: "pa.Table") -> "FetchedTable":
        """Return these columns with some of the rows, which were read as `relation.chosen` returns them."""
        wanted = self.features if self.target is None else (*self.features, self.target)
        return replace(self, _read={name: self._array(name, table.column(name)) for name in wanted}, _numbers=None)

    def numbers(self) -> Floats:
        """Return numbers unchanged and an indicator for each category; all are 0 for a missing category."""
        if self._numbers is None:
            columns, parts = self._columns(), []
            for name in self.features:
                if is_number(self._column(name)):
                    parts.append(columns[name][:, None])
                else:
                    places = np.arange(len(values_of(self._column(name))))
                    parts.append((columns[name][:, None] == places).astype(np.float64))
            self._numbers = np.column_stack(parts)
        return self._numbers

    def columns(self) -> Columns:
        """Return one array per column: numbers unchanged, categories as their values."""
        arrays = self._columns()
        values = []
        for name in self.features:
            if is_number(self._column(name)):
                values.append(arrays[name])
                continue
            listed = values_of(self._column(name))
            values.append(np.array([*listed, None], dtype=object)[arrays[name]])  # None for an unlisted value
        return Columns(tuple(values), self.features)

    def labels(self) -> NDArray[Any]:
        """Return the index of each row's class in `classes`, -1 for none; or the target, if it is a number."""
        assert self.target is not None
        return np.asarray(self._columns()[self.target])

    def _columns(self) -> dict[str, Any]:
        if self._read is None:
            wanted = self.features if self.target is None else (*self.features, self.target)
            table = self.relation.chosen(wanted).run(self.relation.engine)
            self._read = {name: self._array(name, table.column(name)) for name in wanted}
        return self._read

    def _array(self, name: str, column: Any) -> NDArray[Any]:
        import pyarrow as pa

        if name == self.target and self.classes is not None:
            return _codes(column, self._column(name), self.classes.tolist())
        if not is_number(self._column(name)):
            return _codes(column, self._column(name), values_of(self._column(name)))
        values = np.array(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
        if self.fill is not None:
            values[np.isnan(values)] = self.fill
        return values

    def _column(self, name: str) -> Column:
        return self.relation.columns[name]


def _codes(column: Any, facts: Column, listed: Sequence[Any]) -> Integers:
    """Return the index of each value in a public list; -1 for NULL and unlisted values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = {"integer": pa.int64(), "text": pa.string(), "boolean": pa.bool_()}
    kind = kinds[facts.type]
    indices = pc.index_in(column.cast(kind), value_set=pa.array(list(listed), type=kind))
    return np.asarray(pc.fill_null(indices, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


def fetch(
    data: PrivateData,
    target: str | None,
    features: Sequence[str] | None,
    table: str | None,
    *,
    classes: Sequence[Any] | None = None,
    kind: str = "classes",
    fill: float | None = None,
    find: bool = False,
) -> FetchedTable:
    """Check the named columns against the schema, through the dataset's views. No row is read.

    Args:
        target, features, table: the column to predict, the columns to predict from (all usable ones unless named), and
            their table.
        classes: the values of the target that count; None for all.
        kind: kind of target: "classes", "number" or "none".
        fill: replaces NULL in numbers.
        find: True if numbers may lack bounds, because they will be found.
    """
    names = read_names(data, table, target, features, predicts=kind != "none")
    relation = read_relation(data, table, [*names, *([target] if target else [])], unbounded=find)
    for name in names:
        check_filled(relation.columns[name], fill)
    listed = None
    if target is not None and kind == "classes":
        listed = classes_of(relation, target, classes)
    elif target is not None:
        if not is_number(relation.columns[target]):
            raise BadSchema(f"{target} is no number with public bounds, so it cannot be the target here.")
        check_filled(relation.columns[target], None)
        ends_of(relation.columns[target])
    return FetchedTable(data, relation, names, target, listed, check_fill(fill))


def fetch_numbers(
    data: PrivateData, features: Sequence[str] | None, table: str | None, fill: float | None, *, find: bool
) -> FetchedTable:
    """Check columns that are numbers, without a target."""
    if not features:
        raise BadInput("say which columns to look at: fit(ds, features=['age', 'stay_days']).")
    source = fetch(data, None, features, table, kind="none", fill=fill, find=find)
    if not all(is_number(source.relation.columns[name]) for name in source.features):
        raise BadInput("this is for numbers. Leave columns with categories out.")
    return source


InputRows = ArrayRows | FetchedTable


def read_input(
    X: Any,  # noqa: N803
    y: Any = None,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    table: str | None = None,
    classes: Any = None,
    kind: str = "none",
    fill: float | None = None,
    find: bool = False,
    numbers: bool = False,
) -> InputRows:
    """Read the public facts of the input of a fit. No cell and no row is read.

    Args:
        X, y: an array or frame, and the labels or numbers to predict; or a dataset.
        target, features, table: for a dataset, as in `fetch`.
        classes: the public labels; for a dataset, the values of the target that count.
        kind: kind of target: "classes", "number" or "none".
        fill: replaces a missing number.
        find: True if bounds will be found.
        numbers: True if the columns of a dataset must be named, and be numbers.
    """
    if is_dataset(X):
        if numbers:
            return fetch_numbers(X, features, table, fill, find=find)
        source = fetch(X, target, features, table, classes=classes, kind=kind, fill=fill, find=find)
        check_names(source.parts)
        return source
    rows = read_table(X, fill)
    if kind == "none":
        return ArrayRows(rows)
    if kind == "number":
        return ArrayRows(rows, read_goal(y, rows.length))
    listed = read_classes(classes)
    return ArrayRows(rows, read_labels(y, listed, rows.length), listed)


def keep_input(estimator: Any, source: InputRows) -> None:
    """Store the number of features and their names, as scikit-learn does."""
    keep_features(estimator, source.width, source.names, source.parts if source.dataset else None)
