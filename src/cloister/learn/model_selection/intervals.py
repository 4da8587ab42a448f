"""Results of an evaluation, with their intervals."""

from dataclasses import dataclass
from typing import Any

__all__ = ["SURE", "Evaluation", "Interval"]

SURE = 1.959963984540054  # 95 %


@dataclass(frozen=True, slots=True)
class Interval:
    """Number with its 95 % interval; all None where noise hides the number."""

    value: float | None
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, float | None]:
        """Return the JSON form for a page."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of an evaluation.

    Attributes:
        measure: "accuracy", or "median absolute error".
        overall: the measure over all held-out people.
        baseline: that of a model that always predicts the more frequent of two classes; otherwise unknown.
        rows: approximate number of rows evaluated.
        groups: the measure by group, if groups were requested.
        gap: the gap between the best and the worst of the groups that have a number. Noise and sampling error make it
            too large; its interval allows for that, and for which groups they are.
        chosen: by group, the rate of predictions of the second class; for two classes.
        chosen_gap: the gap between the groups with the highest and lowest rate, computed in the same way.
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
        """Return the JSON form for a page."""
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
