"""Histogram encoding with summation, SHE: a one-hot vector with Laplace noise on every component."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.local.base.counts import chosen, frequencies, tally, valid
from cloister.local.base.intervals import Spread, known_noise, spread_of
from cloister.local.base.laplace_rows import laplace_rows
from cloister.local.base.oracle import Floats, Kind, Oracle, read_domain, read_loss
from cloister.local.base.perturb import perturbed
from cloister.privacy.errors import BadLoss
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import short_above

__all__ = ["HistogramEncoding"]


@dataclass(frozen=True, slots=True)
class HistogramEncoding(Oracle):
    """A one-hot vector of integers plus discrete Laplace noise of scale 2/epsilon on each component.

    Two one-hot vectors differ by 2 in L1 norm. The noise is on the integers, so it is exact and has less error than the
    textbook's real-valued one. It needs d numbers per person and has the largest variance of all oracles: it is here
    for comparison.

    Privacy: pure, the log of the largest ratio is 2/scale <= epsilon exactly. A component beyond `limit` is cut on the
        device, which is post-processing.
    """

    name: ClassVar[str] = "histogram-encoding"
    kind: ClassVar[Kind] = "vector"
    formula: ClassVar[str] = "2e^(-ε/2) / (n (1-e^(-ε/2))²), near 8 / (n ε²)"

    domain: int
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, 1 << 16)
        if read_loss(self.loss, self.name) < Fraction(1, 10**4):
            raise BadLoss(f"{self.name} needs an epsilon of at least 0.0001, got {self.loss}: raise it.")

    @classmethod
    def for_loss(cls, domain: int, loss: Loss) -> Self:
        """Build the mechanism with noise of scale 2/epsilon."""
        return cls(domain, loss)

    @property
    def scale(self) -> Fraction:
        """2/epsilon, rounded up if its terms are too long to sample quickly."""
        return short_above(2 / self.epsilon)

    @property
    def limit(self) -> int:
        """The largest component: honest noise exceeds it with probability below 2^-64."""
        return math.ceil(45 * self.scale) + 1

    @property
    def bits(self) -> int:
        """The number of bits per report: 32 a component on the wire."""
        return 32 * self.domain

    def log_ratio(self) -> Fraction:
        """Return the log of the largest likelihood ratio: two components move by one."""
        return 2 / self.scale

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """Return twice e^(-1/scale) / (1 - e^(-1/scale))² a person, whatever the shares."""
        x = float(1 / self.scale)
        each = 2 * math.exp(-x) / math.expm1(-x) ** 2
        return np.full(np.shape(frequencies), each / people)

    def describe(self) -> dict[str, str | int]:
        """Return the public, exact facts, with the scale."""
        return {**Oracle.describe(self), "scale": str(self.scale), "limit": self.limit}


# Device: discrete Laplace noise on every component.


@perturbed.register
def histogram(mechanism: HistogramEncoding, values: NDArray[np.int64], source: Source) -> NDArray[np.int32]:
    """Return one row of integers a person, cut at the limit: a draw a component, from the first to the last."""
    noisy = np.empty((len(values), mechanism.domain), dtype=np.int32)
    for row in range(0, len(values), 64):
        batch = values[row : row + 64]
        drawn = laplace_rows(mechanism.scale, len(batch), mechanism.domain, source)
        drawn[np.arange(len(batch)), batch] += 1
        noisy[row : row + 64] = np.clip(drawn, -mechanism.limit, mechanism.limit)
    return noisy


# Collector: the sum of the vectors.


@valid.register
def _valid(mechanism: HistogramEncoding, data: NDArray[Any]) -> NDArray[np.bool_]:
    """Refuse components beyond the limit: without it one fake could move a sum arbitrarily."""
    limit = mechanism.limit
    return np.asarray(((data >= -limit) & (data <= limit)).all(axis=1))


@tally.register
def _sums(mechanism: HistogramEncoding, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.asarray(data.sum(axis=0, dtype=np.int64))


@frequencies.register
def _shares(
    mechanism: HistogramEncoding, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(table / people, values)


@spread_of.register
def _noise(
    mechanism: HistogramEncoding, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    return known_noise(len(shares), n, float(mechanism.scale), 1.0)
