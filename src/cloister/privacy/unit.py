"""The unit of privacy: a row, or a person with a bounded number of rows."""

from dataclasses import dataclass

from cloister.privacy.errors import BadBounds, BadName

__all__ = ["ROW", "Unit"]


_MOST_ROWS = 10**9  # the contribution of one unit fits the integers of every engine


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of privacy.

    Args:
        name: `"row"`, or the column that identifies a person.
        max_rows: the contribution bound in rows; further rows are dropped before anything is computed.

    >>> print(Unit("patient", max_rows=8))
    one patient (at most 8 rows)
    """

    name: str
    max_rows: int = 1

    def __post_init__(self) -> None:
        name = self.name.strip() if isinstance(self.name, str) else ""
        if not 0 < len(name) <= 200 or not self.name.isprintable():
            raise BadName("a unit needs a short printable name. Write Unit('patient', max_rows=8).")
        if isinstance(self.max_rows, bool) or not isinstance(self.max_rows, int):
            raise BadBounds(f"max_rows must be a whole number of at least 1, got {self.max_rows!r:.40}.")
        if not 1 <= self.max_rows <= _MOST_ROWS:
            raise BadBounds(f"max_rows must be a whole number of at least 1 and at most {_MOST_ROWS:,}.")

    def __str__(self) -> str:
        rows = "1 row" if self.max_rows == 1 else f"{self.max_rows} rows"
        return "one row" if self == ROW else f"one {self.name} (at most {rows})"


ROW = Unit("row")
