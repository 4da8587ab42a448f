"""Clipped gradients of dense networks by exact integer products, at about the cost of a step without privacy.

The gradient of one example in one layer is an outer product, of the layer's inputs with a 1 for the bias, and of the
derivatives of the loss by the layer's outputs. It is never formed: its norm is the product of two norms, and a lot's
sum is one matrix product (Goodfellow 2015; Lee & Kifer 2021).

    inputs x ──► integers â = round(s x), |â| <= 2^11
    derivatives d, clip factor f ──► integers ê = round(f d 2^27 / (s clip))
    sum over the lot of â ⊗ ê: products of single floats, exact

All products are of integers and every partial sum is at most 2^24, so single floats hold them exactly, in any order: no
result for one example depends on the others or on its place among them.

- Forward, |â| <= 2^11 and a column of weights has a norm of at most 2^13, so by Cauchy and Schwarz every partial sum is
  at most 2^24. Backward, derivatives and rows of weights have norms of at most 2^12 each.
- One example's integers have the norm sqrt(Σ |â|² |ê|²) over layers. It is computed from exact sums and compared with
  2^27, lowered by more than the few rounding errors left. An example that exceeds it, or whose derivatives are no
  numbers, counts as zeros. So the grid adds nothing to the sensitivity.
- In narrow layers (at most 64 outputs) |ê| <= 2^17, in two limbs of at most 2^8: sums of limb times â over 32 examples
  are at most 2^24. In wide layers ê is a multiple of 2^9. As |â| |ê| <= 2^27, sums over 64 examples are at most 2^24 in
  units of 2^9. Sums over 2^11 examples are below 2^31, in 32 bits; what is beyond is added in 64.
- What is left are functions of single numbers (tanh, exp) and short sums along one row, by one compiled program of one
  shape. `checked` tries it on made-up rows in several places, as for `PrivateGradient`.

Narrow layers round towards zero, which moves a derivative by less than 2^-16 of the clipping norm. In wide layers it
moves by less than 2^-7, so numbers are rounded up or down as often as their fractions say, by a fraction that follows
from the example's own norm: errors of many examples cancel. An example that grows too long by it is rounded towards
zero; a hundredth of the norm is left free, so that few are.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from cloister.learn.base.integer_rows import Integers
from cloister.privacy.errors import BadInput, BadNumber

__all__ = ["UNIT", "DenseGradient", "encoded", "forward", "start_layers"]

Floats = NDArray[np.float64]
Layers = Sequence[NDArray[Any]]  # weights of each layer, (inputs + 1, outputs); the last row is the bias

UNIT = 2**27  # grid steps in the clipping norm
_EXACT = 2.0**24  # integers up to here are single floats
_INPUTS = 2**11  # the norm of an example's integers that enter a layer
_NARROW = 64  # outputs of a narrow layer, at most
_LIMB = 2**9  # two limbs from -2^8 to 2^8 in narrow layers; the fineness of ê in wide ones
_MOST = 2**17  # |ê| in narrow layers
_BACK = 2**12  # the norm of derivatives, and of rows of weights, on the way back
_BLOCK = 128  # examples that are processed at once
_CALL = 2**11  # examples that one call of the program takes at most
_CELLS = 2**23  # numbers of their inputs, at most
_MOST_REACH = 2**10
_SLACK = 2.0**-40  # far above the rounding errors of norms and factors in doubles


@dataclass(frozen=True, slots=True)
class DenseGradient:
    """The summed, clipped per-example gradients of a dense network with tanh layers, in integers.

    Rows are (inputs from `encoded`, targets): classes as whole numbers, or numbers.

    Args:
        target: "classes" for the cross-entropy of a softmax, "number" for half the squared error.
        clip: the L2 norm that one example's gradient may have.
        alone: True if examples are processed one at a time, because places matter on this machine.

    Privacy: `sums` reads rows and is not private; see `PrivateGradient`.
    """

    target: Literal["classes", "number"] = "classes"
    clip: float = 1.0
    alone: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.clip, bool) or not isinstance(self.clip, int | float) or not 1e-20 < self.clip < 1e20:
            raise BadNumber(f"clip is the norm that one example's gradient may have, above 0, got {self.clip!r:.40}.")

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
        values = np.asarray(integers).astype(np.float32)
        values *= np.float32((self.clip if clip is None else clip) / UNIT)
        parts = np.split(values, np.cumsum([layer.size for layer in params])[:-1])
        return [part.reshape(layer.shape) for part, layer in zip(parts, params, strict=True)]

    def checked(self, params: Layers, row: Any, most: int = 1) -> "DenseGradient":
        """Return this gradient, after trying it on made-up rows; with one example at a time if places matter."""
        width, kind = params[0].shape[0], row[1][1]
        if row[0][0] != (width,) or row[0][1] != np.int16:
            raise BadInput(
                "rows of a dense network are integers from encoded(), as many as the first layer has inputs."
            )
        size = _BLOCK + 3
        spread = np.modf(np.arange(size * (width - 1)) * 0.6180339887498949)[0] * 2 - 1
        magnitude = 10.0 ** (np.arange(size)[:, None] % 4 - 3)
        rows = encoded(spread.reshape(size, -1) * magnitude, math.sqrt(width))
        targets = (np.arange(size) % params[-1].shape[1]).astype(kind)
        made_up = [_tilted(layer) for layer in params]

        def total(places: NDArray[np.intp]) -> Integers:
            return self.sums(made_up, (rows[places], targets[places]))

        everything = np.arange(size)
        whole = total(everything)
        same = np.array_equal(total(everything[::-1]), whole)
        for place in (0, 1, size // 3, _BLOCK - 1, size - 1):
            others = np.delete(everything, place)
            same = same and np.array_equal(total(others) + total(everything[[place]]), whole)
        return self if same else replace(self, alone=True)

    # Private: reads rows, inside a charge.

    def sums(
        self, params: Layers, rows: Sequence[NDArray[Any]], key: Any = None, clip: float | None = None
    ) -> Integers:
        """Return the sum of the rows' clipped gradients, as integers.

        Privacy: not private. One row more or less moves the result by at most `sensitivity` in L2.
        """
        inputs, targets = rows
        params = [np.asarray(layer, dtype=np.float32) for layer in params]
        places = _held(min(_CALL, max(_CELLS // inputs.shape[1] // _BLOCK, 1) * _BLOCK), inputs, targets)
        step = 1 if self.alone else len(places[0])
        total = None
        for start in range(0, len(inputs), step):
            count = min(step, len(inputs) - start)
            for place, array in zip(places, (inputs, targets), strict=True):
                place[:count] = array[start : start + count]
            with jax.enable_x64(True):
                part = _program(
                    params,
                    *places,
                    np.int64(count),
                    np.float64(self.clip if clip is None else clip),
                    target=self.target,
                )
                total = np.asarray(part) if total is None else total + np.asarray(part)
        return np.zeros(self.coordinates(params), dtype=np.int64) if total is None else total


def encoded(features: NDArray[Any], reach: float) -> NDArray[np.int16]:
    """Return rows of features as integers of norm at most 2^11: round(s x), with s for the bias; each row by itself.

    Args:
        features: one row for each example, whose norm is at most `reach`; longer ones are shortened.
        reach: public, at most 1,024.
    """
    if not 0 < reach <= _MOST_REACH:
        raise BadNumber(f"rows of a dense network have a norm of at most {_MOST_REACH}. Scale the features.")
    with np.errstate(all="ignore"):
        cells = np.clip(np.nan_to_num(np.asarray(features, dtype=np.float64), nan=0.0), -reach, reach)
    length = np.sqrt(np.sum(cells * cells, axis=1, keepdims=True))
    cells *= np.minimum(1.0, reach / np.maximum(length, 1e-300))
    width = cells.shape[1] + 1
    # Rounding lengthens a row by at most half the root of its numbers.
    scale = np.floor((_INPUTS - 1 - math.sqrt(width) / 2) / np.sqrt(np.sum(cells * cells, axis=1) + 1))
    return np.column_stack([np.rint(cells * scale[:, None]), scale]).astype(np.int16)


def forward(params: Layers, features: NDArray[Any]) -> Floats:
    """Return the outputs of the network."""
    values = np.asarray(features, dtype=np.float64)
    for place, layer in enumerate(params):
        values = values @ layer[:-1] + layer[-1]
        values = np.tanh(values) if place < len(params) - 1 else values
    return values


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


_local = threading.local()


def _held(size: int, inputs: NDArray[Any], targets: NDArray[Any]) -> list[NDArray[Any]]:
    """Return places for this many rows, kept from call to call: aligned arrays are handed to XLA without a copy."""
    facts = size, inputs.shape[1], inputs.dtype, targets.dtype
    if getattr(_local, "facts", None) != facts:
        _local.facts, _local.places = facts, [_aligned((size, inputs.shape[1]), inputs.dtype)]
        _local.places.append(_aligned((size,), targets.dtype))
    return list(_local.places)


def _aligned(shape: tuple[int, ...], kind: np.dtype[Any]) -> NDArray[Any]:
    size = math.prod(shape) * kind.itemsize
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(kind).reshape(shape)


def _tilted(layer: NDArray[Any]) -> NDArray[np.float32]:
    """Return a layer moved by public numbers, so that a trial does not see zeros alone."""
    moves = np.modf(np.arange(layer.size) * 0.7548776662466927)[0].reshape(layer.shape) - 0.5
    return np.asarray(layer + 0.1 * moves, dtype=np.float32)


# The program. Runs with 64-bit numbers enabled; products are of single floats.


@dataclass(frozen=True, slots=True)
class _IntegerWeights:
    """The weights of a layer on two grids: `down` for its inputs, `up` for derivatives, each with the grids' scales.

    Attributes:
        down: (inputs + 1, outputs), columns of norm at most 2^13; `down_scale` of each column.
        up: (outputs, inputs), columns of norm at most 2^12; `up_scale` of each column.
    """

    down: Any
    down_scale: Any
    up: Any
    up_scale: Any

    @classmethod
    def of(cls, layer: Any) -> "_IntegerWeights":
        down, down_scale = _on_grid(layer, _EXACT / _INPUTS)
        up, up_scale = _on_grid(layer[:-1].T, float(_BACK))
        return cls(down, down_scale, up, up_scale)


@dataclass(frozen=True, slots=True)
class _Entering:
    """The integers that enter a layer: â, the scale s of each row, and |â|²."""

    cells: Any
    scale: Any
    squares: Any

    @classmethod
    def of(cls, cells: Any, scale: Any) -> "_Entering":
        return cls(cells, scale, jnp.sum(cells * cells, axis=1).astype(jnp.float64))  # exact: at most 2^22


@partial(jax.jit, static_argnames=("target",))
def _program(params: Any, inputs: Any, targets: Any, count: Any, clip: Any, *, target: str) -> Any:
    """Return the integers of the first `count` rows, summed."""
    weights = [_IntegerWeights.of(layer) for layer in params]
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(layer)) for layer in params]))

    def add(block: Any, totals: list[Any]) -> list[Any]:
        start = block * _BLOCK
        rows = lax.dynamic_slice_in_dim(inputs, start, _BLOCK).astype(jnp.float32)
        goals = lax.dynamic_slice_in_dim(targets, start, _BLOCK)
        real = start + jnp.arange(_BLOCK) < count
        entering, leaving = _layers(weights, rows, goals, target)
        integers = _clipped(entering, leaving, real & finite, clip)
        return [_added(total, one.cells, two) for total, one, two in zip(totals, entering, integers, strict=True)]

    starts = [
        jnp.zeros((2 * layer.shape[1], layer.shape[0]) if _is_narrow(layer.shape[1]) else layer.shape, jnp.int32)
        for layer in params
    ]
    totals = lax.fori_loop(0, (count + _BLOCK - 1) // _BLOCK, add, starts)
    return jnp.concatenate([_joined(total, layer.shape[1]) for total, layer in zip(totals, params, strict=True)])


def _layers(
    weights: Sequence[_IntegerWeights], rows: Any, goals: Any, target: str
) -> tuple[list[_Entering], list[Any]]:
    """Return for each layer its inputs, and the derivatives of the loss by its outputs."""
    entering, hidden = [_Entering.of(rows, rows[:, -1:])], []
    for place, layer in enumerate(weights):
        products = jnp.matmul(entering[-1].cells, layer.down, precision=lax.Precision.HIGHEST)
        outputs = products * layer.down_scale / entering[-1].scale
        if place < len(weights) - 1:
            hidden.append(jnp.tanh(outputs))
            entering.append(_of_hidden(hidden[-1]))
    leaving = [_slope(outputs, goals, target)]
    for place in range(len(weights) - 1, 0, -1):
        leaving.insert(0, _backward(weights[place], leaving[0]) * (1 - hidden[place - 1] ** 2))
    return entering, leaving


def _of_hidden(values: Any) -> _Entering:
    """Return numbers from -1 to 1, and a 1 for the bias, as integers; their scale is public. No number counts as 0."""
    width = values.shape[1] + 1
    scale = math.floor((_INPUTS - 1 - math.sqrt(width) / 2) / math.sqrt(width))
    cells = jnp.where(jnp.isnan(values), 0.0, jnp.round(values * scale))
    cells = jnp.concatenate([cells, jnp.full((len(values), 1), scale, jnp.float32)], axis=1)
    return _Entering.of(cells, jnp.float32(scale))


def _slope(outputs: Any, goals: Any, target: str) -> Any:
    """Return the derivatives of the loss by the outputs."""
    if target == "number":
        return outputs - goals[:, None].astype(jnp.float32)
    shares = jnp.exp(outputs - jnp.max(outputs, axis=1, keepdims=True))
    shares = shares / jnp.sum(shares, axis=1, keepdims=True)
    return shares - (jnp.arange(outputs.shape[1]) == goals[:, None]).astype(jnp.float32)


def _backward(layer: _IntegerWeights, leaving: Any) -> Any:
    """Return the derivatives by the inputs of a layer."""
    across, scale = _on_grid(leaving.T, float(_BACK))
    return jnp.matmul(across.T, layer.up, precision=lax.Precision.HIGHEST) * layer.up_scale * scale[:, None]


def _clipped(entering: Sequence[_Entering], leaving: Sequence[Any], real: Any, clip: Any) -> list[Any]:
    """Return the integers ê of each layer, in wide layers divided by 2^9; zeros where a row does not count."""
    slopes = [slope.astype(jnp.float64) for slope in leaving]
    scales = [jnp.broadcast_to(one.scale, (len(real), 1)).astype(jnp.float64) for one in entering]
    squares = [jnp.sum(slope * slope, axis=1, keepdims=True) for slope in slopes]
    norm = jnp.sqrt(sum(
        one.squares[:, None] / scale**2 * square for one, scale, square in zip(entering, scales, squares, strict=True)
    ))  # fmt: skip
    widest = max(slope.shape[1] for slope in slopes)
    free = _SLACK if _is_narrow(widest) else 2.0**-7 + widest * 2.0**-17
    factor = UNIT * (1 - free) / clip * jnp.minimum(1.0, clip / norm)
    for scale, slope, square in zip(scales, slopes, squares, strict=True):
        if _is_narrow(slope.shape[1]):
            factor = jnp.minimum(factor, _MOST * (1 - _SLACK) * scale / jnp.sqrt(square))
    good = real[:, None] & jnp.isfinite(norm) & (norm > 0)
    exact = [
        jnp.where(good, slope * (factor / scale / _fineness(slope)), 0.0)
        for slope, scale in zip(slopes, scales, strict=True)
    ]
    short = [jnp.trunc(values) for values in exact]
    kept = _fits(entering, short)
    if not _is_narrow(widest):
        even = [_rounded(values, norm) for values in exact]
        fits = _fits(entering, even)
        short = [jnp.where(fits, one, two) for one, two in zip(even, short, strict=True)]
        kept |= fits
    return [jnp.where(good & kept, whole, 0.0).astype(jnp.float32) for whole in short]


def _rounded(values: Any, norm: Any) -> Any:
    """Return numbers of a wide layer rounded as often up as their fractions say; those of a narrow one truncated."""
    if _is_narrow(values.shape[1]):
        return jnp.trunc(values)
    fraction = norm * 12345.6789 + jnp.arange(values.shape[1]) * 0.6180339887498949
    return jnp.floor(values + (fraction - jnp.floor(fraction)))


def _fits(entering: Sequence[_Entering], integers: Sequence[Any]) -> Any:
    """Return True for rows whose integers are within the bounds. All numbers below 2^53 are exact."""
    squares = sum(
        one.squares[:, None] * (jnp.sum(whole * whole, axis=1, keepdims=True) * _fineness(whole) ** 2)
        for one, whole in zip(entering, integers, strict=True)
    )
    fits = squares <= float(UNIT) ** 2 * (1 - 2.0**-48)
    for whole in integers:
        if _is_narrow(whole.shape[1]):
            fits &= jnp.max(jnp.abs(whole), axis=1, keepdims=True) <= _MOST
    return fits


def _added(total: Any, cells: Any, integers: Any) -> Any:
    """Return the total and the products of one block; 32 (or 64) examples at a time, exact in single floats."""
    if not _is_narrow(integers.shape[1]):
        for start in range(0, _BLOCK, 64):
            part = np.s_[start : start + 64]
            product = jnp.matmul(cells[part].T, integers[part], precision=lax.Precision.HIGHEST)
            total = total + product.astype(jnp.int32)
        return total
    high = jnp.floor(integers / _LIMB + 0.5)
    limbs = jnp.concatenate([high, integers - high * _LIMB], axis=1)
    for start in range(0, _BLOCK, 32):
        part = np.s_[start : start + 32]
        product = jnp.matmul(limbs[part].T, cells[part], precision=lax.Precision.HIGHEST)
        total = total + product.astype(jnp.int32)
    return total


def _joined(total: Any, outputs: int) -> Any:
    """Return the sum of a layer in 64 bits, flat."""
    wide = total.astype(jnp.int64)
    return (wide[:outputs].T * _LIMB + wide[outputs:].T if _is_narrow(outputs) else wide * _LIMB).ravel()


def _on_grid(values: Any, norm: float) -> tuple[Any, Any]:
    """Return columns as integers of at most this norm, and for each column the worth of one."""
    rows = values.shape[0]
    most = jnp.maximum(jnp.max(jnp.abs(values), axis=0), 1e-30)
    shape = values / most
    # A sum of n squares is off by less than n 2^-23 of itself, and rounding lengthens a column by sqrt(n)/2 at most.
    length = jnp.sqrt(jnp.sum(shape * shape, axis=0)) * (1 + (rows + 64) * 2.0**-23)
    scale = (norm - 1 - math.sqrt(rows) / 2) / jnp.maximum(length, 1e-30)
    return jnp.round(shape * scale), most / scale


def _is_narrow(outputs: int) -> bool:
    return outputs <= _NARROW


def _fineness(integers: Any) -> int:
    """Return the grid steps in a layer's integers."""
    return 1 if _is_narrow(integers.shape[1]) else _LIMB
