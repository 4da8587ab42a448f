"""Two tables of the same people as relations: parents with numbers of children, and children with their parents.

    (domain, relation), (joined_domain, joined) = read_two(ds, "patients", "visits", {}, bins=16)

Rows are joined by the unit, in the engine. A unit's rows are capped after the join as before it, so a join never gives
a unit more than `max_rows` rows of the table that it starts with.

Privacy: public facts only; nothing is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from sqlglot import exp

from cloister.data.dialect import literal
from cloister.data.private_data import PrivateData
from cloister.data.private_table import PrivateTable
from cloister.data.schema import UNIT, Column, internal
from cloister.privacy.errors import BadInput, BadSchema
from cloister.synth.domain.domain import Domain, read_domain
from cloister.synth.options import check_names

__all__ = ["NUMBER", "read_two"]

NUMBER = internal("number_of_children")


def read_two(
    ds: PrivateData, parent: str, child: str, columns: Mapping[str, Sequence[str]], bins: Any
) -> tuple[tuple[Domain, PrivateTable], tuple[Domain, PrivateTable]]:
    """Return domain and rows of the parents with numbers of children, and of the children with their parents.

    Args:
        ds, parent, child, columns: as in `synth.two_tables`.
        bins: equal bins; or {column: bins or ends of bins}, each for the tables that have the column.
    """
    _check_tables(ds, parent, child, columns, bins)
    terms = {
        name: {column: term for column, term in ds.columns(name).items() if not term.unit} for name in (parent, child)
    }
    chosen = {name: tuple(columns.get(name, terms[name])) for name in (parent, child)}
    _check_columns(chosen, bins)
    above, beside = (_bins(bins, {column: column for column in chosen[name]}) for name in (parent, child))
    plain, _ = read_domain(ds, table=parent, columns=chosen[parent], bins=above)
    first = _with_number(ds, parent, child, plain, {column: terms[parent][column] for column in chosen[parent]})
    child_domain, _ = read_domain(ds, table=child, columns=chosen[child], bins=beside)
    # Only columns with public cells that no other column determines are joined and conditioned on.
    determines = ds.tables.schema.tables[parent].determines
    decided = {right for left, right in determines if {*left, right} <= set(chosen[parent])}
    shared = [axis.name for axis in plain.axes if not axis.pseudonym and axis.name not in decided]
    inside = {**{column: terms[child][column] for column in chosen[child]}, **_prefixed(parent, shared, terms[parent])}
    second = _with_parents(ds, parent, child, child_domain, shared, inside)
    joined = _bins(bins, {**{column: column for column in chosen[child]}, **_prefixed(parent, shared)})
    return read_domain(first, table=parent, bins=above), read_domain(second, table=child, bins=joined)


def _check_tables(ds: PrivateData, parent: str, child: str, columns: Any, bins: Any) -> None:
    """Refuse what is no dataset, and tables that cannot be joined as parents and children."""
    if not (hasattr(ds, "relation") and hasattr(ds, "schema")):
        raise BadInput("synthetic data are made from a Cloister dataset: cl.open(source, schema=…, budget=…).")
    check_names("parent and child", (parent, child))
    if not isinstance(columns, Mapping) or not set(columns) <= {parent, child}:
        raise BadInput("columns is {table: its columns}, for the parent, the child, or both.")
    for listed in columns.values():
        check_names("columns of a table", listed)
    check_names("what bins names", bins if isinstance(bins, Mapping) else None)
    tables = ds.tables.schema.tables
    for name in (parent, child):
        if name not in tables or tables[name].public or tables[name].unit is None:
            raise BadSchema(f"{name:.60} is no private table with a unit column, by which two tables are joined.")
    if parent == child or tables[parent].max_rows != 1:
        raise BadSchema(f"{parent} needs max_rows: 1 in the schema: a unit has one row there, and several in {child}.")


def _check_columns(chosen: Mapping[str, Sequence[str]], bins: Any) -> None:
    """Refuse names that joined columns have, and bins of columns that are in neither table."""
    names = {column for listed in chosen.values() for column in listed}
    if NUMBER in names or any("." in name for name in names):
        raise BadSchema(f"columns here have no dot in their names, and none is called {NUMBER}.")
    unknown = sorted(set(bins) - names) if isinstance(bins, Mapping) else []
    if unknown:
        raise BadInput(f"bins names {unknown[0]:.60}, which is no column of {' or '.join(chosen)}.")


def _with_number(ds: PrivateData, parent: str, child: str, plain: Domain, terms: Mapping[str, Any]) -> "_Seen":
    """Return the parents with their number of children."""
    relation, most = _parents(ds, parent, child, plain)
    number = Column(NUMBER, "integer", (0, most), nullable=False)
    facts = ds.tables.schema.tables[parent]
    return _Seen(
        parent,
        replace(relation, columns={**_every(ds, parent, tuple(terms)), NUMBER: number}),
        {**terms, NUMBER: SimpleNamespace(unit=False, low=0, high=most)},
        facts.never,
        facts.determines,
    )


def _with_parents(
    ds: PrivateData, parent: str, child: str, child_domain: Domain, shared: Sequence[str], terms: Mapping[str, Any]
) -> "_Seen":
    """Return the children with columns of their parents, under the parent's rules as well."""
    above, facts = ds.tables.schema.tables[parent], ds.tables.schema.tables[child]
    renamed = {
        f"{parent}.{column}": replace(_every(ds, parent, [column])[column], name=f"{parent}.{column}")
        for column in shared
    }
    rules = [{f"{parent}.{column}": wanted for column, wanted in rule.items()} for rule in above.never]
    names = [column for column in terms if column not in renamed]
    return _Seen(
        child,
        replace(_joined(ds, parent, child, child_domain, shared), columns={**_every(ds, child, names), **renamed}),
        terms,
        (*facts.never, *rules),
        facts.determines,
    )


def _prefixed(parent: str, columns: Sequence[str], values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return columns of the parent by their names in the join, each with its value, or with its own name."""
    return {f"{parent}.{column}": column if values is None else values[column] for column in columns}


def _bins(bins: Any, columns: Mapping[str, str]) -> Any:
    """Return the bins of some columns, each under its name in a table."""
    return (
        {name: bins[column] for name, column in columns.items() if column in bins}
        if isinstance(bins, Mapping)
        else bins
    )


class _Seen:
    """A relation with the interface of a dataset's table."""

    def __init__(
        self, name: str, relation: PrivateTable, terms: Mapping[str, Any], never: Any, determines: Any
    ) -> None:
        self._relation, self._terms = relation, terms
        schema = SimpleNamespace(tables={name: SimpleNamespace(never=never, determines=determines)})
        self.tables: Any = SimpleNamespace(schema=schema)

    def columns(self, table: str) -> Mapping[str, Any]:
        """Return the public facts of the columns."""
        return self._terms

    def relation(self, table: str | None, columns: Sequence[str]) -> PrivateTable:
        """Return the relation restricted to some columns."""
        return replace(self._relation, columns={column: self._relation.columns[column] for column in columns})


def _every(ds: PrivateData, table: str, columns: Sequence[str]) -> dict[str, Column]:
    return dict(ds.relation(table, columns).columns)


def _known(domain: Domain) -> list[str]:
    return [axis.name for axis in domain.axes if not axis.pseudonym]


def _parents(ds: PrivateData, parent: str, child: str, plain: Domain) -> tuple[PrivateTable, int]:
    """Return the parents with the number of their children, and the maximum of that number."""
    relation = ds.relation(parent, _known(plain))
    kids = ds.relation(child, [])
    most = kids.rows_each
    unit = exp.column(UNIT, quoted=True)
    counts = exp.select(unit, exp.alias_(exp.Count(this=exp.Star()), internal("n"), quoted=True))
    counts = counts.from_(_named(kids.rows, internal("kids"))).group_by(unit.copy())
    count = exp.Coalesce(
        this=exp.column(internal("n"), table=internal("counted"), quoted=True), expressions=[literal(0)]
    )
    above = exp.GT(this=count, expression=literal(most))
    capped = exp.Case(ifs=[exp.If(this=above, true=literal(most))], default=count.copy())
    return _beside(relation, _known(plain), counts, internal("counted"), {NUMBER: capped}, "LEFT"), most


def _joined(ds: PrivateData, parent: str, child: str, child_domain: Domain, shared: Sequence[str]) -> PrivateTable:
    """Return the children joined with the columns of their parents."""
    kids = ds.relation(child, _known(child_domain))
    above = ds.relation(parent, list(shared))
    parents = above.rows.select(*(exp.column(column, quoted=True) for column in shared))
    taken: dict[str, exp.Expression] = {
        f"{parent}.{column}": exp.column(column, table=internal("above"), quoted=True) for column in shared
    }
    return _beside(kids, _known(child_domain), parents, internal("above"), taken, "INNER")


def _beside(
    relation: PrivateTable,
    columns: Sequence[str],
    other: exp.Query,
    name: str,
    taken: Mapping[str, exp.Expression],
    how: str,
) -> PrivateTable:
    """Join a relation with another query by the unit. The cap on a unit's rows is the relation's own."""
    selected = relation.rows.select(*(exp.column(column, quoted=True) for column in columns))
    unit = exp.column(UNIT, table=internal("here"), quoted=True)
    projection = [exp.alias_(unit.copy(), UNIT, quoted=True)]
    projection += [
        exp.alias_(exp.column(column, table=internal("here"), quoted=True), column, quoted=True) for column in columns
    ]
    projection += [exp.alias_(sql, column, quoted=True) for column, sql in taken.items()]
    on = exp.EQ(this=unit, expression=exp.column(UNIT, table=name, quoted=True))
    both = (
        exp.select(*projection)
        .from_(_named(selected, internal("here")))
        .join(_named(other, name), on=on, join_type=how)
    )
    return replace(relation, rows=exp.select(exp.column(UNIT, quoted=True)).from_(_named(both, internal("both"))))


def _named(query: exp.Query, name: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
