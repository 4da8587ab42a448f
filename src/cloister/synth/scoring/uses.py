"""What a table is good for, held against limits, and what its reader should know."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloister.synth.scoring.check import Check, Limits
from cloister.synth.scoring.figure import percent

if TYPE_CHECKING:
    from cloister.synth.scoring.score import Score

__all__ = ["kept_words", "notes", "uses"]

_FAR = 0.2  # a correlation that is off by more is another finding
_TOO_CLOSE = 1.05  # 1 is as close as fresh rows, but for chance


def uses(score: "Score", limits: Limits) -> Iterator[Check]:
    """A check for each use."""
    way = score.marginals[-1]
    if way.way > 1:
        kept = score.kept
        if kept is None and (not score.rows["held back"] or (score.usefulness or 0.0) >= limits.usefulness):
            kept = score.usefulness  # a bootstrap is a higher mark than fresh rows: what reaches it is good enough
        told = "too few rows tell how much of what lies between columns is kept" if kept is None else kept_words(kept)
        yield Check(
            "marginals",
            "usefulness",
            None if kept is None else kept >= limits.usefulness,
            f"{way.way}-way marginals are off by {way.mean.value:.3f} on average, those of independent columns by "
            f"{way.frames['independent']:.3f}: {told} (limit: {percent(limits.usefulness, 0)}).",
        )
    alone = score.marginals[0]
    yield Check(
        "single columns",
        "usefulness",
        alone.mean.value <= 0.1 + alone.frames["bootstrap"],
        f"columns by themselves are off by {alone.mean.value:.3f} on average, a bootstrap by "
        f"{alone.frames['bootstrap']:.3f} (limit: 0.1 more).",
    )
    if score.invalid:
        yield Check(
            "valid rows",
            "usefulness",
            False,
            f"{score.invalid:,} rows lack a value that the schema does not let be missing.",
        )


def notes(score: "Score") -> Iterator[Check]:
    """What a reader should know and what no limit is for."""
    found = score.correlations
    if found is None or found.worst is None:
        return
    real, made, _ = score.rows.values()
    far = max(_FAR, 3 * math.sqrt(1 / real + 1 / made))  # three standard errors of a correlation, at most
    off = found.off_by(far)
    if off:
        one, other, there, here = off[0]
        more = f" So are {len(off) - 1} more pairs." if len(off) > 2 else " So is one more pair." if off[1:] else ""
        text = f"{one} and {other} have {there:.2f} in the real rows and {here:.2f} here: off by more than {far:.2g}."
        yield Check("correlations", "note", None, text + more)


def kept_words(kept: float) -> str:
    """How much of what lies between columns is kept, in words: more than all of it is no praise."""
    told = f"{percent(min(1.0, max(0.0, kept)), 0)} of what lies between columns is kept"
    return told if kept < _TOO_CLOSE else f"{told}, and it is closer to these very rows than fresh ones would be"
