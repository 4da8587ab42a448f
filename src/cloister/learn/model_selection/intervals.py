"""Numbers with their intervals, as an evaluation tells them."""

from dataclasses import dataclass
from typing import Any

__all__ = ["SURE", "Evaluation", "Interval"]

SURE = 1.959963984540054  # 95 %


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its 95 % interval; all None where the noise is larger than what it is about."""

    value: float | None
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, float | None]:
        """For a page."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was found.

    Attributes:
        measure: "accuracy", or "median absolute error".
        overall: of everybody held back.
        baseline: of a model that says the more frequent of two classes to everybody; else unknown.
        rows: about how many rows it was tried on.
        groups: by group, where groups were asked for.
        gap: between the best and the worst of the groups that have a number. Noise and chance make it larger than it
            is; its interval allows for that, and for which groups they are.
        chosen: by group, how often the answer is the second class; for two classes.
        chosen_gap: between the groups that get it most and least often, in the same way.
    """

    measure: str
    overall: Interval
    baseline: Interval
    rows: Interval
    groups: dict[str, Interval]
    gap: Interval | None = None
    chosen: dict[str, Interval] | None = None
    chosen_gap: Interval | None = None

    def to_json(self) -> dict[str, Any]:
        """For a page."""
        return {
            "measure": self.measure,
            **{name: getattr(self, name).to_json() for name in ("overall", "baseline", "rows")},
            "groups": _listed(self.groups),
            "gap": None if self.gap is None else self.gap.to_json(),
            "chosen": None if self.chosen is None else _listed(self.chosen),
            "chosen_gap": None if self.chosen_gap is None else self.chosen_gap.to_json(),
        }


def _listed(groups: dict[str, Interval]) -> list[dict[str, Any]]:
    return [{"group": name, **figure.to_json()} for name, figure in groups.items()]
