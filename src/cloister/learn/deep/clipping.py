"""Gradients of single examples, clipped, on an integer grid.

    rows ──► gradient of each (vmap) ──► clip to C ──► C = 2^30 grid steps, rounded towards zero ──► exact sum

One example's integers have a Euclidean norm of at most 2^30, whatever the example, the parameters and the loss are:

- Rounding towards zero does not lengthen a vector, so the grid adds nothing to the sensitivity. It moves each number of
  an example's gradient by less than C/2^30.
- The norm of the rounded integers is computed in doubles, whose error for d squares is below d 2^-52 of the sum, and
  compared with a bound lowered by that much. An example that exceeds it, because something before went wrong, counts
  as zeros. So do gradients that are NaN or infinite.
- A micro-lot's integers are summed as doubles, whose partial sums stay below 2^53, and micro-lots as 64-bit integers:
  exact, in any order.

So one unit more or less moves the sum by at most 2^30, provided every other example contributes the same as before.
An example's integers must therefore not depend, to the last bit, on the other rows or on its place among them. Rows
are processed in micro-lots of one fixed size, padded, by one compiled program; `PrivateGradient.checked` compares its
results on made-up rows in all places. Where they differ, examples are processed one at a time (`jax.lax.map`).

The randomness with which an example is augmented follows from the key and from that example's own numbers, never from
its place: the others are changed as before when a row is added in front of them, whoever knows the key.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.integer_rows import Integers
from cloister.privacy.errors import BadInput, BadNumber
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian

__all__ = ["GRID", "Clipping", "PrivateGradient", "private_gradient"]

GRID = 2**30  # grid steps in the clipping norm
_BIT = 2**26  # grid steps of the bit that counts unclipped examples: 1/16 of the norm, which it lengthens by 0.2 %
_MOST_NUMBERS = 2**30
_AUTOMATIC = 0.01  # added to the norm in automatic clipping (Bu, Wang, Zha & Karypis 2023)

Clipping = Literal["fixed", "per-layer", "automatic", "adaptive"]
Rows = tuple[NDArray[Any], ...]
RowForm = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]  # shape and type of each part of one row


def private_gradient(
    loss: Callable[..., Any],
    *,
    clip: float = 1.0,
    clipping: Clipping = "fixed",
    augment: Callable[..., Any] | None = None,
    copies: int = 1,
    micro: int = 32,
) -> "PrivateGradient":
    """Make the gradient of a loss private.

    Args:
        loss: `loss(params, *row)` returns one number for one example; a row is `(x,)`, `(x, y)`, …
        clip: the L2 norm that one example's gradient may have.
        clipping: "fixed" scales longer gradients down; "per-layer" does it for each array of params, with clip/sqrt(L)
            for each of L arrays; "automatic" scales every gradient to about the norm, g / (|g| + 0.01); "adaptive"
            moves the norm so that about half of the gradients are shorter, by noisy counts (in `train`).
        augment: `augment(key, *row)` returns the row changed at random, by public rules.
        copies: changed copies of an example whose gradients are averaged before clipping.
        micro: examples whose gradients are in memory at once.

    Privacy: `sums` reads rows and is not private: release it with `mechanism(spend)` inside a charge.

    >>> gradient = private_gradient(lambda params, x: (params - x) ** 2)
    >>> total = gradient.sums(np.float32(3.0), (np.zeros(5, np.float32),))
    >>> round(float(total[0] * gradient.worth()), 6)
    5.0
    """
    return PrivateGradient(loss, clip, clipping, augment, copies, micro)


@dataclass(frozen=True)
class PrivateGradient:
    """The summed, clipped per-example gradients of a loss, in integers. Made with `private_gradient`."""

    loss: Callable[..., Any]
    clip: float = 1.0
    clipping: Clipping = "fixed"
    augment: Callable[..., Any] | None = None
    copies: int = 1
    micro: int = 32
    grouped: bool = False  # an example is a unit: a mask, and its rows, padded to one length
    one_at_a_time: bool = False

    def __post_init__(self) -> None:
        if not callable(self.loss):
            raise BadInput("loss is a function of params and one example that returns one number.")
        if self.clipping not in ("fixed", "per-layer", "automatic", "adaptive"):
            raise BadInput(
                f"clipping is 'fixed', 'per-layer', 'automatic' or 'adaptive', got {self.clipping!r:.40}. "
                "Without clipping one example could move the model arbitrarily far."
            )
        if isinstance(self.clip, bool) or not isinstance(self.clip, int | float) or not 1e-20 < self.clip < 1e20:
            raise BadNumber(f"clip is the norm that one example's gradient may have, above 0, got {self.clip!r:.40}.")
        for value, name in ((self.micro, "micro"), (self.copies, "copies")):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**20:
                raise BadNumber(f"{name} is a whole number of at least 1, got {value!r:.40}.")
        if self.copies > 1 and self.augment is None:
            raise BadInput("copies are made by augment. Give augment=, a function of a key and one example.")

    @property
    def sensitivity(self) -> int:
        """Return the L2 distance by which one unit moves `sums`, at most."""
        return GRID if self.clipping != "adaptive" else math.isqrt(GRID**2 + _BIT**2) + 1

    @property
    def bit(self) -> int:
        """Return the grid steps of one unclipped example in the last integer, in adaptive clipping."""
        return _BIT

    def coordinates(self, params: Any) -> int:
        """Return the number of integers of a sum."""
        size = sum(int(np.prod(np.shape(leaf))) for leaf in jax.tree.leaves(params))
        if not 0 < size < _MOST_NUMBERS:
            raise BadInput("params has no numbers, or too many: give a tree of arrays of floats.")
        return size + (self.clipping == "adaptive")

    def mechanism(self, spend: Loss) -> DiscreteGaussian:
        """Return the noise for one sum over all rows at this loss, for loops of your own."""
        return DiscreteGaussian.for_loss(self.sensitivity, spend)

    def worth(self, clip: float | None = None) -> float:
        """Return the real value of one grid step."""
        return (self.clip if clip is None else clip) / GRID if self.clipping != "automatic" else 1.0 / GRID

    def tree(self, integers: NDArray[Any], params: Any, clip: float | None = None) -> Any:
        """Return noisy integers as a tree of real gradients like params."""
        leaves, structure = jax.tree.flatten(params)
        values, start, built = np.asarray(integers, dtype=np.float64) * self.worth(clip), 0, []
        for leaf in leaves:
            size = int(np.prod(np.shape(leaf)))
            built.append(values[start : start + size].reshape(np.shape(leaf)).astype(np.float32))
            start += size
        return jax.tree.unflatten(structure, built)

    def checked(self, params: Any, row: RowForm, most: int = 1) -> "PrivateGradient":
        """Return this gradient, after trying it on made-up rows of this form; one at a time if places matter.

        Raises:
            BadInput: if the loss is not one number for one example.
        """
        try:
            value: Any = jax.eval_shape(self.loss, params, *(np.zeros(shape, dtype) for shape, dtype in row))
        except Exception as error:  # whatever the user's function raises on made-up shapes: no row is involved
            shapes_text = ", ".join(str(shape) for shape, _ in row)
            raise BadInput(
                f"the loss fails for params and one example with parts of shape {shapes_text}: "
                f"{type(error).__name__}. It is loss(params, *row) for one row, without a batch axis."
            ) from error  # its traceback shows where
        if getattr(value, "shape", None) != () or value.dtype.kind != "f":
            raise BadInput(
                "the loss is not per-example: loss(params, *row) returns one float for one row. Write it without a "
                "batch axis; examples are summed after clipping."
            )
        self._check_augment(params, row)
        same = self._places_do_not_matter(params, _made_up(row, self.micro, most if self.grouped else 0))
        return self if same else replace(self, one_at_a_time=True)

    def _check_augment(self, params: Any, row: RowForm) -> None:
        """Refuse an augmentation that fails on made-up rows, or returns what the loss does not take."""
        if self.augment is None:
            return
        zeros = tuple(np.zeros(shape, dtype) for shape, dtype in row)

        def changed(key: Any) -> Any:
            new: Any = self.augment(key, *zeros)  # type: ignore[misc]
            return self.loss(params, *(new if isinstance(new, tuple) else (new, *zeros[1:])))

        try:
            fits = getattr(jax.eval_shape(changed, jax.random.key(0)), "shape", None) == ()
        except Exception:  # whatever the user's function raises on made-up shapes: no row is involved
            fits = False
        if not fits:
            raise BadInput("augment(key, *row) returns the row changed, or its first part, so that the loss takes it.")

    def _places_do_not_matter(self, params: Any, mixed: Rows) -> bool:
        """Return True if made-up rows have equal integers in all places of a micro-lot, whatever surrounds them."""
        key = jax.random.key(5)
        together = self.each(params, mixed, key)
        for place in sorted({0, 1, self.micro // 3, self.micro - 1}):
            if place < self.micro:
                alone = tuple(np.repeat(part[place : place + 1], self.micro, axis=0) for part in mixed)
                if not np.array_equal(self.each(params, alone, key), np.repeat(together[[place]], self.micro, axis=0)):
                    return False
        return bool(np.array_equal(together[::-1], self.each(params, tuple(part[::-1] for part in mixed), key)))

    # Private: reads rows, inside a charge.

    def sums(self, params: Any, rows: Rows, key: Any = None, clip: float | None = None) -> Integers:
        """Return the sum of the rows' clipped gradients, as integers.

        Args:
            params: a tree of arrays.
            rows: one array for each argument of the loss after params; the first axis is the example.
            key: randomness of `augment`, another one for each sum.
            clip: the clipping norm, if it is not the gradient's own.

        Privacy: not private. One row more or less moves the result by at most `sensitivity` in L2.
        """
        total = np.zeros(self.coordinates(params), dtype=np.int64)
        count, key = len(rows[0]), jax.random.key(0) if key is None else key
        for start in range(0, count, self.micro):
            part = tuple(_padded(array[start : start + self.micro], self.micro) for array in rows)
            total += self._micro(params, part, min(self.micro, count - start), key, clip)
        return total

    def each(self, params: Any, rows: Rows, key: Any = None, clip: float | None = None) -> Integers:
        """Return the integers of each row of one micro-lot; for checks."""
        part = tuple(_padded(array, self.micro) for array in rows)
        key = jax.random.key(0) if key is None else key
        count = len(rows[0])
        return self._micro(params, part, count, key, clip, each=True)[:count]

    def _micro(
        self, params: Any, rows: Rows, count: int, key: Any, clip: float | None, *, each: bool = False
    ) -> Integers:
        """Return the sum of one padded micro-lot (or each example's integers), whose first `count` rows are real."""
        marks = np.zeros((self.micro, 2), np.uint32) if self.augment is None else _marks(rows)
        gradients = _gradients(self._one, self.one_at_a_time, params, rows, key, marks)
        with jax.enable_x64(True):
            integers = _on_grid(
                gradients,
                np.float64(self.clip if clip is None else clip),
                np.int64(count),
                clipping=self.clipping,
                each=each,
            )
        return np.asarray(integers)

    @property
    def _one(self) -> Any:
        return _of_one(self.loss, self.augment, self.copies, self.grouped)


def _made_up(row: RowForm, size: int, most: int) -> Rows:
    """Return public rows of this form: normal numbers of several magnitudes, and small whole numbers.

    Args:
        row: shape and type of each part of a row.
        size: examples.
        most: rows of an example that is a unit; 0 if it is a row.
    """
    parts = [np.ones((size, most), dtype=np.float32)] if most else []
    for number, (shape, dtype) in enumerate(row):
        key = jax.random.fold_in(jax.random.key(20), number)
        full = (size, *((most,) if most else ()), *shape)
        if dtype.kind == "f":
            magnitude = 10.0 ** jax.random.randint(key, (size, *(1,) * (len(full) - 1)), -2, 2)
            values = jax.random.normal(key, full) * magnitude
        else:
            values = jax.random.randint(key, full, 0, 2)
        parts.append(np.asarray(values).astype(dtype))
    return tuple(parts)


def _padded(rows: NDArray[Any], size: int) -> NDArray[Any]:
    if len(rows) == size:
        return rows
    padded = np.zeros((size, *rows.shape[1:]), dtype=rows.dtype)
    padded[: len(rows)] = rows
    return padded


def _marks(rows: Rows) -> NDArray[np.uint32]:
    """Return 64 bits for each example, which follow from its own numbers."""
    kept = [np.ascontiguousarray(part) for part in rows]
    marks = [
        blake2b(b"".join(part[place].tobytes() for part in kept), digest_size=8).digest()
        for place in range(len(rows[0]))
    ]
    return np.frombuffer(b"".join(marks), dtype=np.uint32).reshape(-1, 2)


_made: dict[Any, Any] = {}


def _of_one(loss: Callable[..., Any], augment: Callable[..., Any] | None, copies: int, grouped: bool) -> Any:
    """Return the gradient of one example; the same object each time, so that it is compiled once."""
    known = _made.get((loss, augment, copies, grouped))
    if known is not None:
        return known

    def of_row(params: Any, key: Any, *row: Any) -> Any:
        if augment is None:
            return loss(params, *row)

        def changed(own: Any) -> Any:
            new = augment(own, *row)
            return loss(params, *(new if isinstance(new, tuple) else (new, *row[1:])))

        return jnp.mean(jax.vmap(changed)(jax.random.split(key, copies)))

    def of_unit(params: Any, key: Any, real: Any, *rows: Any) -> Any:
        keys = jax.random.split(key, real.shape[0])
        losses = jax.vmap(of_row, in_axes=(None, 0, *(0 for _ in rows)))(params, keys, *rows)
        return jnp.sum(losses * real)

    if len(_made) > 64:
        _made.clear()
    _made[loss, augment, copies, grouped] = jax.grad(of_unit if grouped else of_row)
    return _made[loss, augment, copies, grouped]


@partial(jax.jit, static_argnums=(0, 1))
def _gradients(
    one: Callable[..., Any], one_at_a_time: bool, params: Any, rows: Rows, key: Any, marks: Any
) -> list[Any]:
    """Return the gradient of each row, one array for each of params; `marks` make the key of each."""
    keys = jax.vmap(lambda mark: jax.random.fold_in(jax.random.fold_in(key, mark[0]), mark[1]))(marks)
    if one_at_a_time:
        found = jax.lax.map(lambda each: one(params, *each), (keys, *rows))
    else:
        found = jax.vmap(one, in_axes=(None, 0, *(0 for _ in rows)))(params, keys, *rows)
    return jax.tree.leaves(found)


@partial(jax.jit, static_argnames=("clipping", "each"))
def _on_grid(gradients: list[Any], clip: Any, count: Any, *, clipping: Clipping, each: bool) -> Any:
    """Clip gradients of single examples, round them to the grid, and sum them. Runs in 64 bits.

    One example after the other, since its numbers then stay in the processor's cache.
    """
    size = gradients[0].shape[0]
    flat = [leaf.reshape(size, -1) for leaf in gradients]

    def of_one(place: Any) -> list[Any]:
        return _integers([leaf[place] for leaf in flat], clip, place < count, clipping)

    if each:
        return jax.lax.map(lambda place: jnp.concatenate(of_one(place)), jnp.arange(size)).astype(jnp.int64)

    def add(total: list[Any], place: Any) -> tuple[list[Any], None]:
        return [old + new for old, new in zip(total, of_one(place), strict=True)], None

    # Exact in any order: integers of at most 2^30, and at most 2^20 of them, so every partial sum is below 2^53.
    shapes = jax.eval_shape(of_one, 0)
    total, _ = jax.lax.scan(add, [jnp.zeros(part.shape) for part in shapes], jnp.arange(size))
    return jnp.concatenate(total).astype(jnp.int64)


def _integers(gradient: list[Any], clip: Any, real: Any, clipping: Clipping) -> list[Any]:
    """Return the integers of one example, as doubles; zeros if it is padding or no number."""
    doubles = [leaf.astype(jnp.float64) for leaf in gradient]
    # Rounding errors of a sum of d squares, with room: the exact norm is within the bound if this one passes.
    slack = (sum(leaf.shape[0] for leaf in doubles) + 64) * 2.0**-51
    squares = [jnp.sum(leaf * leaf) for leaf in doubles]
    norm = jnp.sqrt(sum(squares))
    real = real & jnp.isfinite(norm)
    most = GRID * (1 - 2 * slack)
    if clipping == "automatic":
        factors = [most / (norm + _AUTOMATIC)] * len(doubles)
    elif clipping == "per-layer":
        share = clip / math.sqrt(len(doubles))
        factors = [most / clip * jnp.minimum(1.0, share / jnp.maximum(jnp.sqrt(own), 1e-300)) for own in squares]
    else:
        factors = [most / clip * jnp.minimum(1.0, clip / jnp.maximum(norm, 1e-300))] * len(doubles)
    rounded = [jnp.trunc(jnp.where(real, leaf * factor, 0.0)) for leaf, factor in zip(doubles, factors, strict=True)]
    kept = sum(jnp.sum(leaf * leaf) for leaf in rounded) <= float(GRID) ** 2 * (1 - slack)
    integers = [jnp.where(kept, leaf, 0.0) for leaf in rounded]
    if clipping == "adaptive":
        integers.append(jnp.where(real & (norm <= clip), float(_BIT), 0.0)[None])
    return integers
