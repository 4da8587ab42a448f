"""A question asked at several levels: public, exact, and the same JSON for device and collector."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from cloister.local.base.number import NumberMechanism
from cloister.local.base.oracle import Oracle
from cloister.local.survey.description import from_description
from cloister.local.survey.envelope import VERSION, check_question
from cloister.privacy.errors import BadInput, BadName, BadSource
from cloister.privacy.number import rational

__all__ = ["Question", "read_questions", "write_questions"]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the mechanism at each level a respondent may choose.

    Attributes:
        id: letters, digits, dots, dashes, underscores.
        levels: one mechanism for each level, all taking the same answers, from the most private to the least.
        choices: the names of the values in order; None if values are numbers.

    >>> from cloister import local
    >>> smoker = Question("smoker", [local.RandomisedResponse.for_loss(local.epsilon(e)) for e in (1, "0.5")])
    >>> smoker.offered, smoker.at("0.5").epsilon
    (('1/2', '1'), Fraction(1, 2))
    """

    id: str
    levels: Sequence[Oracle]
    choices: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_question(self.id)
        levels = tuple(sorted(self.levels, key=lambda mechanism: mechanism.epsilon))
        if not levels:
            raise BadInput("a question needs at least one level. Make a mechanism with for_loss().")
        if len({mechanism.epsilon for mechanism in levels}) < len(levels):
            raise BadInput("a question has one mechanism for each level; two of these have the same epsilon.")
        if len({_answers(mechanism) for mechanism in levels}) > 1:
            raise BadInput("all levels of a question take the same answers; these do not.")
        object.__setattr__(self, "levels", levels)
        if self.choices is not None:
            if self.kind == "number":
                raise BadInput("a question that asks for a number has no choices.")
            object.__setattr__(self, "choices", _names(self.choices, levels[0].domain))

    @property
    def offered(self) -> tuple[str, ...]:
        """The levels by their epsilon, exact, the most private first."""
        return tuple(str(mechanism.epsilon) for mechanism in self.levels)

    def at(self, level: object) -> Oracle:
        """The mechanism of a level, given as any number."""
        wanted = rational(level, "level")
        for mechanism in self.levels:
            if mechanism.epsilon == wanted:
                return mechanism
        raise BadInput(f"{self.id} is not asked at this level. Offered are: {', '.join(self.offered)}.")

    @property
    def kind(self) -> Literal["choice", "set", "number"]:
        """The kind of answer: one value, several values, or a number between bounds."""
        if isinstance(self.levels[0], NumberMechanism):
            return "number"
        return "set" if self.most else "choice"

    @property
    def most(self) -> int:
        """The most options a person may choose; 0 if the question is not of that kind."""
        return int(getattr(self.levels[0], "most", 0))

    @property
    def names(self) -> Sequence[str]:
        """The estimated quantities: a share for each value, or a mean."""
        if self.kind == "number":
            return ("mean",)
        return self.choices or tuple(str(value) for value in range(self.levels[0].domain))

    @property
    def takes(self) -> str:
        """The form of an answer in a table, in words."""
        if self.kind == "number":
            return "a number"
        values = f"one of {self.levels[0].domain:,} choices"
        if self.choices is None:
            values = f"a whole number from 0 to {self.levels[0].domain - 1}"
        return f"up to {self.most} of these, with ';' between them: {values}" if self.most else values

    def value(self, told: Any) -> Any:
        """Return the value of a table's answer, for `perturb`; None if it is invalid.

        `none` is the empty set, unless it is the name of a choice; an empty text is it then, too.
        """
        if self.kind == "number":
            return _number(told)
        if self.kind == "choice":
            return self._place(told)
        if isinstance(told, dict):
            return None
        empty = "" if "none" in (self.choices or ()) else "none"
        listed = told if isinstance(told, list) else [] if told == empty else str(told).split(";")
        places = [self._place(choice.strip() if isinstance(choice, str) else choice) for choice in listed]
        if None in places or len(set(places)) < len(places) or len(places) > self.most:
            return None
        return set(places)

    def _place(self, answer: Any) -> int | None:
        if self.choices is not None:
            name = ("no", "yes")[answer] if isinstance(answer, bool) else answer  # JSON has true and false
            return self.choices.index(name) if name in self.choices else None
        if isinstance(answer, float) and not answer.is_integer():
            return None
        try:
            value = int(answer)
        except (TypeError, ValueError):
            return None
        return value if 0 <= value < self.levels[0].domain else None

    def describe(self) -> dict[str, Any]:
        """Return the public, exact facts for JSON that a client in any language and a collector need."""
        facts: dict[str, Any] = {"id": self.id, "levels": [mechanism.describe() for mechanism in self.levels]}
        return facts if self.choices is None else {**facts, "choices": list(self.choices)}

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> "Question":
        """Read a result of `describe`; every mechanism is certified again."""
        if not isinstance(told, Mapping) or not {"id", "levels"} <= set(told) <= {"id", "levels", "choices"}:
            raise BadInput("a question has an id, levels, and perhaps choices. Use question.describe() unchanged.")
        if not isinstance(told["levels"], list):
            raise BadInput("the levels of a question are a list of descriptions.")
        return cls(told["id"], [from_description(level) for level in told["levels"]], told.get("choices"))


def _answers(mechanism: Any) -> tuple[Any, ...]:
    """Return the answers a mechanism takes: two that take the same can serve one question."""
    if isinstance(mechanism, NumberMechanism):
        return ("number", type(mechanism).__name__, mechanism.ends)
    return (mechanism.domain, getattr(mechanism, "most", 0))


def _number(answer: Any) -> float | None:
    try:
        value = float(answer)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if isfinite(value) else None


def _names(choices: Any, domain: int) -> tuple[str, ...]:
    names = tuple(choices) if isinstance(choices, list | tuple) else ()
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise BadName("choices are different texts, none of them empty.")
    if len(names) != domain:
        raise BadInput(f"there are {len(names)} choices for a domain of {domain} values. Make the two agree.")
    return names


def read_questions(path: Path | str) -> tuple[Question, ...]:
    """Read the questions of a JSON file that `write_questions` wrote."""
    unreadable = BadSource(f"{path} is no JSON file of questions. Write one with `cloister local advise --output`.")
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise unreadable from None
    if (
        not isinstance(content, dict)
        or content.get("version") != VERSION
        or not isinstance(content.get("questions"), list)
    ):
        raise BadSource(f"{path} holds no questions of version {VERSION}. Write them with `cloister local advise`.")
    try:
        return tuple(Question.read(facts) for facts in content["questions"])
    except RecursionError:  # mechanisms within mechanisms, in names such as inner.inner.domain
        raise unreadable from None


def write_questions(questions: Iterable[Question], path: Path | str) -> None:
    """Write questions as JSON, for devices and collectors alike."""
    content = {"version": VERSION, "questions": [question.describe() for question in questions]}
    Path(path).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
