"""A small table in memory. `total` sums a column over a condition (None: counts); a result of None is a refusal."""

from collections.abc import Iterable, Mapping
from typing import Any

from cloister.attack.queries.tracker import TrackerCondition

__all__ = ["Exact", "SmallTable"]


class SmallTable:
    """A small table in memory behind a classical protection.

    Privacy: none. A lesson reads true values and sizes; each names what it prevents and the attack it falls to.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows = [dict(row) for row in rows]

    def _members(self, condition: TrackerCondition) -> list[int]:
        return [i for i, row in enumerate(self._rows) if condition.test(row)]

    def _exact(self, column: str | None, condition: TrackerCondition) -> float:
        return float(sum(1 if column is None else self._rows[i][column] for i in self._members(condition)))


class Exact(SmallTable):
    """No protection: every answer is exact. Falls to: a direct query, `attack.queries.differencing.between`."""

    def total(self, column: str | None, condition: TrackerCondition) -> float:
        """Return the exact sum."""
        return self._exact(column, condition)
