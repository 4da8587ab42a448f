"""Reconstruction attacks: find the tables consistent with published statistics. If few fit, the table is known.

reconstruct     people of a small block, from counts, medians and means by group (Garfinkel, Abowd, Martindale 2018)
solve_totals    single values, from many sums over known sets of people (Dinur, Nissim 2003)
fill_in         suppressed cells, from the margins of their table
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import ceil, floor, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadNumber, BadSchema
from cloister.privacy.number import Number, rational

__all__ = ["Person", "Published", "Reconstruction", "fill_in", "read_published", "reconstruct", "solve_totals"]

Person = tuple[Any, ...]  # the age first, then the attributes in their order


@dataclass(frozen=True, slots=True)
class Published:
    """Statistics published about a group.

    Attributes:
        who: values of attributes that the group shares; empty for everybody.
        count: number of people.
        median: median of their ages; None if not published.
        mean: mean of their ages; a number is exact, text is rounded: "36.7" means 36.65 to 36.75.
        within: largest error of the mean, if known otherwise.
    """

    who: Mapping[str, str]
    count: int
    median: Number | None = None
    mean: Number | None = None
    within: Number | None = None

    def totals(self, ages: tuple[int, int]) -> tuple[int, int]:
        """Return integer limits of the sum of the ages."""
        if self.mean is None:
            return ages[0] * self.count, ages[1] * self.count
        off = Fraction(0)
        if self.within is not None:
            off = rational(self.within, "within")
        elif isinstance(self.mean, str):
            off = Fraction(1, 2 * 10 ** len(self.mean.partition(".")[2]))
        mean = rational(self.mean, "mean")
        return ceil((mean - off) * self.count), floor((mean + off) * self.count)


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """Every table that fits, or the first of them if there are more than requested."""

    tables: tuple[tuple[Person, ...], ...]
    complete: bool

    def certain(self) -> tuple[Person, ...]:
        """Return the people who are in every table that fits, so that they are known. Empty if the list was cut."""
        if not self.tables or not self.complete:
            return ()
        shared = Counter(self.tables[0])
        for table in self.tables[1:]:
            shared &= Counter(table)
        return tuple(sorted(shared.elements()))

    def __str__(self) -> str:
        many = f"{len(self.tables):,} tables fit" if len(self.tables) != 1 else "One table fits"
        if not self.tables:
            return "No table fits: the statistics contradict one another, as noisy ones do."
        if not self.complete:
            return f"More than {len(self.tables):,} tables fit, so that nobody is known for certain."
        sure = self.certain()
        people = "".join(f"\n  {', '.join(map(str, person))}" for person in sure)
        return f"{many}. {len(sure)} of {len(self.tables[0])} people are in all of them{':' if sure else '.'}{people}"


def read_published(text: str) -> tuple[list[Published], dict[str, list[str]], tuple[int, int]]:
    """Read statistics, attributes and ages from JSON; the forms are those of `Published` and `reconstruct`.

    >>> read_published('{"attributes": {"sex": ["f", "m"]}, "statistics": [{"count": 2, "mean": "30"}]}')[2]
    (0, 125)
    """
    try:
        told = json.loads(text)
        attributes = {str(name): [str(value) for value in values] for name, values in told["attributes"].items()}
        youngest, oldest = told.get("ages", [0, 125])
        published = [
            Published(
                {str(name): str(value) for name, value in entry.get("who", {}).items()},
                entry["count"],
                **{name: entry.get(name) for name in ("median", "mean", "within")},
            )
            for entry in told["statistics"]
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BadSchema(
            'write {"attributes": {"sex": ["f", "m"]}, "ages": [0, 110], "statistics": [{"who": {}, "count": 7}]}.'
        ) from None
    whole = [youngest, oldest, *(statistic.count for statistic in published)]
    if any(isinstance(number, bool) or not isinstance(number, int) or number < 0 for number in whole):
        raise BadSchema("counts and ages are whole numbers of 0 or more.")
    return published, attributes, (youngest, oldest)


def reconstruct(
    published: Sequence[Published],
    attributes: Mapping[str, Sequence[str]],
    ages: tuple[int, int] = (0, 125),
    most: int = 1_000,
) -> Reconstruction:
    """Enumerate the tables that fit the published statistics.

    People are placed in order of age, so the n-th placed member of a group has its n-th smallest age: a median is
    checked as soon as its member is placed, and a sum that can no longer be reached ends the branch.

    Args:
        published: the statistics; one of them is about everybody (`who={}`).
        attributes: each with its values.
        ages: the youngest and oldest possible.
        most: stop after this many tables.
    """
    if not any(not statistic.who for statistic in published) or any(
        set(statistic.who) - set(attributes) for statistic in published
    ):
        raise BadSchema("publish something about everybody (who={}), and name only the attributes given.")
    kinds = list(product(*attributes.values()))
    inside = [
        [all(kind[list(attributes).index(name)] == value for name, value in statistic.who.items()) for kind in kinds]
        for statistic in published
    ]
    everybody = next(statistic for statistic in published if not statistic.who)
    groups = [
        _Group(statistic.count, statistic.totals(ages), statistic.median, fits)
        for statistic, fits in zip(published, inside, strict=True)
    ]
    groups += _differences(groups)
    tables: list[tuple[Person, ...]] = []
    for table in _search(groups, kinds, everybody.count, ages):
        if len(tables) == most:
            return Reconstruction(tuple(tables), complete=False)
        tables.append(table)
    return Reconstruction(tuple(tables), complete=True)


class _Group:
    """People with common attributes, placed in order of age."""

    def __init__(self, size: int, totals: tuple[int, int], median: Number | None, fits: list[bool]) -> None:
        self.size, self.totals, self.fits = size, totals, fits
        self.twice = None if median is None else int(2 * rational(median, "median"))  # ages are whole: 2·median is too
        self.ages: list[int] = []
        self.sum = 0

    def without(self, part: "_Group") -> "_Group":
        """Return the group of all others, with the statistics that follow by subtraction."""
        fits = [mine and not theirs for mine, theirs in zip(self.fits, part.fits, strict=True)]
        totals = self.totals[0] - part.totals[1], self.totals[1] - part.totals[0]
        return _Group(self.size - part.size, totals, None, fits)

    def takes(self, age: int, oldest: int) -> bool:
        """Return True if the next member can have this age."""
        placed = len(self.ages)
        if placed >= self.size:
            return False
        if self.twice is not None and placed == self.size // 2:  # the middle one, or the upper of the two in the middle
            lower = self.ages[-1] if self.size % 2 == 0 else age
            if age + lower != self.twice:
                return False
        return self.open(age, oldest, placed + 1, self.sum + age)

    def open(self, age: int, oldest: int, held: int, total: int) -> bool:
        """Return True if the sum can be reached: later members are between this age and the median, or above both."""
        left = self.size - held
        below, middle = 0, age
        if self.twice is not None:
            below, middle = max(0, (self.size + 1) // 2 - held), max(age, self.twice // 2)
            if below and 2 * age > self.twice:
                return False
        least = total + below * age + (left - below) * middle
        most = total + below * middle + (left - below) * oldest
        return least <= self.totals[1] and most >= self.totals[0]

    def add(self, age: int) -> None:
        self.ages.append(age)
        self.sum += age

    def remove(self) -> None:
        self.sum -= self.ages.pop()


def _differences(groups: list[_Group]) -> list[_Group]:
    """Return the groups that follow from the published ones by repeated subtraction."""
    by_fits = {tuple(group.fits): group for group in groups}
    fresh = True
    while fresh:
        pairs = [(a, b) for a in by_fits.values() for b in by_fits.values() if a is not b]
        new = [a.without(b) for a, b in pairs if all(x or not y for x, y in zip(a.fits, b.fits, strict=True))]
        fresh = any(tuple(difference.fits) not in by_fits for difference in new)
        for difference in new:
            by_fits.setdefault(tuple(difference.fits), difference)
    return [group for group in by_fits.values() if group not in groups]


def _search(groups: list[_Group], kinds: list[Any], people: int, ages: tuple[int, int]) -> Iterator[tuple[Person, ...]]:
    placed: list[Person] = []
    member = [[group for group in groups if group.fits[kind]] for kind in range(len(kinds))]

    def place(youngest: int, first: int) -> Iterator[tuple[Person, ...]]:
        if len(placed) == people:
            if all(len(group.ages) == group.size for group in groups):
                yield tuple(placed)
            return
        for age in range(youngest, ages[1] + 1):
            if not all(group.open(age, ages[1], len(group.ages), group.sum) for group in groups):
                return
            for kind in range(first if age == youngest else 0, len(kinds)):
                if all(group.takes(age, ages[1]) for group in member[kind]):
                    for group in member[kind]:
                        group.add(age)
                    placed.append((age, *kinds[kind]))
                    yield from place(age, kind)
                    placed.pop()
                    for group in member[kind]:
                        group.remove()

    yield from place(ages[0], 0)


def solve_totals(sets: Sequence[Sequence[int]], answers: Sequence[float], people: int) -> NDArray[np.float64]:
    """Estimate each person's value by least squares, from sums over sets of people.

    Noise below sqrt(people) does not prevent it.

    Args:
        sets: the people in each sum, by number.
        answers: the sums.
        people: number of people.
    """
    if len(sets) != len(answers):
        raise BadNumber(f"{len(sets)} sets need as many answers, got {len(answers)}.")
    matrix = np.zeros((len(sets), people))
    for row, members in zip(matrix, sets, strict=True):
        row[list(members)] = 1
    return np.asarray(np.linalg.lstsq(matrix, np.asarray(answers, dtype=np.float64), rcond=None)[0])


def fill_in(cells: Mapping[tuple[Any, Any], float | None], rows: Mapping[Any, float],
            columns: Mapping[Any, float]) -> dict[tuple[Any, Any], float | None]:  # fmt: skip
    """Fill in suppressed cells (None) from margins: repeatedly solve rows and columns with one gap."""
    filled = dict(cells)
    for _ in range(prod((len(rows), len(columns)))):
        for axis, totals in ((0, rows), (1, columns)):
            for name, total in totals.items():
                line = [cell for cell in filled if cell[axis] == name]
                gaps = [cell for cell in line if filled[cell] is None]
                if len(gaps) == 1:
                    filled[gaps[0]] = total - sum(filled[cell] or 0 for cell in line)
    return filled
