"""Exports for the researcher: reports without names, estimates with their errors, and a signed receipt of both.

Reports are in the order of a hash, as in the database: the order of arrival is not known. A reader of the file learns
no more about a respondent than the collector did.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloister.client import survey_wire
from cloister.client.survey_wire import REPORTS
from cloister.hub.core.models import Survey
from cloister.hub.surveys.question_result import CONFIDENCE
from cloister.hub.surveys.results import Results
from cloister.hub.surveys.survey import asked_of
from cloister.local.survey.envelope import canonical, pack

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["analysis", "estimates_table", "reports_json", "reports_table", "text_of"]

_COLUMNS = ("question", "text", "value", "reports", "raw", "standard error", "low", "high", "projected", "confidence",
            "by people", "by people low", "by people high")  # fmt: skip
Table = tuple[list[str], list[list[object]]]


def reports_json(survey: Survey, results: Results) -> dict[str, Any]:
    """Return every report of a wave, with what is needed to rebuild its envelope: see `survey_wire.envelopes`."""
    return {
        "form": REPORTS,
        "survey": survey.name,
        "wave": results.wave,
        "questions": survey.questions,
        "reports": [
            {name: [level, pack(report)] for name, (level, report) in person.items()} for person in results.people
        ],
    }


def reports_table(survey: Survey, results: Results) -> Table:
    """Return every report of a wave for a spreadsheet, one row per respondent: level name, and report in hexadecimal.

    Base64 may begin like a formula, and `1/2` looks like a date: a spreadsheet would change both.
    """
    questions = asked_of(survey)
    names = {name: result.level_names for name, result in results.found.items()}
    heads = [head for question in questions for head in (f"{question.id} level", f"{question.id} report")]
    rows: list[list[object]] = []
    for person in results.people:
        row: list[object] = []
        for question in questions:
            report = person.get(question.id)
            row += [None, None] if report is None else [names[question.id][report[0]], f"0x{report[1].hex()}"]
        rows.append(row)
    return heads, rows


def estimates_table(results: Results) -> Table:
    """Return every estimate of a wave: one row per value, and one more for the mean of a scale."""
    rows: list[list[object]] = []
    for result in results.found.values():
        estimates = result.rows()
        if result.mean is not None:
            estimates.append({"value": "mean", **result.mean.to_json()})
        for row in estimates:
            facts = {"question": result.asked.id, "text": result.asked.text, "reports": result.n}
            facts |= {"confidence": float(CONFIDENCE)}
            rows.append([{**facts, **row}.get(name) for name in _COLUMNS])
    return list(_COLUMNS), rows


def analysis(hub: "Hub", survey: Survey, results: Results) -> dict[str, Any]:
    """Sign a receipt of the analysis: the method, the reports, and the results.

    It can be recomputed from the reports (an export) and the survey's questions: nothing in it is random.
    """
    facts = {
        "survey": survey.name,
        "title": survey.title,
        "wave": results.wave,
        "computed": "unbiased shares and means from all levels, weighted by public variances; projected by norm-sub",
        "confidence": CONFIDENCE,
        "people": results.n,
        "submissions": results.digest,
        "questions": hashlib.sha256(canonical(survey.questions)).hexdigest(),
        "refused": dict(sorted(results.refused.items())),
        "estimates": [_estimates(result.asked.id, result.n, result.rows()) for result in results.found.values()],
        "published": _published(results),
        "private": all(result.finding is None or result.finding.raw.private for result in results.found.values()),
    }
    return survey_wire.issue_receipt(survey_wire.ANALYSIS, facts, hub.key)


def text_of(told: Mapping[str, Any]) -> bytes:
    """Return the text of a file."""
    return json.dumps(told, allow_nan=False).encode()


def _published(results: Results) -> dict[str, str] | None:
    loss = results.published()
    if loss is None:
        return None
    amount, delta = loss
    return {
        "epsilon": _text(amount),
        "delta": _text(delta),
        "shuffler": "the operator of this hub",
        "of": "the estimates of single questions, published once",
    }


def _estimates(question: str, reports: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return numbers as text: a signature needs a unique form, which floats do not have."""
    values = [{key: _text(value) if isinstance(value, float) else value for key, value in row.items()} for row in rows]
    return {"question": question, "reports": reports, "values": values}


def _text(value: float) -> str:
    return json.dumps(value)
