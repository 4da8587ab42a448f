"""One marginal of all columns: a count for every combination of values, each with its own noise.

The textbook's listing samples one number and adds it to every cell, lists only combinations that occur, and charges
nothing for either. Here the domain is the whole cross product of public values, including empty cells (omitting an
empty cell reveals that no row is in it), every cell gets its own noise, and the same counts give the number of rows.
"""

from collections.abc import Sequence
from typing import Any

from cloister.data.private_data import PrivateData
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.synth.measure.marginals import Measurer
from cloister.synth.model.full_joint import MOST_CELLS, check_cells, full_joint
from cloister.synth.options import check_names
from cloister.synth.output.table import SyntheticTable
from cloister.synth.run import GeneratorResult, Progress, synthesise

__all__ = ["m_way", "marginal_of", "one_column", "two_way"]


def m_way(
    ds: PrivateData,
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
    """Generate a synthetic table from one marginal of all its columns.

    Args:
        ds, spend, rows, columns, table, bins, progress, random_state: as in `synth.independent`.
        most_cells: the largest cross product that is accepted. Every cell has noise, so many cells drown few rows.

    Privacy: the spend, for the dataset's unit of m rows (add/remove): all of it on one marginal, which a unit moves by
        m in L1 and in L2; discrete Laplace noise under a pure spend, discrete Gaussian otherwise. If rows may be
        replaced rather than added the sensitivity is 2m: halve the spend (`Loss.as_replace_one`). The number of rows is
        estimated from the same counts at no further cost. Columns that may be NULL have a cell for it.
    """
    return marginal_of(
        ds,
        "m_way",
        most_cells,
        spend=spend,
        rows=rows,
        columns=columns,
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
    )


def marginal_of(ds: PrivateData, method: str, most_cells: int = MOST_CELLS, **request: Any) -> SyntheticTable:
    """Generate a table from the marginal of some columns.

    Args:
        ds: the dataset.
        method: the method's name in the release.
        most_cells: the largest cross product that is accepted.
        request: what every generator takes: spend, rows, columns, table, bins, progress, random_state.
    """
    check_cells(ds, request["table"], request["columns"], request["bins"], most_cells, method)
    return synthesise(ds, _whole_marginal, method=method, **request)


def _whole_marginal(survey: Measurer, tell: Progress) -> GeneratorResult:
    every = tuple(range(len(survey.domain.shape)))
    measured = survey.measure([every], survey.budget.loss, why="every combination of values")
    tell(0.6, "fitting")
    return GeneratorResult(full_joint(survey.domain, measured[0].counts), measured)


# One column: its values sampled from a noisy histogram.


def one_column(
    ds: PrivateData,
    *,
    spend: Loss,
    column: str,
    rows: int | None = None,
    table: str | None = None,
    bins: Any = 128,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """Generate a synthetic table of one column.

    Args:
        column: its name; any column with public cells.
        ds, spend, rows, table, bins, progress, random_state: as in `synth.independent`. 128 bins keep ages separate.

    Privacy: the spend, for the dataset's unit of m rows (add/remove); see `synth.m_way`. Each cell of the public domain
        has its own noise, whether it is empty or not; `rows` is public, or follows from the same counts.
    """
    if not isinstance(column, str):
        raise BadInput("say which column: column='age'.")
    return marginal_of(
        ds,
        "one_column",
        spend=spend,
        rows=rows,
        columns=[column],
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
    )


# Two columns together: age and marital status, as in the textbook, with the corrections of m_way.py.


def two_way(
    ds: PrivateData,
    *,
    spend: Loss,
    columns: Sequence[str],
    rows: int | None = None,
    table: str | None = None,
    bins: Any = 128,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """Generate a synthetic table of two columns, from their joint counts.

    Args:
        columns: the two columns.
        ds, spend, rows, table, bins, progress, random_state: as in `synth.independent`. 128 bins keep ages separate.

    Privacy: the spend, for the dataset's unit of m rows (add/remove); see `synth.m_way`. The full cross product of both
        domains is counted (100 ages × 7 states are 700 cells, empty or not), each cell with its own noise; the
        number of rows comes from the same counts, so that nothing is charged beyond the spend on the cells.
    """
    check_names("columns", columns)
    if columns is None or len(set(columns)) != 2:
        raise BadInput("a two-way marginal needs two columns: columns=['age', 'marital'].")
    return marginal_of(
        ds,
        "two_way",
        spend=spend,
        rows=rows,
        columns=columns,
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
    )
