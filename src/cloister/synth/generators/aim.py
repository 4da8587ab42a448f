"""AIM: measure marginals one after the other, each where the model is farthest from the table.

    1  measure the one-way marginals; merge cells too light to be distinguished from noise (coarsening.py)
    2  repeatedly: select privately the marginal of two or three columns, in one of several resolutions, whose
       L1 distance to the model exceeds its expected noise by most; measure it; fit the model again
    3  when a measurement shows hardly more than noise, the next ones get twice the share
    4  fit to convergence, and measure the model's errors (the review)

After McKenna, Mullins, Sheldon & Miklau 2022, "AIM: an adaptive and iterative mechanism for differentially private
synthetic data". New here: candidates come in several resolutions; each fit starts from the last one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from math import comb, pi, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.private_data import PrivateData
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import BudgetShare
from cloister.privacy.loss import Loss
from cloister.synth.domain.coarsening import grain_marginal
from cloister.synth.domain.domain import Domain, Positions, read_domain
from cloister.synth.domain.resolution import Resolution
from cloister.synth.measure.error_estimate import estimate_error
from cloister.synth.measure.marginals import (
    MOST_PLACES,
    Floats,
    MarginalCounts,
    Measurer,
    NoisyMarginal,
    gaps,
    l1,
)
from cloister.synth.model.inference import Model, fit, total_of
from cloister.synth.model.junction_tree import tree_cells, tree_cliques
from cloister.synth.model.marginal_oracle import LARGEST, MarginalOracle
from cloister.synth.options import MOST_ALLOWED, check_names, check_number, check_whole
from cloister.synth.output.table import SyntheticTable
from cloister.synth.run import GeneratorResult, Progress, synthesise

__all__ = ["aim"]

_SIZE, _REVIEW, _CHOICE = Fraction(1, 100), Fraction(1, 100), Fraction(1, 8)
_SINGLE = (0.05, 0.7)  # of the spend, at least and at most, for one-way marginals
_FIRST, _FEW, _FIRST_POWER = 0.15, 5_500.0, 0.6
_ROUND_STEPS, _LAST_STEPS = 100, 500
_ROUND_ENOUGH, _LAST_ENOUGH = 0.6, 0.5
_ROUNDS = 4.0  # planned for each column
_ROUND_POWER, _FEWEST, _MOST_ROUNDS = 0.5, 10, 80
_MOST_PLANNED = 1_000  # rounds
_LEAST_WEIGHT, _MOST_WEIGHT = 1e-9, 1e9  # of a marginal in a workload
_MOST_TRIPLES = 500_000  # that can be a workload by themselves; with more columns, all pairs are
_MOST_PARTS = 4_000_000  # of all marginals of a workload: subsets of their columns
_LOOKED_AT = 200  # marginals of three columns and more, in each round
_CELLS, _MOST_LIGHT, _CLOSER = 66.0, 3.0, 0.4  # columns of few cells: more rounds and closer fits, as both are cheap
_KEPT = 40_000  # true counts of larger tables are recomputed when needed again
_WORTH = 2**20  # weights are whole multiples of a part
_EXACT = 2**53  # whole numbers with a smaller sum are exact in floats
_LEAST = 3.0  # standard errors that a cell must hold to be kept separate


def aim(
    ds: PrivateData,
    *,
    spend: Loss,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 32,
    workload: Mapping[tuple[str, ...], float] | Sequence[tuple[str, ...]] | None = None,
    most_cells: int = 1_600_000,
    rounds: int | None = None,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """Generate a synthetic table from adaptively selected marginals.

    Args:
        ds, spend, rows, columns, table, bins, progress, random_state: as in `synth.independent`.
        workload: the marginals that matter, as column names, with a weight each if they matter unequally; by default
            all of three columns, or of two where there are more than 144.
        most_cells: maximum total size of the model's tables: memory and time grow with it.
        rounds: number of measurements planned at first; fewer are made if they show little.

    Privacy: the spend, for the dataset's unit of m rows (add/remove). Every selection is an exponential mechanism on
        weighted L1 distances between true counts and the model, minus a constant: sensitivity m, as no weight is above
        1. Every measurement is discrete Gaussian (Laplace under a pure spend) of sensitivity m. The losses of all steps
        add up to the spend, however they are selected. Audited in tests/statistical/test_synth_audit.py.
    """
    check_whole("most_cells", most_cells, most=MOST_ALLOWED)
    check_whole("rounds", rounds, most=_MOST_PLANNED, none=True)
    if workload is not None:  # before the charge
        _weights(read_domain(ds, table=table, columns=columns, bins=bins)[0], workload)

    def steps(survey: Measurer, tell: Progress) -> GeneratorResult:
        generator = np.random.default_rng(int.from_bytes(survey.meter.source.bytes(32), "little"))
        weights, named = _weights(survey.domain, workload), _named(survey.domain, workload or ())
        weights = {
            positions: weight for positions, weight in weights.items() if survey.domain.cells(positions) < MOST_PLACES
        }
        return _Run(survey, weights, list(named), most_cells, rounds, tell, generator).made()

    return synthesise(
        ds,
        steps,
        method="aim",
        spend=spend,
        rows=rows,
        columns=columns,
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
        told={"workload": None if workload is None else sorted(map(str, workload)), "most cells": most_cells},
    )


def _weights(domain: Domain, workload: Any) -> dict[Positions, float]:
    """Return the candidates: every subset of the workload with two columns or more, with its weight."""
    columns = len(domain.shape)
    every = combinations(range(columns), min(3 if comb(columns, 3) <= _MOST_TRIPLES else 2, columns))
    marginals = dict.fromkeys(every, 1.0) if workload is None else _named(domain, workload)
    candidates: dict[Positions, float] = {}
    for positions in marginals:
        for size in range(2, len(positions) + 1):
            for part in combinations(positions, size):
                candidates.setdefault(part, 0.0)
    # A subset's weight: for each marginal of the workload, its weight times the number of shared columns.
    column_weights = [0.0] * columns
    for positions, weight in marginals.items():
        for column in positions:
            column_weights[column] += weight
    for part in candidates:
        candidates[part] = sum(column_weights[column] for column in part)
    top = max(candidates.values(), default=1.0)
    return {part: weight / top for part, weight in candidates.items()}


def _named(domain: Domain, workload: Any) -> dict[Positions, float]:
    """Return the marginals that the caller named, with their weights."""
    if not isinstance(workload, Mapping | list | tuple):
        raise BadInput("a workload is a list of marginals, each a tuple of column names, or {marginal: weight}.")
    for names in workload:
        check_names("a marginal of the workload", names, none=False)
    if not all(workload) or sum(2 ** min(len(set(names)), 64) for names in workload) > _MOST_PARTS:
        raise BadInput("a marginal of the workload has at least one column, and few enough to list its parts.")
    named = dict(workload) if isinstance(workload, Mapping) else dict.fromkeys(map(tuple, workload), 1.0)
    for name in (name for names in named for name in names if name not in domain.positions):
        listed = ", ".join(axis.name for axis in domain.modelled)
        raise BadInput(f"a workload names modelled columns, and {name!r:.60} is none. There are: {listed}.")
    # A subset's weight is a sum of weights divided by the largest such sum: neither may overflow a double.
    for weight in named.values():
        least, most = _LEAST_WEIGHT, _MOST_WEIGHT
        check_number("a workload's weight", weight, least=least, most=most, what="how much a marginal matters")
    return {tuple(sorted({domain.positions[name] for name in names})): float(worth) for names, worth in named.items()}


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A candidate marginal: some columns, at a level of resolution."""

    positions: Positions
    level: int
    cells: int


@dataclass(slots=True)
class _Run:
    """State of one run: the values released so far, and the model of them."""

    survey: Measurer
    weights: dict[Positions, float]
    workload: list[Positions]
    most_cells: int
    rounds: int | None
    tell: Progress
    generator: np.random.Generator
    resolution: Resolution = field(init=False)
    size: list[NoisyMarginal] = field(default_factory=list)
    singles: list[NoisyMarginal] = field(default_factory=list)
    measured: list[tuple[NoisyMarginal, _Candidate]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    true: dict[tuple[Positions, int], NDArray[np.int64]] = field(default_factory=dict)

    def made(self) -> GeneratorResult:
        """Measure, select and fit; then measure the model's errors."""
        budget = self.survey.budget
        first = self._first_share(budget)
        model = self._begin(budget.part(first))
        if self.weights:
            model = self._measure_on(model, BudgetShare(budget.part(1 - _SIZE - first - _REVIEW)))
        self.tell(0.8, "fitting")
        model = self._fit(model, _LAST_STEPS, _LAST_ENOUGH / self._light**_CLOSER)
        self.tell(0.9, "reviewing")
        error = estimate_error(self.survey, model, budget.part(_REVIEW))
        measured = [*self.size, *self.singles, *(marginal for marginal, _ in self.measured)]
        return GeneratorResult(model, measured, self.words, error, self.workload)

    @property
    def _light(self) -> float:
        """Return a factor that grows as columns have fewer cells, by their total noise under the split of `_begin`."""
        shape = self.survey.domain.shape
        need = float(np.sum(np.power(shape, 2 / 3)) ** 1.5) / len(shape)
        return min(max(_CELLS / need, 1.0), _MOST_LIGHT)

    def _first_share(self, budget: BudgetShare) -> Fraction:
        """Return the share of the spend for one-way marginals: larger with fewer rows. Measures the number of rows."""
        smallest = min(range(len(self.survey.domain.shape)), key=lambda column: self.survey.domain.shape[column])
        self.size = self.survey.measure([(smallest,)], budget.part(_SIZE), why="how many rows there are")
        sigma = self.survey.noise(budget.loss)
        share = _FIRST / self._light * (_FEW / max(total_of(self.size) / sigma, 1.0)) ** _FIRST_POWER
        return Fraction(round(1000 * min(max(share, _SINGLE[0]), _SINGLE[1])), 1000)

    def _begin(self, loss: Loss) -> Model:
        """Measure the one-way marginals; larger ones get more of the loss, so that errors are more equal."""
        domain = self.survey.domain
        worth = [round(1000 * size ** (2 / 3)) for size in domain.shape]
        for column in range(len(domain.shape)):
            part = BudgetShare(loss).part(Fraction(worth[column], sum(worth)))
            self.singles += self.survey.measure([(column,)], part, why="every column")
        self.resolution = Resolution.of(domain, self.singles, total_of([*self.size, *self.singles]), _LEAST)
        self.tell(0.05, "every column")
        return self._fit(None, 0, 1.0)

    def _fit(self, start: Model | None, steps: int, enough: float) -> Model:
        grains = self.resolution.grains()
        singles = [grain_marginal(single, grains) for single in self.singles]
        several = [
            replace(marginal, merges=self.resolution.model_merges(chosen.positions, chosen.level))
            for marginal, chosen in self.measured
        ]
        return fit(
            self.resolution.shape(),
            [*(single for single in singles if single.counts.size > 1), *several] or singles,
            zeros=self.survey.domain.zeros,
            total=total_of([*self.size, *self.singles]),
            grains=grains,
            start=start,
            steps=steps,
            enough=enough,
        )

    def _measure_on(self, model: Model, left: BudgetShare) -> Model:
        """Select and measure in rounds until the budget is used up."""
        signal = total_of([*self.size, *self.singles]) / self.survey.noise(self.survey.budget.loss)
        usual = _ROUNDS * len(self.resolution.base) * (signal / _FEW) ** _ROUND_POWER
        planned = self.rounds or round(self._light * min(max(usual, _FEWEST), _MOST_ROUNDS))
        share, spent = Fraction(1, planned), Fraction(0)
        while spent < 1:
            share = min(share, 1 - spent)
            if 1 - spent < 2 * share:
                share = 1 - spent
            step = BudgetShare(left.part(share))
            sigma = self.survey.noise(step.part(1 - _CHOICE))
            oracle = MarginalOracle(model)
            candidates = [
                candidate
                for candidate in self._candidates(spent + share)
                if oracle.cells(candidate.positions) <= LARGEST
            ]
            if not candidates:  # most_cells is too small for any pair
                break
            chosen = candidates[self._choose(candidates, oracle, sigma, step.part(_CHOICE))]
            before = self._at(oracle.joint(chosen.positions), chosen) * model.total
            self._measure(chosen, step.part(1 - _CHOICE))
            self.resolution.refine(chosen.positions, chosen.level, model.factors)
            model = self._fit(model, _ROUND_STEPS, _ROUND_ENOUGH / self._light**_CLOSER)
            after = self._at(MarginalOracle(model).joint(chosen.positions), chosen) * model.total
            spent += share
            if np.abs(after - before).sum() <= sqrt(2 / pi) * sigma * chosen.cells:
                share *= 2
            self.tell(0.05 + 0.75 * float(spent), f"{len(self.words)} marginals")
        return model

    def _measure(self, chosen: _Candidate, loss: Loss) -> None:
        merges = self.resolution.merges(chosen.positions, chosen.level)
        why = f"round {len(self.words) + 1}: farthest from the model"
        noisy = self.survey.measure([chosen.positions], loss, [merges], why=why)[0]
        self.measured.append((noisy, chosen))
        self.words.append(f"{' and '.join(self.survey.domain.words(chosen.positions))} in {chosen.cells} cells")

    def _candidates(self, used: Fraction) -> list[_Candidate]:
        """Return the marginals that keep the model small enough, each in several resolutions.

        If the workload is large, each round considers a different random part of it: a public choice.
        """
        present = list(dict.fromkeys(candidate.positions for _, candidate in self.measured))
        most = self.most_cells * max(float(used), 0.1)
        candidates = []
        for positions in self._some():
            cliques = tree_cliques(self.resolution.shape(), [*present, positions])
            sizes: set[tuple[int, ...]] = set()
            for level in range(self.resolution.levels - 1):
                sides = tuple(self.resolution.size(column, level) for column in positions)
                if sides in sizes:
                    continue
                sizes.add(sides)
                if tree_cells(cliques, self.resolution.shape_with(positions, level)) <= most:
                    candidates.append(_Candidate(positions, level, prod(sides)))
        return candidates

    def _some(self) -> list[Positions]:
        pairs = [positions for positions in self.weights if len(positions) == 2]
        others = [positions for positions in self.weights if len(positions) > 2]
        most = round(_LOOKED_AT * self._light)
        if len(others) > most:
            drawn = self.generator.choice(len(others), most, replace=False)
            others = [others[i] for i in np.sort(drawn)]
        if len(pairs) > 2 * most:
            drawn = self.generator.choice(len(pairs), 2 * most, replace=False)
            pairs = [pairs[i] for i in np.sort(drawn)]
        return [*pairs, *others]

    def _choose(
        self,
        candidates: Sequence[_Candidate],
        oracle: MarginalOracle,
        sigma: float,
        loss: Loss,
    ) -> int:
        """Select the candidate that shows most beyond its noise, by the exponential mechanism."""
        levels: dict[Positions, list[tuple[int, _Candidate]]] = {}  # finest first
        for number, candidate in enumerate(candidates):
            levels.setdefault(candidate.positions, []).append((number, candidate))

        def scores(inside: Measurer) -> list[int]:
            answer, total = [0] * len(candidates), oracle.model.total
            for positions, counts in inside.counted(levels):
                level = levels[positions][0][1].level
                expected = self.resolution.at_level(oracle.joint(positions), positions, level) * total
                gap: NDArray[Any] = gaps(self._true(positions, level, counts), expected, total, inside.whole)
                if l1(gap) < _EXACT:  # sums of them are exact in floats too, and faster
                    gap = gap.astype(np.float64)
                worth = max(1, round(self.weights[positions] * _WORTH))
                for number, candidate in levels[positions]:
                    while level < candidate.level:
                        gap = self.resolution.coarsen(gap, positions, level)
                        level += 1
                    noise = round(sqrt(2 / pi) * sigma * candidate.cells * inside.parts)
                    answer[number] = worth * (l1(gap) - noise)
            return answer

        return self.survey.choose(scores, loss, _WORTH)

    def _true(self, positions: Positions, level: int, counts: MarginalCounts) -> NDArray[np.int64]:
        """Return true counts at a level of resolution. Inside a step only."""
        table = self.true.get((positions, level))
        if table is None:
            table = counts.table(self.resolution.merges(positions, level))
            if table.size <= _KEPT:
                self.true[positions, level] = table
        return table

    def _at(self, joint: Floats, candidate: _Candidate) -> Floats:
        """Convert a table in the model's cells to the level of a candidate."""
        return self.resolution.at_level(joint, candidate.positions, candidate.level)
