"""Several questions, on the device: which of them to answer."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.client.coins import uniform
from cloister.privacy.noise.source import Source

__all__ = ["column", "drawn", "some"]


def drawn(people: int, size: int, asked: int, source: Source) -> NDArray[np.bool_]:
    """`asked` of `size` questions, all sets alike, one row a person: the first steps of Fisher and Yates' shuffle.

    For each step a word, modulo the number of questions left (again in the last, incomplete run): how far from the
    step's place the question lies that it is exchanged with.
    """
    rows, order = np.arange(people), np.tile(np.arange(size), (people, 1))
    for place in range(asked):
        other = place + uniform(size - place, people, source).astype(np.int64)
        order[rows, place], order[rows, other] = order[rows, other], order[rows, place]
    told = np.zeros((people, size), dtype=np.bool_)
    told[rows[:, None], order[:, :asked]] = True
    return told


def column(answers: Any) -> Any:
    """Everybody's answers to one question: an array, or a list of sets."""
    if isinstance(answers, list) and any(isinstance(one, set | frozenset | list | tuple) for one in answers):
        return answers
    return np.asarray(answers)


def some(answers: Any, told: NDArray[np.bool_]) -> Any:
    """The answers of those who tell."""
    if isinstance(answers, np.ndarray):
        return answers[told]
    return [one for one, asked in zip(answers, told, strict=True) if asked]
