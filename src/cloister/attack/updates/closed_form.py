"""Closed form: the record behind the gradient of a dense layer with a bias, exactly, without a search.

For one record x and a layer z = W x + b, the gradient by W is the outer product of the derivatives by z with x, and the
gradient by b is those derivatives. So for every unit i with a derivative that is not 0, x = (dL/dW_i) / (dL/db_i)
(Phong et al. 2018). All units say the same; weighted by the squares of their derivatives they cancel rounding errors.

In a lot, a unit that is active for one record alone leaks that record (Fowl et al. 2022): networks with ReLU have such
units, and several that agree on a record confirm it.

    record_from_layer(weights, bias)        of a lot of one record
    lone_records(weights, bias)             of a lot of several
    record_leak(updates, victims)           a finding
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import Finding, clopper_pearson
from cloister.attack.updates.defences import Defence
from cloister.attack.updates.matching import best_order
from cloister.attack.updates.update import GradientStep, Update, paired
from cloister.privacy.errors import BadInput

__all__ = ["LeakedRecord", "first_dense_layer", "lone_records", "record_from_layer", "record_leak", "remedies_for"]

Floats = NDArray[np.float64]
_WITHIN = 0.05  # relative error of a record that counts as recovered: nobody needs its last digits
_TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class LeakedRecord:
    """A record read off a gradient.

    Attributes:
        record: the inputs of the layer.
        unexplained: the share of the gradient's length that one record does not explain: 0 for a lot of one. It is the
            attacker's own measure of confidence, since it needs no truth.
    """

    record: Floats = field(repr=False)
    unexplained: float


def record_from_layer(weights: ArrayLike, bias: ArrayLike) -> LeakedRecord:
    """Read a record off the gradient of a dense layer.

    Args:
        weights: the gradient of the weights, (inputs, outputs).
        bias: the gradient of the bias, (outputs,).

    >>> x, derivatives = np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.0, -0.1])
    >>> record_from_layer(np.outer(x, derivatives), derivatives).record.round(12).tolist()
    [1.0, -2.0, 0.5]
    """
    matrix, slopes = _read_layer(weights, bias)
    power = float(slopes @ slopes)
    if power <= _TINY:
        raise BadInput("the gradient of the bias is 0: no unit of this layer saw the record. Take another layer.")
    record = matrix @ slopes / power
    left = float(np.linalg.norm(matrix - np.outer(record, slopes)))
    return LeakedRecord(record, left / max(float(np.linalg.norm(matrix)), _TINY))


def lone_records(weights: ArrayLike, bias: ArrayLike, *, agree: float = 1e-4, units: int = 2) -> Floats:
    """Return records that at least `units` units saw alone, one a row.

    A unit that was active for several records shows a mixture of them, and no other unit shows the same mixture.

    Args:
        weights, bias: the gradient of a dense layer, as for `record_from_layer`.
        agree: largest relative difference of two units that show the same record.
        units: number of units that must agree.
    """
    matrix, slopes = _read_layer(weights, bias)
    seen = np.abs(slopes) > 1e-7 * max(float(np.abs(slopes).max()), _TINY)
    shown, trust = (matrix[:, seen] / slopes[seen]).T, np.abs(slopes[seen])
    order = np.argsort(-trust)
    found: list[Floats] = []
    free = np.ones(len(shown), dtype=bool)
    for place in order:
        if not free[place]:
            continue
        apart = np.linalg.norm(shown - shown[place], axis=1)
        group = free & (apart <= agree * max(float(np.linalg.norm(shown[place])), _TINY))
        free &= ~group
        if int(group.sum()) >= units:
            found.append(np.average(shown[group], axis=0, weights=trust[group] ** 2))
    return np.array(found).reshape(len(found), matrix.shape[0])


def first_dense_layer(values: Any) -> tuple[Floats, Floats]:
    """Return gradients of weights (inputs, outputs) and bias of the first dense layer in a tree.

    Read are layers as in `learn.deep`, whose last row is the bias, and pairs of a matrix and a vector in either order.
    """
    leaves = [np.asarray(leaf, dtype=np.float64) for leaf in jax.tree.leaves(values)]
    if leaves and all(leaf.ndim == 2 for leaf in leaves):
        return leaves[0][:-1], leaves[0][-1]
    for one, two in pairwise(leaves):
        matrix, vector = (one, two) if one.ndim == 2 else (two, one)
        if matrix.ndim == 2 and vector.ndim == 1 and len(vector) in matrix.shape:
            return (matrix if matrix.shape[1] == len(vector) else matrix.T), vector
    raise BadInput(
        "no dense layer with a bias is found in the gradient. Pass layer=, a function of the gradient that returns "
        "the weights' part (inputs, outputs) and the bias's."
    )


def record_leak(
    updates: Sequence[Update],
    victims: Sequence[GradientStep],
    *,
    layer: Callable[[Any], tuple[Any, Any]] = first_dense_layer,
    within: float = _WITHIN,
) -> Finding:
    """Attack updates in closed form, and compare with the records.

    The best guess without an update is the mean of all other records of the victims.

    Args:
        updates: what was seen, one for each victim.
        victims: the clients, whose first array of rows holds the inputs of the layer.
        layer: returns the gradients of the layer's weights and bias; the first dense layer unless given.
        within: relative error of a record that counts as recovered.
    """
    errors: list[float] = []
    records: list[Floats] = []
    unexplained: list[float] = []
    pairs = paired(updates, victims)
    for update, victim in pairs:
        weights, bias = layer(update.values)
        leaked = record_from_layer(weights, bias)
        unexplained.append(leaked.unexplained)
        found = [leaked.record] if update.records == 1 else [*lone_records(weights, bias), leaked.record]
        records.append(victim.rows[0].reshape(len(victim.rows[0]), -1).astype(np.float64))
        errors += _errors(np.array(found), records[-1])
    right = int((np.array(errors) <= within).sum())
    truth = np.concatenate(records)
    blind = _errors_of_means(truth)
    first = pairs[0][0]
    defence = first.defence
    return Finding(
        attack="closed-form gradient leak",
        target=first.name,
        access="white box",
        knowledge=first.knowledge,
        measure=f"records recovered to a relative error of {within:g}",
        success=right / len(errors),
        interval=clopper_pearson(right, len(errors)),
        baseline=float((blind <= within).mean()),
        attempts=len(errors),
        claim=defence.spend,
        figures={
            "smallest relative error": float(min(errors)),
            "median relative error": float(np.median(errors)),
            "median relative error without the update": float(np.median(blind)),
            "unexplained share of the gradient": float(np.median(unexplained)),
        },
        remedies=remedies_for(defence),
        notes=("Clipping alone changes the length of a gradient and hides nothing.",) if _only_clips(defence) else (),
    )


def remedies_for(defence: Defence) -> tuple[str, ...]:
    """Return what would stop attacks on updates beyond this defence."""
    remedies = []
    if defence.spend is None:
        remedies.append("Clip each record's gradient and add noise before it leaves: learn.deep.train(…, spend=…).")
    if defence.clients == 1:
        remedies.append("Sum the updates of many clients under secure aggregation before anybody sees them.")
    if defence.spend is None and defence.clients == 1 and not defence.lot:
        remedies.append("Send updates of larger lots; this slows the attack, and stops none for certain.")
    return tuple(remedies)


def _only_clips(defence: Defence) -> bool:
    return defence.spend is None and (defence.gradient is not None or defence.clip is not None)


def _read_layer(weights: ArrayLike, bias: ArrayLike) -> tuple[Floats, Floats]:
    matrix, slopes = np.asarray(weights, dtype=np.float64), np.asarray(bias, dtype=np.float64)
    if matrix.ndim != 2 or slopes.shape != matrix.shape[1:]:
        raise BadInput(
            f"a dense layer's gradient is a matrix (inputs, outputs) and a vector (outputs,), got shapes "
            f"{matrix.shape} and {slopes.shape}. Transpose weights that are stored as (outputs, inputs)."
        )
    if not (np.isfinite(matrix).all() and np.isfinite(slopes).all()):
        raise BadInput("the gradient has numbers that are not finite.")
    return matrix, slopes


def _errors_of_means(truth: Floats) -> Floats:
    """Return the relative error of each record by the mean of all others; 1 for a record that is alone."""
    if len(truth) < 2:
        return np.ones(len(truth))
    means = (truth.sum(axis=0) - truth) / (len(truth) - 1)
    far = np.linalg.norm(means - truth, axis=1)
    return np.asarray(far / np.maximum(np.linalg.norm(truth, axis=1), _TINY))


def _errors(found: Floats, truth: Floats) -> list[float]:
    """Return the relative error of each true record, by the guess that is assigned to it; 1 without one."""
    apart = np.linalg.norm(truth[:, None] - found[None], axis=2)
    apart /= np.maximum(np.linalg.norm(truth, axis=1), _TINY)[:, None]
    costs = np.hstack((apart, np.ones((len(truth), len(truth)))))  # to be left without a guess costs 1
    return [float(costs[row, column]) for row, column in enumerate(best_order(costs))]
