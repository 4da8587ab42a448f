"""Subset selection: name a set of values of fixed size that contains yours more often than chance would."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import ClassVar

from cloister.local.base.dyadic import WORD, exactly, word_above
from cloister.local.base.oracle import Kind, Oracle, read_domain, read_loss
from cloister.privacy.errors import BadInput, BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.number import exp_down

__all__ = ["SubsetSelection"]


@dataclass(frozen=True, slots=True)
class SubsetSelection(Oracle):
    """A uniform set of `size` values that contains the true one with probability p. Ye & Barg 2018; Wang et al. 2019.

    With one value it is direct encoding. Asymptotically no mechanism has a smaller worst-case error.

    Privacy: pure, p (d-k) / ((1-p) k) <= e^epsilon exactly; verified by enumeration for small domains.
    """

    name: ClassVar[str] = "subset-selection"
    kind: ClassVar[Kind] = "bits"
    formula: ClassVar[str] = "q(1-q) / (n (p-q)²), p = k e^ε / (k e^ε+d-k), q = (k-p) / (d-1), k near d / (e^ε+1)"

    domain: int
    size: int
    p: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, 1 << 20)
        read_loss(self.loss, self.name)
        object.__setattr__(self, "p", exactly(self.p, "p"))
        if not isinstance(self.size, int) or not 1 <= self.size < self.domain:
            raise BadInput("size must be a whole number of at least 1 and below the domain.")
        if self.p <= self.q:
            raise BadProbability("the true value must be likelier in a set than others; otherwise sets tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, loss: Loss, size: int | None = None) -> "SubsetSelection":
        """With sets of the size of least error, or a given one; 1 - p is rounded up to a multiple of 2^-64."""
        power = exp_down(read_loss(loss, cls.name))
        d = read_domain(domain, cls.name, 1 << 20)

        def made(k: int) -> "SubsetSelection":
            return SubsetSelection(domain, k, 1 - Fraction(word_above((d - k) / (k * power + d - k)), WORD), loss)

        if size is not None:
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size < d:
                raise BadInput("size must be a whole number of at least 1 and below the domain.")
            return made(size)
        near = math.floor(d / (power + 1))
        return min((made(k) for k in {max(1, near), min(d - 1, near + 1)}), key=lambda made: made.mse(1))

    @property
    def q(self) -> Fraction:  # type: ignore[override]  # follows from p
        """The probability that a set contains a given other value."""
        return (self.size - self.p) / (self.domain - 1)

    @property
    def bits(self) -> int:
        """How many bits one answer takes on the wire: one for each value."""
        return self.domain

    @property
    def outputs(self) -> int:
        """Reports as numbers are below this; only those of `size` bits occur."""
        return 1 << self.domain

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this value, sets of another size included (they never occur)."""
        d, k = self.domain, self.size
        chances = [Fraction(0)] * self.outputs
        for chosen in combinations(range(d), k):
            with_value = value in chosen
            chance = self.p / math.comb(d - 1, k - 1) if with_value else (1 - self.p) / math.comb(d - 1, k)
            chances[sum(1 << place for place in chosen)] = chance
        return tuple(chances)

    def largest_ratio(self) -> Fraction:
        """A set with the value against one without."""
        return self.p * (self.domain - self.size) / ((1 - self.p) * self.size)

    @property
    def start(self) -> Fraction:
        """The probability of the coins that a device mends to a set: it decides how much there is to mend, no more."""
        return _start(self.domain, self.size)

    def describe(self) -> dict[str, str | int]:
        """Public and exact, with the coins that a client in another language starts from."""
        return {**Oracle.describe(self), "start": str(self.start)}


@lru_cache(maxsize=256)
def _start(domain: int, size: int) -> Fraction:
    """The coins' probability with the least expected mending: too few are cheap to add, too many dear to remove.

    In floats: it decides the cost and nothing else.
    """
    rounds = max(3, domain.bit_length() - 2)
    share = size / domain

    def cost(numerator: int) -> float:
        r = numerator / (1 << rounds)
        gap, spread = size - domain * r, math.sqrt(domain * r * (1 - r)) + 1e-9
        z = gap / spread
        density, under = math.exp(-z * z / 2) / math.sqrt(2 * math.pi), 0.5 * math.erfc(-z / math.sqrt(2))
        add = gap * under + spread * density
        return add / (1 - share) + (add - gap) / share

    return Fraction(min(range(1 << rounds), key=cost), 1 << rounds)
