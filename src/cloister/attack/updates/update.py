"""Gradient of a client's lot as an attacker sees it, and the gradient that guessed records would give.

    victim = GradientStep(loss, params, (images, labels))
    update = victim.observe(Defence.none())
    update.expected(guessed_images, labels)       # compared with update.values by the attacks

A loss is that of one record, `loss(params, *row)` in JAX, as in `learn.deep`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from cloister.attack.updates.defences import Defence
from cloister.privacy.errors import BadInput
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.noise import Source

__all__ = ["GradientStep", "Update", "clipped_update", "images_of", "join_rows", "labels_of", "paired", "read_rows"]

Rows = tuple[NDArray[Any], ...]
_GRID = 2**30  # grid steps in the norm of a whole update
_TINY = 1e-30
_AUTOMATIC = 0.01  # see learn.deep.clipping


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """What an attacker sees of one update, and how it was made.

    Attributes:
        name: what was observed, in findings.
        loss, params: the loss of one record, and the parameters the update was computed at.
        values: a tree like params: the mean gradient, or the change of the parameters.
        records: number of records in it.
        defence: the defence, which the attacker knows.
        expected: the update that guessed records would give under the same clipping, without noise; differentiable.
    """

    name: str
    loss: Callable[..., Any]
    params: Any
    values: Any
    records: int
    defence: Defence
    expected: Callable[..., Any]

    @property
    def knowledge(self) -> str:
        """What the attacker knows, in one sentence."""
        return (
            f"the network, its parameters, the update, the number of its records ({self.records}) and the defence "
            f"({self.defence.name})"
        )


@dataclass(frozen=True, slots=True, eq=False)
class GradientStep:
    """A client that sends the mean gradient of its records.

    Args:
        loss: `loss(params, *row)` returns the loss of one record.
        params: the parameters, a tree of arrays.
        rows: the client's records: one array for each argument of the loss after params.
        others: records of other clients, for larger lots and secure sums.
        name: the client's name in findings.
    """

    loss: Callable[..., Any]
    params: Any
    rows: Rows
    others: Rows | None = None
    name: str = "gradient"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", read_rows(self.rows))
        if self.others is not None:
            object.__setattr__(self, "others", read_rows(self.others))

    def observe(self, defence: Defence, *, source: Source | None = None) -> Update:
        """Return what an attacker sees of the step under a defence.

        Args:
            defence: the defence.
            source: random bits of the noise; the operating system's unless given.

        Privacy: with `defence.spend`, the values cost that loss for one record. Without, they are not private.
        """
        if getattr(defence.gradient, "loss", self.loss) is not self.loss:
            raise BadInput("the defence clips gradients of another loss. Pass private_gradient(loss) of the client's.")
        own = len(self.rows[0])
        size = max(defence.lot, own) * defence.clients
        rows = join_rows(self.rows, self.others, size)
        expected = partial(_mean_gradient, self.loss, _rule(defence), self.params)
        if defence.gradient is None:
            values = clipped_update(expected(*rows), defence, source)
        else:
            integers = defence.gradient.sums(self.params, rows)
            if defence.spend is not None:
                integers = defence.gradient.mechanism(defence.spend).release(integers, source)
            values = jax.tree.map(lambda leaf: leaf / size, defence.gradient.tree(integers, self.params))
        name = f"{self.name} of {own} record{'s' if own > 1 else ''}, {defence.name}"
        return Update(name, self.loss, self.params, values, size, defence, expected)


def read_rows(rows: Any) -> Rows:
    """Return records as arrays that JAX takes, or refuse."""
    if not isinstance(rows, tuple | list) or not rows:
        raise BadInput("rows is a tuple of arrays, one for each argument of the loss after params: (images, labels).")
    parts = tuple(np.asarray(part) for part in rows)
    if any(part.ndim == 0 or part.dtype.kind not in "biuf" for part in parts):
        raise BadInput("rows is a tuple of arrays of numbers; the first axis of each is the record.")
    if len({len(part) for part in parts}) > 1 or not len(parts[0]):
        raise BadInput("the arrays of rows have the same number of records, at least one.")
    return tuple(part.astype(np.float32) if part.dtype.kind == "f" else part.astype(np.int32) for part in parts)


def join_rows(rows: Rows, others: Rows | None, size: int) -> Rows:
    """Return the records with others behind them, so that there are `size`."""
    missing = size - len(rows[0])
    if missing <= 0:
        return rows
    if others is None or len(others[0]) < missing:
        raise BadInput(f"this defence adds {missing} records of others to the sum. Pass at least as many as others=.")
    return tuple(np.concatenate((own, other[:missing])) for own, other in zip(rows, others, strict=True))


def paired(updates: Any, victims: Any) -> list[tuple[Any, Any]]:
    """Return each update with its victim, or refuse what cannot be compared."""
    seen, known = (list(part) if isinstance(part, list | tuple) else [part] for part in (updates, victims))
    if not seen or len(seen) != len(known):
        raise BadInput(f"pass one victim for each update, and at least one: got {len(seen)} and {len(known)}.")
    for update in seen:
        if not hasattr(update, "values"):
            raise BadInput(f"an update is what `observe` of a victim returns, not {type(update).__name__}.")
    for victim in known:
        if not hasattr(victim, "rows"):
            raise BadInput(f"a victim is a GradientStep or a LocalTraining, not {type(victim).__name__}.")
    return list(zip(seen, known, strict=True))


def images_of(victim: Any, shape: Sequence[int]) -> NDArray[np.float64]:
    """Return a victim's images in their shape."""
    rows = np.asarray(victim.rows[0], dtype=np.float64)
    cells = int(np.prod(rows.shape[1:]))
    if cells != int(np.prod(shape)):
        raise BadInput(f"shape has {int(np.prod(shape)):,} pixels, and a record of the victim {cells:,} numbers.")
    return rows.reshape(-1, *shape)


def labels_of(victim: GradientStep, records: int) -> NDArray[Any]:
    """Return the labels of the records in an update: the victim's, then those of others."""
    labels = victim.rows[1]
    if records > len(labels) and victim.others is not None:
        labels = np.concatenate((labels, victim.others[1][: records - len(labels)]))
    return labels


def clipped_update(values: Any, defence: Defence, source: Source | None) -> Any:
    """Return an update that was clipped as a whole by `_mean_gradient` or a local training, with the defence's noise.

    Privacy: the clipped update is rounded towards zero on a grid of 2^30 steps to the norm, which does not lengthen
        it; discrete Gaussian noise for `defence.spend` is added, for one client added or removed.
    """
    leaves, structure = jax.tree.flatten(values)
    leaves = [np.asarray(leaf, dtype=np.float64) for leaf in leaves]
    if defence.spend is None or defence.clip is None:
        return jax.tree.unflatten(structure, leaves)
    flat = np.concatenate([leaf.ravel() for leaf in leaves])
    length = math.sqrt(float(flat @ flat))
    flat *= min(1.0, defence.clip / max(length, _TINY)) * (1 - 1e-9)  # far above the rounding errors of a norm
    mechanism = DiscreteGaussian.for_loss(_GRID, defence.spend)
    noisy = mechanism.release(np.trunc(flat * (_GRID / defence.clip)).astype(np.int64), source)
    parts = np.split(np.asarray(noisy, dtype=np.float64) * (defence.clip / _GRID), np.cumsum([x.size for x in leaves]))
    return jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=False)])


def _rule(defence: Defence) -> tuple[str, float]:
    """Return the kind of clipping and its norm."""
    if defence.gradient is None:
        return ("none", 0.0) if defence.clip is None else ("whole", float(defence.clip))
    if defence.gradient.clipping not in ("fixed", "adaptive", "per-layer", "automatic"):
        raise BadInput(f"clipping of the kind {defence.gradient.clipping!r:.40} is not known to the attacks.")
    return defence.gradient.clipping, float(defence.gradient.clip)


@partial(jax.jit, static_argnums=(0, 1))
def _mean_gradient(loss: Callable[..., Any], rule: tuple[str, float], params: Any, *rows: Any) -> Any:
    """Return the mean gradient of records under this clipping."""
    each = (None, *(0 for _ in rows))
    if rule[0] in ("none", "whole"):
        mean = jax.grad(lambda at: jnp.mean(jax.vmap(loss, in_axes=each)(at, *rows)))(params)
        return mean if rule[0] == "none" else shortened(mean, rule[1])
    clipped = jax.vmap(partial(_clipped, *rule))(jax.vmap(jax.grad(loss), in_axes=each)(params, *rows))
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), clipped)


def _clipped(kind: str, clip: float, slope: Any) -> Any:
    """Return one record's gradient, clipped as `learn.deep.clipping` does it."""
    if kind == "per-layer":
        leaves, structure = jax.tree.flatten(slope)
        return jax.tree.unflatten(structure, [shortened(leaf, clip / math.sqrt(len(leaves))) for leaf in leaves])
    if kind == "automatic":
        return jax.tree.map(lambda leaf: leaf / (_length(slope) + _AUTOMATIC), slope)
    return shortened(slope, clip)


def shortened(tree: Any, most: float) -> Any:
    """Return a tree of arrays, scaled down to this norm if it is longer."""
    factor = jnp.minimum(1.0, most / jnp.maximum(_length(tree), _TINY))
    return jax.tree.map(lambda leaf: leaf * factor, tree)


def _length(tree: Any) -> Any:
    # The root's slope is infinite at zero: a record without a gradient would make the search NaN.
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)) + _TINY)
