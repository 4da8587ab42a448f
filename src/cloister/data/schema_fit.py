"""Count for the owner how rows of a source fit its schema: left out, clipped or read as missing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloister.data.dialect import Family, dialect_of, family
from cloister.data.engines.engine import Engine
from cloister.data.schema import Column, Schema, Table
from cloister.data.tables import Tables, open_tables
from cloister.data.views import view

__all__ = ["ColumnFit", "TableFit", "fit_lines", "fit_of", "fit_text"]

OWNERS_VIEW = "OWNER'S VIEW: counted in the rows without noise. Not to be published or shown to users."
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class ColumnFit:
    """Counts of how the values of one column are read.

    Attributes:
        column: its public facts.
        missing: values missing in the source, including empty text.
        unreadable: values that cannot be read as the column's type, and so read as missing.
        unknown: values outside the categories, which read as missing too.
        named: the most frequent of those, with their counts.
        below, above: values beyond the bounds, which read as the nearer one.
    """

    column: Column
    missing: int
    unreadable: int
    unknown: int
    named: tuple[tuple[Any, int], ...]
    below: int
    above: int

    @property
    def lost(self) -> int:
        """Return the number of rows left out because of this column alone."""
        return 0 if self.column.nullable else self.missing + self.unreadable + self.unknown

    @property
    def fits(self) -> bool:
        """Return True if every value is read unchanged and no row is left out."""
        return not (self.lost or self.unreadable or self.unknown or self.below or self.above)


@dataclass(frozen=True, slots=True)
class TableFit:
    """Counts of how the rows of one table are read.

    Attributes:
        name: name of the table.
        rows: number of rows in the source.
        read: number of those that the schema accepts.
        nobody: rows without a unit.
        columns: the counts of each column.
    """

    name: str
    rows: int
    read: int
    nobody: int
    columns: tuple[ColumnFit, ...]


def fit_of(source: object, schema: Schema, **limits: Any) -> tuple[TableFit, ...]:
    """Count how rows and values of every table of a schema are read.

    Args:
        source, schema, limits: as for `open_tables`.

    Privacy: exact counts, and values that the schema does not list. For the owner only.
    """
    tables = open_tables(source, schema, **limits)
    try:
        return tuple(_table(tables, table) for table in schema.tables.values())
    finally:
        tables.close()


def _table(tables: Tables, table: Table) -> TableFit:
    engine = tables.engine
    say = dialect_of(engine.dialect)
    declared = {
        name: column_family for name, kind in engine.columns(table.name).items() if (column_family := family(kind, say))
    }
    (rows,) = _numbers(engine, ["COUNT(*)"], f"FROM {engine.place(table.name)}")
    (read,) = _numbers(engine, ["COUNT(*)"], _from(tables.view(table.name).sql(engine.dialect), table.name, engine))
    named = rows
    if table.unit is not None:
        (named,) = _numbers(
            engine, ["COUNT(*)"], _from(tables.view(table.name, ()).sql(engine.dialect), table.name, engine)
        )
    columns = tuple(
        _column(engine, table.name, column, declared[column.name], rows) for column in table.columns.values()
    )
    return TableFit(table.name, rows, read, rows - named, columns)


def _column(engine: Engine, table: str, column: Column, declared: Family, rows: int) -> ColumnFit:
    say = dialect_of(engine.dialect)
    x = say.name(column.name)

    def seen(as_column: Column) -> str:
        alone = Table(table, {column.name: replace(as_column, nullable=True)})
        return _from(
            view(alone, {column.name: declared}, engine.place(table), engine.dialect).sql(engine.dialect), table, engine
        )

    trimmed = f"NULLIF({say.trimmed(x)}, '')" if declared == "text" else x
    (non_null,) = _numbers(engine, [f"COUNT({trimmed})"], f"FROM {engine.place(table)}")
    typed = seen(Column(column.name, column.type))
    counts = [f"COUNT({x})"]
    if column.bounds is not None:
        low, high = map(say.constant, column.limits or ())
        counts += [f"COUNT(CASE WHEN {x} < {low} THEN 1 END)", f"COUNT(CASE WHEN {x} > {high} THEN 1 END)"]
    readable, *beyond = _numbers(engine, counts, typed)
    unknown, named = 0, list[tuple[Any, int]]()
    if column.categories is not None:
        unknown = readable - _numbers(engine, [f"COUNT({x})"], seen(column))[0]
        listed = ", ".join(map(say.constant, column.categories))
        result = engine.run(
            f"SELECT {x} AS a, COUNT(*) AS b {typed} WHERE {x} NOT IN ({listed}) "
            f"GROUP BY {x} ORDER BY COUNT(*) DESC, {x} LIMIT {_MOST_NAMED}"
        )
        named = [(row["a"], int(row["b"])) for row in result.to_pylist()]
    below, above = beyond or (0, 0)
    return ColumnFit(column, rows - non_null, max(0, non_null - readable), unknown, tuple(named), below, above)


def _from(sql: str, table: str, engine: Engine) -> str:
    return f"FROM ({sql}) AS {dialect_of(engine.dialect).name(table)}"


def _numbers(engine: Engine, counts: Sequence[str], rows: str) -> list[int]:
    columns = ", ".join(f"{count} AS c{number}" for number, count in enumerate(counts))
    return [int(value) for value in engine.run(f"SELECT {columns} {rows}").to_pylist()[0].values()]


def fit_text(tables: Sequence[TableFit]) -> str:
    """Return the counts in words, a line for each column that does not fit."""
    return "\n".join([OWNERS_VIEW, *fit_lines(tables)])


def fit_lines(tables: Sequence[TableFit], *, values: bool = True) -> list[str]:
    """Return the counts in words, a line for each column that does not fit; without `values`, no value is quoted."""
    return [line for table in tables for line in _table_lines(table, values)]


def _table_lines(table: TableFit, values: bool) -> Iterator[str]:
    lost = table.rows - table.read
    share = f" ({100 * lost / table.rows:.2g} %)" if lost else ""
    yield f"{table.name}: {table.rows:,} rows, of which {lost:,}{share} are left out"
    if table.nobody:
        yield f"  {table.nobody:,} rows name no unit and are left out"
    fitting = 0
    for fit in table.columns:
        if fit.fits:
            fitting += 1
        else:
            yield f"  {fit.column.name}: {'; '.join(_column_parts(fit, values))}"
    yield f"  {fitting} of {len(table.columns)} columns are read as they stand"


def _column_parts(fit: ColumnFit, values: bool) -> Iterator[str]:
    if fit.lost:
        yield f"{fit.lost:,} rows left out, since it is not nullable"
    if fit.missing and fit.lost:
        yield f"{fit.missing:,} missing"
    if fit.unreadable:
        yield f"{fit.unreadable:,} do not read as {fit.column.type}"
    if fit.unknown:
        examples = ", ".join(f"{value!r:.40} ({count:,})" for value, count in fit.named)
        yield f"{fit.unknown:,} outside the categories{f': {examples}' if values else ''}"
    if fit.below or fit.above:
        low, high = fit.column.bounds or (None, None)
        yield f"{fit.below + fit.above:,} clipped, {fit.below:,} below {low} and {fit.above:,} above {high}"
