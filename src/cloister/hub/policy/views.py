"""Views of a table for a role: some columns, some rows, some coarser values. As SQL of our own dialect.

    columns: [ward, age]                       only these; all unless given
    rows: "ward = 'cardiology'"                only rows where this is true; the columns it names need not be visible
    transforms: {age: "FLOOR(age / 10) * 10"}  what is read under a column's name

become `SELECT "ward", FLOOR("age" / 10) * 10 AS "age" FROM "visits" WHERE "ward" = 'cardiology'`, which replaces the
table in a query. Nothing is stored for a user: the query is rewritten. A row rule may name the user, as
`branch = :organisation`; also `:person` (the e-mail address) and `:country`.

The column that names the unit is a column like others: without it a user can neither count people nor look for one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp

from cloister.data.schema import Column, Schema, Table
from cloister.privacy.errors import QueryRefused
from cloister.query.catalog import base_rows
from cloister.query.expression import Expression
from cloister.query.from_clause import SourceRows, compile_relation
from cloister.query.sql_text import parse, parse_condition, refuse_unread

__all__ = [
    "FACTS",
    "TableView",
    "short_list",
    "relation",
    "select",
    "shows_all",
    "shows_columns",
    "tables_in",
    "visible",
    "visible_columns",
    "visible_schema",
]

FACTS = ("person", "organisation", "country")
_LONGEST = 4_000
MOST_WORK = 300_000  # categories that a view's rules evaluate; about a second


def short_list(names: Iterable[str]) -> str:
    """Return names for a message: the first twenty, and how many more there are."""
    listed = list(names)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20:,} more" if len(listed) > 20 else "")


@dataclass(frozen=True, slots=True)
class TableView:
    """View of one table."""

    columns: tuple[str, ...] | None = None
    rows: str | None = None
    transforms: Mapping[str, str] = field(default_factory=dict)

    def facts(self) -> tuple[str, ...]:
        """Return the facts on the user that it needs."""
        texts = [*([self.rows] if self.rows is not None else []), *self.transforms.values()]
        named = {name for text in texts for name in _named(text)}
        return tuple(name for name in FACTS if name in named)

    def bound(self, facts: Mapping[str, str]) -> "TableView":
        """Return the view with the user's facts bound. They become constants of the tree, not text.

        Raises:
            QueryRefused: a fact is not known.
        """
        if not self.facts():
            return self
        rows = None if self.rows is None else _bound(self.rows, facts)
        return replace(
            self, rows=rows, transforms={name: _bound(text, facts) for name, text in self.transforms.items()}
        )


def expression(text: str) -> Any:
    """Parse a single row-wise expression; refuse anything else."""
    if len(text) > _LONGEST or text.encode("utf-8", "replace").decode() != text:
        raise QueryRefused(f"a rule is text of at most {_LONGEST:,} characters.")
    try:
        condition = parse_condition(text)
    except QueryRefused:
        raise
    except Exception:  # a text on which the parser fails is refused too
        raise QueryRefused("this is not an expression that we understand. Write for example ward = 'surgery'") from None
    for node in condition.find_all(exp.Placeholder):
        if node.name not in FACTS:
            raise QueryRefused(f"a rule may name {', '.join(f':{name}' for name in FACTS)}, not :{node.name:.40}")
    return condition


def select(view: TableView, table: Table) -> str:
    """Return the view of a table of the schema, as SQL text. The user's facts must be bound.

    Raises:
        QueryRefused: the table lacks a column, or a rule is not in the language.
    """
    columns = {name.lower(): name for name in (*([table.unit] if table.unit else []), *table.columns)}
    changed = {name.lower(): text for name, text in view.transforms.items()}
    listed = tuple(columns.values()) if view.columns is None else view.columns
    for name in (*listed, *view.transforms):
        if name.lower() not in columns:
            available = short_list(columns.values())
            raise QueryRefused(f"there is no column {name:.60} in {table.name}. There are: {available}")
    selected = [_shown(columns[name.lower()], changed.get(name.lower())) for name in listed]
    query = exp.select(*selected).from_(exp.to_table(exp.to_identifier(table.name, quoted=True).sql("duckdb")))
    if view.rows is not None:
        query = query.where(expression(view.rows))
    return str(query.sql("duckdb", comments=False))


def relation(view: TableView, table: Table, rows: SourceRows) -> SourceRows:
    """Return a table's rows through a view: queries on the table are answered from it.

    Privacy: a view keeps or drops each row by itself and changes its values by themselves, so every row stays its
    unit's, and a unit has no more rows than before.
    """
    text = select(view, table)
    try:
        (parsed,) = parse(text, composed=True)[1]
        refuse_unread(parsed)
    except sqlglot.errors.SqlglotError:
        raise QueryRefused("this rule is not SQL that we understand") from None
    except RecursionError:
        raise QueryRefused("this rule is nested too deeply. Use IN lists and fewer steps") from None
    return compile_relation(parsed, lambda name: rows if name.lower() == table.name.lower() else None)


def visible(schema: Schema, views: Mapping[str, TableView] | None) -> dict[str, TableView]:
    """Return every table that a user sees, in the schema's spelling, with its view."""
    if views is None:
        return {name: TableView() for name in schema.tables}
    by_name = {name.lower(): view for name, view in views.items()}
    return {name: by_name[name.lower()] for name in schema.tables if name.lower() in by_name}


def visible_columns(view: TableView, table: Table) -> tuple[str, ...]:
    """Return the columns that a query may name, in the view's order; the unit's only if the view shows it."""
    return tuple(relation(view, table, _public_facts(table)).columns)


def visible_schema(schema: Schema, views: Mapping[str, TableView] | None) -> Schema:
    """Return the schema as a user sees it: their tables, their columns, and public facts of transformed columns.

    Every private table keeps a unit. Where the view hides the column that names it, the unit's own public word replaces
    it; rules for synthetic rows that name hidden or transformed columns are left out. Identifiers are not named.
    """
    schema = schema.without_identifiers()
    if views is None:
        return schema
    tables = {
        name: _visible_table(schema.tables[name], view, schema.unit.name)
        for name, view in visible(schema, views).items()
    }
    keys = tuple(
        key
        for key in schema.foreign_keys
        if all(
            table in tables
            and (column in tables[table].columns or column == tables[table].unit == schema.tables[table].unit)
            for table, column in ((key.table, key.column), (key.other_table, key.other_column))
        )
    )
    return replace(schema, tables=tables, foreign_keys=keys)


def problems(views: Mapping[str, TableView], schema: Schema) -> Iterator[tuple[str, str]]:
    """Return the problems of a role's views under this schema: the table's name, and a message with the way out."""
    names = {name.lower(): table for name, table in schema.tables.items()}
    for name, view in views.items():
        table = names.get(name.lower())
        if table is None:
            yield name, f"there is no table {name:.60} in the schema. There are: {short_list(schema.tables)}"
            continue
        if work_of(view, table) > MOST_WORK:
            yield name, "its rules name columns with many categories too often. Name each of them a few times only"
            continue
        try:
            relation(view.bound(dict.fromkeys(FACTS, "x")), table, _public_facts(table))
        except QueryRefused as error:
            yield name, str(error).partition(": ")[2].rstrip(".")


def work_of(view: TableView, table: Table) -> int:
    """Return how many categories a view's rules evaluate: a rule's public facts are computed value by value."""
    sizes = {name.lower(): len(column.categories or ()) for name, column in table.columns.items()}
    texts = [*([view.rows] if view.rows is not None else []), *view.transforms.values()]
    return sum(sizes.get(node.name.lower(), 0) for text in texts for node in expression(text).find_all(exp.Column))


def tables_in(sql: str, schema: Schema) -> frozenset[str]:
    """Return every table of the schema that a query names, even if a WITH hides it: an over-estimate.

    Raises:
        QueryRefused: it cannot be read.
    """
    try:
        named = {
            node.name.lower() for statement in parse(sql)[1] if statement for node in statement.find_all(exp.Table)
        }
    except QueryRefused:
        raise
    except Exception:
        raise QueryRefused("this is not SQL that we understand. Start from SELECT COUNT(*) FROM a_table.") from None
    return frozenset(name for name in schema.tables if name.lower() in named)


@lru_cache(maxsize=1024)  # every decision needs it, and rules rarely change
def _named(text: str) -> frozenset[str]:
    return frozenset(node.name for node in expression(text).find_all(exp.Placeholder))


def _bound(text: str, facts: Mapping[str, str]) -> str:
    if not _named(text):
        return text
    tree = expression(text)

    def fill(node: Any) -> Any:
        if not isinstance(node, exp.Placeholder):
            return node
        if not facts.get(node.name):
            raise QueryRefused(f"a rule needs your {node.name}, which is not known. Ask the operator to add it.")
        return exp.Literal.string(facts[node.name])

    return str(tree.transform(fill).sql("duckdb", comments=False))


def _shown(name: str, transform: str | None) -> Any:
    if transform is None:
        return exp.column(name, quoted=True)
    return exp.alias_(expression(transform), name, quoted=True)


def _public_facts(table: Table) -> SourceRows:
    """Return a table's relation for checks: public facts only, without an engine."""
    return base_rows(table, exp.select("*").from_("nothing"))


def shows_all(view: TableView, table: Table) -> bool:
    """Return True if a view shows a table unchanged: every row and column, the unit's too, without transforms."""
    if view.rows is not None or view.transforms:
        return False
    columns = {name.lower() for name in (*([table.unit] if table.unit else []), *table.columns)}
    return view.columns is None or {name.lower() for name in view.columns} >= columns


def shows_columns(view: TableView, table: Table, names: Collection[str]) -> bool:
    """Return True if a view shows these columns of a table in every row and without a transform.

    Privacy: what was learned from them under another view reveals nothing that this view hides.
    """
    wanted, known = {name.lower() for name in names}, {name.lower() for name in table.columns}
    if view.rows is not None or wanted & {name.lower() for name in view.transforms}:
        return False
    return wanted <= (known if view.columns is None else known & {name.lower() for name in view.columns})


def _visible_table(table: Table, view: TableView, unit: str) -> Table:
    """Return a table as it is seen. It keeps a unit: a private table without one would be taken to protect rows."""
    rows = relation(view, table, _public_facts(table))
    changed = {name.lower() for name in view.transforms}
    columns = {
        name: table.columns[name] if name.lower() not in changed else _described(name, term)
        for name, term in rows.columns.items()
        if name != table.unit
    }
    plain = {name for name in columns if name.lower() not in changed}
    never = tuple(rule for rule in table.never if plain.issuperset(rule))
    determines = tuple(rule for rule in table.determines if plain.issuperset((*rule[0], rule[1])))
    named = table.unit if table.unit is None or table.unit in rows.columns else _free(unit, columns)
    return replace(table, columns=columns, unit=named, never=never, determines=determines)


def _free(name: str, columns: Iterable[str]) -> str:
    """Return a name that no visible column has. It must not depend on hidden ones."""
    taken = {column.lower() for column in columns}
    while name.lower() in taken:
        name += "_id"
    return name


def _described(name: str, term: Expression) -> Column:
    """Describe a transformed column as a schema would."""
    if term.type == "text":
        return Column(name, "text", categories=_texts(term.values), nullable=term.nullable)
    if term.low is None or term.high is None or term.low >= term.high or term.type not in ("integer", "real"):
        return Column(name, term.type, nullable=term.nullable)  # type: ignore[arg-type]
    if term.type == "integer":
        return Column(name, "integer", (int(term.low), int(term.high)), nullable=term.nullable)
    return Column(name, "real", (float(term.low), float(term.high)), nullable=term.nullable)


def _texts(values: Iterable[Any] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(str(value) for value in values if value != "") or None
