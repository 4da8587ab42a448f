"""The tables of a dataset as one reader sees them: through views, with the values, bounds and groups that were found.

A query is compiled against a catalog. No row is read here.
"""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from sqlglot import exp

from cloister.data.dialect import literal, verbatim
from cloister.data.engines.engine import DialectName, Engine
from cloister.data.private_table import PrivateTable
from cloister.data.schema import UNIT, Column, Schema, Table, internal
from cloister.data.tables import Tables
from cloister.privacy.errors import BadSchema
from cloister.privacy.loss import Unit
from cloister.query.expression import Decimals, Expression
from cloister.query.from_clause import SourceRows
from cloister.query.question import Question, ask, relation

__all__ = ["Catalog", "Found", "base_rows", "clipped_to"]

Found = list[tuple[Any, int]]  # values with their noisy numbers of units


class Catalog:
    """The tables that a reader can ask about.

    Args:
        tables: the tables, their public facts and their engine.
        version: the owner's name for this state of the data.
        secret: chooses rows where a unit has too many; the same every time, and unknown to readers.
        reader: the key of the analyst's account; "" without an analyst.
    """

    def __init__(self, tables: Tables, version: str, secret: str, reader: str = "") -> None:
        self.tables = tables
        self.version = version
        self.secret = secret
        self.reader = reader
        self.views: Mapping[str, str] = {}
        self._token = object()  # shared by all views of a dataset, for every analyst
        self._found: dict[tuple[str, str, str], Expression] = {}  # by table, view and column
        self._groups: dict[tuple[str, ...], Found] = {}
        self._whole: dict[tuple[str, tuple[str, ...]], SourceRows] = {}

    def seen_by(self, reader: str, views: Mapping[str, str]) -> "Catalog":
        """Return the catalog of another reader, or through other views: SELECTs of rows by table.

        Another reader starts with nothing found: values and bounds are known to the reader whose account paid for them.
        """
        twin = copy(self)
        twin.reader, twin.views = reader, {name.lower(): sql for name, sql in views.items()}
        twin._found = dict(self._found) if reader == self.reader else {}
        return twin

    @property
    def schema(self) -> Schema:
        """The public facts."""
        return self.tables.schema

    @property
    def unit(self) -> Unit:
        """The privacy unit."""
        return self.schema.unit

    @property
    def engine(self) -> Engine:
        """The engine that holds the rows."""
        return self.tables.engine

    @property
    def dialect(self) -> DialectName:
        """The engine's SQL dialect."""
        return self.tables.engine.dialect

    @property
    def origin(self) -> tuple[object, ...]:
        """The state a plan's statements depend on: the tables, their views, and this reader's found groups."""
        return (self._token, self.reader, *sorted(self.views.items()))

    def ask(self, sql: str) -> Question:
        """Compile a query against these tables."""
        return ask(sql, self.table, self.dialect)

    # Tables

    def table(self, name: str, used: frozenset[str] | None = None) -> SourceRows | None:
        """Return a table as its reader sees it; None if there is none.

        Args:
            name: its name, in any case.
            used: the columns needed, in lower case; None: all.
        """
        view = self.views.get(name.lower())
        rows = self._whole_table(name, used) if view is None else relation(view, self._whole_table)
        if rows is None:
            return None
        # Not inside a view: a policy may name a value that is no longer a category.
        rows = _held_to_lists(rows)
        # Applied after the view: its conditions must read the original values, not the clipped ones.
        learned = {
            column: term for (*source, column), term in self._found.items() if tuple(source) == self._seen_as(name)
        }
        return clipped_to(rows, learned) if learned else rows

    def _whole_table(self, name: str, used: frozenset[str] | None = None) -> SourceRows | None:
        table = next((table for table in self.schema.tables.values() if table.name.lower() == name.lower()), None)
        if table is None:
            return None
        needed = tuple(column for column in table.columns if used is None or column.lower() in used)
        if (table.name, needed) not in self._whole:
            # Kept as text: it never changes, and a syntax tree would be copied repeatedly.
            view = verbatim(self.tables.view(table.name, needed).sql(self.dialect))
            # The record identifies a statistic by the schema of its table, whichever columns the view shows. A column
            # that may not be NULL is part of that identity: rows in which it is NULL are left out.
            strict = sorted(name for name in needed if not table.columns[name].nullable)
            view.meta["table"] = " ".join(map(_word, (table.name, self.tables.identity(table.name), *strict)))
            kind = "text" if self.tables.unit_as_text else "integer"
            rows = _with_digits(base_rows(table, view, needed, unit_type=kind), self.tables.decimals(table.name))
            keys = (key.other_column.lower() for key in self.schema.foreign_keys if key.other_table == table.name)
            self._whole[table.name, needed] = replace(rows, keys=frozenset(keys) if table.public else frozenset())
        return self._whole[table.name, needed]

    def only_private(self, name: str | None = None) -> str:
        """Return the name of a table; default the only private one."""
        private = [table.name for table in self.schema.tables.values() if not table.public]
        if name is None and len(private) != 1:
            raise BadSchema(f"say which table: {', '.join(private)}.")
        return name or private[0]

    def columns(self, table: str) -> dict[str, Expression]:
        """Return the columns of a table, through its view if there is one, with their public facts."""
        rows = self.table(table)
        if rows is None:
            raise BadSchema(f"there is no table {table!r:.60}. Look at the schema.")
        return dict(rows.columns)

    def private_table(self, table: str | None, columns: Sequence[str]) -> PrivateTable:
        """Return the rows of a private table, through its view if there is one, for training models."""
        private = [facts.name for facts in self.schema.tables.values() if not facts.public]
        name = private[0] if table is None and len(private) == 1 else table
        if name is None or name not in private:
            raise BadSchema("say which private table to learn from: table='visits'.")
        source = self.table(name, frozenset(column.lower() for column in columns))
        assert source is not None
        unknown = [column for column in columns if column not in source.columns or source.columns[column].unit]
        if unknown:
            raise BadSchema(f"there is no column {name}.{unknown[0]:.60} to learn from. Look at the schema.")
        alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
        rows = exp.select().from_(exp.Subquery(this=source.sql.copy(), alias=alias))
        column_facts = {column: _seen(column, source.columns[column]) for column in columns}
        most = None
        if not source.by_row:
            rows = rows.select(exp.column(UNIT, quoted=True))
            most = min(self.unit.max_rows, source.most or self.unit.max_rows)
        clipped = frozenset(column for column in columns if source.columns[column].clipped)
        return PrivateTable(self.engine, rows, column_facts, most, source.copies, name, clipped, self.secret)

    # What was found

    def column(self, column: str) -> tuple[str, str, SourceRows, Expression]:
        """Return the table, name, relation and expression of `table.column`."""
        table, _, name = column.rpartition(".")
        table = table or self.only_private()
        rows = self.table(table)
        if rows is None or name not in rows.columns:
            raise BadSchema(f"there is no column {column}. Write table.column, as in the schema.")
        term = replace(rows.columns[name], sql=exp.column(name, internal("source"), quoted=True))
        inner = exp.select().from_(
            exp.Subquery(this=rows.sql, alias=exp.TableAlias(this=exp.to_identifier(internal("source"), quoted=True)))
        )
        if not rows.by_row:
            inner = inner.select(exp.alias_(exp.column(UNIT, internal("source"), quoted=True), UNIT, quoted=True))
        return table, name, replace(rows, sql=inner), term

    def keep_column(self, table: str, name: str, term: Expression) -> None:
        """Use the values or bounds that were found for a column from now on."""
        self._found[*self._seen_as(table), name] = term

    def groups(self, question: Question, group: int) -> Found | None:
        """Return the values that this reader found for a group of a query before, if any."""
        return self._groups.get(self._group_key(question, group))

    def keep_groups(self, question: Question, group: int, found: Found) -> None:
        """Use the values that were found for a group from now on. Readers do not share found groups."""
        self._groups[self._group_key(question, group)] = found

    def _group_key(self, question: Question, group: int) -> tuple[str, ...]:
        return (self.version, question.rows.sql.sql(), question.groups[group].term.sql.sql(), self.reader)

    def _seen_as(self, table: str) -> tuple[str, str]:
        """Return the table and its view, the key under which found values are kept."""
        return table.lower(), self.views.get(table.lower(), "")


# Tables of the schema as relations


def base_rows(table: Table, view: Any, needed: Collection[str] | None = None, unit_type: str = "text") -> SourceRows:
    """Return a table of the schema as a relation: its canonical view and the public facts of its columns."""
    columns = {name: _term(column) for name, column in table.columns.items() if needed is None or name in needed}
    if table.unit is not None and not table.public:
        person = Expression(exp.column(table.unit, quoted=True), unit_type, nullable=False, unit=True)
        columns = {table.unit: person, **columns}
    names = (*(() if table.unit is None else (table.unit,)), *table.columns)
    by_row = not table.public and table.unit is None
    return SourceRows(view, columns, not table.public, by_row, names=names, most=table.max_rows, size=table.rows)


def _term(column: Column) -> Expression:
    bounds: Any = column.bounds
    low, high = bounds or (None, None)
    if column.type == "integer" and column.categories:
        low, high = min(column.categories), max(column.categories)
    if column.type in ("date", "timestamp") and low is not None and high is not None:
        low, high = low.toordinal(), high.toordinal()
    numeric = column.type in ("integer", "real", "date", "timestamp")
    return Expression(
        exp.column(column.name, quoted=True),
        column.type,
        low if numeric else None,
        high if numeric else None,
        tuple(column.categories) if column.categories is not None else None,
        nullable=column.nullable,
        # Beyond 53 bits these limits are rounded and differ from those the view enforces.
        clipped=column.type in ("integer", "real") and bounds is not None and max(map(abs, bounds)) < 2**53,
        moments=bounds if column.type == "timestamp" else None,
    )


def _with_digits(rows: SourceRows, digits: Mapping[str, int]) -> SourceRows:
    """Return a table with columns declared as decimals, kept within bounds."""
    columns = dict(rows.columns)
    for name, term in rows.columns.items():
        if name in digits and term.type == "real" and term.low is not None and term.high is not None:
            columns[name] = replace(term, decimals=Decimals.within(digits[name], term.low, term.high))
    return replace(rows, columns=columns)


def _word(name: str) -> str:
    """Return a name as it is if it is one word, else in quotes, so that no two lists of names are one text."""
    return name if re.fullmatch(r"\w+", name) else json.dumps(name)


def _held_to_lists(rows: SourceRows) -> SourceRows:
    """Return a private table whose listed columns may be compared with their listed values only."""
    columns = {name: replace(term, listed=term.values is not None) for name, term in rows.columns.items()}
    return replace(rows, columns=columns) if rows.private else rows


def clipped_to(rows: SourceRows, learned: Mapping[str, Expression]) -> SourceRows:
    """Return a relation whose columns are clipped to the values or bounds found for them.

    A relation without these columns stays as it is, and so do the statistics on record for it.
    """
    if learned.keys().isdisjoint(rows.columns):
        return rows
    selected: list[exp.Expression] = []
    columns = dict(rows.columns)
    for name, term in rows.columns.items():
        column: Any = exp.column(name, quoted=True)
        if name in learned:
            learned_term = learned[name]
            columns[name] = replace(learned_term, sql=term.sql)
            if learned_term.values is not None:  # any other value is NULL, also where there are bounds
                listed = exp.In(this=column, expressions=[literal(value) for value in learned_term.values])
                masked = exp.Case(ifs=[exp.If(this=listed if learned_term.values else exp.false(), true=column.copy())])
                column = exp.alias_(masked, name, quoted=True)
            elif learned_term.low is not None and learned_term.high is not None:
                # An integer column stays integer: powers of two of at least one, or zero.
                ends = [
                    literal(int(end) if term.type == "integer" else float(end))
                    for end in (learned_term.low, learned_term.high)
                ]
                clip = exp.Case(
                    ifs=[
                        exp.If(this=exp.LT(this=column, expression=ends[0]), true=ends[0].copy()),
                        exp.If(this=exp.GT(this=column.copy(), expression=ends[1]), true=ends[1].copy()),
                    ],
                    default=column.copy(),
                )
                column = exp.alias_(clip, name, quoted=True)
        selected.append(column)
    if not rows.by_row:
        selected.append(exp.column(UNIT, quoted=True))
    view = exp.Subquery(this=rows.sql, alias=exp.TableAlias(this=exp.to_identifier(internal("view"), quoted=True)))
    return replace(rows, sql=exp.select(*selected).from_(view), columns=columns)


def _seen(name: str, term: Expression) -> Column:
    """Return the public facts of a column after its view and after values or bounds were found."""
    if term.type in ("text", "integer") and term.values is not None:
        return Column(name, term.type, categories=tuple(term.values), nullable=term.nullable)  # type: ignore[arg-type]
    bounds: Any = None
    if term.type in ("integer", "real") and term.low is not None and term.high is not None and term.low < term.high:
        is_integer = term.type == "integer"
        bounds = (math.floor(term.low), math.ceil(term.high)) if is_integer else (float(term.low), float(term.high))
    return Column(name, term.type, bounds, nullable=term.nullable)  # type: ignore[arg-type]
