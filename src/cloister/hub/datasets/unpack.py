"""Uploaded files as tables of rows: CSV, gzipped CSV and Parquet, within limits, without a copy on the disk.

Columns of a CSV are text; nothing is guessed from values. Lines that cannot be read are left out and short ones are
padded with NULL, by the same reader that opens CSV files elsewhere (`cloister.data.engines.duckdb`). Text that is not
valid UTF-8 becomes NULL.

No message here contains a value. Headers are names, which the schema states in public anyway.
"""

import csv
import gzip
import io
import os
import re
import threading
import zlib
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from cloister.data.engines.csv_lines import LONGEST_LINE, line_ends
from cloister.privacy.errors import UploadRefused

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Unpacked", "unpack"]

GROWTH = 10  # rows may take this many times the largest upload
_RATIO = 200  # text compresses ten- to twentyfold; gzip reaches at most a thousandfold
_FREE = 64 * 2**20  # below this size, the ratio does not matter
_SEGMENT = 24 * 2**20
_LINE = 16 * 2**20  # the longest line, and the longest text in a row of Parquet
_CELLS = 32 * 2**20  # values of a segment: lines that are not padded have fewer values than bytes
_BATCH = 131_072
_PIECE = 64 * 2**20  # of text that is written out at a time
_COLUMNS = 10_000
_ROWS = 10**11
_ROW_GROUP = 4 * 2**30
_CSV = (
    "auto_detect = false, header = false, quote = '\"', escape = '\"', parallel = false, "
    "ignore_errors = true, null_padding = true, strict_mode = false"
)


class Unpacked:
    """Opened uploaded file: its columns, and its rows as Arrow tables.

    Attributes:
        schema: Arrow names and types of all its columns.
    """

    def __init__(self, schema: "pa.Schema", rows: "Callable[[list[str]], Iterator[pa.Table]]") -> None:
        self.schema = schema
        self._rows = rows

    def tables(self, columns: Collection[str]) -> "Iterator[pa.Table]":
        """Yield the rows in batches, in some of the columns."""
        return self._rows([name for name in self.schema.names if name in columns])

    def kept(self, columns: Collection[str]) -> "pa.Schema":
        """Return the schema of `tables(columns)`."""
        import pyarrow as pa

        return pa.schema([field for field in self.schema if field.name in columns])


def unpack(file: Any, name: str, limit: int) -> Unpacked:
    """Open an uploaded file.

    Args:
        file: a seekable binary file.
        name: the file name, whose ending gives its format.
        limit: the limit of the unpacked rows in bytes.

    Raises:
        UploadRefused: it is not what its name says, or would unpack to more than the limit.
    """
    if name.lower().endswith((".parquet", ".pq")):
        return _parquet(file, limit)
    raw: Any = io.BufferedReader(file, 2**20)
    if name.lower().endswith(".gz"):
        raw = _Inflated(raw, file, limit)
    return _csv(raw, limit)


# CSV


class _Inflated:
    """Content of a gzip file, refused if its ratio is implausible."""

    def __init__(self, packed: BinaryIO, counted: Any, limit: int) -> None:
        self._file, self._counted, self._limit, self._given = gzip.GzipFile(fileobj=packed), counted, limit, 0

    def read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except (EOFError, OSError, zlib.error):
            raise UploadRefused("the file is not whole gzip. Pack it again and send it anew.") from None
        self._given += len(data)
        if self._given > _FREE and self._given > _RATIO * self._counted.tell():
            raise UploadRefused(f"the file unpacks to more than {_RATIO} times its size. Send it unpacked.")
        return data


def _csv(raw: Any, limit: int) -> Unpacked:
    import pyarrow as pa

    begin = raw.read(2**20)
    line = re.match(rb"[^\r\n]*", begin)
    rest = begin[line.end() :] if line else b""
    separator, names = _header(begin[: line.end()] if line else b"")
    rest = rest[2:] if rest.startswith(b"\r\n") else rest[1:]
    schema = pa.schema([(name, pa.string()) for name in names])
    return Unpacked(
        schema,
        lambda columns: _csv_tables(_segments(raw, rest, limit, separator, len(names)), separator, names, columns),
    )


def _header(line: bytes) -> tuple[str, list[str]]:
    """Return the separator and the column names, from the first line alone."""
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UploadRefused("the first line is not readable text. Save the file as UTF-8 CSV.") from None
    separator = max(",;\t|", key=text.count)
    names = next(csv.reader(io.StringIO(text), delimiter=separator), [])
    if not names or not all(names) or len({name.lower() for name in names}) < len(names) or len(names) > _COLUMNS:
        raise UploadRefused(f"the first line must name every column, each differently, at most {_COLUMNS}.")
    return separator, names


def _segments(raw: Any, rest: bytes, limit: int, separator: str, columns: int) -> Iterator[bytes]:
    """Yield whole lines, some megabytes at a time, without those that DuckDB would leave out as too long.

    They are cut where lines truly end: a cut within a quoted value would turn quotes around in all later lines.
    """
    block, total = b"", 0

    def read() -> bytes:
        nonlocal block, rest, total
        block, rest = rest, b""
        if not block:
            block = raw.read(_SEGMENT)
            total += len(block)
            if total > limit:
                raise _too_large(limit)
        return block

    held, start = b"", 0  # the line that has not ended, or nothing once it is too long; where it began
    for ends, read_to in line_ends(read, ord(separator)):
        behind = ends + 1
        bounds = np.concatenate(([start], behind, *([] if ends.size else [[read_to]])))
        if max(np.diff(bounds).max(), read_to - int(bounds[-1])) > _LINE:
            raise UploadRefused(
                f"a line has more than {_LINE // 2**20} MB, or a quote is never closed. Correct it and send it anew."
            )
        text, base = held + block, read_to - len(held) - len(block)
        if ends.size:
            yield from _narrowed(text, np.concatenate(([start], behind)) - base, columns)
            text, start = text[int(behind[-1]) - base :], int(behind[-1])
        held = text if read_to - start <= LONGEST_LINE else b""
    if held:
        yield held


def _narrowed(text: bytes, bounds: "NDArray[np.int64]", columns: int) -> Iterator[bytes]:
    """Yield the lines between these positions, a few at a time if padding would make many more values of them.

    Of a line that is too long, the beginning may be missing.
    """
    short = np.diff(bounds) - 1 <= LONGEST_LINE
    few = max(1, _CELLS // columns)
    for run in np.split(np.arange(short.size), np.flatnonzero(~short)):
        lines = run[short[run]]
        for first in range(0, lines.size, few):
            some = lines[first : first + few]
            yield text[int(bounds[some[0]]) : int(bounds[some[-1] + 1])]


def _csv_tables(
    segments: Iterator[bytes], separator: str, names: list[str], columns: list[str]
) -> "Iterator[pa.Table]":
    import duckdb

    from cloister.data.dialect import dialect_of

    say = dialect_of("duckdb")
    described = ", ".join(f"{say.text(name)}: 'VARCHAR'" for name in names)
    selected = ", ".join(map(say.name, columns)) or "1 AS _"
    connection = duckdb.connect(":memory:")
    connection.execute("SET threads = 1")
    connection.execute("SET temp_directory = ''")  # fail rather than write rows to the disk
    try:
        for segment in segments:
            with _Pipe(segment) as path:
                sql = (
                    f"SELECT {selected} FROM read_csv({say.text(path)}, delim = {say.text(separator)}, "  # noqa: S608
                    f"columns = {{{described}}}, {_CSV})"
                )
                try:
                    table = connection.sql(sql).to_arrow_table()
                except (duckdb.Error, OSError):
                    raise UploadRefused(
                        "the file cannot be read as CSV. Save it as UTF-8 CSV and send it anew."
                    ) from None
            yield table.select(columns).cast(_text_schema(columns))
    finally:
        connection.close()


def _text_schema(columns: list[str]) -> "pa.Schema":
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in columns])


class _Pipe:
    """Bytes in memory under a path, as DuckDB needs them: a pipe that a thread fills."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> str:
        self._out, self._in = os.pipe()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()
        return f"/dev/fd/{self._out}"

    def _fill(self) -> None:
        try:
            with os.fdopen(self._in, "wb") as file:
                file.write(self._data)
        except BrokenPipeError:  # the reader has stopped
            pass

    def __exit__(self, *_: object) -> None:
        os.close(self._out)
        self._thread.join()


# Parquet


def _parquet(file: Any, limit: int) -> Unpacked:
    import pyarrow as pa
    import pyarrow.parquet as pq

    bounds = {"thrift_string_size_limit": 2**26, "thrift_container_size_limit": 2**22}
    try:
        opened = pq.ParquetFile(pa.PythonFile(file, mode="r"), **bounds)
        facts, schema = opened.metadata, opened.schema_arrow
        declared = [facts.row_group(i).total_byte_size for i in range(facts.num_row_groups)]
        plain = pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])
        # Text as stored in the file, each dictionary value once: its decoded size is known beforehand.
        texts = [field.name for field in plain if _is_bytes(field.type)]
        opened = pq.ParquetFile(pa.PythonFile(file, mode="r"), read_dictionary=texts, **bounds)
    except (OSError, ValueError, pa.ArrowException):
        raise UploadRefused("the file is not whole Parquet. Write it again and send it anew.") from None
    if facts.num_columns > _COLUMNS or facts.num_rows > _ROWS or sum(declared) > limit:
        raise UploadRefused(f"a Parquet file may declare {_COLUMNS} columns, {_ROWS} rows and {limit} bytes of them.")
    if max(declared, default=0) > _ROW_GROUP:
        raise UploadRefused(f"a row group may have {_ROW_GROUP} bytes. Write the file with smaller ones.")
    if len({name.lower() for name in schema.names}) < len(schema.names):
        raise UploadRefused("two columns have names that differ in case only, or not at all. Rename one.")
    return Unpacked(plain, lambda columns: _parquet_tables(opened, plain, columns, limit))


def _parquet_tables(opened: Any, plain: "pa.Schema", columns: list[str], limit: int) -> "Iterator[pa.Table]":
    import pyarrow as pa

    total = 0
    try:
        for batch in opened.iter_batches(_BATCH, columns=columns, use_threads=False):
            for part in _pieces(batch, limit - total):
                arrays = {name: _as_plain(part.column(name), plain.field(name).type) for name in columns}
                table = pa.table(arrays) if arrays else pa.table({"_": pa.nulls(part.num_rows)}).select([])
                total += table.nbytes
                if total > limit:
                    raise _too_large(limit)
                yield table
    except (OSError, ValueError, pa.ArrowException):
        raise UploadRefused("the file is not whole Parquet. Write it again and send it anew.") from None


def _pieces(batch: "pa.RecordBatch", limit: int) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of a batch, some megabytes of text at a time, measured before decoding."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    widths = np.zeros(batch.num_rows, np.int64)
    for array in batch.columns:
        if pa.types.is_dictionary(array.type) and _is_bytes(_plain(array.type)):
            lengths = pc.binary_length(array.dictionary.cast(pa.large_binary()))
            widths += pc.fill_null(pc.take(lengths, array.indices), 0).to_numpy(zero_copy_only=False)
    if widths.max(initial=0) > _LINE:
        raise UploadRefused(f"a row has more than {_LINE // 2**20} MB of text. Shorten it and send the file anew.")
    ends = np.cumsum(widths)
    if ends.size and ends[-1] > limit:
        raise _too_large(limit)
    begin = 0
    while begin < batch.num_rows:
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + _PIECE, side="right")))
        yield batch.slice(begin, end - begin)
        begin = end


def _is_bytes(kind: "pa.DataType") -> bool:
    """Return True if values of a plain type may have any length."""
    import pyarrow as pa

    return bool(kind == pa.string() or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _too_large(limit: int) -> UploadRefused:
    return UploadRefused(f"the file unpacks to more than {limit} bytes. Send it in several tables.")


def _plain(kind: "pa.DataType") -> "pa.DataType":
    """Return the type as it is sealed: one text type, no dictionaries; a column with only NULL is text."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return pa.string() if any(is_one(kind) for is_one in texts) else kind


def _as_plain(array: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    """Return an array in its plain type; text that is not valid UTF-8 becomes NULL."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type != kind:
        array = array.cast(kind, safe=False)
    if kind == pa.string():
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            return pa.array(map(_text, array.cast(pa.large_binary()).to_pylist()), kind)
    return array


def _text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None
