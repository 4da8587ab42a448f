"""Drafts: questions added, changed, moved and removed, and their expected errors."""

import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from cloister.hub.core.cache import Cache
from cloister.hub.core.models import Person, Survey
from cloister.hub.datasets.bounded import run_bounded
from cloister.hub.surveys.question import SurveyQuestion
from cloister.hub.surveys.survey import CERTIFY_S, FEW_LEVELS, change, create
from cloister.privacy.errors import BadForm, NotHere
from cloister.privacy.number import show

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["MOVES", "NEAR", "address_of", "begin", "expected", "expected_all", "move", "name_of", "put", "remove"]

MOVES = {"up": -1, "down": 1}
NEAR = 0.03  # an error of 3 percentage points, as in most polls
_EXPECTED = Cache(16 * 2**20)  # expected errors by question, number of people, and whether they are asked again
_REACH = NormalDist().inv_cdf(0.975)
# fmt: off
_SMALL = frozenset((
    "a", "an", "and", "are", "at", "did", "do", "does", "for", "have", "how", "in", "is", "it", "me", "my", "of", "on",
    "or", "our", "the", "to", "was", "we", "were", "what", "when", "where", "which", "who", "with", "you", "your",
))
# fmt: on


def begin(hub: "Hub", session: Session, owner: Person, name: str, facts: Mapping[str, Any]) -> Survey:
    """Create a draft; see `survey.create`."""
    if name == "new":  # where the form for a new one is
        raise BadForm("a survey cannot be called new. Choose another name.")
    return create(hub, session, owner, name, facts)


def put(hub: "Hub", session: Session, survey: Survey, told: Mapping[str, Any], instead_of: str = "") -> SurveyQuestion:
    """Add a question at the end, or replace one. Without a name it gets one.

    Raises:
        BadForm: what is wrong with it.
        NotHere: there is no question to replace.
    """
    questions = list(survey.asked)
    index = _place(survey, instead_of) if instead_of else len(questions)
    if not told.get("id"):
        taken = {question["id"] for at, question in enumerate(questions) if at != index}
        told = {**told, "id": name_of(str(told.get("text", "")), taken)}
    read = SurveyQuestion.read(told)
    questions[index : index + 1] = [read.to_json()]
    change(hub, session, survey, {"asked": _stored(questions)})
    return read


def move(hub: "Hub", session: Session, survey: Survey, question: str, where: str) -> None:
    """Move a question up or down by one; at the end it stays."""
    if where not in MOVES:
        raise BadForm("a question is moved up or down.")
    questions, index = list(survey.asked), _place(survey, question)
    other = min(max(index + MOVES[where], 0), len(questions) - 1)
    questions[index], questions[other] = questions[other], questions[index]
    change(hub, session, survey, {"asked": _stored(questions)})


def remove(hub: "Hub", session: Session, survey: Survey, question: str) -> None:
    """Remove a question."""
    questions, index = list(survey.asked), _place(survey, question)
    del questions[index]
    change(hub, session, survey, {"asked": _stored(questions)})


def name_of(text: str, taken: set[str]) -> str:
    """Return a short name for a question, from its first significant words.

    >>> name_of("Do you smoke?", {"q"}), name_of("Do you smoke?", {"smoke"}), name_of("什么", set())
    ('smoke', 'smoke_2', 'question')
    """
    words = [word for word in re.findall(r"[a-z][a-z0-9]*", text.lower()) if word not in _SMALL]
    base = "_".join(words[:2])[:18].strip("_") or "question"
    return next(name for number in range(1, 200) if (name := base if number == 1 else f"{base}_{number}") not in taken)


def address_of(title: str) -> str:
    """Return a name for a survey's page, from its title.

    >>> address_of("Sleep and work, 2026")
    'sleep-and-work-2026'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).lstrip("-0123456789")[:38].strip("-")


def _stored(questions: list[dict[str, Any]]) -> list[SurveyQuestion]:
    """Read questions that were certified when they were stored."""
    return [SurveyQuestion.read(question, certify=False) for question in questions]


def _place(survey: Survey, question: str) -> int:
    for index, entry in enumerate(survey.asked):
        if entry["id"] == question:
            return index
    raise NotHere("the survey has no such question.")


def expected_all(hub: "Hub", survey: Survey, asked: Sequence[SurveyQuestion]) -> list[list[dict[str, Any]]]:
    """Return the expected errors of all questions of a survey; those of a question are computed once in a process.

    Of more than a few levels they are computed in a child process with limits.

    Raises:
        UploadRefused: it took too long or too much memory.
        TooMany: one is being computed for the owner, or for too many others.
    """
    facts = survey.target, survey.lasting
    keys = [(json.dumps(question.to_json(), sort_keys=True), *facts) for question in asked]
    new = {key: question for key, question in zip(keys, asked, strict=True) if _EXPECTED.find(key) is None}
    if sum(len(question.levels) for question in new.values()) <= FEW_LEVELS:
        computed = [expected(question, *facts) for question in new.values()]
    else:
        records = [question.to_json() for question in new.values()]
        computed = run_bounded(hub.settings, _expected_all, records, *facts, seconds=CERTIFY_S, caller=survey.owner_id)
    results = dict(zip(new, computed, strict=True))
    for key, rows in results.items():
        _EXPECTED.keep(key, rows)
    # One that was held a moment ago may have been dropped since.
    return [
        results[key] if key in results else _EXPECTED.get(key, partial(expected, question, *facts))
        for key, question in zip(keys, asked, strict=True)
    ]


def _expected_all(records: list[dict[str, Any]], people: int, lasting: bool) -> list[list[dict[str, Any]]]:
    return [expected(question, people, lasting) for question in _stored(records)]


def expected(asked: SurveyQuestion, people: int, lasting: bool = False) -> list[dict[str, Any]]:
    """Return the expected error of each level if all respondents choose it, for pages and programs.

    Privacy: uses public facts alone.
    """
    number = asked.type == "number"
    rows = []
    for estimate in asked.expected(people, lasting):
        margin = _REACH * estimate.error
        needed = None if number else _needed(people, margin)
        rows.append(
            {
                "level": estimate.level.name,
                "epsilon": estimate.level.epsilon,
                "epsilon_text": show(Fraction(estimate.level.epsilon)),
                "mechanism": estimate.mechanism,
                "error": estimate.error,
                "margin": margin,
                "margin_text": f"±\N{NO-BREAK SPACE}{margin:.3g}{' ' + asked.unit if asked.unit else ''}"
                if number
                else f"±\N{NO-BREAK SPACE}{100 * margin:.1f}\N{NO-BREAK SPACE}points",
                "needed": needed,
                "bits": estimate.bits,
                "candidates": [
                    {"mechanism": label, "error": error, "margin": _REACH * error, "bits": bits}
                    for label, error, bits in estimate.table
                ],
            }
        )
    return rows


def _needed(people: int, margin: float) -> int:
    """Return how many respondents give a margin of three percentage points: it shrinks with their square root."""
    exact = people * (margin / NEAR) ** 2
    step = 10 ** max(0, len(str(int(exact))) - 2)
    return int(-(-exact // step) * step)
