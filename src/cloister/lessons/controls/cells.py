"""The public cells a query covers. They follow from its text and the schema alone: no row is read.

A cell is one combination of public values, such as (cardiology, 34). A condition over public columns is a set of cells,
and sums over sets of cells are linear: linear algebra decides what follows from them, whatever the data.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.schema import Schema
from cloister.privacy.errors import QueryRefused
from cloister.privacy.noise import uniform
from cloister.query.aggregate import is_aggregate
from cloister.query.question import Question

__all__ = ["Cells", "RowSpace", "secret_prime"]

_MOST = 10_000_000  # sets times cells
_ARROW = {"integer": pa.int64(), "text": pa.string(), "boolean": pa.bool_()}


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of some columns of a table, each with a public list of values."""

    table: str
    columns: tuple[str, ...]

    def sets(self, question: Question, schema: Schema) -> NDArray[np.bool_]:
        """Return the cells each row of the answer covers, without empty and repeated sets."""
        self._check_form(question)
        domains, types = zip(*(self._domain(schema, name) for name in self.columns), strict=True)
        cells = list(product(*domains))
        columns = zip(self.columns, zip(*cells, strict=True), types, strict=True)
        inside, keys = _evaluate(question, pa.table({name: pa.array(column, kind) for name, column, kind in columns}))
        covered: dict[frozenset[int], None] = {}
        for members in question.sets:
            parts: dict[tuple[Any, ...], list[int]] = {}
            for cell in inside:
                parts.setdefault(tuple(keys[i][cell] for i in members), []).append(cell)
            allowed = set(product(*(question.groups[i].values or () for i in members)))
            covered |= {frozenset(part): None for key, part in parts.items() if key in allowed}
        if len(covered) * len(cells) > _MOST:
            raise QueryRefused("it has too many groups to follow under this control. Group by less.")
        sets = np.zeros((len(covered), len(cells)), dtype=bool)
        for row, part in zip(sets, covered, strict=True):
            row[list(part)] = True
        return sets

    def _check_form(self, question: Question) -> None:
        """Require one table, conditions and groups over the watched columns, and plain columns in the aggregates."""
        query = sqlglot.parse_one(question.text, read="duckdb")
        tables = [table.name.lower() for table in query.find_all(exp.Table)]
        if tables != [self.table.lower()] or query.find(exp.Subquery, exp.CTE, exp.Union):
            raise QueryRefused(f"questions under this control read the table {self.table} alone: no join, no subquery.")
        watched = {name.lower() for name in self.columns}
        where = question.rows.sql.args.get("where")
        for part in [*([where] if where else []), *(group.term.sql for group in question.groups)]:
            for column in part.find_all(exp.Column):
                if column.name.lower() not in watched:
                    raise QueryRefused(
                        f"this control follows {', '.join(self.columns)}, and rows are chosen by {column.name}. "
                        "Leave it out, or ask the owner to watch that column too."
                    )
        for call in [node for node in query.walk() if isinstance(node, exp.Expression) and is_aggregate(node)]:
            plain = isinstance(call.this, exp.Column | exp.Star | exp.Distinct)
            if not plain or any(column.name.lower() in watched for column in call.find_all(exp.Column)):
                raise QueryRefused("under this control an aggregate takes * or one column that is not watched.")

    def _domain(self, schema: Schema, name: str) -> tuple[tuple[Any, ...], pa.DataType]:
        """Return every value a column can have, NULL included, and its type."""
        table = next((table for table in schema.tables.values() if table.name.lower() == self.table.lower()), None)
        column = (
            next((column for key, column in table.columns.items() if key.lower() == name.lower()), None)
            if table
            else None
        )
        values: tuple[Any, ...] | None = None
        if column is not None and column.type in _ARROW:
            values = (False, True) if column.type == "boolean" else column.categories
            if column.type == "integer" and column.bounds is not None:
                low, high = (int(end) for end in column.bounds)  # type: ignore[arg-type]
                values = tuple(range(low, high + 1)) if high - low < _MOST else None
        if column is None or values is None:
            raise QueryRefused(f"this control needs a public list of values for {name}, by categories or bounds.")
        return ((*values, None) if column.nullable else values), _ARROW[column.type]


def _evaluate(question: Question, cells: pa.Table) -> tuple[list[int], list[list[Any]]]:
    """Return the cells for which the condition holds and the groups of all cells, by an engine without other data."""
    import duckdb

    condition = question.rows.sql.args.get("where")
    terms = [condition.this if condition is not None else exp.true(), *(group.term.sql for group in question.groups)]
    named = [exp.alias_(exp.Paren(this=term.copy()), f"c{i}") for i, term in enumerate(terms)]
    source = question.rows.sql.args["from_"].this.alias
    query = exp.select(*named).from_(exp.alias_(exp.table_("cells"), source, quoted=True, table=True))
    with duckdb.connect(":memory:", config={"enable_external_access": "false", "threads": 1}) as engine:
        engine.register("cells", cells)
        first, *keys = (
            column.to_pylist() for column in engine.sql(query.sql(dialect="duckdb")).to_arrow_table().columns
        )
    return [i for i, holds in enumerate(first) if holds], keys


@dataclass(frozen=True, slots=True)
class RowSpace:
    """The linear span of some 0/1 rows, as a reduced echelon form modulo a prime.

    The prime is random: an analyst who knew it could ask for rows whose determinant it divides, and evade the audit.
    """

    prime: int
    rows: NDArray[np.int64]
    pivots: tuple[int, ...] = ()

    def add(self, vectors: NDArray[np.bool_]) -> "RowSpace":
        """Return the space with more rows."""
        rows, pivots = self.rows.reshape(len(self.pivots), vectors.shape[1]), list(self.pivots)
        for vector in vectors.astype(np.int64):
            rest = (vector - (vector[pivots][:, None] * rows % self.prime).sum(axis=0)) % self.prime
            if not rest.any():
                continue
            pivot = int(np.flatnonzero(rest)[0])
            rest = rest * pow(int(rest[pivot]), -1, self.prime) % self.prime
            rows = np.vstack([(rows - rows[:, [pivot]] * rest % self.prime) % self.prime, rest])
            pivots.append(pivot)
        return RowSpace(self.prime, rows, tuple(pivots))

    def singles(self) -> list[int]:
        """Return the cells (or people) whose own value follows: in reduced form their unit vectors are rows."""
        return [pivot for pivot, row in zip(self.pivots, self.rows, strict=True) if np.count_nonzero(row) == 1]


def secret_prime() -> int:
    """Draw a prime of 31 bits from the system's randomness. Products of two residues then fit 64 bits."""
    divisors = np.arange(3, 46_341, 2)
    while True:
        candidate = 2**30 + 2 * int(uniform(2**29)) + 1
        if (candidate % divisors).all():
            return candidate
