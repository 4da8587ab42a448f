"""Base class of textbook models, and the noise they share. For teaching; not private.

    input       noise on every cell of every row and on its label; then an ordinary fit
    algorithm   noise in every round: k-means (kmeans.py)
    output      noise on the fitted parameters: linear models, naive Bayes (perturbation.py, naive_bayes.py)
    objective   noise in the objective: linear models (perturbation.py)

They are corrected (the sensitivities hold, classes and counts are charged), but they assume continuous noise, or an
exact minimiser, which floating-point arithmetic does not provide. So they cannot be charged to a ledger. Other textbook
methods are exact and are offered by cloister.learn: functional (linear models), power (components), random (forests).

Input perturbation: the number of noisy rows equals the number of rows, so the neighbour relation replaces a row, and n
is public. Noise on features alone, as often printed, leaves the labels unprotected: here every column of a row gets
noise for its full range. The mean effect of the noise on counts and moments is public and is subtracted; its effect on
a single row stays.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.frame import Floats
from cloister.learn.base.inputs import is_dataset
from cloister.privacy.errors import BadInput, TextbookOnly
from cloister.privacy.filter import budget_share
from cloister.privacy.loss import ROW, Loss, Relation
from cloister.privacy.mechanisms.mechanism import epsilon_of
from cloister.privacy.noise import SeededSource, Source
from cloister.privacy.release import Release

__all__ = ["Codes", "TextbookFit", "TextbookModel", "noisy_cells", "noisy_codes", "on_paper", "undone"]

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TextbookFit:
    """Nominal budget and noise source of a textbook method.

    Attributes:
        loss: as stated: a pure epsilon or a rho.
        source: a seeded source.
    """

    loss: Loss
    source: Source

    @property
    def epsilon(self) -> float:
        """Return the pure epsilon that implies the loss."""
        return float(epsilon_of(self.loss))

    def laplace(self, shape: int | tuple[int, ...], scale: float) -> Floats:
        """Draw Laplace noise in floats."""
        uniform = self.source.floats(shape) - 0.5
        return np.asarray(-scale * np.sign(uniform) * np.log1p(-2 * np.abs(uniform)))

    def normal(self, shape: tuple[int, ...], deviation: float) -> Floats:
        """Draw normal noise in floats (Box & Muller)."""
        radial, angle = self.source.floats((2, *shape))
        return np.asarray(deviation * np.sqrt(-2 * np.log(radial)) * np.cos(2 * np.pi * angle))


class TextbookModel(PrivateEstimator):
    """Base class of textbook models: each is a class of cloister.learn whose `fit` runs a textbook method.

    Attributes:
        methods: the textbook methods of the model, one of which `method` names.

    Privacy: none. Nominally the spend; but the noise consists of floats and repeats with its seed, so the release is
        marked `not private`, and a ledger or an account is refused.
    """

    methods: ClassVar[tuple[str, ...]]
    method: str

    def _check_rows(self, rows: Any) -> None:
        """Refuse an unknown method, and a dataset: its account could not be charged."""
        if self.method not in self.methods:
            raise BadInput(
                f"method is one of {', '.join(self.methods)}. Other methods are those of "
                f"cloister.learn.{type(self).__name__}."
            )
        if is_dataset(rows):
            raise BadInput("the textbook's methods need rows as arrays. cloister.learn takes a dataset.")

    def _teach(self, learn: Callable[[TextbookFit], tuple[Any, Loss]]) -> Any:
        """Run a textbook method, and set `release_` and `loss_`.

        Args:
            learn: returns the model and its nominal loss.
        """
        model, self.loss_ = learn(self._lesson())
        self.release_ = Release(model, self.loss_, ROW, f"{self.method} (textbook)", {}, private=False)
        return model

    def _lesson(self) -> TextbookFit:
        """Return the nominal budget and the seeded source; refuse a ledger or an account."""
        method, name = self.method, type(self).__name__
        if self._meter is not None:
            raise TextbookOnly(
                f"{name} by {method!r} is a lesson: no selection or cross-validation that is paid for has it."
            )
        if self.ledger is not None or self.account is not None or self.random_state is None:
            raise TextbookOnly(
                f"{name} by {method!r} rests on continuous noise and is for lessons: give a random_state and neither "
                f"ledger nor account. For people use cloister.learn.{name}."
            )
        if any(isinstance(getattr(self, bounds, None), str) for bounds in ("bounds", "target_bounds")):
            raise BadInput("the textbook's methods do not find bounds. Give public ones.")
        return TextbookFit(budget_share(self.spend).loss, SeededSource(str(self.random_state)))


# Input perturbation


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
