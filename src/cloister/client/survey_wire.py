"""Wire format of a survey's results and reports, and its signed receipts. Needs none of the server's packages."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cloister.local import Collection, Question
from cloister.local.survey.envelope import unpack
from cloister.privacy.errors import BadForm, BadInput, ReceiptRejected
from cloister.privacy.signing import PublicKey, SigningKey, canonical

__all__ = [
    "ANALYSIS",
    "REPORTS",
    "TAKEN",
    "QuestionFound",
    "SurveyFound",
    "collection_of",
    "envelopes",
    "issue_receipt",
    "results_from_json",
    "verify_receipt",
]

REPORTS = "cloister-survey-reports/1"


@dataclass(frozen=True, slots=True)
class QuestionFound:
    """Results of one question.

    Attributes:
        question: its short name.
        text: the question.
        type: yes_no, choice, choices, scale, date or number.
        reports: number of reports.
        chosen: how many chose each level, and how many skipped it: in aggregate only.
        estimates: one row per value (one row for a number): raw, standard error, low, high, projected.
        facts: all that the hub reported: mean, mechanisms, weights, selection, poisoning, cost of publishing.
    """

    question: str
    text: str
    type: str
    reports: int
    chosen: Mapping[str, int]
    estimates: tuple[Mapping[str, Any], ...]
    facts: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        wide = max((len(str(row["value"])) for row in self.estimates), default=5)
        lines = [f"{self.question}: {self.text} ({self.reports:,} reports)"]
        for row in self.estimates:
            ends = f"[{row['low']:.3f}, {row['high']:.3f}]"
            lines.append(f"  {row['value']:{wide}} {row['raw']:>8.3f} {ends:>18} projected {row['projected']:.3f}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class SurveyFound:
    """Results of a wave of a survey: a question by its name, `found["smoker"]`.

    Attributes:
        survey: its name.
        wave: number of the wave.
        people: number of participants.
        target: intended number of participants.
        refused: submissions that were refused, by reason.
        digest: digest of the submissions included.
        questions: by name.
    """

    survey: str
    wave: int
    people: int
    target: int
    refused: Mapping[str, int]
    digest: str
    questions: Mapping[str, QuestionFound]

    def __getitem__(self, name: str) -> QuestionFound:
        if name not in self.questions:
            raise BadForm(f"the survey has no question {name!r:.40}. It has: {', '.join(self.questions)}.")
        return self.questions[name]

    def to_table(self) -> pa.Table:
        """Return every estimate, one row per value."""
        keys = ("value", "raw", "standard error", "low", "high", "projected")
        rows = [
            {"question": question.question, "reports": question.reports, **{key: row[key] for key in keys}}
            for question in self.questions.values()
            for row in question.estimates
        ]
        return pa.Table.from_pylist(rows)

    def __str__(self) -> str:
        head = f"{self.survey}, wave {self.wave}: {self.people:,} of {self.target:,} people"
        return "\n".join([head, *(str(question) for question in self.questions.values())])


def results_from_json(told: Mapping[str, Any]) -> SurveyFound:
    """Parse the results that a hub sent. Unknown fields are kept in `facts`."""
    try:
        questions = {
            str(question["question"]): QuestionFound(
                question=str(question["question"]),
                text=str(question["text"]),
                type=str(question["type"]),
                reports=int(question["reports"]),
                chosen={str(name): int(count) for name, count in question["chosen"].items()},
                estimates=tuple(dict(row) for row in question["estimates"]),
                facts=dict(question),
            )
            for question in told["questions"]
        }
        return SurveyFound(
            survey=str(told["survey"]),
            wave=int(told["wave"]),
            people=int(told["people"]),
            target=int(told["target"]),
            refused={str(reason): int(count) for reason, count in told["refused"].items()},
            digest=str(told["digest"]),
            questions=questions,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadForm("these are not results as a hub sends them. Check the hub's address and version.") from None


def envelopes(told: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the envelopes of exported reports: as devices sent them, but with new ids, since those were not kept.

    Raises:
        BadForm: not an export of reports.
    """
    yield from _envelopes(_asked(told), told)


def collection_of(told: Mapping[str, Any]) -> Collection:
    """Count exported reports locally: `collection_of(export).estimate("health.smoker")`."""
    collection = _asked(told)
    return collection.collect(_envelopes(collection, told))


def _asked(export: Mapping[str, Any]) -> Collection:
    try:
        if export["form"] != REPORTS:
            raise KeyError("form")
        return Collection(Question.read(question) for question in export["questions"])
    except (KeyError, TypeError):
        raise _none() from None


def _envelopes(collection: Collection, export: Mapping[str, Any]) -> Iterator[bytes]:
    try:
        for entry in export["reports"]:
            for name, (level, packed) in entry.items():
                report = unpack(packed)
                if report is None:
                    raise _none()
                yield collection.text_of(f"{export['survey']}.{name}", level, report)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _none() from None


def _none() -> BadForm:
    return BadForm(f"only exports of the form {REPORTS} can be read. Take the JSON file as it was downloaded.")


# Signed receipts of a survey: for a respondent, of their reports; for a reader, of an analysis.

TAKEN = "cloister-survey-taken/1"
ANALYSIS = "cloister-survey-analysis/1"
_PURPOSE = b"cloister survey\n"  # a signature of one kind is never valid for another


def issue_receipt(form: str, facts: dict[str, Any], key: SigningKey) -> dict[str, Any]:
    """Sign facts; the form and the day are added. Not the time, which could identify a respondent."""
    body = {**facts, "form": form, "day": datetime.now(UTC).date().isoformat()}
    return {"receipt": body, "signature": key.sign(_PURPOSE + canonical(body))}


def verify_receipt(text: str | bytes, key: PublicKey | str) -> dict[str, Any]:
    """Return the facts of a receipt, if the holder of this key signed exactly them.

    Raises:
        ReceiptRejected: anything else.
    """
    owner = PublicKey.parse(key) if isinstance(key, str) else key
    try:
        record = json.loads(text)
        body, signature = record["receipt"], record["signature"]
        valid = isinstance(body, dict) and body["form"] in (TAKEN, ANALYSIS) and isinstance(signature, str)
    except (ValueError, TypeError, KeyError, RecursionError):
        valid = False
    if not valid:
        raise ReceiptRejected("this is no receipt of a survey. Ask for the file as it was issued.")
    try:
        signed = _PURPOSE + canonical(body)
    except BadInput:  # a number or a text that no receipt of ours holds
        signed = b""
    if not owner.verify(signed, signature):
        raise ReceiptRejected("the signature does not fit: the receipt was changed, or another key signed it.")
    return dict(body)
