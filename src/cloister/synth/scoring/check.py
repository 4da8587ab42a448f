"""One danger or one use, held against its limit, with the reason in a sentence."""

from dataclasses import asdict, dataclass
from typing import Any

from cloister.synth.options import check_number

__all__ = ["Check", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What is still acceptable. A limit is broken only by more than chance explains.

    Attributes:
        copies: the share of real rows that may be copied beyond chance.
        closeness: how far above 1/2 it may be that a real row is nearer to a synthetic one than a stranger is.
        advantage: of guesses who was in the table: 2 · right - 1.
        singling_out: the share of rules that may single out beyond chance.
        usefulness: the least part of what lies between columns: 1 is as in fresh rows, 0 is as independent columns.
        ks: of a number: by how much the share of rows up to some value may be off, beyond chance.
        wasserstein: of a number: how far values may have to move on average, beyond chance, in mean absolute deviations
            of the real ones.
        correlation: by how much a correlation of two numbers may be off, beyond chance.
        told_apart: how well models may tell the tables apart: 0 is not beyond chance, 1 is every row for sure.
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
        # A limit that is no number would be broken by nothing.
        for name, value in asdict(self).items():
            check_number(name, value, least=-1e300, most=1e300, what="a limit of the gate")


@dataclass(frozen=True, slots=True)
class Check:
    """One danger, or one use.

    Attributes:
        name: what was checked.
        about: "privacy", "usefulness", or "note" for what only needs to be known.
        passed: None if it is not decided.
        reason: what was found against which limit, in a sentence.
    """

    name: str
    about: str
    passed: bool | None
    reason: str

    @property
    def word(self) -> str:
        """Pass, FAIL, open or note."""
        return "note" if self.about == "note" else {True: "pass", False: "FAIL", None: "open"}[self.passed]

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {"check": self.name, "about": self.about, "passed": self.passed, "reason": self.reason}
