"""Write a release so that what a reader of the file reads is what was verified, or write nothing.

    rows ─► temporary file beside the target ─► read back as its readers do ─► verified ─► facts ─► both renamed

A CSV file holds text only: NULL and "" look alike to most readers, and words such as NA are read as missing. So a CSV
file is verified twice, as Cloister reads it and as readers do that guess types (Arrow; pandas, which reads None as
missing, and whole numbers as doubles where some are missing). An existing file is replaced only when the new one is
complete and confirmed.
"""

import json
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from cloister.anonymize.claims import check_claims
from cloister.anonymize.models import Model
from cloister.anonymize.planning.source import read_rows
from cloister.privacy.errors import BadInput, CloisterError, NotPrivate

__all__ = ["SIDE", "Claims", "readings", "refuse_csv", "write_files", "write_release"]

SIDE = ".anonymized.json"

_MISSING = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "NaT", "None", "n/a", "nan", "null",
]  # fmt: skip

Confirm = Callable[[Path], None]


@dataclass(frozen=True)
class Claims:
    """Rows that are to be written, and what every reader of the file must find confirmed.

    Attributes:
        rows: in any order; that of the file says nothing about it.
        models: what they satisfy.
        quasi, sensitive: the roles of columns.
        population: generalised in the same way, for models that compare with it.
    """

    rows: pa.Table
    models: Sequence[Model]
    quasi: Sequence[str]
    sensitive: Sequence[str]
    population: pa.Table | None = None


def write_release(claims: Claims, facts: Mapping[str, Any], path: Path, *, parquet: bool) -> None:
    """Write rows, sorted by their values, and a file of their facts beside them: both, or neither.

    Args:
        claims: the rows, and what they satisfy.
        facts: published with them.
        path: the file.
        parquet: True to write Parquet, False for CSV.

    Raises:
        NotPrivate: the file, as it is read, does not satisfy the models.
        BadInput: the rows cannot be written in this form, or the path cannot be written.
    """
    claims = replace(claims, rows=_sorted(claims))
    text = json.dumps(_plain(facts), indent=2, default=str, allow_nan=False) + "\n"

    def confirm(content: Path) -> None:
        _confirm(claims, content, path, parquet)

    if not parquet:
        refuse_csv(claims.rows, [*claims.quasi, *claims.sensitive])
    write_files({path: claims.rows, path.with_name(path.name + SIDE): text}, confirm, parquet=parquet)


def _sorted(claims: Claims) -> pa.Table:
    """Return the rows in an order that says nothing about the order of the original ones."""
    first = dict.fromkeys([*claims.quasi, *claims.sensitive, *claims.rows.column_names])
    kinds = {name: claims.rows.schema.field(name).type for name in first}
    unordered = (pa.types.is_nested, pa.types.is_null)
    return claims.rows.sort_by(
        [(name, "ascending") for name, kind in kinds.items() if not any(check(kind) for check in unordered)]
    )


def write_files(contents: Mapping[Path, pa.Table | str], confirm: Confirm, *, parquet: bool = False) -> None:
    """Write tables and texts to temporary files, confirm the first one, and rename all of them or none.

    Args:
        contents: for each path a table or a text.
        confirm: called with the temporary file of the first path; an error stops everything.
        parquet: True to write tables as Parquet, False for CSV.
    """
    parts: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            if path.is_dir():
                raise BadInput(f"{path} is a folder. Give the name of a file.")
            parts[path] = _part(path, ".parquet" if parquet else ".csv")
            _fill(parts[path], path, content, parquet)
        confirm(next(iter(parts.values())))
        _rename(parts)
    except OSError as failure:
        raise BadInput(f"the file cannot be written: {failure.strerror}. Nothing was written.") from None
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _part(path: Path, ending: str) -> Path:
    """Return a new temporary file in the folder of the target, with the mode of any file opened for writing."""
    name = path.parent / f"unconfirmed-{secrets.token_hex(8)}{ending}"
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return name


def _fill(part: Path, path: Path, content: pa.Table | str, parquet: bool) -> None:
    if isinstance(content, str):
        part.write_text(content, encoding="utf-8")
    else:
        try:
            (pq.write_table if parquet else pcsv.write_csv)(content, os.fspath(part))
        except pa.ArrowException:
            raise BadInput(
                f"the rows cannot be written to {path.name}: a column holds lists, bytes or another type that the form "
                "does not hold. Convert it to text, drop it, or write Parquet. Nothing was written."
            ) from None
    with part.open("rb") as file:
        os.fsync(file.fileno())


def _rename(parts: Mapping[Path, Path]) -> None:
    """Put all files in their places; if one cannot be, put the old ones back.

    Old files that describe the first one are taken away before it is replaced, and new ones come after it: if the
    process ends in between, no file describes another one.
    """
    kept: dict[Path, Path | None] = {}
    try:
        for path in reversed(list(parts)):
            kept[path] = _kept(path)
            if len(kept) < len(parts):
                path.unlink(missing_ok=True)
        for path, part in parts.items():
            part.replace(path)
    except OSError:
        for path, old in reversed(kept.items()):
            with suppress(OSError):
                path.unlink(missing_ok=True) if old is None else old.replace(path)
        raise
    finally:
        for old in kept.values():
            if old is not None:
                old.unlink(missing_ok=True)


def _kept(path: Path) -> Path | None:
    """Return a second name for an existing file, until its successor is in place."""
    if not path.exists():
        return None
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem[:80]}-", suffix=".old")
    os.close(descriptor)
    Path(name).unlink()
    os.link(path, name)
    return Path(name)


def _plain(value: Any) -> Any:
    """Return facts without numbers that JSON does not have: an undefined measure is null."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def refuse_csv(rows: pa.Table, names: list[str]) -> None:
    """Refuse columns in which a reader of CSV cannot tell a missing value from an empty one."""
    for name in names:
        column = rows.column(name)
        if column.null_count and pa.types.is_string(column.type) and pc.any(pc.equal(column, "")).as_py():
            raise BadInput(
                f"{name} has missing values and empty texts, which are one value in a CSV file. Write Parquet, or make "
                "them equal first. Nothing was written."
            )


def _confirm(claims: Claims, content: Path, path: Path, parquet: bool) -> None:
    """Verify what readers of a written file read."""
    from cloister.anonymize.table import failures

    for reading, rows in readings(content, claims, parquet):
        try:
            checked = check_claims(
                rows, claims.models, quasi=claims.quasi, sensitive=claims.sensitive, population=claims.population
            )
            problems = [problem for model in claims.models for problem in failures(checked, model)]
        except CloisterError as error:
            problems = [str(error).removeprefix(f"{error.code}: ")]
        if rows.num_rows != claims.rows.num_rows:
            problems = [f"it has {rows.num_rows:,} rows instead of {claims.rows.num_rows:,}"]
        if problems:
            raise NotPrivate(
                f"{path.name} was not written: {reading}, it would not satisfy its label: {'; '.join(problems)}. "
                + ("" if parquet else "Write Parquet, which keeps types.")
            )


def readings(content: Path, claims: Claims, parquet: bool) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of a file as its readers read them."""
    if parquet:
        yield "read back", pq.read_table(content)
        return
    yield "read back", read_rows(content, typed=claims.sensitive)
    quasi = dict.fromkeys(claims.quasi, pa.string())  # labels, which nobody reads as numbers
    try:
        rows = _guessed(content, quasi)
    except pa.ArrowInvalid:  # a column whose first values are numbers and later ones are not
        rows = _guessed(content, dict.fromkeys(claims.rows.column_names, pa.string()))
    yield "with types guessed by the reader", rows


def _guessed(content: Path, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Read a file with every word that some reader takes for missing, and large whole numbers as doubles."""
    options = pcsv.ConvertOptions(strings_can_be_null=True, column_types=dict(types), null_values=_MISSING)
    parsing = pcsv.ParseOptions(newlines_in_values=True)
    rows = pcsv.read_csv(content, parse_options=parsing, convert_options=options)
    for place, field in enumerate(rows.schema):
        if pa.types.is_integer(field.type) and _is_large(rows.column(place)):
            rows = rows.set_column(place, field.name, rows.column(place).cast(pa.float64(), safe=False))
    return rows


def _is_large(numbers: pa.ChunkedArray) -> bool:
    """Return True if a whole number has no double of its own."""
    ends = pc.min_max(numbers).as_py()
    return any(number is not None and abs(number) > 2**53 for number in ends.values())
