"""What a loss asks of each row: its derivative by the margins, a number within [-1, 1] for every output.

Functions come from tables on a fixed grid of margins. A table gives the same number for the same margin wherever the
row stands; a vectorised exp may differ in its last bit, and then one row more would change the parts of others.
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
    """The derivative of a convex loss.

    Attributes:
        outputs: how many margins a row has.
        steepest: the most that the slope changes when a margin does: bounds the Hessian by steepest · X'X.
        at_zero: the L2 length of a row's residuals where all margins are zero.
    """

    @property
    def outputs(self) -> int: ...  # noqa: D102
    @property
    def steepest(self) -> float: ...  # noqa: D102
    @property
    def at_zero(self) -> float: ...  # noqa: D102

    def __call__(self, margins: Floats, labels: NDArray[np.int64]) -> Floats:
        """Residuals of rows (one row each, one column an output) whose class is `labels`."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """Binary: probability less label."""

    outputs: ClassVar[int] = 1
    steepest: ClassVar[float] = 0.25
    at_zero: ClassVar[float] = 0.5

    def __call__(self, margins: Floats, labels: NDArray[np.int64]) -> Floats:
        """p - y."""
        return np.asarray(_looked_up(_sigmoids(), margins) - labels[:, None])


@dataclass(frozen=True, slots=True)
class Softmax:
    """Multinomial: probabilities less the class that is."""

    outputs: int
    steepest: ClassVar[float] = 0.5

    @property
    def at_zero(self) -> float:
        """sqrt(1 - 1/classes)."""
        return float(np.sqrt(1 - 1 / self.outputs))

    def __call__(self, margins: Floats, labels: NDArray[np.int64]) -> Floats:
        """p - [the row's class]; the weights are integers, so their sum is exact."""
        weights = _looked_up(_exponentials(), margins - margins.max(axis=1, keepdims=True))
        shares = weights / weights.sum(axis=1, keepdims=True)
        shares[np.arange(len(labels)), labels] -= 1.0
        return np.asarray(shares)


@dataclass(frozen=True, slots=True)
class Hinge:
    """A hinge whose corner is rounded to a parabola over margins within `bend` of 1 (Chapelle 2007), one against rest.

    Attributes:
        outputs: one for two classes, else one for each class.
    """

    outputs: int
    bend: ClassVar[float] = 1.0
    steepest: ClassVar[float] = 0.5  # 1 / (2 bend)

    @property
    def at_zero(self) -> float:
        """All margins are inside the hinge."""
        return float(np.sqrt(self.outputs))

    def __call__(self, margins: Floats, labels: NDArray[np.int64]) -> Floats:
        """-side where the margin falls short, 0 where it is wide enough, and a line between."""
        if self.outputs == 1:
            side = 2.0 * labels[:, None] - 1.0
        else:
            side = np.where(labels[:, None] == np.arange(self.outputs), 1.0, -1.0)
        short = (1 + self.bend - side * margins) / (2 * self.bend)
        return np.asarray(-side * np.clip(short, 0.0, 1.0))


def sigmoid(margins: Floats) -> Floats:
    """1 / (1 + e^-margin), for predictions."""
    return np.asarray(0.5 * (1 + np.tanh(margins / 2)))


def root_weights(margins: Floats) -> Floats:
    """The root of p (1 - p), at most 1/2: what a row weighs in the logistic Hessian."""
    return _looked_up(_roots(), margins)


def _looked_up(table: Floats, margins: Floats) -> Floats:
    # Total: a margin that is no number, if weights ever are none, is looked up as the middle of the table.
    place = on_grid(np.rint(margins * _FINE), _FAR * _FINE).astype(np.int64)
    return np.asarray(table[place + _FAR * _FINE])


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
    """e^z for z <= 0 in units of 2^-40, as whole numbers; what lies above zero is never asked for."""
    return np.asarray(np.rint(np.exp(np.minimum(_grid(), 0.0)) * 2.0**40))
