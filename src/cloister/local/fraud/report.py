"""Signs of made-up reports that need no truth: what honest devices do not do, whatever their owners answered.

    refused          what did not even arrive as a report
    copies           one report again and again, though the mechanism has too many for that
    share            a value supported by more reports than if all people had it, or by fewer than if nobody had
    ones, crowded    more or fewer 1 bits than the coins give, in all or in one report
    ends             numbers at the very end of what can be reported, or a mean beyond the bounds
    coin             a coin that no answer changes fell too often on one side

Liars who lie about their answer and let the device add its noise look like honest people who answered so: no test can
tell them apart, and `poisoning` bounds what they do. These tests catch reports that were made without a device.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cloister.local.fraud.tests import signs
from cloister.local.survey.question import Question
from cloister.privacy.mechanisms.checks import probability
from cloister.privacy.number import Number

__all__ = ["Suspicion", "suspicions"]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Something that honest devices do not do.

    Attributes:
        name: which test.
        question, level: of which reports; empty for what was refused.
        count: of how many reports it speaks.
        p: at most so likely is it, or any other sign as strong, by chance; None for what was refused.
        sentence: in words.
    """

    name: str
    question: str
    level: str
    count: int
    p: float | None
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """For JSON."""
        return {part: getattr(self, part) for part in ("name", "question", "level", "count", "p", "sentence")}


def suspicions(
    questions: Iterable[Question],
    submissions: Iterable[Mapping[str, tuple[str, bytes]]],
    refused: Mapping[str, int] | None = None,
    alarm: Number = "0.001",
) -> list[Suspicion]:
    """All signs of made-up reports.

    Every p value is a bound that holds for all answers that people could have given, times the number of all tests that
    were made (Bonferroni). So honest crowds raise any alarm at all with probability `alarm` at most, whatever they
    answered and however many they are.

    Args:
        questions: what was asked.
        submissions: for each person (level, report) by the id of a question.
        refused: how many envelopes were refused, by reason: each is a sign, and none has a p value.
        alarm: how often honest crowds may be suspected.

    Privacy: post-processing.
    """
    known = {question.id: question for question in questions}
    least = float(probability(alarm, "alarm"))
    told: dict[tuple[str, str], list[bytes]] = {}
    for one in submissions:
        for name, (level, report) in one.items():
            if name in known:
                told.setdefault((name, level), []).append(report)
    found = [
        (slot, sign) for slot, reports in sorted(told.items()) for sign in signs(known[slot[0]].at(slot[1]), reports)
    ]
    tests = sum(sign.tests for _, sign in found)
    raised = [Suspicion("refused", "", "", count, None, _refused(why, count)) for why, count in (refused or {}).items()]
    for (name, level), sign in found:
        p = min(1.0, sign.p * tests)
        if p <= least:
            where = f"{name} at level {level}"
            raised.append(Suspicion(sign.name, name, level, sign.number, p, f"{where}: {sign.words} (p ≤ {p:.2g})."))
    return raised


def _refused(why: str, count: int) -> str:
    if why == "replayed":
        return f"{count:,} reports arrived twice and were counted once: a broken line, or somebody who tries again."
    return f"{count:,} envelopes were refused as {why}: a device of ours sends none such."
