"""Respondents' devices in Python: the browser's part, for scripts, rehearsals and tests.

The noise is drawn here, on the caller's machine: the caller knows the true answers.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import Any

from cloister.hub.surveys.question import PrivacyLevel, SurveyQuestion, period
from cloister.local import Question, epsilon, seal
from cloister.local.base.oracle import Oracle
from cloister.local.base.perturb import perturb
from cloister.privacy.errors import BadInput
from cloister.privacy.noise.source import Source

__all__ = ["submissions"]

Answers = Mapping[str, tuple[Any, str]]


def submissions(
    told: Mapping[str, Any],
    people: Sequence[Answers],
    ballots: Sequence[Mapping[str, str]] | None = None,
    source: Source | None = None,
) -> list[bytes]:
    """Return the submissions of these people's devices.

    Args:
        told: the survey, as /s/NAME/survey.json gives it.
        people: the answers of each, {question: (answer, name of the level)}; a missing question is skipped.
        ballots: one for each person, where the survey requires them.
        source: the source of random bits; the operating system unless given. A hub refuses seeded reports.

    Raises:
        BadInput: a question's mechanism costs more than its stated level.

    Privacy: costs each person the sum of the levels chosen, at every call. It has no memory: in a survey that is asked
        again, a second call for the same people draws all noise anew and costs as much again. Only a wallet
        (`cloister.local.Wallet` or the browser's) keeps the cost for life.
    """
    envelopes: list[list[str]] = [[] for _ in people]
    for part in told["questions"]:
        definition = SurveyQuestion.read(
            {name: part[name] for name in SurveyQuestion.__dataclass_fields__ if name in part}
        )
        question = Question.read(part["question"])
        for level, mechanism in _levels(definition, question):
            chosen = [
                who
                for who, answers in enumerate(people)
                if definition.id in answers and answers[definition.id][1] == level.name
            ]
            if not chosen:
                continue
            values = [_value(definition, question, people[who][definition.id][0]) for who in chosen]
            for who, envelope in zip(
                chosen, seal(question.id, perturb(mechanism, values, source), source), strict=True
            ):
                envelopes[who].append(envelope.decode("ascii"))
    payloads: list[bytes] = []
    for who, reports in enumerate(envelopes):
        sent: dict[str, Any] = {"version": 1, "wave": told["wave"], "reports": reports}
        if ballots is not None:
            sent["ballot"] = dict(ballots[who])
        payloads.append(json.dumps(sent, separators=(",", ":")).encode("ascii"))
    return payloads


def _levels(definition: SurveyQuestion, question: Question) -> list[tuple[PrivacyLevel, Oracle]]:
    """Return each level with its mechanism; both are sorted by epsilon.

    Raises:
        BadInput: a mechanism costs more than its level says. The noise would be less than the person's choice.
    """
    if len(definition.levels) != len(question.levels):
        raise BadInput(f"{definition.id} is told with other levels than its mechanisms have. Do not answer it.")
    pairs = list(zip(definition.levels, question.levels, strict=True))
    for level, mechanism in pairs:
        if Fraction(str(mechanism.epsilon)) > epsilon(level.epsilon).amount:
            raise BadInput(
                f"{definition.id}: the level {level.name} costs more than epsilon {level.epsilon}. Do not answer it."
            )
    return pairs


def _value(definition: SurveyQuestion, question: Question, answer: Any) -> Any:
    if definition.type == "date" and isinstance(answer, date):
        answer = period(answer, definition.step)
    value = question.value(list(answer) if isinstance(answer, set | tuple | list) else str(answer))
    if value is None:
        raise BadInput(f"this is no answer to {definition.id}. It takes {question.takes}.")
    return value
