"""Columns of a dataset for a model, from the schema and through the policy's view."""

from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.dialect import as_double, literal, rounded_near_zero
from cloister.data.private_data import PrivateData
from cloister.data.private_table import PrivateTable, values_of
from cloister.data.schema import Column
from cloister.data.statistics import Value, grid_value
from cloister.learn.base.inputs import check_ends, check_fill
from cloister.privacy.errors import BadBounds, BadInput, BadSchema

__all__ = [
    "Part",
    "PrivateTable",
    "check_filled",
    "check_names",
    "classes_of",
    "columns_as_parts",
    "ends_of",
    "is_number",
    "names_of",
    "parts_of",
    "read_names",
    "read_relation",
    "scaled_cell",
    "values_of",
]

_MOST_CLASSES = 65
_FARTHEST = 1e100  # as in queries: a small number in wider bounds would underflow, an error in PostgreSQL
_TINY = 1e-100  # a difference from a number that is not tiny is at least its last digit


def read_names(
    data: PrivateData, table: str | None, target: str | None, features: Sequence[str] | None, *, predicts: bool = True
) -> tuple[str, ...]:
    """Return the columns to learn from: those named, or all usable ones. Uses public facts alone."""
    if predicts and target is None:
        raise BadInput("say which column of the schema to predict: target='readmitted'.")
    if features is None:
        name = data.relation(table, []).table
        relation = data.relation(name, [column for column, term in data.columns(name).items() if not term.unit])
        features = [column.name for column in relation.columns.values() if column.name != target and _usable(column)]
    chosen = tuple(dict.fromkeys(features))
    if not chosen or target in chosen:
        raise BadInput("features are columns of the table other than the target, at least one.")
    return chosen


def _usable(column: Column) -> bool:
    return column.type == "boolean" or column.categories is not None or column.bounds is not None


def read_relation(
    data: PrivateData, table: str | None, columns: Sequence[str], *, unbounded: bool = False
) -> PrivateTable:
    """Return the rows of a dataset with these columns, through its views. No row is read.

    Args:
        unbounded: True if numbers may lack public bounds, because they will be found.
    """
    if len(set(columns)) < len(columns):
        raise BadInput("name every column once: a feature twice, or the target among the features, tells nothing new.")
    relation: PrivateTable = data.relation(table, tuple(columns))
    for column in relation.columns.values():
        if not (_usable(column) or (unbounded and is_number(column))):
            if column.type in ("date", "timestamp"):
                raise BadSchema(f"{column.name} is a {column.type}: models take numbers, booleans and categories.")
            raise BadSchema(f"{column.name} has neither public bounds nor categories. Give them in the schema.")
        if column.bounds is not None and is_number(column):
            _check_bounds(column)
    return relation


def _check_bounds(column: Column) -> None:
    if max(map(abs, ends_of(column))) > _FARTHEST:
        raise BadSchema(f"{column.name} has bounds beyond {_FARTHEST:g}. Give it narrower ones in the schema.")
    try:
        check_ends(*ends_of(column))
    except BadBounds:
        raise BadSchema(
            f"the bounds of {column.name} are too close together for their size. Give it wider ones in the schema."
        ) from None


def is_number(column: Column) -> bool:
    """Return True if a column is numeric and not categorical."""
    return column.type in ("integer", "real") and column.categories is None


def ends_of(column: Column) -> tuple[float, float]:
    """Return the public bounds of a number."""
    if column.bounds is None:
        raise BadSchema(f"{column.name} has no public bounds. Give them in the schema.")
    low, high = column.bounds
    return float(low), float(high)  # type: ignore[arg-type]


def classes_of(relation: PrivateTable, target: str, classes: Sequence[Any] | None) -> NDArray[Any]:
    """Return the public values of a target, or those of them that were named."""
    column = relation.columns[target]
    values = [value for value in _few_values(column) if value is not None]
    if not values:
        raise BadSchema(f"{target} has no short list of public values. Give it categories in the schema.")
    unknown = [] if classes is None else [value for value in classes if value not in values]
    if unknown:
        examples = ", ".join(repr(value) for value in values[:10]) + (", …" if len(values) > 10 else "")
        raise BadSchema(
            f"classes are among the public values of {target}, which is {column.type} in the schema: {examples}. "
            f"{unknown[0]!r:.40} is none of them."
        )
    listed = [value for value in values if classes is None or value in set(classes)]
    if len(listed) < 2:
        raise BadSchema("a target has at least two public values.")
    return np.asarray(sorted(listed))


def _few_values(column: Column) -> Sequence[Any]:
    """Return the public values of a column: categories, both booleans, or a short range of integers; else none."""
    if column.type != "real" and (column.categories is not None or column.type == "boolean"):
        return values_of(column)
    if column.type == "integer" and column.bounds is not None:
        low, high = (int(end) for end in column.bounds)  # type: ignore[arg-type]
        return range(low, high + 1) if high - low < _MOST_CLASSES else ()
    return ()


Part = tuple[str, Any, str]  # column, value and type


def parts_of(columns: Iterable[Column]) -> list[Part]:
    """Return (column, value, type) of every feature: a number, whose value is None, or an indicator of one value."""
    return [
        (column.name, value, column.type)
        for column in columns
        for value in ((None,) if is_number(column) else values_of(column))
    ]


def columns_as_parts(columns: Mapping[str, Column], names: Sequence[str]) -> list[Part]:
    """Return (column, None, type) of every feature, for a model whose features are the columns themselves."""
    return [(name, None, columns[name].type) for name in names]


def names_of(parts: Iterable[Part]) -> list[str]:
    """Return the names of features: `age` for a number, `ward=surgery` for a value of a column."""
    return [name if value is None else f"{name}={value}" for name, value, _ in parts]


def check_names(parts: Iterable[Part]) -> None:
    """Refuse features of one name: column `a` with the value `b=c`, and column `a=b` with the value `c`."""
    seen: set[str] = set()
    for name in names_of(parts):
        if name in seen:
            raise BadSchema(f"two features would have the name {name:.60}. Leave one of the columns out, or rename it.")
        seen.add(name)


def check_filled(column: Column, fill: float | None) -> None:
    """Refuse a column in which numbers may be missing, unless `fill` is one public number."""
    check_fill(fill)
    if column.nullable and is_number(column) and fill is None:
        raise BadInput(
            f"{column.name} may be NULL. Say nullable: false in the schema, which leaves such rows out, or give fill."
        )


def scaled_cell(relation: PrivateTable, name: str, bits: int, fill: float | None = None) -> Value:
    """Express a number as an integer: its bounds become ∓2^(bits-1), their midpoint 0."""
    column = relation.columns[name]
    low, high = ends_of(column)
    sql: exp.Expression = as_double(exp.column(name, quoted=True))
    filled = column.nullable and fill is not None
    if filled:
        sql = exp.Coalesce(this=sql, expressions=[literal(float(fill or 0))])
    middle, factor = (low + high) / 2, 1 / (high - low)
    difference = exp.Sub(this=sql, expression=literal(middle))
    moved = exp.Paren(this=difference) if abs(middle) > _TINY else rounded_near_zero(difference)
    scaled = exp.Paren(this=exp.Mul(this=moved, expression=literal(factor)))
    # A value already clipped is not compared again, if the bounds themselves map to the right integers: every operation
    # here is monotone, rounding included.
    ends = [floor(_landing(end - middle, middle) * factor * 2.0**bits + 0.5) for end in (low, high)]
    inside = name in relation.clipped and not filled and ends == [-(2 ** (bits - 1)), 2 ** (bits - 1)]
    return grid_value(scaled, -0.5, 0.5, bits, clipped=inside)


def _landing(away: float, middle: float) -> float:
    return away if abs(middle) > _TINY else (away + 1e-84) - 1e-84  # as `rounded_near_zero` does
