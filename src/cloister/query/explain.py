"""A plan as text: the cost of each part, the noise, the expected error, the SQL; and the smallest loss for an error."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import sqlglot

from cloister.data.schema import Schema
from cloister.privacy.errors import BadNumber, OverBudget, QueryRefused
from cloister.privacy.ledger import Account
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian, Numeric
from cloister.privacy.number import rounded_up, show
from cloister.query.aggregate import Aggregate
from cloister.query.answer import Answer
from cloister.query.plan import Measurement, Plan

__all__ = ["Conversation", "cheapest", "cost_text", "expected_errors", "explain", "plan_of"]

_MOST = 10**6
_ALL_MEET = "meet the WHERE"


def explain(plan: Plan, *, sql: bool = True) -> str:
    """Return the plan as text, with the engine's SQL unless it is excluded."""
    question = plan.question
    cells = question.cells
    lines = [
        f"question   {' '.join(question.text.split())}",
        f"cost       {cost_text(plan)}",
        f"protects   {plan.unit}, add/remove neighbours",
        f"answers    {_size(plan, cells)}, intervals at {plan.confidence:.0%}",
    ]
    lines += ["", "found first", *(f"  {find}" for find in plan.finds)] if plan.finds else []
    lines += ["", "measured"]
    lines += [f"  {line}" for measurement in plan.measurements for line in _measured(measurement)]
    lines += ["", "expected error of one answer"]
    errors = expected_errors(plan)
    lines += [f"  {text:<40} {error}" for text, error in errors]
    if any(error.endswith(_ALL_MEET) for _, error in errors):
        lines += ["  If only a tenth of them do, the error of an average is about ten times as large."]
    if plan.notes:
        lines += ["", "read as public", *(f"  {note}" for note in plan.notes)]
    for statement in plan.statements() if sql else ():
        lines += ["", f"the engine will run ({plan.dialect})", _pretty(statement, plan.dialect)]
    return "\n".join(lines)


def _size(plan: Plan, cells: int) -> str:
    if plan.finds:
        return "a row for each group that is found"
    return f"{cells:,} {'row' if cells == 1 else 'rows'}"


def _measured(measurement: Measurement) -> list[str]:
    if measurement.reused:
        return [f"{measurement.need.label}: from the record, at no cost"]
    first = measurement.mechanisms[0]
    law = "Gaussian" if isinstance(first, DiscreteGaussian) else "Laplace" if isinstance(first, Numeric) else "chosen"
    parts = f", {measurement.parts} levels" if measurement.parts > 1 else ""
    error = f", standard error {math.sqrt(measurement.variance):.4g}" if isinstance(first, Numeric) else ""
    cap = "" if measurement.sums.max_rows is None else f", at most {measurement.sums.max_rows} per person"
    return [
        f"{measurement.need.label}: {law}{error}{parts}, "
        f"costs {first.loss}{' each' if measurement.parts > 1 else ''}{cap}"
    ]


def expected_errors(plan: Plan) -> list[tuple[str, str]]:
    """Return each aggregate with the half-width of its interval, where public facts determine it."""
    errors = []
    for aggregate in plan.question.aggregates:
        error = expected_error(plan, aggregate)
        if error is not None:
            text = f"± {error:.4g}" + _condition(plan, aggregate)
        elif aggregate.needs[0].kind == "vote":
            text = f"a choice: {plan.closeness(_finest(plan, aggregate)[0])}"
        elif expected_error(replace(plan, size_hint=1), aggregate) is not None:
            text = "depends on the number of rows: give `rows` in the schema"
        else:
            text = "depends on the distribution"
        errors.append((aggregate.text, text))
    return errors


def _condition(plan: Plan, aggregate: Aggregate) -> str:
    """Return the assumption behind an average's error: the number of rows that meet a WHERE is not public."""
    if not plan.question.rows.filtered or plan.size_hint is None:
        return ""
    fewer = expected_error(replace(plan, size_hint=None), aggregate) is None
    return f" if all {plan.size_hint:,} rows {_ALL_MEET}" if fewer else ""


def expected_error(plan: Plan, aggregate: Aggregate) -> float | None:
    """Return the largest half-width of one answer's interval, where public facts determine it."""
    places = _finest(plan, aggregate)
    if any(measurement.need.kind in ("tree", "vote") for measurement in places):
        return None
    share = 1 - (1 - plan.interval_confidence) / len(places)
    margins = [
        float(law.margin(share)) * measurement.unit + measurement.need.rounding * measurement.most_rows(plan.size_hint)
        for measurement in places
        if isinstance(law := measurement.mechanisms[0], Numeric)
    ]
    cells = max(_cells(plan, i) for i in range(len(plan.question.sets)))
    rows = None if plan.size_hint is None else max(1.0, plan.size_hint / cells)
    return aggregate.expected(margins, rows)


def _finest(plan: Plan, aggregate: Aggregate) -> list[Measurement]:
    """Return the measurements of an aggregate in the grouping set with the most groups."""
    finest = max(range(len(plan.question.sets)), key=lambda i: _cells(plan, i))
    return [plan.measurements[plan.needs[finest, need]] for need in aggregate.needs]


def _cells(plan: Plan, group_set: int) -> int:
    return math.prod(len(plan.question.groups[i].values or ()) for i in plan.question.sets[group_set])


def _pretty(statement: str, dialect: str) -> str:
    text = sqlglot.transpile(statement, read=dialect, write=dialect, pretty=True)[0]
    return "\n".join(f"  {line}" for line in text.splitlines())


def cost_text(plan: Plan) -> str:
    """Return the cost in words."""
    if plan.loss is None:
        return "nothing: it is in the record"
    delta = f", delta {show(plan.loss.delta)}" if plan.loss.delta else ""
    return f"{plan.loss.measure} {show(plan.loss.amount)}{delta}"


# The smallest loss for an error


def cheapest(plan_at: Callable[[Loss], Plan], within: float, pure: bool) -> Plan:
    """Search for the smallest sufficient loss. The search uses public facts only and costs nothing.

    Args:
        plan_at: the plan at a given loss.
        within: the largest half-width an answer's interval may have.
        pure: whether the account adds epsilons.
    """
    if not within > 0:
        raise BadNumber("within must be positive: how far off an answer may be.")
    low, high = 1e-9, 1.0
    while _error(plan_at(_loss(high, pure))) > within:
        low, high = high, high * 4
        if high > _MOST:
            raise QueryRefused(
                f"no sensible loss reaches an error of {within:g} here. Allow more, or ask of larger groups."
            )
    for _ in range(40):
        middle = (low * high) ** 0.5
        if _error(plan_at(_loss(middle, pure))) > within:
            low = middle
        else:
            high = middle
        if high / low < 1.001:
            break
    return plan_at(_loss(high, pure))


def _loss(amount: float, pure: bool) -> Loss:
    return Loss("epsilon" if pure else "rho", rounded_up(amount, 4))


def _error(plan: Plan) -> float:
    """Return the largest expected error among the answers."""
    errors = [expected_error(plan, aggregate) for aggregate in plan.question.aggregates]
    if None in errors:
        raise QueryRefused(
            "the error of MIN, MAX, MEDIAN, quantiles and MODE is not known before the answer, nor that of averages "
            "without `rows` in the schema. Say spend=..."
        )
    return max(error for error in errors if error is not None)


class Conversation(Protocol):
    """The interface of a dataset that plans and runs queries."""

    account: Account

    @property
    def schema(self) -> Schema:
        """The public facts."""

    def plan(self, sql: str, *, spend: Any = None, within: Any = None, confidence: Any = "0.95") -> Plan:
        """Plan a query."""

    def run(self, plan: Plan) -> Answer:
        """Run a plan."""


def plan_of(dataset: Conversation, sql: str, spend: Loss | None, within: str | None, confidence: str) -> Plan:
    """Plan a query that may cost `spend`; or that may err by `within` and cost at most `spend`."""
    if within is None:
        return dataset.plan(sql, spend=spend, confidence=confidence)
    plan = dataset.plan(sql, within=within, confidence=confidence)
    if spend is not None and plan.loss is not None and dataset.account.price(plan.loss) > dataset.account.price(spend):
        raise OverBudget(f"an error within {within} costs {plan.loss}, and {spend} is allowed. Raise one of them.")
    return plan
