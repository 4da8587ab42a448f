"""What every local mechanism is: public facts, and verbs that are carried out by the half that may."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.privacy.errors import BadCandidates, BadLoss
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.loss import epsilon as any_epsilon
from cloister.privacy.mechanisms.mechanism import epsilon_of
from cloister.privacy.mechanisms.randomised_response import of_replacement
from cloister.privacy.mechanisms.rounding import ratio_within
from cloister.privacy.number import Number

if TYPE_CHECKING:
    from cloister.local.base.counts import Counts
    from cloister.local.base.estimate import Estimate
    from cloister.privacy.noise import Source

__all__ = ["Floats", "Kind", "Oracle", "Reports", "epsilon", "read_domain", "read_loss"]

Floats = NDArray[np.float64]
# What one report is: a whole number below `outputs`, packed bits (the first value in the lowest bit), or integers.
Kind = Literal["number", "bits", "vector"]

_LARGEST_DOMAIN = 1 << 32
# Beyond this an answer is hardly protected, and 64 random bits no longer round its probabilities finely.
_LARGEST_EPSILON = 30


def epsilon(amount: Number) -> Loss:
    """A pure loss for one person's answer against any other answer: replace-one."""
    return any_epsilon(amount, relation=Relation.REPLACE_ONE)


def read_loss(loss: Loss, name: str) -> Fraction:
    """The epsilon of a loss that a local mechanism can state."""
    of_replacement(loss, name)
    amount = epsilon_of(loss)
    if amount > _LARGEST_EPSILON:
        raise BadLoss(f"{name} states an epsilon of at most {_LARGEST_EPSILON}, got {loss}. Lower it.")
    return amount


def read_domain(domain: int, name: str, most: int = _LARGEST_DOMAIN) -> int:
    """How many public values an answer is chosen from."""
    if isinstance(domain, bool) or not isinstance(domain, int) or not 2 <= domain <= most:
        raise BadCandidates(f"{name} needs a public domain of 2 to {most:,} values, got {domain!r:.40}.")
    return domain


@dataclass(frozen=True, slots=True, eq=False)
class Reports:
    """What devices send, one row a person.

    Attributes:
        mechanism: what made them.
        data: whole numbers (uint64), rows of packed bits (uint8), or rows of integers (int32).
        private: False if the randomness was seeded, which protects nobody.
    """

    mechanism: "Oracle"
    data: NDArray[Any]
    private: bool = True

    def __len__(self) -> int:
        return len(self.data)


class Oracle:
    """The contract of a frequency oracle; each mechanism's file holds what differs.

    Privacy: pure epsilon-local differential privacy: for any two answers v, w and any report y,
        Pr[y | v] <= e^epsilon Pr[y | w], exactly. Who takes part is not hidden. `verify` certifies it.
    """

    __slots__ = ()
    name: ClassVar[str]
    kind: ClassVar[Kind]
    formula: ClassVar[str]
    domain: int
    loss: Loss
    p: Fraction
    q: Fraction

    @property
    def epsilon(self) -> Fraction:
        """The pure epsilon of one report."""
        return epsilon_of(self.loss)

    @property
    def bits(self) -> int:
        """How many bits one answer takes."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """How many bytes one answer takes on the wire."""
        return (self.bits + 7) // 8

    @property
    def outputs(self) -> int:
        """How many different reports there are; a report as a number is below it."""
        raise NotImplementedError

    def law(self, value: int) -> Sequence[Fraction]:
        """The probability of every report on this value, in the order of the reports' numbers."""
        raise NotImplementedError

    def largest_ratio(self) -> Fraction:
        """The largest Pr[y | v] / Pr[y | w] over all v, w, y: exact, from the thresholds that the client uses."""
        raise NotImplementedError

    def _certify(self) -> None:
        """Refuse to exist if a report would cost more than the loss."""
        if not ratio_within(self.largest_ratio(), self.epsilon):
            raise BadLoss(f"these reports cost more than {self.loss}. Use for_loss(), which rounds to the safe side.")

    # Error, in closed form.

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """The variance of each estimated share among `people` whose true shares are these.

        A report supports its true value with probability p and any other with q (Wang et al. 2017, theorem 2).
        """
        shares, p, q = np.asarray(frequencies, dtype=np.float64), float(self.p), float(self.q)
        return np.asarray((shares * p * (1 - p) + (1 - shares) * q * (1 - q)) / (people * float(self.p - self.q) ** 2))

    def mse(self, people: int) -> float:
        """The expected squared error of a share, averaged over the domain."""
        return float(self.variance(np.array([1 / self.domain]), people)[0])

    def describe(self) -> dict[str, str | int]:
        """Public and exact: what a client in another language needs to make the same reports."""
        facts: dict[str, str | int] = {"mechanism": self.name, "bits": self.bits, "width": self.width}
        for field in fields(self):  # type: ignore[arg-type]  # every mechanism is a dataclass
            value = getattr(self, field.name)
            facts[field.name] = value if isinstance(value, int) else str(value)
        facts["loss"] = str(self.epsilon)
        return facts

    # The device's verbs.

    def perturb(self, values: Any, source: "Source | None" = None) -> Reports:
        """Reports for one person's value or an array of people's values.

        Args:
            values: a whole number in [0, domain), or an array of them, one a person.
            source: where random bits come from; the operating system's unless given.

        Privacy: costs each person the mechanism's loss, once. A second report about the same value costs it again.
        """
        from cloister.local.base.perturb import perturb

        return perturb(self, values, source)

    def encode(self, reports: Reports) -> NDArray[np.uint8]:
        """The bytes that go over the wire, one row of `width` bytes a person."""
        from cloister.local.base.wire import encode

        return encode(reports)

    # The collector's verbs.

    def decode(self, wire: Any) -> tuple[Reports, int]:
        """Well-formed reports among bytes that arrived, and how many were refused."""
        from cloister.local.base.wire import decode

        return decode(self, wire)

    def aggregate(self, reports: Any) -> "Counts":
        """Counts of reports, or of bytes that arrived; malformed ones are refused and counted."""
        from cloister.local.base.counts import aggregate

        return aggregate(self, reports)

    def estimate(self, counts: "Counts", confidence: Number = "0.95", values: ArrayLike | None = None) -> "Estimate":
        """Unbiased shares with standard errors and intervals.

        Args:
            counts: what `aggregate` returned, or a sum of such.
            confidence: of each interval alone.
            values: for which values; the whole domain unless given.
        """
        from cloister.local.base.estimate import estimate

        return estimate(self, counts, confidence, values)
