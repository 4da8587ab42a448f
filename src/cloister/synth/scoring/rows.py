"""Rows for scoring: read through the schema's view, then as public codes and as positions between public bounds.

Real, held-out and synthetic rows are read the same way, so only the rows differ. A value outside its categories is
missing, a number beyond its bounds is the nearer bound, as everywhere in Cloister.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.data.schema import Column, Schema, Table
from cloister.data.tables import open_engine, open_tables
from cloister.privacy.errors import BadInput, BadSchema
from cloister.privacy.loss import ROW
from cloister.synth.domain.axis import Axis, read_axis

__all__ = [
    "Floats",
    "Integers",
    "ScoreRows",
    "EncodedRows",
    "columns_of",
    "only_table",
    "read_rows",
    "sides_of",
    "source_of",
    "usable",
    "view_of",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """One column.

    Attributes:
        column: its public facts.
        axis: its public cells, as for generators; the last stands for missing.
    """

    column: Column
    axis: Axis

    @property
    def name(self) -> str:
        """Return the name of the column."""
        return self.column.name

    @property
    def labels(self) -> tuple[Any, ...]:
        """Return the meaning of each code: a value, or the (low, high) of a bin. The code after the last is missing."""
        return self.axis.values if self.axis.values is not None else tuple(pairwise(self.axis.ends or ()))

    @property
    def ordered(self) -> bool:
        """Return True if its values have positions between bounds."""
        return self.column.categories is None and self.column.type != "boolean"

    @property
    def size(self) -> int:
        """Return the number of codes, including missing."""
        return self.axis.size

    def numbers(self, points: Floats) -> Floats:
        """Convert positions between the bounds to numbers, days or microseconds; whole if the column's values are."""
        low, high = (self.axis.number(end) for end in self.column.bounds or (0, 1))
        values = low + points * (high - low)
        return values if self.column.type == "real" else np.rint(values)

    def value(self, point: float) -> Any:
        """Convert a position between the bounds to a value of an ordered column."""
        number = float(self.numbers(np.array([point]))[0])
        return float(f"{number:.6g}") if self.column.type == "real" else self.axis.value(number)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreRows:
    """Rows as numbers.

    Attributes:
        sides: the columns.
        codes: rows × columns: the value or bin; the side's last code is missing.
        points: rows × columns: the position between the bounds, 0 to 1, for ordered columns, the code for others; NaN
            if missing. Two rows are equal exactly if their points are.
        left_out: number of rows not read, because a required value is missing.
    """

    sides: tuple[EncodedRows, ...]
    codes: Integers
    points: Floats
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def names(self) -> list[str]:
        """Return the names of the columns."""
        return [side.name for side in self.sides]

    def take(self, index: NDArray[Any]) -> "ScoreRows":
        """Return some of the rows."""
        return ScoreRows(self.sides, np.asfortranarray(self.codes[index]), np.asfortranarray(self.points[index]))

    def at_most(self, most: int, random: np.random.Generator) -> "ScoreRows":
        """Return the given number of rows at random, or all if there are fewer."""
        return self if len(self) <= most else self.take(random.choice(len(self), most, replace=False))


def usable(column: Column) -> bool:
    """Return True if a column has public values or bounds."""
    return column.type == "boolean" or column.categories is not None or column.bounds is not None


def only_table(schema: Schema, table: str | None) -> Table:
    """Return the named table, or the only private one."""
    private = [facts.name for facts in schema.tables.values() if not facts.public]
    name = private[0] if table is None and len(private) == 1 else table
    if name is None or name not in schema.tables:
        raise BadSchema("say which table of the schema the rows are of: table='visits'.")
    return schema.tables[name]


def sides_of(table: Table, columns: Sequence[str] | None, bins: Any) -> tuple[EncodedRows, ...]:
    """Return the columns that can be scored: those with public values or bounds, or the named ones of them.

    Args:
        bins: as for a generator: number of equal bins for numbers and dates; or {column: bins or their ends}.
    """
    chosen = [column for column in table.columns.values() if usable(column)] if columns is None else []
    for name in columns or ():
        if name not in table.columns or not usable(table.columns[name]):
            raise BadSchema(f"there is no column {name!r:.60} with public values or bounds in the schema.")
        chosen.append(table.columns[name])
    if not chosen:
        raise BadSchema("no column has public values or bounds. Give them in the schema.")
    column_bins = dict(bins) if isinstance(bins, Mapping) else {column.name: bins for column in chosen}
    return tuple(
        EncodedRows(column, read_axis(replace(column, nullable=True), column_bins.get(column.name, 32)))
        for column in chosen
    )


def source_of(source: Any) -> Any:
    """Return the rows of a synthetic table or of a dict of columns as Arrow; other inputs unchanged."""
    if isinstance(source, Mapping):
        try:
            return pa.table(dict(source))
        except (OverflowError, TypeError, ValueError):
            raise BadInput("a table as a dict is {name: list of values}, all of one length.") from None
    inner = source.to_arrow() if hasattr(source, "to_arrow") else getattr(source, "table", None)
    return inner if isinstance(inner, pa.Table) else source


def columns_of(source: Any, table: Table) -> tuple[str, ...]:
    """Return the columns of the schema that a table, frame or file has. No row is read."""
    data = source_of(source)
    names = getattr(data, "column_names", getattr(data, "columns", None))
    if names is None:
        engine = open_engine({table.name: data})
        try:
            names = engine.columns(table.name)
        finally:
            engine.close()
    return tuple(name for name in table.columns if name in names)


def view_of(source: Any, table: Table, columns: Mapping[str, Column]) -> pa.Table:
    """Return some columns of a table, frame or file, typed as in the schema; no row is left out.

    Privacy: returns rows without noise; for the owner, or for released rows.
    """
    facts = {name: replace(column, nullable=True, confirmed=True) for name, column in columns.items()}
    schema = Schema({table.name: Table(table.name, facts)}, ROW)
    tables = open_tables({table.name: source_of(source)}, schema)
    try:
        return tables.engine.run(tables.view(table.name).sql(dialect=tables.engine.dialect))
    finally:
        tables.close()


def read_rows(source: Any, table: Table, sides: Sequence[EncodedRows]) -> ScoreRows:
    """Read a table, frame or file through the schema.

    Privacy: reads rows without noise; for the owner, or for released rows.
    """
    view = view_of(source, table, {side.name: side.column for side in sides})
    codes = np.empty((view.num_rows, len(sides)), dtype=np.int64, order="F")
    points = np.empty((view.num_rows, len(sides)), order="F")
    for j, side in enumerate(sides):
        codes[:, j], points[:, j] = _coded(view.column(side.name), side)
    strict = [j for j, side in enumerate(sides) if not side.column.nullable]
    complete = ~np.isnan(points[:, strict]).any(axis=1)
    rows = ScoreRows(tuple(sides), codes, points)
    return rows if complete.all() else replace(rows.take(np.flatnonzero(complete)), left_out=int((~complete).sum()))


def _coded(column: Any, side: EncodedRows) -> tuple[Integers, Floats]:
    codes = side.axis.place(column)
    gone = codes == len(side.labels)
    if not side.ordered:
        return codes, np.where(gone, np.nan, codes)
    numbers = side.axis.numbers(column)
    low, high = (side.axis.number(end) for end in side.column.bounds or (0, 1))
    return codes, np.where(gone, np.nan, (numbers - low) / (high - low))
