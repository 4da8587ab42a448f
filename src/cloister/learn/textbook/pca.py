"""Corrected textbook principal components, for teaching.

    sulq       noise on the second moments, in floats (Blum, Dwork, McSherry & Nissim 2005)
    input      noise on every cell of every row
    subspace   directions drawn by the exponential mechanism (learn/textbook/subspace.py), the textbook's output
               perturbation

Corrections: noise is symmetric, so that the matrix remains one of second moments; its scale includes the sensitivity,
which is often omitted. A centred scatter matrix moves by up to four times as much as an uncentred one, and its mean is
not public: so the second moments of rows with a constant are released, once, and the mean follows from them. Wishart
noise is refused: it is not private (privacy/mechanisms/wishart.py).
"""

import math

import numpy as np

from cloister.learn.base.frame import Floats, Frame
from cloister.learn.linear_model.moments import symmetric
from cloister.learn.textbook.input_perturbation import noisy_cells, on_paper
from cloister.learn.textbook.method import TextbookFit
from cloister.learn.textbook.subspace import sample_subspace
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss

__all__ = ["TEXTBOOK", "directions"]

TEXTBOOK = ("sulq", "input", "subspace")


def directions(
    method: str, scaled: Floats, frame: Frame, count: int, lesson: TextbookFit
) -> tuple[Floats, Floats, Floats | None, Loss]:
    """Return directions and mean in the frame, the scatter along the directions, and the nominal loss."""
    if method == "subspace":
        if not lesson.loss.is_pure:
            raise BadInput("the exponential mechanism is pure. Give spend=cl.epsilon(1).")
        drawn = sample_subspace(scaled.T @ scaled, frame.reach, lesson.epsilon, count, lesson.source)
        return drawn, np.zeros(frame.features), None, lesson.loss
    if method == "input":
        noisy, scale = noisy_cells(scaled, lesson.epsilon, lesson)
        rows = float(max(len(noisy), 1))
        middle = np.clip(noisy.sum(axis=0) / rows, -0.5, 0.5)
        scatter = noisy.T @ noisy / rows - 2 * scale**2 * np.eye(frame.features)
        loss = on_paper(lesson)
    else:
        whole = _second_moments(scaled, frame, lesson)
        rows = max(float(whole[-1, -1]) / frame.reach**2, 1.0)
        middle = np.clip(whole[-1, :-1] / (rows * frame.reach), -0.5, 0.5)
        scatter = whole[:-1, :-1] / rows
        loss = lesson.loss
    values, vectors = np.linalg.eigh(scatter - np.outer(middle, middle))
    order = np.argsort(values)[::-1][:count]
    return vectors[:, order].T, middle, np.maximum(values[order], 0.0), loss


def _second_moments(scaled: Floats, frame: Frame, lesson: TextbookFit) -> Floats:
    """Release Z'Z with noise, for rows z = (x, reach).

    The upper triangle moves by at most |z|² = 2 reach² in L2; by (|z|_1² + |z|²)/2 in L1.
    """
    rows = np.column_stack([scaled, np.full(len(scaled), frame.reach)])
    places = np.triu_indices(rows.shape[1])
    upper = (rows.T @ rows)[places]
    square = 2 * frame.reach**2
    if lesson.loss.is_pure:
        first = frame.reach * (math.sqrt(frame.features) + 1)
        return symmetric(upper + lesson.laplace(upper.shape, (first**2 + square) / 2 / lesson.epsilon))
    return symmetric(upper + lesson.normal(upper.shape, square / math.sqrt(2 * float(lesson.loss.amount))))
