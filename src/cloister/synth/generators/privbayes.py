"""PrivBayes: a Bayesian network, each column given a few before it, selected and measured privately.

    1  measure the one-way marginals
    2  start with one column; repeatedly select, by the exponential mechanism, a further column and up to k parents
       among the columns already in, whose joint counts are farthest (L1) from those of a column independent of its
       parents; measure that marginal and fit the model again
    3  only marginals whose cells are heavy relative to their noise are candidates, so k is only an upper limit

After Zhang, Cormode, Procopiuc, Srivastava & Xiao 2014/2017, "PrivBayes". The paper's first score, mutual information,
has a sensitivity of order log(n)/n and performs poorly; its F and R scores are L1 distances. The score here is also an
L1 distance, but to a distribution already released: one row moves it by one row (R in rows moves by up to two), and it
does not depend on a private number of rows. Conditionals come from the same inference as for other generators.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb, prod
from typing import Any

import numpy as np

from cloister.data.private_data import PrivateData
from cloister.privacy.loss import Loss
from cloister.synth.domain.domain import Positions
from cloister.synth.measure.error_estimate import estimate_error
from cloister.synth.measure.marginals import Floats, Measurer, NoisyMarginal, gaps, l1
from cloister.synth.model.inference import Model, fit
from cloister.synth.model.junction_tree import tree_cells, tree_cliques
from cloister.synth.model.marginal_oracle import LARGEST, MarginalOracle
from cloister.synth.options import MOST_ALLOWED, check_number, check_whole
from cloister.synth.output.table import SyntheticTable
from cloister.synth.run import GeneratorResult, Progress, synthesise

__all__ = ["privbayes"]

_SINGLE, _CHOOSE, _REVIEW = Fraction(2, 10), Fraction(2, 10), Fraction(1, 50)
_MOST_CANDIDATES, _LOOKED_AT, _MOST_SETS = 300, 600, 50_000
_STEPS, _LAST_STEPS = 100, 1000


@dataclass(frozen=True, slots=True)
class _Candidate:
    column: int
    parents: Positions

    @property
    def positions(self) -> Positions:
        return tuple(sorted((self.column, *self.parents)))


def privbayes(
    ds: PrivateData,
    *,
    spend: Loss,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 16,
    degree: int = 2,
    usefulness: float = 4.0,
    most_cells: int = 300_000,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """Generate a synthetic table from a Bayesian network.

    Args:
        ds, spend, rows, columns, table, bins, progress, random_state: as in `synth.independent`.
        degree: maximum number of parents of a column.
        usefulness: number of standard errors that a cell must hold on average for a marginal to be a candidate.
        most_cells: maximum total size of the model's tables.

    Privacy: the spend, for the dataset's unit of m rows (add/remove). A fifth measures d columns (L2 sensitivity √d·m),
        a fifth makes d - 1 selections (exponential mechanism on L1 distances to released counts, sensitivity m each), a
        fiftieth pays for the review, the rest measures d - 1 marginals (sensitivity m each). Candidates depend on
        released values and public sizes only. The first column is the first of the schema: selecting it would cost and
        gain nothing, since the root of a tree does not matter.
    """
    check_whole("degree", degree)
    check_number("usefulness", usefulness, least=1e-6, most=1e6, what="how heavy cells must be against their noise")
    check_whole("most_cells", most_cells, most=MOST_ALLOWED)

    def steps(survey: Measurer, tell: Progress) -> GeneratorResult:
        budget, shape = survey.budget, survey.domain.shape
        measured = survey.measure([(column,) for column in range(len(shape))], budget.part(_SINGLE), why="every column")
        model = fit(shape, measured, zeros=survey.domain.zeros)
        words: list[str] = []
        if len(shape) > 1:
            rest = budget.part(1 - _SINGLE - _CHOOSE - _REVIEW).split(len(shape) - 1)
            heaviest = max(model.total, 1.0) / (usefulness * survey.noise(rest))
            network = _Network(survey, model, measured, degree, heaviest, most_cells)
            for done in range(len(shape) - 1):
                words.append(network.grow(budget.part(_CHOOSE).split(len(shape) - 1), rest))
                tell(0.1 + 0.7 * (done + 1) / (len(shape) - 1), words[-1])
            measured, model = network.measured, network.finished()
        return GeneratorResult(model, measured, words, estimate_error(survey, model, budget.part(_REVIEW)))

    return synthesise(
        ds,
        steps,
        method="privbayes",
        spend=spend,
        rows=rows,
        columns=columns,
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
        told={"degree": degree, "usefulness": usefulness},
    )


class _Network:
    def __init__(
        self,
        survey: Measurer,
        model: Model,
        measured: list[NoisyMarginal],
        degree: int,
        heaviest: float,
        most_cells: int,
    ) -> None:
        self.survey, self.model, self.measured = survey, model, list(measured)
        self.degree, self.heaviest, self.most_cells = degree, heaviest, most_cells
        self.inside = [0]

    def grow(self, choice: Loss, measurement: Loss) -> str:
        """Add one more column."""
        oracle = self.model.asked()
        candidates = self._candidates(oracle)

        total = self.model.total

        def expected(candidate: _Candidate) -> Floats:
            return _product(oracle.marginal(candidate.parents), oracle.marginal((candidate.column,)), candidate, total)

        def scores(inside: Measurer) -> list[int]:
            counted = inside.counted([candidate.positions for candidate in candidates])
            return [
                l1(gaps(counts.table(), expected(candidate), total, inside.whole))
                for candidate, (_, counts) in zip(candidates, counted, strict=True)
            ]

        chosen = candidates[self.survey.choose(scores, choice)]
        words = self.survey.domain.words
        why = f"{words((chosen.column,))[0]} given {', '.join(words(chosen.parents)) or 'nothing'}"
        self.measured += self.survey.measure([chosen.positions], measurement, why=why)
        self.inside.append(chosen.column)
        self.model = self._fit(_STEPS)
        return why

    def finished(self) -> Model:
        """Return the model of all measurements."""
        return self._fit(_LAST_STEPS)

    def _fit(self, steps: int) -> Model:
        domain = self.survey.domain
        return fit(domain.shape, self.measured, zeros=domain.zeros, start=self.model, steps=steps)

    def _candidates(self, oracle: MarginalOracle) -> list[_Candidate]:
        """Return the remaining columns, each with every parent set of allowed size; from public and released facts."""
        shape = self.survey.domain.shape
        present = [
            *(marginal.positions for marginal in self.measured),
            *(zero.positions for zero in self.survey.domain.zeros),
        ]
        candidates: list[_Candidate] = []
        outside = [column for column in range(len(shape)) if column not in self.inside]
        looked_at = max(_LOOKED_AT // len(outside), 1)  # bounds the running time, whatever the columns
        for column in outside:
            sets = [
                _Candidate(column, parents)
                for size in range(min(self.degree, len(self.inside)), 0, -1)
                for parents in _some(sorted(self.inside), size, looked_at)
            ]
            light = [
                candidate for candidate in sets if prod(shape[axis] for axis in candidate.positions) <= self.heaviest
            ]
            allowed = [
                candidate
                for candidate in _spread(light, looked_at)
                if tree_cells(tree_cliques(shape, [*present, candidate.positions]), shape) <= self.most_cells
                and oracle.cells(candidate.parents) <= LARGEST
            ]
            candidates += allowed or [self._lightest(column, present)]
        return _spread(candidates, _MOST_CANDIDATES)

    def _lightest(self, column: int, present: Sequence[Positions]) -> _Candidate:
        """Return the parent with fewest cells, or none if even that is too large, if no candidate is light enough."""
        shape = self.survey.domain.shape
        candidate = _Candidate(column, (min(self.inside, key=lambda parent: shape[parent]),))
        small = tree_cells(tree_cliques(shape, [*present, candidate.positions]), shape) <= max(self.most_cells, LARGEST)
        return candidate if small else _Candidate(column, ())


def _some(columns: Sequence[int], size: int, most: int) -> list[Positions]:
    """Return all sets of the given size, or some of them: a public choice that depends on nothing else."""
    if comb(len(columns), size) <= _MOST_SETS:
        return list(combinations(columns, size))
    drawn = np.random.default_rng(len(columns))
    return [tuple(sorted(drawn.choice(columns, size, replace=False).tolist())) for _ in range(most)]


def _spread(listed: Sequence[_Candidate], most: int) -> list[_Candidate]:
    """Return the given number of candidates, spread evenly over the list, independent of the data."""
    return list(listed) if len(listed) <= most else [listed[(i * len(listed)) // most] for i in range(most)]


def _product(parents: Floats, column: Floats, candidate: _Candidate, total: float) -> Floats:
    """Return the counts of a column and its parents under independence, dimensions in ascending order."""
    side = candidate.positions.index(candidate.column)
    return np.moveaxis(np.multiply.outer(parents, column), -1, side) / max(total, 1.0)
