"""Exact answer or refusal. Allowed answers combine to forbidden ones, and a refusal is itself an answer."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cloister.attack.queries.tracker import TrackerCondition
from cloister.lessons.controls.cells import RowSpace, secret_prime
from cloister.lessons.sql.lesson import SmallTable

__all__ = ["MaxAudit", "OverlapControl", "SizeControl", "SumAudit"]


class SizeControl(SmallTable):
    """Answer only if k <= |C| <= N - k.

    Prevents: queries on one person, or on all but one. Falls to: `attack.queries.tracker.individual_tracker`,
    `general_tracker`.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], least: int) -> None:
        super().__init__(rows)
        self.least = least

    def total(self, column: str | None, condition: TrackerCondition) -> float | None:
        """Return the exact sum, if the query set is neither small nor large."""
        size = len(self._members(condition))
        return self._exact(column, condition) if self.least <= size <= len(self._rows) - self.least else None


class OverlapControl(SmallTable):
    """Answer only if |C| >= k and no two query sets share more than r people.

    Prevents: differencing; at least 1 + (k - 1)/r queries are needed (Dobkin, Jones, Lipton 1979). Falls to: asking
    them (`attack.queries.reconstruction.solve_totals`), or to a second account.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], least: int, shared: int) -> None:
        super().__init__(rows)
        self.least, self.shared = least, shared
        self._asked: list[frozenset[int]] = []

    def total(self, column: str | None, condition: TrackerCondition) -> float | None:
        """Return the exact sum, if the query set overlaps earlier ones little enough."""
        members = frozenset(self._members(condition))
        if len(members) < self.least or any(
            len(members & earlier) > self.shared for earlier in self._asked if earlier != members
        ):
            return None
        self._asked.append(members)
        return self._exact(column, condition)


class SumAudit(SmallTable):
    """Answer sums as long as no person's value follows from all of them by linear algebra.

    Prevents: every linear combination, trackers included, by an attacker without prior knowledge. Falls to: one known
    value, such as the attacker's own, since "mine plus yours" singles out no one
    (`attack.queries.differencing.the_missing_one`); and to bounds: a sum of zero reveals all its parts.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        super().__init__(rows)
        self._space = RowSpace(secret_prime(), np.zeros((0, 0), dtype=np.int64))

    def total(self, column: str | None, condition: TrackerCondition) -> float | None:
        """Return the exact sum, if no unit vector enters the row space."""
        row = np.zeros((1, len(self._rows)), dtype=bool)
        row[0, self._members(condition)] = True
        space = self._space.add(row)
        if space.singles():
            return None
        self._space = space
        return self._exact(column, condition)


class MaxAudit(SmallTable):
    """Answer maxima as long as no person's value follows from all of them. The decision uses the true answer.

    Prevents: an answer that discloses. Falls to: `attack.queries.tracker.refusal`, because the refusal discloses.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], column: str) -> None:
        super().__init__(rows)
        self.column = column
        self._answered: list[tuple[frozenset[int], float]] = []

    def largest(self, condition: TrackerCondition) -> float | None:
        """Return the largest value; None if a person's value would follow from it."""
        members = frozenset(self._members(condition))
        top = max((float(self._rows[i][self.column]) for i in members), default=None)
        if top is None or self._discloses([*self._answered, (members, top)]):
            return None
        self._answered.append((members, top))
        return top

    def _discloses(self, answered: list[tuple[frozenset[int], float]]) -> bool:
        """Return True if some maximum has one possible owner: the others of its set are known to be below it."""
        most = {i: min(top for group, top in answered if i in group) for members, _ in answered for i in members}
        return any(sum(most[i] == top for i in members) == 1 for members, top in answered)
