"""Queries built in Python. They become SQL and are processed like any other SQL."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from cloister.privacy.loss import Loss
    from cloister.query.answer import Answer
    from cloister.query.plan import Plan

__all__ = [
    "Builder",
    "Column",
    "count",
    "count_people",
    "maximum",
    "mean",
    "median",
    "minimum",
    "mode",
    "quantile",
    "std",
    "total",
    "var",
]


@dataclass(frozen=True, slots=True)
class Column:
    """An aggregate and its name."""

    sql: str
    name: str

    def named(self, name: str) -> "Column":
        """Return the aggregate under another name."""
        return replace(self, name=name)


def count(expression: str = "*") -> Column:
    """Count the rows, or the rows where an expression is not NULL."""
    return Column(f"COUNT({expression})", "count" if expression == "*" else f"count_{_word(expression)}")


def count_people(unit: str) -> Column:
    """Count the units: pass the unit column."""
    return Column(f"COUNT(DISTINCT {unit})", f"{_word(unit)}s")


def _simple(function: str, prefix: str) -> Any:
    def build(expression: str) -> Column:
        return Column(f"{function}({expression})", f"{prefix}_{_word(expression)}")

    build.__doc__ = f"{function} of an expression."
    return build


total = _simple("SUM", "sum")
mean = _simple("AVG", "mean")
var = _simple("VARIANCE", "var")
std = _simple("STDDEV", "std")
median = _simple("MEDIAN", "median")
minimum = _simple("MIN", "min")
maximum = _simple("MAX", "max")
mode = _simple("MODE", "mode")


def quantile(expression: str, share: float) -> Column:
    """Estimate the value below which a share of the rows is."""
    return Column(f"QUANTILE({expression}, {share!r})", f"q{share:g}_{_word(expression)}".replace(".", ""))


class Answering(Protocol):
    """A dataset that plans and runs queries: one that is open here, or one in a hub with plans of its own."""

    def plan(self, sql: str, *, spend: "Loss | None", within: Any, confidence: Any) -> Any:
        """Plan a query."""
        ...

    def run(self, plan: Any, /, *, source: Any) -> Any:
        """Run a plan."""
        ...


@dataclass(frozen=True, slots=True)
class Builder:
    """A query under construction: where, group_by, agg; then plan or run."""

    dataset: Answering
    table: str
    conditions: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()

    def where(self, condition: str) -> "Builder":
        """Keep the rows for which a condition holds. Several conditions are joined with AND."""
        return replace(self, conditions=(*self.conditions, condition))

    def group_by(self, *columns: str) -> "Builder":
        """Group the answer."""
        return replace(self, groups=(*self.groups, *columns))

    def agg(self, *columns: Column) -> "Builder":
        """Choose the aggregates."""
        return replace(self, columns=(*self.columns, *columns))

    def plan(self, *, spend: "Loss | None" = None, within: Any = None, confidence: Any = "0.95") -> "Plan":
        """See `Dataset.plan`."""
        plan: Plan = self.dataset.plan(str(self), spend=spend, within=within, confidence=confidence)
        return plan

    def run(
        self, *, spend: "Loss | None" = None, within: Any = None, confidence: Any = "0.95", source: Any = None
    ) -> "Answer":
        """Plan and run the query."""
        answer: Answer = self.dataset.run(self.plan(spend=spend, within=within, confidence=confidence), source=source)
        return answer

    def __str__(self) -> str:
        selected = [*self.groups, *(f'{column.sql} AS "{column.name}"' for column in self.columns)]
        text = f"SELECT {_listed(selected)} FROM {self.table}"  # noqa: S608
        if self.conditions:
            text += " WHERE " + " AND ".join(f"({condition})" for condition in self.conditions)
        if self.groups:
            text += f" GROUP BY {_listed(self.groups)}"
        return text


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts)


def _word(expression: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in expression).strip("_").lower()[:40]
