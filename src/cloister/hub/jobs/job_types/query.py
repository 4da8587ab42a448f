"""SQL query: a table of private answers, with an interval for each number."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from typing import Any, ClassVar

from sqlglot import exp

from cloister.client import wire
from cloister.data.schema import Schema
from cloister.dataset import Dataset
from cloister.hub.jobs.job_types.job_type import Confidence, Done, Field, Planned, Progress, read_form, text_of
from cloister.privacy.errors import BadForm
from cloister.privacy.loss import Loss
from cloister.privacy.number import rational
from cloister.query.answer import Answer
from cloister.query.explain import expected_errors, explain, plan_of
from cloister.query.plan import Plan
from cloister.query.sql_text import parse

__all__ = ["Query", "cells", "planned"]

_MOST_SHOWN = 2_000
_FRAME = 100_000  # bytes of a result without cells, names and SQL
_LEAST, _MOST = Fraction(1, 10**30), 10**30  # of an acceptable error: the limits of a float


@dataclass(frozen=True, slots=True)
class AcceptableError:
    """Rule: how far off an answer may be, kept as text."""

    def read(self, text: str, label: str) -> str:
        """Return the error."""
        if not _LEAST <= rational(text, "within") <= _MOST:
            raise BadForm("'within' is how far off an answer may be: a positive number from 1e-30 to 1e30.")
        return text


class Query:
    """Private SQL."""

    name: ClassVar[str] = "query"
    title: ClassVar[str] = "Ask in SQL"
    operation: ClassVar[str] = "query"
    template: ClassVar[str] = "result_query.html"
    fields: ClassVar[tuple[Field, ...]] = (
        Field(
            "sql",
            "Question",
            "sql",
            "One SELECT with aggregates, such as SELECT ward, COUNT(*) … GROUP BY ward.",
            most=20_000,
            missing="'Question' is missing. Write one SELECT.",
        ),
        Field(
            "spend",
            "Privacy budget",
            "loss",
            "What it may cost: rho 0.01, epsilon 0.5, epsilon 0.5 delta 1e-8.",
            "rho 0.01",
            missing="say what the answer may cost ('spend': 'rho 0.01') or how wrong it may be ('within': 5).",
        ),
        Field(
            "within",
            "Or: error within",
            "number",
            "The cheapest spend for this error is found, at most the budget.",
            required=False,
            rule=AcceptableError(),
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
        """Read the query and its cost, or its acceptable error; with both, the cost is the most that it may be."""
        fields = {field.name: field for field in self.fields}
        if not text_of(form, "within", "Error within"):
            del fields["within"]
        elif not text_of(form, "spend", "Privacy budget"):
            del fields["spend"]
        return read_form(list(fields.values()), form)

    def tables(self, schema: Schema, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return every table of the schema that the query names anywhere. The plan checks that it is valid SQL."""
        try:
            trees = [tree for tree in parse(str(parameters["sql"]))[1] if tree is not None]
        except Exception:  # a parser may fail on a text in many ways; the plan will refuse it with a message
            return ()
        named = {table.name.lower() for tree in trees for table in tree.find_all(exp.Table)}
        return tuple(name for name in schema.tables if name.lower() in named)

    def plan(self, data: Dataset, parameters: Mapping[str, Any]) -> Planned:
        """Return the cost of the query, and its expected error."""
        return planned(data, _plan(data, parameters))

    def run(self, data: Dataset, parameters: Mapping[str, Any], progress: Progress) -> Done:
        """Run the query."""
        plan = _plan(data, parameters)
        progress(0.2, "measuring")
        answer = data.run(plan)
        receipts = (*answer.search, *(() if answer.receipt is None else (answer.receipt,)))
        return Done({"answer": wire.answer_to_json(answer), **cells(answer)}, receipts)


def planned(data: Dataset, plan: Plan) -> Planned:
    """Convert a plan of the query language to the plan of a job."""
    nothing = Loss.nothing(data.account.cap.measure, data.account.cap.relation)
    loss = sum((data.account.price(mechanism) for mechanism in plan.mechanisms), start=nothing)
    if plan.finds and plan.loss is not None:  # groups are found first, in a separate charge
        loss = data.account.price(plan.loss)
    user_loss = loss
    if data.reader is not None:
        user_loss = loss + data.reader.price(data.reader.news(plan))
    return Planned(
        loss,
        user_loss,
        tuple(explain(plan, sql=False).splitlines()),
        tuple(expected_errors(plan)),
        tuple(plan.statements()),
        plan.notes,
        cells=_cells(plan),
        largest=_largest(plan),
    )


def _cells(plan: Plan) -> int:
    """Return rows times columns of the answer. Groups that are found later count as one."""
    sizes = [max(1, len(group.values or ())) for group in plan.question.groups]
    rows = sum(math.prod(sizes[i] for i in members) for members in plan.question.sets)
    return rows * len(plan.question.outputs)


def _largest(plan: Plan) -> int:
    """Return an upper bound of the result's bytes; 0 if texts in it are not known beforehand."""
    question, texts = (
        plan.question,
        {f"k{i}" for i, group in enumerate(plan.question.groups) if group.term.type == "text"},
    )
    if plan.finds or any(group.values is None for group in question.groups):
        return 0
    for output in question.outputs:
        parts = [] if isinstance(output.node, exp.Column) else list(output.node.find_all(exp.Literal, exp.Column))
        if any(part.is_string or part.name in texts for part in parts):
            return 0
    words = [value for group in question.groups if group.term.type == "text" for value in group.values or ()]
    longest = max((len(str(word).encode()) for word in words), default=0)
    # A cell is in an Arrow table in base64, with its limits, and as JSON for the page, where a sign may take six.
    return _FRAME + 40 * len(question.text) + 2_000 * len(question.outputs) + _cells(plan) * (160 + 8 * longest)


def cells(answer: Answer) -> dict[str, Any]:
    """Return the answer for a page: columns, and rows of {value, low, high}; the first 2,000."""
    column_names = set(answer.value.column_names)
    limits = {name: (f"{name}_low", f"{name}_high") for name in answer.columns if f"{name}_low" in column_names}
    rows = []
    for row in answer.value.slice(0, _MOST_SHOWN).to_pylist():
        row_cells = []
        for name in answer.columns:
            cell = {"value": plain(row[name])}
            if name in limits:
                cell |= {"low": plain(row[limits[name][0]]), "high": plain(row[limits[name][1]])}
            row_cells.append(cell)
        rows.append(row_cells)
    return {
        "columns": [{"name": name, "number": name in limits} for name in answer.columns],
        "rows": rows,
        "more": max(0, answer.value.num_rows - _MOST_SHOWN),
        "confidence": answer.confidence,
        "notes": list(answer.notes),
    }


def plain(value: Any) -> Any:
    """Return a released value as JSON; infinite limits become None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, date | datetime) else value


def _plan(data: Dataset, parameters: Mapping[str, Any]) -> Plan:
    spend = wire.parse_loss(parameters["spend"]) if "spend" in parameters else None
    return plan_of(data, parameters["sql"], spend, parameters.get("within"), parameters["confidence"])
