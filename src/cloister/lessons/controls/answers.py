"""Controls that decide from the noisy answer. All of them are post-processing.

Falls to: without the noise behind them `attack.queries.tracker.general_tracker` and
`attack.queries.reconstruction.fill_in`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, isfinite
from typing import Any

import pyarrow as pa
from sqlglot import exp

from cloister.lessons.controls.control import Control, History
from cloister.privacy.errors import BadBounds, BadNumber
from cloister.privacy.number import Number, rational
from cloister.query.answer import Answer
from cloister.query.question import Question

__all__ = ["MinimumSize", "RangeAnswers", "Rounded", "SmallCells"]


@dataclass(frozen=True, slots=True)
class MinimumSize(Control):
    """Refuse an answer unless the noisy count of each row is in [least, of - least].

    Stops: overreading the noise around a handful of people, or around all but a handful. Does not stop: trackers; noise
    does. The query is charged, since the count is an answer. Claims no epsilon.
    """

    least: int
    of: int | None = None

    def __post_init__(self) -> None:
        _positive(self.least, "least")

    def before(self, question: Question, history: History) -> str | None:
        """Refuse a query without a count."""
        return None if _counts(question) else "it needs COUNT(*) among its columns: its noisy value decides."

    def after(self, question: Question, answer: Answer) -> Answer:
        """Withhold the answer if one row's count is too small or too large."""
        most = None if self.of is None else self.of - self.least
        outside = [_outside(row, question, self.least, most) for row in answer.rows()]
        if not any(outside):
            return answer
        limits = f"below {self.least}" if most is None else f"outside {self.least} to {most}"
        return _withheld(question, answer, [True] * len(answer), f"withheld: a noisy count is {limits}")


@dataclass(frozen=True, slots=True)
class SmallCells(Control):
    """Withhold rows of the answer whose noisy count is below `least`; show the others.

    Stops: tables of tiny groups, in which noise looks like signal. Does not stop: estimating a withheld cell from
    totals, whose noise protects it as much as its own did. Claims no epsilon.
    """

    least: int

    def __post_init__(self) -> None:
        _positive(self.least, "least")

    def before(self, question: Question, history: History) -> str | None:
        """Refuse a query without a count."""
        return None if _counts(question) else "it needs COUNT(*) among its columns: its noisy value decides."

    def after(self, question: Question, answer: Answer) -> Answer:
        """Withhold the small rows."""
        small = [_outside(row, question, self.least, None) for row in answer.rows()]
        if not any(small):
            return answer
        return _withheld(question, answer, small, f"withheld: noisy counts below {self.least}")


@dataclass(frozen=True, slots=True)
class Rounded(Control):
    """Round numbers to the nearest multiple of `base`, and limits outwards so that they still hold.

    Stops: digits that are all noise. Does not stop: anything else. Rounding is undone by queries on slightly larger or
    smaller sets, which here yield only the noisy number. Claims no epsilon.
    """

    base: Number

    def __post_init__(self) -> None:
        _positive(rational(self.base, "base"), "base")

    def after(self, question: Question, answer: Answer) -> Answer:
        """Round the answer."""
        base = float(rational(self.base))
        table = answer.value
        for name in _numbers(question, answer):
            for end, up in (("", 0.5), ("_low", 0.0), ("_high", 1.0)):
                if name + end in table.column_names:
                    cells = [_step(cell, base, up) for cell in answer.column(name + end)]
                    table = _set(table, name + end, cells)
        return replace(answer, value=table)


@dataclass(frozen=True, slots=True)
class RangeAnswers(Control):
    """Replace a number by the public range that holds its limits (or the number, if it has none): `50,000-100,000`.

    Stops: false precision, such as the salary of the one director behind MAX. Does not stop: shifting the number across
    an edge to find it; here the number found is noisy. Claims no epsilon.
    """

    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.edges) < 2 or list(self.edges) != sorted(set(self.edges)):
            raise BadBounds("ranges need at least two public edges, rising: (0, 50_000, 100_000).")

    def after(self, question: Question, answer: Answer) -> Answer:
        """Replace numbers by ranges, and omit their limits."""
        table, rows = answer.value, answer.rows()
        for name in _numbers(question, answer):
            table = _set(table, name, [self._range(row, name) for row in rows])
            table = table.drop_columns([end for end in (f"{name}_low", f"{name}_high") if end in table.column_names])
        return replace(answer, value=table)

    def _range(self, row: Mapping[str, Any], name: str) -> str | None:
        value = row[name]
        if value is None or value != value:
            return None
        low, high = (value if row.get(name + end) is None else row[name + end] for end in ("_low", "_high"))
        below = max((edge for edge in self.edges if edge <= low), default=None)
        above = min((edge for edge in self.edges if edge > high), default=None)
        if below is None or above is None:
            return "any" if below == above else f"below {above:,}" if below is None else f"{below:,} or more"
        return f"{below:,}-{above:,}"


def _positive(value: Any, name: str) -> None:
    if not value > 0:
        raise BadNumber(f"{name} must be above 0, got {value}.")


def _step(x: float | None, base: float, up: float) -> float | None:
    """Return a multiple of the base: the one below, above (up = 1) or nearest (up = 1/2)."""
    if x is None or not isfinite(x):
        return x
    return base * (ceil(x / base) if up == 1 else floor(x / base + up))


def _answers(question: Question) -> list[str]:
    """Return the columns of the answer that hold aggregates, not groups."""
    return [
        output.name
        for output in question.outputs
        if any(column.name.startswith("a") for column in output.node.find_all(exp.Column))
    ]


def _counts(question: Question) -> list[str]:
    kinds = {i: aggregate.needs[0].kind for i, aggregate in enumerate(question.aggregates) if len(aggregate.needs) == 1}
    return [
        output.name
        for output in question.outputs
        if output.aggregate is not None and kinds.get(output.aggregate) in ("rows", "people")
    ]


def _outside(row: Mapping[str, Any], question: Question, least: int, most: int | None) -> bool:
    counts = [row[name] for name in _counts(question) if row[name] is not None]
    return any(count < least or (most is not None and count > most) for count in counts)


def _numbers(question: Question, answer: Answer) -> list[str]:
    kinds = {name: answer.value.column(name).type for name in _answers(question)}
    return [name for name, kind in kinds.items() if pa.types.is_floating(kind) or pa.types.is_integer(kind)]


def _withheld(question: Question, answer: Answer, gone: list[bool], note: str) -> Answer:
    table = answer.value
    for name in (f"{column}{end}" for column in _answers(question) for end in ("", "_low", "_high")):
        if name in table.column_names:
            cells = [None if out else cell for cell, out in zip(answer.column(name), gone, strict=True)]
            table = _set(table, name, cells, table.column(name).type)
    return replace(answer, value=table, notes=(*answer.notes, note))


def _set(table: pa.Table, column: str, cells: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    return table.set_column(table.column_names.index(column), column, pa.array(cells, kind))
