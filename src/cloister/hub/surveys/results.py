"""Results of a survey: estimates for each question, from all levels, with their errors and their limits.

    stored submissions ──► counts for each question and level ──► a Finding each ──► pages, API, exports, receipts

Everything here is post-processing of reports that carried their noise when they arrived: it costs no privacy and can be
repeated. The newest results of a few waves are cached in the process, with a limited number of their reports:
submissions are only ever added. Cross-tables and models are large where questions have many choices, so those used last
are cached, up to a number of bytes. New submissions are added in batches (`survey.reveal`): a single new one could be
linked to its respondent.
"""

import hashlib
import json
import math
import threading
from binascii import a2b_base64
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.cache import Cache
from cloister.hub.core.models import Submission, Survey
from cloister.hub.surveys.question import SurveyQuestion
from cloister.hub.surveys.question_result import CONFIDENCE, LINKED, QuestionResult
from cloister.hub.surveys.survey import asked_of, questions_of, reveal, shown_sizes
from cloister.local import (
    Collection,
    CrossTable,
    GroupMeans,
    Question,
    Suspicion,
    cross,
    matches,
    scale_mean,
    suspicions,
)
from cloister.privacy.errors import BadForm, NotHere, NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub
    from cloister.local import MatchedNaiveBayes

__all__ = ["Results", "read"]

Submissions = Sequence[Mapping[str, tuple[str, bytes]]]
_KEPT = 12  # waves
_KEPT_REPORTS = 500_000  # of all of them, about 200 bytes each; the newest wave may have more
_MOST_CELLS = 10_000  # of a cross-table or a model, which a process that serves pages computes
_TABLES = Cache(64 * 2**20)  # a cross-table of two questions with 400 choices each takes 18 MB
_SIGNS = Cache(2**20)  # apart from these, so that a page waits for no table


@dataclass(frozen=True, eq=False)
class Results:
    """Results of a wave of a survey.

    Attributes:
        survey: the name of the survey.
        wave: the number of the wave.
        n: the number of respondents.
        target: the expected number of respondents.
        refused: submissions that were refused, by reason.
        digest: SHA-256 over the sorted ids of all included submissions.
        found: the results, by the question's name.
        people: for each submission, by question, its level and its report.
        questions: the mechanisms, by name.
    """

    survey: str
    wave: int
    n: int
    target: int
    refused: Mapping[str, int]
    digest: str
    found: Mapping[str, QuestionResult]
    people: Submissions = field(repr=False)
    questions: Mapping[str, Question] = field(repr=False)
    _same: object = field(repr=False, default_factory=object)  # of all copies that were made from the same reports

    @property
    def reports(self) -> int:
        """Return how many reports all respondents sent."""
        return sum(result.n for result in self.found.values())

    def about(self, question: str) -> QuestionResult:
        """Return the result of one question."""
        if question not in self.found:
            raise NotHere("the survey has no such question.")
        return self.found[question]

    def cross(self, first: str, second: str) -> CrossTable | GroupMeans:
        """Return the cross-table of two questions, from matched reports.

        Privacy: post-processing. Two reports of one submission are known to belong together; each has its own noise.

        Raises:
            NotNow: no respondent has answered both.
        """
        pair = self.about(first), self.about(second)
        if first == second:
            raise BadForm("a cross-table is of two different questions.")
        if all(result.asked.type == "number" for result in pair):
            raise BadForm("two numbers have no cross-table. Choose a question with choices for one of them.")
        if math.prod(max(1, len(result.asked.choices)) for result in pair) > _MOST_CELLS:
            raise BadForm(f"a cross-table here has at most {_MOST_CELLS:,} cells. Choose questions with fewer choices.")
        table: CrossTable | GroupMeans = _TABLES.get(
            (self._same, "cross", first, second), lambda: self._cross(first, second)
        )
        return table

    def _cross(self, first: str, second: str) -> CrossTable | GroupMeans:
        matched = matches(self.people, first, second)
        if not matched:
            raise NotNow("nobody has answered both of these questions yet.")
        return cross(self.questions[first], self.questions[second], matched, CONFIDENCE)

    def model(self, label: str, features: Sequence[str]) -> "MatchedNaiveBayes":
        """Fit naive Bayes that predicts one answer from others, from matched reports.

        Privacy: post-processing.
        """
        key = label, *sorted(set(features))
        for name in key:
            if self.about(name).question.kind != "choice":
                raise BadForm(f"{name} is no single choice. Naive Bayes tells a single choice from single choices.")
        if len(key) < 2 or label in key[1:]:
            raise BadForm("choose what to tell, and at least one other question to tell it from.")
        sizes = [len(self.about(name).asked.choices) for name in key]
        if sizes[0] * sum(sizes[1:]) > _MOST_CELLS:
            raise BadForm(f"a model here has at most {_MOST_CELLS:,} numbers. Choose questions with fewer choices.")
        fitted: MatchedNaiveBayes = _TABLES.get((self._same, "model", *key), lambda: self._model(label, key[1:]))
        return fitted

    def _model(self, label: str, features: Sequence[str]) -> "MatchedNaiveBayes":
        from cloister.local import bayes_from_matched  # scikit-learn is slow

        if any(not matches(self.people, name, label) for name in features):
            raise NotNow("nobody has answered all of these questions yet.")
        return bayes_from_matched(self.questions[label], [self.questions[name] for name in features], self.people)

    def suspicions(self) -> list[Suspicion]:
        """Return signs of invented reports, which honest devices do not show whatever the answers are."""
        signs: list[Suspicion] = _SIGNS.get(self._same, lambda: suspicions(self.questions.values(), self.people))
        return signs

    def published(self, wait_s: float | None = None) -> tuple[float, float] | None:
        """Return epsilon and delta of the estimates of all questions, for one respondent, against their readers.

        Not of cross-tables and models: these match the reports of one person, who is then no longer hidden among all
        reports on one question. Nor of estimates that are published twice, of two moments or two waves: the one
        subtracted from the other may leave a single report. For these only the levels chosen on the devices hold.

        Args:
            wait_s: the time limit; None: no limit.

        Returns:
            None if nothing was reported, or if it takes longer.
        """
        answered = [result for result in self.found.values() if result.finding is not None]
        ready = wait([result.shuffling() for result in answered], wait_s)
        parts = [future.result().loss for future in ready.done]
        if ready.not_done or not parts:
            return None
        return float(sum(loss.amount for loss in parts)), float(sum(loss.delta for loss in parts))

    def to_json(self) -> dict[str, Any]:
        """Return JSON for programs."""
        return {
            "survey": self.survey,
            "wave": self.wave,
            "people": self.n,
            "target": self.target,
            "refused": dict(self.refused),
            "suspicions": [suspicion.to_json() for suspicion in self.suspicions()],
            "digest": self.digest,
            "questions": [result.to_json() for result in self.found.values()],
        }


# Reading


_kept: OrderedDict[tuple[str, str, int], Results] = OrderedDict()
_lock, _computing = threading.Lock(), threading.Lock()


def read(hub: "Hub", session: Session, survey: Survey, wave: int | None = None) -> Results:
    """Return the results of a wave, the newest unless given.

    Args:
        hub: the hub.
        session: a session for reading.
        survey: a published survey.
        wave: its number.

    Privacy: post-processing of reports. Reports are shown in batches of at least `survey_batch` new ones.

    Raises:
        NotNow: it is a draft, which has no results.
        NotHere: there is no such wave.
    """
    wave_number = survey.wave if wave is None else wave
    if survey.state == "draft":
        raise NotNow("a draft has no results. Publish the survey first.")
    if not 1 <= wave_number <= survey.wave:
        raise NotHere(f"the survey has {survey.wave} {'wave' if survey.wave == 1 else 'waves'}.")
    reveal(hub, survey, wave_number)
    with hub.database.reading() as fresh:  # the caller's transaction may have begun before that
        return _read(hub, fresh, survey, wave_number)


def _read(hub: "Hub", session: Session, survey: Survey, wave: int) -> Results:
    mine = sa.select(sa.func.count()).select_from(Submission).where(*_shown(survey, wave))
    n, refused = session.scalar(mine) or 0, shown_sizes(hub, session, survey, wave)[1]
    key = hub.database.url, survey.name, wave
    results = _remembered(key, n)
    if results is None:
        with _computing:  # the charts of a page are requested at once: one computes, the others wait
            results = _remembered(key, n) or _compute(session, survey, wave)
            _remember(key, results)
    if dict(results.refused) != refused:  # a refused submission changes no estimate
        results = replace(results, refused=refused)
    return results


def _remembered(key: tuple[str, str, int], n: int) -> Results | None:
    with _lock:
        results = _kept.get(key)
        if results is None or results.n != n:
            return None
        _kept.move_to_end(key)
        return results


def _remember(key: tuple[str, str, int], results: Results) -> None:
    """Cache the newest results of a wave, and those of others while there are not too many."""
    with _lock:
        _kept[key] = results
        _kept.move_to_end(key)
        while len(_kept) > 1 and (
            len(_kept) > _KEPT or sum(results.reports for results in _kept.values()) > _KEPT_REPORTS
        ):
            _kept.popitem(last=False)


def _compute(session: Session, survey: Survey, wave: int) -> Results:
    rows = session.execute(
        sa.select(Submission.id, Submission.reports).where(*_shown(survey, wave)).order_by(Submission.id)
    ).all()
    # Here questions have their short names, as in the database; and not in the collection that the intake shares.
    questions = {name: replace(question, id=name) for name, question in questions_of(survey).items()}
    people = [_reports(text) for _, text in rows]
    counted = Collection(questions.values()).count_stored(people)
    results = {
        definition.id: _found(definition, questions[definition.id], counted, people) for definition in asked_of(survey)
    }
    digest = hashlib.sha256("\n".join(row[0] for row in rows).encode()).hexdigest()
    return Results(survey.name, wave, len(rows), survey.target, {}, digest, results, people, questions)


def _shown(survey: Survey, wave: int) -> tuple[sa.ColumnElement[bool], ...]:
    return Submission.survey_id == survey.id, Submission.wave == wave, Submission.batch.is_not(None)


def _reports(text: str) -> dict[str, tuple[str, bytes]]:
    reports = {}
    for name, (level, packed) in json.loads(text).items():
        # The intake packed it: no need to check again.
        reports[name] = level, a2b_base64(packed.replace("-", "+").replace("_", "/") + "==")
    return reports


def _found(definition: SurveyQuestion, question: Question, counted: Collection, people: Submissions) -> QuestionResult:
    if not counted.counts(definition.id):  # no answers
        return QuestionResult(definition, question, len(people), None)
    finding = counted.estimate(definition.id, CONFIDENCE)
    linked = finding.selection is not None and finding.selection < LINKED
    other = counted.estimate(definition.id, CONFIDENCE, weights="people") if linked else None
    mean = None
    if definition.type == "scale":
        values = [float(choice) for choice in definition.choices]
        mean = scale_mean(
            question, (person[definition.id] for person in people if definition.id in person), values, CONFIDENCE
        )
    return QuestionResult(definition, question, len(people), finding, other, mean)
