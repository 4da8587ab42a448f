"""Comparisons of shared numbers: sign, less-than, equality, selection, clipping. Nothing is opened but masked words.

The sign of x is the top bit of x. With a uniform word r of which both a sum sharing and a bit sharing is known, the
word c = x + r is opened, and x = c - r bit by bit: x₆₃ = c₆₃ xor r₆₃ xor [c mod 2^63 < r mod 2^63]. The comparison of
public with shared bits is a tree of six levels (Damgård, Fitzi, Kiltz, Nielsen, Toft 2006, in the form of Escudero et
al. 2020). Bits are packed eight to a byte, across numbers.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cloister.privacy.errors import BadBounds, BadInput
from cloister.privacy.number import rational
from cloister.vault.sharing import ring
from cloister.vault.sharing.fixed import Shared, as_shared
from cloister.vault.sharing.party import Party
from cloister.vault.sharing.ring import Bits, Words
from cloister.vault.sharing.supply import product_shape

__all__ = [
    "Condition",
    "clip",
    "is_negative",
    "is_zero",
    "less_than",
    "maximum",
    "negative_bit",
    "positive_bits",
    "select",
]

_ROWS = ring.BITS


class Condition(Shared):
    """Shared answers of a comparison: 1 where it is true and 0 elsewhere, also when opened, added or multiplied.

    `~a`, `a & b` and `a | b` are conditions again. Other results, such as 1 - a, are numbers, which `select` refuses.
    """

    __slots__ = ("_bits",)

    def __init__(self, party: Party, bits: Words) -> None:
        super().__init__(party, bits << np.uint64(party.fraction_bits), 1 << party.fraction_bits)
        self._bits = bits

    @property
    def bits(self) -> Words:
        """This party's share of the whole numbers 0 and 1, for protocols that are built on it."""
        return self._bits

    @property
    def T(self) -> "Condition":  # noqa: N802 (numpy's name)
        """The transpose."""
        return Condition(self.party, self._bits.T)

    def __getitem__(self, at: Any) -> "Condition":
        return Condition(self.party, np.asarray(self._bits[at], dtype=np.uint64))

    def reshape(self, *shape: int) -> "Condition":
        """Return the same answers in another shape."""
        return Condition(self.party, self._bits.reshape(shape))

    @ring.wrapping
    def __invert__(self) -> "Condition":
        """Return 1 where the condition is 0. No message is sent."""
        return Condition(self.party, np.asarray(np.uint64(self.party.index == 0) - self._bits, dtype=np.uint64))

    @ring.wrapping
    def __and__(self, other: "Condition") -> "Condition":
        """Return 1 where both are 1."""
        _refuse_numbers(other)
        product_shape(self.shape, self.operand(other).shape, matrix=False)
        return Condition(self.party, self.party.multiply_words(self._bits, other.bits))

    def __or__(self, other: "Condition") -> "Condition":
        """Return 1 where one of them or both are 1."""
        _refuse_numbers(other)
        return ~(~self & ~other)


def is_negative(numbers: Shared) -> Condition:
    """Return 1 where a number is below zero and 0 elsewhere."""
    count = as_shared(numbers, "a comparison").words.size
    bits = numbers.party.to_numbers(negative_bit(numbers)[None, :], count)[0]
    return Condition(numbers.party, bits.reshape(numbers.shape))


def less_than(left: "Shared | ArrayLike", right: "Shared | ArrayLike") -> Condition:
    """Return 1 where left < right and 0 elsewhere. One side may be public."""
    if isinstance(left, Shared):
        return is_negative(left - right)
    return is_negative(-(as_shared(right, "a comparison") - left))


@ring.wrapping
def is_zero(numbers: Shared) -> Condition:
    """Return 1 where a number is zero and 0 elsewhere."""
    # x = 0 exactly if neither x nor -x is negative.
    words = as_shared(numbers, "a comparison").words
    both = is_negative(Shared(numbers.party, np.stack([words, (-numbers).words]), numbers.bound))
    first = 1 if numbers.party.index == 0 else 0
    return Condition(numbers.party, np.asarray(np.uint64(first) - both.bits[0] - both.bits[1], dtype=np.uint64))


@ring.wrapping
def select(condition: Condition, chosen: "Shared | ArrayLike", otherwise: "Shared | ArrayLike") -> Shared:
    """Return `chosen` where the condition is 1 and `otherwise` where it is 0.

    Args:
        condition: the result of a comparison.
        chosen: numbers where it is 1, shared or public.
        otherwise: numbers where it is 0, shared or public.
    """
    _refuse_numbers(condition)
    yes, no = condition.operand(chosen), condition.operand(otherwise)
    difference = yes - no
    shape = product_shape(condition.shape, difference.shape, matrix=False)
    # A product with a whole 0 or 1 keeps the binary point, so nothing is truncated.
    bits, words = np.broadcast_to(condition.bits, shape), np.broadcast_to(difference.words, shape)
    moved = condition.party.multiply_words(bits, words)
    return Shared(condition.party, no.words + moved, max(yes.bound, no.bound))


def _refuse_numbers(condition: object) -> None:
    if not isinstance(condition, Condition):
        raise BadInput(
            "a condition is the result of a comparison, such as less_than(a, b), and no other number. Its opposite is "
            "~condition."
        )


def maximum(left: "Shared | ArrayLike", right: "Shared | ArrayLike") -> Shared:
    """Return the larger of each pair. One side may be public."""
    return select(less_than(left, right), right, left)


def clip(numbers: Shared, lower: float, upper: float) -> Shared:
    """Return each number moved into [lower, upper]. The bound of the result is proven by two comparisons."""
    party = as_shared(numbers, "clip").party
    if not rational(lower, "lower") < rational(upper, "upper"):
        raise BadBounds(f"lower must be below upper, got [{lower!r:.30}, {upper!r:.30}].")
    low = party.public(np.full(numbers.shape, lower), bound=max(abs(lower), abs(upper)))
    high = party.public(np.full(numbers.shape, upper), bound=max(abs(lower), abs(upper)))
    outside = is_negative(Shared(party, np.stack([(numbers - low).words, (high - numbers).words]), _sum(numbers, low)))
    clipped = select(outside[1], high, select(outside[0], low, numbers))
    return clipped.within(max(low.bound, high.bound))


def negative_bit(numbers: Shared) -> Bits:
    """Return the XOR-shared sign bits of an array, eight numbers to a byte."""
    party = numbers.party
    opened, masks = _opened(party, numbers.words.reshape(-1))
    borrow = _is_less(party, opened, masks)
    top = masks[_ROWS - 1] ^ borrow
    return np.asarray(top ^ opened[_ROWS - 1] if party.index == 0 else top, dtype=np.uint8)


def positive_bits(numbers: Shared) -> Bits:
    """Return the XOR-shared bits of numbers that are not negative: one row for each bit below the bound's length."""
    party, count = numbers.party, max(numbers.bound.bit_length(), 1)
    opened, masks = _opened(party, numbers.words.reshape(-1))
    less, equal = _digits(party, opened[:count], masks[:count])
    less, _ = _prefixes(party, less, equal)
    # Bit i of a difference is c_i xor r_i xor the borrow out of the bits below i.
    borrow = np.concatenate([np.zeros_like(less[:1]), less[:-1]])
    bits = masks[:count] ^ borrow
    return np.asarray(bits ^ opened[:count] if party.index == 0 else bits, dtype=np.uint8)


def _opened(party: Party, values: Words) -> tuple[Bits, Bits]:
    """Return the bits of masked values, which are public, and the XOR-shared bits of the masks."""
    added, xored = party.supply.masked_bits(values.size)
    return ring.pack_bits(party.open_words(values + added)), ring.pack_bits(xored)


def _digits(party: Party, opened: Bits, masks: Bits) -> tuple[Bits, Bits]:
    """Return the XOR shares of [c_i < r_i] and [c_i = r_i] for each bit; both are linear, since c is public."""
    less = masks & ~opened
    equal = masks ^ ~opened if party.index == 0 else masks
    return less, equal


def _is_less(party: Party, opened: Bits, masks: Bits) -> Bits:
    """Return [c mod 2^63 < r mod 2^63] by a tree over neighbouring bits."""
    less, equal = _digits(party, opened[: _ROWS - 1], masks[: _ROWS - 1])
    # A 64th place, above all others, in which both are equal.
    less = np.concatenate([less, np.zeros_like(less[:1])])
    equal = np.concatenate([equal, np.full_like(equal[:1], 0xFF if party.index == 0 else 0)])
    while len(less) > 1:
        both = party.and_bits(np.concatenate([equal[1::2]] * 2), np.concatenate([less[0::2], equal[0::2]]))
        half = len(less) // 2
        less, equal = less[1::2] ^ both[:half], both[half:]
    return np.asarray(less[0])


def _prefixes(party: Party, less: Bits, equal: Bits) -> tuple[Bits, Bits]:
    """Return for each bit the comparison of all bits up to it (Sklansky 1960)."""
    count, step = len(less), 1
    while step < count:
        upper = np.array([at for at in range(count) if at & step])
        lower = (upper & ~(step - 1)) - 1  # the last place of the block below
        both = party.and_bits(np.concatenate([equal[upper]] * 2), np.concatenate([less[lower], equal[lower]]))
        less, equal = less.copy(), equal.copy()
        less[upper] ^= both[: len(upper)]
        equal[upper] = both[len(upper) :]
        step *= 2
    return less, equal


def _sum(left: Shared, right: Shared) -> int:
    return left.bound + right.bound
