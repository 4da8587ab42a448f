"""Targets and rows that are named on a command line: functions of a module, endpoints, CSV and Parquet files."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput, BadSource, MissingExtra

__all__ = ["imported", "labelled_rows", "read_table", "rows_as_array"]


def imported(name: str) -> Any:
    """Return the object that `module:name` names, from the present folder or from what is installed."""
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise BadInput(f"name an object as module:name, such as mechanisms:noisy_count, not {name[:80]!r}.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise BadInput(f"there is no module {module} in this folder, and none is installed.") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise BadInput(f"{module} has no {attribute}.")
        found = getattr(found, part)
    return found


def read_table(path: str | Path) -> pa.Table:
    """Read a CSV or Parquet file."""
    file = Path(path)
    try:
        if file.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            return pq.read_table(file)
        if file.suffix.lower() in (".csv", ".txt"):
            import pyarrow.csv as pc

            return pc.read_csv(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise BadSource(f"{file} cannot be read ({type(error).__name__}). Give a CSV or Parquet file.") from None
    raise BadSource(f"{file} is neither a CSV nor a Parquet file. Convert it first.")


def labelled_rows(path: str | Path, label: str) -> tuple[Any, NDArray[Any]]:
    """Return the rows of a file without the column of labels, and the labels."""
    table = read_table(path)
    if label not in table.column_names:
        raise BadInput(f"{path} has no column {label!r}. Choose among: {', '.join(table.column_names[:20])}.")
    labels = np.asarray(table.column(label).to_pylist())
    return rows_as_array(table.drop_columns([label])), labels


def rows_as_array(table: pa.Table) -> Any:
    """Return rows as a matrix if all columns are numbers, else as a pandas frame, which pipelines take."""
    kinds = [field.type for field in table.schema]
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) for kind in kinds):
        return np.column_stack([column.to_numpy().astype(np.float64) for column in table.columns])
    try:
        return table.to_pandas()
    except ModuleNotFoundError:
        raise MissingExtra("rows with text are handed to the model as a frame: pip install pandas.") from None
