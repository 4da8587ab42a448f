"""An analyst with an account beside the dataset's.

Answers from the record cost the dataset nothing: they are released already. An analyst who receives one for the first
time is charged for it, so that the analyst's account bounds everything this analyst has learned.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cloister.privacy.ledger import Account
from cloister.privacy.loss import Loss, Unit
from cloister.privacy.measure import measure
from cloister.privacy.mechanisms import Mechanism
from cloister.privacy.noise import Source
from cloister.privacy.release import Release

if TYPE_CHECKING:
    from cloister.query.plan import Measurement, Plan

__all__ = ["Analyst", "Payers", "ReceivedReleases"]


class ReceivedReleases(Protocol):
    """The releases of noisy statistics an analyst has received, by `KeptRelease.id`."""

    def has(self, release: str) -> bool:
        """Return True if the release was received before."""
        ...

    def add(self, releases: Iterable[str]) -> None:
        """Record the releases as received."""
        ...


@dataclass(frozen=True, slots=True)
class Analyst:
    """An analyst.

    Attributes:
        account: the analyst's account, in the same ledger as the dataset's.
        received: the releases the analyst has received already.
        label: of this piece of work; it enters the request's hash in the ledger and in the receipt.
    """

    account: Account
    received: ReceivedReleases
    label: str = ""

    def request(self, text: str) -> str:
        """Return the request as the ledger hashes it."""
        return f"{self.label}\n{text}" if self.label else text

    def news(self, plan: "Plan") -> "list[Measurement]":
        """Return the releases of the record that the analyst has not received yet."""
        return [
            measurement
            for measurement in plan.measurements
            if measurement.reused and not self.received.has(measurement.release)
        ]

    def price(self, measurements: "Sequence[Measurement]") -> Loss:
        """Return the analyst's charge for them."""
        nothing = Loss.nothing(self.account.cap.measure, self.account.cap.relation)
        return sum(
            (self.account.price(noise) for measurement in measurements for noise in measurement.mechanisms),
            start=nothing,
        )


@dataclass(frozen=True, slots=True)
class Payers:
    """The accounts that pay for an answer: the dataset's, and beside it the analyst's.

    Attributes:
        account: the dataset's account.
        reader: the analyst, if there is one.
    """

    account: Account
    reader: Analyst | None = None

    @property
    def accounts(self) -> list[Account]:
        """Every account that is charged."""
        return [self.account] if self.reader is None else [self.account, self.reader.account]

    def measure(
        self,
        look: Callable[[], Any],
        mechanism: Mechanism,
        request: str,
        *,
        unit: Unit,
        data_version: str,
        source: Source | None,
    ) -> Release:
        """Release one statistic, charged to every account; see `privacy.measure.measure`.

        Privacy: the mechanism's loss.
        """
        return measure(
            look,
            mechanism,
            account=self.account,
            besides=self.accounts[1:],
            request=request if self.reader is None else self.reader.request(request),
            unit=unit,
            data_version=data_version,
            source=source,
        )
