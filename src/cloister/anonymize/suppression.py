"""Which classes of a generalised table are suppressed, so that those that stay satisfy every model.

Most models judge each class by itself: exactly the classes that fail are suppressed, and nothing else would do.
t-closeness and beta-likeness compare a class with the release, which changes with every class that is taken out; the
smallest set of classes is then a hard problem. `suppress` takes out classes that must go in any case, then the ones
that miss the models most, a few at a time, and puts back what may come back. `Suppression.least` is what no set of
classes can do without, so that a search knows what is proven.
"""

from dataclasses import dataclass

import numpy as np

from cloister.anonymize.classes import EquivalenceClasses
from cloister.anonymize.coded import Array
from cloister.anonymize.models import Requirement

__all__ = ["Suppression", "suppress"]

_STEP = 8  # of the classes that fail, one part in so many is suppressed at once
_MOST_RETURNS = 64  # classes that are tried again


@dataclass(frozen=True)
class Suppression:
    """The classes that stay.

    Attributes:
        kept: for each class whether it is released; none is if no set of classes is.
        least: for each class whether every solution suppresses it.
    """

    kept: Array
    least: Array

    @property
    def exact(self) -> bool:
        """Return True if no other set of classes suppresses less."""
        return bool((self.kept | self.least).all())


def suppress(
    requirement: Requirement, classes: EquivalenceClasses, room: int | None = None, least: Array | None = None
) -> Suppression:
    """Return the classes to release, all of which satisfy the requirement.

    Args:
        requirement: what every class must satisfy.
        classes: of a generalised table.
        room: the most rows that may be suppressed; None means all. More are suppressed if it cannot be met.
        least: what `requirement.least_removed` says of them, if that is known.
    """
    present = classes.sizes > 0
    most = int(classes.sizes.sum()) if room is None else room
    rows = requirement.least_removed(classes, most) if least is None else least
    must = ~present | (rows > 0)
    kept = _settled(requirement, classes, ~must) if requirement.relative else ~must
    if (requirement.needed(classes) & ~kept).any():
        kept = np.zeros(classes.number, bool)
    return Suppression(kept, must)


def _settled(requirement: Requirement, classes: EquivalenceClasses, start: Array) -> Array:
    """Return classes among `start` that satisfy the relative models as a release."""
    solutions = [_fewer(requirement, classes, start, step) for step in (_STEP, 1)]
    best = max(solutions, key=lambda kept: int(classes.sizes[kept].sum()))
    gone = np.flatnonzero(start & ~best)
    for number in gone[np.argsort(-classes.sizes[gone], kind="stable")][:_MOST_RETURNS]:
        wider = best.copy()
        wider[number] = True
        if not (wider & (_strain(requirement, classes, wider) > 0)).any():
            best = wider
    return best


def _fewer(requirement: Requirement, classes: EquivalenceClasses, kept: Array, step: int) -> Array:
    """Take out the classes that miss the models most, until none does."""
    kept = kept.copy()
    while True:
        strain = np.where(kept, _strain(requirement, classes, kept), 0.0)
        failing = int(np.count_nonzero(strain))
        if not failing:
            return kept
        kept[np.argsort(-strain, kind="stable")[: -(-failing // step)]] = False


def _strain(requirement: Requirement, classes: EquivalenceClasses, kept: Array) -> Array:
    return np.asarray(np.max([model.strain(classes, kept) for model in requirement.relative], axis=0))
