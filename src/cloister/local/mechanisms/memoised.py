"""Repeated answers: a permanent report, made once and kept, and a fresh perturbation of it each time."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import below, bit_coins, trim
from cloister.local.base.counts import (
    chosen,
    columns,
    debiased,
    frequencies,
    likelihood,
    no_spare_bits,
    tally,
    valid,
)
from cloister.local.base.dyadic import WORD, exactly, threshold
from cloister.local.base.oracle import Floats, Kind, Oracle, read_loss
from cloister.local.base.perturb import perturbed
from cloister.local.base.projection import Likelihood, pairs
from cloister.local.mechanisms.direct import DirectEncoding
from cloister.local.mechanisms.unary import UnaryEncoding, bits_law, bits_ratio
from cloister.privacy.errors import BadInput, BadLoss, BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import ratio_within

__all__ = ["Encoding", "Memoised", "again"]

Encoding = Literal["direct", "unary"]
# Binary digits of the second layer's coin for bits: each costs a random bit for every bit sent.
_DIGITS = 14


@dataclass(frozen=True, slots=True)
class Memoised(Oracle):
    """RAPPOR's two layers (Erlingsson, Pihur & Korolova 2014), over bits or over direct encoding.

    The first report of a value is made by `permanent` and kept on the device. Each report sent is a fresh perturbation
    of it: a bit is flipped with probability `flip`, or the value is exchanged for each other one with probability
    `flip` (Arcolezi et al. 2022). Both layers together are again a pure protocol, with p and q.

    Privacy: two losses, both pure and exact. `loss`: of one report. `lifetime`: of all reports together on one value,
        however many, since they are made from the permanent one alone. If the answer changes, the new one costs
        another lifetime, and the change may be visible. A device that loses its permanent report pays `loss` for
        each, and falls to `attack.queries.averaging.guess`. Verified in tests/unit/local/test_memory.py.

    >>> from cloister.local import epsilon
    >>> browser = Memoised.direct(5, lifetime=epsilon(2), report=epsilon(1))
    >>> print(browser.lifetime, "|", browser.loss)
    epsilon 2 (replace-one) | epsilon 1 (replace-one)
    """

    name: ClassVar[str] = "memoised"
    formula: ClassVar[str] = "q(1-q) / (n (p-q)²) with the p and q of both layers"

    domain: int
    encoding: Encoding
    permanent_p: Fraction
    permanent_q: Fraction
    flip: Fraction
    lifetime: Loss
    loss: Loss

    def __post_init__(self) -> None:
        if self.encoding not in ("direct", "unary"):
            raise BadInput(f"encoding is 'direct' or 'unary', got {self.encoding!r:.40}.")
        for field in ("permanent_p", "permanent_q", "flip"):
            object.__setattr__(self, field, exactly(getattr(self, field), field))
        read_loss(self.loss, self.name)
        # Constructed for its checks: it certifies the lifetime.
        if self.permanent.p != self.permanent_p:
            raise BadProbability("permanent_p must be what direct encoding leaves: 1 - (domain - 1) permanent_q.")
        if self.p <= self.q:
            raise BadProbability("the second layer leaves nothing of the first. Make flip smaller.")
        self._certify()

    @classmethod
    def direct(cls, domain: int, *, lifetime: Loss, report: Loss) -> Self:
        """Build direct encoding of direct encoding; `flip` is the least multiple of 2^-64 within both losses."""
        first = DirectEncoding.for_loss(domain, lifetime)
        amount = _less(report, lifetime, cls.name)

        def within(flip: Fraction) -> bool:
            p, q = _direct(domain, first.p, first.q, flip)
            return ratio_within(p / q, amount)

        flip = _least(within, WORD, Fraction(1, domain))
        return cls(domain, "direct", first.p, first.q, flip, lifetime, report)

    @classmethod
    def unary(cls, domain: int, *, lifetime: Loss, report: Loss) -> Self:
        """Build flipped bits of unary encoding, symmetric or optimised, whichever has less error after both layers."""
        amount = _less(report, lifetime, cls.name)
        candidates = []
        for first in (UnaryEncoding.symmetric(domain, lifetime), UnaryEncoding.optimised(domain, lifetime)):

            def within(flip: Fraction, first: UnaryEncoding = first) -> bool:
                return ratio_within(bits_ratio(_flipped(first.p, flip), _flipped(first.q, flip)), amount)

            flip = _least(within, 1 << _DIGITS, Fraction(1, 2))
            candidates.append(cls(domain, "unary", first.p, first.q, flip, lifetime, report))
        return min(candidates, key=lambda candidate: candidate.mse(1))

    @property
    def permanent(self) -> DirectEncoding | UnaryEncoding:
        """The first layer, whose report is kept."""
        if self.encoding == "direct":
            return DirectEncoding(self.domain, self.permanent_q, self.lifetime)
        return UnaryEncoding(self.domain, self.permanent_p, self.permanent_q, self.lifetime)

    @property
    def kind(self) -> Kind:  # type: ignore[override]  # as the first layer
        """The form of a report."""
        return "number" if self.encoding == "direct" else "bits"

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from both layers
        """The probability that a report supports its true value, through both layers."""
        if self.encoding == "direct":
            return _direct(self.domain, self.permanent_p, self.permanent_q, self.flip)[0]
        return _flipped(self.permanent_p, self.flip)

    @property
    def q(self) -> Fraction:  # type: ignore[override]  # follows from both layers
        """The probability that a report supports another value, through both layers."""
        if self.encoding == "direct":
            return _direct(self.domain, self.permanent_p, self.permanent_q, self.flip)[1]
        return _flipped(self.permanent_q, self.flip)

    @property
    def bits(self) -> int:
        """The number of bits per report."""
        return (self.domain - 1).bit_length() if self.encoding == "direct" else self.domain

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return self.domain if self.encoding == "direct" else 1 << self.domain

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every single report on this value."""
        if self.encoding == "direct":
            return tuple(self.p if report == value else self.q for report in range(self.domain))
        return bits_law(value, self.domain, self.p, self.q)

    def largest_ratio(self) -> Fraction:
        """Return the largest ratio of one report."""
        return self.p / self.q if self.encoding == "direct" else bits_ratio(self.p, self.q)

    def describe(self) -> dict[str, str | int]:
        """Return the public, exact facts that a client in another language needs to make the same reports."""
        return {**Oracle.describe(self), "lifetime": str(self.lifetime.amount)}


def _flipped(chance: Fraction, flip: Fraction) -> Fraction:
    """Return the probability of a 1 that is flipped with this probability."""
    return chance * (1 - flip) + (1 - chance) * flip


def _direct(domain: int, p: Fraction, q: Fraction, flip: Fraction) -> tuple[Fraction, Fraction]:
    """Return the probabilities of the truth and of each other value after the second exchange."""
    keep = 1 - (domain - 1) * flip
    return p * keep + (domain - 1) * q * flip, p * flip + q * keep + (domain - 2) * q * flip


def _less(report: Loss, lifetime: Loss, name: str) -> Fraction:
    amount = read_loss(report, name)
    if amount >= read_loss(lifetime, name):
        raise BadLoss(f"one report must cost less than a lifetime of them, got {report} and {lifetime}.")
    return amount


def _least(within: Callable[[Fraction], bool], unit: int, limit: Fraction) -> Fraction:
    """Return the least multiple of 1/unit for which `within` holds; finer units if none below the limit does."""
    while True:
        low, high = 0, int(limit * unit)
        high -= Fraction(high, unit) == limit
        if within(Fraction(high, unit)):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if within(Fraction(middle, unit)) else (middle, high)
            return Fraction(high, unit)
        if unit >= WORD:
            raise BadLoss("so small a loss cannot be kept by a 64-bit word. Raise the report's epsilon.")
        unit <<= 4


# Device: the permanent report, and a fresh perturbation of it.


@perturbed.register
def both_layers(mechanism: Memoised, values: NDArray[np.int64], source: Source) -> NDArray[Any]:
    """Return a fresh perturbation of a permanent report that is not kept: a first report, for simulations.

    A device keeps the first and calls `again`: see `memory.Wallet`.
    """
    return again(mechanism, perturbed(mechanism.permanent, values, source), source)


def again(mechanism: Memoised, permanent: NDArray[Any], source: Source) -> NDArray[Any]:
    """Return fresh perturbations of permanent reports, one row a person.

    Direct: one little-endian word each, as in direct encoding, with `flip` as its q. Unary: coins of probability `flip`
    (`coins.bit_coins`), one for each bit, and a bit is flipped where its coin is 1.
    """
    if mechanism.encoding == "direct":
        keep = threshold(1 - (mechanism.domain - 1) * mechanism.flip)
        return below((keep, threshold(mechanism.flip)), permanent, mechanism.domain, source)
    flips = bit_coins(mechanism.flip, permanent.size, source).reshape(permanent.shape)
    return np.asarray(permanent ^ trim(flips, mechanism.domain))


# Collector: one round's reports are a pure protocol with the p and q of both layers.


@valid.register
def _valid(mechanism: Memoised, data: NDArray[Any]) -> NDArray[np.bool_]:
    if mechanism.encoding == "direct":
        return np.asarray(data < np.uint64(mechanism.domain))
    return no_spare_bits(data, mechanism.domain)


@tally.register
def _counts(mechanism: Memoised, data: NDArray[Any]) -> NDArray[np.int64]:
    if mechanism.encoding == "direct":
        return np.bincount(data.astype(np.int64), minlength=mechanism.domain)
    return columns(data, mechanism.domain)


@frequencies.register
def _shares(
    mechanism: Memoised, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(debiased(mechanism, table, people), values)


@likelihood.register
def _likelihood(mechanism: Memoised, table: NDArray[Any], people: int) -> Likelihood:
    return pairs(table.astype(np.float64), people, float(mechanism.p), float(mechanism.q))
