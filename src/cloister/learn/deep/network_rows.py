"""Rows of a network estimator: table rows scaled by public bounds, or images and their scattering transform.

    frame = NetworkFrame(box, image_shape, scattering)     public: how a row becomes inputs of the first layer
    EncodedLots                                            arrays, encoded once, inside the first step
    EncodedTableLots                                       a dataset whose unit is the row, encoded lot by lot

Every row is encoded by itself. A dataset whose unit has several rows keeps them as they are: `unit_loss` scales them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.inputs import Box
from cloister.learn.deep.dense import encoded
from cloister.learn.deep.rows import ArrayLots, Rows
from cloister.learn.deep.scattering import Scattering
from cloister.learn.deep.table_lots import TableLots
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import ROW, Unit
from cloister.privacy.noise import Source

__all__ = ["EncodedLots", "EncodedTableLots", "Kind", "NetworkFrame", "read_image_shape", "unit_loss"]

RowForm = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
Kind = Literal["classes", "number"]
_CHUNK = 4096  # rows that are encoded at once


@dataclass(frozen=True, slots=True)
class NetworkFrame:
    """Public map from a row to the inputs of the first layer.

    Attributes:
        box: the bounds of each feature or pixel, which become 0 and 1.
        shape: height and width of an image; None for a row of a table.
        scattering: True if images are transformed first.
    """

    box: Box
    shape: tuple[int, int] | None = None
    scattering: bool = False

    @property
    def width(self) -> int:
        """Return the number of inputs of the first layer."""
        return self._transform.features if self.scattering else len(self.box.low)

    @property
    def reach(self) -> float:
        """Return a bound on the norm of the inputs."""
        return float(np.sqrt(self.width))

    def encode(self, rows: NDArray[Any]) -> NDArray[np.int16]:
        """Return the inputs of each row as integers (dense.py)."""
        found = np.empty((len(rows), self.width + 1), dtype=np.int16)
        for start in range(0, len(rows), _CHUNK):
            found[start : start + _CHUNK] = encoded(self.inputs(rows[start : start + _CHUNK]), self.reach)
        return found

    def inputs(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the inputs of each row as numbers."""
        unit = self.box.to_unit(rows)
        if not self.scattering or self.shape is None:
            return unit
        height, width = self.shape
        padded = np.zeros((len(rows), *_sides(self.shape)), dtype=np.float32)
        padded[:, :height, :width] = unit.reshape(len(rows), height, width)
        return self._transform.transform(padded)

    @property
    def _transform(self) -> Scattering:
        assert self.shape is not None
        return _transform(*_sides(self.shape))


_made: dict[tuple[int, int], Scattering] = {}


def _transform(height: int, width: int) -> Scattering:
    return _made.setdefault((height, width), Scattering(height, width))  # keeps the check of places


def _sides(shape: tuple[int, int]) -> tuple[int, int]:
    """Return sides that are multiples of 4, to which images are padded with black."""
    return -(-shape[0] // 4) * 4, -(-shape[1] // 4) * 4


@dataclass(slots=True)
class EncodedLots:
    """Rows of arrays in Poisson lots, encoded when they are first looked at.

    Attributes:
        look: returns the rows and their targets; called once, inside the release.
        frame: encodes rows.
        target: the type of a target.
    """

    look: Callable[[], tuple[NDArray[Any], NDArray[Any]]]
    frame: NetworkFrame
    target: np.dtype[Any]
    _held: ArrayLots | None = field(default=None, repr=False)

    unit = ROW
    grouped = False

    @property
    def row(self) -> RowForm:
        """The shape and type of each part of one row."""
        return ((self.frame.width + 1,), np.dtype(np.int16)), ((), self.target)

    # Private: called inside the release.

    def count(self) -> int:
        """Return the number of rows."""
        return self._rows().count()

    def lots(self, rate: Fraction, steps: int, source: Source) -> Iterator[Rows]:
        """Yield this many Poisson lots."""
        return self._rows().lots(rate, steps, source)

    def _rows(self) -> ArrayLots:
        if self._held is None:
            rows, targets = self.look()
            self._held = ArrayLots((self.frame.encode(rows), targets.astype(self.target)))
        return self._held


@dataclass(frozen=True, slots=True)
class EncodedTableLots:
    """Rows of a dataset whose unit is the row, streamed in lots and encoded lot by lot."""

    table: TableLots
    frame: NetworkFrame
    target: Callable[[NDArray[Any]], NDArray[Any]]

    grouped = False

    @property
    def row(self) -> RowForm:
        """The shape and type of each part of one row."""
        return ((self.frame.width + 1,), np.dtype(np.int16)), self.table.row[1]

    @property
    def unit(self) -> Unit:
        """The unit that is sampled and clipped."""
        return self.table.unit

    # Private: called inside the release.

    def count(self) -> int:
        """Return the number of rows."""
        return self.table.count()

    def lots(self, rate: Fraction, steps: int, source: Source) -> Iterator[Rows]:
        """Yield this many Poisson lots."""
        for rows, targets in self.table.lots(rate, steps, source):
            yield self.frame.encode(rows), self.target(targets).astype(self.table.row[1][1])


def unit_loss(kind: Kind, box: Box, ends: tuple[float, float]) -> Callable[..., Any]:
    """Return the loss of one raw row, for units with several rows, whose summed gradient is clipped as one.

    Args:
        kind: "classes" for cross-entropy, "number" for half the squared error of a target scaled to [-1, 1].
        box: the bounds of the features.
        ends: the bounds of the target.
    """
    return _unit_loss(kind, tuple(box.low.tolist()), tuple(box.high.tolist()), ends)


@lru_cache(maxsize=32)
def _unit_loss(
    kind: Kind, lows: tuple[float, ...], highs: tuple[float, ...], ends: tuple[float, float]
) -> Callable[..., Any]:
    """Return the loss; the same function for the same facts, so that its gradient is compiled once."""
    low, high = np.asarray(lows, np.float32), np.asarray(highs, np.float32)

    def loss(params: Sequence[Any], x: Any, y: Any) -> Any:
        values = (jnp.clip(jnp.nan_to_num(x), low, high) - low) / (high - low)
        for place, layer in enumerate(params):
            values = values @ layer[:-1] + layer[-1]
            values = jnp.tanh(values) if place < len(params) - 1 else values
        if kind == "classes":
            return jax.nn.logsumexp(values) - values[y]
        goal = (jnp.clip(y, *ends) - ends[0]) / (ends[1] - ends[0]) * 2 - 1
        return 0.5 * (values[0] - goal) ** 2

    return loss


def read_image_shape(rows: Any, given: Any) -> tuple[int, int] | None:
    """Return height and width of images: those of an array (images, height, width), or those given for flat rows."""
    held = isinstance(rows, np.ndarray) and rows.ndim == 3
    shape = tuple(rows.shape[1:]) if held else given
    if shape is None:
        return None
    valid = isinstance(shape, list | tuple) and len(shape) == 2 and all(type(side) is int for side in shape)
    if not valid or not all(1 <= side <= 256 for side in shape):
        raise BadInput("image_shape is (height, width) in pixels, from 1 to 256: image_shape=(28, 28).")
    if given is not None and (not isinstance(given, list | tuple) or tuple(given) != tuple(shape)):
        raise BadInput("image_shape differs from the shape of the images. Leave it out for an array of images.")
    return int(shape[0]), int(shape[1])
