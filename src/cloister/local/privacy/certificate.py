"""Verification of a mechanism's loss: not by sampling, but by listing its law or by exact arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol

from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.number import log_above, ratio_within, show

__all__ = ["Certificate", "Listed", "verify"]

# Laws of at most this many probabilities, over all values, are listed one by one.
_LISTED = 1 << 16


class Listed(Protocol):
    """The part of a mechanism that a verifier needs; a textbook variant can have it too."""

    @property
    def domain(self) -> int:
        """The number of values."""

    @property
    def loss(self) -> Loss:
        """The stated loss of a report."""

    def law(self, value: int) -> Sequence[Fraction]:
        """Return the probability of every report on this value."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The result of a verification.

    Attributes:
        claim: the loss that was checked.
        holds: whether the largest likelihood ratio is at most e^epsilon, exactly.
        ratio: that largest ratio; None if it is infinite, there is no valid law, or only its logarithm is known.
        epsilon: its logarithm, rounded up; None if there is none.
        method: `"listed"`: every probability was checked. `"exact"`: computed from the client's thresholds.
        reason: one sentence.
    """

    claim: Loss
    holds: bool
    ratio: Fraction | None
    epsilon: Fraction | None
    method: Literal["listed", "exact"]
    reason: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'BROKEN'} ({self.method}): {self.reason}"


def verify(mechanism: Listed) -> Certificate:
    """Certify the largest likelihood ratio over all pairs of values and all reports.

    A mechanism whose reports can be listed is listed, whatever it states. For a larger one, the largest ratio follows
    from the same integers that its client compares random words with; tests on small domains check that this closed
    form agrees with the list.

    Privacy: nothing is drawn and nothing is spent.
    """
    claim = mechanism.loss
    facts: Any = mechanism
    if _can_be_listed(mechanism):
        return _listed(claim, [mechanism.law(value) for value in _inputs(mechanism)])
    if hasattr(mechanism, "log_ratio"):
        exact = facts.log_ratio()
        holds = exact <= claim.amount
        return Certificate(claim, holds, None, exact, "exact", f"the log of the largest ratio is {show(exact)}.")
    if not hasattr(mechanism, "largest_ratio"):
        raise BadInput("this mechanism has too many reports to list, and states no exact largest ratio.")
    return _judged(claim, facts.largest_ratio(), "exact")


def _can_be_listed(mechanism: Any) -> bool:
    if not hasattr(mechanism, "law") or not getattr(mechanism, "listable", True):  # noise has no rational law
        return False
    try:
        return bool(mechanism.outputs <= _LISTED and _answers(mechanism) * mechanism.outputs <= _LISTED)
    except AttributeError:  # a textbook variant, small by nature
        return True
    except (NotImplementedError, OverflowError):
        return False


def _answers(mechanism: Any) -> int:
    """Return the number of different answers: for sets and rankings more than values."""
    return int(getattr(mechanism, "answers", mechanism.domain))


def _inputs(mechanism: Any) -> Sequence[int]:
    """Return all answers as numbers; sets list their own."""
    return getattr(mechanism, "inputs", None) or range(_answers(mechanism))


def _listed(claim: Loss, laws: list[Sequence[Fraction]]) -> Certificate:
    for law in laws:
        if len(law) != len(laws[0]) or min(law) < 0 or sum(law) != 1:
            reason = "a law's probabilities are negative or do not add up to 1."
            return Certificate(claim, False, None, None, "listed", reason)
    largest = Fraction(1)
    for chances in zip(*laws, strict=True):
        most, least = max(chances), min(chances)
        if most and not least:
            reason = "a report that one value can give, another never gives: the ratio is infinite."
            return Certificate(claim, False, None, None, "listed", reason)
        if most:
            largest = max(largest, most / least)
    return _judged(claim, largest, "listed")


def _judged(claim: Loss, ratio: Fraction, method: Literal["listed", "exact"]) -> Certificate:
    holds = ratio_within(ratio, claim.amount)
    epsilon = log_above(ratio) if ratio > 1 else Fraction(0)
    allowed = "within" if holds else "more than"
    return Certificate(claim, holds, ratio, epsilon, method, f"epsilon {show(epsilon)} is {allowed} {claim}.")
