"""Multiple choice: each person chooses up to `most` of `domain` options. Report one option, or bits for all."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import Bytes, Words, bit_coins, row_width, tossed, trim
from cloister.local.base.counts import chosen, columns, debiased, frequencies, no_spare_bits, tally, valid
from cloister.local.base.dyadic import WORD, exactly, threshold, word_above
from cloister.local.base.oracle import Floats, Kind, Oracle, read_domain, read_loss
from cloister.local.base.perturb import checked, perturbed, pieces
from cloister.privacy.errors import BadCandidates, BadProbability
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import exp_down

__all__ = ["OneOfSet", "SetBits", "count_sets", "read_most", "sets_of", "read_sets"]

_LARGEST = 1 << 20
# The thresholds of SetBits are exact numbers of `most` times some ten bits.
_MOST_BITS = 1 << 10


def read_most(most: int, domain: int, name: str, limit: int = _LARGEST) -> int:
    """Return the number of options a person may choose."""
    allowed = min(domain, limit)
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= allowed:
        raise BadCandidates(f"{name} lets people choose up to 1 … {allowed:,} options, got {most!r:.40}.")
    return most


def count_sets(domain: int, most: int) -> int:
    """Return the number of sets of at most `most` options."""
    return sum(math.comb(domain, size) for size in range(most + 1))


def sets_of(domain: int, most: int) -> tuple[int, ...]:
    """Return all sets of at most `most` options, each as a number whose bits are the options."""
    return tuple(
        sum(1 << option for option in chosen)
        for size in range(most + 1)
        for chosen in combinations(range(domain), size)
    )


@dataclass(frozen=True, slots=True)
class OneOfSet(Oracle):
    """One number: each chosen option with probability p, each other with q, else `domain`, for no option.

    A set is padded to `most` with dummy options of its own, and one of domain + most is reported: this is PrivSet (Wang
    et al. 2018) with one item, or padding and sampling with direct encoding at the amplified level ln(1 + most
    (e^epsilon - 1)) (Wang, Li & Jha 2018). The dummies are not distinguished, which reveals even less.

    One 64-bit word u decides: below most·p·2^64 the chosen option number u div (p·2^64), counted upwards, or nothing if
    there are fewer; then the other option number (u - most·p·2^64) div (q·2^64), counted upwards, or nothing.

    Privacy: pure over all pairs of sets of at most `most` options, p/q <= e^epsilon exactly; the number of chosen
        options is hidden too. Verified by enumeration in tests/unit/local/test_sets.py.

    >>> from cloister.local import epsilon
    >>> hobbies = OneOfSet.for_loss(10, 3, epsilon(1))
    >>> round(float(hobbies.p), 4), round(float(hobbies.q), 4), hobbies.bits
    (0.1497, 0.0551, 4)
    """

    name: ClassVar[str] = "one-of-set"
    kind: ClassVar[Kind] = "number"
    formula: ClassVar[str] = "(m e^ε+d-1) / (n (e^ε-1)²) for a rare option"

    domain: int
    most: int
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, _LARGEST)
        read_most(self.most, self.domain, self.name)
        read_loss(self.loss, self.name)
        object.__setattr__(self, "q", exactly(self.q, "q"))
        if self.p <= self.q:
            raise BadProbability("a chosen option must be likelier than any other; otherwise reports tell nothing.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, most: int, loss: Loss) -> Self:
        """Build the mechanism with q = 1/(most e^epsilon + domain), rounded up to a multiple of 2^-64."""
        power = exp_down(read_loss(loss, cls.name))
        options = read_domain(domain, cls.name, _LARGEST)
        chosen = read_most(most, options, cls.name)
        return cls(domain, most, Fraction(word_above(1 / (chosen * power + options)), WORD), loss)

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from q
        """The probability of each chosen option; the few words left over report no option."""
        return Fraction((WORD - self.domain * threshold(self.q)) // self.most, WORD)

    @property
    def bits(self) -> int:
        """The number of bits per report."""
        return self.domain.bit_length()

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return self.domain + 1

    @property
    def thresholds(self) -> tuple[int, int]:
        """The number of words of each chosen option, and of each other one."""
        return threshold(self.p), threshold(self.q)

    @property
    def answers(self) -> int:
        """The number of sets."""
        return count_sets(self.domain, self.most)

    @property
    def inputs(self) -> tuple[int, ...]:
        """All sets, as numbers whose bits are the chosen options."""
        return sets_of(self.domain, self.most)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this set."""
        named = [self.p if value >> option & 1 else self.q for option in range(self.domain)]
        return (*named, 1 - sum(named, start=Fraction(0)))

    def mse(self, people: int) -> float:
        """Return the expected squared error of a share, averaged over the options, if every person chooses `most`."""
        return float(self.variance(np.array([self.most / self.domain]), people)[0])

    def largest_ratio(self) -> Fraction:
        """Return p/q: an option chosen against one not chosen. The empty report has a smaller ratio."""
        return self.p / self.q


@dataclass(frozen=True, slots=True)
class SetBits(Oracle):
    """A bit for each option: 1 with probability p if it was chosen, q if not; chosen bits share one budget.

    All bits are coins of probability q, and the law is tilted once: towards reports in which some chosen option (or one
    of the dummies that pad the set) is 1, and equally to all of those. So the cost does not grow with every chosen
    option, as with independent bits at epsilon/most each: the variance grows like `most`, not like its square. It is
    PrivSet (Wang et al. 2018) with coins for its sets of fixed size; with most = 1 it is unary encoding.

    One 64-bit word selects which chosen option, counted upwards, is the first that is 1 (see `thresholds`; none if
    there are fewer, or if the word is not below the last). Those before it are 0, it is 1, those after it and all
    options that were not chosen are as the coins fell.

    Privacy: pure over all pairs of sets of at most `most` options, exactly `largest_ratio()`; the number of chosen
        options is hidden too. Verified by enumeration in tests/unit/local/test_sets.py.

    >>> from cloister.local import epsilon
    >>> topics = SetBits.for_loss(100, 3, epsilon(1))
    >>> round(float(topics.p), 3), topics.q, topics.bits
    (0.166, Fraction(11, 128), 100)
    """

    name: ClassVar[str] = "set-bits"
    kind: ClassVar[Kind] = "bits"
    formula: ClassVar[str] = "q(1-q) / (n (p-q)²), p = q e^ε / (a+(1-a)e^ε), a = (1-q)^m: near 2e·m / (n ε²)"

    domain: int
    most: int
    p: Fraction
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.domain, self.name, _LARGEST)
        read_most(self.most, self.domain, self.name, _MOST_BITS)
        read_loss(self.loss, self.name)
        for field in ("p", "q"):
            object.__setattr__(self, field, exactly(getattr(self, field), field))
        ends = (0, *self.thresholds)
        if self.p <= self.q or ends[-1] >= WORD or any(low == high for low, high in pairwise(ends)):
            raise BadProbability("a chosen option must be likelier than any other, able to show, and not sure to.")
        self._certify()

    @classmethod
    def for_loss(cls, domain: int, most: int, loss: Loss) -> Self:
        """Build it with a q of six binary digits near that of least error; p is rounded down to a multiple of 2^-64."""
        amount = read_loss(loss, cls.name)
        options = read_domain(domain, cls.name, _LARGEST)
        chosen = read_most(most, options, cls.name, _MOST_BITS)
        q, power = _best_coin(chosen, float(amount)), exp_down(amount)
        none = (1 - q) ** chosen
        return cls(domain, most, Fraction(math.floor(WORD * q * power / (none + power * (1 - none))), WORD), q, loss)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The word thresholds: a word below number j, but not below the one before, makes chosen option j the first 1.

        Its probability is p (1-q)^j rounded down, so options differ by less than most·2^-64 in their own p.
        """
        top, rest, digits = threshold(self.p), *self._tails
        ends, total = [], 0
        for index in range(self.most):
            total += top >> digits * index
            ends.append(total)
            top *= rest
        return tuple(ends)

    @property
    def bits(self) -> int:
        """The number of bits per report."""
        return self.domain

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return 1 << self.domain

    @property
    def answers(self) -> int:
        """The number of sets."""
        return count_sets(self.domain, self.most)

    @property
    def inputs(self) -> tuple[int, ...]:
        """All sets, as numbers whose bits are the chosen options."""
        return sets_of(self.domain, self.most)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this set."""
        chosen = [option for option in range(self.domain) if value >> option & 1]
        ends = (0, *self.thresholds)
        first = [Fraction(ends[j + 1] - ends[j], WORD) for j in range(len(chosen))]
        chances = []
        for report in range(self.outputs):
            hits = [j for j, option in enumerate(chosen) if report >> option & 1]
            ones, free = report.bit_count(), self.domain
            if hits:
                chance, ones, free = first[hits[0]], ones - 1, free - hits[0] - 1
            else:
                chance, free = 1 - sum(first, start=Fraction(0)), free - len(chosen)
            chances.append(chance * self.q**ones * (1 - self.q) ** (free - ones))
        return tuple(chances)

    def mse(self, people: int) -> float:
        """Return the expected squared error of a share, averaged over the options, if every person chooses `most`."""
        return float(self.variance(np.array([self.most / self.domain]), people)[0])

    def largest_ratio(self) -> Fraction:
        """Return the largest ratio of any report's probabilities under two sets.

        Relative to coins alone, a report is likelier by shown[j] if its first chosen 1 is number j, and by unseen[c] if
        none of c chosen options is 1. Words are rounded down one by one, so each of these is checked: in exact
        integers, all multiplied by the same number. A report with a 1 leaves no room for a set of all options.
        """
        rest, digits = self._tails
        powers = [1]
        for _ in range(self.most):
            powers.append(powers[-1] * rest)
        coin, ends = int(self.q * (1 << digits)), (0, *self.thresholds)
        shown = [ends[j + 1] - ends[j] << digits * (j + 1) for j in range(self.most)]
        shown = [words * powers[self.most - j] for j, words in enumerate(shown)]
        unseen = [((WORD - ends[c]) * coin << digits * c) * powers[self.most - c] for c in range(self.most + 1)]
        beside = [*shown, *unseen[: self.domain]]
        return max(Fraction(max(some), min(some)) for some in (beside, unseen))

    @property
    def _tails(self) -> tuple[int, int]:
        """The probability that an option's coin is 0, as an integer multiple of 2^-digits, and the digits."""
        digits = self.q.denominator.bit_length() - 1
        return (1 << digits) - int(self.q * (1 << digits)), digits


def _best_coin(most: int, amount: float) -> Fraction:
    """Return the coin of least q(1-q)/(p-q)², to six binary digits. In floats: it affects the error only."""
    q = np.geomspace(1e-4 * math.exp(-amount), 0.5, 4000) / most
    none = (1 - q) ** most
    # p/q - 1 in a form that does not cancel when epsilon is small.
    gap = -none * np.expm1(-amount) / (none * math.exp(-amount) + 1 - none)
    best = float(q[np.argmin((1 - q) / (q * gap**2))])
    places = 5 - math.floor(math.log2(best))
    return Fraction(round(best * 2**places), 1 << places)


# Device: one word, and for SetBits the coins of all options after it.


@perturbed.register
def one_of_set(mechanism: OneOfSet, values: NDArray[np.int64], source: Source) -> Words:
    """Return a number: 8 random bytes a person, read as one little-endian word u.

    With (own, run) = mechanism.thresholds and the chosen options in ascending order:
        u < most·own: number u div own of the chosen options, or `domain` (none) if fewer were chosen;
        otherwise r = (u - most·own) div run: number r of the options that were not chosen, or `domain`.
    """
    own, run = (np.uint64(share) for share in mechanism.thresholds)
    people, end = np.arange(len(values)), np.uint64(mechanism.most) * own
    word = tossed(len(values), source)
    hit = word < end
    slot = np.minimum(word // own, np.uint64(mechanism.most - 1)).astype(np.int64)
    named = values[people, slot]
    named[named < 0] = mechanism.domain
    # Where hit, the difference wraps and is not used.
    other = np.minimum((word - end) // run, np.uint64(mechanism.domain)).astype(np.int64)
    for option in values.T:  # ascending: each chosen option passed moves the place up by one
        other += (option >= 0) & (option <= other)
    return np.asarray(np.where(hit, named, np.minimum(other, mechanism.domain)), dtype=np.uint64)


@perturbed.register
def bits_of_set(mechanism: SetBits, values: NDArray[np.int64], source: Source) -> Bytes:
    """Return packed bits, the first option in the lowest bit of the first byte; bits beyond the domain are 0.

    8 random bytes a person, read as one little-endian word u: the first chosen option (ascending) that is 1 is number
    j, the number of thresholds that are not above u. Then the coins, as for unary encoding: ceil(domain/8) random bytes
    for each binary digit of q, from the lowest (`base.coins.bit_coins`). Chosen options before number j are cleared,
    number j is set, all other bits stay as the coins fell.
    """
    width, ends = row_width(mechanism.domain), np.array(mechanism.thresholds, dtype=np.uint64)
    rows = np.empty((len(values), width), dtype=np.uint8)
    for piece in pieces(len(values)):
        chosen = values[piece]
        first = np.searchsorted(ends, tossed(len(chosen), source), side="right")
        bits = bit_coins(mechanism.q, len(chosen) * width, source).reshape(-1, width)
        trim(bits, mechanism.domain)
        for index, option in enumerate(chosen.T):
            at = np.flatnonzero((option >= 0) & (index <= first))
            byte, mask = option[at] >> 3, np.uint8(1) << (option[at] & 7).astype(np.uint8)
            cleared = bits[at, byte] & ~mask
            bits[at, byte] = np.where(first[at] == index, cleared | mask, cleared)
        rows[piece] = bits
    return rows


@checked.register
def _checked(mechanism: OneOfSet | SetBits, values: Any) -> NDArray[np.int64]:
    return read_sets(mechanism.domain, mechanism.most, values)


def read_sets(domain: int, most: int, values: Any) -> NDArray[np.int64]:
    """Return one row a person: the chosen options in ascending order, then -1 up to `most`.

    Args:
        domain: the number of options.
        most: the most options a person may choose.
        values: one person's set or frozenset; a list with one set (or list, or tuple) a person; or a matrix of bools
            with one row a person and one column an option.
    """
    rule = (
        f"give each person's options as a set of at most {most} different whole numbers from 0 to "
        f"{domain - 1}: one set, a list of sets, or a matrix of bools."
    )
    if isinstance(values, set | frozenset):
        values = [values]
    if isinstance(values, np.ndarray) and values.dtype == np.bool_ and values.ndim == 2:
        if values.shape[1] != domain:
            raise BadCandidates(rule)
        rows, flat = np.divmod(np.flatnonzero(values), domain)
        people = len(values)
    elif isinstance(values, list | tuple) and all(
        isinstance(options, set | frozenset | list | tuple) for options in values
    ):
        people = len(values)
        rows = np.repeat(np.arange(people), [len(options) for options in values])
        listed = [option for options in values for option in options]
        if any(isinstance(option, bool) or not isinstance(option, int | np.integer) for option in listed):
            raise BadCandidates(rule)
        try:
            flat = np.array(listed, dtype=np.int64)
        except OverflowError:
            raise BadCandidates(rule) from None
        order = np.lexsort((flat, rows))
        flat = flat[order]
    else:
        raise BadCandidates(rule)
    return _filled(rows, np.asarray(flat, dtype=np.int64), people, domain, most, rule)


def _filled(
    rows: NDArray[np.intp],
    flat: NDArray[np.int64],
    people: int,
    domain: int,
    most: int,
    rule: str,
) -> NDArray[np.int64]:
    """Return the matrix, from options sorted by person and number."""
    sizes = np.bincount(rows, minlength=people)
    twice = (np.diff(rows) == 0) & (np.diff(flat) == 0)
    if twice.any() or (sizes > most).any() or ((flat < 0) | (flat >= domain)).any():
        raise BadCandidates(rule)
    filled = np.full((people, most), -1, dtype=np.int64)
    filled[rows, np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = flat
    return filled


# Collector: shares of people who chose each option. They need not add up to 1.


@valid.register
def _valid(mechanism: SetBits, data: NDArray[Any]) -> NDArray[np.bool_]:
    return no_spare_bits(data, mechanism.domain)


@tally.register
def _named(mechanism: OneOfSet, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.bincount(data.astype(np.int64), minlength=mechanism.outputs)


@tally.register
def _bits(mechanism: SetBits, data: NDArray[Any]) -> NDArray[np.int64]:
    return columns(data, mechanism.domain)


@frequencies.register
def _shares(
    mechanism: OneOfSet | SetBits, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(debiased(mechanism, table[: mechanism.domain], people), values)
