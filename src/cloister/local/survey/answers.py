"""A table of true answers, as a teacher or a tester has one: a device for each row, or the truth beside an estimate.

A column is named after its question; the column `NAME.level`, if there is one, says at which level each person answers.
An empty cell is a question that was skipped.
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cloister.local.base.oracle import Floats, Oracle
from cloister.local.base.perturb import perturb
from cloister.local.survey.envelope import seal
from cloister.local.survey.question import Question
from cloister.privacy.errors import BadCandidates, BadSource
from cloister.privacy.noise.source import Source

__all__ = ["envelopes", "lines", "matched_rows", "read_rows", "truth"]

_PIECE = 1 << 13


def _unseen(_read: int) -> None:
    """Nobody watches."""


def lines(path: Path | str, read: Callable[[int], object] = _unseen) -> Iterator[str]:
    """The lines of a text file; `read` is told how many bytes were read, for a progress bar."""
    try:
        with Path(path).open("rb") as file:
            for line in file:
                read(len(line))
                yield line.decode("utf-8-sig" if line.startswith(b"\xef\xbb\xbf") else "utf-8", "replace")
    except OSError:
        raise BadSource(f"{path} cannot be read. Is the name right?") from None


def read_rows(path: Path | str, read: Callable[[int], object] = _unseen) -> Iterator[Mapping[str, Any]]:
    """Rows of a CSV file with a header, or of JSON lines."""
    if Path(path).suffix in (".jsonl", ".ndjson", ".json"):
        for number, line in enumerate(lines(path, read), 1):
            if line.strip():
                yield _object(line, f"{path}, line {number}")
        return
    yield from csv.DictReader(lines(path, read))


def matched_rows(
    questions: Sequence[Question], rows: Iterable[Mapping[str, Any]], *, header: bool
) -> Iterator[Mapping[str, Any]]:
    """The same rows, unless a column that is no question may be meant for a question that has none.

    Some questions may be left out. But a mistyped name would leave one out without a word, and cost people the others.

    Args:
        questions: those that are to be answered.
        rows: one a person.
        header: whether every row has every column, as in CSV; else rows may leave columns out.

    Raises:
        BadSource: there are both; names them.
    """
    seen = set[str]()
    for number, row in enumerate(rows):
        seen.update(row)
        if header and not number:
            _require_columns(questions, seen)
        yield row
    _require_columns(questions, seen)


def _require_columns(questions: Sequence[Question], seen: set[str]) -> None:
    missing = [one.id for one in questions if one.id not in seen]
    others = seen - {name for one in questions for name in (one.id, f"{one.id}.level")}
    if missing and others:
        raise BadSource(
            f"there is no column for {', '.join(missing[:10])}. Columns that are no question: "
            f"{', '.join(sorted(map(str, others))[:10])}. Rename the column, or take it or the question out. Nothing "
            "was written."
        )


def _object(line: str, place: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise BadSource(f'{place} is no JSON object. Write one object a line, such as {{"smoker": "yes"}}.')
    return row


def envelopes(
    questions: Sequence[Question],
    rows: Iterable[Mapping[str, Any]],
    level: object = None,
    source: Source | None = None,
    skipped: Counter[str] | None = None,
) -> Iterator[bytes]:
    """What the devices of these people would send, by the thousand.

    Args:
        questions: each is answered by those whose cell is not empty.
        rows: one a person.
        level: for those who have not chosen one themselves.
        source: where random bits come from; the operating system's unless given.
        skipped: where answers that are none are counted, by question, instead of stopping at the first of them.

    Privacy: costs each person the sum of the levels of the questions they answer. A refused answer is not shown; how
        many were skipped is a fact about the true answers, for whoever may see those.
    """
    waiting: dict[tuple[str, Oracle], list[Any]] = {}
    levels: dict[tuple[str, object], Oracle] = {}
    for number, row in enumerate(rows, 1):
        for question in questions:
            told = row.get(question.id)
            if told is None or told == "":
                continue
            value = question.value(told) if skipped is not None else _value(question, told, number)
            if value is None and skipped is not None:
                skipped[question.id] += 1
                continue
            chosen = question.id, row.get(f"{question.id}.level") or level
            if chosen not in levels:
                levels[chosen] = _mechanism(question, chosen[1], number)
            group = question.id, levels[chosen]
            waiting.setdefault(group, []).append(value)
            if len(waiting[group]) >= _PIECE:
                yield from _sent(*group, waiting.pop(group), source)
    for group, values in waiting.items():
        yield from _sent(*group, values, source)


def _mechanism(question: Question, level: object, row: int) -> Oracle:
    if level is None:
        raise BadCandidates(
            f"row {row} has no level for {question.id}. Give one for all (--level), or a column {question.id}.level."
        )
    return question.at(level)


def _sent(question: str, mechanism: Oracle, values: list[Any], source: Source | None) -> list[bytes]:
    return seal(question, perturb(mechanism, values, source), source)


def _value(question: Question, told: Any, row: int) -> Any:
    value = question.value(told)
    if value is None:
        raise BadCandidates(f"row {row}: this is no answer to {question.id}. It takes {question.takes}.")
    return value


def truth(question: Question, rows: Iterable[Mapping[str, Any]]) -> Floats:
    """The true shares (or mean) among those who answered. For lessons: who collects reports cannot know them."""
    told = (row.get(question.id) for row in rows)
    values = [_value(question, one, number) for number, one in enumerate(told, 1) if one is not None and one != ""]
    if not values:
        raise BadSource(f"nobody answered {question.id} in this table.")
    if question.kind == "number":
        low, high = (float(end) for end in question.levels[0].ends[0])  # type: ignore[attr-defined]
        return np.array([np.clip(np.asarray(values, dtype=np.float64), low, high).mean()])
    each = [place for one in values for place in one] if question.kind == "set" else values
    return np.bincount(np.asarray(each, dtype=np.int64), minlength=question.levels[0].domain) / len(values)
