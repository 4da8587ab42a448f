"""From noisy marginals to one model: the distribution of greatest entropy that is as near to all of them as can be.

    model = fit(shape, marginals)              # mirror descent over the marginals of a junction tree
    model.marginal((0, 3))                     # what it expects of any columns
    model = fit(shape, [*marginals, another], start=model)     # begins where the last one ended

The model is a product of factors over the cliques of a junction tree; its marginals are computed exactly by belief
propagation. What is made small is the sum of squared distances to the noisy counts, each divided by its variance
(McKenna, Sheldon & Miklau 2019). All of it is post-processing: nothing here sees a row.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.special import logsumexp

from cloister.synth.domain.axis import Cells
from cloister.synth.domain.domain import Places, Zero
from cloister.synth.measure.marginals import Floats, NoisyMarginal
from cloister.synth.model.junction_tree import JunctionTree, junction_tree

if TYPE_CHECKING:
    from cloister.synth.model.marginal_oracle import MarginalOracle

__all__ = ["AnyModel", "Asks", "Grain", "Model", "fit", "clique_weights", "propagate", "total_of"]

_TINY = 1e-200  # sums of probabilities below this have lost digits
_STILL, _PATIENCE = 0.002, 25  # a fit ends when the loss falls by less than this in so many steps
_STANDING = 1e-9  # of the usual step


@dataclass(frozen=True, slots=True)
class Grain:
    """How the cells of a column lie in the fewer cells that a model has of it.

    Attributes:
        cells: the model's cell that holds each cell of the column.
        shares: what part of the model's cell each cell is.
    """

    cells: Cells
    shares: Floats

    @classmethod
    def whole(cls, size: int) -> "Grain":
        """A column whose cells the model keeps apart."""
        return cls(np.arange(size), np.ones(size))

    @property
    def size(self) -> int:
        """How many cells the model has of the column."""
        return int(self.cells.max()) + 1


@dataclass(slots=True)
class Model:
    """A distribution over all modelled columns.

    Attributes:
        shape: cells that it has of each column.
        tree: which columns are held together.
        factors: for each set of columns that was measured the logarithm of its factor.
        total: how many rows it stands for.
        grains: how the domain's cells lie in those of the model.
        beliefs: for each clique its marginal, which adds up to one.
        pace: of the last fit, where the next one begins.
    """

    shape: tuple[int, ...]
    tree: JunctionTree
    factors: dict[Places, Floats]
    zeros: tuple[Zero, ...]
    total: float
    grains: tuple[Grain, ...]
    beliefs: list[Floats] = field(default_factory=list)
    pace: float = 0.0

    def marginal(self, places: Places) -> Floats:
        """The rows that it expects in each cell of some columns of the domain, in rising order."""
        return self.asked().marginal(places)

    def asked(self) -> "MarginalOracle":
        """The same, for many questions at once."""
        from cloister.synth.model.marginal_oracle import MarginalOracle

        return MarginalOracle(self)

    def draw(self, rows: int, generator: np.random.Generator, given: Mapping[int, Floats] | None = None) -> Cells:
        """The cells of rows; see `sampling.draw`."""
        from cloister.synth.model.sampling import draw

        return draw(self, rows, generator, given)


class Asks(Protocol):
    """A model that is asked several times."""

    def cells(self, places: Places) -> int:
        """How large the largest table is that a question about these columns needs."""
        ...

    def part_cells(self, places: Places) -> int:
        """How large the largest table is that `at` and `weighed` need."""
        ...

    def marginal(self, places: Places) -> Floats:
        """The rows that it expects in each cell of some columns of the domain, in rising order."""
        ...

    def at(self, places: Places, cells: Sequence[Cells]) -> Floats:
        """The rows that it expects in some cells of the domain only: for each column the cell of each of them."""
        ...

    def weighed(self, places: Places, weights: Sequence[Floats]) -> float:
        """The rows that it expects, each counted by the product of what its cells weigh."""
        ...


class AnyModel(Protocol):
    """What a synthetic table needs of a model: to be asked, and to be drawn from."""

    @property
    def total(self) -> float:
        """How many rows it stands for."""
        ...

    @property
    def grains(self) -> tuple[Grain, ...]:
        """How the domain's cells lie in those of the model."""
        ...

    def marginal(self, places: Places) -> Floats:
        """The rows that it expects in each cell of some columns of the domain, in rising order."""
        ...

    def asked(self) -> Asks:
        """The same, for many questions at once."""
        ...

    def draw(self, rows: int, generator: np.random.Generator, given: Mapping[int, Floats] | None = None) -> Cells:
        """The cells of rows, one column for each modelled one; `given` weighs cells of some columns, from 0 to 1."""
        ...


def total_of(marginals: Sequence[NoisyMarginal]) -> float:
    """The number of rows, from the totals of noisy marginals: the mean of least variance."""
    worth = np.array([1 / (np.mean(np.maximum(one.sigma, 1e-9) ** 2) * one.counts.size) for one in marginals])
    totals = np.array([one.counts.sum() for one in marginals])
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
    """The model that fits noisy marginals.

    Args:
        shape: cells that the model has of each column.
        marginals: what was measured, in these cells.
        zeros: what never occurs.
        total: how many rows there are; estimated unless given.
        grains: how the domain's cells lie in those of the model; they are the same unless given.
        start: a model to begin with.
        steps: of mirror descent, at most.
        enough: it ends when the loss is this part of what the noise alone would make it. Coming nearer would fit noise.
        watch: is told each step and its loss.
    """
    rows = total_of(marginals) if total is None else total
    tree = junction_tree(shape, [*(one.places for one in marginals), *(zero.places for zero in zeros)])
    kept = tuple(grains) if grains is not None else tuple(Grain.whole(size) for size in shape)
    factors = {} if start is None else {places: factor.copy() for places, factor in start.factors.items()}
    model = Model(tuple(shape), tree, factors, tuple(zeros), rows, kept)
    terms = _terms(marginals, tree, shape, rows)
    noise = 0.5 * enough * sum(term.target.size for term in terms)
    model.pace = _descend(model, terms, steps, noise, 0.0 if start is None else start.pace, watch)
    return model


def clique_weights(model: Model) -> list[Floats]:
    """For each clique the logarithm of its factor, from those of the sets of columns that it holds."""
    tree, shape = model.tree, model.shape
    weights = [np.zeros([shape[place] for place in clique]) for clique in tree.cliques]
    never = [(zero.places, np.where(zero.allowed, 0.0, -np.inf)) for zero in model.zeros]
    for places, factor in [*model.factors.items(), *never]:
        home = tree.home(places, shape)
        weights[home] += _spread(factor, places, tree.cliques[home])
    return weights


def _spread(table: Floats, places: Places, clique: Places) -> Floats:
    """A table over some columns of a clique, shaped so that it can be added to one over all of them."""
    sizes = dict(zip(places, table.shape, strict=True))
    return table.reshape([sizes.get(place, 1) for place in clique])


@dataclass(slots=True)
class _Term:
    """One noisy marginal as a part of the loss, in shares of the total.

    Attributes:
        home: the clique that holds its columns.
        kept: the shape of its table in that clique.
        source: the term before it whose table it is summed from; -1 for the clique itself.
        axes: of the source that are summed out.
        target: what was measured.
        worth: one over its variance.
        merges, takes: from its columns' cells to those that were measured, as sums and as places.
    """

    places: Places
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
        """A marginal in a tree."""
        home = tree.home(one.places, shape)
        kept = tuple(shape[place] if place in one.places else 1 for place in tree.cliques[home])
        term = cls(one.places, home, kept, one.counts / total, (total / np.maximum(one.sigma, 1e-9)) ** 2)
        if any(merge is not None for merge in one.merges):
            term.takes = tuple(
                np.arange(shape[place]) if merge is None else merge
                for place, merge in zip(one.places, one.merges, strict=True)
            )
            term.merges = tuple(
                (np.arange(int(take.max()) + 1)[:, None] == take).astype(np.float64) for take in term.takes
            )
        return term

    def residual(self, table: Floats) -> Floats:
        """How far the model, whose table of these columns is given, is from what was measured."""
        if self.merges is not None:
            for side, merge in enumerate(self.merges):
                if len(merge) < table.shape[side]:
                    table = np.moveaxis(np.tensordot(merge, table, (1, side)), 0, side)
        return table - self.target

    def slope(self, residual: Floats) -> Floats:
        """The gradient, by the cells of its columns."""
        slope = residual * self.worth
        return slope if self.takes is None else slope[np.ix_(*self.takes)]


def _terms(marginals: Sequence[NoisyMarginal], tree: JunctionTree, shape: Sequence[int], total: float) -> list[_Term]:
    """The parts of the loss, larger ones first: a small table is summed from the smallest that has its columns."""
    every = [_Term.of(one, tree, shape, total) for one in marginals]
    every.sort(key=lambda term: -math.prod(term.kept))
    for number, term in enumerate(every):
        wanted = set(term.places)
        above = [i for i in range(number) if wanted <= set(every[i].places)]
        columns = tree.cliques[term.home]
        if above:
            term.source = min(above, key=lambda i: math.prod(every[i].kept))
            columns = every[term.source].places
        term.axes = tuple(i for i, place in enumerate(columns) if place not in wanted)
    return every


def _residuals(terms: Sequence[_Term], beliefs: Sequence[Floats]) -> list[Floats]:
    tables: list[Floats] = []
    for term in terms:
        whole = beliefs[term.home] if term.source < 0 else tables[term.source]
        tables.append(whole.sum(axis=term.axes) if term.axes else whole)
    return [term.residual(table) for term, table in zip(terms, tables, strict=True)]


def _descend(
    model: Model,
    terms: Sequence[_Term],
    steps: int,
    enough: float,
    pace: float,
    watch: Callable[[int, float], None] | None,
) -> float:
    """Mirror descent with momentum: weights move against the slope, and on as they moved, while the loss falls."""
    pass_beliefs = _Propagation(model)
    weights = clique_weights(model)
    model.beliefs = pass_beliefs.plain(weights)
    if not model.beliefs:
        weights = pass_beliefs.balanced(weights)
        model.beliefs = pass_beliefs(weights)
    residuals = _residuals(terms, model.beliefs)
    loss = _loss(terms, residuals)
    usual = 1.0 / max(float(np.max(term.worth)) for term in terms)
    pace = max(pace, 1e-3 * usual) if pace else usual
    drift: list[Floats] = [np.zeros(()) for _ in terms]  # how each factor moved in the last step
    since, before = 0, math.inf
    for step in range(steps):
        if loss <= enough:
            break
        if step % _PATIENCE == 0:
            if loss > before * (1 - _STILL):
                break
            before = loss
        slopes = [term.slope(residual) for term, residual in zip(terms, residuals, strict=True)]
        even = False
        while True:
            keep = since / (since + 3)
            moves = [keep * old - pace * slope for old, slope in zip(drift, slopes, strict=True)]
            moved = [weight.copy() for weight in weights]
            for term, move in zip(terms, moves, strict=True):
                moved[term.home] += move.reshape(term.kept)
            beliefs = pass_beliefs.plain(moved)
            if not beliefs and not even:
                weights, even = pass_beliefs.balanced(weights), True
                continue
            ahead = _residuals(terms, beliefs) if beliefs else []
            after = _loss(terms, ahead) if beliefs else math.inf
            if after <= loss:
                break
            if pace < _STANDING * usual:  # no step makes it better
                return usual
            # Too far: begin anew without momentum; and if there was none, in smaller steps.
            pace, since = (pace, 0) if since else (pace * 0.5, 0)
        for term, move in zip(terms, moves, strict=True):
            model.factors[term.places] = model.factors.get(term.places, 0.0) + move
        weights, drift, model.beliefs, residuals, loss = moved, moves, beliefs, ahead, after
        since += 1
        if since == 1:
            pace *= 1.25
        if watch is not None:
            watch(step, loss)
    return pace


def propagate(model: Model) -> list[Floats]:
    """The marginal of each clique, from the model's factors."""
    return _Propagation(model)(clique_weights(model))


def _loss(terms: Sequence[_Term], residuals: Sequence[Floats]) -> float:
    return 0.5 * sum(float(np.vdot(one, one * term.worth)) for term, one in zip(terms, residuals, strict=True))


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
            self.up.append(tuple(i for i, place in enumerate(clique) if place not in shared))
            self.down.append(tuple(i for i, place in enumerate(above) if place not in shared))
            self.here.append(tuple(model.shape[place] if place in shared else 1 for place in clique))
            self.there.append(tuple(model.shape[place] if place in shared else 1 for place in above))

    def __call__(self, weights: Sequence[Floats]) -> list[Floats]:
        """The marginals: from plain probabilities, or where those get too small for floats, from logarithms."""
        return self.plain(weights) or [np.exp(table) for table in self._logarithms(weights)]

    def plain(self, weights: Sequence[Floats]) -> list[Floats]:
        """The marginals; none if floats cannot hold what they are computed from."""
        tables = [
            np.exp(np.maximum(one - one.max(), -600.0)) if np.isfinite(one).all() else _exp(one) for one in weights
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
        """Weights of the same model that lie near each other, so that floats can hold what follows from them."""
        tables = self._logarithms(weights)
        for i, table in enumerate(tables):
            if self.parents[i] >= 0:
                shared = _summed(table, self.up[i])
                table -= np.where(shared > -np.inf, shared, 0.0).reshape(self.here[i])
        return tables

    def _logarithms(self, weights: Sequence[Floats]) -> list[Floats]:
        tables = [one.copy() for one in weights]
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
    """Logarithms in, those of sums out."""
    return np.asarray(logsumexp(table, axis=axes)) if axes else table.copy()


def _exp(one: Floats) -> Floats:
    top = one[np.isfinite(one)].max(initial=-np.inf)
    if np.isneginf(top):  # nothing can be
        return np.zeros_like(one)
    return np.where(np.isneginf(one), 0.0, np.exp(np.maximum(one - top, -600.0)))
