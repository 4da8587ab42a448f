"""Federated averaging: records behind the weights that a client sends back after several local epochs.

The attacker simulates the client's training on guessed records, a guess of its own for every epoch and batch, and
descends through it (Dimitrov, Balunović, Konstantinov & Vechev 2022):

    distance(simulated weights, seen weights) + α · mean over pairs of epochs |g(epoch 1) - g(epoch 2)|² + priors

The client shuffles, so the attacker does not know which record is in which batch. But every epoch passes over the same
records: a function g of an epoch's records that ignores their order, such as their mean, has the same value in each.
After the search records of different epochs are matched and averaged.

    victim = LocalTraining(loss, params, (images, labels), epochs=5, batch=4, step_size=0.1)
    guess = invert_training(victim.observe(Defence.none()), (28, 28))
    training_leak([update], [victim], shape=(28, 28))     a finding with the PSNR
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import Finding
from cloister.attack.updates.defences import Defence, Progress
from cloister.attack.updates.inversion import (
    InvertedImages,
    assigned_images,
    image_finding,
    public_images,
    read_bounds,
    read_labels,
    total_variation,
)
from cloister.attack.updates.matching import (
    Distance,
    best_order,
    check_search,
    descend,
    distance_between,
    input_span,
)
from cloister.attack.updates.update import (
    Rows,
    Update,
    clipped_update,
    images_of,
    join_rows,
    paired,
    read_rows,
    shortened,
)
from cloister.privacy.errors import BadInput, BadNumber
from cloister.privacy.noise import Source

__all__ = ["LocalTraining", "TrainingUpdate", "invert_training", "training_leak"]

Floats = NDArray[np.float64]
Invariant = Literal["mean", "extremes"]


@dataclass(frozen=True, slots=True, eq=False)
class TrainingUpdate(Update):
    """Weights after local training, as an attacker sees them: `values` is their change, per unit of step size.

    Attributes:
        epochs, batch: of the client's training, which the attacker knows.
    """

    epochs: int
    batch: int


@dataclass(frozen=True, slots=True, eq=False)
class LocalTraining:
    """A client that trains on its records by plain gradient descent over batches, and sends the change of its weights.

    Args:
        loss: `loss(params, *row)` returns the loss of one record.
        params: the global parameters, a tree of arrays.
        rows: the client's records: one array for each argument of the loss after params.
        epochs: passes over the records, in a new order each.
        batch: records in a batch.
        step_size: of the descent.
        others: records of other clients, for secure sums: as many for each client as the victim has.
        seed: of the orders.
        name: the client's name in findings.
    """

    loss: Callable[..., Any]
    params: Any
    rows: Rows
    epochs: int
    batch: int
    step_size: float
    others: Rows | None = None
    seed: int = 0
    name: str = "local training"

    def __post_init__(self) -> None:
        for value, what in ((self.epochs, "epochs"), (self.batch, "batch")):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**4:
                raise BadNumber(f"{what} is a whole number of at least 1, got {value!r:.40}.")
        if not isinstance(self.step_size, int | float) or not 0 < self.step_size < 1e6:
            raise BadNumber(f"step_size is a number above 0, got {self.step_size!r:.40}.")
        object.__setattr__(self, "rows", read_rows(self.rows))
        if self.others is not None:
            object.__setattr__(self, "others", read_rows(self.others))

    def observe(self, defence: Defence, *, source: Source | None = None) -> TrainingUpdate:
        """Return what an attacker sees of the training under a defence.

        A secure sum shows the mean change over clients, each with as many records as the victim. Clipping and noise are
        of whole updates.

        Args:
            defence: the defence.
            source: random bits of the noise; the operating system's unless given.

        Privacy: with `defence.spend`, the values cost that loss for one client. Without, they are not private.
        """
        if defence.gradient is not None:
            raise BadInput(
                "a client that trains locally clips its whole update: Defence.noise(1.0, spend), with a norm."
            )
        own = len(self.rows[0])
        size = max(defence.lot, own)
        if size % self.batch:
            raise BadInput(f"{size} records are not a whole number of batches of {self.batch}. Change batch.")
        rows = join_rows(self.rows, self.others, size * defence.clients)
        expected = partial(_change, self.loss, defence.clip, self.step_size, self.params)
        draw, total = np.random.default_rng(self.seed), None
        for client in range(defence.clients):
            mine = tuple(part[client * size : (client + 1) * size] for part in rows)
            orders = np.array([draw.permutation(size) for _ in range(self.epochs)])
            orders = orders.reshape(self.epochs, size // self.batch, self.batch)
            change = expected(*(part[orders] for part in mine))
            total = change if total is None else jax.tree.map(jnp.add, total, change)
        scaled = jax.tree.map(lambda leaf: np.asarray(leaf) / defence.clients, clipped_update(total, defence, source))
        name = (
            f"{self.name} on {own} record{'s' if own > 1 else ''}, {self.epochs} "
            f"epoch{'s' if self.epochs > 1 else ''}, {defence.name}"
        )
        return TrainingUpdate(name, self.loss, self.params, scaled, size, defence, expected, self.epochs, self.batch)


def invert_training(
    update: TrainingUpdate,
    shape: tuple[int, ...],
    *,
    labels: ArrayLike | None = None,
    classes: int = 10,
    public: ArrayLike | None = None,
    distance: Distance = "cosine",
    invariant: Invariant = "mean",
    same: float = 1.0,
    smooth: float = 1e-4,
    span: float = 10.0,
    bounds: tuple[float, float] = (0.0, 1.0),
    starts: int = 2,
    steps: int = 1500,
    step_size: float = 0.2,
    seed: int = 0,
    progress: Progress | None = None,
) -> InvertedImages:
    """Search the images behind a client's local training.

    Args:
        update: what was seen.
        shape: of one image.
        labels: of the records, in any order, if the attacker knows them; else they are read off the update.
        classes: the number of classes, for labels that are not given.
        public: images like the records, with which labels are read more surely; noise unless given.
        distance: "l2", "cosine" or "layers".
        invariant: the function of an epoch's records that ignores their order: their "mean", or their "extremes" (the
            largest and the smallest value of each pixel).
        same: weight of the prior that every epoch has the same value of `invariant`; 0 for none.
        smooth, span, bounds: priors of the images, as for `invert`.
        starts: random starts; the one that ends nearest is kept.
        steps, step_size: of the search.
        seed: of the starts.
        progress: called with the share done and the distance.
    """
    if not isinstance(update, TrainingUpdate):
        raise BadInput("this attack needs an update of LocalTraining. For a gradient use invert().")
    check_search(distance=distance, starts=starts, steps=steps, step_size=step_size)
    if invariant not in ("mean", "extremes"):
        raise BadInput(f"invariant is 'mean' or 'extremes', got {invariant!r:.40}.")
    for value, what in ((same, "same"), (smooth, "smooth"), (span, "span")):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise BadNumber(f"{what} is a number of at least 0, got {value!r:.40}.")
    low, high = read_bounds(bounds)
    draw = np.random.default_rng(seed)
    known = read_labels(update, labels, classes, public_images(public, shape, (low, high), draw))
    seen = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.float32), update.values)
    basis = input_span(update) if span else None  # every step of the first layer is spanned by the same records
    if basis is not None and len(basis) != math.prod(shape):
        basis = None
    # A place in an epoch stands for one record, so its label is the same in every epoch; which batch it is in is not
    # known, and any spread of the labels over the batches will do.
    places = draw.permutation(update.records)
    grid = (update.epochs, update.records // update.batch, update.batch)
    spread = np.broadcast_to(known[places].reshape(grid[1:]), grid)

    def images_of(point: Any) -> Any:
        return low + (high - low) * jax.nn.sigmoid(point)

    def objective(point: Any) -> Any:
        images = images_of(point)
        far = distance_between(update.expected(images.reshape(*grid, *shape), spread), seen, distance)
        far += same / (high - low) ** 2 * _disagreement(images, invariant)
        every = images.reshape(-1, *shape)
        far += smooth / (high - low) * jnp.mean(jax.vmap(total_variation)(every))
        if basis is None:
            return far
        flat = every.reshape(len(every), -1)
        return far + span / (high - low) ** 2 * jnp.mean((flat - flat @ basis @ basis.T) ** 2)

    first = jnp.asarray(draw.normal(0, 0.5, (starts, update.epochs, update.records, *shape)), dtype=jnp.float32)
    points, values = descend(objective, first, steps=steps, step_size=step_size, progress=progress)
    best = np.nan_to_num(np.asarray(images_of(points[int(np.argmin(values))]), dtype=np.float64), nan=(low + high) / 2)
    return InvertedImages(_averaged(best, known[places]), known[places].astype(np.intp), values)


def training_leak(
    updates: Sequence[TrainingUpdate],
    victims: Sequence[LocalTraining],
    *,
    shape: tuple[int, ...],
    threshold: float = 20.0,
    public: ArrayLike | None = None,
    labels_known: bool = False,
    bounds: tuple[float, float] = (0.0, 1.0),
    **search: Any,
) -> Finding:
    """Invert updates of local training, and compare with the victims' images.

    A secure sum is attacked as if it were one client's update: the attacker cannot tell the clients apart.

    Args:
        updates: what was seen, one for each victim.
        victims: the clients, whose first array of rows are images and whose second are labels.
        shape: of an image.
        threshold: decibels from which an image counts as recovered.
        public: images like the records that an attacker has, as for `image_leak`.
        labels_known: True if the attacker knows the labels.
        bounds: the smallest and the largest value of a pixel.
        search: further arguments of `invert_training`.
    """
    truths, guesses, distances = [], [], []
    pairs = paired(updates, victims)
    for update, victim in pairs:
        images = images_of(victim, shape)
        labels = None
        if labels_known:
            more = () if victim.others is None else victim.others[1][: update.records - len(images)]
            labels = np.concatenate((victim.rows[1], more)).astype(np.intp)
        found = invert_training(update, shape, labels=labels, public=public, bounds=bounds, **search)
        truths.append(images)
        guesses.append(assigned_images(found.images, images))
        distances.append(float(found.distance.min()))
    return image_finding(
        "inversion of federated averaging", pairs[0][0], np.concatenate(guesses), np.concatenate(truths),
        threshold=threshold, public=public, bounds=bounds,
        figures={"distance of the best start": float(np.mean(distances))},
    )  # fmt: skip


@partial(jax.jit, static_argnums=(0, 1, 2))
def _change(loss: Callable[..., Any], clip: float | None, step_size: float, params: Any, *rows: Any) -> Any:
    """Return the change of the weights by training on rows (epochs, batches, batch, …), divided by -step size · steps.

    So that one epoch of one batch gives the mean gradient. Clipping is of the change as a whole.
    """
    batches = [part.reshape(-1, *part.shape[2:]) for part in rows]

    def mean_loss(at: Any, batch: Any) -> Any:
        return jnp.mean(jax.vmap(loss, in_axes=(None, *(0 for _ in batch)))(at, *batch))

    def step(at: Any, batch: Any) -> tuple[Any, None]:
        slope = jax.grad(mean_loss)(at, batch)
        return jax.tree.map(lambda leaf, down: leaf - step_size * down, at, slope), None

    start = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.float32), params)
    last, _ = jax.lax.scan(step, start, tuple(jnp.asarray(part) for part in batches))
    scale = 1 / (step_size * len(batches[0]))
    change = jax.tree.map(lambda old, new: (old - new) * scale, start, last)
    return change if clip is None else shortened(change, clip)


def _disagreement(images: Any, invariant: Invariant) -> Any:
    """Return the mean squared difference, over pairs of epochs, of what does not depend on the order of the records."""
    parts = [images.mean(axis=1)] if invariant == "mean" else [images.max(axis=1), images.min(axis=1)]
    # The mean over all pairs is twice the variance over epochs.
    return sum(2 * jnp.mean(jnp.var(part, axis=0)) for part in parts) / len(parts)


def _averaged(images: Floats, labels: NDArray[Any]) -> Floats:
    """Return the mean over epochs of images (epochs, records, …), matched to those of the last epoch."""
    other = (labels[:, None] != labels[None]) * 1e9
    flat = images.reshape(len(images), len(labels), -1)
    total = images[-1].copy()
    for place in range(len(images) - 1):
        apart = ((flat[-1][:, None] - flat[place][None]) ** 2).sum(axis=2)
        total += images[place][best_order(apart + other)]
    return np.asarray(total / len(images))
