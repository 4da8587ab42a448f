"""What a score amounts to: whether a table may be handed on, and why."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloister.privacy.errors import BadInput
from cloister.synth.scoring.check import Check, Limits
from cloister.synth.scoring.dangers import dangers
from cloister.synth.scoring.uses import notes, uses

if TYPE_CHECKING:
    from cloister.synth.scoring.score import Score

__all__ = ["Check", "Limits", "Verdict", "judge"]


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
        """Whether every danger was looked at and none is surely beyond its limit.

        No test of rows can prove privacy: a loss does.
        """
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
            return "Fit to hand on: no attack got surely beyond its limit, and the table is useful."
        if failed:
            return f"Not fit to hand on: {', '.join(failed)}."
        if self.score.not_tried:
            return f"Not settled: the table has too many rows to be attacked ({', '.join(self.score.not_tried)})."
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
            lines += wrapped(f"{one.name}: {one.reason}", f"  {one.word}  ")
        return "\n".join(lines)


def judge(score: "Score", limits: Limits | None = None) -> Verdict:
    """Hold a score against limits."""
    if limits is not None and not isinstance(limits, Limits):
        raise BadInput("limits are synth.Limits(…), or None for the usual ones.")
    bounds = limits or Limits()
    return Verdict((*dangers(score, bounds), *uses(score, bounds), *notes(score)), score)
