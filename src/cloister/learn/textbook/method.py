"""Lessons: the textbook's methods by name, and what they share.

    input       noise on every cell of every row and on its label; then an ordinary fit (input_perturbation.py)
    algorithm   noise in every round: k-means (kmeans.py)
    output      noise on what was fitted: linear models, naive Bayes (perturbation.py, naive_bayes.py)
    objective   noise in what is minimised: linear models (perturbation.py)

They are corrected (the sensitivities hold, classes and counts are paid for), but they rest on continuous noise, or on
an exact minimiser, which no computer has. So no ledger takes them. Other methods that textbooks have are exact here
and can be used for people: functional (linear models), power (components), random (forests).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.learn.base.frame import Floats
from cloister.learn.base.nested_budget import paying_now
from cloister.privacy.budget_split import budget_share
from cloister.privacy.errors import BadInput, TextbookOnly
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.mechanism import epsilon_of
from cloister.privacy.noise import SeededSource, Source
from cloister.privacy.release import Release
from cloister.privacy.unit import ROW

__all__ = ["TextbookFit", "learned_once", "read_lesson"]


@dataclass(frozen=True, slots=True)
class TextbookFit:
    """What a lesson spends on paper, and where its noise comes from.

    Attributes:
        loss: as it was stated: a pure epsilon or a rho.
        source: seeded.
    """

    loss: Loss
    source: Source

    @property
    def epsilon(self) -> float:
        """The pure epsilon that implies the loss."""
        return float(epsilon_of(self.loss))

    def laplace(self, shape: int | tuple[int, ...], scale: float) -> Floats:
        """Laplace noise in floats."""
        uniform = self.source.floats(shape) - 0.5
        return np.asarray(-scale * np.sign(uniform) * np.log1p(-2 * np.abs(uniform)))

    def normal(self, shape: tuple[int, ...], deviation: float) -> Floats:
        """Normal noise in floats (Box & Muller)."""
        radial, angle = self.source.floats((2, *shape))
        return np.asarray(deviation * np.sqrt(-2 * np.log(radial)) * np.cos(2 * np.pi * angle))


def read_lesson(estimator: Any) -> TextbookFit:
    """What a textbook method may use: a seeded source, and neither ledger nor account."""
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
    """Carry a lesson out.

    Args:
        estimator: gets `release_` and `loss_`.
        learn: gives the model, and the loss it has on paper.

    Privacy: none. On paper the spend; but the noise is made of floats and repeats with its seed, so the release is
        marked `not private`, and a ledger or an account is refused.
    """
    model, loss = learn(read_lesson(estimator))
    estimator.loss_ = loss
    estimator.release_ = Release(model, loss, ROW, f"{estimator.method} (textbook)", {}, private=False)
    return model
