"""Result of an attack on a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cloister.attack.finding import Finding, clopper_pearson
from cloister.attack.tables.columns import Floats

__all__ = ["TableAttack", "clopper_pearson"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableAttack:
    """Result of an attack on a released table.

    Attributes:
        name: the attack.
        attacker: who the attacker is and what they know.
        criterion: the condition under which a record counts as at risk.
        subject: the kind of thing counted: records or people.
        risk: for each record, the probability that the attacker's conclusion about it is right. As sensitive as rows.
        at_risk: number of records at risk.
        baseline: the average of the same probability for an attacker without the release's classes.
        worst: values of the worst class and what is learned there; never a direct identifier.
        remedies: changes of the release that would lower the risk.
        notes: limits of this run.
        interval: 95 % interval of the share at risk, if the records attacked are a sample; else None.
    """

    name: str
    attacker: str
    criterion: str
    subject: str = "records"
    risk: Floats = field(repr=False)
    at_risk: int
    baseline: float
    worst: Mapping[str, str] = field(default_factory=dict)
    remedies: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    interval: tuple[float, float] | None = None

    @property
    def attacked(self) -> int:
        """Number of records or people that were attacked."""
        return len(self.risk)

    @property
    def share(self) -> float:
        """Share of the records at risk."""
        return self.at_risk / self.attacked if self.attacked else 0.0

    @property
    def average(self) -> float:
        """Average risk of a record."""
        return float(np.mean(self.risk)) if self.attacked else 0.0

    @property
    def gain(self) -> float:
        """Average risk minus the success of an attacker without the release's classes."""
        return self.average - self.baseline

    def counts(self) -> dict[str, Any]:
        """Return the figures that only this attack has."""
        return {}

    def finding(self, target: str) -> Finding:
        """Return the attack as a finding about a table, for a report."""
        sure = self.average
        return Finding(
            attack=self.name,
            target=target,
            access="release",
            knowledge=f"the attacker {self.attacker}",
            measure=f"conclusions about {self.subject} that are right",
            success=sure,
            # The success of this attack on these records is known; a sample of them has an interval.
            interval=(sure, sure) if self.interval is None else _mean_interval(self.risk),
            baseline=min(self.baseline, 1.0),
            attempts=self.attacked,
            risk=self.risk,
            figures={
                f"{self.subject} at risk": f"{self.at_risk:,} of {self.attacked:,} ({self.share:.1%})",
                "at risk if": self.criterion,
                **{name.replace("_", " "): figure for name, figure in self.counts().items()},
                **{f"worst: {name}": value for name, value in self.worst.items()},
            },
            remedies=self.remedies,
            notes=self.notes,
        )

    def to_json(self) -> dict[str, Any]:
        """Return figures and sentences, without the risk of each record."""
        return {
            "name": self.name,
            "attacker": self.attacker,
            "criterion": self.criterion,
            "subject": self.subject,
            "attacked": self.attacked,
            "at_risk": self.at_risk,
            "share": self.share,
            "interval": None if self.interval is None else list(self.interval),
            "average": self.average,
            "baseline": self.baseline,
            "gain": self.gain,
            "worst": dict(self.worst),
            "remedies": list(self.remedies),
            "notes": list(self.notes),
            **self.counts(),
        }

    def __str__(self) -> str:
        between = "" if self.interval is None else f", 95 % interval {self.interval[0]:.1%} to {self.interval[1]:.1%}"
        lines = [
            f"{self.name}: {self.at_risk:,} of {self.attacked:,} {self.subject} at risk ({self.share:.1%}{between})",
            f"  attacker  {self.attacker}",
            f"  at risk   {self.criterion}",
            f"  success   {self.average:.1%} on average, {self.baseline:.1%} by guessing",
        ]
        lines += [f"  {name.replace('_', ' ')}  {_figure(figure)}" for name, figure in self.counts().items()]
        if self.worst:
            lines.append("  worst     " + ", ".join(f"{name} = {value}" for name, value in self.worst.items()))
        lines += [f"  remedy    {sentence}" for sentence in self.remedies]
        lines += [f"  note      {sentence}" for sentence in self.notes]
        return "\n".join(lines)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _mean_interval(risk: Floats) -> tuple[float, float]:
    """Return a 95 % interval of a mean of numbers from 0 to 1 (Hoeffding 1963)."""
    wide = float(np.sqrt(np.log(2 / 0.05) / 2 / max(len(risk), 1)))
    return max(0.0, float(np.mean(risk)) - wide), min(1.0, float(np.mean(risk)) + wide)
