"""Clipped gradients of dense networks by exact integer products, at about the cost of a step without privacy.

The gradient of one example in one layer is an outer product, of the layer's inputs with a 1 for the bias, and of the
derivatives of the loss by the layer's outputs. It is never formed: its norm is the product of two norms, and a lot's
sum is one matrix product (Goodfellow 2015; Lee & Kifer 2021).

    inputs a ──► integers â = trunc(a 2^p), |â| ≤ 2^15
    derivatives d, clip factor f ──► integers ê = trunc(f d 2^-p 2^38 / clip)
    sum over the lot of â ⊗ ê: one product of doubles, exact

All products are of integers, so no result for one example depends on the others or on its place among them:

- Forward, |â| ≤ 2^15 and a column of weights has a norm of at most 2^37 grid steps, so by Cauchy and Schwarz every
  partial sum is at most 2^52. Backward, derivatives have norms of at most 2^24 and rows of weights 2^27: at most 2^51.
- One example's integers have the norm sqrt(Σ |â|² |ê|²) over layers, computed from exact sums of squares, and compared
  with 2^38 (lowered by more than the few rounding errors left). An example that exceeds it, or whose derivatives are no
  numbers, counts as zeros. So every number of an example is at most 2^38, and sums over a micro-lot of at most 2^14
  examples stay below 2^52. Micro-lots are added as 64-bit integers.
- What is left are functions of single numbers (tanh, exp) and short sums along one row of a micro-lot, whose shape is
  fixed. `checked` compares them on made-up rows in all places, as for `PrivateGradient`.

Rounding towards zero does not lengthen a vector, so the grid adds nothing to the sensitivity. It moves a derivative by
less than 2^-22 of the clipping norm where |â| is near its bound, and by less elsewhere.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.frame import shorten
from cloister.learn.base.integer_rows import Integers
from cloister.privacy.errors import BadInput, BadNumber

__all__ = ["UNIT", "DenseGradient", "encoded", "forward", "start_layers"]

Floats = NDArray[np.float64]
Layers = Sequence[NDArray[Any]]  # weights of each layer, (inputs + 1, outputs); the last row is the bias

UNIT = 2**38  # grid steps in the clipping norm
_INPUT_BITS, _WEIGHT_BITS, _DERIVATIVE_BITS, _BACK_BITS = 15, 37, 24, 27
_MOST = 2.0**_INPUT_BITS  # of a single number, so that sums of squares are exact for up to 2^23 numbers
_MICRO = 128
_SLACK = 1e-9  # far above the rounding errors of a norm and a factor, which are a few 2^-52


@dataclass(frozen=True, slots=True)
class DenseGradient:
    """The summed, clipped per-example gradients of a dense network with tanh layers, in integers.

    Rows are (inputs from `encoded`, targets): classes as whole numbers, or numbers.

    Args:
        reach: the norm of a row of features, at most; public.
        target: "classes" for the cross-entropy of a softmax, "number" for half the squared error.
        clip: the L2 norm that one example's gradient may have.
        micro: examples that are processed at once.

    Privacy: `sums` reads rows and is not private; see `PrivateGradient`.
    """

    reach: float
    target: Literal["classes", "number"] = "classes"
    clip: float = 1.0
    micro: int = _MICRO

    def __post_init__(self) -> None:
        if isinstance(self.clip, bool) or not isinstance(self.clip, int | float) or not 1e-20 < self.clip < 1e20:
            raise BadNumber(f"clip is the norm that one example's gradient may have, above 0, got {self.clip!r:.40}.")
        if isinstance(self.micro, bool) or not isinstance(self.micro, int) or not 1 <= self.micro <= 2**14:
            raise BadNumber(f"micro is a whole number from 1 to {2**14}, got {self.micro!r:.40}.")

    clipping = "fixed"
    grouped = False

    @property
    def sensitivity(self) -> int:
        """Return the L2 distance by which one example moves `sums`, at most."""
        return UNIT

    @property
    def bit(self) -> int:
        """Return 0: no count of unclipped examples is summed."""
        return 0

    def coordinates(self, params: Layers) -> int:
        """Return the number of integers of a sum."""
        return sum(layer.size for layer in params)

    def tree(self, integers: NDArray[Any], params: Layers, clip: float | None = None) -> list[NDArray[np.float32]]:
        """Return noisy integers as real gradients of each layer."""
        values = np.asarray(integers, dtype=np.float64) * ((self.clip if clip is None else clip) / UNIT)
        ends = np.cumsum([layer.size for layer in params])[:-1]
        parts = np.split(values, ends)
        return [part.reshape(layer.shape).astype(np.float32) for part, layer in zip(parts, params, strict=True)]

    def checked(self, params: Layers, row: Any, most: int = 1) -> "DenseGradient":
        """Return this gradient, after trying it on made-up rows; with micro-lots of one example if places matter."""
        params = [np.asarray(layer) for layer in params]
        width, kind = params[0].shape[0], row[1][1]
        if row[0][0] != (width,) or row[0][1] != np.int16:
            raise BadInput(
                "rows of a dense network are integers from encoded(), as many as the first layer has inputs."
            )
        spread = np.modf(np.arange(self.micro * (width - 1)) * 0.6180339887498949)[0] * 2 - 1
        size = 10.0 ** (np.arange(self.micro)[:, None] % 4 - 3)
        rows = encoded(spread.reshape(self.micro, -1) * size * self.reach / math.sqrt(width), self.reach)
        targets = (np.arange(self.micro) % params[-1].shape[1]).astype(kind)
        weights = _integer_weights(params)
        together = self._derivatives(weights, rows, targets, self.clip)
        for place in sorted({0, 1, self.micro // 3, self.micro - 1}):
            alone = np.repeat(rows[[place]], self.micro, axis=0), np.repeat(targets[[place]], self.micro)
            for mixed, same in zip(together, self._derivatives(weights, *alone, self.clip), strict=True):
                if any(
                    not np.array_equal(one[[place]].repeat(self.micro, 0), two)
                    for one, two in zip(mixed, same, strict=True)
                ):
                    return replace(self, micro=1)
        return self

    # Private: reads rows, inside a charge.

    def sums(
        self, params: Layers, rows: Sequence[NDArray[Any]], key: Any = None, clip: float | None = None
    ) -> Integers:
        """Return the sum of the rows' clipped gradients, as integers.

        Privacy: not private. One row more or less moves the result by at most `sensitivity` in L2.
        """
        inputs, targets = rows
        params = [np.asarray(layer) for layer in params]
        total = np.zeros(self.coordinates(params), dtype=np.int64)
        if not all(np.isfinite(layer).all() for layer in params):  # public: no row is read
            return total
        clip, weights = self.clip if clip is None else clip, _integer_weights(params)
        for start in range(0, len(inputs), self.micro):
            part = [_padded(array[start : start + self.micro], self.micro) for array in (inputs, targets)]
            found = self._derivatives(weights, part[0], part[1], clip)
            real = min(self.micro, len(inputs) - start)
            at = 0
            for entering, leaving in found:
                product = entering[:real].T @ leaving[:real]
                total[at : at + product.size] += product.ravel().astype(np.int64)
                at += product.size
        return total

    def _derivatives(
        self, weights: "Sequence[_IntegerWeights]", inputs: NDArray[Any], targets: NDArray[Any], clip: float
    ) -> list[tuple[Floats, Floats]]:
        """Return for each layer the integers â and ê of each example of one micro-lot."""
        with np.errstate(all="ignore"):
            entering, powers, outputs = _forward(weights, inputs.astype(np.float64), _power(self.reach))
            leaving = [self._slope(outputs, targets)]
            for layer in range(len(weights) - 1, 0, -1):
                hidden = entering[layer][:, :-1] * 2.0 ** -powers[layer]
                leaving.insert(0, weights[layer].backward(leaving[0]) * (1 - hidden * hidden))
            longs = [np.sum(one * one, axis=1) for one in entering]  # exact: squares of integers, below 2^30 in all
            parts = [
                own * 4.0**-power * np.sum(slope * slope, axis=1)
                for own, power, slope in zip(longs, powers, leaving, strict=True)
            ]
            norm = np.sqrt(sum(parts))
            real = np.isfinite(norm)
            factor = UNIT * (1 - 2 * _SLACK) / clip * np.minimum(1.0, clip / np.maximum(norm, 1e-300))
            scaled = [
                np.trunc(np.where(real[:, None], slope * (factor * 2.0**-power)[:, None], 0.0))
                for slope, power in zip(leaving, powers, strict=True)
            ]
            squares = sum(own * np.sum(one * one, axis=1) for own, one in zip(longs, scaled, strict=True))
            kept = squares <= float(UNIT) ** 2 * (1 - _SLACK)
            return [(one, np.where(kept[:, None], two, 0.0)) for one, two in zip(entering, scaled, strict=True)]

    def _slope(self, outputs: Floats, targets: NDArray[Any]) -> Floats:
        """Return the derivatives of the loss by the outputs."""
        if self.target == "number":
            return np.asarray(outputs - targets[:, None])
        shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(targets)), targets] -= 1.0
        return np.asarray(shares)


def encoded(features: NDArray[Any], reach: float) -> NDArray[np.int16]:
    """Return rows of features as integers of norm at most 2^15, with a 1 for the bias; each row by itself.

    Args:
        features: one row for each example, whose norm is at most `reach`; longer ones are shortened.
        reach: public.
    """
    scale = 2.0 ** _power(reach)
    cells = np.empty((len(features), features.shape[1] + 1), dtype=np.float64)
    with np.errstate(all="ignore"):
        cells[:, :-1] = np.clip(np.nan_to_num(features, nan=0.0) * scale, -_MOST, _MOST)
    cells[:, -1] = scale
    return shorten(np.trunc(cells), 2**_INPUT_BITS - 1).astype(np.int16)


def forward(params: Layers, inputs: NDArray[np.int16], reach: float) -> Floats:
    """Return the outputs of the network."""
    return _forward(_integer_weights(params), inputs.astype(np.float64), _power(reach))[2]


def start_layers(widths: Sequence[int]) -> list[NDArray[np.float32]]:
    """Return public weights to start from: fixed random numbers (Glorot & Bengio 2010), zeros in the last layer."""
    layers = []
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        layer = np.zeros((inputs + 1, outputs), dtype=np.float32)
        if number < len(widths) - 2:
            bits = np.modf(np.arange(1, inputs * outputs + 1) * 0.7548776662466927 + number * 0.5698402909980532)[0]
            mixed = np.modf(np.sin(bits * 12345.678) * 43758.5453)[0]
            layer[:-1] = (mixed * math.sqrt(6 / (inputs + outputs))).reshape(inputs, outputs)
        layers.append(layer)
    return layers


def _forward(
    weights: "Sequence[_IntegerWeights]", inputs: Floats, power: int
) -> tuple[list[Floats], list[int], Floats]:
    """Return the integers that enter each layer, their powers of two, and the outputs."""
    entering, powers = [inputs], [power]
    outputs = weights[0].forward(inputs, power)
    for layer in weights[1:]:
        own = _power(math.sqrt(len(layer.down)))
        cells = np.empty((len(inputs), len(layer.down)))
        cells[:, :-1] = np.trunc(np.tanh(outputs) * 2.0**own)
        cells[:, -1] = 2.0**own
        entering.append(cells)
        powers.append(own)
        outputs = layer.forward(cells, own)
    return entering, powers, outputs


@dataclass(frozen=True, slots=True)
class _IntegerWeights:
    """The weights of a layer on two grids.

    Attributes:
        down, down_power: for products with the layer's inputs, and the power of two of their grid.
        up, up_power: transposed and without the bias, for products with derivatives.
    """

    down: Floats
    down_power: int
    up: Floats
    up_power: int

    def forward(self, cells: Floats, power: int) -> Floats:
        """Return the outputs of the layer for integers with this power of two."""
        return np.asarray((cells @ self.down) * 2.0 ** -(self.down_power + power))

    def backward(self, leaving: Floats) -> Floats:
        """Return the derivatives by the inputs of the layer."""
        length = np.sqrt(np.sum(leaving * leaving, axis=1, keepdims=True))
        exponent = np.exp2(_DERIVATIVE_BITS - np.ceil(np.log2(np.maximum(length, 2.0**-60))))
        return np.asarray((np.trunc(leaving * exponent) @ self.up) * 2.0**-self.up_power / exponent)


def _integer_weights(params: Layers) -> list[_IntegerWeights]:
    found = []
    for layer in params:
        weights = np.asarray(layer, dtype=np.float64)
        squares = weights * weights
        down = _WEIGHT_BITS - _exponent(math.sqrt(squares.sum(axis=0).max()))
        up = _BACK_BITS - _exponent(math.sqrt(squares[:-1].sum(axis=1).max()))
        across = np.ascontiguousarray(np.trunc(weights[:-1] * 2.0**up).T)
        found.append(_IntegerWeights(np.trunc(weights * 2.0**down), down, across, up))
    return found


def _power(reach: float) -> int:
    """Return the power of two by which a vector of this norm has a norm of at most 2^15."""
    return _INPUT_BITS - _exponent(reach)


def _exponent(size: float) -> int:
    """Return the least whole number whose power of two is above a size."""
    return math.frexp(size)[1] if math.isfinite(size) and size > 0 else 0


def _padded(rows: NDArray[Any], size: int) -> NDArray[Any]:
    if len(rows) == size:
        return rows
    padded = np.zeros((size, *rows.shape[1:]), dtype=rows.dtype)
    padded[: len(rows)] = rows
    return padded
