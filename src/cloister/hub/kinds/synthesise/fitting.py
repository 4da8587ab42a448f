"""Whether rows are such as the schema allows: types, bounds, categories, what never occurs, what decides what.

For rows that somebody made and wants to hand out. What a generator of ours makes fits by itself; what does not fit was
made with another schema, was changed, or is no synthetic table.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cloister.data.schema import Column, Table
from cloister.privacy.errors import BadForm
from cloister.synth.handed import meets

__all__ = ["check_rows"]

_KINDS: dict[str, tuple[Callable[[Any], bool], Any]] = {
    "integer": (pa.types.is_integer, pa.int64()),
    "real": (lambda kind: pa.types.is_floating(kind) or pa.types.is_integer(kind), pa.float64()),
    "text": (pa.types.is_string, pa.string()),
    "boolean": (pa.types.is_boolean, pa.bool_()),
    "date": (pa.types.is_date, pa.date32()),
    "timestamp": (lambda kind: pa.types.is_timestamp(kind) and kind.tz in (None, "UTC"), pa.timestamp("us")),
}
_LEAST, _MOST = -(2**63), 2**63 - 1
_PSEUDONYM = "^[0-9a-f]{16}$"
_AGAIN = "Make it anew with the schema of this dataset."


def check_rows(rows: pa.Table, table: Table) -> None:
    """Refuse rows that the schema does not allow. Every column of theirs must be one of the table's.

    Raises:
        BadForm: with the column or the rule, in how many rows, and what to do.
    """
    read = {name: _column(rows.column(name), table.columns[name]) for name in rows.column_names}
    for rule in table.never:
        if set(rule) <= set(read):
            found: Any = pa.array([True] * rows.num_rows)
            for name, wanted in rule.items():
                integer = table.columns[name].type == "integer"
                found = pc.and_(found, meets(read[name], _whole(wanted) if integer else wanted))
            _refuse(pc.sum(found).as_py(), f"are what never occurs: {rule}")
    for left, right in table.determines:
        if {*left, right} <= set(read):
            pairs = pa.table({name: read[name] for name in (*left, right)}).group_by([*left, right]).aggregate([])
            several = pairs.num_rows - pairs.group_by(list(left)).aggregate([]).num_rows
            _refuse(several, f"have another {right} than rows with the same {', '.join(left)}, which decides it")


def _column(values: Any, column: Column) -> Any:
    """A column in the schema's type, after it was checked."""
    fits, kind = _KINDS[column.type]
    try:
        if not fits(values.type):
            raise pa.ArrowInvalid
        read = values.cast(kind).combine_chunks()
    except pa.ArrowInvalid:
        raise BadForm(f"{column.name} holds {values.type}, and is {column.type} in the schema. {_AGAIN}") from None
    if not column.nullable:
        _refuse(read.null_count, f"have no {column.name}, which is never missing")
    known = read.drop_null()
    if column.categories is not None:
        allowed, words = pc.is_in(known, value_set=pa.array(column.categories, kind)), "is not among its categories"
    elif column.type == "boolean":
        return read
    elif column.type == "text":
        # Without public values every row gets a fresh name; any other text could be somebody's.
        allowed, words = pc.match_substring_regex(known, _PSEUDONYM), "is no fresh pseudonym: it has no categories"
    elif column.bounds is not None:
        low, high = column.bounds
        allowed = pc.and_(pc.greater_equal(known, pa.scalar(low, kind)), pc.less_equal(known, pa.scalar(high, kind)))
        words = f"is not within {column.bounds[0]} and {column.bounds[1]}"
    else:
        raise BadForm(f"{column.name} has no bounds and no categories in the schema. Give some, or make it without.")
    _refuse(len(known) - (pc.sum(allowed).as_py() or 0), f"have a {column.name} that {words}")
    return read


def _whole(wanted: Any) -> Any:
    """A condition on whole numbers in whole numbers: a rule may draw its line between two of them, and name none."""
    if isinstance(wanted, Mapping):
        return {word: min(max(math.ceil(end), _LEAST), _MOST) for word, end in wanted.items()}
    listed = wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
    return [
        one if one is None else int(one)
        for one in listed
        if one is None or (one == int(one) and _LEAST <= one <= _MOST)
    ]


def _refuse(count: int | None, words: str) -> None:
    if count:
        raise BadForm(f"{count:,} row{'' if count == 1 else 's'} {words}. {_AGAIN}")
