"""The contract of local mechanisms: public facts, and verbs of the device and of the collector."""

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
from cloister.privacy.number import Number, ratio_within

if TYPE_CHECKING:
    from cloister.local.base.counts import Counts
    from cloister.local.base.estimate import Estimate
    from cloister.privacy.noise import Source

__all__ = ["Floats", "Kind", "Oracle", "Reports", "epsilon", "read_domain", "read_loss"]

Floats = NDArray[np.float64]
# The form of a report: an integer below `outputs`, packed bits (the first value in the lowest bit), or integers.
Kind = Literal["number", "bits", "vector"]

_LARGEST_DOMAIN = 1 << 32
# Beyond this an answer is barely protected, and 64 random bits round its probabilities too coarsely.
_LARGEST_EPSILON = 30


def epsilon(amount: Number) -> Loss:
    """Return a pure loss for one person's answer against any other answer: replace-one."""
    return any_epsilon(amount, relation=Relation.REPLACE_ONE)


def read_loss(loss: Loss, name: str) -> Fraction:
    """Return the epsilon of a loss that a local mechanism can state."""
    of_replacement(loss, name)
    amount = epsilon_of(loss)
    if amount > _LARGEST_EPSILON:
        raise BadLoss(f"{name} states an epsilon of at most {_LARGEST_EPSILON}, got {loss}. Lower it.")
    return amount


def read_domain(domain: int, name: str, most: int = _LARGEST_DOMAIN) -> int:
    """Return the number of public values of an answer."""
    if isinstance(domain, bool) or not isinstance(domain, int) or not 2 <= domain <= most:
        raise BadCandidates(f"{name} needs a public domain of 2 to {most:,} values, got {domain!r:.40}.")
    return domain


@dataclass(frozen=True, slots=True, eq=False)
class Reports:
    """Reports of devices, one row a person.

    Attributes:
        mechanism: the mechanism of the reports.
        data: integers (uint64), rows of packed bits (uint8), or rows of integers (int32).
        private: False if the randomness was seeded, which protects no one.
    """

    mechanism: "Oracle"
    data: NDArray[Any]
    private: bool = True

    def __len__(self) -> int:
        return len(self.data)


class Oracle:
    """The contract of a frequency oracle; each mechanism's file holds the differences.

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
        """The number of bits per report."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """The number of bytes per report on the wire."""
        return (self.bits + 7) // 8

    @property
    def outputs(self) -> int:
        """The number of different reports; a report as a number is below it."""
        raise NotImplementedError

    def law(self, value: int) -> Sequence[Fraction]:
        """Return the probability of every report on this value, in the order of the reports' numbers."""
        raise NotImplementedError

    def largest_ratio(self) -> Fraction:
        """Return the largest Pr[y | v] / Pr[y | w] over all v, w, y: exact, from the client's thresholds."""
        raise NotImplementedError

    def _certify(self) -> None:
        """Refuse a mechanism whose report would cost more than the loss."""
        if not ratio_within(self.largest_ratio(), self.epsilon):
            raise BadLoss(f"these reports cost more than {self.loss}. Use for_loss(), which rounds to the safe side.")

    # Error, in closed form.

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """Return the variance of each estimated share among `people` with these true shares.

        A report supports its true value with probability p and any other with q (Wang et al. 2017, theorem 2).
        """
        shares, p, q = np.asarray(frequencies, dtype=np.float64), float(self.p), float(self.q)
        return np.asarray((shares * p * (1 - p) + (1 - shares) * q * (1 - q)) / (people * float(self.p - self.q) ** 2))

    def mse(self, people: int) -> float:
        """Return the expected squared error of a share, averaged over the domain."""
        return float(self.variance(np.array([1 / self.domain]), people)[0])

    def describe(self) -> dict[str, str | int]:
        """Return the public, exact facts that a client in another language needs to make the same reports."""
        facts: dict[str, str | int] = {"mechanism": self.name, "bits": self.bits, "width": self.width}
        for field in fields(self):  # type: ignore[arg-type]  # every mechanism is a dataclass
            value = getattr(self, field.name)
            facts[field.name] = value if isinstance(value, int) else str(value)
        facts["loss"] = str(self.epsilon)
        return facts

    # The device's verbs.

    def perturb(self, values: Any, source: "Source | None" = None) -> Reports:
        """Perturb one person's value or an array of people's values.

        Args:
            values: an integer in [0, domain), or an array of them, one a person.
            source: the source of random bits; default the operating system's.

        Privacy: costs each person the mechanism's loss, once. A second report about the same value costs it again.
        """
        from cloister.local.base.perturb import perturb

        return perturb(self, values, source)

    def encode(self, reports: Reports) -> NDArray[np.uint8]:
        """Return the wire bytes, one row of `width` bytes a person."""
        from cloister.local.base.wire import encode

        return encode(reports)

    # The collector's verbs.

    def decode(self, wire: Any) -> tuple[Reports, int]:
        """Return the well-formed reports among received bytes, and the number refused."""
        from cloister.local.base.wire import decode

        return decode(self, wire)

    def aggregate(self, reports: Any) -> "Counts":
        """Count reports, or received bytes. Malformed ones are refused and counted."""
        from cloister.local.base.counts import aggregate

        return aggregate(self, reports)

    def estimate(self, counts: "Counts", confidence: Number = "0.95", values: ArrayLike | None = None) -> "Estimate":
        """Estimate unbiased shares with standard errors and intervals.

        Args:
            counts: a result of `aggregate`, or a sum of several.
            confidence: of each interval individually.
            values: the values to estimate; default the whole domain.
        """
        from cloister.local.base.estimate import estimate

        return estimate(self, counts, confidence, values)
