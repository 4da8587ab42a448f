"""Reciprocals, quotients, square roots and their reciprocals of shared numbers.

The operand is scaled by a power of two that is found under sharing, so that it lies in [1/2, 1); a line gives a first
guess and Newton's iteration squares its relative error each time. The bounds in the code follow from that analysis:

    1/y     w = 2.9142 - 2y has |1 - yw| ≤ 0.0858; after three steps w(2 - yw) it is below 2^-28
    1/√y    w = 1.8016 - 0.8284y has a relative error of at most 0.0268; after three steps w(3 - yw²)/2 below 2^-36

plus a few units of the last of 28 bits for truncations, so below 2^-25 in all. A reciprocal is then cut to fixed point,
and is off by a unit of the last place (2^-f) besides: for large operands that is most of it. A quotient and a square
root are not made of a reciprocal: the normalised factors are multiplied first and cut last, in pieces of w that keep
all 28 bits. All are off by at most 2^-25 of their value and six units of the last place, over all declared bounds.

An operand that is too small is scaled to y = 0. Then w grows to 23.4 and 6.1, whose products stay below 2^62 as well
or, in a quotient, may wrap; the result is multiplied by 0 modulo 2^64, which is 0 whatever it was.

`at_least` is the smallest operand for which an answer is wanted. It bounds the result. Of a smaller operand, zero and
(for roots) a negative one included, the result is 0: neither an error, which would reveal it, nor a wrapped number.
"""

from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import ArrayLike

from cloister.privacy.errors import BadBounds, OutOfRange
from cloister.privacy.number import rational
from cloister.vault.sharing import ring
from cloister.vault.sharing.compare import Condition, is_negative, positive_bits
from cloister.vault.sharing.fixed import LIMIT, Shared, as_divisor, as_shared
from cloister.vault.sharing.ring import Words

__all__ = ["divide", "inverse_square_root", "reciprocal", "square_root"]

_WORK = 28  # bits after the binary point of normalised numbers: products below 2^3 stay below 2^59
_STEPS = 3
_SPARE = 4  # further bits of a factor whose product is truncated: its own errors stay below a unit of the last place


def reciprocal(numbers: Shared, at_least: object) -> Shared:
    """Return 1/x; 0 where |x| < `at_least`, up to a factor of two (the limit is a power of two not above it)."""
    party = as_shared(numbers, "reciprocal").party
    negative = is_negative(numbers)
    absolute = _flip(numbers, negative)
    factors, length, least = _scale(absolute, at_least)
    guess = _newton_reciprocal(_normalised(absolute, factors, length))
    # x = y·2^length / factor in units of 2^-f, so 1/x = factor·w·2^(2f - length - work) in the same units.
    wide = party.multiply_words(guess.words, factors)
    bound = Shared.check_bound(guess.bound << (length - 1 - least))
    result = _shift(Shared(party, wide, bound), 2 * party.fraction_bits - length - _WORK)
    return _flip(result, negative)


def divide(left: "Shared | ArrayLike", right: Shared, at_least: object) -> Shared:
    """Return left/right, off by at most 2^-25 of itself and 6·2^-f; 0 where |right| is below `at_least`.

    With i the leading bit of the operand, left/right is left·w·2^(f - 1 - i). The places i are taken in groups, as wide
    as 62 bits allow; in all but one group the factor is zero.
    """
    party = as_divisor(right).party
    left = left if isinstance(left, Shared) else right * 0 + left
    negative = is_negative(right)
    absolute = _flip(right, negative)
    hot, length, least = _leading_bit(absolute, at_least)
    guess = _newton_reciprocal(_normalised(absolute, _powers(hot, 0, length).reshape(right.shape), length))
    parts, lowest = [], least
    while lowest < length:
        moved = party.fraction_bits - lowest
        product = _in_pieces(left * (1 << max(moved, 0)), guess).truncate(max(-moved, 0))
        highest = min(length, lowest + LIMIT.bit_length() - product.bound.bit_length())
        factors = _powers(hot, lowest, highest).reshape(right.shape)
        wide = Shared(party, party.multiply_words(product.words, factors), product.bound << (highest - lowest - 1))
        parts.append(wide.truncate(highest - lowest))
        lowest = highest
    return _flip(_only(parts), negative)


@ring.wrapping
def inverse_square_root(numbers: Shared, at_least: object) -> Shared:
    """Return 1/√x; 0 where x < `at_least`, up to a factor of two."""
    party = as_shared(numbers, "a root").party
    kept, hot, length, least = _not_negative(numbers, at_least)
    guess = _newton_root(_normalised(kept, _powers(hot, 0, length).reshape(kept.shape), length))
    # √(2^(f - 1 - i)) for a leading bit i, with more bits than the result has: at most 2^43, for 26 fraction bits.
    places = party.fraction_bits + _SPARE
    roots = [
        _root_of_power(party.fraction_bits - 1 - place, places) if place >= least else 0 for place in range(length)
    ]
    scale = Shared(party, _weighted(hot, np.array(roots, dtype=np.uint64)).reshape(kept.shape), max(roots))
    return _in_pieces(scale, guess).truncate(_SPARE)


def square_root(numbers: Shared, at_least: object) -> Shared:
    """Return √x, off by at most 2^-25 of itself and 6·2^-f; 0 where x < `at_least`, up to a factor of two."""
    party = as_shared(numbers, "a root").party
    kept, hot, length, least = _not_negative(numbers, at_least)
    y = _normalised(kept, _powers(hot, 0, length).reshape(kept.shape), length)
    root = _product(y, _newton_root(y), 2)  # √y
    # √x = √y·√(2^(f + 1 + i)) for a leading bit i, in units of 2^-f.
    longest = (party.fraction_bits + length + 1) // 2
    places = max(0, min(8, 45 - longest))
    roots = [
        _root_of_power(party.fraction_bits + 1 + place, places) if place >= least else 0 for place in range(length)
    ]
    scale = Shared(party, _weighted(hot, np.array(roots, dtype=np.uint64)).reshape(kept.shape), max(roots))
    largest = isqrt(numbers.bound << party.fraction_bits) + 2
    return _in_pieces(scale, root).truncate(places).within(2 * largest)  # √x ≤ √bound; twice, for the errors


@ring.wrapping
def _not_negative(numbers: Shared, at_least: object) -> tuple[Shared, Words, int, int]:
    """Return numbers with zero for negative ones, which would normalise to anything, and their leading bits."""
    party, absent = numbers.party, is_negative(numbers)
    kept = Shared(party, numbers.words - party.multiply_words(numbers.words, absent.bits), numbers.bound)
    return kept, *_leading_bit(kept, at_least)


def _in_pieces(numbers: Shared, factor: Shared) -> Shared:
    """Return numbers·factor for a factor of 28 bits after the point, off by less than one unit for each piece of it."""
    fitting = (size for size in (28, 14, 7, 4) if numbers.bound * ((factor.bound >> (_WORK - size)) + 2) < LIMIT)
    size = next(fitting, 4)
    Shared.check_bound(numbers.bound * ((factor.bound >> (_WORK - size)) + 2))
    rest, parts = factor, []
    for place in range(_WORK - size, -1, -size):
        high = rest.truncate(place)
        wide = numbers.party.multiply_words(numbers.words, high.words)
        parts.append(Shared(numbers.party, wide, numbers.bound * high.bound).truncate(_WORK - place))
        # A truncation is off by less than one, so what is left is at most 2^place.
        rest = (rest - Shared(rest.party, (high * (1 << place)).words, 0)).within(1 << place)
    return _sum(parts).within((numbers.bound * factor.bound >> _WORK) + len(parts) + 1)


@ring.wrapping
def _sum(parts: list[Shared]) -> Shared:
    words = sum((part.words for part in parts[1:]), parts[0].words)
    return Shared(parts[0].party, words, min(sum(part.bound for part in parts), LIMIT - 1))


def _only(parts: list[Shared]) -> Shared:
    """Return the sum of arrays of which, place by place, all but one are zero."""
    return _sum(parts).within(max(part.bound for part in parts))


def _powers(hot: Words, lowest: int, highest: int) -> Words:
    """Return shares of 2^(highest - 1 - i) for a leading bit i from `lowest` to `highest`, or of 0."""
    powers = np.array([1 << (highest - 1 - place) for place in range(lowest, highest)], dtype=np.uint64)
    return _weighted(hot[lowest:highest], powers)


def _leading_bit(numbers: Shared, at_least: object) -> tuple[Words, int, int]:
    """Return shares of the one-hot leading bit (a column for each bit), their number, and the lowest that counts."""
    party, length = numbers.party, max(numbers.bound.bit_length(), 1)
    least = _least(party.fraction_bits, at_least, length)
    bits = positive_bits(numbers)
    # OR from the top: after it, the leading bit is where the row above is still 0.
    above, step = bits, 1
    while step < length:
        left, right = above[:-step], above[step:]
        joined = left ^ right ^ party.and_bits(left, right)
        above = np.concatenate([joined, above[-step:]])
        step *= 2
    hot = above ^ np.concatenate([above[1:], np.zeros_like(above[:1])])
    hot[:least] = 0
    return party.to_numbers(hot, numbers.words.size), length, least


def _scale(numbers: Shared, at_least: object) -> tuple[Words, int, int]:
    """Return shares of 2^(length - 1 - i) for the leading bit i of each number, or of 0."""
    hot, length, least = _leading_bit(numbers, at_least)
    return _powers(hot, 0, length).reshape(numbers.shape), length, least


def _weighted(hot: Words, weights: Words) -> Words:
    return np.asarray((hot * weights[:, None]).sum(axis=0, dtype=np.uint64))


def _normalised(numbers: Shared, factors: Words, length: int) -> Shared:
    """Return numbers·factors as y in [1/2, 1) with 28 bits: by choice of the factor it is below 2^length."""
    wide = Shared(numbers.party, numbers.party.multiply_words(numbers.words, factors), min(1 << length, LIMIT - 1))
    return _shift(wide, _WORK - length)


def _newton_reciprocal(y: Shared) -> Shared:
    w = _constant(y, "2.9142") - y * 2
    for _ in range(_STEPS):
        # y·w is in (0, 1.1), so 2 - y·w is in (0.9, 2) and w in (0.9, 2.92).
        rest = _constant(y, 2) - _product(y, w, 2)
        w = _product(w, rest.within(2 << _WORK), 3)
    return w.within((2 << _WORK) + 16)  # 1/y ≤ 2, approached from below, and a few units of truncation


def _newton_root(y: Shared) -> Shared:
    w = _constant(y, "1.8016") - _product(y, _constant(y, "0.8284"), 1)
    for _ in range(_STEPS):
        # w² y is in (0.9, 1.1) for y in [1/2, 1), and w below 1.81 always.
        square = _product(w, w, 4)
        rest = _constant(y, 3) - _product(y, square, 4)
        w = _product(w, rest.within(3 << _WORK), 6).truncate(1).within(3 << _WORK)
    return w.within(3 << (_WORK - 1))


def _product(left: Shared, right: Shared, most: int) -> Shared:
    """Return a product of numbers with 28 bits, below `most` by analysis."""
    wide = Shared(
        left.party, left.party.multiply_words(left.words, right.words), min(left.bound * right.bound, LIMIT - 1)
    )
    return wide.truncate(_WORK).within(most << _WORK)


def _constant(like: Shared, value: object) -> Shared:
    number = round(rational(value) * (1 << _WORK))
    words = np.full(like.shape, number if like.party.index == 0 else 0, dtype=np.uint64)
    return Shared(like.party, words, number)


@ring.wrapping
def _flip(numbers: Shared, negative: Condition) -> Shared:
    """Return -x where the flag is 1."""
    flipped = numbers.party.multiply_words(numbers.words, negative.bits)
    return Shared(numbers.party, numbers.words - (flipped << np.uint64(1)), numbers.bound)


def _shift(numbers: Shared, bits: int) -> Shared:
    """Multiply by 2^bits, exactly or by truncation."""
    return numbers * (1 << bits) if bits >= 0 else numbers.truncate(-bits)


def _least(fraction_bits: int, at_least: object, length: int) -> int:
    """Return the position of the lowest leading bit for which a result is computed."""
    smallest = rational(at_least, "at_least") * (1 << fraction_bits)
    if smallest < 1:
        raise BadBounds(f"at_least is at least one unit of the last place, 2^-{fraction_bits}, and positive.")
    least = int(smallest).bit_length() - 1
    if least >= length:
        raise OutOfRange("at_least is above the declared bound of the operand, so every result would be 0.")
    return least


def _root_of_power(exponent: int, places: int) -> int:
    """Return 2^(exponent/2) with so many bits after the point, rounded down."""
    return isqrt(int(Fraction(2) ** (exponent + 2 * places)))
