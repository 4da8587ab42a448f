"""Resolution of each column in a model: as coarse as the measurements allow.

A marginal measured in eight groups of ages says nothing about ages inside a group, so within a group ages follow the
column's one-way marginal. A model therefore needs eight cells of age until something finer is measured; its tables
stay small, and fits are fast. `Resolution` keeps the levels of every column and converts factors between them.

    level 0         the finest cells that a model distinguishes (coarsening.grains_of)
    level 1, 2, …   ever fewer groups of them (coarsening.ladder_of), each made of groups of the level before
    the last level  one group: the column by itself

Privacy: everything follows from released counts.
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

_TINY = 1e-7  # the smallest share of a group that a fit can begin with


@dataclass(slots=True)
class Resolution:
    """The levels of every column.

    Attributes:
        base: the finest cells of each column.
        maps: for each column and level, the group of each of its finest cells.
        sizes: for each column and level, the number of groups.
        inside: for each column and level, the share that each finest cell has of its group.
        level: the current level of each column in the model.
    """

    base: tuple[Grain, ...]
    maps: list[list[Cells]]
    sizes: list[list[int]]
    inside: list[list[Floats]]
    level: list[int]
    _sums: dict[tuple[int, int], Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, domain: Domain, singles: Sequence[NoisyMarginal], total: float, least: float) -> "Resolution":
        """Build the levels from noisy one-way marginals.

        Args:
            domain: the domain.
            singles: one marginal for each column.
            total: number of rows.
            least: number of standard errors of rows that a cell must hold to be kept separate.
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
        """Return the number of levels; the last one is one group."""
        return len(self.maps[0])

    def size(self, place: int, level: int | None = None) -> int:
        """Return the number of groups of a column at a level, or at the model's level."""
        return self.sizes[place][self.level[place] if level is None else level]

    def shape(self) -> tuple[int, ...]:
        """Return the shape of the model."""
        return tuple(self.size(place) for place in range(len(self.base)))

    def shape_with(self, places: Places, level: int) -> list[int]:
        """Return the shape of the model if some columns were refined to a level."""
        shape = list(self.shape())
        for place in places:
            shape[place] = self.size(place, min(level, self.level[place]))
        return shape

    def grains(self) -> tuple[Grain, ...]:
        """Return the map from the domain's cells to the model's cells."""
        found = []
        for place, base in enumerate(self.base):
            level = self.level[place]
            found.append(
                Grain(self.maps[place][level][base.cells], base.shares * self.inside[place][level][base.cells])
            )
        return tuple(found)

    def refine(self, places: Places, level: int, factors: dict[Places, Floats]) -> None:
        """Refine some columns to a level, and convert the model's factors: the distribution stays the same."""
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
        """Return the map from the domain's cells to the groups of a level."""
        found: list[Cells | None] = []
        for place in places:
            cells = self.maps[place][level][self.base[place].cells]
            found.append(None if int(cells.max()) + 1 == len(cells) else cells)
        return tuple(found) if any(one is not None for one in found) else ()

    def model_merges(self, places: Places, level: int) -> Merges:
        """Return the map from the model's cells to the groups of a level that is not finer."""
        found: list[Cells | None] = []
        for place in places:
            finer, coarser = self.maps[place][self.level[place]], self.maps[place][level]
            take = np.zeros(int(finer.max()) + 1, dtype=np.int64)
            take[finer] = coarser
            found.append(None if int(coarser.max()) + 1 == len(take) else take)
        return tuple(found) if any(one is not None for one in found) else ()

    def at_level(self, table: Floats, places: Places, level: int) -> Floats:
        """Convert a table in the model's cells to a level; finer groups follow the column's one-way marginal."""
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
        """Sum a table at one level to the next; integers exactly."""
        for side, place in enumerate(places):
            if table.shape[side] > self.size(place, level + 1):
                sums = self._step(place, level).astype(table.dtype, copy=False)
                table = np.moveaxis(np.tensordot(sums, table, (1, side)), 0, side)
        return table

    def _step(self, place: int, level: int) -> Floats:
        """Return the indicator matrix from the groups of a level to those of the next."""
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
