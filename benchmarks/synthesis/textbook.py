"""The case study's own pipeline, as far as the textbook states it, to be compared. NOT PRIVATE, whatever its epsilon.

    1  sets of columns from raw correlations (agglomerative, average linkage)
    2  in each set groups of k rows by MDAV: the row farthest from the mean with its k - 1 nearest, then the row that is
       farthest from that one with its own, until fewer than 3k are left
    3  mean and products of each group, with Laplace noise for 2d/k and d²/k, half of the epsilon each
    4  as many rows from each group's Gaussian, within ±1; sets joined row by row

The textbook gives no noise: this is the one that its claim (a group of k has the sensitivity of a mean of k) leads to,
with the epsilon divided among the sets, since a row is in a group of each. It protects nobody: one row more moves all
groups, and correlations and sizes are read off the rows. Classes are made each by themselves.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from cloister.lessons.public_data import PublicData
from cloister.synth.measure.attribute_sets import attribute_sets
from cloister.synth.model.gaussian import nearest_covariance

__all__ = ["mdav", "textbook"]

Floats = NDArray[np.float64]


def textbook(source: PublicData, epsilon: float, size: int, seed: int, cut: float = 0.95) -> PublicData:
    """Rows as the textbook makes them; without any noise at an infinite epsilon."""
    generator = np.random.default_rng([seed, size])
    strength = np.nan_to_num(np.abs(np.corrcoef(source.rows.T)))
    sets = attribute_sets(strength, "average", cut, len(strength))
    made = np.empty_like(source.rows)
    for kind in (0, 1):
        rows = np.flatnonzero(source.label == kind)
        for columns in sets:
            own = source.rows[np.ix_(rows, columns)]
            drawn = [_drawn(own[group], epsilon / len(sets), generator) for group in mdav(own, size)]
            # Sets are independent: a row's group in one says nothing about its group in another.
            made[np.ix_(rows, columns)] = generator.permutation(np.concatenate(drawn)) if drawn else own
    return PublicData(source.name, made, source.label)


def mdav(rows: Floats, size: int) -> list[NDArray[np.int64]]:
    """Groups of `size` rows, the last with up to 2 * size - 1 (Domingo-Ferrer & Mateo-Sanz 2002)."""
    left, groups = np.arange(len(rows)), []

    def take(far: Floats) -> Floats:
        nonlocal left
        seed = rows[left[np.argmax(far)]]
        near = np.argsort(((rows[left] - seed) ** 2).sum(axis=1), kind="stable")
        groups.append(left[near[:size]])
        left = np.sort(left[near[size:]])
        return seed

    while len(left) >= 3 * size:
        seed = take(((rows[left] - rows[left].mean(axis=0)) ** 2).sum(axis=1))
        take(((rows[left] - seed) ** 2).sum(axis=1))
    if len(left) >= 2 * size:
        take(((rows[left] - rows[left].mean(axis=0)) ** 2).sum(axis=1))
    return [*groups, left] if len(left) else groups


def _drawn(rows: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    count, width = rows.shape
    mean, second = rows.mean(axis=0), rows.T @ rows / count
    if epsilon < inf:
        mean = mean + generator.laplace(0, 2 * width / count / (epsilon / 2), width)
        noise = np.triu(generator.laplace(0, width**2 / count / (epsilon / 2), (width, width)))
        second = second + noise + np.triu(noise, 1).T
    spread = nearest_covariance(second - np.outer(mean, mean), 1e-4)
    root = np.linalg.cholesky(spread)
    return np.clip(mean + generator.standard_normal((count, width)) @ root.T, -1.0, 1.0)
