"""The interface of a control: it may refuse a query, change the rows it reads, or coarsen its noisy answer."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from cloister.data.schema import Schema
from cloister.query.answer import Answer
from cloister.query.question import Question

__all__ = ["Control", "History"]

_Fold = TypeVar("_Fold")


class History:
    """The earlier queries of one analyst and of all analysts in the same pool.

    Attributes:
        schema: the public facts about the tables.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._questions: list[Question] = []
        self._folds: dict[Any, tuple[int, Any]] = {}

    def add(self, question: Question) -> None:
        """Add a query."""
        self._questions.append(question)

    def fold(self, rule: "Control", start: _Fold, step: Callable[[_Fold, Question], _Fold]) -> _Fold:
        """Return the state a rule has accumulated over all queries so far. Each query is processed once."""
        done, value = self._folds.get(rule, (0, start))
        for question in self._questions[done:]:
            value = step(value, question)
        self._folds[rule] = (len(self._questions), value)
        return value  # type: ignore[no-any-return]


class Control(Protocol):
    """A rule in addition to the noise. Methods that are not overridden change nothing."""

    def before(self, question: Question, history: History) -> str | None:
        """Return the reason for refusing the query, from its text and public facts; None to accept it."""
        return None

    def reads(self, question: Question) -> Question:
        """Return the query that is answered instead."""
        return question

    def after(self, question: Question, answer: Answer) -> Answer:
        """Return the answer for the analyst, computed from the noisy one."""
        return answer
