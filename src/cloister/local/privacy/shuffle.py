"""The shuffle model: the loss of n local reports after a trusted shuffler has removed the senders' names.

One person's report hides among all others. Write R0 and R1 for the laws of a report on two answers, and V for their
total variation distance. Pointwise, with p = V/(e^eps - 1) and s = 1 - (e^eps + 1) p,

    R0 = e^eps p A + p B + s S,   R1 = p A + e^eps p B + s S,   R(any x) >= p A + p B + e^-eps s S,

where A is supported where R0 is larger and B where R1 is. So every other person sends an A, a B or an S with at least
these probabilities, and the shuffled reports reveal no more than the numbers of As, Bs and Ss among the covering ones:
the "clones" of Feldman, McMillan & Talwar 2021 and 2023. The S must be covered too: with As and Bs alone (as the
theorem is sometimes quoted, where the person's own S is then revealing) the bound is too small, and
tests/unit/local/test_shuffle.py has three people who break it. If V is not known, every other person sends an A or a B
with e^-eps in all, and s = 0: that covers every mechanism. Counts are binomial, and the hockey-stick divergence is a
sum of binomial tails.

Lower bounds are actual attacks: two neighbours, the other people's answers, and the divergence of the counts of As and
Bs there. For direct encoding with three values or more (all others give a third answer) and for two answers (where the
law of the number of yeses is computed, for every number of others who would say yes) the two agree within 2 %; for
bits, hashes and subsets they do not, see `Shuffled.gap`.

Falls to: a shuffler that keeps senders or their order (AT-18); reports that are sent anew each time, to
`attack.queries.averaging.guess`.
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

# The limit of floats is slightly below; smaller values are not needed.
_LEAST_DELTA = Fraction(1, 10**300)
# Bisections of the interval for epsilon, and the tolerance between its ends.
_STEPS = 60
_CLOSE = 5e-4
# From a guess with the expected number of covering reports, epsilon is tried upwards by these factors.
_GROWN = (1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """The loss of n local reports after shuffling, and the readers it holds against.

    Attributes:
        loss: (epsilon, delta), replace-one, rounded up: holds for every person against readers of published results.
        lower: no smaller epsilon is true at this delta, for this mechanism (for a bare loss: for some mechanism of
            that loss); None where no attack is known.
        local: each person's loss to the collector, or to a shuffler that colludes with it; shuffling has no effect.
        n: the number of reports shuffled together.
        levels: for several levels, each level's own result; the whole is stated at the weakest.
    """

    loss: Loss
    lower: Fraction | None
    local: Loss
    n: int
    levels: tuple["Shuffled", ...] = ()

    @property
    def trusted(self) -> str:
        """The parties that must be trusted."""
        return "a shuffler that mixes all reports, keeps no order, name, time or address, and tells nobody"

    @property
    def against(self) -> str:
        """The readers it protects against."""
        return "readers of what is published from the shuffled reports; NOT the collector who receives them unshuffled"

    @property
    def gap(self) -> float | None:
        """The relative excess of the upper bound over the lower one."""
        return float(self.loss.amount / self.lower) - 1 if self.lower else None

    def __str__(self) -> str:
        least = "" if self.lower is None else f" (and not less than {show(self.lower, 4)})"
        return (
            f"{self.loss}{least} for {self.n:,} shuffled reports. Trusted: {self.trusted}. "
            f"Holds against: {self.against}. Against the collector: {self.local}."
        )


def shuffled(what: Oracle | Loss, n: int, delta: Number) -> Shuffled:
    """Return the loss of one report among n of the same mechanism, all shuffled.

    Args:
        what: the mechanism, or a local loss alone, which stands for every mechanism of that loss.
        n: the number of people, one report each.
        delta: the delta at which epsilon is stated.

    Privacy: reads public facts alone. The result holds only if the shuffler is trusted, and says so.

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
    # Rounded to the safe side: a slightly smaller delta is stricter.
    limit = math.nextafter(float(allowed), 0)
    if _is_yes_or_no(what):
        upper = _upper_of_two(what, n, limit, float(amount))
    else:
        upper = _upper(n, _cover(what, amount), limit, float(amount))
    loss = Loss("epsilon", min(rounded_up(upper), amount), allowed, Relation.REPLACE_ONE)
    lower = _lower(what, amount, upper, n, math.nextafter(float(allowed), 1))
    return Shuffled(loss, None if lower is None else min(rounded_down(lower), loss.amount), local, n)


def shuffled_levels(levels: Sequence[tuple[Oracle | Loss, int]], delta: Number) -> Shuffled:
    """Return the loss with several levels: each person hides among those of the same level; the weakest is stated.

    A report shows its level, so reports of other levels hide no one: each level is a separate shuffle.

    Args:
        levels: the mechanism of each level (as in `shuffled`), and its number of reports.
        delta: the delta at which epsilon is stated.

    Privacy: as for `shuffled`; the choice of level is not hidden. The local loss stated is the largest.
    """
    if not levels:
        raise BadInput("name at least one level: [(mechanism, how many), …].")
    parts = tuple(shuffled(mechanism, n, delta) for mechanism, n in levels)
    weakest = max(parts, key=lambda part: part.loss.amount)
    bounds = [part.lower for part in parts if part.lower is not None]
    return replace(
        weakest,
        lower=max(bounds, default=None),
        local=max((part.local for part in parts), key=lambda loss: loss.amount),
        n=sum(part.n for part in parts),
        levels=parts,
    )


def _cover(mechanism: Any, amount: Fraction) -> Cover:
    """Return how reports cover one another. Floats, with relative error 1e-16: the slack covers it."""
    if isinstance(mechanism, DirectEncoding):  # every person sends every value with probability at least q
        p, q = float(mechanism.p), float(mechanism.q)
        return Cover(p, q, q, (mechanism.domain - 2) * q)
    if isinstance(mechanism, UnaryEncoding | ThresholdEncoding):
        # For the two bits: 10 and 01, which any person sends with probability at least q(1-p); of 11 and 00 at least
        # the part e^-eps, since a person with a third value sends 11 with that value's bit 0 with probability at most
        # q²(1-p).
        p, q = float(mechanism.p), float(mechanism.q)
        own, cross = p * (1 - q), q * (1 - p)
        return Cover(own, cross, cross, (1 - own - cross) * cross / own)
    power = float(exp_up(amount))
    if isinstance(mechanism, RandomisedResponse | LocalHashing | SubsetSelection):
        part = float(mechanism.p - mechanism.q) / (power - 1)
        own = min(power * part, 1 - part)
        return Cover(own, part, part, (1 - own - part) / power)
    return Cover(power / (power + 1), 1 / (power + 1), 0.5 / power, 0.0)


def _lower(mechanism: Any, amount: Fraction, upper: float, n: int, limit: float) -> float | None:
    """Return the largest epsilon that an attack refutes."""
    if _is_yes_or_no(mechanism):  # while all others would say no, or yes
        yes, no = float(mechanism.p), float(mechanism.q)
        laws = [alike(n - 1, rate, limit) for rate in (yes, no)]
        return _refuted(lambda e: max(divergence_of_two(e, law, yes, no, limit)[1] for law in laws) >= limit, upper)
    pair = _attack(mechanism, amount)
    if pair is None:
        return None
    return _refuted(lambda e: divergence(e, n, pair, limit)[1] >= limit, upper)


def _attack(mechanism: Any, amount: Fraction) -> Pair | None:
    """Return the reports for 0 and for 1, in the attack on answers 0 and 1 while all others answer 2."""
    if isinstance(mechanism, Loss):  # the bound for all mechanisms cannot be below direct encoding with three values
        p = float(1 / (exp_down(amount) + 2))
        return Pair(float(exp_down(amount)) * p, p, p)
    if not isinstance(mechanism, Oracle) or mechanism.domain < 3:
        return None
    if isinstance(mechanism, DirectEncoding):
        return Pair(float(mechanism.p), float(mechanism.q), float(mechanism.q))
    if isinstance(mechanism, UnaryEncoding | ThresholdEncoding):
        return Pair(
            *(
                float(x)
                for x in (
                    mechanism.p * (1 - mechanism.q),
                    mechanism.q * (1 - mechanism.p),
                    mechanism.q * (1 - mechanism.q),
                )
            )
        )
    if isinstance(mechanism, SubsetSelection):
        d, k, chance = mechanism.domain, mechanism.size, mechanism.p
        third = (chance * (k - 1) * (d - k) + (1 - chance) * k * (d - 1 - k)) / ((d - 1) * (d - 2))
        return Pair(float(chance * (d - k) / (d - 1)), float((1 - chance) * k / (d - 1)), float(third))
    if isinstance(mechanism, LocalHashing) and mechanism.domain > mechanism.buckets:
        # Values 0, 1 and g differ in independent digits, so their buckets are independent.
        g, keep, lie = mechanism.buckets, mechanism.p, mechanism.lie
        apart = 1 - Fraction(1, g)
        return Pair(float(apart * keep), float(apart * lie), float(apart * (keep / g + apart * lie)))
    return None


def _is_yes_or_no(mechanism: Any) -> bool:
    return isinstance(mechanism, RandomisedResponse) or (
        isinstance(mechanism, DirectEncoding) and mechanism.domain == 2
    )


def _upper_of_two(mechanism: Any, n: int, limit: float, largest: float) -> float:
    """Bound two answers, where only the number of yeses is visible: its law is computed for all other answers."""
    yes, no = float(mechanism.p), float(mechanism.q)
    laws = yes_counts(n, yes, no, limit)
    return _search(lambda e: all(divergence_of_two(e, law, yes, no, limit)[0] <= limit for law in laws), 0.0, largest)


def _upper(n: int, cover: Cover, limit: float, largest: float) -> float:
    """Return a valid epsilon close to the least one. The local epsilon itself needs no test."""
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
    """Return the valid end of an interval, after it has closed around the least valid epsilon."""
    for _ in range(_STEPS):
        # Epsilon is small after shuffling, so the first steps are by ratios.
        middle = (low + high) / 2 if low else high / 4
        low, high = (low, middle) if holds(middle) else (middle, high)
        if high - low <= _CLOSE * high:
            break
    return high


def _refuted(broken: Callable[[float], bool], largest: float) -> float:
    """Return a refuted epsilon close to the largest one, or 0."""
    low, high = 0.0, largest
    near = (1 - 4 * _CLOSE) * largest  # where the two bounds agree, this saves most of the bisections
    if broken(near):
        low = near
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if broken(middle) else (low, middle)
        if high - low <= _CLOSE * high:
            break
    return low
