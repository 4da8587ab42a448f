"""Columns as integer codes: what every algorithm of this room works on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadInput

__all__ = ["CodedColumn", "CodedTable"]

Array = np.ndarray[Any, Any]
_FAR = 1e150  # positions of larger numbers, and of infinite ones: their differences and products are finite


@dataclass(frozen=True)
class CodedColumn:
    """A column as codes of its sorted values.

    Attributes:
        name: of the column.
        values: the distinct values in order; a missing one is last.
        codes: for each row, the place of its value in `values`.
    """

    name: str
    values: tuple[Any, ...]
    codes: Array

    @staticmethod
    def of(name: str, array: pa.Array) -> "CodedColumn":
        """Return the codes of an Arrow column. A missing value has a code of its own, after all others."""
        encoded = array.dictionary_encode()
        words, places = encoded.dictionary, encoded.indices
        order = pc.sort_indices(words).to_numpy()
        rank = np.empty(len(order) + 1, np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        rank[-1] = len(order)
        codes = rank[places.fill_null(len(order)).to_numpy(zero_copy_only=False)]
        values = tuple(words.take(pa.array(order)).to_pylist())
        return CodedColumn(name, (*values, None) if places.null_count else values, codes)

    @property
    def numeric(self) -> bool:
        """Return True if its values are numbers."""
        return any(value is not None for value in self.values) and all(
            value is None or (isinstance(value, int | float) and not isinstance(value, bool)) or _is_decimal(value)
            for value in self.values
        )

    def place_of(self, value: object) -> int:
        """Return the place of a value that somebody names: of the same kind, and equal.

        Kinds are truth values, numbers, text, dates, times … so 1 is not True, and "1.0" is not 1.

        Raises:
            BadInput: the column does not have it.
        """
        for place, own in enumerate(self.values):
            if _kind(own) == _kind(value) and own == value:
                return place
        raise BadInput(
            f"{self.name} has no value {str(value)!r:.60} of the type {type(value).__name__}. Write it as the column "
            f"holds it, which is {self._kinds()}."
        )

    def _kinds(self) -> str:
        return " or ".join(sorted({_kind(value) for value in self.values if value is not None})) or "missing"

    @cached_property
    def positions(self) -> Array:
        """Return each value's position on a line: numbers and dates by size, other values by their order."""
        present = [value for value in self.values if value is not None]
        if self.numeric:
            places = np.clip(np.array([float(value) for value in present], np.float64), -_FAR, _FAR)
        elif present and all(hasattr(value, "toordinal") for value in present):
            places = np.array([_days(value) for value in present], np.float64)
        else:
            places = np.arange(len(present), dtype=np.float64)
        if len(present) == len(self.values):
            return places
        beyond = (places[-1] + (places[-1] - places[0] or 1.0)) if len(places) else 0.0
        return np.append(places, beyond)  # a missing value is far from all others


def _is_decimal(value: object) -> bool:
    return type(value).__name__ == "Decimal"


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float) or _is_decimal(value):
        return "a number"
    return {"NoneType": "missing", "str": "text"}.get(type(value).__name__, f"a {type(value).__name__}")


def _days(value: Any) -> float:
    seconds = value.hour * 3600 + value.minute * 60 + value.second if hasattr(value, "hour") else 0
    return float(value.toordinal()) + seconds / 86_400


@dataclass(frozen=True)
class CodedTable:
    """Rows with the columns that an algorithm reads, as codes."""

    rows: pa.Table
    columns: Mapping[str, CodedColumn]

    @staticmethod
    def of(rows: object, columns: Iterable[str]) -> "CodedTable":
        """Read rows, and encode the columns named.

        Raises:
            BadInput: a column is missing, or there are no rows.
        """
        table = to_arrow(rows)
        names = list(dict.fromkeys(columns))
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise BadInput(f"there is no column {missing[0]}. Columns are: {', '.join(table.column_names)}.")
        if not table.num_rows:
            raise BadInput("the table has no rows, so there is nothing to release.")
        return CodedTable(table, {name: CodedColumn.of(name, table.column(name).combine_chunks()) for name in names})

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def codes(self, names: Sequence[str]) -> list[Array]:
        """Return the codes of some columns."""
        return [self.columns[name].codes for name in names]
