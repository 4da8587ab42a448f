"""Queries: one SELECT split into rows, groups, aggregates, and post-processing of the answer."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from cloister.data.dialect import dialect_of
from cloister.data.engines.engine import DialectName
from cloister.privacy.errors import QueryRefused
from cloister.query.aggregate import Aggregate, compile_aggregate, is_aggregate
from cloister.query.expression import Expression, Scope, compile_term
from cloister.query.from_clause import SourceRows, compile_relation, from_clause, refuse_extras, with_clause
from cloister.query.sql_text import LONGEST, is_text, parse, refuse_cut, refuse_dropped, refuse_reserved, refuse_unread

__all__ = ["Group", "Output", "Question", "ask", "relation"]

_DEEPEST = 120


@dataclass(frozen=True, slots=True)
class Group:
    """A column of groups.

    Attributes:
        name: its name in the query.
        term: its expression.
        values: its public values; None: they must be found, at a charge.
        complete: whether every row has one of the values. Groups that were found leave rows out.
    """

    name: str
    term: Expression
    values: Sequence[Any] | None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the answer: an expression over groups `k0 …` and aggregates `a0 …`."""

    name: str
    node: exp.Expression

    @property
    def aggregate(self) -> int | None:
        """The index of the aggregate, if the column is one unchanged."""
        name = self.node.name if isinstance(self.node, exp.Column) else ""
        return int(name[1:]) if name.startswith("a") and name[1:].isdigit() else None


@dataclass(frozen=True, slots=True)
class Question:
    """A compiled query."""

    text: str
    rows: SourceRows
    groups: tuple[Group, ...]
    sets: tuple[tuple[int, ...], ...]
    aggregates: tuple[Aggregate, ...]
    outputs: tuple[Output, ...]
    having: exp.Expression | None
    order: tuple[exp.Ordered, ...]
    limit: int | None

    @property
    def cells(self) -> int:
        """The number of rows of the answer before HAVING and LIMIT: every group of every grouping set."""
        sizes = [len(group.values or ()) for group in self.groups]
        return sum(math.prod(sizes[i] for i in members) for members in self.sets)

    @property
    def chooses(self) -> bool:
        """True if rows of the answer are selected by noisy numbers: by HAVING, or by ORDER BY and LIMIT."""
        by = [] if self.having is None else [self.having]
        if self.limit is not None and self.limit < self.cells:
            by += [ordered.this for ordered in self.order]
        return any(_is_noisy(column) for node in by for column in node.find_all(exp.Column))


def _is_noisy(column: exp.Column) -> bool:
    """Return True if a column of the answer is an aggregate `a0 …`, not a group `k0 …`."""
    return column.name.startswith("a")


def ask(
    sql: str, tables: Callable[[str, frozenset[str] | None], SourceRows | None], dialect: DialectName = "duckdb"
) -> Question:
    """Compile an analyst's SQL. Anything outside the language is refused with the nearest alternative.

    Args:
        sql: one SELECT.
        tables: maps a table's name and the needed columns (in lower case; None: all) to its relation.
        dialect: the engine's SQL dialect, whose limits on names apply to the query.
    """
    query = _parse(sql)
    refuse_cut(query, dialect_of(dialect))
    refuse_extras(query, ("group", "having", "order", "limit"))
    used = _used_columns(query)
    visible = with_clause(query, lambda name: tables(name, used))
    rows, scope = from_clause(query, visible)
    if not rows.private:
        raise QueryRefused("this question reads public tables only: no privacy is needed. Read them directly.")
    groups, sets = _groups(query, scope)
    rewrite = _Rewrite([group.term for group in groups], scope, rows.by_row)
    outputs = tuple(_output(node, rewrite, i) for i, node in enumerate(query.expressions))
    _check_names(outputs)
    having = query.args.get("having")
    condition = rewrite(having.this) if having is not None else None
    order = tuple(
        _ordered(ordered, rewrite, outputs)
        for ordered in (query.args["order"].expressions if query.args.get("order") else ())
    )
    if not rewrite.aggregates:
        raise QueryRefused("rows are never shown. Ask for an aggregate: COUNT(*), AVG(x) … GROUP BY y.")
    limit = _limit(query.args.get("limit"))
    return Question(sql, rows, groups, sets, tuple(rewrite.aggregates), outputs, condition, order, limit)


def relation(sql: str, tables: Callable[[str, frozenset[str] | None], SourceRows | None]) -> SourceRows:
    """Compile a SELECT of rows, such as a view: SELECT ward, age FROM visits WHERE ward = 'cardiology'."""
    query = _parse(sql)
    used = _used_columns(query)
    rows = compile_relation(query, lambda name: tables(name, used))
    return replace(rows, names=tuple(rows.columns))


def _parse(sql: str) -> exp.Select:
    if not isinstance(sql, str) or len(sql) > LONGEST or not is_text(sql):
        raise QueryRefused(f"a question is SQL text of at most {LONGEST:,} characters, none of them NUL.")
    try:
        tokens, parsed = parse(sql)
    except QueryRefused:
        raise
    except Exception:  # any other parser failure also means that the text was not understood
        raise QueryRefused("this is not SQL that we understand. Start from SELECT COUNT(*) FROM a_table.") from None
    statements = [  # without a comment at the end
        statement for statement in parsed if statement is not None and not isinstance(statement, exp.Semicolon)
    ]
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise QueryRefused("ask one SELECT at a time; nothing else is offered.")
    if _depth(statements[0]) > _DEEPEST:
        raise QueryRefused("this question is nested too deeply. Use IN lists, fewer steps, or a WITH query.")
    for node in statements[0].walk():
        node.pop_comments()  # they would be written into the engine's statement
    refuse_reserved(statements[0])
    refuse_unread(statements[0])
    refuse_dropped(tokens, statements[0])
    return statements[0]


def _depth(query: exp.Expression) -> int:
    """Return the depth of a tree, without recursion: the tree may be too deep for it."""
    deepest, rest = 0, [(query, 1)]
    while rest:
        node, depth = rest.pop()
        deepest = max(deepest, depth)
        rest.extend((child, depth + 1) for child in node.iter_expressions())
    return deepest


def _used_columns(query: exp.Select) -> frozenset[str] | None:
    """Return every column name that occurs; None if a star may stand for more."""
    stars = [star for star in query.find_all(exp.Star) if not isinstance(star.parent, exp.Count)]
    joined = [key.name for join in query.find_all(exp.Join) for key in join.args.get("using") or []]
    return (
        None
        if stars
        else frozenset(name.lower() for name in (*(column.name for column in query.find_all(exp.Column)), *joined))
    )


class _Rewrite:
    """Replace groups by `k0 …` and aggregates by `a0 …`; the rest is arithmetic over the answer."""

    def __init__(self, keys: Sequence[Expression], scope: Scope, by_row: bool) -> None:
        self.keys = keys
        self.scope = scope
        self.by_row = by_row
        self.aggregates: list[Aggregate] = []
        self._seen: dict[exp.Expression, int] = {}

    def __call__(self, node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Window):
            raise QueryRefused("window functions look at other people's rows. Use GROUP BY instead.")
        if is_aggregate(node):
            return exp.column(f"a{self._aggregate(node)}")
        for i, key in enumerate(self.keys):
            if self._same(node, key):
                return exp.column(f"k{i}")
        if isinstance(node, exp.Filter):
            raise QueryRefused(
                "FILTER is not offered. Write COUNT(CASE WHEN age > 65 THEN 1 END), and so for SUM and AVG."
            )
        if isinstance(node, exp.Anonymous | exp.IgnoreNulls | exp.RespectNulls):
            compile_aggregate(node, self.scope)  # refuses it by name
        if isinstance(node, exp.Column):
            self.scope(node)  # a missing one is refused as such
            raise QueryRefused(f"{node.name} is neither grouped by nor aggregated. Add it to GROUP BY.")
        copy = node.copy()
        for child in list(copy.iter_expressions()):
            child.replace(self(child.copy()))
        return copy

    def _aggregate(self, node: exp.Expression) -> int:
        if node not in self._seen:
            self.aggregates.append(compile_aggregate(node, self.scope, by_row=self.by_row))
            self._seen[node] = len(self.aggregates) - 1
        return self._seen[node]

    def _same(self, node: exp.Expression, key: Expression) -> bool:
        if isinstance(node, exp.Literal | exp.Boolean | exp.Null) or node.find(exp.AggFunc):
            return False
        try:
            return compile_term(node, self.scope).sql == key.sql
        except QueryRefused:
            return False


def _groups(query: exp.Select, scope: Scope) -> tuple[tuple[Group, ...], tuple[tuple[int, ...], ...]]:
    clause = query.args.get("group")
    if clause is None:
        return (), ((),)
    named = {node.alias.lower(): node.this for node in query.expressions if isinstance(node, exp.Alias)}
    listed = _listed_values(query, scope)
    groups: list[Group] = []

    def place(node: exp.Expression) -> int:
        node = _resolve(node, query, named, scope)
        term = compile_term(node, scope)
        for i, group in enumerate(groups):
            if group.term.sql == term.sql:
                return i
        groups.append(_group(node, term, listed, query))
        return len(groups) - 1

    plain: list[int] = []
    rolled: list[int] = []
    sets: list[list[int]] = []
    for node in clause.expressions:
        if isinstance(node, exp.Rollup | exp.GroupingSets) and (rolled or sets):
            raise QueryRefused("ROLLUP and GROUPING SETS are offered once in a question.")
        if isinstance(node, exp.Rollup):
            rolled = [place(key) for key in node.expressions]
        elif isinstance(node, exp.GroupingSets):
            sets = [
                [place(key) for key in (part.expressions if isinstance(part, exp.Tuple) else [part.unnest()])]
                for part in node.expressions
            ]
        elif isinstance(node, exp.Cube):
            raise QueryRefused("CUBE is not offered. Use ROLLUP or GROUPING SETS.")
        else:
            plain.append(place(node))
    for extra in ("rollup", "cube", "grouping_sets", "all", "totals"):
        if clause.args.get(extra):
            raise QueryRefused(f"GROUP BY {extra.upper()} is written ROLLUP (a, b) or GROUPING SETS ((a), (b)).")
    chosen = [*(rolled[:n] for n in range(len(rolled), -1, -1))] if rolled else sets or [[]]
    return tuple(groups), tuple(tuple(dict.fromkeys([*plain, *members])) for members in chosen)


def _resolve(node: exp.Expression, query: exp.Select, named: dict[str, exp.Expression], scope: Scope) -> exp.Expression:
    if isinstance(node, exp.Literal) and node.is_int:
        index = int(node.this)
        if not 1 <= index <= len(query.expressions):
            raise QueryRefused("GROUP BY 1 means the first column shown; there is none of that number.")
        output: exp.Expression = query.expressions[index - 1]
        return output.this if isinstance(output, exp.Alias) else output
    if isinstance(node, exp.Column) and not node.table and node.name.lower() in named:
        try:
            scope(node)
        except QueryRefused:
            return named[node.name.lower()]
    return node


def _group(node: exp.Expression, term: Expression, listed: dict[str, tuple[Any, ...]], query: exp.Select) -> Group:
    name = next(
        (output.alias for output in query.expressions if isinstance(output, exp.Alias) and output.this == node), ""
    )
    name = name or node.sql(dialect="duckdb").lower()
    values = listed.get(term.sql.sql())
    domain = term.domain()
    if values is not None and term.values is not None:
        values = tuple(value for value in values if value in term.values)
    return Group(name, term, values if values is not None else domain)


def _listed_values(query: exp.Select, scope: Scope) -> dict[str, tuple[Any, ...]]:
    """Return the groups that the query lists itself: WHERE ward IN ('a', 'b')."""
    where = query.args.get("where")
    listed: dict[str, tuple[Any, ...]] = {}
    if where is None:
        return listed
    for part in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
        part = part.unnest()
        constants: list[exp.Expression] = []
        if isinstance(part, exp.In):
            constants = part.expressions
        elif isinstance(part, exp.EQ):
            constants = [part.expression]
        if (
            constants
            and isinstance(part.this, exp.Column)
            and all(isinstance(constant, exp.Literal) for constant in constants)
        ):
            term = scope(part.this)
            if term.type in ("text", "integer"):
                read: Callable[[str], Any] = str if term.type == "text" else int
                try:
                    values = dict.fromkeys(read(constant.this) for constant in constants)
                    # An integer column never holds a number beyond 64 bits.
                    listed[term.sql.sql()] = tuple(
                        value for value in values if isinstance(value, str) or abs(value) < 2**63
                    )
                except ValueError:
                    continue
    return listed


def _output(node: exp.Expression, rewrite: _Rewrite, index: int) -> Output:
    if isinstance(node, exp.Star):
        raise QueryRefused("rows are never shown, so SELECT * has no answer. Ask for COUNT(*) or another aggregate.")
    inner = node.this if isinstance(node, exp.Alias) else node
    name = node.alias if isinstance(node, exp.Alias) else inner.sql(dialect="duckdb").lower()
    return Output(name[:60] or f"column{index + 1}", rewrite(inner))


def _check_names(outputs: Sequence[Output]) -> None:
    """Refuse two columns of one name. The limits of a number are columns too."""
    names = {output.name.lower() for output in outputs}
    if len(names) < len(outputs):
        raise QueryRefused("two columns of the answer have the same name. Name them with AS.")
    for output in outputs:
        limits = {f"{output.name}_low".lower(), f"{output.name}_high".lower()} & names
        if limits and any(map(_is_noisy, output.node.find_all(exp.Column))):
            raise QueryRefused(
                f"{min(limits)} is a limit of {output.name} in the answer. Give it another name with AS."
            )


def _ordered(node: exp.Ordered, rewrite: _Rewrite, outputs: Sequence[Output]) -> exp.Ordered:
    inner = node.this
    if isinstance(inner, exp.Literal) and inner.is_int and 1 <= int(inner.this) <= len(outputs):
        by = outputs[int(inner.this) - 1].node.copy()
    else:
        match = [
            output
            for output in outputs
            if isinstance(inner, exp.Column) and not inner.table and output.name.lower() == inner.name.lower()
        ]
        by = match[0].node.copy() if match else rewrite(inner)
    if by.find(exp.Column) is None:
        raise QueryRefused(
            "ORDER BY takes groups and aggregates of the answer: by name, by number from 1 on, or computed."
        )
    return exp.Ordered(this=by, desc=bool(node.args.get("desc")), nulls_first=bool(node.args.get("nulls_first")))


def _limit(node: exp.Expression | None) -> int | None:
    if node is None:
        return None
    count = node.expression
    if (
        not isinstance(node, exp.Limit)
        or not isinstance(count, exp.Literal)
        or not count.is_int
        or len(count.this) > 18
    ):
        raise QueryRefused("LIMIT takes a whole number.")
    return int(count.this)
