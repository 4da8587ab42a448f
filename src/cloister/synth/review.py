"""How far a model is from the table, bought for a small part of the spend.

Mean L1 distances over many marginals move by no more than one of them when a row is added, so they can be told almost
exactly: three numbers for all marginals of one, two and three columns, and one for each column. They are what the error
bars of a synthetic table come from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above
from cloister.privacy.purse import law
from cloister.synth.asking import LARGEST
from cloister.synth.domain import Places

if TYPE_CHECKING:
    from cloister.synth.inference import AnyModel, Asks
    from cloister.synth.marginals import Survey

__all__ = ["Review", "review", "rising"]

_GRID = 64  # distances are told in parts of a row
_MOST_SETS = 600  # marginals that are looked at, for each number of columns


@dataclass(frozen=True)
class Review:
    """Half the mean L1 distance between model and table, as a share of the rows.

    Attributes:
        ways: for marginals of one, two and three columns (as many as there are).
        columns: for each column, over the pairs that it is in (itself alone, if there is one column).
        margin: of `ways`: how far the noise may have moved each, with 95 % confidence.
        column_margin: of `columns`.
    """

    ways: tuple[float, ...]
    columns: tuple[float, ...]
    margin: float
    column_margin: float


def review(survey: "Survey", model: "AnyModel", loss: Loss) -> Review:
    """Buy the mean errors of a model.

    Privacy: the loss. Each mean of L1 distances moves by at most m rows with a unit of m rows, all of them together by
        m·√k in L2 and m·k in L1; the grid of 1/64 row adds one step each.
    """
    columns, asked = len(model.grains), model.asked()
    sets = _answered(_looked_at(columns), asked)
    numbers = min(3, columns) + columns
    step = -(-survey.most * _GRID // survey.whole) + 1
    noise = law(root_above(numbers * step**2), numbers * step, loss)

    def look() -> NDArray[np.int64]:
        survey.count(sets)
        far = {one: float(np.abs(asked.marginal(one) - survey.exact(one)).sum()) for one in sets}
        means = [np.mean([far[one] for one in sets if len(one) == k]) for k in range(1, min(3, columns) + 1)]
        pairs = min(2, columns)
        means += [np.mean([far[one] for one in sets if len(one) == pairs and i in one]) for i in range(columns)]
        return np.asarray(np.floor(np.array(means) * _GRID), dtype=np.int64)

    told = np.asarray(survey.meter.release(look, noise), dtype=np.float64) / _GRID
    half = 0.5 / max(model.total, 1.0)
    ways = min(3, columns)
    told[:ways] = rising(told[:ways])
    shares = np.clip(told * half, 0.0, 1.0)
    margin = float(noise.margin("0.95")) / _GRID * half
    return Review(tuple(map(float, shares[:ways])), tuple(map(float, shares[ways:])), margin, margin)


def rising(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The closest numbers that do not fall: more columns tell tables apart no worse, so what says so is noise.

    No number gets further from the truth than the worst of the given ones (isotonic regression).
    """
    count = range(len(values))
    return np.array([max(min(values[a : b + 1].mean() for b in count[i:]) for a in count[: i + 1]) for i in count])


def _looked_at(columns: int) -> list[Places]:
    """All marginals of one and two columns, and of three as many as time allows, spread evenly: a public choice."""
    found: list[Places] = []
    for k in range(1, min(3, columns) + 1):
        every = list(combinations(range(columns), k))
        if k == 3 and len(every) > _MOST_SETS:
            every = _spread(every, _MOST_SETS)
        found += every
    return found


def _answered(sets: Sequence[Places], asked: "Asks") -> list[Places]:
    """Without those of three columns whose answer needs a huge table, but for the smallest of them if all do.

    The model is released: what is left out depends on nobody's row beyond that.
    """
    triples = [one for one in sets if len(one) == 3]
    small = [one for one in triples if asked.cells(one) <= LARGEST] or sorted(triples, key=asked.cells)[:1]
    return [*(one for one in sets if len(one) < 3), *small]


def _spread(every: Sequence[Places], most: int) -> list[Places]:
    return [every[(i * len(every)) // most] for i in range(most)]
