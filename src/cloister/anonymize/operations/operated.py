"""The result of an operation, a chain of operations, and numbers read from and written to a column."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cloister.anonymize.claims import check_claims, describe_models
from cloister.anonymize.models import Model, Requirement
from cloister.anonymize.planning.request import parse_models
from cloister.anonymize.release_file import Claims, write_release
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadNumber, BadSchema, NotPrivate
from cloister.privacy.noise import SYSTEM, SeededSource, Source
from cloister.version import __version__

__all__ = [
    "Floats",
    "Integers",
    "Operated",
    "Step",
    "changed_cells",
    "codes",
    "columns_of",
    "from_numbers",
    "generator",
    "is_number",
    "pipe",
    "read",
    "step",
    "to_numbers",
    "with_column",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Operated:
    """Rows after an operation.

    Attributes:
        rows: the changed table. It is not differentially private.
        log: a sentence for each change: column, parameters, number of cells. It is for the owner, not for publication:
            counts and thresholds come from the rows.
        note: what the operation does not protect against.
    """

    rows: pa.Table
    log: tuple[str, ...]
    note: str

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.rows

    def to_pandas(self) -> Any:
        """Return the rows as a pandas frame."""
        return self.rows.to_pandas()

    def write(
        self,
        path: str | os.PathLike[str],
        *,
        require: str | Model | Sequence[Model],
        quasi: Sequence[str],
        sensitive: Sequence[str] = (),
    ) -> None:
        """Write the rows to a new .csv or .parquet file with a file of facts, if they satisfy models.

        An operation promises nothing by itself. So the models are named here, and the independent verifier confirms
        them for the file as it is read back; otherwise nothing is written. The log is not published.

        Args:
            path: a file whose name ends in .parquet, or one of CSV.
            require: models, or text in the form of a label, such as "k=5".
            quasi, sensitive: roles of columns.

        Raises:
            NotPrivate: with the models that the rows, as they are read, do not satisfy.
            BadInput: a column whose name suggests a role has none, or the file cannot be written.
        """
        from cloister.anonymize.table import Roles, failures

        models = Requirement.of(parse_models(require, sensitive) if isinstance(require, str) else require)
        roles = Roles.of(self.rows, models, quasi=quasi, sensitive=sensitive)
        checked = check_claims(self.rows, models.models, quasi=roles.quasi, sensitive=roles.sensitive)
        problems = [problem for model in models.models for problem in failures(checked, model)]
        if problems:
            raise NotPrivate(f"the rows do not satisfy the models, and are not written: {'; '.join(problems)}.")
        facts = {
            "label": models.label,
            "differentially_private": False,
            "models": describe_models(models, self.rows),
            "quasi_identifiers": list(roles.quasi),
            "sensitive": list(roles.sensitive),
            "kept_unchanged": list(roles.plain),
            "rows": self.rows.num_rows,
            "note": self.note,
            "made_with": f"cloister {__version__}",
        }
        claims = Claims(self.rows, models.models, roles.quasi, roles.sensitive)
        write_release(claims, facts, Path(path), parquet=Path(path).suffix.lower() == ".parquet")


@dataclass(frozen=True)
class Step:
    """An operation with its options, to be applied to rows later."""

    operation: Callable[..., Operated]
    options: dict[str, Any] = field(default_factory=dict, repr=False)  # a key may be among them

    def __call__(self, rows: object) -> Operated:
        """Apply the operation."""
        return self.operation(rows, **self.options)


def step(operation: Callable[..., Operated], **options: Any) -> Step:
    """Return an operation with its options, as a step of `pipe`."""
    return Step(operation, options)


def pipe(rows: object, steps: Iterable[Callable[[Any], Operated]]) -> Operated:
    """Apply operations one after the other.

    Args:
        rows: the table.
        steps: `step(operation, option=…)`, or any function that takes rows and returns `Operated`.

    Returns:
        The result of the last step. Its log has the sentences of all steps in order, its note each of their notes.

    >>> from cloister.anonymize.operations.masking import mask, suppress_columns
    >>> table = {"name": ["John", "Emily"], "zip": ["33617", "33613"]}
    >>> result = pipe(table, [step(suppress_columns, columns="name"), step(mask, columns="zip", keep_first=3)])
    >>> result.rows.to_pydict()
    {'zip': ['336**', '336**']}
    >>> for sentence in result.log:
    ...     print(sentence)
    Column name suppressed: 2 cells.
    Column zip masked: the first 3 and the last 0 characters kept, 2 of 2 cells changed.
    """
    result = Operated(to_arrow(rows), (), "")
    log: list[str] = []
    notes: dict[str, None] = {}
    for position, operation in enumerate(steps, start=1):
        if hasattr(result, "sensitive_table"):
            raise BadSchema(
                f"step {position} follows an anatomy, which gives two tables. Make the anatomy the last step."
            )
        result = operation(result.rows)
        if not isinstance(result, Operated):
            raise BadSchema(f"step {position} returned a {type(result).__name__}. A step returns Operated.")
        log.extend(result.log)
        notes[result.note] = None
    return replace(result, log=tuple(log), note=" ".join(note for note in notes if note))


def read(rows: object, columns: str | Iterable[str]) -> tuple[pa.Table, tuple[str, ...]]:
    """Return the Arrow table and the checked names of columns."""
    table = to_arrow(rows)
    return table, columns_of(table, columns)


def columns_of(table: pa.Table, columns: str | Iterable[str]) -> tuple[str, ...]:
    """Check that columns exist, are named once, and that there is at least one.

    Raises:
        BadSchema: otherwise.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    missing = [str(name) for name in names if name not in table.column_names]
    if missing:
        raise BadSchema(f"the rows have no column {', '.join(missing)}. They have: {', '.join(table.column_names)}.")
    if not names or len(set(names)) < len(names):
        raise BadSchema("name at least one column, and each column once.")
    return names


def generator(random_state: int | None) -> np.random.Generator:
    """Return a numpy generator seeded from the system's randomness, or from a seed in tests and lessons."""
    source: Source = SYSTEM if random_state is None else SeededSource(random_state)
    return np.random.default_rng(int.from_bytes(source.bytes(32), "little"))


def to_numbers(table: pa.Table, name: str) -> Floats:
    """Return a column as doubles; NULL is NaN. Dates are days and timestamps seconds since 1970.

    Raises:
        BadSchema: the column holds text, truth values or lists.
    """
    column = table.column(name)
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        ticks = column.cast(pa.int64()).cast(pa.float64(), safe=False)
        return _doubles(ticks) / _PER_SECOND[kind.unit]
    if pa.types.is_date(kind):
        return _doubles(column.cast(pa.date32()).cast(pa.int32()).cast(pa.float64()))
    if is_number(kind):
        values = _doubles(column.cast(pa.float64(), safe=False))
        if np.isinf(values).any():
            raise BadSchema(f"column {name} has infinite cells. Suppress them first.")
        return values
    raise BadSchema(f"column {name} is of type {kind}; this operation needs numbers, dates or timestamps.")


def is_number(kind: pa.DataType) -> bool:
    """Return True for integers, floats and decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _doubles(column: pa.ChunkedArray) -> Floats:
    return np.array(column.to_numpy(), dtype=np.float64)


def from_numbers(values: Floats, kind: pa.DataType) -> pa.Array:
    """Write doubles as a column of a type; NaN becomes NULL. Integers, decimals, dates are rounded to the nearest.

    Raises:
        BadNumber: a value does not fit into the type.
    """
    gone = np.isnan(values)
    clean = np.where(gone, 0.0, values) + 0.0
    if pa.types.is_floating(kind):
        return pa.array(clean, mask=gone).cast(kind, safe=False)
    try:
        if pa.types.is_decimal(kind):
            return pa.array(clean, mask=gone).cast(kind)
        if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
            clean = clean * _PER_SECOND[kind.unit]
        if np.abs(clean).max(initial=0.0) >= 2.0**63:
            raise pa.ArrowInvalid("beyond 64 bits")
        integers = pa.array(np.rint(clean).astype(np.int64), mask=gone)
        if pa.types.is_date(kind):
            return integers.cast(pa.int32()).cast(pa.date32()).cast(kind)
        return integers.cast(kind)
    except pa.ArrowInvalid:
        raise BadNumber(
            f"a result does not fit into the type {kind} of its column. Give bounds, or cast the column."
        ) from None


def codes(table: pa.Table, name: str) -> tuple[Integers, pa.Array]:
    """Return a column as positions in the array of its distinct values. NULL is a value of its own."""
    column = table.column(name).combine_chunks()
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64), encoded.dictionary


def with_column(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the table with a column replaced, at its position."""
    return table.set_column(table.column_names.index(name), name, column)


def changed_cells(before: pa.ChunkedArray, after: pa.Array | pa.ChunkedArray) -> int:
    """Count cells whose value or missingness differs. Both columns have the same type."""
    equal = pc.fill_null(pc.equal(before, after), False)
    both_null = pc.and_(pc.is_null(before), pc.is_null(after))
    return len(before) - (pc.sum(pc.or_(equal, both_null)).as_py() or 0)
