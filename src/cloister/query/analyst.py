"""Somebody who asks, with an account of their own beside the dataset's.

Answers from the record cost the dataset nothing: they are released already. For one reader they may still be news, and
then they debit that reader's account, so that it bounds what this reader has learned in all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cloister.privacy.ledger import Account
from cloister.privacy.loss import Loss
from cloister.query.plan import Measurement, Plan

__all__ = ["Analyst", "ReceivedReleases"]


class ReceivedReleases(Protocol):
    """Which releases of noisy statistics somebody has received, by `KeptRelease.id`."""

    def has(self, release: str) -> bool:
        """Whether it was received before."""
        ...

    def add(self, releases: Iterable[str]) -> None:
        """Remember that they were."""
        ...


@dataclass(frozen=True, slots=True)
class Analyst:
    """Who asks.

    Attributes:
        account: theirs, in the same ledger as the dataset's.
        received: what they have been told already.
        label: of this piece of work; it enters the request's hash in the ledger and in the receipt.
    """

    account: Account
    received: ReceivedReleases
    label: str = ""

    def request(self, text: str) -> str:
        """The request as the ledger hashes it."""
        return f"{self.label}\n{text}" if self.label else text

    def news(self, plan: Plan) -> list[Measurement]:
        """What the record would tell them for the first time."""
        return [one for one in plan.measurements if one.reused and not self.received.has(one.release)]

    def price(self, measurements: Sequence[Measurement]) -> Loss:
        """What they pay for it."""
        nothing = Loss.nothing(self.account.cap.measure, self.account.cap.relation)
        return sum((self.account.price(noise) for one in measurements for noise in one.mechanisms), start=nothing)
