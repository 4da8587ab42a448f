"""Fit one model to noisy marginals: the maximum-entropy distribution closest to all of them.

    model = fit(shape, marginals)              # mirror descent over the marginals of a junction tree
    model.marginal((0, 3))                     # its expectation of any columns
    model = fit(shape, [*marginals, another], start=model)     # starts from the last fit

The model is a product of factors over the cliques of a junction tree; its marginals are computed exactly by belief
propagation. The objective is the sum of squared distances to the noisy counts, each divided by its variance
(McKenna, Sheldon & Miklau 2019). Everything is post-processing: no row is read here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.special import logsumexp

from cloister.synth.domain.axis import Cells
from cloister.synth.domain.domain import Positions, Zero
from cloister.synth.measure.marginals import Floats, NoisyMarginal
from cloister.synth.model.junction_tree import JunctionTree, junction_tree

if TYPE_CHECKING:
    from cloister.synth.model.marginal_oracle import MarginalOracle

__all__ = ["AnyModel", "Asks", "Grain", "Model", "fit", "clique_weights", "propagate", "total_of"]

_TINY = 1e-200  # sums of probabilities below this have lost digits
_STILL, _PATIENCE = 0.002, 25  # a fit ends when the loss falls by less than this in that many steps
_STANDING = 1e-9  # of the usual step


@dataclass(frozen=True, slots=True)
class Grain:
    """Map from the cells of a column to the fewer cells of a model.

    Attributes:
        cells: the model's cell that holds each cell of the column.
        shares: the share of the model's cell that each cell has.
    """

    cells: Cells
    shares: Floats

    @classmethod
    def whole(cls, size: int) -> "Grain":
        """Return the identity: the model keeps all cells of the column separate."""
        return cls(np.arange(size), np.ones(size))

    @property
    def size(self) -> int:
        """Return the number of cells of the column in the model."""
        return int(self.cells.max()) + 1


@dataclass(slots=True)
class Model:
    """A distribution over all modelled columns.

    Attributes:
        shape: number of cells of each column.
        tree: the junction tree.
        factors: for each measured set of columns the logarithm of its factor.
        total: number of rows it represents.
        grains: maps from the domain's cells to the model's cells.
        beliefs: for each clique its marginal, with sum one.
        pace: step size of the last fit, where the next one starts.
    """

    shape: tuple[int, ...]
    tree: JunctionTree
    factors: dict[Positions, Floats]
    zeros: tuple[Zero, ...]
    total: float
    grains: tuple[Grain, ...]
    beliefs: list[Floats] = field(default_factory=list)
    pace: float = 0.0

    def marginal(self, positions: Positions) -> Floats:
        """Return the expected rows in each cell of some columns of the domain, in ascending order."""
        return self.asked().marginal(positions)

    def asked(self) -> "MarginalOracle":
        """Return an oracle for many queries at once."""
        from cloister.synth.model.marginal_oracle import MarginalOracle

        return MarginalOracle(self)

    def draw(self, rows: int, generator: np.random.Generator, given: Mapping[int, Floats] | None = None) -> Cells:
        """Sample the cells of rows; see `sampling.draw`."""
        from cloister.synth.model.sampling import draw

        return draw(self, rows, generator, given)


class Asks(Protocol):
    """A model prepared for several queries."""

    def cells(self, positions: Positions) -> int:
        """Return the size of the largest table that a query about these columns needs."""
        ...

    def part_cells(self, positions: Positions) -> int:
        """Return the size of the largest table that `at` and `weighed` need."""
        ...

    def marginal(self, positions: Positions) -> Floats:
        """Return the expected rows in each cell of some columns of the domain, in ascending order."""
        ...

    def at(self, positions: Positions, cells: Sequence[Cells]) -> Floats:
        """Return the expected rows in some cells of the domain only: for each column the cell of each of them."""
        ...

    def weighed(self, positions: Positions, weights: Sequence[Floats]) -> float:
        """Return the expected sum over rows of the product of their cells' weights."""
        ...


class AnyModel(Protocol):
    """Interface that a synthetic table needs of a model: queries and sampling."""

    @property
    def total(self) -> float:
        """Return the number of rows it represents."""
        ...

    @property
    def grains(self) -> tuple[Grain, ...]:
        """Return the maps from the domain's cells to the model's cells."""
        ...

    def marginal(self, positions: Positions) -> Floats:
        """Return the expected rows in each cell of some columns of the domain, in ascending order."""
        ...

    def asked(self) -> Asks:
        """Return the model prepared for many queries at once."""
        ...

    def draw(self, rows: int, generator: np.random.Generator, given: Mapping[int, Floats] | None = None) -> Cells:
        """Sample the cells of rows, one column per modelled column; `given` weights some columns' cells, 0 to 1."""
        ...


def total_of(marginals: Sequence[NoisyMarginal]) -> float:
    """Estimate the number of rows from the totals of noisy marginals: the mean of least variance."""
    worth = np.array(
        [1 / (np.mean(np.maximum(marginal.sigma, 1e-9) ** 2) * marginal.counts.size) for marginal in marginals]
    )
    totals = np.array([marginal.counts.sum() for marginal in marginals])
    return max(1.0, float((worth * totals).sum() / worth.sum()))


def fit(
    shape: Sequence[int],
    marginals: Sequence[NoisyMarginal],
    *,
    zeros: Sequence[Zero] = (),
    total: float | None = None,
    grains: Sequence[Grain] | None = None,
    start: Model | None = None,
    steps: int = 200,
    enough: float = 1.0,
    watch: Callable[[int, float], None] | None = None,
) -> Model:
    """Fit a model to noisy marginals.

    Args:
        shape: number of cells of each column in the model.
        marginals: the measurements, in these cells.
        zeros: structural zeros.
        total: number of rows; estimated unless given.
        grains: maps from the domain's cells to the model's cells; the identity unless given.
        start: a model to start from.
        steps: maximum number of steps of mirror descent.
        enough: stop when the loss is this share of the loss expected from noise alone. A closer fit would fit noise.
        watch: called with each step and its loss.
    """
    rows = total_of(marginals) if total is None else total
    tree = junction_tree(shape, [*(marginal.positions for marginal in marginals), *(zero.positions for zero in zeros)])
    all_grains = tuple(grains) if grains is not None else tuple(Grain.whole(size) for size in shape)
    factors = {} if start is None else {positions: factor.copy() for positions, factor in start.factors.items()}
    model = Model(tuple(shape), tree, factors, tuple(zeros), rows, all_grains)
    terms = _terms(marginals, tree, shape, rows)
    noise = 0.5 * enough * sum(term.target.size for term in terms)
    model.pace = _descend(model, terms, steps, noise, 0.0 if start is None else start.pace, watch)
    return model


def clique_weights(model: Model) -> list[Floats]:
    """Return for each clique the logarithm of its factor, from those of the sets of columns that it holds."""
    tree, shape = model.tree, model.shape
    weights = [np.zeros([shape[column] for column in clique]) for clique in tree.cliques]
    never = [(zero.positions, np.where(zero.allowed, 0.0, -np.inf)) for zero in model.zeros]
    for positions, factor in [*model.factors.items(), *never]:
        home = tree.home(positions, shape)
        weights[home] += _spread(factor, positions, tree.cliques[home])
    return weights


def _spread(table: Floats, positions: Positions, clique: Positions) -> Floats:
    """Reshape a table over some columns of a clique to broadcast over all of them."""
    sizes = dict(zip(positions, table.shape, strict=True))
    return table.reshape([sizes.get(column, 1) for column in clique])


@dataclass(slots=True)
class _Term:
    """One noisy marginal as a part of the loss, in shares of the total.

    Attributes:
        home: the clique that holds its columns.
        kept: the shape of its table in that clique.
        source: the earlier term whose table it is summed from; -1 for the clique itself.
        axes: axes of the source that are summed out.
        target: the measurement.
        worth: one over its variance.
        merges, takes: from its columns' cells to the measured ones, as sums and as indices.
    """

    positions: Positions
    home: int
    kept: tuple[int, ...]
    target: Floats
    worth: float | Floats
    source: int = -1
    axes: tuple[int, ...] = ()
    merges: tuple[Floats, ...] | None = None
    takes: tuple[Cells, ...] | None = None

    @classmethod
    def of(cls, one: NoisyMarginal, tree: JunctionTree, shape: Sequence[int], total: float) -> "_Term":
        """Return the term of a marginal in a tree."""
        home = tree.home(one.positions, shape)
        sides = tuple(shape[column] if column in one.positions else 1 for column in tree.cliques[home])
        term = cls(one.positions, home, sides, one.counts / total, (total / np.maximum(one.sigma, 1e-9)) ** 2)
        if any(merge is not None for merge in one.merges):
            term.takes = tuple(
                np.arange(shape[column]) if merge is None else merge
                for column, merge in zip(one.positions, one.merges, strict=True)
            )
            term.merges = tuple(
                (np.arange(int(take.max()) + 1)[:, None] == take).astype(np.float64) for take in term.takes
            )
        return term

    def residual(self, table: Floats) -> Floats:
        """Return the difference between the model, given its table of these columns, and the measurement."""
        if self.merges is not None:
            for side, merge in enumerate(self.merges):
                if len(merge) < table.shape[side]:
                    table = np.moveaxis(np.tensordot(merge, table, (1, side)), 0, side)
        return table - self.target

    def slope(self, residual: Floats) -> Floats:
        """Return the gradient, by the cells of its columns."""
        slope = residual * self.worth
        return slope if self.takes is None else slope[np.ix_(*self.takes)]


def _terms(marginals: Sequence[NoisyMarginal], tree: JunctionTree, shape: Sequence[int], total: float) -> list[_Term]:
    """Return the terms of the loss, larger ones first: a table is summed from the smallest that has its columns."""
    every = [_Term.of(marginal, tree, shape, total) for marginal in marginals]
    every.sort(key=lambda term: -math.prod(term.kept))
    for number, term in enumerate(every):
        wanted = set(term.positions)
        above = [i for i in range(number) if wanted <= set(every[i].positions)]
        columns = tree.cliques[term.home]
        if above:
            term.source = min(above, key=lambda i: math.prod(every[i].kept))
            columns = every[term.source].positions
        term.axes = tuple(i for i, column in enumerate(columns) if column not in wanted)
    return every


def _residuals(terms: Sequence[_Term], beliefs: Sequence[Floats]) -> list[Floats]:
    tables: list[Floats] = []
    for term in terms:
        source = beliefs[term.home] if term.source < 0 else tables[term.source]
        tables.append(source.sum(axis=term.axes) if term.axes else source)
    return [term.residual(table) for term, table in zip(terms, tables, strict=True)]


def _descend(
    model: Model,
    terms: Sequence[_Term],
    steps: int,
    enough: float,
    pace: float,
    watch: Callable[[int, float], None] | None,
) -> float:
    """Minimise the loss by mirror descent with momentum; return the pace for the next fit."""
    descent = _Descent(model, terms, pace)
    before = math.inf
    for step in range(steps):
        if descent.loss <= enough:
            break
        if step % _PATIENCE == 0:
            if descent.loss > before * (1 - _STILL):
                break
            before = descent.loss
        if not descent.advance():
            return descent.usual
        for term, move in zip(terms, descent.drift, strict=True):
            model.factors[term.positions] = model.factors.get(term.positions, 0.0) + move
        if watch is not None:
            watch(step, descent.loss)
    return descent.pace


class _Descent:
    """State of a mirror descent. The model's beliefs are those of its last step.

    Attributes:
        loss: that of the beliefs.
        pace: size of the next step; usual: the size that a fit starts with.
        drift: how each factor moved in the last step.
    """

    def __init__(self, model: Model, terms: Sequence[_Term], pace: float) -> None:
        self._model, self._terms, self._propagate = model, terms, _Propagation(model)
        self._weights = clique_weights(model)
        model.beliefs = self._propagate.plain(self._weights)
        if not model.beliefs:
            self._weights = self._propagate.balanced(self._weights)
            model.beliefs = self._propagate(self._weights)
        self._residuals = _residuals(terms, model.beliefs)
        self.loss = _loss(terms, self._residuals)
        self.usual = 1.0 / max(float(np.max(term.worth)) for term in terms)
        self.pace = max(pace, 1e-3 * self.usual) if pace else self.usual
        self.drift: list[Floats] = [np.zeros(()) for _ in terms]
        self._since = 0  # steps since the last restart

    def advance(self) -> bool:
        """Take a step that does not raise the loss; return False if there is none."""
        slopes = [term.slope(residual) for term, residual in zip(self._terms, self._residuals, strict=True)]
        even = False
        while True:
            keep = self._since / (self._since + 3)
            moves = [keep * old - self.pace * slope for old, slope in zip(self.drift, slopes, strict=True)]
            moved = self._moved(moves)
            beliefs = self._propagate.plain(moved)
            if not beliefs and not even:
                self._weights, even = self._propagate.balanced(self._weights), True
                continue
            ahead = _residuals(self._terms, beliefs) if beliefs else []
            after = _loss(self._terms, ahead) if beliefs else math.inf
            if after <= self.loss:
                break
            if self.pace < _STANDING * self.usual:
                return False
            # Too far: restart without momentum; if there was none, with smaller steps.
            self.pace, self._since = (self.pace, 0) if self._since else (self.pace * 0.5, 0)
        self._weights, self.drift, self._residuals, self.loss = moved, moves, ahead, after
        self._model.beliefs = beliefs
        self._since += 1
        if self._since == 1:
            self.pace *= 1.25
        return True

    def _moved(self, moves: Sequence[Floats]) -> list[Floats]:
        moved = [weight.copy() for weight in self._weights]
        for term, move in zip(self._terms, moves, strict=True):
            moved[term.home] += move.reshape(term.kept)
        return moved


def propagate(model: Model) -> list[Floats]:
    """Compute the marginal of each clique from the model's factors."""
    return _Propagation(model)(clique_weights(model))


def _loss(terms: Sequence[_Term], residuals: Sequence[Floats]) -> float:
    return 0.5 * sum(
        float(np.vdot(residual, residual * term.worth)) for term, residual in zip(terms, residuals, strict=True)
    )


class _Propagation:
    """Belief propagation on a fixed tree: log-weights of the cliques in, their marginals out."""

    def __init__(self, model: Model) -> None:
        tree = model.tree
        self.parents = tree.parents
        self.up: list[tuple[int, ...]] = []  # axes of a clique that are summed out towards its parent
        self.down: list[tuple[int, ...]] = []  # axes of the parent that are summed out towards it
        self.here: list[tuple[int, ...]] = []  # a message's shape in the clique
        self.there: list[tuple[int, ...]] = []  # and in the parent
        for clique, parent, shared in zip(tree.cliques, tree.parents, tree.separators, strict=True):
            above = tree.cliques[parent] if parent >= 0 else ()
            self.up.append(tuple(i for i, column in enumerate(clique) if column not in shared))
            self.down.append(tuple(i for i, column in enumerate(above) if column not in shared))
            self.here.append(tuple(model.shape[column] if column in shared else 1 for column in clique))
            self.there.append(tuple(model.shape[column] if column in shared else 1 for column in above))

    def __call__(self, weights: Sequence[Floats]) -> list[Floats]:
        """Compute the marginals from probabilities, or from logarithms where those underflow."""
        return self.plain(weights) or [np.exp(table) for table in self._logarithms(weights)]

    def plain(self, weights: Sequence[Floats]) -> list[Floats]:
        """Compute the marginals; return none if floats underflow."""
        tables = [
            np.exp(np.maximum(weight - weight.max(), -600.0)) if np.isfinite(weight).all() else _exp(weight)
            for weight in weights
        ]
        messages: list[Floats] = [np.ones(())] * len(tables)
        for i in range(len(tables) - 1, 0, -1):
            parent = self.parents[i]
            if parent < 0:
                continue
            message = messages[i] = tables[i].sum(axis=self.up[i])
            most = message.max()
            if not most > _TINY:
                return []
            tables[parent] *= (message / most).reshape(self.there[i])
        for i, table in enumerate(tables):
            parent = self.parents[i]
            if parent < 0:
                total = table.sum()
                if not total > _TINY:
                    return []
                table /= total
                continue
            wanted = tables[parent].sum(axis=self.down[i])
            with np.errstate(over="ignore"):  # seen below
                ratio = np.divide(wanted, messages[i], out=np.zeros_like(wanted), where=messages[i] > 0)
            if not ratio.max() < 1 / _TINY:
                return []
            table *= ratio.reshape(self.here[i])
        return tables

    def balanced(self, weights: Sequence[Floats]) -> list[Floats]:
        """Return weights of the same model with a smaller range, so that floats can represent the results."""
        tables = self._logarithms(weights)
        for i, table in enumerate(tables):
            if self.parents[i] >= 0:
                shared = _summed(table, self.up[i])
                table -= np.where(shared > -np.inf, shared, 0.0).reshape(self.here[i])
        return tables

    def _logarithms(self, weights: Sequence[Floats]) -> list[Floats]:
        tables = [weight.copy() for weight in weights]
        messages: list[Floats] = [np.zeros(())] * len(tables)
        for i in range(len(tables) - 1, 0, -1):
            parent = self.parents[i]
            if parent >= 0:
                messages[i] = _summed(tables[i], self.up[i])
                tables[parent] += messages[i].reshape(self.there[i])
        for i, table in enumerate(tables):
            parent = self.parents[i]
            if parent < 0:
                table -= _summed(table, tuple(range(table.ndim)))
                continue
            wanted = _summed(tables[parent], self.down[i])
            ratio = np.subtract(wanted, messages[i], out=np.full_like(wanted, -np.inf), where=messages[i] > -np.inf)
            table += ratio.reshape(self.here[i])
        return tables


def _summed(table: Floats, axes: tuple[int, ...]) -> Floats:
    """Return the logarithms of sums, from logarithms."""
    return np.asarray(logsumexp(table, axis=axes)) if axes else table.copy()


def _exp(logs: Floats) -> Floats:
    top = logs[np.isfinite(logs)].max(initial=-np.inf)
    if np.isneginf(top):  # impossible
        return np.zeros_like(logs)
    return np.where(np.isneginf(logs), 0.0, np.exp(np.maximum(logs - top, -600.0)))
