"""CSV for spreadsheets, which run a cell that begins like a formula: such a text gets a leading apostrophe."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from cloister.hub.core.settings import Settings

__all__ = ["csv_of", "csv_of_parquet", "csv_of_table"]

_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_ROWS_AT_ONCE = 64


def csv_of(names: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return rows under their names. Numbers stay numbers; missing values are empty."""
    sink = io.BytesIO()
    text = io.TextIOWrapper(sink, "utf-8", newline="")  # encoded as it is written: one copy, and no wide letters
    writer = csv.writer(text)
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(value) for value in row] for row in rows)
    text.flush()
    return sink.getvalue()


def csv_of_parquet(settings: "Settings", content: bytes, caller: object) -> bytes:
    """Convert a Parquet file to CSV in a process with limits: a few hundred bytes can unpack to a huge table.

    Raises:
        UploadRefused: it takes too much memory or time, or is longer than one download may be.
        TooMany: the caller has one running.
    """
    from cloister.hub.datasets.bounded import run_bounded

    text: str = run_bounded(settings, _parquet_text, content, caller=caller)
    return text.encode()


def _parquet_text(content: bytes) -> str:
    import pyarrow.parquet as pq

    return csv_of_table(pq.read_table(io.BytesIO(content))).decode()


def csv_of_table(table: "pa.Table") -> bytes:
    """Convert an Arrow table, some rows at a time: as Python's texts they take several times the memory."""
    batches = table.to_batches(max_chunksize=_ROWS_AT_ONCE)
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return csv_of(table.column_names, rows)


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGINS_A_FORMULA) else value
