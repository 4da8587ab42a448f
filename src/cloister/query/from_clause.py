"""FROM, JOIN, WHERE, subqueries: tables become one relation in which every row belongs to one unit.

Each private relation carries a hidden column `UNIT`. Joins of private relations compare it, so a row never mixes two
people. The number of rows a person ends up with does not matter, because the contribution bound is applied last
(data/statistics.py). Where the unit is the row itself there is nothing to compare: the number of possible copies of a
row is bounded instead.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from cloister.data.dialect import as_double, literal
from cloister.data.schema import UNIT, internal
from cloister.data.statistics import grid_value
from cloister.privacy.errors import QueryRefused
from cloister.query.expression import Expression, Scope, compared, compile_term, equated, one_of, told_apart
from cloister.query.expression import shown as node_text

__all__ = ["SourceRows", "compile_relation", "from_clause", "refuse_extras", "with_clause"]

BaseTable = Callable[[str], "SourceRows | None"]
# A relation named twice is copied twice: a short WITH or UNION ALL could double at every step.
_MOST_NODES = 8000


@dataclass(frozen=True, slots=True)
class SourceRows:
    """A relation.

    Attributes:
        sql: a query that gives the columns, and `UNIT` if the relation is private and has a unit column.
        columns: the public facts of each column; `Term.sql` is the bare column.
        private: whether it contains a private table.
        by_row: whether its unit is the row itself.
        copies: the most rows that one row of a private table can become (only counted where the unit is the row).
        most: the most rows of a unit, if the query itself bounds them.
            Of a public relation: the most of its rows that match one joined row (None: not known).
        names: all columns of a table, also those that the query does not use, for messages.
        keys: columns of a public table that a foreign key points to: one row for each value.
        ambiguous: names that several joined tables have, which a star cannot show.
        notes: the rows left out, in words.
        size: a public number of rows before any are left out, for plans and for the rounding in intervals of sums; of
            joined private tables the smallest, with an outer join the largest.
        filtered: whether a WHERE or the ON of a join leaves rows out.
    """

    sql: exp.Query
    columns: Mapping[str, Expression]
    private: bool
    by_row: bool
    copies: int = 1
    names: tuple[str, ...] = ()
    most: int | None = None
    keys: frozenset[str] = frozenset()
    ambiguous: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    size: int | None = None
    filtered: bool = False


def compile_relation(query: Any, tables: BaseTable) -> SourceRows:
    """Compile a subquery or CTE without aggregates over people: SELECT, UNION ALL, or one row per unit."""
    if isinstance(query, exp.Subquery):
        return compile_relation(query.this, tables)
    if isinstance(query, exp.Union):
        return _union(query, tables)
    if not isinstance(query, exp.Select):
        raise QueryRefused("FROM takes tables and SELECT queries.")
    refuse_extras(query, ("group",))
    tables = with_clause(query, tables)
    source, scope = from_clause(query, tables)
    if query.args.get("group") is not None:
        return _per_unit(query, source, scope)
    projections = _projections(query, source, scope)
    select = exp.select(*(exp.alias_(term.sql, name, quoted=True) for name, term in projections.items()))
    return _finish(select, source, projections)


def from_clause(query: exp.Select, tables: BaseTable) -> tuple[SourceRows, Scope]:
    """Compile FROM, JOIN and WHERE of a SELECT to a relation whose `sql` selects nothing yet, and its name lookup."""
    start = query.args.get("from_")
    if start is None:
        raise QueryRefused("a question needs a FROM.")
    name, first = _source(start.this, tables)
    parts = {name: first}
    nodes = _counted(first.sql)
    sql = exp.select().from_(_aliased(first, name))
    private, unit_at, copies = first.private, name if first.private else None, first.copies
    for join in query.args.get("joins") or []:
        name, right = _source(join.this, tables)
        if name.lower() in (alias.lower() for alias in parts):
            raise QueryRefused(f"two tables are called {name}. Give one another name with AS.")
        right, condition, side = _join(join, parts, name, right, unit_at)
        nodes = _counted(right.sql, nodes)
        parts[name] = right
        copies *= right.copies
        sql = (
            sql.join(_aliased(right, name), on=condition, join_type=side)
            if condition is not None
            else sql.join(_aliased(right, name), join_type="cross")
        )
        if right.private and unit_at is None:
            unit_at = name
        private = private or right.private
    scope = _scope(parts)
    where = query.args.get("where")
    if where is not None:
        term = compile_term(where.this, scope)
        if term.type != "boolean":
            raise QueryRefused("WHERE needs a condition, such as age >= 18.")
        sql = sql.where(term.sql)
    by_row = any(part.by_row for part in parts.values())
    if private and not by_row and unit_at is not None:
        sql = sql.select(exp.alias_(exp.column(UNIT, unit_at, quoted=True), UNIT, quoted=True))
    columns, ambiguous = _together(parts, query.args.get("joins") or [])
    most = first.most if len(parts) == 1 else None
    notes = tuple(dict.fromkeys(note for part in parts.values() for note in part.notes))
    sizes = [part.size for part in parts.values() if part.private]
    # An outer join keeps the rows of one side whatever the other has.
    outer = any(join.side for join in query.args.get("joins") or [])
    left_out = [
        join for join in query.args.get("joins") or [] if {join.side.upper(), join.kind.upper()} <= {"", "INNER"}
    ]
    return SourceRows(
        sql,
        columns,
        private,
        by_row,
        copies,
        most=most,
        ambiguous=ambiguous,
        notes=notes,
        size=None
        if None in sizes
        else (max if outer else min)((size for size in sizes if size is not None), default=None),
        filtered=where is not None or bool(left_out) or any(part.filtered for part in parts.values()),
    ), scope


def _together(
    parts: Mapping[str, SourceRows], joins: Sequence[exp.Join]
) -> tuple[dict[str, Expression], tuple[str, ...]]:
    """Return the columns of joined tables, and the names several of them have. A USING column is the left one, once."""
    columns: dict[str, Expression] = {}
    taken: dict[str, str] = {}
    ambiguous = []
    using = [set(), *({key.name.lower() for key in join.args.get("using") or []} for join in joins)]
    for shared, (part, rows) in zip(using, parts.items(), strict=True):
        for column, term in _qualified(part, rows).items():
            if column.lower() in shared:
                continue
            if column.lower() in taken:  # engines fold case
                ambiguous.append(column)
            taken[column.lower()] = part
            columns[column] = term
    return columns, tuple(dict.fromkeys(ambiguous))


def refuse_extras(query: exp.Select, allowed: tuple[str, ...]) -> None:
    """Refuse every clause that is not in the language."""
    supported = {"expressions", "from_", "joins", "where", "with_", "kind", *allowed}
    for name, value in query.args.items():
        if value and name not in supported:
            hint = _CLAUSES.get(name, "Leave it out.")
            raise QueryRefused(f"{name.strip('_').upper()} is not offered here. {hint}")


_CLAUSES = {
    "distinct": "For the number of different people write COUNT(DISTINCT …).",
    "limit": "LIMIT works on the answer, in the outermost SELECT.",
    "order": "ORDER BY works on the answer, in the outermost SELECT.",
    "having": "HAVING works on the answer, in the outermost SELECT.",
    "qualify": "Window functions look at other people's rows. Use GROUP BY instead.",
    "windows": "Window functions look at other people's rows. Use GROUP BY instead.",
    "sample": "Noise already protects; ask of all rows.",
}


# Sources and names


def _source(node: exp.Expression, tables: BaseTable) -> tuple[str, SourceRows]:
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
        if not node.alias:
            raise QueryRefused("a subquery in FROM needs a name: (SELECT …) AS recent.")
        return node.alias, compile_relation(node.this, tables)
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        extras = [name for name, value in node.args.items() if value and name not in ("this", "alias")]
        if extras:
            raise QueryRefused(f"tables are named plainly here, without {extras[0]}.")
        rows = tables(node.name)
        if rows is None:
            raise QueryRefused(f"there is no table {node.name}. Look at the schema for those there are.")
        return node.alias or node.name, rows
    raise QueryRefused("FROM takes tables, named subqueries and joins of them.")


def with_clause(query: exp.Expression, tables: BaseTable) -> BaseTable:
    """Return the tables a query can read: the schema's, and those of its WITH."""
    clause = query.args.get("with_")
    if clause is None:
        return tables
    if clause.args.get("recursive"):
        raise QueryRefused("recursive WITH is not offered.")
    nodes = 0
    for cte in clause.expressions:
        if cte.args["alias"].args.get("columns"):
            raise QueryRefused("name columns inside the WITH query, with AS.")
        rows = compile_relation(cte.this, tables)
        nodes = _counted(rows.sql, nodes)
        tables = _shadow(tables, cte.alias, rows)
    return tables


def _shadow(tables: BaseTable, name: str, rows: SourceRows) -> BaseTable:
    return lambda table: rows if table.lower() == name.lower() else tables(table)


def _aliased(rows: SourceRows, name: str) -> exp.Subquery:
    return exp.Subquery(this=rows.sql.copy(), alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))


def _counted(sql: exp.Query, before: int = 0) -> int:
    """Add the size of a query that is about to be copied. Refuse a relation that would become too large.

    Raises:
        QueryRefused: all parts together exceed the node limit of a relation.
    """
    nodes = before + sum(1 for _ in sql.walk())
    if nodes > _MOST_NODES:
        raise QueryRefused(
            f"the tables and subqueries after FROM become more than {_MOST_NODES:,} parts when they are put together. "
            "Use a WITH query fewer times, or ask in several questions."
        )
    return nodes


def _qualified(name: str, rows: SourceRows) -> dict[str, Expression]:
    return {column: replace(term, sql=exp.column(column, name, quoted=True)) for column, term in rows.columns.items()}


def _scope(parts: Mapping[str, SourceRows]) -> Scope:
    tables = {name.lower(): _qualified(name, rows) for name, rows in parts.items()}

    def look_up(node: exp.Column) -> Expression:
        wanted, table = node.name.lower(), node.table.lower()
        if node.args.get("db") or (table and table not in tables):
            raise QueryRefused(f"there is no table {node.table} in this FROM.")
        places = [tables[table]] if table else list(tables.values())
        matches = [term for columns in places for name, term in columns.items() if name.lower() == wanted]
        if not matches:
            candidates = [part for name, part in parts.items() if not table or name.lower() == table]
            names = ", ".join(sorted({name for part in candidates for name in part.names or part.columns})[:20])
            raise QueryRefused(f"there is no column {node.name}. There are: {names}.")
        if len(matches) > 1:
            raise QueryRefused(f"{node.name} is in several tables. Write table.{node.name}.")
        return matches[0]

    return look_up


# Joins


def _join(
    join: exp.Join, parts: Mapping[str, SourceRows], name: str, right: SourceRows, unit_at: str | None
) -> tuple[SourceRows, exp.Expression | None, str]:
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if side not in ("", "LEFT") or kind not in ("", "INNER", "CROSS", "OUTER") or join.args.get("method"):
        raise QueryRefused("joins here are JOIN, LEFT JOIN and CROSS JOIN.")
    if side == "LEFT" and right.private and unit_at is None:
        raise QueryRefused("start FROM the private table and LEFT JOIN the public one to it.")
    scope = _scope({**parts, name: right})
    condition: Any = _condition(join, parts, name, scope)
    if right.private and unit_at is not None:
        if right.by_row or parts[unit_at].by_row:
            raise QueryRefused(
                "private tables are joined on their unit, and here the unit is the row. Name a unit column."
            )
        same = exp.EQ(this=exp.column(UNIT, unit_at, quoted=True), expression=exp.column(UNIT, name, quoted=True))
        condition = same if condition is None else exp.and_(condition, same)
    elif any(part.by_row for part in parts.values()) or right.by_row:
        right = _few_matches(join, parts, right, name, scope)
    if side == "LEFT":
        right = replace(
            right, columns={key: replace(term, nullable=True, unit=False) for key, term in right.columns.items()}
        )
    return right, condition, "left" if side == "LEFT" else "inner"


def _condition(join: exp.Join, parts: Mapping[str, SourceRows], name: str, scope: Scope) -> Any:
    using, on = join.args.get("using"), join.args.get("on")
    if using:
        left = _scope(parts)
        pairs = [compared(left(exp.column(key.name)), scope(exp.column(key.name, name))) for key in using]
        return exp.and_(*(exp.EQ(this=mine.sql, expression=other.sql) for mine, other in pairs))
    if on is None:
        return None
    term = compile_term(on, scope)
    if term.type != "boolean":
        raise QueryRefused("ON needs a condition, such as a.ward = b.ward.")
    return term.sql


def _few_matches(
    join: exp.Join, parts: Mapping[str, SourceRows], right: SourceRows, name: str, scope: Scope
) -> SourceRows:
    """Return a public table with at most `most` rows per join key value: the most copies of a private row.

    The owner states the limit (`max_rows` of the public table, or a foreign key to the compared column), and it is
    enforced here: further rows are left out. Rows are numbered by exactly the value that the join compares.
    """
    if right.private:
        raise QueryRefused("start FROM the private table and JOIN the public one to it.")
    using, on = join.args.get("using"), join.args.get("on")
    mine, keys = _scope(parts), dict[str, list[Expression]]()
    for key in using or []:
        left, term = mine(exp.column(key.name)), scope(exp.column(key.name, name))
        if left.type == term.type:
            keys.setdefault(key.name, []).append(compared(left, term)[1])
    for pair in list(on.flatten()) if isinstance(on, exp.And) else [on] if on is not None else []:
        if not isinstance(pair, exp.EQ):
            continue
        written = (pair.this, pair.expression)
        for i, term in enumerate(equated(pair, scope)):
            if _names_one_row(written[i], written[1 - i], name, scope):
                keys.setdefault(written[i].name, []).append(term)
    if not keys:
        raise QueryRefused("join a public table by equality: JOIN wards ON visits.ward = wards.ward.")
    most = 1 if right.keys & {key.lower() for key in keys} else right.most
    if most is None:
        raise QueryRefused(
            f"{name} may have several rows for one {next(iter(keys))}, and a row joined to them would count as often. "
            "Ask the owner to say in the schema how many at most: max_rows of the public table, or a foreign key to "
            "its column."
        )
    window = exp.Window(
        this=exp.RowNumber(),
        partition_by=[_seen_from(internal("public"), told_apart(term)) for every in keys.values() for term in every],
        order=exp.Order(expressions=[exp.Ordered(this=exp.column(key, quoted=True)) for key in right.columns]),
    )
    numbered = exp.select(*(exp.column(key, quoted=True) for key in right.columns)).select(
        exp.alias_(window, internal("match"), quoted=True)
    )
    numbered = numbered.from_(_aliased(right, internal("public")))
    select = exp.select(*(exp.column(key, quoted=True) for key in right.columns)).from_(
        exp.Subquery(this=numbered, alias=exp.TableAlias(this=exp.to_identifier(internal("numbered"), quoted=True)))
    )
    within = exp.LTE(this=exp.column(internal("match"), quoted=True), expression=exp.Literal.number(most))
    note = f"a row is joined to at most {most} of {name} for each {', '.join(keys)}"
    return replace(right, sql=select.where(within), copies=most, notes=(*right.notes, note))


def _seen_from(table: str, sql: exp.Expression) -> exp.Expression:
    """Return an expression over one table with that table under another name."""

    def renamed(node: exp.Expression) -> exp.Expression:
        return exp.column(node.name, table, quoted=True) if isinstance(node, exp.Column) else node

    return sql.transform(renamed)


def _names_one_row(mine: exp.Expression, other: exp.Expression, name: str, scope: Scope) -> bool:
    """Return True if `mine = other` leaves one value of a public table's column for each row of the rest."""

    def is_public(node: exp.Expression) -> bool:
        return bool(scope(node).sql.args["table"].name == name)  # type: ignore[arg-type]

    if not isinstance(mine, exp.Column) or not is_public(mine) or any(map(is_public, other.find_all(exp.Column))):
        return False
    return scope(mine).type == compile_term(other, scope).type  # two large integers may be one double


# Columns of a subquery


def _projections(query: exp.Select, source: SourceRows, scope: Scope) -> dict[str, Expression]:
    columns: dict[str, Expression] = {}
    for node in query.expressions:
        if isinstance(node, exp.Star):
            if source.ambiguous:
                raise QueryRefused(
                    f"* shows {source.ambiguous[0]} of several tables. Name the columns: a.x AS x, b.x AS y."
                )
            named = list(source.columns.items())
        else:
            inner = node.this if isinstance(node, exp.Alias) else node
            name = node.alias_or_name or f"column{len(columns) + 1}"
            named = [(name, compile_term(inner, scope))]
        for name, term in named:
            if name.lower() in {column.lower() for column in columns}:  # engines fold case
                raise QueryRefused(f"two columns are called {name}. Give one another name with AS.")
            columns[name] = term
    return columns


def _finish(select: exp.Select, source: SourceRows, projections: Mapping[str, Expression]) -> SourceRows:
    for key, value in source.sql.args.items():
        if key != "expressions" and value:
            select.set(key, value.copy() if isinstance(value, exp.Expression) else [part.copy() for part in value])
    for hidden in source.sql.expressions:
        select = select.select(hidden.copy())
    columns = {name: replace(term, sql=exp.column(name, quoted=True)) for name, term in projections.items()}
    return replace(source, sql=select, columns=columns, keys=frozenset(), ambiguous=())


def _union(query: exp.Union, tables: BaseTable) -> SourceRows:
    if query.args.get("distinct") or any(query.args.get(key) for key in ("order", "limit", "by_name", "with_")):
        raise QueryRefused("only UNION ALL is offered, without ORDER BY or LIMIT inside.")
    left, right = compile_relation(query.this, tables), compile_relation(query.expression, tables)
    if len(left.columns) != len(right.columns) or left.private != right.private or left.by_row != right.by_row:
        raise QueryRefused("both sides of UNION ALL need the same columns, and both be private or both public.")
    columns = {}
    for (name, left_term), right_term in zip(left.columns.items(), right.columns.values(), strict=True):
        if left_term.type != right_term.type:
            raise QueryRefused(
                f"column {name} is {left_term.type} on one side of UNION ALL and {right_term.type} on the other."
            )
        columns[name] = _either(left_term, right_term)
    _counted(right.sql, _counted(left.sql))
    both = exp.Union(this=left.sql.copy(), expression=right.sql.copy(), distinct=False)
    notes = tuple(dict.fromkeys((*left.notes, *right.notes)))
    return SourceRows(
        both,
        columns,
        left.private,
        left.by_row,
        left.copies + right.copies,
        notes=notes,
        size=None if left.size is None or right.size is None else left.size + right.size,
        filtered=left.filtered or right.filtered,
    )


def _either(left: Expression, right: Expression) -> Expression:
    merged = one_of(left.sql, left.type, [left, right], nullable=left.nullable or right.nullable)
    return replace(
        merged,
        unit=left.unit and right.unit,
        clipped=left.clipped and right.clipped,
        listed=left.listed and right.listed,
    )


# One row per unit: GROUP BY the unit itself


def _per_unit(query: exp.Select, source: SourceRows, scope: Scope) -> SourceRows:
    group = query.args["group"]
    keys = [compile_term(node, scope) for node in group.expressions]
    if any(group.args.get(extra) for extra in ("rollup", "cube", "grouping_sets", "all")) or not any(
        key.unit for key in keys
    ):
        raise QueryRefused(
            "a subquery may group by the unit column (one row per person). Group people in the outermost SELECT."
        )
    if source.by_row or not source.private:
        raise QueryRefused("a subquery with GROUP BY needs a private table with a unit column.")
    for node, key in zip(group.expressions, keys, strict=True):
        if key.sql.find(exp.Column) is None:  # engines take it for a column position, ours included, or refuse it
            raise QueryRefused(
                f"GROUP BY {node_text(node)[:60]} in a subquery is a constant. Leave it out, or name the column itself."
            )
    columns: dict[str, Expression] = {}
    for node in query.expressions:
        inner = node.this if isinstance(node, exp.Alias) else node
        name = node.alias_or_name or f"column{len(columns) + 1}"
        if name.lower() in {column.lower() for column in columns}:
            raise QueryRefused(f"two columns are called {name}. Give one another name with AS.")
        columns[name] = _per_unit_term(inner, scope, keys)
    select = exp.select(*(exp.alias_(term.sql, name, quoted=True) for name, term in columns.items()))
    rows = _finish(select, source, columns)
    hidden = source.sql.expressions[-1].this.copy()
    grouped = rows.sql.copy()
    grouped.set("group", exp.Group(expressions=[hidden, *(key.sql.copy() for key in keys)]))
    # One row per person: the number of people is not known from the number of rows.
    return replace(rows, sql=grouped, most=1 if all(key.unit for key in keys) else None, size=None)


def _per_unit_term(node: exp.Expression, scope: Scope, keys: list[Expression]) -> Expression:
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return Expression(
            exp.Cast(this=exp.Count(this=exp.Star()), to=exp.DataType.build("BIGINT")),
            "integer",
            0,
            None,
            nullable=False,
        )
    if isinstance(node, exp.Sum | exp.Avg | exp.Min | exp.Max):
        inner = compile_term(node.this, scope)
        if inner.type not in ("integer", "real"):
            raise QueryRefused("SUM, AVG, MIN and MAX per person need a number.")
        if isinstance(node, exp.Min | exp.Max):
            return Expression(type(node)(this=as_double(inner.sql)), "real", inner.low, inner.high)
        total, exponent = _exact_total(inner)
        if isinstance(node, exp.Sum):
            return Expression(total, "real", 0.0 if _at_least_zero(inner.low) else None)
        count = exp.Nullif(this=exp.Count(this=inner.sql.copy()), expression=exp.Literal.number(0))
        mean = exp.Div(this=total, expression=as_double(count), typed=False, safe=False)
        return Expression(mean, "real", *_mean_limits(inner, exponent))
    term = compile_term(node, scope)
    if not any(term.sql == key.sql for key in keys):
        raise QueryRefused("a subquery with GROUP BY shows its group columns, COUNT(*), SUM, AVG, MIN and MAX.")
    return term


def _mean_limits(term: Expression, exponent: int) -> tuple[float, float]:
    """Return the limits of a mean of values on the grid. A limit between two grid points moves outwards to one."""
    step = 2.0**-exponent
    low, high = math.floor((term.low or 0) / step) * step, math.ceil((term.high or 0) / step) * step
    return low - abs(low) * 1e-15, high + abs(high) * 1e-15  # the quotient itself is rounded too


def _exact_total(term: Expression) -> tuple[exp.Expression, int]:
    """Sum a person's values on a grid of 2^40 steps: independent of order, no overflow. Also return its exponent."""
    if term.low is None or term.high is None:
        raise QueryRefused(
            "SUM and AVG per person need public bounds. Give them in the schema, or write "
            "SUM(LEAST(GREATEST(x, 0), 100)), with limits of yours."
        )
    exponent = 40 - math.ceil(math.log2(max(abs(term.low), abs(term.high), 1e-100)))
    value = grid_value(term.sql, term.low, term.high, exponent)
    total = exp.Sum(this=exp.Cast(this=value.sql, to=exp.DataType.build("DECIMAL(38, 0)")))
    return exp.Mul(this=as_double(total), expression=literal(2.0**-exponent)), exponent


def _at_least_zero(low: float | None) -> bool:
    return low is not None and low >= 0
