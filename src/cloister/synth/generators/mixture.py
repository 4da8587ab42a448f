"""Latent classes of rows, from all pairs of columns: for tables of many columns with few values each.

    1  measure all one-way and all two-way marginals in two steps: nothing is selected
    2  fit latent classes to them (latent.py), and measure the model's errors

Where columns have few values, all pairs can be afforded: 23 columns have 253 pairs, so each has sixteen times the noise
of a single one, and every cell of the model is measured in 22 of them. Where columns have many values, most cells of a
pair hold less than their noise, and a generator that selects (`aim`) does better.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from cloister.data.private_data import PrivateData
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.synth.domain.domain import read_domain
from cloister.synth.measure.error_estimate import estimate_error
from cloister.synth.measure.marginals import Measurer
from cloister.synth.model.inference import total_of
from cloister.synth.model.latent import blocks_of, fit_classes
from cloister.synth.options import check_whole
from cloister.synth.output.table import SyntheticTable
from cloister.synth.run import GeneratorResult, Progress, synthesise

__all__ = ["mixture"]

_SINGLE, _REVIEW = Fraction(1, 10), Fraction(1, 100)
_MOST_FITS = 1_000
_MOST_PAIR = 8_000_000
_MOST_CELLS = 4_000  # of all columns together: time and memory grow with its square


def mixture(
    ds: PrivateData,
    *,
    spend: Loss,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 16,
    fits: int = 6,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """Generate a synthetic table from latent classes.

    Args:
        ds, spend, rows, columns, table, bins, progress, random_state: as in `synth.independent`.
        fits: number of fits from different starting points that are combined: time grows with it.

    Privacy: the spend, for the dataset's unit of m rows (add/remove). A tenth measures d columns (L2 sensitivity √d·m),
        a hundredth pays for the review, the rest measures all d(d - 1)/2 pairs (√(d(d - 1)/2)·m); noise is discrete
        Gaussian, under a pure spend Laplace, for L1. Nothing is selected from the data. Columns that a rule of the
        schema ties together count as one.
    """
    check_whole("fits", fits, most=_MOST_FITS)
    _check(read_domain(ds, table=table, columns=columns, bins=bins)[0])
    return synthesise(
        ds,
        lambda survey, tell: _steps(survey, tell, fits),
        method="mixture",
        spend=spend,
        rows=rows,
        columns=columns,
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
    )


def _check(domain: Any) -> None:
    cells = sum(len(block.cells) for block in blocks_of(domain))
    if cells > _MOST_CELLS:
        raise BadInput(
            f"mixture is for columns of few values: these have {cells:,} cells together, and {_MOST_CELLS:,} are the "
            "most. Give fewer bins or columns, or use synth.aim."
        )
    largest = sorted((prod(block.shape) for block in blocks_of(domain)), reverse=True)[:2]
    if prod(largest) > _MOST_PAIR:  # columns tied by a rule are counted together with their structural zeros
        raise BadInput(
            f"mixture counts columns that a rule ties together as one: the largest two have {prod(largest):,} cells; "
            f"{_MOST_PAIR:,} are the most. Give fewer bins or columns, or use synth.aim."
        )


def _steps(survey: Measurer, tell: Progress, fits: int) -> GeneratorResult:
    budget, blocks = survey.budget, blocks_of(survey.domain)
    pairs = [tuple(sorted((*block.positions, *other.positions))) for block, other in combinations(blocks, 2)]
    alone = _SINGLE if pairs else 1 - _REVIEW
    singles = survey.measure([block.positions for block in blocks], budget.part(alone), why="every column")
    measured = survey.measure(pairs, budget.part(1 - alone - _REVIEW), why="every pair of columns") if pairs else []
    generator = np.random.default_rng(int.from_bytes(survey.meter.source.bytes(32), "little"))

    def told(share: float) -> None:
        tell(0.1 + 0.7 * share, "fitting")

    told(0.0)
    total = total_of([*singles, *measured])
    model = fit_classes(blocks, singles, measured, total, survey.domain, fits, generator, told)
    tell(0.85, "reviewing")
    return GeneratorResult(model, [*singles, *measured], [], estimate_error(survey, model, budget.part(_REVIEW)))
