"""A form, on the device: read the row, draw a question without looking at it, answer that one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Reports
from cloister.local.client.coins import uniform
from cloister.local.survey.form import Form, FormAnswer, FormQuestion
from cloister.privacy.errors import BadInput
from cloister.privacy.noise.source import SYSTEM, Source

__all__ = ["answer"]


def answer(form: Form, rows: Any, labels: Any, source: Source | None = None) -> tuple[FormAnswer, ...]:
    """What the devices of some people send: for each person a report on one question, grouped by question.

    Args:
        form: the public facts.
        rows: one person's row, or several people's.
        labels: the class of each.
        source: where random bits come from; the operating system's unless given. First a word a person for the
            question, then each question's own, from the first question to the last.

    Privacy: costs each person the form's loss, once. A second report on the same row costs it again (spec E-16): keep
        what was sent, and send that.
    """
    drawn_from = source or SYSTEM
    read, own = form.read(rows), form.classes.codes(_column(labels))
    if any(len(column) != len(own) for column in read):
        raise BadInput("there is one label for each row.")
    asked = uniform(len(form.questions), len(own), drawn_from)
    sent = []
    for place, question in enumerate(form.questions):
        here = np.flatnonzero(asked == place)
        if here.size:
            sent.append(FormAnswer(place, _reports(form, question, read, own, here, drawn_from)))
    return tuple(sent)


def _reports(
    form: Form,
    question: FormQuestion,
    read: Sequence[NDArray[Any]],
    own: NDArray[np.int64],
    here: NDArray[np.intp],
    source: Source,
) -> Reports:
    if question.about == "class":
        return question.oracle.perturb(own[here], source)
    if question.about == "joint":
        return question.oracle.perturb(read[question.columns[0]][here] * form.classes.size + own[here], source)
    if question.about in ("numbers", "squares"):
        values = np.column_stack([read[place][here] for place in question.columns])
        return question.oracle.perturb(
            (own[here], 2 * values**2 - 1 if question.about == "squares" else values), source
        )
    raise BadInput(f"no device knows how to answer a question about {question.about!r:.40}.")


def _column(labels: Any) -> Any:
    if hasattr(labels, "to_numpy"):
        labels = labels.to_numpy()
    if isinstance(labels, np.ndarray):
        return labels.ravel()
    return labels if isinstance(labels, list | tuple) else [labels]
