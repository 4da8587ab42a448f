"""Gradient inversion of images: search images whose gradient is the one that was seen (Zhu, Liu & Han 2019).

    guess = invert(update, (28, 28))               a search from many starts; the nearest one is kept
    guess.images, guess.labels
    image_leak([update], [victim], shape=(28, 28)) the same against the truth: a finding with the PSNR

Priors of the attacker: bounds of the pixels; total variation, since neighbouring pixels are alike (Geiping et al.
2020); and, where the first layer is dense, the space spanned by its gradient, in which all records lie. Labels are
read off the gradient of the last bias (`label_counts`), unless given.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import Finding, clopper_pearson
from cloister.attack.updates.closed_form import remedies_for
from cloister.attack.updates.defences import Progress
from cloister.attack.updates.matching import (
    Distance,
    best_order,
    check_search,
    descend,
    distance_between,
    input_span,
    label_counts,
)
from cloister.attack.updates.update import GradientStep, Update, images_of, labels_of, paired
from cloister.privacy.errors import BadBounds, BadInput, BadNumber

__all__ = ["InvertedImages", "assigned_images", "image_finding", "image_leak", "invert", "psnr", "total_variation"]

Floats = NDArray[np.float64]
_TINY = 1e-12
_PUBLIC = 64  # random images whose probabilities stand for those of the records


@dataclass(frozen=True, slots=True, eq=False)
class InvertedImages:
    """Images that an attacker recovered.

    Attributes:
        images: one for each record of the update.
        labels: their labels.
        distance: the search's last value, for each start; the lowest was kept.
    """

    images: Floats = field(repr=False)
    labels: NDArray[np.intp]
    distance: Floats


def psnr(images: ArrayLike, truth: ArrayLike, *, span: float = 1.0) -> Floats:
    """Return the peak signal-to-noise ratio of each image, in decibels.

    >>> psnr(np.full((1, 2, 2), 0.1), np.zeros((1, 2, 2))).round(6).tolist()
    [20.0]
    """
    one, two = np.asarray(images, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if one.shape != two.shape or one.ndim < 2:
        raise BadInput(f"images and truth have the same shape, one image a row, got {one.shape} and {two.shape}.")
    error = ((one - two) ** 2).reshape(len(one), -1).mean(axis=1)
    return np.asarray(10 * np.log10(span**2 / np.maximum(error, _TINY * span**2)))


def total_variation(image: Any) -> Any:
    """Return the mean difference of neighbouring pixels of one image (height, width) or (height, width, channels)."""
    down, right = image[1:] - image[:-1], image[:, 1:] - image[:, :-1]
    return jnp.mean(jnp.sqrt(down**2 + _TINY)) + jnp.mean(jnp.sqrt(right**2 + _TINY))


def invert(
    update: Update,
    shape: tuple[int, ...],
    *,
    labels: ArrayLike | None = None,
    classes: int = 10,
    public: ArrayLike | None = None,
    distance: Distance = "l2",
    smooth: float = 1e-4,
    span: float = 10.0,
    bounds: tuple[float, float] = (0.0, 1.0),
    starts: int = 2,
    steps: int = 1500,
    step_size: float = 0.2,
    seed: int = 0,
    progress: Progress | None = None,
) -> InvertedImages:
    """Search the images behind a gradient.

    Args:
        update: what was seen.
        shape: of one image: (height, width) or (height, width, channels).
        labels: of the records, in any order, if the attacker knows them; else they are read off the update.
        classes: the number of classes, for labels that are not given.
        public: images like the records, with which labels are read more surely; noise unless given.
        distance: "l2", "cosine" or "layers".
        smooth: weight of the total variation; 0 for none.
        span: weight of the distance of images from the space spanned by the first layer's gradient, if that is dense
            and no noise hides it; 0 for none.
        bounds: the smallest and the largest value of a pixel.
        starts: random starts; the one that ends nearest is kept.
        steps, step_size: of the search.
        seed: of the starts.
        progress: called with the share done and the distance.
    """
    check_search(distance=distance, starts=starts, steps=steps, step_size=step_size)
    low, high = read_bounds(bounds)
    if len(shape) not in (2, 3) or not all(isinstance(size, int) and size > 1 for size in shape[:2]):
        raise BadInput(f"shape is (height, width) or (height, width, channels) of an image, got {shape!r:.60}.")
    for value, name in ((smooth, "smooth"), (span, "span")):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise BadNumber(f"{name} is a number of at least 0, got {value!r:.40}.")
    draw = np.random.default_rng(seed)
    known = read_labels(update, labels, classes, public_images(public, shape, (low, high), draw))
    seen = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.float32), update.values)
    basis = input_span(update) if span else None
    if basis is not None and len(basis) != math.prod(shape):
        basis = None

    def images_of(point: Any) -> Any:
        return low + (high - low) * jax.nn.sigmoid(point)

    def objective(point: Any) -> Any:
        images = images_of(point)
        far = distance_between(update.expected(images, known), seen, distance)
        far += smooth / (high - low) * jnp.mean(jax.vmap(total_variation)(images))
        if basis is None:
            return far
        flat = images.reshape(len(images), -1)
        return far + span / (high - low) ** 2 * jnp.mean((flat - flat @ basis @ basis.T) ** 2)

    first = jnp.asarray(draw.normal(0, 0.5, (starts, update.records, *shape)), dtype=jnp.float32)
    points, values = descend(objective, first, steps=steps, step_size=step_size, progress=progress)
    best = np.asarray(images_of(points[int(np.argmin(values))]), dtype=np.float64)
    return InvertedImages(np.nan_to_num(best, nan=(low + high) / 2), np.asarray(known), values)


def image_leak(
    updates: Sequence[Update],
    victims: Sequence[GradientStep],
    *,
    shape: tuple[int, ...],
    threshold: float = 20.0,
    public: ArrayLike | None = None,
    labels_known: bool = False,
    bounds: tuple[float, float] = (0.0, 1.0),
    **search: Any,
) -> Finding:
    """Invert updates, and compare with the victims' images.

    Args:
        updates: what was seen, one for each victim.
        victims: the clients, whose first array of rows are images and whose second are labels.
        shape: of an image.
        threshold: decibels from which an image counts as recovered; at 20 digits are easily read.
        public: images like the records that an attacker has: their mean is the best guess without the update, and
            labels are read more surely with them. Grey and noise unless given.
        labels_known: True if the attacker knows the labels.
        bounds: the smallest and the largest value of a pixel.
        search: further arguments of `invert`.
    """
    truths, guesses, right, labels_seen = [], [], 0, 0
    distances = []
    pairs = paired(updates, victims)
    for update, victim in pairs:
        images = images_of(victim, shape)
        known = labels_of(victim, update.records) if labels_known else None
        found = invert(update, shape, labels=known, public=public, bounds=bounds, **search)
        truths.append(images)
        guesses.append(assigned_images(found.images, images))
        distances.append(float(found.distance.min()))
        if not labels_known:
            right += _in_common(found.labels, victim.rows[1])
            labels_seen += len(images)
    figures = {"distance of the best start": float(np.mean(distances))}
    if not labels_known:
        figures["share of labels recovered"] = right / labels_seen
    return image_finding(
        "gradient inversion of images", pairs[0][0], np.concatenate(guesses), np.concatenate(truths),
        threshold=threshold, public=public, bounds=bounds, figures=figures,
    )  # fmt: skip


def image_finding(
    attack: str,
    update: Update,
    guesses: Floats,
    truth: Floats,
    *,
    threshold: float,
    public: ArrayLike | None,
    bounds: tuple[float, float],
    figures: dict[str, float],
) -> Finding:
    """Return a finding on recovered images beside the best guess without the update."""
    low, high = read_bounds(bounds)
    middle = np.full(truth.shape[1:], (low + high) / 2)
    if public is not None:
        middle = np.asarray(public, dtype=np.float64).reshape(-1, *truth.shape[1:]).mean(axis=0)
    blind = np.broadcast_to(middle, truth.shape)
    found, without = psnr(guesses, truth, span=high - low), psnr(blind, truth, span=high - low)
    right = int((found >= threshold).sum())
    return Finding(
        attack=attack,
        target=update.name,
        access="white box",
        knowledge=update.knowledge,
        measure=f"images recovered with a PSNR of {threshold:g} dB or more",
        success=right / len(found),
        interval=clopper_pearson(right, len(found)),
        baseline=float((without >= threshold).mean()),
        attempts=len(found),
        claim=update.defence.spend,
        figures={
            "mean PSNR in dB": float(found.mean()),
            "lowest PSNR in dB": float(found.min()),
            "highest PSNR in dB": float(found.max()),
            "mean PSNR in dB without the update": float(without.mean()),
            **figures,
        },
        remedies=remedies_for(update.defence),
    )


def read_bounds(bounds: Any) -> tuple[float, float]:
    """Return the smallest and the largest value of a pixel."""
    if not isinstance(bounds, tuple | list) or len(bounds) != 2 or not float(bounds[0]) < float(bounds[1]):
        raise BadBounds(f"bounds are the smallest and the largest value of a pixel, got {bounds!r:.60}.")
    return float(bounds[0]), float(bounds[1])


def public_images(
    public: ArrayLike | None, shape: tuple[int, ...], bounds: tuple[float, float], draw: np.random.Generator
) -> Floats:
    """Return some public images, or noise between the bounds."""
    if public is None:
        return draw.uniform(*bounds, (_PUBLIC, *shape))
    images = np.asarray(public, dtype=np.float64)
    if not images.size or images.size % math.prod(shape):
        raise BadInput(f"public is an array of images of the shape {shape}.")
    return images.reshape(-1, *shape)[:_PUBLIC]


def read_labels(update: Update, labels: ArrayLike | None, classes: int, public: Floats) -> NDArray[np.int32]:
    """Return the labels of an update's records: given ones, or those that the update shows."""
    if labels is None:
        return label_counts(update, public, classes).astype(np.int32)
    known = np.asarray(labels)
    if known.shape != (update.records,) or known.dtype.kind not in "iu":
        raise BadInput(f"labels are {update.records} whole numbers, one for each record of the update.")
    return known.astype(np.int32)


def _in_common(found: NDArray[Any], truth: NDArray[Any]) -> int:
    """Return how many of the labels were recovered, as a set with multiplicity; of the victim's own alone."""
    kinds = np.unique(truth)
    return int(sum(min((found == kind).sum(), (truth == kind).sum()) for kind in kinds))


def assigned_images(found: Floats, truth: Floats) -> Floats:
    """Return the found image that is assigned to each true one."""
    flat, real = found.reshape(len(found), -1), truth.reshape(len(truth), -1)
    costs = (real**2).sum(1)[:, None] - 2 * real @ flat.T + (flat**2).sum(1)[None]
    return np.asarray(found[best_order(costs)])
