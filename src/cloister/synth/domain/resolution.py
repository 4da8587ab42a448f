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
from cloister.synth.domain.domain import Domain, Positions
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
        fixed = {column for zero in domain.zeros for column in zero.positions}
        maps, inside = [], []
        for axis, grain, single in zip(domain.modelled, base, singles, strict=True):
            counts = nonnegative(smoothed(axis, single.counts, float(np.mean(single.sigma))), total)
            weights = np.asarray(np.bincount(grain.cells, counts, minlength=grain.size), dtype=np.float64)
            coarsest = np.zeros(grain.size, dtype=np.int64)
            ladder = [np.arange(grain.size), *ladder_of(axis, grain, weights), coarsest]
            maps.append(ladder)
            inside.append([_parts(weights, groups) for groups in ladder])
        level = [0 if column in fixed else len(maps[column]) - 1 for column in range(len(base))]
        sizes = [[int(groups.max()) + 1 for groups in ladder] for ladder in maps]
        return cls(base, maps, sizes, inside, level)

    @property
    def levels(self) -> int:
        """Return the number of levels; the last one is one group."""
        return len(self.maps[0])

    def size(self, position: int, level: int | None = None) -> int:
        """Return the number of groups of a column at a level, or at the model's level."""
        return self.sizes[position][self.level[position] if level is None else level]

    def shape(self) -> tuple[int, ...]:
        """Return the shape of the model."""
        return tuple(self.size(column) for column in range(len(self.base)))

    def shape_with(self, positions: Positions, level: int) -> list[int]:
        """Return the shape of the model if some columns were refined to a level."""
        shape = list(self.shape())
        for column in positions:
            shape[column] = self.size(column, min(level, self.level[column]))
        return shape

    def grains(self) -> tuple[Grain, ...]:
        """Return the map from the domain's cells to the model's cells."""
        model_grains = []
        for column, base in enumerate(self.base):
            level = self.level[column]
            model_grains.append(
                Grain(self.maps[column][level][base.cells], base.shares * self.inside[column][level][base.cells])
            )
        return tuple(model_grains)

    def refine(self, positions: Positions, level: int, factors: dict[Positions, Floats]) -> None:
        """Refine some columns to a level, and convert the model's factors: the distribution stays the same."""
        for column in positions:
            old = self.level[column]
            if level >= old:
                continue
            finer, coarser = self.maps[column][level], self.maps[column][old]
            take = np.zeros(int(finer.max()) + 1, dtype=np.int64)
            take[finer] = coarser
            for columns, factor in factors.items():
                if column in columns:
                    factors[columns] = factor.take(take, axis=columns.index(column))
            part = np.log(np.maximum(np.bincount(finer, self.inside[column][old]), _TINY))
            factors[(column,)] = factors.get((column,), 0.0) + part
            self.level[column] = level

    def merges(self, positions: Positions, level: int) -> Merges:
        """Return the map from the domain's cells to the groups of a level."""
        cell_maps: list[Cells | None] = []
        for column in positions:
            cells = self.maps[column][level][self.base[column].cells]
            cell_maps.append(None if int(cells.max()) + 1 == len(cells) else cells)
        return tuple(cell_maps) if any(cell_map is not None for cell_map in cell_maps) else ()

    def model_merges(self, positions: Positions, level: int) -> Merges:
        """Return the map from the model's cells to the groups of a level that is not finer."""
        merges: list[Cells | None] = []
        for column in positions:
            finer, coarser = self.maps[column][self.level[column]], self.maps[column][level]
            take = np.zeros(int(finer.max()) + 1, dtype=np.int64)
            take[finer] = coarser
            merges.append(None if int(coarser.max()) + 1 == len(take) else take)
        return tuple(merges) if any(merge is not None for merge in merges) else ()

    def at_level(self, table: Floats, positions: Positions, level: int) -> Floats:
        """Convert a table in the model's cells to a level; finer groups follow the column's one-way marginal."""
        for side, column in enumerate(positions):
            current = self.level[column]
            if level < current:
                finer, coarser = self.maps[column][level], self.maps[column][current]
                take = np.zeros(self.size(column, level), dtype=np.int64)
                take[finer] = coarser
                part = np.bincount(finer, self.inside[column][current])
                table = table.take(take, axis=side) * part.reshape(
                    [-1 if k == side else 1 for k in range(len(positions))]
                )
            for step in range(current, level):
                if table.shape[side] > self.size(column, step + 1):
                    table = np.moveaxis(np.tensordot(self._step(column, step), table, (1, side)), 0, side)
        return table

    def coarsen(self, table: NDArray[Any], positions: Positions, level: int) -> NDArray[Any]:
        """Sum a table at one level to the next; integers exactly."""
        for side, column in enumerate(positions):
            if table.shape[side] > self.size(column, level + 1):
                sums = self._step(column, level).astype(table.dtype, copy=False)
                table = np.moveaxis(np.tensordot(sums, table, (1, side)), 0, side)
        return table

    def _step(self, column: int, level: int) -> Floats:
        """Return the indicator matrix from the groups of a level to those of the next."""
        if (column, level) not in self._sums:
            finer, coarser = self.maps[column][level], self.maps[column][level + 1]
            sums = np.zeros((int(coarser.max()) + 1, int(finer.max()) + 1))
            sums[coarser, finer] = 1.0
            self._sums[column, level] = sums
        return self._sums[column, level]


def _parts(weights: Floats, groups: Cells) -> Floats:
    totals = np.bincount(groups, weights)[groups]
    count = np.bincount(groups)[groups]
    return np.asarray(np.where(totals > 0, weights / np.where(totals > 0, totals, 1.0), 1.0 / count))
