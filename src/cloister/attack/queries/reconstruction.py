"""Reconstruction attacks: find the tables consistent with published statistics. If few fit, the table is known.

reconstruct     people of a small block, from counts, medians and means by group (Garfinkel, Abowd, Martindale 2018)
solve_totals    single values, from many sums over known sets of people (Dinur, Nissim 2003)
fill_in         suppressed cells, from the margins of their table
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import ceil, floor, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadNumber, BadSchema, MissingExtra
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
        if not self.tables and self.complete:
            return "No table fits: the statistics contradict one another, as noisy ones do."
        if not self.complete:
            return f"At least {len(self.tables):,} tables fit; the search was ended there."
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
    *,
    seconds: float | None = None,
) -> Reconstruction:
    """Enumerate the tables that fit the published statistics, with a constraint solver (OR-tools, extra `solver`).

    Args:
        published: the statistics; one of them is about everybody (`who={}`).
        attributes: each with its values.
        ages: the youngest and oldest possible.
        most: stop after this many tables.
        seconds: stop after so long; the result then says that it is not complete.
    """
    if not any(not statistic.who for statistic in published) or any(
        set(statistic.who) - set(attributes) for statistic in published
    ):
        raise BadSchema("publish something about everybody (who={}), and name only the attributes given.")
    kinds = list(product(*attributes.values()))
    everybody = next(statistic for statistic in published if not statistic.who)
    block = _Block(everybody.count, len(kinds), ages)
    for statistic in published:
        fits = [
            place
            for place, kind in enumerate(kinds)
            if all(kind[list(attributes).index(name)] == value for name, value in statistic.who.items())
        ]
        block.require(statistic, fits)
    tables, complete = block.solutions(most, seconds)
    return Reconstruction(
        tuple(tuple((age, *kinds[kind]) for age, kind in table) for table in tables), complete=complete
    )


class _Block:
    """People of unknown age and kind, in order of age and then kind, so that each table has one solution."""

    def __init__(self, people: int, kinds: int, ages: tuple[int, int]) -> None:
        try:
            from ortools.sat.python import cp_model
        except ModuleNotFoundError:
            raise MissingExtra("reconstruction needs a solver. Run pip install 'cloister[solver]'.") from None
        self._cp, self._ages, self._model = cp_model, ages, cp_model.CpModel()
        self._age = [self._model.new_int_var(*ages, f"age {i}") for i in range(people)]
        self._is = [[self._model.new_bool_var(f"{i} is {kind}") for kind in range(kinds)] for i in range(people)]
        order = []
        for age, one_of in zip(self._age, self._is, strict=True):
            self._model.add_exactly_one(one_of)
            order.append(kinds * age + sum(kind * is_kind for kind, is_kind in enumerate(one_of)))
        for before, after in pairwise(order):
            self._model.add(before <= after)

    def require(self, statistic: Published, fits: Sequence[int]) -> None:
        """Add the count, the sum of the ages and the median of the people of some kinds."""
        inside = [sum(one_of[kind] for kind in fits) for one_of in self._is]
        self._model.add(sum(inside) == statistic.count)
        low, high = statistic.totals(self._ages)
        self._model.add_linear_constraint(sum(self._counted(i, inside[i]) for i in range(len(inside))), low, high)
        if statistic.median is None or not statistic.count:
            return
        # Ages are in order, so the n-th person inside has the n-th smallest age.
        twice = 2 * rational(statistic.median, "median")
        middle = (statistic.count - 1) // 2, statistic.count // 2
        ages = [self._age_of_rank(inside, rank) for rank in dict.fromkeys(middle)]
        self._model.add(
            (ages[0] + ages[-1]) == int(twice) if twice.denominator == 1 else self._model.new_constant(0) == 1
        )

    def _counted(self, person: int, inside: Any) -> Any:
        """Return a person's age if they are inside, else 0."""
        counted = self._model.new_int_var(0, max(self._ages[1], 0), "")
        taken = self._flag(inside == 1, inside == 0)
        self._model.add(counted == self._age[person]).only_enforce_if(taken)
        self._model.add(counted == 0).only_enforce_if(~taken)
        return counted

    def _age_of_rank(self, inside: Sequence[Any], rank: int) -> Any:
        age = self._model.new_int_var(*self._ages, "")
        for person, here in enumerate(inside):
            before = sum(inside[:person])
            is_it = self._flag(2 * before + here == 2 * rank + 1, 2 * before + here != 2 * rank + 1)
            self._model.add(age == self._age[person]).only_enforce_if(is_it)
        return age

    def _flag(self, true: Any, false: Any) -> Any:
        """Return a boolean that follows from others, so that it adds no solutions."""
        flag = self._model.new_bool_var("")
        self._model.add(true).only_enforce_if(flag)
        self._model.add(false).only_enforce_if(~flag)
        return flag

    def solutions(self, most: int, seconds: float | None) -> tuple[list[list[tuple[int, int]]], bool]:
        """Return the first solutions as pairs of age and kind, and True if there are no others."""
        block, found = self, list[list[tuple[int, int]]]()

        class Collect(self._cp.CpSolverSolutionCallback):  # type: ignore[name-defined, misc]
            def on_solution_callback(self) -> None:
                if len(found) == most:
                    self.stop_search()
                    return
                kinds = [next(k for k, is_kind in enumerate(one_of) if self.value(is_kind)) for one_of in block._is]
                found.append([(self.value(age), kind) for age, kind in zip(block._age, kinds, strict=True)])

        solver = self._cp.CpSolver()
        solver.parameters.enumerate_all_solutions = True
        solver.parameters.num_workers = 1
        if seconds is not None:
            solver.parameters.max_time_in_seconds = seconds
        status = solver.solve(self._model, Collect())
        return found, status in (self._cp.OPTIMAL, self._cp.INFEASIBLE)


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
