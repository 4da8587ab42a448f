"""Drawn rows matched to the shares that cells of a column should have, with as little change as can be.

    cell = ranked(values, absent, kind, wanted, known, generator)    # numbers keep their ranks
    chances = raked(chances, kind, wanted)                           # chances of categories are scaled

Privacy: post-processing of released shares.
"""

import numpy as np

from cloister.synth.axes import Cells
from cloister.synth.marginals import Floats

__all__ = ["raked", "ranked"]

_ROUNDS = 6


def ranked(
    values: Floats, absent: Floats, kind: Cells, wanted: Floats, known: int, generator: np.random.Generator
) -> Cells:
    """The cell of each number: in each class the lowest values get the first cells, as many as these should have.

    Args:
        values: of each row.
        absent: how likely each row's number is missing, up to a factor.
        kind: the class of each row.
        wanted: for each class the share of each cell; a last one more than `known` stands for missing numbers.
        known: how many cells hold numbers.
        generator: of chance.
    """
    cell = np.zeros(len(values), dtype=np.int64)
    for one in np.unique(kind):
        rows = np.flatnonzero(kind == one)
        shares = wanted[one]
        missing = float(shares[known:].sum())
        likely = absent[rows] + 1e-9
        gone = generator.random(len(rows)) < likely * (missing / likely.mean())
        cell[rows[gone]] = known
        left = rows[~gone]
        bounds = np.cumsum(shares[:known])
        order = np.argsort(values[left], kind="stable")
        spot = (np.arange(len(left)) + generator.random()) / max(1, len(left)) * bounds[-1]
        cell[left[order]] = np.minimum(np.searchsorted(bounds, spot, side="right"), known - 1)
    return cell


def raked(chances: Floats, kind: Cells, wanted: Floats) -> Floats:
    """Chances of categories whose mean in each class is as wanted: scaled by category and by row in turns."""
    found = chances.copy()
    for one in np.unique(kind):
        rows = kind == one
        own, shares = found[rows], wanted[one]
        for _ in range(_ROUNDS):
            own = own * (shares / np.maximum(own.mean(axis=0), 1e-12))
            own = own / np.maximum(own.sum(axis=1, keepdims=True), 1e-12)
        found[rows] = own
    return found
