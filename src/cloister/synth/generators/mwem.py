"""MWEM: multiplicative weights on the joint distribution, guided by the queries it answers worst.

    1  start with equal weights on every combination that can occur; measure the number of rows
    2  in each round select privately the query of the workload that the weights answer worst, and measure it
    3  increase weights where too few rows are expected, decrease them where there are too many; iterate over all
       measurements until the weights agree with them

After Hardt, Ligett & McSherry 2012. A query is a marginal, or a count under a condition; a count is measured together
with its complement, at the same cost. The weights cover every cell of the cross product, so the domain must be small;
a larger one is refused with a message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import pi, prod, sqrt
from typing import Any

import numpy as np

from cloister.data.private_data import PrivateData
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.synth.domain.domain import Domain, Positions
from cloister.synth.measure.error_estimate import estimate_error
from cloister.synth.measure.marginals import (
    Floats,
    Measurer,
    Merges,
    NoisyMarginal,
    gaps,
    l1,
    merged_counts,
    merged_shape,
)
from cloister.synth.model.full_joint import MOST_CELLS, allowed_cells, check_cells, full_joint
from cloister.synth.options import check_names, check_whole
from cloister.synth.output.expected_errors import MarginalQuery, RangeCondition
from cloister.synth.output.table import SyntheticTable
from cloister.synth.run import GeneratorResult, Progress, synthesise

__all__ = ["mwem"]

_TOTAL, _REVIEW = Fraction(1, 20), Fraction(1, 50)
_PASSES, _MOST_ROUNDS = 20, 1_000

Workload = Sequence[tuple[str, ...] | Mapping[str, Any]]


@dataclass(frozen=True)
class _Question:
    positions: Positions
    merges: Merges
    words: str
    count: MarginalQuery | None = None

    def of(self, counts: Floats) -> Floats:
        """Return its answer, from the marginal of its columns."""
        return np.asarray(merged_counts(counts, self.merges))


def mwem(
    ds: PrivateData,
    *,
    spend: Loss,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 8,
    workload: Workload | None = None,
    rounds: int | None = None,
    most_cells: int = MOST_CELLS,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """Generate a synthetic table from multiplicative weights.

    Args:
        ds, spend, rows, columns, table, bins, progress, random_state: as in `synth.independent`.
        workload: the queries that matter: ("ward", "age") for a marginal, {"age": {"from": 44, "below": 55}} for a
            count under a condition. All marginals of one and two columns unless given.
        rounds: number of measured queries; by default as many as the workload has, and at most 12.
        most_cells: the largest cross product that is accepted.

    Privacy: the spend, for the dataset's unit of m rows (add/remove). A twentieth measures the number of rows, a
        fiftieth pays for the review; each round has an equal part of the rest, half for the selection (exponential
        mechanism on L1 distances to the weights' own answers minus a public constant, sensitivity m) and half for the
        answer (sensitivity m).
    """
    check_whole("rounds", rounds, most=_MOST_ROUNDS, none=True)
    domain = check_cells(ds, table, columns, bins, most_cells, "mwem")
    texts = [question.words for question in _questions(domain, workload)]
    planned = min(len(texts), 12) if rounds is None else rounds

    def steps(survey: Measurer, tell: Progress) -> GeneratorResult:
        # With private cuts, a condition may match all bins where it did not match all equal ones: its count is then
        # that of all rows, a valid answer. A refusal here would come after the charge.
        budget, questions = survey.budget, _questions(survey.domain, workload, bought=True)
        nobody_apart: Merges = (np.zeros(survey.domain.shape[0], dtype=np.int64),)
        measured = survey.measure([(0,)], budget.part(_TOTAL), [nobody_apart], why="the number of rows")
        total = max(1.0, float(measured[0].counts.sum()))
        weights = allowed_cells(survey.domain)
        weights *= total / weights.sum()
        each = budget.part((1 - _TOTAL - _REVIEW) / planned)
        answers: list[tuple[_Question, NoisyMarginal]] = []
        words = []
        for done in range(planned):
            chosen = _worst(survey, weights, questions, each.split(2))
            noisy = survey.measure([chosen.positions], each.split(2), [chosen.merges], why=f"round {done + 1}")[0]
            answers.append((chosen, noisy))
            words.append(chosen.words)
            weights = _updated(weights, answers, total)
            tell(0.1 + 0.7 * (done + 1) / planned, f"{done + 1} questions")
        model = full_joint(survey.domain, weights, total)
        every = [*measured, *(noisy for _, noisy in answers)]
        error = estimate_error(survey, model, budget.part(_REVIEW))
        marginals = [question.positions for question in questions if question.count is None]
        counts = [question.count for question in questions if question.count is not None]
        return GeneratorResult(model, every, words, error, marginals, counts)

    return synthesise(
        ds,
        steps,
        method="mwem",
        spend=spend,
        rows=rows,
        columns=columns,
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
        told={"workload": texts, "rounds": planned},
    )


def _questions(domain: Domain, workload: Workload | None, bought: bool = False) -> list[_Question]:
    if workload is None:
        sets = [positions for k in (1, 2) for positions in combinations(range(len(domain.shape)), k)]
        return [_Question(positions, (), " and ".join(domain.words(positions))) for positions in sets]
    if not isinstance(workload, list | tuple):  # it is read again after the charge
        raise BadInput("a workload is a list of questions.")
    questions = [_question(domain, entry, bought) for entry in workload]
    if not questions:
        raise BadInput("a workload has at least one question.")
    return questions


def _question(domain: Domain, entry: Any, bought: bool) -> _Question:
    """Read a marginal, named by its columns, or a count, as conditions by column."""
    check_names("a question of the workload", entry, none=False)
    if not list(entry) or any(name not in domain.positions for name in entry):
        raise BadInput("a workload names modelled columns: ('ward', 'age'), or {'age': {'from': 44, 'below': 55}}.")
    positions = tuple(sorted({domain.positions[name] for name in entry}))
    if not isinstance(entry, Mapping):
        return _Question(positions, (), " and ".join(domain.words(positions)))
    axes = [domain.modelled[column] for column in positions]
    conditions = tuple(RangeCondition.of(axis, entry[axis.name]) for axis in axes)
    if not bought and any(cells.most.all() or not cells.most.any() for cells in conditions):
        raise BadInput("a count needs a condition that some cells meet and others do not.")
    merges = tuple(cells.most.astype(np.int64) for cells in conditions)
    return _Question(positions, merges, str(dict(entry)), MarginalQuery(entry, positions, conditions))


def _worst(survey: Measurer, weights: Floats, questions: Sequence[_Question], loss: Loss) -> _Question:
    """Select privately the query that the weights answer worst, after subtracting the expected noise."""
    sigma, total = survey.noise(loss), float(weights.sum())
    expected = [question.of(_marginal(weights, question.positions)) for question in questions]
    noise = [round(sqrt(2 / pi) * sigma * answer.size * survey.parts) for answer in expected]

    def scores(inside: Measurer) -> list[int]:
        counted = inside.counted([question.positions for question in questions])
        return [
            l1(gaps(counts.table(question.merges), answer, total, inside.whole)) - much
            for question, (_, counts), answer, much in zip(questions, counted, expected, noise, strict=True)
        ]

    return questions[survey.choose(scores, loss)]


def _updated(weights: Floats, answers: Sequence[tuple[_Question, NoisyMarginal]], total: float) -> Floats:
    """Update the weights in several passes over all measurements. Post-processing."""
    logs = np.log(np.where(weights > 0, weights, 1.0))
    possible = weights > 0
    for _ in range(_PASSES):
        for question, noisy in answers:
            now = question.of(_marginal(weights, question.positions))
            # The paper's step is half of the gap in shares of the rows; no weight moves by more than a factor e.
            step = np.clip((noisy.counts - now) / (2 * np.maximum(now, total / (2 * prod(now.shape)))), -1.0, 1.0)
            logs += _spread(step, question, weights.shape)
            weights = np.where(possible, np.exp(logs - logs[possible].max()), 0.0)
            weights *= total / weights.sum()
    return weights


def _marginal(weights: Floats, positions: Positions) -> Floats:
    return np.asarray(weights.sum(axis=tuple(i for i in range(weights.ndim) if i not in positions)))


def _spread(step: Floats, question: _Question, shape: Sequence[int]) -> Floats:
    """Broadcast a number per cell of an answer to the cells of the cross product."""
    sizes = [shape[column] for column in question.positions]
    if question.merges:
        assert step.shape == merged_shape(sizes, question.merges)
        takes = [
            np.arange(size) if merge is None else merge for size, merge in zip(sizes, question.merges, strict=True)
        ]
        step = step[np.ix_(*takes)]
    return step.reshape([shape[i] if i in question.positions else 1 for i in range(len(shape))])
