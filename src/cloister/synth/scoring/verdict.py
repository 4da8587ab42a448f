"""What a score amounts to: one check for each danger and each use, each with its limit and its reason."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloister.privacy.unit import ROW
from cloister.synth.scoring.figure import Figure, percent
from cloister.synth.scoring.membership import beaten

if TYPE_CHECKING:
    from cloister.synth.scoring.score import Score

__all__ = ["Check", "Limits", "Verdict", "judge"]

_UNLIKELY = 1e-3
_REFUTED = 1e-4


@dataclass(frozen=True, slots=True)
class Limits:
    """What is still acceptable. A limit is broken only by more than chance explains.

    Attributes:
        copies: the share of real rows that may be copied beyond chance.
        closeness: how far above 1/2 it may be that a real row is nearer to a synthetic one than a stranger is.
        advantage: of guesses who was in the table: 2 · right - 1.
        singling_out: the share of rules that may single out beyond chance.
        usefulness: the least part of what lies between columns: 1 is as in fresh rows, 0 is as independent columns.
    """

    copies: float = 0.001
    closeness: float = 0.05
    advantage: float = 0.1
    singling_out: float = 0.05
    usefulness: float = 0.5


@dataclass(frozen=True, slots=True)
class Check:
    """One danger, or one use.

    Attributes:
        name: what was checked.
        about: "privacy" or "usefulness".
        passed: None if there are too few rows to tell.
        reason: what was found against which limit, in a sentence.
    """

    name: str
    about: str
    passed: bool | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {"check": self.name, "about": self.about, "passed": self.passed, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a table may be handed on, for the owner's eyes.

    Attributes:
        checks: one for each danger and each use.
        score: what they rest on.

    Privacy: none. It is a look at real rows. What the table cost stays paid whatever the verdict says; whether it
        passed must not be told to users, and making tables until one passes is a choice that has to be paid for
        (`choose`).
    """

    checks: tuple[Check, ...]
    score: "Score"

    @property
    def private(self) -> bool:
        """Whether every danger was looked at and none was found. No test of rows can prove privacy: a loss does."""
        return all(one.passed for one in self.checks if one.about == "privacy") and self.score.membership is not None

    @property
    def useful(self) -> bool:
        """Whether the table is good enough."""
        return all(one.passed for one in self.checks if one.about == "usefulness")

    @property
    def passed(self) -> bool:
        """Both."""
        return self.private and self.useful

    @property
    def headline(self) -> str:
        """The verdict in a sentence."""
        failed = [one.name for one in self.checks if one.passed is False]
        if self.passed:
            return "Fit to hand on: the attacks found nothing beyond chance, and the table is useful."
        if failed:
            return f"Not fit to hand on: {', '.join(failed)}."
        return "Not settled: there are too few rows, or none held back, to attack the table."

    def to_json(self) -> dict[str, Any]:
        """Verdict, reasons and score, as plain values."""
        told = {"passed": self.passed, "private": self.private, "useful": self.useful, "headline": self.headline}
        scored = self.score.to_json()
        return {"view": scored["view"], "publishable": False, **told, "checks": [x.to_json() for x in self.checks]} | {
            "score": scored
        }

    def __str__(self) -> str:
        from cloister.synth.scoring.score import OWNERS_VIEW
        from cloister.synth.scoring.text import wrapped

        lines = [*wrapped(OWNERS_VIEW, ""), "", *wrapped(self.headline, "")]
        for one in self.checks:
            word = {True: "pass", False: "FAIL", None: "open"}[one.passed]
            lines += wrapped(f"{one.name}: {one.reason}", f"  {word}  ")
        return "\n".join(lines)


def judge(score: "Score", limits: Limits | None = None) -> Verdict:
    """Hold a score against limits."""
    bounds = limits or Limits()
    return Verdict((*_dangers(score, bounds), *_uses(score, bounds)), score)


def _dangers(score: "Score", limits: Limits) -> Iterator[Check]:
    copies, near, guessed, single = score.copies, score.closeness, score.membership, score.singling_out
    if near is None or guessed is None or copies.fresh is None or copies.chance is None:
        yield Check("attacks", "privacy", None, "no rows were held back, so copying cannot be told from likeness.")
        return
    excess = copies.excess or 0.0
    copied = excess > limits.copies and copies.chance < _UNLIKELY
    yield Check(
        "exact copies",
        "privacy",
        not copied,
        f"{percent(copies.real.value, 2)} of the real rows are in the table, {percent(copies.fresh.value, 2)} of those "
        f"held back (limit: {percent(limits.copies, 2)} more).",
    )
    yield Check(
        "closest rows",
        "privacy",
        _within(
            Figure(near.nearer.value - 0.5, (near.nearer.low or 0) - 0.5, (near.nearer.high or 1) - 0.5),
            limits.closeness,
        ),
        f"a real row is nearer to the table than a stranger is in {near.nearer.text(1, percent=True)} of pairs "
        f"(chance: 50 %; limit: {percent(0.5 + limits.closeness, 0)}).",
    )
    yield Check(
        "membership",
        "privacy",
        _within(guessed.advantage, limits.advantage),
        f"{guessed.right.text(1, percent=True)} of guesses who was in the table are right "
        f"(chance: 50 %; limit: {percent(0.5 + limits.advantage / 2, 0)}).",
    )
    if single is not None:
        alone = single.risk > limits.singling_out and single.chance < _UNLIKELY
        yield Check(
            "singling out",
            "privacy",
            not alone,
            f"{percent(single.real.value)} of rules fit one real row, {percent(single.fresh.value)} one held-back row "
            f"(limit: {percent(limits.singling_out, 0)} beyond chance).",
        )
    if score.claim is not None:
        # One row of somebody with several is two steps away, by way of the table without them.
        bound = score.claim if score.unit == ROW else score.claim.as_replace_one()
        chance = beaten(guessed, bound)
        yield Check(
            "the claim",
            "privacy",
            chance >= _REFUTED,
            f"guesses are right no more often than {score.claim} allows."
            if chance >= _REFUTED
            else f"so many right guesses have a chance of {chance:.2g} if the table costs {score.claim}: it does not.",
        )


def _within(figure: Figure, limit: float) -> bool | None:
    """Whether a number is surely not far beyond its limit; None if too few rows were tried to tell."""
    low, high = figure.low or 0.0, figure.high or 0.0
    if low > limit:
        return False
    return None if high - low > 2 * max(limit, 1e-9) and high > limit else True


def _uses(score: "Score", limits: Limits) -> Iterator[Check]:
    way = score.marginals[-1]
    if way.way > 1:
        kept = score.kept
        if kept is None and (not score.rows["held back"] or (score.usefulness or 0.0) >= limits.usefulness):
            kept = score.usefulness  # a bootstrap is a higher mark than fresh rows: what reaches it is good enough
        told = "too few rows tell how much" if kept is None else percent(kept, 0)
        yield Check(
            "marginals",
            "usefulness",
            None if kept is None else kept >= limits.usefulness,
            f"{way.way}-way marginals are off by {way.mean.value:.3f} on average, those of independent columns by "
            f"{way.frames['independent']:.3f}: {told} of what lies between columns is kept "
            f"(limit: {percent(limits.usefulness, 0)}).",
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
