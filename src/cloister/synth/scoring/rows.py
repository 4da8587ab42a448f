"""Rows as a score reads them: through the schema's view, then as public codes and as places between public bounds.

Real, held back and synthetic rows are read the same way, so what differs between them is the rows. A value outside its
categories is missing, a number beyond its bounds is the nearer bound, as everywhere in Cloister.
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
from cloister.privacy.unit import ROW
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
        column: what is public about it.
        axis: its public cells, as generators have them; the last stands for missing.
    """

    column: Column
    axis: Axis

    @property
    def name(self) -> str:
        """Of the column."""
        return self.column.name

    @property
    def labels(self) -> tuple[Any, ...]:
        """What each code stands for: a value, or the (low, high) of a bin. The code after the last is missing."""
        return self.axis.values if self.axis.values is not None else tuple(pairwise(self.axis.ends or ()))

    @property
    def ordered(self) -> bool:
        """Whether its values have places between bounds."""
        return self.column.categories is None and self.column.type != "boolean"

    @property
    def size(self) -> int:
        """How many codes there are, missing included."""
        return self.axis.size

    def numbers(self, points: Floats) -> Floats:
        """Places between the bounds as numbers, days or microseconds; whole where the column's values are."""
        low, high = (self.axis.number(end) for end in self.column.bounds or (0, 1))
        found = low + points * (high - low)
        return found if self.column.type == "real" else np.rint(found)

    def value(self, point: float) -> Any:
        """A place between the bounds as a value of an ordered column."""
        number = float(self.numbers(np.array([point]))[0])
        return float(f"{number:.6g}") if self.column.type == "real" else self.axis.value(number)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreRows:
    """Rows in numbers.

    Attributes:
        sides: the columns.
        codes: rows × columns: which value or bin; the side's last code is missing.
        points: rows × columns: the place between the bounds, 0 to 1, of what is ordered, the code of what is not; NaN
            where it is missing. Two rows are equal exactly where their points are.
        left_out: how many rows were not read, because a value that may not be missing is.
    """

    sides: tuple[EncodedRows, ...]
    codes: Integers
    points: Floats
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return [side.name for side in self.sides]

    def take(self, index: NDArray[Any]) -> "ScoreRows":
        """Some of the rows."""
        return ScoreRows(self.sides, np.asfortranarray(self.codes[index]), np.asfortranarray(self.points[index]))

    def at_most(self, most: int, random: np.random.Generator) -> "ScoreRows":
        """So many rows at random, or all if there are fewer."""
        return self if len(self) <= most else self.take(random.choice(len(self), most, replace=False))


def usable(column: Column) -> bool:
    """Whether a column has public values or bounds."""
    return column.type == "boolean" or column.categories is not None or column.bounds is not None


def only_table(schema: Schema, table: str | None) -> Table:
    """The table that is meant: the only private one unless named."""
    private = [one.name for one in schema.tables.values() if not one.public]
    name = private[0] if table is None and len(private) == 1 else table
    if name is None or name not in schema.tables:
        raise BadSchema("say which table of the schema the rows are of: table='visits'.")
    return schema.tables[name]


def sides_of(table: Table, columns: Sequence[str] | None, bins: Any) -> tuple[EncodedRows, ...]:
    """The columns that can be scored: those with public values or bounds, or those of them that are named.

    Args:
        bins: as for a generator: into how many equal bins numbers and dates are cut; or {column: bins or their ends}.
    """
    chosen = [one for one in table.columns.values() if usable(one)] if columns is None else []
    for name in columns or ():
        if name not in table.columns or not usable(table.columns[name]):
            raise BadSchema(f"there is no column {name!r:.60} with public values or bounds in the schema.")
        chosen.append(table.columns[name])
    if not chosen:
        raise BadSchema("no column has public values or bounds. Give them in the schema.")
    own = dict(bins) if isinstance(bins, Mapping) else {one.name: bins for one in chosen}
    return tuple(EncodedRows(one, read_axis(replace(one, nullable=True), own.get(one.name, 32))) for one in chosen)


def source_of(source: Any) -> Any:
    """The rows in a synthetic table or in a dict of columns as Arrow; what else was given as it is."""
    if isinstance(source, Mapping):
        try:
            return pa.table(dict(source))
        except (OverflowError, TypeError, ValueError):
            raise BadInput("a table as a dict is {name: list of values}, all of one length.") from None
    inner = source.to_arrow() if hasattr(source, "to_arrow") else getattr(source, "table", None)
    return inner if isinstance(inner, pa.Table) else source


def columns_of(source: Any, table: Table) -> tuple[str, ...]:
    """Which columns of the schema a table, frame or file has. No row is read."""
    given = source_of(source)
    there = getattr(given, "column_names", getattr(given, "columns", None))
    if there is None:
        engine = open_engine({table.name: given})
        try:
            there = engine.columns(table.name)
        finally:
            engine.close()
    return tuple(name for name in table.columns if name in there)


def view_of(source: Any, table: Table, columns: Mapping[str, Column]) -> pa.Table:
    """Some columns of a table, frame or file, as the schema says they are; no row is left out.

    Privacy: gives rows as they are; for the owner's eyes, or for rows that were released.
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

    Privacy: reads rows as they are; for the owner's eyes, or for rows that were released.
    """
    found = view_of(source, table, {side.name: side.column for side in sides})
    codes = np.empty((found.num_rows, len(sides)), dtype=np.int64, order="F")
    points = np.empty((found.num_rows, len(sides)), order="F")
    for j, side in enumerate(sides):
        codes[:, j], points[:, j] = _coded(found.column(side.name), side)
    strict = [j for j, side in enumerate(sides) if not side.column.nullable]
    whole = ~np.isnan(points[:, strict]).any(axis=1)
    rows = ScoreRows(tuple(sides), codes, points)
    return rows if whole.all() else replace(rows.take(np.flatnonzero(whole)), left_out=int((~whole).sum()))


def _coded(column: Any, side: EncodedRows) -> tuple[Integers, Floats]:
    codes = side.axis.place(column)
    gone = codes == len(side.labels)
    if not side.ordered:
        return codes, np.where(gone, np.nan, codes)
    numbers = side.axis.numbers(column)
    low, high = (side.axis.number(end) for end in side.column.bounds or (0, 1))
    return codes, np.where(gone, np.nan, (numbers - low) / (high - low))
