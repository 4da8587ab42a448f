"""The gate: attack a synthetic table before it is handed on. The owner's view; nothing of it reaches a user."""

from collections.abc import Sequence
from typing import Any

from cloister.data.schema import Schema
from cloister.privacy.errors import BadInput
from cloister.synth.scoring.score import Progress, score
from cloister.synth.scoring.verdict import Limits, Verdict, judge

__all__ = ["gate"]


def gate(
    real: Any,
    synthetic: Any,
    schema: Schema | Any,
    holdout: Any,
    target: str | None = None,
    *,
    limits: Limits | None = None,
    table: str | None = None,
    columns: Sequence[str] | None = None,
    bins: Any = 32,
    quantiles: int = 20,
    most_rows: int = 50_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Verdict:
    """Score a table, attack it, and say whether it may be handed on, with reasons.

    Args:
        real, synthetic, schema, target, table, columns, bins, quantiles, most_rows, seed, progress: as for `score`.
        holdout: rows of the same population that the generator did not see.
        limits: what is acceptable; `Limits()` unless given.

    A table that passes was not found to leak by these attacks, which is less than a proof. Privacy is a property of how
    the table was made, stated by its loss; the gate catches what that statement got wrong.

    Privacy: a look at real rows, without noise. The verdict is the owner's: it never reaches a user, the charge for
        the table stands, and throwing tables away until one passes is a choice that this does not pay for. Use
        `choose` for that.
    """
    if holdout is None:
        raise BadInput("a gate needs rows that the generator did not see: hold one row in five back before it runs.")
    found = score(
        real,
        synthetic,
        schema,
        holdout,
        target,
        table=table,
        columns=columns,
        bins=bins,
        quantiles=quantiles,
        most_rows=most_rows,
        seed=seed,
        progress=progress,
    )
    return judge(found, limits)
