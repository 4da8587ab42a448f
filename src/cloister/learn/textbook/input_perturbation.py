"""Input perturbation for teaching: noise on every cell of every row and on its label.

The number of noisy rows equals the number of rows, so the neighbour relation replaces a row, and n is public. Noise on
features alone, as often printed, leaves the labels unprotected: here every column of a row gets noise for its full
range. The mean effect of the noise on counts and moments is public and is subtracted; its effect on a single row stays.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.frame import Floats
from cloister.learn.textbook.method import TextbookFit
from cloister.privacy.loss import Loss, Relation

__all__ = ["noisy_cells", "noisy_codes", "on_paper", "undone"]

Codes = NDArray[np.int64]


def on_paper(lesson: TextbookFit) -> Loss:
    """Return the nominal loss of noisy rows."""
    return replace(lesson.loss, relation=Relation.REPLACE_ONE)


def noisy_cells(scaled: Floats, epsilon: float, lesson: TextbookFit) -> tuple[Floats, float]:
    """Return scaled rows with Laplace noise, and its scale.

    Two rows of a frame are at most `features` apart in L1, whether a box bounds them (1 for each) or a ball (twice the
    radius sqrt(features)/2, times sqrt(features)).
    """
    scale = scaled.shape[1] / epsilon
    return scaled + lesson.laplace(scaled.shape, scale), scale


def noisy_codes(codes: Codes, size: int, epsilon: float, lesson: TextbookFit) -> tuple[Codes, float]:
    """Randomised response on codes 0 to size - 1 (`size` for unlisted ones), and the probability of the truth."""
    true = np.where((codes < 0) | (codes >= size), size, codes)
    honest = 1 / (1 + size * np.exp(-epsilon))
    chance, other = lesson.source.floats((2, len(true)))
    step = 1 + np.minimum((other * size).astype(np.int64), size - 1)
    return np.where(chance < honest, true, (true + step) % (size + 1)), float(honest)


def undone(counts: Floats, honest: float) -> Floats:
    """Return unbiased sums by true code from sums by reported code (along the first axis)."""
    lie = (1 - honest) / (len(counts) - 1)
    return np.asarray((counts - lie * counts.sum(axis=0, keepdims=True)) / (honest - lie))
