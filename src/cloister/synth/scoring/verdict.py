"""The verdict on a score: whether a table may be released, and why."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloister.privacy.errors import BadInput
from cloister.synth.scoring.check import Check, Limits
from cloister.synth.scoring.utility.utility_checks import notes, uses

if TYPE_CHECKING:
    from cloister.synth.scoring.score import Score
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloister.attack.finding import Finding
from cloister.attack.report.interval import Interval, percent
from cloister.attack.tables.synthetic.attack_sample import FEWEST
from cloister.attack.tables.synthetic.closeness import Closeness
from cloister.attack.tables.synthetic.copies import Copies
from cloister.attack.tables.synthetic.findings import REFUTED
from cloister.attack.tables.synthetic.membership import Membership, beaten
from cloister.attack.tables.synthetic.singling_out import SinglingOut
from cloister.privacy.loss import ROW, Loss, Unit

if TYPE_CHECKING:
    from cloister.synth.scoring.score import Score

__all__ = ["Check", "Limits", "Verdict", "judge"]


# Results of attacks on a table, compared with limits: one check for each attack.


# A table independent of the rows fails by chance once in a thousand, by all four attacks together: each has a quarter.
_UNLIKELY = 1e-3 / 4
_SURE = 3.4808  # standard errors that a normal number exceeds with that probability


def dangers(score: "Score", limits: Limits) -> Iterator[Check]:
    """Yield a check for each attack; an open one if no rows were held out, or the held-out rows are also real ones."""
    if score.copies.fresh is None:
        yield Check("attacks", "privacy", None, "no rows were held back, so copying cannot be told from likeness.")
        return
    if score.not_held is not None:
        yield Check("held-back rows", "privacy", None, _not_held(score.not_held))
        return
    yield _copied(score.copies, limits.copies)
    if score.closeness is not None and score.membership is not None:
        yield _near(score.closeness, limits.closeness, score.attacked)
        yield _guessed(score.membership, limits.advantage, score.attacked)
    if score.singling_out is not None:
        yield _alone(score.singling_out, limits.singling_out)
    for name in score.not_tried:
        reason = f"not decided: all {score.rows['synthetic']:,} rows are too many to attack with. Hand on fewer."
        yield Check(name, "privacy", None, reason)
    if score.claim is not None and score.membership is not None:
        yield _claimed(score.claim, score.unit, score.membership)


def _not_held(share: float) -> str:
    return (
        f"{percent(share, 0)} of the rows held back are among the real rows, so the attacks compare rows with "
        "themselves and mean nothing. Take them out of the real table, make the synthetic table anew, score again."
    )


def _copied(copies: Copies, limit: float) -> Check:
    excess, fresh = copies.excess or 0.0, 0.0 if copies.fresh is None else copies.fresh.value
    passed = excess <= limit or (copies.chance or 0.0) >= _UNLIKELY
    text = (
        f"{percent(copies.real.value, 2)} of the real rows are in the table, {percent(fresh, 2)} of those held back "
        f"(limit: {percent(limit, 2)} more)"
    )
    return Check("exact copies", "privacy", passed, text + _surely(passed, excess > limit))


def _near(near: Closeness, limit: float, tried: int) -> Check:
    nearer = near.nearer
    passed = _within(Interval(nearer.value - 0.5, (nearer.low or 0) - 0.5, (nearer.high or 1) - 0.5), limit, tried)
    text = (
        f"a real row is nearer to the table than a stranger is in {nearer.text(1, percent=True)} of pairs "
        f"(chance: 50\u00a0%; limit: {percent(0.5 + limit, 0)})"
    )
    return Check("closest rows", "privacy", passed, text + _surely(passed, nearer.value - 0.5 > limit))


def _guessed(guessed: Membership, limit: float, tried: int) -> Check:
    passed = _within(guessed.advantage, limit, tried)
    text = (
        f"{guessed.right.text(1, percent=True)} of guesses who was in the table are right "
        f"(chance: 50\u00a0%; limit: {percent(0.5 + limit / 2, 0)})"
    )
    return Check("membership", "privacy", passed, text + _surely(passed, guessed.advantage.value > limit))


def _alone(single: SinglingOut, limit: float) -> Check:
    passed = single.risk <= limit or single.chance >= _UNLIKELY
    beyond = single.real.value > (single.fresh.high or 0.0)  # else the difference is noise, and no risk to name
    text = (
        f"{percent(single.real.value)} of rules fit exactly one real row, {single.fresh.text(1, percent=True)} would "
        f"if the table knew nobody{f'; up to {percent(single.risk)} single out beyond chance' if beyond else ''} "
        f"(limit: {percent(limit, 0)} beyond chance)"
    )
    return Check("singling out", "privacy", passed, text + _surely(passed, beyond and single.risk > limit))


def _claimed(claim: Loss, unit: Unit, guessed: Membership) -> Check:
    if guessed.blind > 0.5:
        reason = "not tested: held-out rows differ from real ones without the table. Hold rows out by chance."
        return Check("the claim", "privacy", None, reason)
    # One row of a person with several is two steps away, by way of the table without them.
    chance = beaten(guessed, claim if unit == ROW else claim.as_replace_one())
    reason = f"guesses are right no more often than {claim} allows."
    if chance < REFUTED:
        reason = f"so many right guesses have a chance of {chance:.2g} if the table costs {claim}: it does not."
    return Check("the claim", "privacy", chance >= REFUTED, reason)


def _within(figure: Interval, limit: float, tried: int) -> bool | None:
    """Return True if a number is not clearly beyond its limit; None if too few rows were tried to decide."""
    low, high = figure.low or 0.0, figure.high or 0.0
    error = (high - low) / (2 * 1.959964)
    if low > limit and figure.value > _SURE * error:  # chance alone gives 0
        return False
    unsure = high - low > 2 * max(limit, 1e-9) and high > limit
    return None if unsure or tried < FEWEST else True


def _surely(passed: bool | None, above: bool) -> str:
    """Return the end of a sentence on a limit: a number above it that passes needs an explanation."""
    if passed is None:
        return ": too few rows were attacked to tell."
    if passed and above:
        return ": above the limit, but not surely; chance may explain it."
    return "." if passed else ": surely above the limit."


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on the release of a table, for the owner.

    Attributes:
        checks: one for each risk and each use.
        score: the score they are based on.

    Privacy: none. It reads real rows. The charge for the table stands whatever the verdict; whether it passed must not
        be revealed to users, and generating tables until one passes is a selection that has to be charged
        (`choose`).
    """

    checks: tuple[Check, ...]
    score: "Score"

    @property
    def private(self) -> bool:
        """Return True if every risk was checked on every row and none is clearly beyond its limit.

        Rows that lack a required value are not attacked, so a table with such rows is not called private. No test of
        rows can prove privacy: a loss does.
        """
        passed = all(check.passed for check in self.checks if check.about == "privacy")
        return passed and self.score.membership is not None and not self.score.invalid

    @property
    def useful(self) -> bool:
        """Return True if the table is useful enough."""
        return all(check.passed for check in self.checks if check.about == "usefulness")

    @property
    def passed(self) -> bool:
        """Return True if both hold."""
        return self.private and self.useful

    @property
    def headline(self) -> str:
        """Return the verdict in a sentence."""
        if self.score.not_held is not None:
            return f"No verdict: {_not_held(self.score.not_held)}"
        failed = [check.name for check in self.checks if check.passed is False]
        if self.passed:
            return "Fit to hand on: no attack got surely beyond its limit, and the table is useful."
        if failed:
            return f"Not fit to hand on: {', '.join(failed)}."
        if self.score.not_tried:
            return f"Not settled: the table has too many rows to be attacked ({', '.join(self.score.not_tried)})."
        return "Not settled: there are too few rows, or none held back, to attack the table."

    def findings(self) -> tuple[Finding, ...]:
        """Return the attacks as findings, for a report; see `Score.findings`."""
        return self.score.findings()

    def to_json(self) -> dict[str, Any]:
        """Return verdict, reasons and score, as plain values."""
        summary = {"passed": self.passed, "private": self.private, "useful": self.useful, "headline": self.headline}
        scored = self.score.to_json()
        return {
            "view": scored["view"],
            "publishable": False,
            **summary,
            "checks": [x.to_json() for x in self.checks],
        } | {"score": scored}

    def __str__(self) -> str:
        from cloister.synth.scoring.report.text import wrapped
        from cloister.synth.scoring.score import OWNERS_VIEW

        lines = [*wrapped(OWNERS_VIEW, ""), "", *wrapped(self.headline, "")]
        for check in self.checks:
            lines += wrapped(f"{check.name}: {check.reason}", f"  {check.word}  ")
        return "\n".join(lines)


def judge(score: "Score", limits: Limits | None = None) -> Verdict:
    """Compare a score with limits."""
    if limits is not None and not isinstance(limits, Limits):
        raise BadInput("limits are synth.Limits(…), or None for the usual ones.")
    bounds = limits or Limits()
    return Verdict((*dangers(score, bounds), *uses(score, bounds), *notes(score)), score)
