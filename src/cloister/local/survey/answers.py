"""Tables of true answers, for teaching and testing: a simulated device for each row, or the truth beside an estimate.

A column is named after its question; an optional column `NAME.level` gives each person's level. An empty cell is a
question that was skipped.
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
    """Ignore progress."""


def lines(path: Path | str, read: Callable[[int], object] = _unseen) -> Iterator[str]:
    """Yield the lines of a text file; `read` receives the number of bytes read, for a progress bar."""
    try:
        with Path(path).open("rb") as file:
            for line in file:
                read(len(line))
                yield line.decode("utf-8-sig" if line.startswith(b"\xef\xbb\xbf") else "utf-8", "replace")
    except OSError:
        raise BadSource(f"{path} cannot be read. Is the name right?") from None


def read_rows(path: Path | str, read: Callable[[int], object] = _unseen) -> Iterator[Mapping[str, Any]]:
    """Yield rows of a CSV file with a header, or of JSON lines."""
    if Path(path).suffix in (".jsonl", ".ndjson", ".json"):
        for number, line in enumerate(lines(path, read), 1):
            if line.strip():
                yield _object(line, f"{path}, line {number}")
        return
    yield from csv.DictReader(lines(path, read))


def matched_rows(
    questions: Sequence[Question], rows: Iterable[Mapping[str, Any]], *, header: bool
) -> Iterator[Mapping[str, Any]]:
    """Return the rows, or refuse if an unknown column may be a misspelt question.

    Some questions may be left out. But a mistyped name would silently leave one out, and still cost people the others.

    Args:
        questions: the questions to be answered.
        rows: one a person.
        header: whether every row has every column, as in CSV; else rows may leave columns out.

    Raises:
        BadSource: there are both an unknown column and a question without one; names them.
    """
    columns = set[str]()
    for number, row in enumerate(rows):
        columns.update(row)
        if header and not number:
            _require_columns(questions, columns)
        yield row
    _require_columns(questions, columns)


def _require_columns(questions: Sequence[Question], columns: set[str]) -> None:
    missing = [question.id for question in questions if question.id not in columns]
    others = columns - {name for question in questions for name in (question.id, f"{question.id}.level")}
    if missing and others:
        raise BadSource(
            f"there is no column for {', '.join(missing[:10])}. Columns that are no question: "
            f"{', '.join(sorted(map(str, others))[:10])}. Rename the column, or take it or the question out. Nothing "
            "was written."
        )


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise BadSource(f'{where} is no JSON object. Write one object a line, such as {{"smoker": "yes"}}.')
    return row


def envelopes(
    questions: Sequence[Question],
    rows: Iterable[Mapping[str, Any]],
    level: object = None,
    source: Source | None = None,
    skipped: Counter[str] | None = None,
) -> Iterator[bytes]:
    """Yield the envelopes that the devices of these people would send, in batches of thousands.

    Args:
        questions: each is answered by the people whose cell is not empty.
        rows: one a person.
        level: for people who have not chosen one.
        source: the source of random bits; default the operating system's.
        skipped: counts invalid answers by question, instead of stopping at the first.

    Privacy: costs each person the sum of the levels of the questions answered. A refused answer is not shown; the
        number skipped is a fact about the true answers, for those who may see them.
    """
    waiting: dict[tuple[str, Oracle], list[Any]] = {}
    levels: dict[tuple[str, object], Oracle] = {}
    for number, row in enumerate(rows, 1):
        for question in questions:
            cell = row.get(question.id)
            if cell is None or cell == "":
                continue
            value = question.value(cell) if skipped is not None else _value(question, cell, number)
            if value is None and skipped is not None:
                skipped[question.id] += 1
                continue
            chosen = question.id, row.get(f"{question.id}.level") or level
            if isinstance(chosen[1], list | dict):
                raise BadCandidates(f"row {number}: a level of {question.id} is one of {', '.join(question.offered)}.")
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


def _value(question: Question, cell: Any, row: int) -> Any:
    value = question.value(cell)
    if value is None:
        raise BadCandidates(f"row {row}: this is no answer to {question.id}. It takes {question.takes}.")
    return value


def truth(question: Question, rows: Iterable[Mapping[str, Any]]) -> Floats:
    """Return the true shares (or mean) among respondents. For lessons: a collector of reports cannot know them."""
    cells = (row.get(question.id) for row in rows)
    values = [_value(question, cell, number) for number, cell in enumerate(cells, 1) if cell is not None and cell != ""]
    if not values:
        raise BadSource(f"nobody answered {question.id} in this table.")
    if question.kind == "number":
        low, high = (float(end) for end in question.levels[0].ends[0])  # type: ignore[attr-defined]
        return np.array([np.clip(np.asarray(values, dtype=np.float64), low, high).mean()])
    each = [option for options in values for option in options] if question.kind == "set" else values
    return np.bincount(np.asarray(each, dtype=np.int64), minlength=question.levels[0].domain) / len(values)
