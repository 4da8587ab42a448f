"""Comparison of a survey question, with noise from devices, and a central release, with noise from the hub.

A finished query that counts people by one column fits a question if every choice is one of its groups. Both are
converted to shares with intervals. They cover different people, protected in different ways; the page says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlglot import exp

from cloister.hub.approvals.visibility import find_job, result_of
from cloister.hub.core.models import Job, Person
from cloister.hub.surveys.question_result import CONFIDENCE, QuestionResult
from cloister.privacy.errors import NotHere
from cloister.query.sql_text import parse

__all__ = ["ComparedResult", "both", "fitting", "share_of"]

_REACH = NormalDist().inv_cdf(0.5 + float(CONFIDENCE) / 2)
_MOST_JOBS = 200
_SAME = {"true": "yes", "false": "no", "1": "yes", "0": "no"}


@dataclass(frozen=True, slots=True)
class ComparedResult:
    """Shares of the same choices from one source.

    Attributes:
        source: the label in the chart.
        shares: for each choice: value, low, high.
        n: the approximate number of people; None where that is not public.
    """

    source: str
    shares: Mapping[str, tuple[float, float, float]]
    n: float | None = None


def fitting(session: Session, person: Person, found: QuestionResult) -> list[Job]:
    """Return the user's finished queries that count by one column whose groups are the question's choices."""
    if found.question.kind != "choice":
        return []
    done = sa.select(Job).where(Job.person_id == person.id, Job.kind == "query", Job.state == "done")
    fits = []
    for job in list(session.scalars(done.order_by(Job.id.desc()).limit(_MOST_JOBS))):
        if not _may_fit(str(job.parameters.get("sql", ""))):
            continue  # without loading its result, which may be large
        result = result_of(session, job)
        session.expunge(job)
        job.result = result
        if result is not None and share_of(job, found.asked.choices) is not None:
            fits.append(job)
    return fits


def _may_fit(sql: str) -> bool:
    """Return True if a query counts by one column; from its text alone."""
    try:
        (tree,) = parse(sql)[1]
    except Exception:  # a text that cannot be parsed was never answered
        return False
    group = tree.args.get("group")
    return group is not None and len(group.expressions) == 1 and any(True for _ in tree.find_all(exp.Count))


def share_of(job: Job, choices: Sequence[str]) -> dict[str, tuple[float, float, float]] | None:
    """Return the shares of the choices among all that were counted in them; None if the query does not fit."""
    result = job.result or {}
    columns, rows = result.get("columns", []), result.get("rows", [])
    groups = [index for index, column in enumerate(columns) if not column.get("number")]
    sql = str(job.parameters.get("sql", ""))
    alone = len(columns) == 2
    counts = [
        index for index, column in enumerate(columns) if column.get("number") and _counts(sql, column["name"], alone)
    ]
    if not isinstance(rows, list) or len(groups) != 1 or not counts:
        return None
    group, number = groups[0], counts[0]
    cells: dict[str, list[Mapping[str, Any]]] = {choice: [] for choice in choices}
    folded = {choice.casefold(): choice for choice in choices}
    for row in rows:
        value = row[group].get("value")
        text = str(value).casefold()
        name = str(value) if str(value) in cells else folded.get(text) or folded.get(_SAME.get(text, ""))
        if name is not None and value is not None:  # NULL is not a choice that is called None
            cells[name].append(row[number])
    if not all(cells.values()):
        return None
    return _shares(cells, float(result.get("confidence", 0.95)))


def _counts(sql: str, column: str, alone: bool) -> bool:
    """Return True if a column of an answer is a count; an unnamed one is, if it is the only number."""
    try:
        (tree,) = parse(sql)[1]
    except Exception:  # a text that cannot be parsed was never answered
        return False
    for index, selected in enumerate(tree.selects if isinstance(tree, exp.Select) else ()):
        named = selected.alias_or_name or f"column_{index}"
        counting = isinstance(selected.unalias(), exp.Count)
        if counting and (named.casefold() == column.casefold() or (alone and not selected.alias)):
            return True
    return False


def _shares(
    counts: Mapping[str, Sequence[Mapping[str, Any]]], confidence: float
) -> dict[str, tuple[float, float, float]] | None:
    """Convert counts with intervals to shares with intervals, by the delta method: the total's noise affects all.

    A choice may have several groups, such as `yes` and `true`: their counts are added, and so are their variances.
    """
    reach = NormalDist().inv_cdf(0.5 + confidence / 2)
    estimates = {}
    for name, cells in counts.items():
        numbers: list[tuple[Any, ...]] = [tuple(cell.get(key) for key in ("value", "low", "high")) for cell in cells]
        if not all(
            isinstance(number, int | float) and not isinstance(number, bool) for cell in numbers for number in cell
        ):
            return None
        variance = sum(((float(high) - float(low)) / 2 / reach) ** 2 for _, low, high in numbers)
        estimates[name] = sum(float(value) for value, _, _ in numbers), sqrt(variance)
    total = sum(value for value, _ in estimates.values())
    if total <= 0:
        return None
    noise = sum(error**2 for _, error in estimates.values())
    shares = {}
    for name, (value, error) in estimates.items():
        share = value / total
        spread = _REACH * sqrt((error * (1 - share)) ** 2 + share**2 * (noise - error**2)) / total
        shares[name] = share, share - spread, share + spread
    return shares


def both(
    session: Session, person: Person, found: QuestionResult, number: int
) -> tuple[Job, ComparedResult, ComparedResult]:
    """Return a question and one of the user's queries, side by side.

    Raises:
        NotHere: there is no such query of theirs, or it does not fit.
    """
    job = find_job(session, person, number)
    if job.person_id != person.id or job.kind != "query" or job.state != "done":
        raise NotHere("there is no such answer of yours.")
    central = share_of(job, found.asked.choices) if found.question.kind == "choice" else None
    if central is None or found.finding is None:
        raise NotHere("this answer does not count people by the choices of the question.")
    local = {row["value"]: (row["raw"], row["low"], row["high"]) for row in found.rows()}
    return job, ComparedResult("survey (local)", local, found.n), ComparedResult("release (central)", central)
