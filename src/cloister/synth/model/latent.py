"""Latent classes of rows: columns are independent within a class, dependent across classes.

    classes = fit_classes(blocks, singles, pairs, total, shape, zeros, generator)
    classes.marginal((0, 3))

A row belongs to one of a few hundred latent classes; each class has its own shares of every column's values. Such a
model (Lazarsfeld's latent classes, a mixture of products) represents all pairs of columns at once, which no junction
tree of a feasible size does, and any marginal of it is a product of small matrices. It is fitted to noisy counts by
descent on squared distances, from several starting points whose classes are then combined: where the fits differ they
follow noise, and that part averages out. (Relaxed or generated rows that answer noisy queries: Aydore et al. 2021,
Liu, Vietri & Wu 2021.)

Columns with structural zeros between them are treated as one, a block, which has only the cells that can occur.

Privacy: everything is post-processing of released counts; randomness may come from numpy.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput
from cloister.synth.domain.axis import Cells
from cloister.synth.domain.domain import Domain, Positions, Zero
from cloister.synth.measure.marginals import Floats, NoisyMarginal
from cloister.synth.model.inference import Grain
from cloister.synth.model.sampling import systematic
from cloister.synth.model.swap_refinement import settle

__all__ = ["Block", "LatentClasses", "blocks_of", "fit_classes"]

_CLASSES, _STEPS, _PACE = 40, 1500, 0.05  # of each fit
_AT_ONCE = 16_384  # cells that are looked up together
_SLOPE, _SQUARE = 0.9, 0.999  # decay rates of the means of gradients, and of their squares


@dataclass(frozen=True, slots=True)
class Block:
    """Columns treated as one column of the combinations that can occur.

    Attributes:
        positions: the columns, in ascending order.
        shape: number of cells of each.
        cells: the combinations that can occur, as flat indices into a table of that shape.
    """

    positions: Positions
    shape: tuple[int, ...]
    cells: Cells

    def table(self, chances: Floats, wanted: frozenset[int]) -> Floats:
        """Return the probabilities of some of the columns: a row for each class."""
        full = np.zeros((len(chances), math.prod(self.shape)))
        full[:, self.cells] = chances
        axes = tuple(i for i, column in enumerate(self.positions, 1) if column not in wanted)
        return np.asarray(full.reshape(len(chances), *self.shape).sum(axis=axes)).reshape(len(chances), -1)


def blocks_of(domain: Domain) -> tuple[Block, ...]:
    """Return the columns of a domain, with those tied by a rule as one block."""
    part = list(range(len(domain.shape)))
    for zero in domain.zeros:
        tied = {part[column] for column in zero.positions}
        part = [min(tied) if label in tied else label for label in part]
    blocks = []
    for first in sorted(set(part)):
        positions = tuple(column for column, label in enumerate(part) if label == first)
        shape = tuple(domain.shape[column] for column in positions)
        allowed = np.ones(shape, dtype=bool)
        for zero in domain.zeros:
            if set(zero.positions) <= set(positions):
                sides = [domain.shape[column] if column in zero.positions else 1 for column in positions]
                allowed &= zero.allowed.reshape(sides)
        blocks.append(Block(positions, shape, np.flatnonzero(allowed)))
    return tuple(blocks)


@dataclass(frozen=True, slots=True)
class LatentClasses:
    """A distribution over all modelled columns with the interface of `inference.AnyModel`.

    Attributes:
        shares: shares of the classes.
        chances: for each block the probabilities of its cells in each class.
        blocks: the blocks of columns.
        shape: number of cells of each column.
        zeros: structural zeros.
        total: number of rows it represents.
    """

    shares: Floats
    chances: tuple[Floats, ...]
    blocks: tuple[Block, ...]
    shape: tuple[int, ...]
    zeros: tuple[Zero, ...]
    total: float

    @property
    def grains(self) -> tuple[Grain, ...]:
        """Return the identity for every column: all cells are kept separate."""
        return tuple(Grain.whole(size) for size in self.shape)

    def asked(self) -> "LatentClasses":
        """Return the model itself: it has nothing to precompute."""
        return self

    def cells(self, positions: Positions) -> int:
        """Return the size of the largest table that a query about these columns needs."""
        sides = [self.shape[column] for column in positions]
        return max(math.prod(sides), len(self.shares) * math.prod(sides) // max(sides))

    def part_cells(self, positions: Positions) -> int:
        """Return the size of the largest table that `at` and `weighed` need: for each class the cells of a block."""
        wanted = frozenset(positions)
        sides = [[self.shape[column] for column in block.positions if column in wanted] for block in self.blocks]
        return len(self.shares) * max(math.prod(sizes) for sizes in sides)

    def at(self, positions: Positions, cells: Sequence[Cells]) -> Floats:
        """Return the expected rows in some cells only: for each column the cell of each of them."""
        where, rows = dict(zip(positions, cells, strict=True)), np.zeros(len(cells[0]))
        tables = [
            (inside, block.table(chances, frozenset(inside))) for inside, block, chances in self._inside(positions)
        ]
        for start in range(0, len(rows), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            chance = np.ones((len(self.shares), len(rows[some])))
            for inside, table in tables:
                sides = tuple(self.shape[column] for column in inside)
                chance *= table[:, np.ravel_multi_index(tuple(where[column][some] for column in inside), sides)]
            # No product of matrices: its last digits may depend on how many cells are listed, and that on rows.
            for share, probability in zip(self.shares, chance, strict=True):
                rows[some] += share * probability
        return self.total * rows

    def weighed(self, positions: Positions, weights: Sequence[Floats]) -> float:
        """Return the expected sum over rows of the product of their cells' weights."""
        by_column, chance = dict(zip(positions, weights, strict=True)), self.shares
        for inside, block, chances in self._inside(positions):
            table = block.table(chances, frozenset(inside)).reshape(
                len(chance), *(self.shape[column] for column in inside)
            )
            for column in reversed(inside):
                table = table @ by_column[column]
            chance = chance * table
        return float(self.total * chance.sum())

    def _inside(self, positions: Positions) -> list[tuple[Positions, Block, Floats]]:
        """Return the blocks that hold some of these columns, and which."""
        parts = []
        for block, chances in zip(self.blocks, self.chances, strict=True):
            inside = tuple(column for column in block.positions if column in positions)
            if inside:
                parts.append((inside, block, chances))
        return parts

    def marginal(self, positions: Positions) -> Floats:
        """Return the expected rows in each cell of some columns, in ascending order."""
        order: list[int] = []
        tables = []
        for inside, block, chances in self._inside(positions):
            order += inside
            tables.append(block.table(chances, frozenset(inside)))
        left = self.shares[:, None] * self.total
        for table in tables[:-1]:
            left = (left[:, :, None] * table[:, None, :]).reshape(len(left), -1)
        joint = (left.T @ tables[-1]).reshape([self.shape[column] for column in order])
        return np.asarray(joint.transpose(np.argsort(order)))

    def draw(self, rows: int, generator: np.random.Generator, given: Mapping[int, Floats] | None = None) -> Cells:
        """Sample the cells of rows: a class for each, then block after block; then refine by swaps.

        Args:
            rows: number of rows.
            generator: any random generator: no protection depends on it.
            given: for some columns the weight of each cell, from 0 to 1.
        """
        model = self._given(given) if given else self
        member = systematic(model.shares[None, :], np.zeros(rows, dtype=np.int64), generator)
        cells = np.zeros((rows, len(self.shape)), dtype=np.int64)
        filled: list[int] = []
        for block, chances in zip(model.blocks, model.chances, strict=True):
            picked = systematic(chances, member, generator, [cells[:, column] for column in filled])
            for index, column in zip(block.positions, np.unravel_index(block.cells[picked], block.shape), strict=True):
                cells[:, index] = column
            filled += block.positions
        settle(cells, model, generator)
        return cells

    def _given(self, given: Mapping[int, Floats]) -> "LatentClasses":
        """Return the model conditioned on some columns being in some of their cells."""
        shares, narrowed = self.shares, []
        for block, chances in zip(self.blocks, self.chances, strict=True):
            at = np.unravel_index(block.cells, block.shape)
            allowed = np.ones(len(block.cells))
            for column, cells in zip(block.positions, at, strict=True):
                if column in given:
                    allowed *= given[column][cells]
            left = chances * allowed
            sums = left.sum(axis=1)
            shares = shares * sums
            narrowed.append(np.divide(left, sums[:, None], out=left, where=sums[:, None] > 0))
        if not shares.sum() > 0:
            raise BadInput("no row of the model meets this condition. Ask for a wider one.")
        never = tuple(Zero((column,), cells > 0) for column, cells in given.items())
        return replace(self, shares=shares / shares.sum(), chances=tuple(narrowed), zeros=(*self.zeros, *never))


def fit_classes(
    blocks: Sequence[Block],
    singles: Sequence[NoisyMarginal],
    pairs: Sequence[NoisyMarginal],
    total: float,
    domain: Domain,
    fits: int,
    generator: np.random.Generator,
    tell: Callable[[float], None],
) -> LatentClasses:
    """Fit classes to the measured one-way and two-way marginals of blocks.

    Args:
        blocks: the blocks of columns.
        singles: the noisy counts of each block.
        pairs: those of all pairs of blocks, in the order of `itertools.combinations`; none if there is one block.
        total: number of rows.
        domain: the domain.
        fits: number of fits from different starting points, whose classes are combined.
        generator: random generator of the starting points.
        tell: called with the completed share of the work.
    """
    goal = _Goal.of(blocks, singles, pairs, total)
    fitted = []
    for number in range(fits):
        fitted.append(_descend(goal, generator))
        tell((number + 1) / fits)
    shares = np.concatenate([share for share, _ in fitted]) / fits
    chances = np.split(np.concatenate([chance for _, chance in fitted]), goal.starts[1:], axis=1)
    return LatentClasses(shares, tuple(chances), tuple(blocks), domain.shape, domain.zeros, total)


@dataclass(frozen=True, slots=True)
class _Goal:
    """Measurements as shares of the rows, with the cells of all blocks concatenated.

    Attributes:
        starts: the start of each block.
        block: the block of each cell.
        singles: the measured share of each cell.
        worth: weight of a squared distance to them, relative to one for pairs.
        pairs: the measured share of each two cells of different blocks; 0 for others.
        apart: 1 for cells of different blocks, 0 for others.
        least: a share that cannot be distinguished from noise.
    """

    starts: NDArray[np.int64]
    block: NDArray[np.int64]
    singles: Floats
    worth: Floats
    pairs: Floats
    apart: Floats
    least: float

    @classmethod
    def of(
        cls, blocks: Sequence[Block], singles: Sequence[NoisyMarginal], pairs: Sequence[NoisyMarginal], total: float
    ) -> "_Goal":
        sizes = [len(block.cells) for block in blocks]
        starts = np.cumsum([0, *sizes[:-1]])
        spans = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        block = np.repeat(np.arange(len(blocks)), sizes)
        table = np.zeros((len(block), len(block)))
        both = ((i, j) for i in range(len(blocks)) for j in range(i + 1, len(blocks)))
        for (i, j), pair in zip(both, pairs, strict=True):
            order = [pair.positions.index(column) for column in (*blocks[i].positions, *blocks[j].positions)]
            counts = pair.counts.transpose(order).reshape(math.prod(blocks[i].shape), -1)
            table[spans[i], spans[j]] = counts[np.ix_(blocks[i].cells, blocks[j].cells)] / total
            table[spans[j], spans[i]] = table[spans[i], spans[j]].T
        noise = np.array([max(float(np.mean(single.sigma)), 1e-9) for single in singles])
        usual = max(float(np.mean(pairs[0].sigma)), 1e-9) if pairs else float(noise.mean())
        alone = [single.counts.ravel()[block.cells] for single, block in zip(singles, blocks, strict=True)]
        return cls(
            starts,
            block,
            np.concatenate(alone) / total,
            ((usual / noise) ** 2)[block],
            table,
            (block[:, None] != block).astype(np.float64),
            float(noise.min()) / total,
        )


def _descend(goal: _Goal, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Fit shares of the classes and probabilities of cells by Adam (Kingma & Ba 2015) on their logarithms."""
    usual = 0.5 * np.log(np.maximum(goal.singles, goal.least))
    weights = [np.zeros(_CLASSES), usual + generator.standard_normal((_CLASSES, len(usual)))]
    slope, square = ([np.zeros_like(weight) for weight in weights] for _ in range(2))
    for step in range(1, _STEPS + 1):
        shares, chances = _likely(weights, goal)
        gap = (shares[:, None] * chances).T @ chances
        gap -= goal.pairs
        gap *= goal.apart
        alone = goal.worth * (shares @ chances - goal.singles)
        gradient = chances @ gap
        by_share = 0.5 * (gradient * chances).sum(axis=1) + chances @ alone
        by_chance = chances * shares[:, None] * (gradient + alone)
        sums = np.add.reduceat(by_chance, goal.starts, axis=1)
        slopes = [shares * (by_share - shares @ by_share), by_chance - chances * sums[:, goal.block]]
        for weight, first, second, now in zip(weights, slope, square, slopes, strict=True):
            first += (1 - _SLOPE) * (now - first)
            second += (1 - _SQUARE) * (now**2 - second)
            size = np.sqrt(second / (1 - _SQUARE**step)) + 1e-12
            weight -= _PACE / (1 - _SLOPE**step) * first / size
    return _likely(weights, goal)


def _likely(weights: Sequence[Floats], goal: _Goal) -> tuple[Floats, Floats]:
    """Return shares and probabilities from their unnormalised logarithms."""
    shares = np.exp(weights[0] - weights[0].max())
    chances = np.exp(weights[1] - np.maximum.reduceat(weights[1], goal.starts, axis=1)[:, goal.block])
    chances /= np.add.reduceat(chances, goal.starts, axis=1)[:, goal.block]
    return shares / shares.sum(), chances
