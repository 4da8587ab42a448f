"""Arrow datasets for DuckDB, with column types in which no cell can stop a scan, and the SQL that reads them back.

DuckDB assumes that Arrow text is valid UTF-8 and fails on a row where it is not, and it converts seconds and
milliseconds to microseconds, which fails beyond the year 294246. So text is passed as bytes and such timestamps as
integers; their SQL returns NULL for unreadable values. Arrow itself makes no cast that could fail: every file is read
in the types of its own footer, not in those of the dataset.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloister.data.dialect import dialect_of
from cloister.data.frames import decoded, wide
from cloister.data.schema import Table
from cloister.privacy.errors import BadSource

__all__ = ["Part", "datasets_of", "is_dataset", "known_to_duckdb", "parquet_dataset", "parts_of"]

_SAY = dialect_of("duckdb")
_MOST = 2**62  # microseconds that DuckDB holds, with room to spare
_STEPS = {"s": 10**6, "ms": 10**3}


@dataclass(frozen=True, slots=True)
class Part:
    """Files with the same columns.

    Attributes:
        dataset: the files, in types in which no cell can fail.
        columns: each column's name, and the SQL that reads it.
    """

    dataset: Any
    columns: Mapping[str, str]


def is_dataset(source: object) -> bool:
    """Return True for an Arrow dataset, False for a table in memory."""
    return hasattr(source, "scanner") and hasattr(source, "get_fragments")


def datasets_of(dataset: Any) -> list[Any]:
    """Return the child datasets of a dataset.

    Raises:
        BadSource: its files are CSV or JSON: Arrow infers types from some rows and fails at a line of another type.
    """
    from pyarrow.dataset import CsvFileFormat, JsonFileFormat

    if getattr(dataset, "children", None):
        return [leaf for child in dataset.children for leaf in datasets_of(child)]
    if isinstance(getattr(dataset, "format", None), CsvFileFormat | JsonFileFormat):
        raise BadSource("an Arrow dataset of CSV or JSON files stops at a line that does not read. Save it as Parquet.")
    return [dataset]


def parquet_dataset(files: Sequence[str], keys: Sequence[str]) -> Any:
    """Open Parquet files as an Arrow dataset.

    Args:
        files: their paths.
        keys: partition columns whose values are in the paths, as in `year=2026/a.parquet`; they are text.
    """
    import pyarrow as pa
    from pyarrow.dataset import dataset, partitioning

    named = partitioning(pa.schema([(key, pa.string()) for key in keys]), flavor="hive") if keys else None
    return dataset(list(files), format="parquet", partitioning=named)


def parts_of(dataset: Any, facts: Table | None) -> Iterator[Part]:
    """Split a dataset of files into parts, one for each distinct set of columns.

    Args:
        facts: the table's schema; only its columns are read. None reads all.
    """
    import pyarrow as pa
    from pyarrow.dataset import FileSystemDataset

    fragments = list(dataset.get_fragments()) if hasattr(dataset, "files") else []
    if not fragments:  # in memory, or empty
        passed = _all_passed(dataset.schema, facts)
        table = dataset.to_table(columns=list(passed))
        columns = {name: decoded(table.column(name)).cast(_plain(kind)) for name, (kind, _) in passed.items()}
        yield Part(pa.table(columns), _read(passed))
        return
    if dataset.format.default_extname != "parquet":
        _refuse_codes(dataset.schema, facts)
    alike: dict[str, list[Any]] = {}
    for fragment in fragments:
        kinds = [(field.name, str(field.type)) for field in fragment.physical_schema]
        alike.setdefault(repr(kinds), []).append(fragment)
    for some in alike.values():
        schema = some[0].physical_schema
        # Columns that only the paths contain have the dataset's type.
        paths = {field.name: (field.type, "{0}") for field in dataset.schema if field.name not in schema.names}
        passed = _all_passed(schema, facts) | {
            name: column for name, column in paths.items() if _is_wanted(name, facts)
        }
        fields = pa.schema([(name, kind) for name, (kind, _) in passed.items()])
        yield Part(FileSystemDataset(some, fields, dataset.format, dataset.filesystem), _read(passed))


def _refuse_codes(fields: Any, facts: Table | None) -> None:
    """Refuse dictionary columns of Arrow files: their scan stops at a code without a value."""
    import pyarrow as pa

    for field in fields:
        if pa.types.is_dictionary(field.type) and _is_wanted(field.name, facts):
            raise BadSource(
                f"the column {field.name:.60} of an Arrow file is dictionary-encoded, and reading stops at a code "
                "without a value. Save it as Parquet, or as plain values."
            )


def _all_passed(fields: Any, facts: Table | None) -> dict[str, tuple[Any, str]]:
    return {field.name: _passed(field.name, field.type) for field in fields if _is_wanted(field.name, facts)}


def _plain(kind: Any) -> Any:
    """Return the type of a column in memory, in which no codes are left."""
    import pyarrow as pa

    return wide(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _read(passed: Mapping[str, tuple[Any, str]]) -> dict[str, str]:
    return {name: sql.format(_SAY.name(name)) for name, (_, sql) in passed.items()}


def _is_wanted(name: str, facts: Table | None) -> bool:
    return facts is None or name in facts.columns or name == facts.unit


def _passed(name: str, kind: Any) -> tuple[Any, str]:
    """Return the Arrow type in which a column is passed to DuckDB, and the SQL that reads it; {0} is its name."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        passed, sql = _passed(name, kind.value_type)
        # DuckDB looks texts up: decoded by Arrow, a long one in many rows would exceed an array of 2 GiB.
        looked_up = pa.types.is_binary(passed) or pa.types.is_large_binary(passed)
        return (pa.dictionary(kind.index_type, passed) if looked_up else passed), sql
    if pa.types.is_run_end_encoded(kind):
        raise BadSource(f"the column {name:.60} is run-end encoded, which cannot be read. Save it as plain values.")
    if pa.types.is_null(kind):
        return pa.null(), "NULL"
    if pa.types.is_string(kind):
        return pa.binary(), "TRY(decode({0}))"
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.large_binary(), "TRY(decode({0}))"
    if pa.types.is_timestamp(kind) and kind.unit in _STEPS:
        step = _STEPS[kind.unit]
        fits = "{0} BETWEEN " + f"{-_MOST // step} AND {_MOST // step}"
        return pa.int64(), f"CASE WHEN {fits} THEN make_timestamp({{0}} * {step}) END"
    return known_to_duckdb(name, kind), "{0}"


def known_to_duckdb(name: str, kind: Any) -> Any:
    """Return the Arrow type in which DuckDB reads a column: the column's own unless DuckDB has no such type.

    Raises:
        BadSource: there is none.
    """
    import pyarrow as pa

    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal(kind) and kind.scale < 0:
        raise BadSource(
            f"the column {name:.60} is {kind!s:.60}, a decimal of negative scale, which cannot be read. Save it as "
            "integers or with scale 0."
        )
    if pa.types.is_decimal256(kind):  # DuckDB reads numbers from text
        return pa.large_string()
    inner = [kind.field(i).type for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    if pa.types.is_union(kind) or any(known_to_duckdb(name, child) != child for child in inner):
        raise BadSource(f"the column {name:.60} is {kind!s:.60}, which cannot be read. Save it as plain values.")
    return kind
