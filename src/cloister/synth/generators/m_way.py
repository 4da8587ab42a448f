"""One marginal of all columns: every combination of values counted, each count with noise of its own.

The textbook's listing draws one number and adds it to every cell, lists only combinations that occur, and pays nothing
for either. Here the domain is the whole cross product of public values, empty cells included (an empty cell that is
left out says that nobody is there), every cell gets a draw of its own, and the same counts tell the number of rows.
"""

from collections.abc import Sequence
from typing import Any

from cloister.privacy.loss import Loss
from cloister.synth.marginals import Survey
from cloister.synth.run import Made, Progress, synthesise
from cloister.synth.table import SyntheticTable
from cloister.synth.whole import MOST_CELLS, check_cells, whole_model

__all__ = ["m_way", "marginal_of"]


def m_way(
    ds: Any,
    *,
    spend: Loss,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 32,
    most_cells: int = MOST_CELLS,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """A synthetic table from one marginal of all its columns.

    Args:
        ds, spend, rows, columns, table, bins, progress, random_state: as in `synth.independent`.
        most_cells: the largest cross product that is accepted. Noise is on every cell, so many cells drown few rows.

    Privacy: the spend, for the dataset's unit of m rows (add/remove): all of it on one marginal, which a unit moves by
        m in L1 and in L2; discrete Laplace noise under a pure spend, discrete Gaussian otherwise. If rows may be
        replaced rather than added the sensitivity is 2m: halve the spend (`Loss.as_replace_one`). The number of rows is
        estimated from the same counts and costs nothing more. Columns that may be NULL have a cell for it.
    """
    return marginal_of(ds, "m_way", spend, rows, columns, table, bins, most_cells, progress, random_state)


def marginal_of(
    ds: Any,
    method: str,
    spend: Loss,
    rows: int | None,
    columns: Sequence[str] | None,
    table: str | None,
    bins: Any,
    most_cells: int,
    progress: Progress | None,
    random_state: Any,
) -> SyntheticTable:
    """A table from the marginal of some columns, under a method's name."""
    check_cells(ds, table, columns, bins, most_cells, method)

    def steps(survey: Survey, tell: Progress) -> Made:
        every = tuple(range(len(survey.domain.shape)))
        measured = survey.measure([every], survey.purse.loss, why="every combination of values")
        tell(0.6, "fitting")
        return Made(whole_model(survey.domain, measured[0].counts), measured)

    return synthesise(
        ds,
        steps,
        method=method,
        spend=spend,
        rows=rows,
        columns=columns,
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
    )
