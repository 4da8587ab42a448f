"""The answer: a Release that is a table, with an interval beside each number."""

from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa

from cloister.privacy.number import limits_text, number_text, places_for
from cloister.privacy.receipt import Receipt
from cloister.privacy.release import Release

__all__ = ["Answer"]

_MOST_ROWS = np.nextafter(2.0**63, 0)


@dataclass(frozen=True, slots=True)
class Answer(Release):
    """A table of private answers.

    `value` is an Arrow table. Each numeric column `x` has limits `x_low` and `x_high`, which hold the true answer on
    the clipped and capped rows, each with the stated confidence; NULL where there is no such limit.
    """

    columns: tuple[str, ...] = ()
    confidence: float = 0.95
    notes: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    search: tuple[Receipt, ...] = ()  # of the search for groups that are not public

    def to_arrow(self) -> pa.Table:
        """Return the Arrow table, limits included."""
        return self.value

    def to_pandas(self) -> Any:
        """Return a pandas frame, limits included."""
        return self.value.to_pandas()

    def to_polars(self) -> Any:
        """Return a polars frame, limits included."""
        import polars

        return polars.from_arrow(self.value)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries, limits included."""
        rows: list[dict[str, Any]] = self.value.to_pylist()
        return rows

    def column(self, name: str) -> list[Any]:
        """Return one column as a list."""
        values: list[Any] = self.value.column(name).to_pylist()
        return values

    def item(self) -> Any:
        """Return the only number of an answer with a single number."""
        if self.value.num_rows != 1 or len(self.columns) != 1:
            raise ValueError(
                f"the answer has {self.value.num_rows} rows and {len(self.columns)} columns, not one number."
            )
        return self.value.column(self.columns[0])[0].as_py()

    def tidy(self) -> "Answer":
        """Return non-negative integer counts and ordered values for display. Post-processing; it costs nothing.

        Rounding and truncation at zero bias small numbers upwards: compute with the raw answer. Limits are truncated at
        zero and below 2^63 too and stay valid, since a count is never negative nor larger.
        """
        table = self.value
        for name in self.whole:
            low, high = f"{name}_low", f"{name}_high"
            for column, to_whole in ((name, np.round), (low, np.floor), (high, np.ceil)):
                if column in table.column_names:
                    numbers = to_whole(np.clip(table.column(column).to_numpy(zero_copy_only=False), 0, _MOST_ROWS))
                    table = table.set_column(
                        table.column_names.index(column), column, pa.array(numbers.astype(np.int64))
                    )
        return replace(
            self, value=table, notes=(*self.notes, "counts are rounded and not negative: small ones read high")
        )

    def __len__(self) -> int:
        return int(self.value.num_rows)

    def __str__(self) -> str:
        head, body = self._cells(40)
        widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
        lines = [] if self.private else ["NOT PRIVATE: the noise came from a seeded source"]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [head, *body]
        ]
        if self.value.num_rows > 40:
            lines.append(f"… {self.value.num_rows - 40:,} more rows")
        lines += ["", f"intervals at {self.confidence:.0%}; {self._cost()}; protects {self.unit}"]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, body = self._cells(100)
        rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body)
        titles = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        warning = "" if self.private else "<strong>not private: seeded source</strong>"
        notes = "".join(f"<br>{escape(note)}" for note in self.notes)
        foot = f"intervals at {self.confidence:.0%}; {escape(self._cost())}; protects {escape(str(self.unit))}{notes}"
        table = f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"
        return f"{warning}{table}<small>{foot}</small>"

    def _cost(self) -> str:
        return f"cost {self.loss}" if self.loss.amount else "cost nothing: answered from the record"

    def cells(self, most: int = 40) -> list[list[str]]:
        """Return the rows as text, each number with its interval."""
        return self._cells(most)[1]

    def _cells(self, most: int) -> tuple[list[str], list[list[str]]]:
        table = self.value.slice(0, most).to_pylist()
        return list(self.columns), [[self._cell(row, name) for name in self.columns] for row in table]

    def _cell(self, row: dict[str, Any], name: str) -> str:
        value, low, high = row[name], row.get(f"{name}_low"), row.get(f"{name}_high")
        if low is None or high is None:
            return _plain(value)
        places = places_for(low, high)
        text = _plain(value) if value is None else number_text(value, places)
        return f"{text} [{', '.join(limits_text(low, high, places))}]"


def _plain(value: Any) -> str:
    return "NULL" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)
