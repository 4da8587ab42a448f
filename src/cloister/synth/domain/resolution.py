"""How finely a model looks at each column: as coarsely as what was measured, and no finer.

A marginal that was measured in eight groups of ages says nothing about ages inside a group, so within a group ages
follow the column's own counts. A model therefore needs eight cells of age until something finer is measured; its tables
stay small, and fits are fast. `Resolution` keeps the levels of every column and moves factors between them.

    level 0         the cells that a model can keep apart at all (levels.grains_of)
    level 1, 2, …   ever fewer groups of them (levels.ladder_of), each made of groups of the level before
    the last level  one group: the column by itself

Privacy: all of it follows from counts that were released.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.synth.domain.axis import Cells
from cloister.synth.domain.coarsening import grains_of, ladder_of, nonnegative, smoothed
from cloister.synth.domain.domain import Domain, Places
from cloister.synth.measure.marginals import Floats, Merges, NoisyMarginal
from cloister.synth.model.inference import Grain

__all__ = ["Resolution"]

_TINY = 1e-7  # the least part of a group that a fit can begin with


@dataclass(slots=True)
class Resolution:
    """The levels of every column.

    Attributes:
        base: the finest cells of each column.
        maps: for each column and level the group of each of its finest cells.
        sizes: how many groups that are.
        inside: for each column and level what part of its group each of its finest cells is.
        level: of each column, as the model has it now.
    """

    base: tuple[Grain, ...]
    maps: list[list[Cells]]
    sizes: list[list[int]]
    inside: list[list[Floats]]
    level: list[int]
    _sums: dict[tuple[int, int], Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, domain: Domain, singles: Sequence[NoisyMarginal], total: float, least: float) -> "Resolution":
        """From noisy counts of every column.

        Args:
            domain: its cells.
            singles: one marginal for each column.
            total: how many rows there are.
            least: how many standard errors of rows a cell must hold to be kept apart.
        """
        base = grains_of(domain, singles, total, least)
        fixed = {place for zero in domain.zeros for place in zero.places}
        maps, inside = [], []
        for axis, grain, single in zip(domain.modelled, base, singles, strict=True):
            own = nonnegative(smoothed(axis, single.counts, float(np.mean(single.sigma))), total)
            held = np.asarray(np.bincount(grain.cells, own, minlength=grain.size), dtype=np.float64)
            whole = np.zeros(grain.size, dtype=np.int64)
            ladder = [np.arange(grain.size), *ladder_of(axis, grain, held), whole]
            maps.append(ladder)
            inside.append([_parts(held, groups) for groups in ladder])
        level = [0 if place in fixed else len(maps[place]) - 1 for place in range(len(base))]
        sizes = [[int(groups.max()) + 1 for groups in ladder] for ladder in maps]
        return cls(base, maps, sizes, inside, level)

    @property
    def levels(self) -> int:
        """How many levels there are; the last one is one group."""
        return len(self.maps[0])

    def size(self, place: int, level: int | None = None) -> int:
        """How many groups a column has at a level, or as the model has it."""
        return self.sizes[place][self.level[place] if level is None else level]

    def shape(self) -> tuple[int, ...]:
        """Of the model."""
        return tuple(self.size(place) for place in range(len(self.base)))

    def shape_with(self, places: Places, level: int) -> list[int]:
        """Of the model, if some columns were needed at a level."""
        shape = list(self.shape())
        for place in places:
            shape[place] = self.size(place, min(level, self.level[place]))
        return shape

    def grains(self) -> tuple[Grain, ...]:
        """How the domain's cells lie in those of the model."""
        found = []
        for place, base in enumerate(self.base):
            level = self.level[place]
            found.append(
                Grain(self.maps[place][level][base.cells], base.shares * self.inside[place][level][base.cells])
            )
        return tuple(found)

    def refine(self, places: Places, level: int, factors: dict[Places, Floats]) -> None:
        """Have some columns at a level or finer, and move the model's factors along: it stays the same distribution."""
        for place in places:
            old = self.level[place]
            if level >= old:
                continue
            finer, coarser = self.maps[place][level], self.maps[place][old]
            take = np.zeros(int(finer.max()) + 1, dtype=np.int64)
            take[finer] = coarser
            for columns, factor in factors.items():
                if place in columns:
                    factors[columns] = factor.take(take, axis=columns.index(place))
            part = np.log(np.maximum(np.bincount(finer, self.inside[place][old]), _TINY))
            factors[(place,)] = factors.get((place,), 0.0) + part
            self.level[place] = level

    def merges(self, places: Places, level: int) -> Merges:
        """From the domain's cells to the groups of a level."""
        found: list[Cells | None] = []
        for place in places:
            cells = self.maps[place][level][self.base[place].cells]
            found.append(None if int(cells.max()) + 1 == len(cells) else cells)
        return tuple(found) if any(one is not None for one in found) else ()

    def model_merges(self, places: Places, level: int) -> Merges:
        """From the model's cells to the groups of a level that is not finer."""
        found: list[Cells | None] = []
        for place in places:
            finer, coarser = self.maps[place][self.level[place]], self.maps[place][level]
            take = np.zeros(int(finer.max()) + 1, dtype=np.int64)
            take[finer] = coarser
            found.append(None if int(coarser.max()) + 1 == len(take) else take)
        return tuple(found) if any(one is not None for one in found) else ()

    def at_level(self, table: Floats, places: Places, level: int) -> Floats:
        """A table in the model's cells, in the groups of a level; finer groups follow the column's own counts."""
        for side, place in enumerate(places):
            own = self.level[place]
            if level < own:
                finer, coarser = self.maps[place][level], self.maps[place][own]
                take = np.zeros(self.size(place, level), dtype=np.int64)
                take[finer] = coarser
                part = np.bincount(finer, self.inside[place][own])
                table = table.take(take, axis=side) * part.reshape([-1 if k == side else 1 for k in range(len(places))])
            for step in range(own, level):
                if table.shape[side] > self.size(place, step + 1):
                    table = np.moveaxis(np.tensordot(self._step(place, step), table, (1, side)), 0, side)
        return table

    def coarsen(self, table: NDArray[Any], places: Places, level: int) -> NDArray[Any]:
        """A table at one level, summed to the next; integers exactly."""
        for side, place in enumerate(places):
            if table.shape[side] > self.size(place, level + 1):
                sums = self._step(place, level).astype(table.dtype, copy=False)
                table = np.moveaxis(np.tensordot(sums, table, (1, side)), 0, side)
        return table

    def _step(self, place: int, level: int) -> Floats:
        """Which groups of a level are which group of the next one."""
        if (place, level) not in self._sums:
            finer, coarser = self.maps[place][level], self.maps[place][level + 1]
            sums = np.zeros((int(coarser.max()) + 1, int(finer.max()) + 1))
            sums[coarser, finer] = 1.0
            self._sums[place, level] = sums
        return self._sums[place, level]


def _parts(held: Floats, groups: Cells) -> Floats:
    whole = np.bincount(groups, held)[groups]
    count = np.bincount(groups)[groups]
    return np.asarray(np.where(whole > 0, held / np.where(whole > 0, whole, 1.0), 1.0 / count))
