"""Coarser answers and tables. The digits removed from one answer can be recovered from others."""

from collections.abc import Iterable, Mapping
from math import floor
from typing import Any

from cloister.attack.queries.tracker import EVERYBODY, TrackerCondition
from cloister.lessons.sql.lesson import SmallTable

__all__ = ["AbsentValue", "Ranges", "Recoded", "RoundedAnswers", "SuppressedTable"]


class Ranges(SmallTable):
    """Answer sums as a range of fixed width: 50,000-100,000 instead of 85,000.

    Prevents: reading a value off. Falls to: `attack.queries.tracker.narrowed`, which adds people whose values are
    known until the answer crosses an edge.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], width: float) -> None:
        super().__init__(rows)
        self.width = width

    def range(self, column: str | None, condition: TrackerCondition) -> tuple[float, float]:
        """Return the range that holds the exact sum."""
        low = self.width * floor(self._exact(column, condition) / self.width)
        return low, low + self.width


class RoundedAnswers(SmallTable):
    """Round sums to the nearest multiple of `base`.

    Prevents: the same as ranges. Falls to: the same, `attack.queries.tracker.narrowed`.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], base: float) -> None:
        super().__init__(rows)
        self.base = base

    def total(self, column: str | None, condition: TrackerCondition) -> float:
        """Return the rounded sum."""
        return self.base * floor(self._exact(column, condition) / self.base + 0.5)

    def range(self, column: str | None, condition: TrackerCondition) -> tuple[float, float]:
        """Return the range of sums that round to the same value."""
        middle = self.total(column, condition)
        return middle - self.base / 2, middle + self.base / 2


class Recoded(SmallTable):
    """Global recoding: 26 becomes 20-30, for every person.

    Prevents: reading a value off. Falls to: `attack.tables.intersection`. A second release with other edges
    (25-35) leaves 25-30.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], column: str, width: int, start: int = 0) -> None:
        super().__init__(rows)
        self.column, self.width, self.start = column, width, start

    def table(self) -> list[dict[str, Any]]:
        """Return the recoded table: the column holds (lowest, first beyond)."""
        return [{**row, self.column: self._band(row[self.column])} for row in self._rows]

    def _band(self, value: float) -> tuple[int, int]:
        low = self.start + self.width * floor((value - self.start) / self.width)
        return low, low + self.width


class AbsentValue(SmallTable):
    """Suppression by a value that does not occur: in 20, 23, 35, …, 26 the secret becomes 33.

    Prevents: reading the secret off. Falls to: any total over the original
    (`attack.queries.differencing.the_missing_one`), and to an attacker who knows the
    values that occur and so sees which was replaced.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], column: str, secret: TrackerCondition) -> None:
        super().__init__(rows)
        self.column = column
        present = {int(row[column]) for row in self._rows}
        self.absent = next(value for value in range(min(present), max(present) + 2) if value not in present)
        self._mean = self._exact(column, EVERYBODY) / len(self._rows)
        for i in self._members(secret):
            self._rows[i][column] = self.absent

    def table(self) -> list[dict[str, Any]]:
        """Return the table with the secret replaced."""
        return [dict(row) for row in self._rows]

    def mean(self) -> float:
        """Return the average over the original, as published before."""
        return self._mean


class SuppressedTable(SmallTable):
    """A table of counts without cells below `least`, but with all margins.

    Prevents: reading small cells off. Falls to: `attack.queries.reconstruction.fill_in`.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], by: tuple[str, str], least: int) -> None:
        super().__init__(rows)
        self.by, self.least = by, least

    def cells(self) -> dict[tuple[Any, Any], float | None]:
        """Return the counts; None where suppressed."""
        rows, columns = self.margin(0), self.margin(1)
        counts = {
            (a, b): sum((row[self.by[0]], row[self.by[1]]) == (a, b) for row in self._rows)
            for a in rows
            for b in columns
        }
        return {cell: None if 0 < count < self.least else float(count) for cell, count in counts.items()}

    def margin(self, axis: int) -> dict[Any, float]:
        """Return the totals of rows (0) or columns (1)."""
        values = sorted({row[self.by[axis]] for row in self._rows})
        return {value: float(sum(row[self.by[axis]] == value for row in self._rows)) for value in values}
