"""What a control is: a rule that may refuse a question, change what it reads, or coarsen its noisy answer."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from cloister.data.schema import Schema
from cloister.query.answer import Answer
from cloister.query.question import Question

__all__ = ["Control", "History"]

_Fold = TypeVar("_Fold")


class History:
    """The questions that were let through before: those of one analyst and of everybody in a pool with them.

    Attributes:
        schema: the public facts about the tables.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._questions: list[Question] = []
        self._folds: dict[Any, tuple[int, Any]] = {}

    def add(self, question: Question) -> None:
        """Remember a question."""
        self._questions.append(question)

    def fold(self, rule: "Control", start: _Fold, step: Callable[[_Fold, Question], _Fold]) -> _Fold:
        """What a rule has gathered from all questions so far; each question is looked at once."""
        seen, value = self._folds.get(rule, (0, start))
        for question in self._questions[seen:]:
            value = step(value, question)
        self._folds[rule] = (len(self._questions), value)
        return value  # type: ignore[no-any-return]


class Control(Protocol):
    """A rule beside the noise. What a rule does not override changes nothing."""

    def before(self, question: Question, history: History) -> str | None:
        """Why the question is refused, from its text and public facts; None to let it through."""
        return None

    def reads(self, question: Question) -> Question:
        """The question that is answered instead."""
        return question

    def after(self, question: Question, answer: Answer) -> Answer:
        """The answer as the analyst gets it, from the noisy one."""
        return answer
