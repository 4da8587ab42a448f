"""One column: its values drawn from a noisy histogram."""

from typing import Any

from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.synth.generators.m_way import marginal_of
from cloister.synth.run import Progress
from cloister.synth.table import SyntheticTable
from cloister.synth.whole import MOST_CELLS

__all__ = ["one_column"]


def one_column(
    ds: Any,
    *,
    spend: Loss,
    column: str,
    rows: int | None = None,
    table: str | None = None,
    bins: Any = 128,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """A synthetic table of one column.

    Args:
        column: its name; any column with public cells.
        ds, spend, rows, table, bins, progress, random_state: as in `synth.independent`. 128 bins keep ages apart.

    Privacy: the spend, for the dataset's unit of m rows (add/remove); see `synth.m_way`. Each cell of the public domain
        has noise of its own, whether anybody is in it or not; `rows` is public, or follows from the same counts.
    """
    if not isinstance(column, str):
        raise BadInput("say which column: column='age'.")
    return marginal_of(ds, "one_column", spend, rows, [column], table, bins, MOST_CELLS, progress, random_state)
