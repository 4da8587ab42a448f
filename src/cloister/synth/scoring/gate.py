"""The gate: attack a synthetic table before it is released. The owner's view; never shown to users."""

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
    """Score a table, attack it, and decide whether it may be released, with reasons.

    Args:
        real, synthetic, schema, target, table, columns, bins, quantiles, most_rows, seed, progress: as for `score`.
        holdout: rows of the same population that the generator did not read.
        limits: acceptable limits; `Limits()` unless given.

    A table that passes was not found to leak by these attacks, which is less than a proof. Privacy is a property of the
    mechanism, stated by its loss; the gate catches errors in that statement.

    Privacy: reads real rows, without noise. The verdict is the owner's: it is never shown to a user, the charge for the
        table stands, and discarding tables until one passes is a selection that is not charged here. Use `choose` for
        that.
    """
    if holdout is None:
        raise BadInput("a gate needs rows that the generator did not see: hold one row in five back before it runs.")
    scored = score(
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
    return judge(scored, limits)
