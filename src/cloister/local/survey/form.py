"""Forms: each person answers one question of several, drawn at random, with the whole epsilon.

A row has a class and columns that depend on each other: answering about each costs their sum. So a device draws one
question, independently of the row, and answers it alone (spec LDP-21, strategy A3 of LDP-16).

    class      the class
    joint      the value of one column together with the class: code = value · classes + class
    numbers    a number (or all of them) at the component of the hidden class
    squares    2·number² - 1 likewise: its mean gives the variance, and centred its noise is half that of number²
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.columns import Choices, Column, Span, numbers, table_of
from cloister.local.base.oracle import Oracle, Reports, read_loss
from cloister.local.mechanisms.labelled import LabelledNumber
from cloister.local.privacy.advice import advise
from cloister.privacy.errors import BadInput, BadLoss
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.local.privacy.certificate import Certificate
from cloister.local.base.coins import uniform
from cloister.privacy.noise.source import SYSTEM, Source

__all__ = ["FormAnswer", "Form", "Maker", "FormQuestion", "form_of", "answer"]

About = Literal["class", "joint", "numbers", "squares"]
Maker = Callable[[int, Loss], Oracle]


@dataclass(frozen=True, slots=True)
class FormQuestion:
    """One question.

    Attributes:
        about: the kind of question.
        columns: its columns; none for the class.
        oracle: the mechanism of the answer.
    """

    about: About
    columns: tuple[int, ...]
    oracle: Oracle


@dataclass(frozen=True, slots=True, eq=False)
class FormAnswer:
    """The output of devices: the number of a question, independent of the row, and reports on it.

    Attributes:
        question: its index in the form.
        reports: Reports, or received bytes.
    """

    question: int
    reports: Reports | Any

    @property
    def private(self) -> bool:
        """False if the randomness was seeded."""
        return not isinstance(self.reports, Reports) or self.reports.private


@dataclass(frozen=True, slots=True)
class Form:
    """The public facts that devices and the collector share.

    Attributes:
        classes: the public labels.
        columns: the public facts of each column, after the projection if there is one.
        questions: all possible questions; a device draws each with the same probability.
        loss: one person's total loss.
        projection: a public matrix, columns by directions, that a device multiplies its row with first; () for none.

    Privacy: pure, replace-one: any row and class against any other, against every reader of a device's output. The
        question is drawn independently of the row, so a report costs at most its costliest question: `certificates`.
    """

    classes: Choices
    columns: tuple[Column, ...]
    questions: tuple[FormQuestion, ...]
    loss: Loss
    projection: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        if any(question.oracle.epsilon > read_loss(self.loss, "a form") for question in self.questions):
            raise BadLoss(f"a question of this form costs more than {self.loss}. Make its oracle for the form's loss.")

    @property
    def domain(self) -> int:
        """The number of rows, for a form whose columns are all lists or bins."""
        return self.classes.size * prod(self._sizes())

    @property
    def outputs(self) -> int:
        """The number of different reports: those of the first question, then those of the second, and so on."""
        return sum(question.oracle.outputs for question in self.questions)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """Return every report's probability for the row class + classes · (first column + size · (second + …))."""
        rest, label = divmod(value, self.classes.size)
        codes = []
        for size in self._sizes():
            rest, code = divmod(rest, size)
            codes.append(code)
        chances: list[Fraction] = []
        for question in self.questions:
            answer_code = codes[question.columns[0]] * self.classes.size + label if question.columns else label
            chances += (chance / len(self.questions) for chance in question.oracle.law(answer_code))
        return tuple(chances)

    def read(self, rows: Any) -> list[NDArray[Any]]:
        """Return each column of one row or several: as codes of its choices or bins, or as numbers in [-1, 1]."""
        table = table_of(rows)
        if self.projection:
            if table.shape[1] != len(self.projection):
                raise BadInput(f"a row has {len(self.projection)} numbers: the projection has as many rows.")
            table = numbers(table).reshape(table.shape) @ np.array(self.projection)
        if table.shape[1] != len(self.columns):
            raise BadInput(f"X has {table.shape[1]} features, but the form is expecting {len(self.columns)} features.")
        return [
            column.scaled(table[:, index]) if isinstance(column, Span) else column.codes(table[:, index])
            for index, column in enumerate(self.columns)
        ]

    def certificates(self) -> tuple["Certificate", ...]:
        """Certify that each question's report costs no more than the loss."""
        from cloister.local.privacy.certificate import verify

        return tuple(verify(question.oracle) for question in self.questions)

    def _sizes(self) -> list[int]:
        if any(isinstance(column, Span) for column in self.columns):
            raise NotImplementedError("reports on numbers cannot be listed. Ask certificates().")
        return [column.size for column in self.columns if not isinstance(column, Span)]


def form_of(
    classes: Choices,
    columns: Sequence[Column],
    loss: Loss,
    oracle: str | Maker = "advised",
    split: bool = False,
    projection: tuple[tuple[float, ...], ...] = (),
) -> Form:
    """Return the form for these classes and columns.

    Args:
        classes: the public labels.
        columns: the public facts of each column.
        loss: one person's loss.
        oracle: "advised" (the least error for each question's domain), the usual abbreviation of a frequency oracle,
            or a function of a domain and a loss.
        split: ask all numbers at once, at a share of the epsilon each (strategy A1), instead of one with all of it.
        projection: a public matrix that rows are multiplied with first.

    Privacy: reads public facts alone.
    """
    read_loss(loss, "a form")
    k = classes.size
    questions = [FormQuestion("class", (), oracle_of(oracle, k, loss))]
    spans = [index for index, column in enumerate(columns) if isinstance(column, Span)]
    for index, column in enumerate(columns):
        if not isinstance(column, Span):
            questions.append(FormQuestion("joint", (index,), oracle_of(oracle, k * column.size, loss)))
    for group in [tuple(spans)] if split and spans else [(index,) for index in spans]:
        hidden = LabelledNumber(k, len(group), loss)
        questions += FormQuestion("numbers", group, hidden), FormQuestion("squares", group, hidden)
    return Form(classes, tuple(columns), tuple(questions), loss, projection)


@lru_cache(maxsize=512)
def oracle_of(oracle: str | Maker, domain: int, loss: Loss) -> Oracle:
    """Return a frequency oracle by name."""
    if callable(oracle):
        return oracle(domain, loss)
    advice = advise(domain, loss, 1)
    if oracle == "advised":
        return advice.best
    oracles = {line.label: line.mechanism for line in advice.table}
    if oracle not in oracles:
        raise BadInput(f"oracle is 'advised', a function, or one of {', '.join(oracles)}, got {oracle!r:.40}.")
    return oracles[oracle]


# Device: read the row, draw a question independently of it, answer that one.


def answer(form: Form, rows: Any, labels: Any, source: Source | None = None) -> tuple[FormAnswer, ...]:
    """Return the output of some people's devices: one report on one question a person, grouped by question.

    Args:
        form: the public facts.
        rows: one person's row, or several people's.
        labels: the class of each.
        source: the source of random bits; default the operating system's. First a word a person for the
            question, then each question's own, from the first question to the last.

    Privacy: costs each person the form's loss, once. A second report on the same row costs it again (spec E-16): keep
        the report, and resend it.
    """
    drawn_from = source or SYSTEM
    read, codes = form.read(rows), form.classes.codes(_column(labels))
    if any(len(column) != len(codes) for column in read):
        raise BadInput("there is one label for each row.")
    drawn = uniform(len(form.questions), len(codes), drawn_from)
    sent = []
    for index, question in enumerate(form.questions):
        people = np.flatnonzero(drawn == index)
        if people.size:
            sent.append(FormAnswer(index, _reports(form, question, read, codes, people, drawn_from)))
    return tuple(sent)


def _reports(
    form: Form,
    question: FormQuestion,
    read: Sequence[NDArray[Any]],
    codes: NDArray[np.int64],
    people: NDArray[np.intp],
    source: Source,
) -> Reports:
    if question.about == "class":
        return question.oracle.perturb(codes[people], source)
    if question.about == "joint":
        return question.oracle.perturb(read[question.columns[0]][people] * form.classes.size + codes[people], source)
    if question.about in ("numbers", "squares"):
        values = np.column_stack([read[column][people] for column in question.columns])
        return question.oracle.perturb(
            (codes[people], 2 * values**2 - 1 if question.about == "squares" else values), source
        )
    raise BadInput(f"no device knows how to answer a question about {question.about!r:.40}.")


def _column(labels: Any) -> Any:
    if hasattr(labels, "to_numpy"):
        labels = labels.to_numpy()
    if isinstance(labels, np.ndarray):
        return labels.ravel()
    return labels if isinstance(labels, list | tuple) else [labels]
