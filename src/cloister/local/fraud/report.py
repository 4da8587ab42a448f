"""Signs of made-up reports that need no ground truth: events that honest devices rarely cause, whatever the answers.

    refused          input that was not a well-formed report
    copies           one report repeated, though the mechanism has too many for that
    share            a value supported by more reports than if all people had it, or by fewer than if no one had
    ones, crowded    more or fewer 1 bits than the coins give, in all or in one report
    ends             numbers at the very end of the reportable range, or a mean beyond the bounds
    coin             a coin independent of the answer that fell too often on one side

Respondents who lie about their answer and let the device add its noise look like honest ones with that answer: no test
can distinguish them, and `poisoning` bounds their effect. These tests detect reports made without a device, such as
those that `attack.poison_survey` crafts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cloister.local.fraud.tests import signs
from cloister.local.survey.question import Question
from cloister.privacy.mechanisms.checks import probability
from cloister.privacy.number import Number, upper_text

__all__ = ["Suspicion", "suspicions"]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """An event that honest devices rarely cause.

    Attributes:
        name: of the test.
        question, level: of the reports; empty for refused ones.
        count: the number of reports concerned.
        p: bounds the probability of this sign, or any other as strong, by chance; None for refused ones.
        sentence: in words.
    """

    name: str
    question: str
    level: str
    count: int
    p: float | None
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {part: getattr(self, part) for part in ("name", "question", "level", "count", "p", "sentence")}


def suspicions(
    questions: Iterable[Question],
    submissions: Iterable[Mapping[str, tuple[str, bytes]]],
    refused: Mapping[str, int] | None = None,
    alarm: Number = "0.001",
) -> list[Suspicion]:
    """Return all signs of made-up reports.

    Every p value is a bound that holds for all possible answers, times the number of all tests made (Bonferroni). So
    honest respondents raise any alarm with probability at most `alarm`, whatever their answers and number.

    Args:
        questions: the questions.
        submissions: for each person (level, report) by the id of a question.
        refused: the number of refused envelopes, by reason: each is a sign, without a p value.
        alarm: the probability of a false alarm.

    Privacy: post-processing.
    """
    by_id = {question.id: question for question in questions}
    least = float(probability(alarm, "alarm"))
    by_slot: dict[tuple[str, str], list[bytes]] = {}
    for submission in submissions:
        for name, (level, report) in submission.items():
            if name in by_id:
                by_slot.setdefault((name, level), []).append(report)
    results = [
        (slot, sign) for slot, reports in sorted(by_slot.items()) for sign in signs(by_id[slot[0]].at(slot[1]), reports)
    ]
    tests = sum(sign.tests for _, sign in results)
    raised = [Suspicion("refused", "", "", count, None, _refused(why, count)) for why, count in (refused or {}).items()]
    for (name, level), sign in results:
        p = min(1.0, sign.p * tests)
        if p <= least:
            where = f"{name} at level {level}"
            raised.append(
                Suspicion(sign.name, name, level, sign.number, p, f"{where}: {sign.words} (p ≤ {upper_text(p, 2)}).")
            )
    return raised


def _refused(why: str, count: int) -> str:
    if why == "replayed":
        return f"{count:,} reports arrived twice and were counted once: a broken line, or somebody who tries again."
    return f"{count:,} envelopes were refused as {why}: a device of ours sends none such."
