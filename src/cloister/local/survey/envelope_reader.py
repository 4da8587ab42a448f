"""A reader of envelopes. Their fixed parts are known, so that a valid one is read without parsing JSON."""

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cloister.local.base.oracle import Oracle
from cloister.local.base.wire import decode
from cloister.local.survey.envelope import ID_BYTES, VERSION, pack, text_of, unpack
from cloister.local.survey.question import Question
from cloister.privacy.errors import BadInput

__all__ = ["CheckedEnvelope", "EnvelopeReader", "Refusal", "Slot"]

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

_BEFORE = b'{"id":"'
_ID_LENGTH = 22
_SPELLING = 256
_REPORT = re.compile(rb',"question":"[A-Za-z0-9._-]{1,64}","report":"')
_FIELDS = {"id", "level", "mechanism", "private", "question", "report", "version"}


@dataclass(frozen=True, slots=True)
class CheckedEnvelope:
    """A valid envelope, with a report that its mechanism can make. A store needs its question, level and report.

    Attributes:
        question: the id of the question.
        level: the epsilon, as the question writes it.
        report: its bytes.
        id: 16 random bytes, new for every report.
        private: False if the device's randomness was seeded.
    """

    question: str
    level: str
    report: bytes
    id: bytes
    private: bool

    @property
    def slot(self) -> Slot:
        """The question and level it is counted under."""
        return self.question, self.level


@dataclass(frozen=True, slots=True)
class _Known:
    slot: Slot
    private: bool
    after: bytes


class EnvelopeReader:
    """Read envelopes of some questions, and write them again from a store."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self.questions = {question.id: question for question in questions}
        self.mechanisms: dict[Slot, Oracle] = {}
        self._known: dict[bytes, _Known] = {}
        self._between: dict[tuple[Slot, bool], bytes] = {}
        longest = 0
        for question in self.questions.values():
            for mechanism in question.levels:
                slot = question.id, str(mechanism.epsilon)
                self.mechanisms[slot] = mechanism
                for private in (True, False):
                    before, between, after = text_of(question.id, mechanism.describe(), private)
                    assert before == _BEFORE
                    self._known[between] = _Known(slot, private, after)
                    self._between[slot, private] = between
                    report = (8 * mechanism.width + 5) // 6
                    longest = max(longest, len(_BEFORE) + _ID_LENGTH + len(between) + report + len(after))
        # Envelopes in another encoding are parsed to count the right reason; longer ones are not.
        self._longest = _SPELLING + longest

    def check(self, arrived: Sequence[Any]) -> list[CheckedEnvelope | Refusal]:
        """Return each envelope's content, or the reason for refusal. Without memory, replays are not detected."""
        read = [self._read(envelope) for envelope in arrived]
        by_slot: dict[Slot, list[int]] = {}
        for index, one in enumerate(read):
            if isinstance(one, CheckedEnvelope):
                by_slot.setdefault(one.slot, []).append(index)
        for slot, indices in by_slot.items():
            mechanism = self.mechanisms[slot]
            reports = [one.report for index in indices if isinstance(one := read[index], CheckedEnvelope)]
            if decode(mechanism, reports)[1]:  # rare, so only then one by one
                for index, report in zip(indices, reports, strict=True):
                    if decode(mechanism, [report])[1]:
                        read[index] = "out of domain"
        return read

    def text_of(self, question: str, level: str, report: bytes, id: bytes | None = None, private: bool = True) -> bytes:  # noqa: A002
        """Return the envelope around a stored report: byte for byte as the device sent it, if the id is the same.

        Args:
            question: the id of the question.
            level: as the question writes it.
            report: its bytes.
            id: as received; default a new random one, for stores that do not keep ids.
            private: whether the device's randomness was the operating system's.
        """
        slot = question, level
        if (slot, private) not in self._between:
            raise BadInput("no such question at such a level is asked here. Spell the level as question.offered does.")
        name = secrets.token_bytes(ID_BYTES) if id is None else id
        if len(name) != ID_BYTES:
            raise BadInput(f"the id of a report has {ID_BYTES} bytes.")
        between = self._between[slot, private]
        after = self._known[between].after
        return b"".join((_BEFORE, pack(name).encode(), between, pack(report).encode(), after))

    def _read(self, envelope: Any) -> CheckedEnvelope | Refusal:
        if isinstance(envelope, str):
            envelope = envelope.encode("utf-8", "surrogatepass")
        if not isinstance(envelope, bytes | bytearray):
            return "malformed"
        text = bytes(envelope).rstrip(b"\r\n")
        if len(text) > self._longest:
            return "oversized"
        start = len(_BEFORE) + _ID_LENGTH
        match = _REPORT.search(text, start)
        template = self._known.get(text[start : match.end()]) if match else None
        if template is None or match is None or not text.startswith(_BEFORE) or not text.endswith(template.after):
            return self._reason(text)
        name = unpack(text[len(_BEFORE) : start].decode("latin-1"))
        report = unpack(text[match.end() : len(text) - len(template.after)].decode("latin-1"))
        if name is None or report is None or len(name) != ID_BYTES:
            return "malformed"
        return CheckedEnvelope(*template.slot, report, name, template.private)

    def _reason(self, text: bytes) -> Refusal:
        """Return the first reason why this is not a valid envelope."""
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
        return "malformed"  # valid, in another encoding
