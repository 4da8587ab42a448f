"""Utility checks of a table against limits, and notes for its reader."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloister.attack.report.interval import percent
from cloister.synth.scoring.check import Check, Limits
from cloister.synth.scoring.utility.numbers import SHARES

if TYPE_CHECKING:
    from cloister.synth.scoring.score import Score

__all__ = ["kept_words", "notes", "uses"]

_FAR = 0.2  # a correlation with a larger error is reported separately
_TOO_CLOSE = 1.05  # 1 is as close as fresh rows, but for chance


def uses(score: "Score", limits: Limits) -> Iterator[Check]:
    """Yield a check for each use."""
    marginal = score.marginals[-1]
    if marginal.way > 1:
        share = score.kept
        if share is None and (not score.rows["held back"] or (score.usefulness or 0.0) >= limits.usefulness):
            share = score.usefulness  # a bootstrap is a stricter reference than fresh rows: reaching it is good enough
        reason = "too few rows tell how much of what is between columns is kept" if share is None else kept_words(share)
        yield Check(
            "marginals",
            "usefulness",
            None if share is None else share >= limits.usefulness,
            f"{marginal.way}-way marginals are off by {marginal.mean.value:.3f} on average, those of independent "
            f"columns by {marginal.frames['independent']:.3f}: {reason} (limit: {percent(limits.usefulness, 0)}).",
        )
    alone = score.marginals[0]
    yield Check(
        "single columns",
        "usefulness",
        alone.mean.value <= 0.1 + alone.frames["bootstrap"],
        f"columns by themselves are off by {alone.mean.value:.3f} on average, a bootstrap by "
        f"{alone.frames['bootstrap']:.3f} (limit: 0.1 more).",
    )
    yield from _numbers(score, limits)
    yield from _correlations(score, limits.correlation)
    if score.propensity:
        yield _told_apart(score, limits.told_apart)
    if score.invalid:
        yield Check(
            "valid rows",
            "usefulness",
            False,
            f"{score.invalid:,} rows lack a value that the schema does not let be missing.",
        )


def _numbers(score: "Score", limits: Limits) -> Iterator[Check]:
    """Check the distribution of each number, value by value; the one with the largest distance is reported."""
    numbers = [number for number in score.numbers if number.real]
    if not numbers:
        return
    steps = [(number.ks - number.ks_margin - limits.ks, number) for number in numbers]
    beyond, worst = max(steps, key=lambda step: step[0])
    far = sum(step[0] > 0 for step in steps)
    middle = SHARES.index(0.5)
    yield Check(
        "KS distance",
        "usefulness",
        beyond <= 0,
        f"of {worst.name}, the share of rows up to {worst.at} is off by {percent(worst.ks)}, the most of "
        f"{len(numbers)} numbers; its median is {worst.synthetic[middle]}, in the real rows {worst.real[middle]} "
        f"(limit: {percent(limits.ks + worst.ks_margin)}, chance included)"
        f"{f'; {far} numbers are beyond it' if far > 1 else ''}.",
    )
    moved = [
        (number.wasserstein - number.wasserstein_margin - limits.wasserstein, number)
        for number in numbers
        if number.wasserstein
    ]
    if moved:
        beyond, worst = max(moved, key=lambda step: step[0])
        yield Check(
            "Wasserstein distance",
            "usefulness",
            beyond <= 0,
            f"values of {worst.name} have to move by {worst.wasserstein:.2f} mean deviations on average to be the real "
            f"ones, the most of all numbers (limit: {limits.wasserstein + worst.wasserstein_margin:.2f}, chance "
            "included).",
        )


def _told_apart(score: "Score", limit: float) -> Check:
    worst = max(score.propensity, key=lambda model: model.told_apart)
    return Check(
        "propensity",
        "usefulness",
        worst.told_apart <= limit,
        f"a {worst.model} tells synthetic rows from real ones at {percent(worst.told_apart, 0)} of the way from chance "
        f"to certainty (pMSE {worst.value:.3f}, chance {worst.expected:.3f}; limit: {percent(limit, 0)}).",
    )


def _correlations(score: "Score", limit: float) -> Iterator[Check]:
    dependence = score.correlations
    off = [] if dependence is None else dependence.off_by(0.0)
    if not off:
        return
    first, second, real, synthetic = off[0]
    beyond = limit + _by_chance(score)
    yield Check(
        "correlations",
        "usefulness",
        abs(synthetic - real) <= beyond,
        f"{first} and {second} have {real:.2f} in the real rows and {synthetic:.2f} here, the farthest off "
        f"(limit: {beyond:.2f} apart, chance included).",
    )


def _by_chance(score: "Score") -> float:
    """Return three standard errors of the difference of two correlations, at most."""
    real, synthetic, _ = score.rows.values()
    return 3 * math.sqrt(1 / real + 1 / synthetic)


def notes(score: "Score") -> Iterator[Check]:
    """Yield notes for a reader, which have no limit."""
    if not score.propensity:
        yield Check("propensity", "note", None, "no model was asked to tell the tables apart: it needs scikit-learn.")
    dependence = score.correlations
    if dependence is None or dependence.worst is None:
        return
    far = max(_FAR, _by_chance(score))
    off = dependence.off_by(far)
    if off:
        first, second, real, synthetic = off[0]
        more = f" So are {len(off) - 1} more pairs." if len(off) > 2 else " So is one more pair." if off[1:] else ""
        text = (
            f"{first} and {second} have {real:.2f} in the real rows and {synthetic:.2f} here: off by more than "
            f"{far:.2g}."
        )
        yield Check("correlations", "note", None, text + more)


def kept_words(kept: float) -> str:
    """Describe the kept share of the dependence between columns; a share well above 1 is reported as too close."""
    text = f"{percent(min(1.0, max(0.0, kept)), 0)} of what is between columns is kept"
    return text if kept < _TOO_CLOSE else f"{text}, and it is closer to these very rows than fresh ones would be"
