"""Tables for the exercise: a CSV or Parquet file, or the demo's hospital."""

from pathlib import Path
from typing import Any

from cloister.data.hospital import SCHEMA, hospital
from cloister.privacy.errors import BadSource

__all__ = ["read_file"]


def read_file(name: str) -> tuple[Any, Any, str | None]:
    """A table, its schema and its usual target; the last two are None for a file."""
    if name == "demo":
        return hospital(), SCHEMA, "readmitted"
    import pyarrow as pa
    from pyarrow import csv, parquet

    path = Path(name)
    try:
        if path.suffix == ".parquet":
            return parquet.read_table(path), None, None
        return csv.read_csv(path), None, None
    except (OSError, pa.ArrowInvalid):
        raise BadSource(f"{path} is no CSV or Parquet file that can be read. Give one, or the word demo.") from None
