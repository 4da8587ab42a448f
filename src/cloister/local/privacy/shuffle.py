"""The shuffle model: what n local reports cost after a trusted shuffler has taken the senders' names off.

One person's report hides among all others. Write R0 and R1 for the laws of a report on two answers, and V for their
total variation distance. Pointwise, with p = V/(e^eps - 1) and s = 1 - (e^eps + 1) p,

    R0 = e^eps p A + p B + s S,   R1 = p A + e^eps p B + s S,   R(any x) >= p A + p B + e^-eps s S,

where A lies where R0 is larger and B where R1 is. So everybody else sends an A, a B or an S of their own making with at
least these probabilities, and the shuffled reports are no better known than the numbers of As, Bs and Ss among the
covering ones: the "clones" of Feldman, McMillan & Talwar 2021 and 2023. The S must be covered too: with As and Bs alone
(as the theorem is sometimes quoted, and as one's own S then betrays) the bound is too small, and
tests/unit/test_local_shuffle.py has three people who break it. If V is not known, everybody else sends an A or a B
with e^-eps in all, and s = 0: that covers every mechanism. Counts are binomial, and the hockey-stick divergence is a
sum of binomial tails.

Lower bounds are real attacks: two neighbours, what everybody else answers, and the divergence of the counts of As
and Bs there. For direct encoding with three values or more (everybody else gives a third answer) and for two answers
(where the law of the number of yeses is computed, for every number of others who would say yes) the two meet within
2 %; for bits, hashes and subsets they do not, see `Shuffled.gap`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from cloister.local.base.oracle import Oracle, read_loss
from cloister.local.mechanisms.direct import DirectEncoding, RandomisedResponse
from cloister.local.mechanisms.hashing import LocalHashing
from cloister.local.mechanisms.subset import SubsetSelection
from cloister.local.mechanisms.unary import ThresholdEncoding, UnaryEncoding
from cloister.local.privacy.divergence import (
    Cover,
    Pair,
    alike,
    covered_divergence,
    divergence,
    divergence_of_two,
    expected,
    yes_counts,
)
from cloister.privacy.errors import BadInput, BadLoss
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.mechanisms.checks import count
from cloister.privacy.number import Number, exp_down, exp_up, rational, rounded_down, rounded_up, show

__all__ = ["Shuffled", "shuffled", "shuffled_levels"]

# Floats end a little below; nobody asks for less.
_LEAST_DELTA = Fraction(1, 10**300)
# Halvings of the interval for epsilon, and how close its ends may stay.
_STEPS = 60
_CLOSE = 5e-4
# From a guess with the expected number of covering reports, epsilon is tried upwards by these factors.
_GROWN = (1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """What n local reports cost after shuffling, and against whom.

    Attributes:
        loss: (epsilon, delta), replace-one, rounded up: holds for every person against readers of published results.
        lower: no smaller epsilon is true at this delta, for this mechanism (for a bare loss: for some mechanism of
            that loss); None where no attack is worked out.
        local: what each person loses to the collector, or to a shuffler that talks to it: no shuffling changes that.
        n: how many reports are shuffled together.
        levels: for several levels, each level's own result; the whole is stated at the weakest.
    """

    loss: Loss
    lower: Fraction | None
    local: Loss
    n: int
    levels: tuple["Shuffled", ...] = ()

    @property
    def trusted(self) -> str:
        """Who must be trusted for this."""
        return "a shuffler that mixes all reports, keeps no order, name, time or address, and tells nobody"

    @property
    def against(self) -> str:
        """Whom it protects from."""
        return "readers of what is published from the shuffled reports; NOT the collector who receives them unshuffled"

    @property
    def gap(self) -> float | None:
        """By what share the upper bound exceeds the lower one."""
        return float(self.loss.amount / self.lower) - 1 if self.lower else None

    def __str__(self) -> str:
        least = "" if self.lower is None else f" (and not less than {show(self.lower, 4)})"
        return (
            f"{self.loss}{least} for {self.n:,} shuffled reports. Trusted: {self.trusted}. "
            f"Holds against: {self.against}. Against the collector: {self.local}."
        )


def shuffled(what: Oracle | Loss, n: int, delta: Number) -> Shuffled:
    """The loss of one report among n of the same mechanism, all shuffled.

    Args:
        what: the mechanism, or a local loss alone, which stands for every mechanism of that loss.
        n: how many people report, one report each.
        delta: the delta at which epsilon is stated.

    Privacy: looks at public facts alone. The result holds only if the shuffler is trusted: it says so.

    >>> from cloister import local
    >>> found = shuffled(local.DirectEncoding.for_loss(8, local.epsilon(1)), 10_000, "1e-6")
    >>> print(found.loss)
    epsilon ≈0.0257..., delta 1e-06 (replace-one)
    """
    count(n, "n")
    local = what.loss if isinstance(what, Oracle) else what
    amount, allowed = read_loss(local, "shuffled"), rational(delta, "delta")
    if not _LEAST_DELTA <= allowed < 1:
        raise BadLoss(f"delta must be at least 1e-300 and below 1, got {show(allowed)}.")
    # Towards the side that is safe: a delta that is a little smaller asks for more.
    limit = math.nextafter(float(allowed), 0)
    if _is_yes_or_no(what):
        upper = _upper_of_two(what, n, limit, float(amount))
    else:
        upper = _upper(n, _cover(what, amount), limit, float(amount))
    loss = Loss("epsilon", min(rounded_up(upper), amount), allowed, Relation.REPLACE_ONE)
    lower = _lower(what, amount, upper, n, math.nextafter(float(allowed), 1))
    return Shuffled(loss, None if lower is None else min(rounded_down(lower), loss.amount), local, n)


def shuffled_levels(levels: Sequence[tuple[Oracle | Loss, int]], delta: Number) -> Shuffled:
    """Several levels at once: each person hides among those of the same level, and all are promised the weakest.

    A report shows its level, so the reports of other levels hide nobody: each level is a shuffle of its own.

    Args:
        levels: what is reported at each level (as in `shuffled`), and by how many.
        delta: the delta at which epsilon is stated.

    Privacy: as for `shuffled`; who chose which level is not hidden. The local loss stated is the largest.
    """
    if not levels:
        raise BadInput("name at least one level: [(mechanism, how many), …].")
    parts = tuple(shuffled(what, n, delta) for what, n in levels)
    weakest = max(parts, key=lambda part: part.loss.amount)
    known = [part.lower for part in parts if part.lower is not None]
    return replace(
        weakest,
        lower=max(known, default=None),
        local=max((part.local for part in parts), key=lambda loss: loss.amount),
        n=sum(part.n for part in parts),
        levels=parts,
    )


def _cover(what: Any, amount: Fraction) -> Cover:
    """How reports cover one another. Floats, off by 1e-16 of themselves: the slack covers it."""
    if isinstance(what, DirectEncoding):  # everybody sends every value with at least q
        p, q = float(what.p), float(what.q)
        return Cover(p, q, q, (what.domain - 2) * q)
    if isinstance(what, UnaryEncoding | ThresholdEncoding):
        # Of the two bits: 10 and 01, which anybody sends with q(1-p) at least; of 11 and 00 at least the part e^-eps,
        # since whoever has a third value sends 11 with that value's bit 0 no oftener than q²(1-p).
        p, q = float(what.p), float(what.q)
        own, cross = p * (1 - q), q * (1 - p)
        return Cover(own, cross, cross, (1 - own - cross) * cross / own)
    power = float(exp_up(amount))
    if isinstance(what, RandomisedResponse | LocalHashing | SubsetSelection):
        part = float(what.p - what.q) / (power - 1)
        own = min(power * part, 1 - part)
        return Cover(own, part, part, (1 - own - part) / power)
    return Cover(power / (power + 1), 1 / (power + 1), 0.5 / power, 0.0)


def _lower(what: Any, amount: Fraction, upper: float, n: int, limit: float) -> float | None:
    """The largest epsilon that an attack refutes."""
    if _is_yes_or_no(what):  # while everybody else would say no, or yes
        yes, no = float(what.p), float(what.q)
        laws = [alike(n - 1, rate, limit) for rate in (yes, no)]
        return _refuted(lambda e: max(divergence_of_two(e, law, yes, no, limit)[1] for law in laws) >= limit, upper)
    pair = _attack(what, amount)
    if pair is None:
        return None
    return _refuted(lambda e: divergence(e, n, pair, limit)[1] >= limit, upper)


def _attack(what: Any, amount: Fraction) -> Pair | None:
    """Answers 0 and 1 against each other while everybody else answers 2: which reports speak for 0 or for 1."""
    if isinstance(what, Loss):  # the bound for all mechanisms cannot be below direct encoding with three values
        p = float(1 / (exp_down(amount) + 2))
        return Pair(float(exp_down(amount)) * p, p, p)
    if not isinstance(what, Oracle) or what.domain < 3:
        return None
    if isinstance(what, DirectEncoding):
        return Pair(float(what.p), float(what.q), float(what.q))
    if isinstance(what, UnaryEncoding | ThresholdEncoding):
        return Pair(*(float(x) for x in (what.p * (1 - what.q), what.q * (1 - what.p), what.q * (1 - what.q))))
    if isinstance(what, SubsetSelection):
        d, k, held = what.domain, what.size, what.p
        third = (held * (k - 1) * (d - k) + (1 - held) * k * (d - 1 - k)) / ((d - 1) * (d - 2))
        return Pair(float(held * (d - k) / (d - 1)), float((1 - held) * k / (d - 1)), float(third))
    if isinstance(what, LocalHashing) and what.domain > what.buckets:
        # Values 0, 1 and g differ in independent digits, so their buckets do not depend on one another.
        g, keep, lie = what.buckets, what.p, what.lie
        apart = 1 - Fraction(1, g)
        return Pair(float(apart * keep), float(apart * lie), float(apart * (keep / g + apart * lie)))
    return None


def _is_yes_or_no(what: Any) -> bool:
    return isinstance(what, RandomisedResponse) or (isinstance(what, DirectEncoding) and what.domain == 2)


def _upper_of_two(what: Any, n: int, limit: float, largest: float) -> float:
    """Of two answers the number of yeses is all there is to see: its law is computed, whatever others would say."""
    yes, no = float(what.p), float(what.q)
    laws = yes_counts(n, yes, no, limit)
    return _search(lambda e: all(divergence_of_two(e, law, yes, no, limit)[0] <= limit for law in laws), 0.0, largest)


def _upper(n: int, cover: Cover, limit: float, largest: float) -> float:
    """About the least epsilon that holds; always one that does. The local epsilon itself needs no trial."""
    few, pair = expected(n, cover)
    guess = _search(lambda e: divergence(e, few, pair, limit)[0] <= limit, 0.0, largest)
    low = 0.0
    for grown in _GROWN:
        if guess * grown >= largest:
            break
        if covered_divergence(guess * grown, n, cover, limit) <= limit:
            return _search(lambda e: covered_divergence(e, n, cover, limit) <= limit, low, guess * grown)
        low = guess * grown
    return _search(lambda e: covered_divergence(e, n, cover, limit) <= limit, low, largest)


def _search(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The end of an interval that holds, after it has closed around the least epsilon that does."""
    for _ in range(_STEPS):
        # Epsilon is small after shuffling, so the first steps are by ratios.
        middle = (low + high) / 2 if low else high / 4
        low, high = (low, middle) if holds(middle) else (middle, high)
        if high - low <= _CLOSE * high:
            break
    return high


def _refuted(broken: Callable[[float], bool], largest: float) -> float:
    """About the largest epsilon that is broken; always one that is, or 0."""
    low, high = 0.0, largest
    near = (1 - 4 * _CLOSE) * largest  # where the two bounds meet, this saves most of the halvings
    if broken(near):
        low = near
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if broken(middle) else (low, middle)
        if high - low <= _CLOSE * high:
            break
    return low
