"""Two columns together: age and marital status, as the textbook has them, with the corrections of m_way.py."""

from collections.abc import Sequence
from typing import Any

from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.synth.generators.m_way import marginal_of
from cloister.synth.options import check_names
from cloister.synth.run import Progress
from cloister.synth.table import SyntheticTable
from cloister.synth.whole import MOST_CELLS

__all__ = ["two_way"]


def two_way(
    ds: Any,
    *,
    spend: Loss,
    columns: Sequence[str],
    rows: int | None = None,
    table: str | None = None,
    bins: Any = 128,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """A synthetic table of two columns, from their joint counts.

    Args:
        columns: the two.
        ds, spend, rows, table, bins, progress, random_state: as in `synth.independent`. 128 bins keep ages apart.

    Privacy: the spend, for the dataset's unit of m rows (add/remove); see `synth.m_way`. The full cross product of both
        domains is counted (100 ages × 7 states are 700 cells, whoever occurs), each cell with noise of its own; the
        number of rows comes from the same counts, so that the cells cost the spend and nothing else is paid.
    """
    check_names("columns", columns)
    if columns is None or len(set(columns)) != 2:
        raise BadInput("a two-way marginal needs two columns: columns=['age', 'marital'].")
    return marginal_of(ds, "two_way", spend, rows, columns, table, bins, MOST_CELLS, progress, random_state)
