"""Naive Bayes by output and input perturbation, for teaching; not private (Vaidya, Shafiq, Basu & Hong 2013).

    output   Laplace noise on the model's statistics: counts, sums and sums of squares by class
    input    Laplace noise on every cell and a randomised label, then the same sums

Corrections: the printed noise on means and deviations is scaled by the true size of the class, which is private, so the
noise is added to sums around the middle of the public bounds, and to sizes. A row contributes to every feature and to
the class's size, so epsilon is divided among 2 features + 1 numbers (features + 1 where values are counted), not given
to each of them. A variance is a square, and its noise scales with the square of the width. Negative counts and
variances are clipped.

Falls to: `attack.mechanisms.floating.guess`: noise in floats shows what it was added to in its last bits (AT-17).
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.frame import Floats
from cloister.learn.base.inputs import codes as codes_of
from cloister.learn.base.inputs import complete, keep_features, read_box, read_classes, read_labels, read_table
from cloister.learn.naive_bayes import gaussian, mixed
from cloister.learn.naive_bayes.calibration import CalibrationCurve
from cloister.learn.naive_bayes.class_counts import ClassCounts
from cloister.learn.naive_bayes.count_features import read_features
from cloister.lessons.learn.method import (
    Codes,
    TextbookFit,
    TextbookModel,
    noisy_cells,
    noisy_codes,
    on_paper,
    undone,
)
from cloister.privacy.loss import Loss

__all__ = ["CategoricalNB", "GaussianNB", "MixedNB", "count_values", "normal_laws"]

_METHODS = ("output", "input")


class GaussianNB(TextbookModel, gaussian.GaussianNB):
    """Naive Bayes with a normal distribution for each feature and class, by a textbook method.

    Args:
        method: "output" or "input"; needs a `random_state`, and neither ledger nor account.
        spend, bounds, classes, var_smoothing, fill, random_state: see `cloister.learn.GaussianNB`.

    Privacy: none; see `TextbookModel`.
    """

    methods: ClassVar = _METHODS

    def fit(self, X: Any, y: Any = None, **columns: Any) -> Self:  # noqa: N803
        """Fit to rows as arrays or frames.

        Privacy: none; see `TextbookModel`.
        """
        self._check_rows(X)
        inputs, listed = read_table(X, self.fill), read_classes(self.classes)
        labels = read_labels(y, listed, inputs.length)

        def learn(lesson: TextbookFit) -> tuple[gaussian._Model, Loss]:
            rows, code = complete(inputs.numbers(), codes_of(labels, list(listed)))
            box = read_box(self.bounds, inputs.width)
            least = float(self.var_smoothing)
            laws = normal_laws(self.method, box.to_unit(rows) - 0.5, code, len(listed), least, lesson)
            return gaussian._Model(*laws, CalibrationCurve(), box), _nominal(self.method, lesson)

        self._keep(self._teach(learn), listed)
        keep_features(self, inputs.width, inputs.names)
        return self


class MixedNB(TextbookModel, mixed.MixedNB):
    """Naive Bayes by counts of each value in each class, by a textbook method.

    Args:
        method: "output" or "input"; needs a `random_state`, and neither ledger nor account.
        spend, bounds, categories, classes, bins, alpha, random_state: see `cloister.learn.MixedNB`.

    Privacy: none; see `TextbookModel`.
    """

    methods: ClassVar = _METHODS

    def fit(self, X: Any, y: Any = None, **columns: Any) -> Self:  # noqa: N803
        """Fit to rows as arrays or frames.

        Privacy: none; see `TextbookModel`.
        """
        self._check_bins()
        self._check_rows(X)
        inputs, listed = read_table(X, numbers=False), read_classes(self.classes)
        names = inputs.names or range(inputs.width)
        parts = read_features(list(names), self.categories, self._bounds(), self.bins)
        rows = ClassCounts(inputs.columns, read_labels(y, listed, inputs.length), listed, parts)

        def learn(lesson: TextbookFit) -> tuple[mixed._Model, Loss]:
            label, each = rows.codes()
            sizes = [part.size for part in parts]
            counts, tables = count_values(self.method, label, each, sizes, len(listed), lesson)
            raised = [np.maximum(table, 0.0) + max(float(self.alpha), 1e-9) for table in tables]
            logs = tuple(np.log(table / table.sum(axis=1, keepdims=True)) for table in raised)
            return mixed._Model(counts, logs, CalibrationCurve()), _nominal(self.method, lesson)

        self._keep(self._teach(learn), listed, parts)
        keep_features(self, inputs.width, inputs.names)
        return self


class CategoricalNB(MixedNB, mixed.CategoricalNB):
    """Naive Bayes for categorical columns by a textbook method.

    Args:
        method: "output" or "input"; needs a `random_state`, and neither ledger nor account.
        spend, categories, classes, alpha, random_state: see `cloister.learn.CategoricalNB`.

    Privacy: none; see `TextbookModel`.
    """


def _nominal(method: str, lesson: TextbookFit) -> Loss:
    return on_paper(lesson) if method == "input" else lesson.loss


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
        noise_scale = (2 * d + 1) / lesson.epsilon  # each number has epsilon/(2d + 1)
        sizes = sizes + lesson.laplace(sizes.shape, noise_scale)
        sums = sums + lesson.laplace(sums.shape, noise_scale / 2)
        squares = squares + lesson.laplace(squares.shape, noise_scale / 4)
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
        noisy = [noisy_codes(cell, size, each, lesson) for cell, size in zip(cells, sizes, strict=True)]
        cells, truths = [pair[0] for pair in noisy], [pair[1] for pair in noisy]
    counts = undone(np.bincount(codes, minlength=classes + 1).astype(np.float64), honest)[:classes]
    tables = []
    for cell, size, truth in zip(cells, sizes, truths, strict=True):
        flat = np.bincount(codes * (size + 1) + cell, minlength=(classes + 1) * (size + 1)).astype(np.float64)
        both = undone(undone(flat.reshape(classes + 1, size + 1), honest).T, truth).T
        tables.append(both[:classes, :size])
    if method == "output":
        counts = counts + lesson.laplace(counts.shape, 1 / each)
        tables = [table + lesson.laplace(table.shape, 1 / each) for table in tables]
    return np.maximum(counts, 1.0), tables
