"""A collection: envelopes in, refusals counted by their reason, counts for each question and level. It never raises.

    bytes ──► an envelope of ours? ──► a report its mechanism can make? ──► new? ──► Counts[question, level]

What is kept are counts and the ids of counted reports (sorted when written, so that the order of arrival is not kept),
never a report.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from cloister.local.collector.counts import Counts, aggregate
from cloister.local.collector.wire import decode
from cloister.local.envelope import ID_BYTES, VERSION, text_of, unpack
from cloister.local.oracle import Oracle
from cloister.local.question import Question
from cloister.privacy.errors import BadInput
from cloister.privacy.number import Number

if TYPE_CHECKING:
    from cloister.local.finding import Finding

__all__ = ["Collection", "Refusal"]

Refusal = Literal[
    "oversized",
    "malformed",
    "wrong version",
    "wrong question",
    "unknown level",
    "wrong mechanism",
    "out of domain",
    "replayed",
]
Slot = tuple[str, str]

_PIECE = 1 << 13
_BEFORE = b'{"id":"'
_ID_LENGTH = 22
_SPELLING = 256
_REPORT = re.compile(rb',"question":"[A-Za-z0-9._-]{1,64}","report":"')
_FIELDS = {"id", "level", "mechanism", "private", "question", "report", "version"}


@dataclass(frozen=True, slots=True)
class _Known:
    """An envelope of ours: where its report is counted."""

    slot: Slot
    private: bool
    after: bytes


class Collection:
    """Reports on several questions, as they arrive.

    Args:
        questions: what is asked, and at which levels; anything else that arrives is refused and counted.

    An id protects against a report that arrives twice by mistake. Whoever wants to be counted twice can make a second
    report as easily as a first one: `estimate(...).poisoning` bounds what that does, invitations prevent it.

    Privacy: post-processing of reports. It holds no true answer; that somebody took part, which questions were skipped
        and which levels were chosen is not hidden from it.
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
        self._known: dict[bytes, _Known] = {}
        for question in listed:
            for mechanism in question.levels:
                slot = question.id, str(mechanism.epsilon)
                self._counts[slot] = aggregate(mechanism, [])
                for private in (True, False):
                    before, between, after = text_of(question.id, mechanism.describe(), private)
                    assert before == _BEFORE
                    self._known[between] = _Known(slot, private, after)
        # Envelopes in another spelling are looked at, so that the right reason is counted; anything longer is not.
        self._longest = _SPELLING + max((self._length(one) for one in self._known.items()), default=0)

    def _length(self, known: tuple[bytes, _Known]) -> int:
        between, where = known
        report = (8 * self.mechanism(*where.slot).width + 5) // 6
        return len(_BEFORE) + _ID_LENGTH + len(between) + report + len(where.after)

    def mechanism(self, question: str, level: str) -> Oracle:
        """What reports on this question at this level are made with."""
        return self._counts[question, level].mechanism

    # What arrives.

    def receive(self, envelope: Any) -> Refusal | None:
        """Count one envelope; None if it was counted, otherwise why it was not."""
        return self._take([envelope])[0]

    def collect(self, stream: Iterable[Any]) -> "Collection":
        """Count a stream of envelopes (bytes or text, such as the lines of a file); blank lines are passed over."""
        filled = (one for one in stream if not (isinstance(one, bytes | str) and not one.strip()))
        while piece := list(islice(filled, _PIECE)):
            self._take(piece)
        return self

    def _take(self, arrived: Sequence[Any]) -> list[Refusal | None]:
        read = [self._read(one) for one in arrived]
        fits = self._which_fit(read)
        verdicts: list[Refusal | None] = []
        for place, one in enumerate(read):
            verdict: Refusal | None = None
            if not isinstance(one, tuple):
                verdict = one
            elif not fits[place]:
                verdict = "out of domain"
            elif one[0] in self._ids:
                verdict = "replayed"
            else:
                self._ids.add(one[0])
                self._wait((one[1].slot, one[1].private), one[2])
            verdicts.append(verdict)
        self.refused.update(verdict for verdict in verdicts if verdict is not None)
        return verdicts

    def _read(self, envelope: Any) -> tuple[bytes, _Known, bytes] | Refusal:
        """The id, the place and the report of an envelope, or why it is none."""
        if isinstance(envelope, str):
            envelope = envelope.encode("utf-8", "surrogatepass")
        if not isinstance(envelope, bytes | bytearray):
            return "malformed"
        text = bytes(envelope).rstrip(b"\r\n")
        if len(text) > self._longest:
            return "oversized"
        start = len(_BEFORE) + _ID_LENGTH
        found = _REPORT.search(text, start)
        known = self._known.get(text[start : found.end()]) if found else None
        if known is None or found is None or not text.startswith(_BEFORE) or not text.endswith(known.after):
            return self._reason(text)
        name = unpack(text[len(_BEFORE) : start].decode("latin-1"))
        report = unpack(text[found.end() : len(text) - len(known.after)].decode("latin-1"))
        if name is None or report is None or len(name) != ID_BYTES:
            return "malformed"
        return name, known, report

    def _reason(self, text: bytes) -> Refusal:
        """Why this is no envelope of ours: the first thing that is wrong."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            return "malformed"
        if not isinstance(content, dict) or set(content) != _FIELDS or not isinstance(content["question"], str):
            return "malformed"
        if content["version"] != VERSION:
            return "wrong version"
        question = self.questions.get(content["question"])
        if question is None:
            return "wrong question"
        if content["level"] not in question.offered:
            return "unknown level"
        if content["mechanism"] != question.at(content["level"]).describe():
            return "wrong mechanism"
        return "malformed"  # ours, in another spelling

    def _which_fit(self, read: Sequence[tuple[bytes, _Known, bytes] | Refusal]) -> list[bool]:
        """Whether each report is one that its mechanism can make."""
        places: dict[Slot, list[int]] = {}
        for place, one in enumerate(read):
            if isinstance(one, tuple):
                places.setdefault(one[1].slot, []).append(place)
        fits = [True] * len(read)
        for slot, here in places.items():
            mechanism = self.mechanism(*slot)
            reports = [read[place][2] for place in here]  # those were read
            if decode(mechanism, reports)[1]:  # rare, so only then one by one
                for place, report in zip(here, reports, strict=True):
                    fits[place] = decode(mechanism, [report])[1] == 0
        return fits

    def _wait(self, where: tuple[Slot, bool], report: bytes) -> None:
        """Tables may be large, so reports are added to them by the thousand."""
        waiting = self._waiting.setdefault(where, [])
        waiting.append(report)
        if len(waiting) >= _PIECE:
            self._count(where)

    def _count(self, where: tuple[Slot, bool]) -> None:
        slot, private = where
        counted = aggregate(self.mechanism(*slot), self._waiting.pop(where))
        self._counts[slot] = self._counts[slot] + replace(counted, private=private)

    # What is known.

    @property
    def n(self) -> int:
        """How many reports were counted."""
        return len(self._ids)

    def counts(self, question: str) -> dict[str, Counts]:
        """The counts of each level that somebody chose. Publish how many chose a level only in aggregate (ERR-17)."""
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
        """What the reports on a question tell, all levels together: see `cloister.local.finding`."""
        from cloister.local.finding import find

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
        for slot in both._counts:
            for one in (self, other):
                here = one.counts(slot[0]).get(slot[1])
                if here is not None:
                    both._counts[slot] = both._counts[slot] + here
        return both
