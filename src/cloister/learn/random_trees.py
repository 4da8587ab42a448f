"""A forest of random trees (the textbook's), exact: structure by public chance, and only the leaves look at rows.

Every row is in one tree, by a throw of its own, and in one leaf of it; so all leaves of all trees cost what one does.
A leaf is labelled with a class by permute-and-flip (exponential for a rho) on its class counts: the textbook's
exponential mechanism on label frequencies, with the sensitivity 1 that counts have.
"""

from fractions import Fraction

import numpy as np

from cloister.learn.binned import BinnedRows, public_generator
from cloister.learn.exact import Integers
from cloister.learn.frame import Floats
from cloister.learn.growth import Tree
from cloister.learn.purse import Purse
from cloister.learn.splits import Apart
from cloister.privacy.mechanisms import Exponential, PermuteAndFlip
from cloister.privacy.meter import Meter
from cloister.privacy.noise import uniform

__all__ = ["grow_at_random"]

_DOUBT = 0.05  # what a leaf leaves to the other classes, so that no row is called impossible


def grow_at_random(meter: Meter, budget: Purse, data: BinnedRows, depth: int, count: int) -> list[Tree]:
    """Grow the forest.

    Args:
        meter, budget: pay.
        data: the rows.
        depth: how many splits lie on the way to a leaf.
        count: how many trees.

    Privacy: the budget, once: a row added or removed moves one count of one leaf by one. Which tree it is in follows
        from a coin that nobody is told.
    """
    assert data.classes is not None
    classes, public = len(data.classes), public_generator(meter.source)
    shapes = [_structure(data, depth, public) for _ in range(count)]

    def counts() -> list[Integers]:
        rows, labels = data.look()
        own = uniform(count, (len(rows),), meter.source)
        found: list[Integers] = []
        for tree, shape in enumerate(shapes):
            place = shape.leaves(rows[own == tree]) * classes + labels[own == tree]
            found.extend(np.bincount(place, minlength=2**depth * classes).reshape(-1, classes).astype(np.int64))
        return found

    kind = PermuteAndFlip if budget.pure else Exponential
    choice = Apart(kind.for_loss(1, budget.part(Fraction(1)), monotone=True))
    labels = np.asarray(meter.release(counts, choice)).reshape(count, -1)
    return [
        Tree(one.axes, one.features, one.cells, _shares(leaf, classes))
        for one, leaf in zip(shapes, labels, strict=True)
    ]


def _structure(data: BinnedRows, depth: int, public: np.random.Generator) -> Tree:
    """A full tree whose splits are drawn from the public cells."""
    features, cells = [], []
    for level in range(depth):
        drawn = public.integers(len(data.axes), size=2**level)
        features.append(drawn)
        cells.append(
            np.array([public.integers(data.axes[i].size - data.axes[i].ordered) for i in drawn], dtype=np.int64)
        )
    return Tree(data.axes, tuple(features), tuple(cells), np.zeros((2**depth, 1)))


def _shares(labels: Integers, classes: int) -> Floats:
    shares = np.full((len(labels), classes), _DOUBT / max(classes - 1, 1))
    shares[np.arange(len(labels)), labels] = 1 - _DOUBT
    return shares
