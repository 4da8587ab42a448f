"""Checks of a submitted synthetic table against what is public of the dataset.

    rows        Parquet, whose columns, types and values the schema allows; what it rules out does not occur
    metadata file   whole, of this very file, marked private, for the schema's unit; its receipt holds under a given key

The rows are read in a process with limits (`datasets/bounded.py`): a small file may unpack to a huge table.

Nothing here reads a row of the dataset. It cannot be checked that the rows were made as the metadata file says.
"""

import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from cloister.data.schema import Column, Schema, Table
from cloister.hub.core.settings import Settings
from cloister.hub.datasets.bounded import run_bounded
from cloister.hub.datasets.unpack import unpack
from cloister.hub.jobs.job_types.synthesise.form import MOST_CELLS, MOST_ROWS
from cloister.privacy.errors import BadForm, BadInput, Broken, CloisterError, NotPrivate
from cloister.privacy.loss import Loss
from cloister.synth.output.request import is_digest
from cloister.synth.output.shared_table import KIND, HandedTable, meets

__all__ = ["Described", "Given", "read_given", "receive"]


# Check that rows are allowed by the schema: types, bounds, categories, impossible values, dependencies.
#
# For rows that an owner made and wants to share. Output of our own generators always fits; anything else was made
# with another schema, was changed, or is no synthetic table.


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
_SCHEMA_CHECK_AGAIN = "Make it anew with the schema of this dataset."


def check_rows(rows: pa.Table, table: Table) -> None:
    """Refuse rows that the schema does not allow. Every column must be one of the table's.

    Raises:
        BadForm: with the column or the rule, in how many rows, and what to do.
    """
    read = {name: _column(rows.column(name), table.columns[name]) for name in rows.column_names}
    for rule in table.never:
        if set(rule) <= set(read):
            matches: Any = pa.array([True] * rows.num_rows)
            for name, wanted in rule.items():
                integer = table.columns[name].type == "integer"
                matches = pc.and_(matches, meets(read[name], _whole(wanted) if integer else wanted))
            _refuse(pc.sum(matches).as_py(), f"are what never occurs: {rule}")
    for left, right in table.determines:
        if {*left, right} <= set(read):
            pairs = pa.table({name: read[name] for name in (*left, right)}).group_by([*left, right]).aggregate([])
            several = pairs.num_rows - pairs.group_by(list(left)).aggregate([]).num_rows
            _refuse(several, f"have another {right} than rows with the same {', '.join(left)}, which decides it")


def _column(values: Any, column: Column) -> Any:
    """Return a column in the schema's type, after checking it."""
    fits, kind = _KINDS[column.type]
    try:
        if not fits(values.type):
            raise pa.ArrowInvalid
        read = values.cast(kind).combine_chunks()
    except pa.ArrowInvalid:
        raise BadForm(
            f"{column.name} holds {values.type}, and is {column.type} in the schema. {_SCHEMA_CHECK_AGAIN}"
        ) from None
    if not column.nullable:
        _refuse(read.null_count, f"have no {column.name}, which is never missing")
    present = read.drop_null()
    if column.categories is not None:
        allowed, words = pc.is_in(present, value_set=pa.array(column.categories, kind)), "is not among its categories"
    elif column.type == "boolean":
        return read
    elif column.type == "text":
        # Without public values every row gets a fresh name; any other text could be a real person's.
        allowed, words = pc.match_substring_regex(present, _PSEUDONYM), "is no fresh pseudonym: it has no categories"
    elif column.bounds is not None:
        low, high = column.bounds
        allowed = pc.and_(
            pc.greater_equal(present, pa.scalar(low, kind)), pc.less_equal(present, pa.scalar(high, kind))
        )
        words = f"is not within {column.bounds[0]} and {column.bounds[1]}"
    else:
        raise BadForm(f"{column.name} has no bounds and no categories in the schema. Give some, or make it without.")
    _refuse(len(present) - (pc.sum(allowed).as_py() or 0), f"have a {column.name} that {words}")
    return read


def _whole(wanted: Any) -> Any:
    """Rewrite a condition on whole numbers in whole numbers: no row has a value between two of them."""
    if isinstance(wanted, Mapping):
        return wanted
    listed = wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
    return [
        value if value is None else int(value)
        for value in listed
        if value is None or (value == int(value) and _LEAST <= value <= _MOST)
    ]


def _refuse(count: int | None, words: str) -> None:
    if count:
        raise BadForm(f"{count:,} row{'' if count == 1 else 's'} {words}. {_SCHEMA_CHECK_AGAIN}")


MOST_BYTES = 32 * 2**20
_MOST_SIDE = 2**20
_UNPACKED = 512 * 2**20
_DEEPEST = 12
_LONGEST_TEXT = 10_000
_SIDE = {
    "cloister", "method", "table", "rows", "private", "loss", "unit", "neighbours", "columns", "never", "determines",
    "estimated rows of the real table", "measured", "chosen", "expected error", "receipt",
}  # fmt: skip
_MORE = {
    "loss as epsilon", "rows left out", "score", "settings", "sha256", "signature",
    "standard error of the estimated rows",
}  # fmt: skip
_AGAIN = "Upload both files as `cloister synth make` wrote them."


@dataclass(frozen=True, slots=True)
class Given:
    """Table that may be submitted.

    Attributes:
        facts: the schema's facts on the table it was made from.
        handed: its rows and its metadata file.
        content: the bytes of the file.
        loss: the loss that the metadata file states.
        scoring: the loss of its score, if it has one.
        key: the public key of its receipt; "" if it has no receipt.
    """

    facts: Table
    handed: HandedTable
    content: bytes
    loss: Loss
    scoring: Loss | None
    key: str

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.content).hexdigest()


def read_given(content: bytes, side: bytes, key: str, schema: Schema) -> Given:
    """Read and check submitted files.

    Args:
        content: the table, as Parquet.
        side: its metadata file.
        key: the public key that signed its receipt; may be empty if it has none.
        schema: the schema of the dataset.

    Raises:
        BadForm: with the problem, and what to do.
        NotPrivate: it is marked as not private.
    """
    metadata = _read_side(side)
    rows = _read_rows(content)
    digest = hashlib.sha256(content).hexdigest()
    if metadata.get("sha256", digest) != digest:
        raise BadForm(f"the metadata file is of another table, or the table was changed since. {_AGAIN}")
    if metadata["private"] is not True:
        raise NotPrivate(
            "the metadata file says that the noise came from a seed, which protects nobody. Make it without."
        )
    facts = _facts(metadata, rows, schema)
    check_rows(rows, facts)
    table = HandedTable(metadata, rows, digest)
    loss = _loss(metadata["loss"])
    rough = "standard error of the estimated rows"
    if not isinstance(metadata.get(rough, 0.0), int | float):
        raise BadForm(f"the {rough} in the metadata file is a number. {_AGAIN}")
    if metadata["neighbours"] != str(loss.relation):
        raise BadForm(f"the metadata file names other neighbours than its loss does. {_AGAIN}")
    scoring = None if metadata.get("score") is None else _score(metadata["score"], schema)
    return Given(facts, table, content, loss, scoring, _verified(table, key.strip()))


@dataclass(frozen=True, slots=True)
class Described:
    """Table that may be submitted, without its rows: the part that a web process holds.

    Attributes:
        content: the bytes of the file.
        side: its metadata file.
        names: the names of its columns.
        rows: the number of its rows.
        key: the public key of its receipt; "" if it has no receipt.
        page: the content of its page.
    """

    content: bytes
    side: Mapping[str, Any]
    names: list[str]
    rows: int
    key: str
    page: Mapping[str, Any]

    @property
    def loss(self) -> Loss:
        """Loss that the metadata file states."""
        return Loss.from_json(self.page["making"])

    @property
    def scoring(self) -> Loss | None:
        """Loss of its score, if it has one."""
        return None if self.page["scoring"] is None else Loss.from_json(self.page["scoring"])

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.content).hexdigest()


def receive(
    settings: Settings, content: bytes, side: bytes, key: str, schema: Schema, caller: object = None
) -> Described:
    """Read and check submitted files in a process with limits.

    Raises:
        BadForm, NotPrivate: as `read_given`.
        UploadRefused: it is no whole Parquet, or takes too long or too much memory to read.
    """
    if len(content) > MOST_BYTES:
        raise _too_long()
    return Described(content=content, **run_bounded(settings, _describe, content, side, key, schema, caller=caller))


def _describe(content: bytes, side: bytes, key: str, schema: Schema) -> dict[str, Any]:
    """Describe a table for its page, before the charge: an invalid metadata file costs nothing."""
    from cloister.hub.jobs.job_types.synthesise.result import pictures_of_rows, told_of

    submission = read_given(content, side, key, schema)
    rows = submission.handed.to_arrow()
    try:
        page = told_of(submission.handed.side, rows)
        page |= {"columns": pictures_of_rows(rows, submission.facts, page["real"]), "making": submission.loss.to_json()}
        page |= {"scoring": submission.scoring and submission.scoring.to_json()}
        json.dumps(page, allow_nan=False)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, CloisterError):
            raise
        raise BadForm("the metadata file is not in the form in which `cloister synth make` writes it.") from None
    return {
        "page": page,
        "side": submission.handed.side,
        "names": rows.column_names,
        "rows": len(rows),
        "key": submission.key,
    }


def _read_side(side: bytes) -> dict[str, Any]:
    if len(side) > _MOST_SIDE:
        raise BadForm(
            f"a metadata file has at most {_MOST_SIDE // 2**20} MB. Choose the file that ends with .side.json."
        )
    try:
        metadata = json.loads(side, parse_constant=_no_number, parse_float=_finite)
        json.dumps(metadata, ensure_ascii=False).encode()  # a lone surrogate is no character, and no page could show it
        _check_plain(metadata)
    except (ValueError, RecursionError):
        raise BadForm(f"the metadata file cannot be read. {_AGAIN}") from None
    if not isinstance(metadata, dict) or metadata.get("cloister") != KIND:
        raise BadForm("this is no metadata file of a synthetic table. Choose the file that ends with .side.json.")
    missing, unknown = sorted(_SIDE - set(metadata)), sorted(set(metadata) - _SIDE - _MORE)
    if missing:
        raise BadForm(f"the metadata file is not complete: {', '.join(missing)} is missing. {_AGAIN}")
    if not isinstance(metadata["method"], str) or not metadata["method"].isidentifier() or len(metadata["method"]) > 40:
        raise BadForm("the method in the metadata file is a word such as aim.")
    if not is_digest(metadata.get("settings", "0" * 64)):
        raise BadForm(f"the settings in the metadata file are a hash. {_AGAIN}")
    if unknown:  # any other content would be shown to all users without a charge
        raise BadForm(f"the metadata file has {unknown[0]!r:.60}, which belongs into none. Take it out.")
    return metadata


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _check_plain(value: object, depth: int = 0) -> None:
    """Refuse what no metadata file holds and no page could show: deep nesting, huge whole numbers, long texts."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_plain(name, depth + 1)
            _check_plain(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check_plain(inner, depth + 1)
    elif isinstance(value, str) and len(value) > _LONGEST_TEXT:
        raise ValueError("a text is too long")
    elif isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("a whole number is too large")


def _read_rows(content: bytes) -> pa.Table:
    if len(content) > MOST_BYTES:
        raise _too_long()
    if content[:4] != b"PAR1":
        raise BadForm("the table is not Parquet. Write it with --output table.parquet.")
    opened = unpack(io.BytesIO(content), "table.parquet", _UNPACKED)
    names, pieces, rows = opened.schema.names, [], 0
    for piece in opened.tables(names):
        rows += piece.num_rows
        if rows > MOST_ROWS or rows * len(names) > MOST_CELLS:
            raise BadForm(f"a table here has at most {MOST_ROWS:,} rows and {MOST_CELLS:,} values. Make a smaller one.")
        pieces.append(piece)
    if not rows:
        raise BadForm("the table has no rows.")
    return pa.concat_tables(pieces).combine_chunks()


def _too_long() -> BadForm:
    return BadForm(f"a table here has at most {MOST_BYTES // 2**20} MB. Make one with fewer rows.")


def _facts(metadata: Mapping[str, Any], rows: pa.Table, schema: Schema) -> Table:
    """Return the table of the schema that it was made from, if metadata file, rows and schema agree."""
    private = [table for table in schema.tables.values() if not table.public]
    facts = next((table for table in private if table.name == metadata["table"]), None)
    if facts is None:
        names = ", ".join(table.name for table in private)
        raise BadForm(f"it was made from {metadata['table']!r:.60}, and this dataset has {names}.")
    if metadata["unit"] != str(schema.unit):
        raise BadForm(
            f"it protects {metadata['unit']!s:.80}, and this dataset {schema.unit}. Make it with this schema."
        )
    try:
        listed = {column["name"]: column["type"] for column in metadata["columns"]}
    except (TypeError, KeyError):
        raise BadForm(f"the columns in the metadata file cannot be read. {_AGAIN}") from None
    if list(listed) != rows.column_names or metadata["rows"] != rows.num_rows:
        raise BadForm(
            f"the metadata file speaks of other columns or of another number of rows than there are. {_AGAIN}"
        )
    for name, kind in listed.items():
        if name not in facts.columns:
            raise BadForm(f"there is no column {name!r:.60} in the schema of {facts.name}. Make it without, or add it.")
        if kind != facts.columns[name].type:
            raise BadForm(f"{name} is {kind!s:.20} in the metadata file and {facts.columns[name].type} in the schema.")
    return facts


def _loss(record: Any) -> Loss:
    loss = Loss.from_json(record)
    if not loss.amount or loss.delta >= 1:
        raise BadForm(f"a loss of {loss} is none that a table could have cost. {_AGAIN}")
    return loss


def _score(score: Any, schema: Schema) -> Loss:
    """Return the loss of a score; a score without a charge is the owner's own, and must not be shown."""
    if not isinstance(score, dict) or score.get("publishable") is not True or score.get("private") is not True:
        raise BadForm("its score is none that may be told. Buy one with publishable_score, or take it out.")
    if score.get("unit") != str(schema.unit):
        raise BadForm("its score protects another unit than this dataset. Take it out, or buy another.")
    return _loss(score.get("loss"))


def _verified(table: HandedTable, key: str) -> str:
    """Return the key, if the receipt is valid under it."""
    if table.side["receipt"] is None and "signature" not in table.side:
        return ""
    if not key:
        raise BadForm(
            "it has a receipt: give the public key that signed it, a line like ed25519:…, so that it can be checked. "
            "It is that of the ledger that was charged: `print(ledger.key.public)`."
        )
    try:
        table.verify(key)
    except Broken as error:
        raise BadForm(f"its receipt does not hold: {str(error).partition(': ')[2]}") from None
    except (AttributeError, KeyError, TypeError):
        raise BadInput(f"its receipt cannot be read. {_AGAIN}") from None
    return key
