"""A collection: envelopes in, refusals counted by reason, counts for each question and level. It never raises.

    bytes ──► an envelope of ours? ──► a report its mechanism can make? ──► new? ──► Counts[question, level]

It keeps counts and the ids of counted reports (sorted when written, so that the order of arrival is not kept), never a
report.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from cloister.local.base.counts import Counts, aggregate
from cloister.local.base.oracle import Oracle
from cloister.local.survey.envelope_reader import CheckedEnvelope, EnvelopeReader, Refusal, Slot
from cloister.local.survey.question import Question
from cloister.privacy.errors import BadInput
from cloister.privacy.number import Number

if TYPE_CHECKING:
    from cloister.local.analysis.finding import Finding

__all__ = ["CheckedEnvelope", "Collection", "Refusal"]

_PIECE = 1 << 13


class Collection:
    """Reports on several questions, counted on arrival.

    Args:
        questions: the questions and their levels; anything else that arrives is refused and counted.

    An id protects against a report that arrives twice by mistake. It does not stop a respondent who makes a second
    report: `estimate(...).poisoning` bounds the effect, invitations prevent it.

    Privacy: post-processing of reports. It holds no true answer; participation, skipped questions and chosen levels are
        not hidden from it.
    """

    def __init__(self, questions: Iterable[Question]) -> None:
        listed = tuple(questions)
        self.questions = {question.id: question for question in listed}
        if len(self.questions) < len(listed):
            raise BadInput("two questions have the same id. Give each its own.")
        self.refused: Counter[Refusal] = Counter()
        self._counts: dict[Slot, Counts] = {}
        self._waiting: dict[tuple[Slot, bool], list[bytes]] = {}
        self._ids: set[bytes] = set()
        self._stored = 0
        self._reader = EnvelopeReader(listed)
        for slot, mechanism in self._reader.mechanisms.items():
            self._counts[slot] = aggregate(mechanism, [])

    def mechanism(self, question: str, level: str) -> Oracle:
        """Return the mechanism of this question at this level."""
        return self._counts[question, level].mechanism

    # Input

    def receive(self, envelope: Any) -> Refusal | None:
        """Count one envelope. Return None if it was counted, otherwise the reason for refusal."""
        return self._take([envelope])[0]

    def collect(self, stream: Iterable[Any]) -> "Collection":
        """Count a stream of envelopes (bytes or text, such as the lines of a file); blank lines are skipped."""
        filled = (envelope for envelope in stream if not (isinstance(envelope, bytes | str) and not envelope.strip()))
        while piece := list(islice(filled, _PIECE)):
            self._take(piece)
        return self

    def check(self, envelope: Any) -> CheckedEnvelope | Refusal:
        """Return the content of an envelope, or the reason for refusal, without counting or remembering it.

        For a store that keeps reports: `count` takes them later, `text_of` writes them out again. The store then has to
        reject replayed reports.
        """
        return self._reader.check([envelope])[0]

    def count(self, question: str, level: str, reports: Sequence[bytes], private: bool = True) -> "Collection":
        """Count reports that `check` accepted into a store. Those that no device can have made are refused.

        Args:
            question: the id of the question.
            level: as the question spells it.
            reports: their bytes.
            private: False if the randomness of any of them was seeded.
        """
        slot = question, level
        if slot not in self._counts:
            raise BadInput("no such question at such a level is asked here. Spell the level as question.offered does.")
        counted = aggregate(self._counts[slot].mechanism, list(reports))
        self._counts[slot] = self._counts[slot] + replace(counted, refused=0, private=private or not counted.n)
        self._stored += counted.n
        if counted.refused:
            self.refused["out of domain"] += counted.refused
        return self

    def count_stored(
        self, submissions: Iterable[Mapping[str, tuple[str, bytes]]], private: bool = True
    ) -> "Collection":
        """Count submissions as a store keeps them: level and report for each answered question."""
        grouped: dict[Slot, list[bytes]] = {}
        for submission in submissions:
            for question, (level, report) in submission.items():
                grouped.setdefault((question, level), []).append(report)
        for (question, level), reports in grouped.items():
            self.count(question, level, reports, private)
        return self

    def text_of(self, question: str, level: str, report: bytes, id: bytes | None = None, private: bool = True) -> bytes:  # noqa: A002
        """Return the envelope around a stored report, for export; with a new random id unless one is given."""
        return self._reader.text_of(question, level, report, id, private)

    def _take(self, arrived: Sequence[Any]) -> list[Refusal | None]:
        verdicts: list[Refusal | None] = []
        for envelope in self._reader.check(arrived):
            verdict: Refusal | None = None
            if not isinstance(envelope, CheckedEnvelope):
                verdict = envelope
            elif envelope.id in self._ids:
                verdict = "replayed"
            else:
                self._ids.add(envelope.id)
                self._wait((envelope.slot, envelope.private), envelope.report)
            verdicts.append(verdict)
        self.refused.update(verdict for verdict in verdicts if verdict is not None)
        return verdicts

    def _wait(self, where: tuple[Slot, bool], report: bytes) -> None:
        """Queue reports; tables may be large, so reports are added in batches of thousands."""
        waiting = self._waiting.setdefault(where, [])
        waiting.append(report)
        if len(waiting) >= _PIECE:
            self._count(where)

    def _count(self, where: tuple[Slot, bool]) -> None:
        slot, private = where
        counted = aggregate(self.mechanism(*slot), self._waiting.pop(where))
        self._counts[slot] = self._counts[slot] + replace(counted, private=private)

    # State

    @property
    def n(self) -> int:
        """The number of reports counted."""
        return len(self._ids) + self._stored

    def counts(self, question: str) -> dict[str, Counts]:
        """Return the counts of each level in use. Publish the people per level only in aggregate (ERR-17)."""
        if question not in self.questions:
            raise BadInput(f"no such question. Asked are: {', '.join(self.questions)}.")
        for where in list(self._waiting):
            self._count(where)
        return {
            level: self._counts[question, level]
            for level in self.questions[question].offered
            if self._counts[question, level].n
        }

    def estimate(
        self,
        question: str,
        confidence: Number = "0.95",
        weights: Literal["variance", "people"] = "variance",
        fakes: int | None = None,
    ) -> "Finding":
        """Estimate a question from all levels together: see `cloister.local.analysis.finding`."""
        from cloister.local.analysis.finding import find

        counts = self.counts(question)
        return find(self.questions[question], counts, confidence, weights, fakes)

    def __add__(self, other: "Collection") -> "Collection":
        if not isinstance(other, Collection):
            return NotImplemented
        if self.questions != other.questions:
            raise BadInput("collections of different questions cannot be added.")
        common = len(self._ids & other._ids)
        if common:
            raise BadInput(f"both collections have counted the same {common:,} reports, which cannot be taken back.")
        both = Collection(self.questions.values())
        both.refused = self.refused + other.refused
        both._ids = self._ids | other._ids
        both._stored = self._stored + other._stored
        for slot in both._counts:
            for part in (self, other):
                counts = part.counts(slot[0]).get(slot[1])
                if counts is not None:
                    both._counts[slot] = both._counts[slot] + counts
        return both
