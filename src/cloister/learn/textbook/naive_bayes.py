"""Corrected textbook naive Bayes, for teaching (Vaidya, Shafiq, Basu & Hong 2013).

    output   Laplace noise on the model's statistics: counts, sums and sums of squares by class
    input    Laplace noise on every cell and a randomised label, then the same sums

Corrections: the printed noise on means and deviations is scaled by the true size of the class, which is private, so the
noise is added to sums around the middle of the public bounds, and to sizes. A row contributes to every feature and to
the class's size, so epsilon is divided among 2 features + 1 numbers (features + 1 where values are counted), not given
to each of them. A variance is a square, and its noise scales with the square of the width. Negative counts and
variances are clipped.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.frame import Floats
from cloister.learn.textbook.input_perturbation import Codes, noisy_cells, noisy_codes, undone
from cloister.learn.textbook.method import TextbookFit

__all__ = ["TEXTBOOK", "count_values", "normal_laws"]

TEXTBOOK = ("output", "input")


def normal_laws(
    method: str, scaled: Floats, codes: Codes, classes: int, least: float, lesson: TextbookFit
) -> tuple[Floats, Floats, Floats]:
    """Return sizes, means and variances of each class, for features within [-1/2, 1/2].

    Args:
        method: "output" or "input".
        scaled: the rows.
        codes: their classes; -1 for an unlisted one.
        classes: number of classes.
        least: the least variance.
        lesson: the nominal budget and the noise source.
    """
    d, honest, scale = scaled.shape[1], 1.0, 0.0
    if method == "input":
        scaled, scale = noisy_cells(scaled, lesson.epsilon / 2, lesson)
        codes, honest = noisy_codes(codes, classes, lesson.epsilon / 2, lesson)
    member = (np.where(codes < 0, classes, codes)[:, None] == np.arange(classes + 1)).astype(np.float64)
    sizes, sums, squares = (
        undone(member.T @ part, honest)[:classes] for part in (np.ones((len(scaled), 1)), scaled, scaled**2)
    )
    if method == "output":
        one = (2 * d + 1) / lesson.epsilon  # each number has epsilon/(2d + 1)
        sizes = sizes + lesson.laplace(sizes.shape, one)
        sums = sums + lesson.laplace(sums.shape, one / 2)
        squares = squares + lesson.laplace(squares.shape, one / 4)
    sizes = np.maximum(sizes, 1.0)
    means = np.clip(sums / sizes, -0.5, 0.5)
    variances = np.clip(squares / sizes - 2 * scale**2 - means**2, least, 0.25)
    return sizes[:, 0], means, variances


def count_values(
    method: str,
    codes: Codes,
    cells: Sequence[NDArray[np.int64]],
    sizes: Sequence[int],
    classes: int,
    lesson: TextbookFit,
) -> tuple[Floats, list[Floats]]:
    """Return the size of each class, and for each feature the noisy counts of its values by class.

    Args:
        method: "output" or "input".
        codes: the class of each row; -1 for an unlisted one.
        cells: for each feature the value of each row; -1 for an unlisted one.
        sizes: number of values of each feature.
        classes: number of classes.
        lesson: the nominal budget and the noise source.
    """
    each = lesson.epsilon / (len(cells) + 1)
    honest, truths = 1.0, [1.0] * len(cells)
    codes, cells = (
        np.where(codes < 0, classes, codes),
        [np.where(c < 0, s, c) for c, s in zip(cells, sizes, strict=True)],
    )
    if method == "input":
        codes, honest = noisy_codes(codes, classes, each, lesson)
        told = [noisy_codes(cell, size, each, lesson) for cell, size in zip(cells, sizes, strict=True)]
        cells, truths = [one[0] for one in told], [one[1] for one in told]
    counts = undone(np.bincount(codes, minlength=classes + 1).astype(np.float64), honest)[:classes]
    tables = []
    for cell, size, truth in zip(cells, sizes, truths, strict=True):
        flat = np.bincount(codes * (size + 1) + cell, minlength=(classes + 1) * (size + 1)).astype(np.float64)
        both = undone(undone(flat.reshape(classes + 1, size + 1), honest).T, truth).T
        tables.append(both[:classes, :size])
    if method == "output":
        counts = counts + lesson.laplace(counts.shape, 1 / each)
        tables = [one + lesson.laplace(one.shape, 1 / each) for one in tables]
    return np.maximum(counts, 1.0), tables
