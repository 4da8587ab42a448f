"""Survey of the demo: sleep in a town, asked by Ada, answered by 500 simulated respondents."""

import asyncio
import random
from typing import Any

import sqlalchemy as sa

from cloister.data.hospital import WARDS
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Person, Survey
from cloister.hub.surveys import survey as surveys
from cloister.hub.surveys.device import submissions
from cloister.hub.surveys.intake import Intake

__all__ = ["NAME", "PEOPLE", "make_survey"]

NAME = "sleep-2026"
PEOPLE = 500
_FACTS: dict[str, Any] = {
    "title": "How does our town sleep?",
    "about": "Seven short questions, two minutes. Anybody who lives in town may answer.",
    "purpose": "To plan the town's advice on sleep. The results are published as shares with their uncertainty.",
    "consent": (
        "I answer of my own will. My device blurs each answer before it leaves, as strongly as I choose for that "
        "question. I may skip any question and stop at any time before sending."
    ),
    "target": 2000,
    "asked": [
        {"id": "shifts", "type": "yes_no", "text": "Do you work at night at least once a week?"},
        {
            "id": "home",
            "type": "choice",
            "text": "Where do you live?",
            "options": ["Old town", "River side", "New quarter", "Villages around"],
        },
        {
            "id": "helps",
            "type": "choices",
            "text": "What helps you to fall asleep?",
            "help": "Choose up to two.",
            "options": ["Reading", "Music", "Tea", "Sport", "Medicine"],
            "most": 2,
        },
        {
            "id": "hours",
            "type": "number",
            "text": "How many hours do you sleep on a working day?",
            "low": "0",
            "high": "14",
            "unit": "hours",
        },
        {
            "id": "rested",
            "type": "scale",
            "text": "How rested do you feel in the morning?",
            "low": "1",
            "high": "5",
            "options": ["not at all", "very"],
        },
        {
            "id": "moved",
            "type": "date",
            "text": "When did you move to where you live now?",
            "help": "Only the year is used.",
            "low": "2015-01-01",
            "high": "2026-12-31",
            "step": "year",
        },
        {
            "id": "ward",
            "type": "choice",
            "text": "Which ward of St. Anna Hospital did you visit last?",
            "help": "Leave it out if you never did.",
            "options": list(WARDS),  # those of the hospital's own table: the two can be drawn in one chart
        },
    ],
}


def make_survey(hub: Hub, owner: Person) -> None:
    """Compose, publish and answer it; existing parts stay."""
    with hub.database.writing() as session:
        survey = session.scalar(sa.select(Survey).where(Survey.name == NAME))
        if survey is None:
            survey = surveys.create(hub, session, owner, NAME, _FACTS)
            surveys.publish(hub, session, survey)
    with hub.database.reading() as session:
        public = surveys.public(surveys.find(session, NAME))
        count = surveys.sizes(session, surveys.find(session, NAME))[0]
    if count < PEOPLE:
        asyncio.run(_answer(hub, submissions(public, _people()[count:])))


async def _answer(hub: Hub, sent: list[bytes]) -> None:
    intake = Intake(hub)
    await asyncio.gather(*(intake.take(NAME, raw) for raw in sent))


def _people() -> list[dict[str, tuple[Any, str]]]:
    """Return true answers, the same every time; their noise is not."""
    draw = random.Random("a town that sleeps")  # noqa: S311  answers, not noise
    return [_person(draw) for _ in range(PEOPLE)]


def _person(draw: random.Random) -> dict[str, tuple[Any, str]]:
    questions = {question["id"]: question for question in _FACTS["asked"]}
    nights = draw.random() < 0.22
    hours = draw.gauss(6.1 if nights else 7.2, 1.1)
    rested = min(5, max(1, round(1.2 + 0.42 * hours - (0.6 if nights else 0) + draw.gauss(0, 0.8))))
    answers: dict[str, Any] = {
        "shifts": "yes" if nights else "no",
        "home": draw.choices(questions["home"]["options"], (35, 25, 25, 15))[0],
        "helps": draw.sample(questions["helps"]["options"], draw.choice((0, 1, 1, 2))),
        "hours": f"{min(14, max(0, hours)):.1f}",
        "rested": str(rested),
        "ward": draw.choices(WARDS, (3, 5, 2, 1, 2, 3))[0],
        "moved": str(min(2026, max(2015, int(2027 - draw.expovariate(0.25))))),
    }
    # Levels are chosen independently of the answer; some skip a question.
    levels = draw.choices(("strong", "medium", "light", "skip"), (15, 40, 40, 5), k=len(answers))
    chosen = {
        name: (answer, level) for (name, answer), level in zip(answers.items(), levels, strict=True) if level != "skip"
    }
    return chosen or {"shifts": (answers["shifts"], "light")}
