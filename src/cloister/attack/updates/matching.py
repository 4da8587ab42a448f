"""Gradient matching: search records whose update is nearest to the one that was seen (Zhu, Liu & Han 2019).

    distance(expected(guess), seen) + priors(guess)   is descended from many random starts at once

Distances: "l2", the squared distance as a share of what was seen; "cosine", one minus the cosine of the angle, which
ignores the length (Geiping et al. 2020); "layers", the mean over arrays of one minus their cosines.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from cloister.attack.updates.defences import Progress
from cloister.attack.updates.update import Update
from cloister.privacy.errors import BadInput, BadNumber

__all__ = [
    "DISTANCES",
    "Distance",
    "best_order",
    "check_search",
    "descend",
    "distance_between",
    "input_span",
    "label_counts",
]

Distance = Literal["l2", "cosine", "layers"]
Floats = NDArray[np.float64]
_TINY = 1e-20
_GAP = 10  # the last singular value that records cause, over the first that noise causes
_PARTS = 20  # reports of progress in a search


def _cosine(pairs: Sequence[tuple[Any, Any]]) -> Any:
    product = sum(jnp.vdot(one, two) for one, two in pairs)
    sizes = [sum(jnp.sum(pair[side] ** 2) for pair in pairs) for side in (0, 1)]
    return 1 - product * jax.lax.rsqrt(sizes[0] + _TINY) * jax.lax.rsqrt(sizes[1] + _TINY)


def _l2(pairs: Sequence[tuple[Any, Any]]) -> Any:
    apart = sum(jnp.sum((one - two) ** 2) for one, two in pairs)
    return apart / (sum(jnp.sum(two**2) for _, two in pairs) + _TINY)


def _layers(pairs: Sequence[tuple[Any, Any]]) -> Any:
    return sum(_cosine([pair]) for pair in pairs) / len(pairs)


DISTANCES: dict[str, Callable[[Sequence[tuple[Any, Any]]], Any]] = {"l2": _l2, "cosine": _cosine, "layers": _layers}


def distance_between(expected: Any, seen: Any, kind: Distance = "cosine") -> Any:
    """Return the distance of two trees of arrays.

    >>> import numpy as np
    >>> round(float(distance_between([np.ones(2)], [2 * np.ones(2)], "cosine")), 6)
    0.0
    """
    pairs = list(zip(jax.tree.leaves(expected), jax.tree.leaves(seen), strict=True))
    return DISTANCES[kind](pairs)


def check_search(*, distance: str, starts: int, steps: int, step_size: float) -> None:
    """Refuse settings of a search that mean nothing."""
    if distance not in DISTANCES:
        raise BadInput(f"distance is one of {', '.join(DISTANCES)}, got {distance!r:.40}.")
    for value, name, most in ((starts, "starts", 1000), (steps, "steps", 10**6)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise BadNumber(f"{name} is a whole number from 1 to {most:,}, got {value!r:.40}.")
    if isinstance(step_size, bool) or not isinstance(step_size, int | float) or not 0 < step_size < 1e6:
        raise BadNumber(f"step_size is a number above 0, got {step_size!r:.40}.")


def descend(
    objective: Callable[[Any], Any],
    starts: Any,
    *,
    steps: int,
    step_size: float,
    progress: Progress | None = None,
) -> tuple[Any, Floats]:
    """Descend from all starts at once by Adam with a falling step size.

    Args:
        objective: a function of one point, a tree of arrays.
        starts: a tree of arrays whose first axis is the start.
        steps: of the descent.
        step_size: the first one; it falls to zero along a cosine.
        progress: called with the share done and the lowest value.

    Returns:
        The last points, and the objective's value at each. A start that ends in NaN has the value infinity.
    """
    part = max(1, steps // _PARTS)
    rounds = -(-steps // part)
    adam = optax.adam(optax.cosine_decay_schedule(step_size, rounds * part))
    slope = jax.vmap(jax.value_and_grad(objective))

    @jax.jit
    def run(points: Any, state: Any) -> tuple[Any, Any, Any]:
        def step(carried: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], Any]:
            values, slopes = slope(carried[0])
            changes, after = adam.update(slopes, carried[1])
            return (optax.apply_updates(carried[0], changes), after), values

        (points, state), values = jax.lax.scan(step, (points, state), None, length=part)
        return points, state, values[-1]

    points, state = starts, adam.init(starts)
    values = np.full(len(jax.tree.leaves(starts)[0]), np.inf)
    for number in range(rounds):
        points, state, found = run(points, state)
        values = np.nan_to_num(np.asarray(found, dtype=np.float64), nan=np.inf)
        if progress is not None:
            progress((number + 1) / rounds, f"step {(number + 1) * part:,}, distance {values.min():.3g}")
    return points, values


def label_counts(update: Update, public: Any, classes: int, bias: Any = None) -> NDArray[np.intp]:
    """Return the labels in an update, sorted, from the gradient of the last layer's bias.

    That gradient is the mean of p_k - [y = k] over records. With p_k from public inputs, the share of label k is
    p_k minus it (Geng et al. 2021; for one record Zhao, Mopuri & Bilen 2020). The probabilities come from the loss
    itself: p_k = e^-loss(x, k), if the loss is a cross-entropy.

    Args:
        update: what was seen.
        public: inputs like those of the records, such as noise.
        classes: the number of classes.
        bias: the gradient of the last bias; the last row of the last array unless given.
    """
    leaves = jax.tree.leaves(update.values)
    found = np.asarray(leaves[-1] if bias is None else bias, dtype=np.float64)
    found = found[-1] if found.ndim == 2 else found
    if found.shape != (classes,):
        raise BadInput(f"the gradient of the last bias has {classes} numbers, one for each class. Pass bias=.")
    losses = jax.vmap(lambda row: jax.vmap(lambda label: update.loss(update.params, row, label))(jnp.arange(classes)))(
        jnp.asarray(public, dtype=jnp.float32)
    )
    usual = np.exp(-np.asarray(losses, dtype=np.float64)).mean(axis=0)
    left = usual - found / _shrinkage(update, found, usual)
    labels = []
    for _ in range(update.records):
        labels.append(int(np.argmax(left)))
        left[labels[-1]] -= 1 / update.records
    return np.sort(np.array(labels, dtype=np.intp))


def _shrinkage(update: Update, found: Floats, usual: Floats) -> float:
    """Return by what factor clipping shortened the bias's gradient, roughly: for a label that is absent it was p_k."""
    if update.defence.gradient is None and update.defence.clip is None:
        return 1.0
    return float(np.clip((found / np.maximum(usual, _TINY)).max(), 1e-3, 1.0))


def input_span(update: Update) -> Floats | None:
    """Return an orthonormal basis (inputs, records) of the space that the records lie in, or None.

    The gradient of a dense first layer is a sum of one outer product for each record, so its rank is at most the number
    of records, and every record is in its column space. None if the layer is not dense, if there are more records than
    units, or if noise hides the rank.
    """
    leaves = [np.asarray(leaf, dtype=np.float64) for leaf in jax.tree.leaves(update.values)]
    matrix = next((leaf for leaf in leaves if leaf.ndim == 2), None)
    if matrix is None or leaves[0].ndim > 2:
        return None
    if all(leaf.ndim == 2 for leaf in leaves):
        matrix = matrix[:-1]  # the last row is the bias
    if update.records >= min(matrix.shape) or not np.isfinite(matrix).all():
        return None
    basis, sizes, _ = np.linalg.svd(matrix, full_matrices=False)
    if sizes[update.records - 1] < _GAP * sizes[update.records]:
        return None
    return np.asarray(basis[:, : update.records])


def best_order(costs: NDArray[Any]) -> NDArray[np.intp]:
    """Return for each row of a cost matrix the column assigned to it, at the least total cost.

    >>> best_order(np.array([[5, 1], [0, 3]])).tolist()
    [1, 0]
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(costs)
    order = np.empty(len(costs), dtype=np.intp)
    order[rows] = columns
    return order
