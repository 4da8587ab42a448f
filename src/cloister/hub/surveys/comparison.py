"""Comparison of a survey question, with noise from devices, and a central release, with noise from the hub.

A finished query that counts people by one column fits a question if every choice is one of its groups. Both are
converted to shares with intervals. They cover different people, protected in different ways; the page says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
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

__all__ = ["LONGEST_TEXT", "MOST_JOBS", "CentralCounts", "ComparedResult", "both", "counted", "fitting", "share_of"]

_REACH = NormalDist().inv_cdf(0.5 + float(CONFIDENCE) / 2)
MOST_JOBS = 200  # the newest are looked at
LONGEST_TEXT = 2_000  # characters of SQL; longer ones are not looked at
_MOST_CHARACTERS = 40_000  # of different texts; parsing takes a second at most
_LARGEST_RESULT = 200_000  # bytes; a question has 400 choices at most
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


@dataclass(frozen=True, slots=True)
class CentralCounts:
    """Counts of people by the groups of one column, from the result of a query.

    Attributes:
        cells: the groups, each with the cell of its count and interval.
        confidence: the probability with which an interval holds the true count.
    """

    cells: Sequence[tuple[str, Mapping[str, Any]]]
    confidence: float

    def shares(self, choices: Sequence[str]) -> dict[str, tuple[float, float, float]] | None:
        """Return the shares of the choices among all that were counted in them; None if one has no group."""
        cells: dict[str, list[Mapping[str, Any]]] = {choice: [] for choice in choices}
        folded = {choice.casefold(): choice for choice in choices}
        for group, cell in self.cells:
            text = group.casefold()
            choice = group if group in cells else folded.get(text) or folded.get(_SAME.get(text, ""))
            if choice is not None:
                cells[choice].append(cell)
        return _shares(cells, self.confidence) if all(cells.values()) else None


def counted(session: Session, person: Person) -> list[tuple[Job, CentralCounts]]:
    """Return the user's newest finished queries that count by one column, with their counts.

    Each text is parsed once and each result is loaded once, within limits: for a page, not for one of its questions.
    """
    done = sa.select(Job).where(Job.person_id == person.id, Job.kind == "query", Job.state == "done")
    texts: set[str] = set()
    results: dict[tuple[str, str], CentralCounts | None] = {}
    counts = []
    for job in list(session.scalars(done.order_by(Job.id.desc()).limit(MOST_JOBS))):
        sql = _sql_of(job)
        if len(sql) > LONGEST_TEXT or (sql not in texts and sum(map(len, texts)) + len(sql) > _MOST_CHARACTERS):
            continue
        texts.add(sql)
        if not _counting(sql).by_one_column:
            continue  # without loading its result, which may be large
        key = sql, job.digest or f"job {job.id}"
        if key not in results:
            results[key] = _counts_of(sql, result_of(session, job, largest=_LARGEST_RESULT))
        central = results[key]
        if central is not None:
            counts.append((job, central))
    return counts


def fitting(counts: Sequence[tuple[Job, CentralCounts]], compared: QuestionResult) -> list[Job]:
    """Return the queries whose groups are the question's choices, of those that `counted` returned."""
    if compared.question.kind != "choice":
        return []
    return [job for job, central in counts if central.shares(compared.asked.choices) is not None]


def share_of(job: Job, choices: Sequence[str]) -> dict[str, tuple[float, float, float]] | None:
    """Return the shares of the choices among all that were counted in them; None if the query does not fit."""
    central = _counts_of(_sql_of(job), job.result)
    return None if central is None else central.shares(choices)


def _sql_of(job: Job) -> str:
    return str(job.parameters.get("sql", ""))


def _counts_of(sql: str, result: Mapping[str, Any] | None) -> CentralCounts | None:
    """Return the counts in the result of a query; None if it has none by one column."""
    result = result or {}
    columns, rows = result.get("columns", []), result.get("rows", [])
    groups = [index for index, column in enumerate(columns) if not column.get("number")]
    counting, alone = _counting(sql), len(columns) == 2
    numbers = [
        index
        for index, column in enumerate(columns)
        if column.get("number") and counting.is_count(column["name"], alone)
    ]
    if not isinstance(rows, list) or len(groups) != 1 or not numbers:
        return None
    group, number = groups[0], numbers[0]
    # NULL is not a choice that is called None.
    cells = [(str(row[group]["value"]), row[number]) for row in rows if row[group].get("value") is not None]
    return CentralCounts(cells, float(result.get("confidence", 0.95)))


@dataclass(frozen=True, slots=True)
class _Counting:
    """Counts that a query asks for, from its text alone.

    Attributes:
        by_one_column: True if it counts and groups by one column.
        names: of its columns that are counts, case folded.
        unnamed: True if one of them has no alias.
    """

    by_one_column: bool = False
    names: frozenset[str] = frozenset()
    unnamed: bool = False

    def is_count(self, column: str, alone: bool) -> bool:
        """Return True if a column of an answer is a count; an unnamed one is, if it is the only number."""
        return column.casefold() in self.names or (alone and self.unnamed)


@lru_cache(maxsize=500)
def _counting(sql: str) -> _Counting:
    try:
        (tree,) = parse(sql)[1]
    except Exception:  # a text that cannot be parsed was never answered
        return _Counting()
    if not isinstance(tree, exp.Select):
        return _Counting()
    group = tree.args.get("group")
    by_one = group is not None and len(group.expressions) == 1 and any(True for _ in tree.find_all(exp.Count))
    counts = [(index, select) for index, select in enumerate(tree.selects) if isinstance(select.unalias(), exp.Count)]
    names = frozenset((select.alias_or_name or f"column_{index}").casefold() for index, select in counts)
    return _Counting(by_one, names, any(not select.alias for _, select in counts))


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
    session: Session, person: Person, compared: QuestionResult, number: int
) -> tuple[Job, ComparedResult, ComparedResult]:
    """Return a question and one of the user's queries, side by side.

    Raises:
        NotHere: there is no such query of theirs, or it does not fit.
    """
    job = find_job(session, person, number)
    if job.person_id != person.id or job.kind != "query" or job.state != "done":
        raise NotHere("there is no such answer of yours.")
    central = share_of(job, compared.asked.choices) if compared.question.kind == "choice" else None
    if central is None or compared.finding is None:
        raise NotHere("this answer does not count people by the choices of the question.")
    local = {row["value"]: (row["raw"], row["low"], row["high"]) for row in compared.rows()}
    return job, ComparedResult("survey (local)", local, compared.n), ComparedResult("release (central)", central)
