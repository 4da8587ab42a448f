"""A tree of the strongest pairs: Chow & Liu's network, selected and measured privately.

    1  measure the one-way marginals; merge cells too light to be distinguished from noise (coarsening.py)
    2  join columns to a tree: repeatedly select, by the exponential mechanism, the pair of columns from two parts
       of the forest whose joint counts are farthest (L1) from those of independent columns
    3  measure the pairs of the tree, and fit

After McKenna, Miklau & Sheldon 2021, "Winning the NIST contest". The score is the L1 gap, not mutual information: one
row moves it by at most one, so its sensitivity is exact, and no logarithm of a count is taken.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

from cloister.data.private_data import PrivateData
from cloister.privacy.loss import Loss
from cloister.synth.domain.coarsening import grain_marginal, grains_of
from cloister.synth.domain.domain import Positions
from cloister.synth.measure.error_estimate import estimate_error
from cloister.synth.measure.marginals import Measurer, Merges, gaps, l1
from cloister.synth.model.inference import Model, fit, total_of
from cloister.synth.model.marginal_oracle import MarginalOracle
from cloister.synth.output.table import SyntheticTable
from cloister.synth.run import GeneratorResult, Progress, synthesise

__all__ = ["choose_tree", "mst", "tree_steps"]

_SINGLE, _CHOOSE, _REVIEW = Fraction(3, 10), Fraction(2, 10), Fraction(1, 50)
_LEAST = 3.0  # standard errors that a cell must hold to be kept separate


def mst(
    ds: PrivateData,
    *,
    spend: Loss,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 32,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """Generate a synthetic table from a tree of pairs.

    Args:
        ds, spend, rows, columns, table, bins, progress, random_state: as in `synth.independent`.

    Privacy: the spend, for the dataset's unit of m rows (add/remove). Three tenths measure d columns (L2 sensitivity
        √d·m), two tenths select d - 1 pairs (exponential mechanism on L1 gaps, sensitivity m each), a fiftieth pays for
        the review, the rest measures the pairs (√(d-1)·m). Under a pure spend noise is Laplace, for L1. Audited in
        tests/statistical/test_synth_audit.py.
    """
    return synthesise(
        ds,
        tree_steps,
        method="mst",
        spend=spend,
        rows=rows,
        columns=columns,
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
    )


def tree_steps(survey: Measurer, tell: Progress) -> GeneratorResult:
    """Measure, select the tree and fit, with a survey's spend.

    Privacy: the survey's spend; see `mst`.
    """
    budget, domain = survey.budget, survey.domain
    positions = [(column,) for column in range(len(domain.shape))]
    measured = survey.measure(positions, budget.part(_SINGLE), why="every column")
    grains = grains_of(domain, measured, total_of(measured), _LEAST)
    marginals, shape = [grain_marginal(marginal, grains) for marginal in measured], [grain.size for grain in grains]
    model = fit(shape, marginals, zeros=domain.zeros, grains=grains)
    words = []
    if len(shape) > 1:
        tree = choose_tree(survey, model, budget.part(_CHOOSE), tell)
        words = [" and ".join(domain.words(pair)) for pair in tree]
        merges: list[Merges] = [tuple(grains[column].cells for column in pair) for pair in tree]
        pairs = survey.measure(tree, budget.part(1 - _SINGLE - _CHOOSE - _REVIEW), merges, why="a pair of the tree")
        measured = [*measured, *pairs]
        tell(0.6, "fitting")
        marginals += [replace(pair, merges=()) for pair in pairs]
        model = fit(shape, marginals, zeros=domain.zeros, grains=grains, steps=1000)
    return GeneratorResult(model, measured, words, estimate_error(survey, model, budget.part(_REVIEW)))


def choose_tree(survey: Measurer, model: Model, loss: Loss, tell: Progress) -> list[Positions]:
    """Select the pairs of a spanning tree, each by the exponential mechanism.

    Privacy: the loss, in d - 1 equal parts. The score of a pair is the L1 distance between its true counts and those
        of a released model, in the model's cells, which moves by at most m rows with a unit of m rows.
    """
    columns = len(survey.domain.shape)
    pairs: list[Positions] = list(combinations(range(columns), 2))
    part_of = list(range(columns))
    oracle = MarginalOracle(model)
    grains: list[Merges] = [tuple(model.grains[column].cells for column in pair) for pair in pairs]
    far: dict[Positions, int] = {}
    tree: list[Positions] = []
    for done in range(columns - 1):
        open_pairs = [pair for pair in pairs if part_of[pair[0]] != part_of[pair[1]]]

        def scores(inside: Measurer, listed: list[Positions] = open_pairs) -> list[int]:
            if not far:
                for (pair, counts), merges in zip(inside.counted(pairs), grains, strict=True):
                    expected = oracle.joint(pair) * model.total
                    far[pair] = l1(gaps(counts.table(merges), expected, model.total, inside.whole))
            return [far[pair] for pair in listed]

        chosen = open_pairs[survey.choose(scores, loss.split(columns - 1))]
        tree.append(chosen)
        gone, kept = part_of[chosen[1]], part_of[chosen[0]]
        part_of = [kept if part == gone else part for part in part_of]
        tell(0.1 + 0.4 * (done + 1) / (columns - 1), "choosing pairs")
    return tree
