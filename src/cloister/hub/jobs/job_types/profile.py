"""Profile of a table: number of rows, and a histogram of every column over its public values, for one charge.

One query, `SELECT …, COUNT(*) GROUP BY GROUPING SETS ((column), (column), …, ())`, so one charge and one receipt:
the loss is shared equally between the columns and the total.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, ClassVar

from cloister.client import wire
from cloister.data.schema import Schema
from cloister.dataset import Dataset
from cloister.hub.jobs.job_types.job_type import (
    Confidence,
    Done,
    Field,
    Planned,
    Progress,
    Whole,
    read_form,
    table_named,
)
from cloister.hub.jobs.job_types.query import plain, planned
from cloister.query.expression import Expression
from cloister.query.plan import Plan

__all__ = ["Profile"]


@dataclass(frozen=True, slots=True)
class ProfileColumn:
    """Grouping of one column.

    Attributes:
        column: its name.
        type: the type of the column.
        sql: the grouping expression.
        labels: the label of each group, by the expression's value; other values are shown unchanged.
        note: a sentence about it.
    """

    column: str
    type: str
    sql: str
    labels: Mapping[Any, str]
    note: str = ""


class Profile:
    """Counts and histograms of every column that the user may see."""

    name: ClassVar[str] = "profile"
    title: ClassVar[str] = "Profile a table"
    operation: ClassVar[str] = "profile"
    template: ClassVar[str] = "result_profile.html"
    fields: ClassVar[tuple[Field, ...]] = (
        Field("table", "Table", "table", "Every column of it is counted over its public values."),
        Field(
            "spend",
            "Privacy budget",
            "loss",
            "Shared equally between the columns and the total.",
            "rho 0.02",
            missing="'Privacy budget' is missing. Write what the profile may cost, such as rho 0.02.",
        ),
        Field(
            "bins",
            "Bins",
            "number",
            "Into how many equal parts the range of a number or a date is cut.",
            "10",
            most=10,
            rule=Whole(2, 40),
        ),
        Field(
            "confidence",
            "Confidence",
            "number",
            "Confidence level of the intervals.",
            "0.95",
            required=False,
            rule=Confidence(),
        ),
    )

    def parse(self, form: Mapping[str, Any]) -> dict[str, Any]:
        """Read the table, the spend and the number of bins."""
        read = read_form(self.fields, form)
        return {**read, "bins": int(read["bins"])}

    def tables(self, schema: Schema, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the one table, as the schema spells it."""
        return (table_named(schema, parameters["table"], "profile"),)

    def plan(self, data: Dataset, parameters: Mapping[str, Any]) -> Planned:
        """Return the cost, and the error of each count."""
        return planned(data, self._plan(data, parameters)[0])

    def run(self, data: Dataset, parameters: Mapping[str, Any], progress: Progress) -> Done:
        """Run the counts."""
        plan, sides = self._plan(data, parameters)
        progress(0.2, f"counting {len(sides)} columns")
        answer = data.run(plan)
        counts = answer.value.select(["rows", "rows_low", "rows_high"]).to_pylist()
        columns, start = [], 0
        for side, group in zip(sides, plan.question.groups, strict=True):
            values = list(group.values or ())
            bars = [
                {"label": side.labels.get(value, str(value)), "missing": value is None, **_cell(cell)}
                for value, cell in zip(values, counts[start : start + len(values)], strict=True)
            ]
            start += len(values)
            columns.append({"name": side.column, "type": side.type, "note": side.note, "bars": bars})
        receipts = () if answer.receipt is None else (answer.receipt,)
        result = {
            "table": self.tables(data.schema, parameters)[0],
            "rows": _cell(counts[start]),
            "columns": columns,
            "confidence": answer.confidence,
            "notes": list(answer.notes),
            "answer": wire.answer_to_json(answer),
        }
        return Done(result, receipts)

    def _plan(self, data: Dataset, parameters: Mapping[str, Any]) -> tuple[Plan, list[ProfileColumn]]:
        (table,) = self.tables(data.schema, parameters)
        sides = [_side(name, term, parameters["bins"]) for name, term in data.columns(table).items() if not term.unit]
        selected = ", ".join(f"{side.sql} AS g{i}" for i, side in enumerate(sides))
        sets = ", ".join(f"(g{i})" for i in range(len(sides)))
        sql = f"SELECT {selected}, COUNT(*) AS rows FROM {_quoted(table)} GROUP BY GROUPING SETS ({sets}, ())"  # noqa: S608
        spend = wire.parse_loss(parameters["spend"])
        return data.plan(sql, spend=spend, confidence=parameters["confidence"]), sides


def _side(name: str, term: Expression, bins: int) -> ProfileColumn:
    """Group a column by its few public values, by equal parts of its bounds, or else by NULL or not."""
    column, labels = _quoted(name), dict[Any, str]({None: "missing"})
    if term.values is not None or term.type == "boolean":
        return ProfileColumn(name, term.type, column, labels)
    if not term.bounded:
        presence = {True: "missing", False: "present"}
        return ProfileColumn(name, term.type, f"{column} IS NULL", presence, "no public values or bounds to count by")
    low, high = float(term.low or 0), float(term.high or 0)
    if term.type in ("date", "timestamp"):
        return _dates(name, term, int(low), int(high), bins)
    if term.type == "integer" and high - low < bins:
        return ProfileColumn(name, term.type, column, labels)
    edges = [low + (high - low) * i / bins for i in range(bins + 1)]
    labels |= {i + 1: f"{_short(edges[i])} to {_short(edges[i + 1])}" for i in range(bins)}
    labels[bins + 1] = f"{_short(high)} or more"
    sql = f"WIDTH_BUCKET({column}, {low!r}, {high!r}, {bins})"
    return ProfileColumn(name, term.type, sql, labels, "values beyond the bounds count as the bounds")


def _dates(name: str, term: Expression, first: int, last: int, bins: int) -> ProfileColumn:
    """Group dates by equal numbers of days; a date's group is its position among the edges."""
    days = math.ceil((last - first + 1) / bins)
    starts = [date.fromordinal(first + i * days) for i in range(bins) if first + i * days <= last]
    column = _quoted(name)
    whens = [f"WHEN {column} < DATE '{start}' THEN {i}" for i, start in enumerate(starts[1:], 1)]
    absent = [f"WHEN {column} IS NULL THEN 0"] if term.nullable else []
    sql = f"CASE {' '.join(absent + whens)} ELSE {len(starts)} END"
    ends = [start - timedelta(days=1) for start in starts[1:]] + [date.fromordinal(last)]
    labels = {i: f"{start} to {end}" for i, (start, end) in enumerate(zip(starts, ends, strict=True), 1)}
    return ProfileColumn(name, term.type, sql, {0: "missing", **labels}, "dates beyond the bounds count as the bounds")


def _cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {"value": plain(cell["rows"]), "low": plain(cell["rows_low"]), "high": plain(cell["rows_high"])}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _short(number: float) -> str:
    return f"{number:,.6g}"
