"""Local suppression: set as few cells as possible to `*` until every combination is shared by enough rows.

Matching is exact: `*` is a value of its own, so a row with a suppressed cell is only alike to rows in which the same
cell is suppressed. That is the safe reading; somebody who takes `*` as any value sees larger classes.

A pattern is a set of columns to suppress. Patterns are tried from the cheapest on, and among equally costly ones the
pattern that helps most rows comes first. Each time, rows that are still alone are grouped by their other columns, and
groups that satisfy the requirement are final. Rows that no pattern helps join the class for which that costs least.
Finding the least number of cells is NP-hard (Meyerson and Williams 2004); this is a heuristic.

Falls to: `attack.tables.homogeneity`, `attack.tables.minimality`, and `attack.tables.intersection` of two releases.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from cloister.anonymize.claims import recorded
from cloister.anonymize.classes import EquivalenceClasses, group
from cloister.anonymize.coded import Array, CodedColumn
from cloister.anonymize.hierarchy import ALL, Hierarchy
from cloister.anonymize.models import Model
from cloister.anonymize.release import Task, hierarchies_of, levelled, prepare, release
from cloister.anonymize.table import AnonymizedTable
from cloister.anonymize.utility import ReleasedColumn
from cloister.data.schema import Table
from cloister.privacy.errors import BadInput

__all__ = ["suppress_cells"]

Progress = Callable[[float, str], None]
_MOST_PATTERNS = 4_096
_MOST_JOINED = 256  # rows that are joined to classes one by one


def suppress_cells(
    rows: object,
    *,
    require: Model | Sequence[Model],
    quasi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    plain: Sequence[str] = (),
    schema: Table | None = None,
    hierarchies: Mapping[str, Hierarchy] | None = None,
    levels: Mapping[str, int] | None = None,
    weights: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> AnonymizedTable:
    """Anonymise by local suppression: rare combinations lose cells, all other cells stay as they are.

    No row is removed. A NULL is a value of its own, different from `*`. The method of the result states the share of
    quasi-identifying cells that is suppressed.

    Args:
        rows: a pandas or polars frame, an Arrow table, or a dict of lists.
        require: the models that every class must satisfy.
        quasi, sensitive, identifiers: the roles of columns; others are plain and kept.
        schema: takes the roles, bounds and categories from a table of a schema where they are not given.
        hierarchies: for columns with a level; others are made from type and public facts (`automatic`).
        levels: of quasi-identifiers that are generalised as a whole before cells are suppressed, such as {"age": 2}.
        weights: what a cell of each quasi-identifier is worth; cells of a column with weight 0 are suppressed first.
        progress: called with a share and a sentence.

    Raises:
        BadInput: a column, level or weight is wrong, or the table as a single class does not satisfy the models.

    >>> from cloister.anonymize.models import KAnonymity
    >>> table = {"zip": ["33617", "33617", "33620", "33617"], "age": [24, 24, 35, 35]}
    >>> suppress_cells(table, require=KAnonymity(2), quasi=["zip", "age"]).rows.to_pydict()
    {'zip': ['33617', '33617', '*', '*'], 'age': [24, 24, 35, 35]}
    """
    task = prepare(
        rows,
        require,
        quasi=quasi,
        sensitive=sensitive,
        identifiers=identifiers,
        plain=plain,
        schema=schema,
        takes_population="cells are suppressed row by row, and a person of the population has no row.",
    )
    columns = _generalised(task, hierarchies or {}, levels or {}, schema)
    costs = np.array([(weights or {}).get(column.name, 1.0) for column in columns], float)
    if (costs < 0).any() or not costs.sum() or not np.isfinite(costs).all():
        raise BadInput("weights of columns are finite, not negative, and not all 0.")
    work = _Work(task, columns, costs)
    work.by_pattern(progress)
    work.join_rest()
    work.restore()
    stars = work.stars
    released = [_starred(column, stars[:, place]) for place, column in enumerate(columns)]
    first = "levels, then " if levels else ""
    method = f"{first}local suppression of {stars.mean():.2%} of the cells"
    kept = np.ones(len(task.coded), bool)
    made = release(
        task.coded, task.roles, task.requirement, released, kept, method=method, levels=levels, weights=weights
    )
    return replace(made, hierarchies=recorded(hierarchies or {}))


def _generalised(
    task: Task, given: Mapping[str, Hierarchy], levels: Mapping[str, int], schema: Table | None
) -> list[ReleasedColumn]:
    unknown = [name for name in levels if name not in task.roles.quasi]
    if unknown:
        raise BadInput(f"there is a level for {unknown[0]}, which is no quasi-identifier. Remove it.")
    trees = hierarchies_of(task.coded, task.roles, given, schema) if levels else []
    columns = []
    for place, column in enumerate(task.columns):
        level = levels.get(column.name, 0)
        if level and not (isinstance(level, int) and 0 <= level <= trees[place].height):
            raise BadInput(f"the level of {column.name} is a whole number from 0 to {trees[place].height}.")
        plain = ReleasedColumn(column.name, column.codes, column.codes, column.values, np.zeros(len(column.codes)))
        columns.append(levelled(trees[place], level) if level else plain)
    return columns


def _starred(column: ReleasedColumn, stars: Array) -> ReleasedColumn:
    if not stars.any():
        return column
    labels = np.where(stars, len(column.words), column.labels)
    return ReleasedColumn(column.name, column.codes, labels, [*column.words, ALL], np.where(stars, 1.0, column.penalty))


class _Work:
    """Which cells are suppressed, which rows are final, and the class of each final row."""

    def __init__(self, task: Task, columns: Sequence[ReleasedColumn], costs: Array) -> None:
        self._requirement, self._held, self._costs = task.requirement, task.held, costs
        self._codes = np.stack([column.labels.astype(np.int64) for column in columns], axis=1)
        self._widths = [len(column.words) for column in columns]
        rows = len(self._codes)
        self.stars = np.zeros((rows, len(columns)), bool)
        self._left = np.arange(rows)
        self._whole = {name: np.bincount(c.codes, minlength=len(c.values)) for name, c in task.held.items()}

    def _holds(self, rows: Array, of_row: Array, number: int) -> Array:
        held = {name: CodedColumn(name, c.values, c.codes[rows]) for name, c in self._held.items()}
        return self._requirement.holds(EquivalenceClasses(of_row, number, held, whole=self._whole))

    def _helped(self, pattern: Sequence[int]) -> Array:
        """Return which of the rows that are left form classes that satisfy the requirement under a pattern."""
        kept = [axis for axis in range(len(self._widths)) if axis not in pattern]
        if kept:
            of_row, number = group([self._codes[self._left, axis] for axis in kept], [self._widths[a] for a in kept])
        else:
            of_row, number = np.zeros(len(self._left), np.int64), 1
        return np.asarray(self._holds(self._left, of_row, number)[of_row])

    def _finish(self, pattern: Sequence[int], helped: Array) -> None:
        self.stars[np.ix_(self._left[helped], np.array(pattern, np.int64))] = True
        self._left = self._left[~helped]

    def by_pattern(self, progress: Progress | None) -> None:
        """Suppress patterns from the cheapest to the most costly one, while rows are left."""
        total = len(self.stars)
        # (cost, minus the most rows it can help, pattern, number of rows left when that was counted)
        heap = [(self._cost(pattern), -total, pattern, -1) for pattern in _patterns(self._costs)]
        heapq.heapify(heap)
        while heap and len(self._left) >= self._requirement.smallest:
            cost, _, pattern, counted = heapq.heappop(heap)
            helped = self._helped(pattern)
            number = int(helped.sum())
            if counted == len(self._left) or not heap or heap[0][:2] >= (cost, -number):
                self._finish(pattern, helped)
                if progress is not None:
                    progress(1.0 - len(self._left) / total, f"{len(self._left):,} rows left")
            elif number:
                heapq.heappush(heap, (cost, -number, pattern, len(self._left)))

    def _cost(self, pattern: Sequence[int]) -> float:
        return float(self._costs[list(pattern)].sum())

    def join_rest(self) -> None:
        """Let rows that no pattern helps join classes, or all be suppressed together with further rows."""
        if 0 < len(self._left) <= _MOST_JOINED:
            for row in self._left.tolist():
                if self._join(row):
                    self._left = self._left[self._left != row]
        if not len(self._left):
            return
        of_row, number, sizes = self._classes()
        extra = (~self.stars * self._costs).sum(axis=1)
        price = np.bincount(of_row, weights=extra, minlength=number)
        pending = np.zeros(len(of_row), bool)
        pending[self._left] = True
        price[np.bincount(of_row, weights=pending, minlength=number) == sizes] = -1.0  # left over: first of all
        order = np.argsort(price, kind="stable")
        # Twice as many further classes in each round: the table as a whole satisfies the requirement.
        count, further = int((price < 0).sum()), 1
        while True:
            chosen = np.zeros(number, bool)
            chosen[order[:count]] = True
            rows = np.flatnonzero(chosen[of_row] | pending)
            if count >= number or bool(self._holds(rows, np.zeros(len(rows), np.int64), 1)[0]):
                self.stars[rows] = True
                self._left = self._left[:0]
                return
            count, further = count + further, 2 * further

    def _classes(self) -> tuple[Array, int, Array]:
        """Return the class of each row as it would be released; rows that are left are not suppressed yet."""
        shown = np.where(self.stars, np.array(self._widths), self._codes)
        of_row, number = group(list(shown.T), [width + 1 for width in self._widths])
        return of_row, number, np.bincount(of_row, minlength=number)

    def _join(self, row: int) -> bool:
        """Join a row to the class for which that costs least, or to a few rows of it where the others still hold.

        Returns:
            False if no class may take it.
        """
        of_row, number, sizes = self._classes()
        first = np.empty(number, np.int64)
        first[of_row[::-1]] = np.arange(len(of_row))[::-1]
        differs = (self._codes[first] != self._codes[row]) & ~self.stars[first]
        hidden = differs | self.stars[first]
        few = self._requirement.smallest - 1
        lent = np.where(sizes > 2 * few, few, sizes)  # rows of a class that must change
        price = lent * (differs @ self._costs) + hidden @ self._costs
        price[np.bincount(of_row[self._left], minlength=number) > 0] = np.inf  # not final itself
        for target in np.argsort(price, kind="stable")[:32]:
            if not np.isfinite(price[target]):
                return False
            members = np.flatnonzero(of_row == target)
            for number_lent in sorted({int(lent[target]), len(members)}):
                parts = np.arange(len(members) + 1) >= len(members) - number_lent
                together = np.append(members, row)
                if self._holds(together, parts.astype(np.int64), 2)[int(parts.all()) :].all():
                    self.stars[together[parts]] = hidden[target]
                    return True
        return False

    def restore(self) -> None:
        """Show cells again where a class can be split by them into classes that all satisfy the requirement."""
        rows = np.arange(len(self.stars))
        for axis in np.argsort(-self._costs, kind="stable"):
            of_row, number, _ = self._classes()
            parts, count = group([of_row, self._codes[:, axis]], [number, self._widths[axis]])
            fails = ~self._holds(rows, parts, count)[parts]
            spoiled = np.bincount(of_row, weights=fails, minlength=number) > 0
            self.stars[~spoiled[of_row], axis] = False


def _patterns(costs: Array) -> list[tuple[int, ...]]:
    """Return sets of columns to suppress: all of them, or the smallest ones and the cheapest of each larger size."""
    width = len(costs)
    if 2**width <= _MOST_PATTERNS:
        return [pattern for size in range(width + 1) for pattern in combinations(range(width), size)]
    patterns: list[tuple[int, ...]] = []
    for size in range(width + 1):
        larger = list(combinations(range(width), size))
        if len(patterns) + len(larger) > _MOST_PATTERNS:
            break
        patterns += larger
    cheap = [int(axis) for axis in np.argsort(costs, kind="stable")]
    for size in range(len(patterns[-1]) + 1, width + 1):
        patterns += sorted({tuple(sorted((cheap + cheap)[start : start + size])) for start in range(width)})
    return patterns
