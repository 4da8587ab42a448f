"""One risk or use compared with its limit, with the reason in a sentence."""

from dataclasses import asdict, dataclass
from typing import Any

from cloister.synth.options import check_number

__all__ = ["Check", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Acceptable limits. A limit is broken only by more than chance explains.

    Attributes:
        copies: the share of real rows that may be copied beyond chance.
        closeness: the allowed excess above 1/2 of the probability that a real row is nearer to a synthetic row than a
            held-out row is.
        advantage: of membership guesses: 2 · right - 1.
        singling_out: the share of rules that may single out beyond chance.
        usefulness: the least share of the dependence between columns: 1 is as in fresh rows, 0 as independent columns.
        ks: of a number: the allowed error of the share of rows up to some value, beyond chance.
        wasserstein: of a number: the allowed mean distance that values have to move, beyond chance, in mean absolute
            deviations of the real ones.
        correlation: the allowed error of a correlation of two numbers, beyond chance.
        told_apart: how well models may distinguish the tables: 0 is chance, 1 is every row with certainty.
    """

    copies: float = 0.001
    closeness: float = 0.05
    advantage: float = 0.1
    singling_out: float = 0.05
    usefulness: float = 0.5
    ks: float = 0.2
    wasserstein: float = 0.5
    correlation: float = 0.4
    told_apart: float = 0.5

    def __post_init__(self) -> None:
        # A limit that is not a number would never be broken.
        for name, value in asdict(self).items():
            check_number(name, value, least=-1e300, most=1e300, what="a limit of the gate")


@dataclass(frozen=True, slots=True)
class Check:
    """One risk or use.

    Attributes:
        name: the subject of the check.
        about: "privacy", "usefulness", or "note" for information only.
        passed: None if undecided.
        reason: the finding and its limit, in a sentence.
    """

    name: str
    about: str
    passed: bool | None
    reason: str

    @property
    def word(self) -> str:
        """Return "pass", "FAIL", "open" or "note"."""
        return "note" if self.about == "note" else {True: "pass", False: "FAIL", None: "open"}[self.passed]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        return {"check": self.name, "about": self.about, "passed": self.passed, "reason": self.reason}
