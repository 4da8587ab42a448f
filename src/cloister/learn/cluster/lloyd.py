"""Private k-means: Lloyd's iteration with noisy counts and sums, in a privately found ball.

    a radius ──► a middle ──► a radius around it ──► centres spread over a sphere ──► rounds of Lloyd's

A round releases, for all clusters at once, the number of rows and the sum of their differences from the old centre,
each clipped to the radius. Differences are shorter than rows, so their sums need less noise; and a count is part of
the same integer vector as the sum, so one noise vector covers both (the joint sensitivity of Su et al. 2016, in L2).
The number of rounds follows from released numbers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cloister.learn.base.binned_estimator import public_generator
from cloister.learn.base.frame import Floats, shorten
from cloister.learn.base.integer_rows import Integers
from cloister.learn.cluster.enclosing_ball import Ground, radius_within
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace

__all__ = ["Clustering", "cluster"]

# Shares of the spend: a first radius, the middle, a second radius; Lloyd's rounds get the rest.
_RADIUS, _MIDDLE, _AGAIN = Fraction(3, 100), Fraction(4, 100), Fraction(3, 100)
_MOST_ROUNDS, _FEWEST_ROUNDS = 20, 3
_BLUR = 0.08  # how far noise may move a centre in a round, in radii


@dataclass(frozen=True, slots=True)
class Clustering:
    """Released centres in the grid, and the number of rounds.

    Attributes:
        centres, counts, rounds: those of the last round.
        blur: for each centre, the standard error of every feature due to the last round's noise.
        miscount: the standard error of a count.
    """

    centres: Floats
    counts: Floats
    rounds: int
    blur: Floats
    miscount: float


def cluster(
    meter: PrivacyFilter,
    budget: BudgetShare,
    ground: Ground,
    look: Callable[[], Floats],
    clusters: int,
    most: int | None,
) -> Clustering:
    """Find centres.

    Args:
        meter, budget: the privacy filter and the budget to charge.
        ground: the public grid.
        look: returns the rows; called inside a step.
        clusters: number of clusters.
        most: number of rounds; None for as many as the noise leaves useful.

    Privacy: the whole budget: two histograms of lengths, one sum, and the rounds.
    """
    loaded: list[Floats] = []

    def rows() -> Floats:
        if not loaded:
            loaded.append(ground.cells(look()))
        return loaded[0]

    features, public = len(ground.centre), public_generator(meter.source)
    wide, _ = radius_within(meter, budget.part(_RADIUS), rows, 2**ground.bits, 0.98)
    everywhere = np.zeros((1, features))
    total, count, _ = _sums(meter, budget, _MIDDLE, rows, everywhere, wide, 2)
    middle = np.rint(shorten(total / max(float(count[0]), 1.0), wide))
    radius, row_count = radius_within(meter, budget.part(_AGAIN), lambda: rows() - middle, 2 * wide, 0.9)
    lloyd = 1 - _RADIUS - _MIDDLE - _AGAIN
    rounds = most or _rounds(budget, lloyd, row_count, clusters, features)
    centres = np.rint(middle + _spread(clusters, features, 0.4 * radius, public))
    sizes, noise = np.zeros(clusters), 0.0
    for turn in range(rounds):
        sums, sizes, noise = _sums(meter, budget, lloyd / rounds, rows, centres, radius, 4)
        centres = _moved(centres, sums, sizes, noise, row_count / clusters)
        if turn < rounds // 2:
            centres = _reseeded(centres, sizes, row_count / clusters, radius, public)
        centres = np.rint(middle + shorten(np.rint(centres - middle), 2 * radius))
    blur = noise / np.maximum(sizes, 0.1 * row_count / clusters)
    return Clustering(centres, np.maximum(sizes, 0.0), rounds, blur, noise / max(1, radius // 4))


def _nearest(rows: Floats, centres: Floats) -> Integers:
    """Return each row's nearest centre, exactly: products and sums are integers below 2^53."""
    return np.asarray((np.einsum("ij,ij->i", centres, centres) - 2 * (rows @ centres.T)).argmin(axis=1))


def _sums(
    meter: PrivacyFilter,
    budget: BudgetShare,
    share: Fraction,
    look: Callable[[], Floats],
    centres: Floats,
    radius: int,
    part: int,
) -> tuple[Floats, Floats, float]:
    """Release for each centre the sum of its rows' differences, their number, and the noise on a sum.

    A row adds its difference, clipped to the radius, and radius/part as its count, to one cluster's numbers.
    """
    clusters, features = centres.shape
    unit = max(1, radius // part)
    loss = budget.part(share)
    law: DiscreteGaussian | DiscreteLaplace
    if budget.pure:
        law = DiscreteLaplace.for_loss(math.isqrt(features * radius**2) + 1 + unit, loss)
    else:
        law = DiscreteGaussian.for_loss(math.isqrt(radius**2 + unit**2) + 1, loss)

    def statistic() -> Integers:
        rows = look()
        nearest = _nearest(rows, centres)
        away = shorten(rows - centres[nearest], radius)
        sums = np.empty((clusters, features + 1), dtype=np.int64)
        for j in range(features):  # integers below 2^53 in every partial sum: exact
            sums[:, j] = np.bincount(nearest, weights=away[:, j], minlength=clusters).astype(np.int64)
        sums[:, features] = np.bincount(nearest, minlength=clusters) * unit
        return sums

    released = np.asarray(meter.release(statistic, law), dtype=np.float64)
    return released[:, :-1], released[:, -1] / unit, math.sqrt(law.variance)


def _rounds(budget: BudgetShare, share: Fraction, rows: float, clusters: int, features: int) -> int:
    """Return the largest number of rounds whose noise moves a typical centre by at most `_BLUR` radii."""
    amount = float(budget.part(share).amount)
    calm = _BLUR * rows / clusters / math.sqrt(features)  # the noise that a sum may have, in radii
    if budget.pure:
        most = calm * amount / math.sqrt(2) / (math.sqrt(features) + 0.25)
    else:
        most = calm**2 * 2 * amount / (1 + 1 / 16)
    return int(min(max(most, _FEWEST_ROUNDS), _MOST_ROUNDS))


def _moved(centres: Floats, sums: Floats, sizes: Floats, noise: float, usual: float) -> Floats:
    """Return the centres after a round. A sum that noise alone explains moves nothing (James-Stein positive part)."""
    length = np.maximum((sums**2).sum(axis=1, keepdims=True), 1e-9)
    trust = np.maximum(0.0, 1 - centres.shape[1] * noise**2 / length)
    return np.asarray(centres + trust * sums / np.maximum(sizes, 0.1 * usual)[:, None])


def _reseeded(centres: Floats, sizes: Floats, usual: float, radius: int, public: np.random.Generator) -> Floats:
    """Restart nearly empty centres beside the largest ones."""
    moved, left = centres.copy(), sizes.copy()
    for empty in np.flatnonzero(sizes < 0.05 * usual):
        largest = int(left.argmax())
        step = public.normal(size=centres.shape[1])
        moved[empty] = centres[largest] + 0.3 * radius * step / np.linalg.norm(step)
        left[largest] /= 2
    return moved


def _spread(count: int, features: int, radius: float, public: np.random.Generator) -> Floats:
    """Return well-separated points on a sphere by repulsion, chosen without the data."""
    points = public.normal(size=(count, features))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    for _ in range(100 if features > 1 and count <= 500 else 0):
        gaps = points[:, None] - points[None]
        pushes = (gaps / (np.square(gaps).sum(axis=-1, keepdims=True) ** 1.5 + 1e-6)).sum(axis=1)
        points += 0.1 * pushes / count
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    if features == 1:
        points = np.linspace(-1.0, 1.0, count)[:, None]
    return np.asarray(points * radius)
