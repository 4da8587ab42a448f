"""Derivatives of losses by the margins, one number within [-1, 1] per row and output.

Functions come from tables on a fixed grid of margins. A table gives the same number for the same margin at any position
of the row; a vectorised exp may differ in its last bit, and then one more row would change the contributions of others.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.frame import Floats
from cloister.learn.base.integer_rows import on_grid

__all__ = ["Hinge", "Logistic", "Residual", "Softmax", "root_weights", "sigmoid"]

_FAR, _FINE = 20, 2**12  # margins beyond 20 count as 20; a unit of margin has 4096 steps


class Residual(Protocol):
    """Derivative of a convex loss.

    Attributes:
        outputs: number of margins of a row.
        steepest: bound on the derivative of a residual by its margin: the Hessian is at most steepest · X'X.
        at_zero: the L2 norm of a row's residuals where all margins are zero.
    """

    @property
    def outputs(self) -> int: ...  # noqa: D102
    @property
    def steepest(self) -> float: ...  # noqa: D102
    @property
    def at_zero(self) -> float: ...  # noqa: D102

    def __call__(self, margins: Floats, labels: NDArray[np.int64]) -> Floats:
        """Return the residuals of rows with classes `labels`, one column per output."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """Residual of binary logistic regression: probability less label."""

    outputs: ClassVar[int] = 1
    steepest: ClassVar[float] = 0.25
    at_zero: ClassVar[float] = 0.5

    def __call__(self, margins: Floats, labels: NDArray[np.int64]) -> Floats:
        """Return p - y."""
        return np.asarray(_looked_up(_sigmoids(), margins) - labels[:, None])


@dataclass(frozen=True, slots=True)
class Softmax:
    """Residuals of multinomial logistic regression: probabilities less the class indicator."""

    outputs: int
    steepest: ClassVar[float] = 0.5

    @property
    def at_zero(self) -> float:
        """Return sqrt(1 - 1/classes)."""
        return float(np.sqrt(1 - 1 / self.outputs))

    def __call__(self, margins: Floats, labels: NDArray[np.int64]) -> Floats:
        """Return p - [the row's class]; the weights are integers, so their sum is exact."""
        weights = _looked_up(_exponentials(), margins - margins.max(axis=1, keepdims=True))
        shares = weights / weights.sum(axis=1, keepdims=True)
        shares[np.arange(len(labels)), labels] -= 1.0
        return np.asarray(shares)


@dataclass(frozen=True, slots=True)
class Hinge:
    """Hinge loss with its corner rounded to a parabola within `bend` of margin 1 (Chapelle 2007), one against rest.

    Attributes:
        outputs: one for two classes, otherwise one for each class.
    """

    outputs: int
    bend: ClassVar[float] = 1.0
    steepest: ClassVar[float] = 0.5  # 1 / (2 bend)

    @property
    def at_zero(self) -> float:
        """Return the norm of the residuals at zero, where all margins are inside the hinge."""
        return float(np.sqrt(self.outputs))

    def __call__(self, margins: Floats, labels: NDArray[np.int64]) -> Floats:
        """Return -side where the margin is too small, 0 where it is large enough, and a linear value between."""
        if self.outputs == 1:
            side = 2.0 * labels[:, None] - 1.0
        else:
            side = np.where(labels[:, None] == np.arange(self.outputs), 1.0, -1.0)
        short = (1 + self.bend - side * margins) / (2 * self.bend)
        return np.asarray(-side * np.clip(short, 0.0, 1.0))


def sigmoid(margins: Floats) -> Floats:
    """Return 1 / (1 + e^-margin), for predictions."""
    return np.asarray(0.5 * (1 + np.tanh(margins / 2)))


def root_weights(margins: Floats) -> Floats:
    """Return the square root of p (1 - p), a row's factor in the logistic Hessian; at most 1/2."""
    return _looked_up(_roots(), margins)


def _looked_up(table: Floats, margins: Floats) -> Floats:
    # Defined for every input: a NaN margin, from NaN weights, is looked up as the middle of the table.
    index = on_grid(np.rint(margins * _FINE), _FAR * _FINE).astype(np.int64)
    return np.asarray(table[index + _FAR * _FINE])


def _grid() -> Floats:
    return np.arange(-_FAR * _FINE, _FAR * _FINE + 1) / _FINE


@lru_cache(maxsize=1)
def _sigmoids() -> Floats:
    return sigmoid(_grid())


@lru_cache(maxsize=1)
def _roots() -> Floats:
    return np.minimum(0.5 / np.cosh(_grid() / 2), 0.5)


@lru_cache(maxsize=1)
def _exponentials() -> Floats:
    """Return a table of e^z for z <= 0 as integers in units of 2^-40; z above zero is not needed."""
    return np.asarray(np.rint(np.exp(np.minimum(_grid(), 0.0)) * 2.0**40))
