"""Textbook methods for teaching, by name, and their common code.

    input       noise on every cell of every row and on its label; then an ordinary fit (input_perturbation.py)
    algorithm   noise in every round: k-means (kmeans.py)
    output      noise on the fitted parameters: linear models, naive Bayes (perturbation.py, naive_bayes.py)
    objective   noise in the objective: linear models (perturbation.py)

They are corrected (the sensitivities hold, classes and counts are charged), but they assume continuous noise, or an
exact minimiser, which floating-point arithmetic does not provide. So they cannot be charged to a ledger. Other textbook
methods are exact here and can be used on real data: functional (linear models), power (components), random (forests).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.learn.base.frame import Floats
from cloister.learn.base.nested_budget import paying_now
from cloister.privacy.budget_split import budget_share
from cloister.privacy.errors import BadInput, TextbookOnly
from cloister.privacy.loss import ROW, Loss
from cloister.privacy.mechanisms.mechanism import epsilon_of
from cloister.privacy.noise import SeededSource, Source
from cloister.privacy.release import Release

__all__ = ["TextbookFit", "learned_once", "read_lesson"]


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


def read_lesson(estimator: Any) -> TextbookFit:
    """Return the budget and seeded source of a textbook method; refuse a ledger or an account."""
    method, name = estimator.method, type(estimator).__name__
    if paying_now() is not None:
        raise TextbookOnly(
            f"{name} by {method!r} is a lesson: no selection or cross-validation that is paid for has it."
        )
    if estimator.ledger is not None or estimator.account is not None or estimator.random_state is None:
        raise TextbookOnly(
            f"{name} by {method!r} rests on continuous noise and is for lessons: give a random_state and neither "
            "ledger nor account. For people leave the method out."
        )
    if isinstance(getattr(estimator, "bounds", None), str) or isinstance(
        getattr(estimator, "target_bounds", None), str
    ):
        raise BadInput("the textbook's methods do not find bounds. Give public ones.")
    return TextbookFit(budget_share(estimator.spend).loss, SeededSource(str(estimator.random_state)))


def learned_once(estimator: Any, learn: Callable[[TextbookFit], tuple[Any, Loss]]) -> Any:
    """Run a textbook method.

    Args:
        estimator: gets `release_` and `loss_`.
        learn: returns the model and its nominal loss.

    Privacy: none. Nominally the spend; but the noise consists of floats and repeats with its seed, so the release is
        marked `not private`, and a ledger or an account is refused.
    """
    model, loss = learn(read_lesson(estimator))
    estimator.loss_ = loss
    estimator.release_ = Release(model, loss, ROW, f"{estimator.method} (textbook)", {}, private=False)
    return model
