"""Wire format of a survey's results and reports. Needs none of the server's packages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cloister.local import Collection, Question
from cloister.local.survey.envelope import unpack
from cloister.privacy.errors import BadForm

__all__ = ["REPORTS", "QuestionFound", "SurveyFound", "collection_of", "envelopes", "results_from_json"]

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
