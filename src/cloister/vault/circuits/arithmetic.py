"""Arithmetic on arrays of literals, the lowest bit first: as few AND gates as is usual, then few steps.

AND gates, for operands of n bits: addition n - 1 (n with the carry), comparison n, selection n, product about
2 n^2, square about n^2, quotient n^2 + 4 n, square root about n^2 / 8 + n. A full adder costs one AND (Kolesnikov,
Sadeghi, Schneider 2009); rows of a product are added three to two, so that it is shallow before the last addition.
"""

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput
from cloister.vault.circuits.builder import FALSE, TRUE, CircuitBuilder, Literals

__all__ = [
    "add",
    "all_of",
    "divide",
    "equal",
    "extend",
    "less",
    "negate_if",
    "product",
    "same_lanes",
    "select",
    "shift_up",
    "square",
    "square_root",
    "total",
]


def extend(bits: Literals, width: int) -> Literals:
    """Repeat the sign, or drop high bits, up to this width."""
    if width <= bits.shape[-1]:
        return bits[..., :width]
    sign = np.broadcast_to(bits[..., -1:], (*bits.shape[:-1], width - bits.shape[-1]))
    return np.concatenate([bits, sign], axis=-1)


def same_lanes(left: Literals, right: Literals) -> tuple[Literals, Literals]:
    """Broadcast all axes but the last."""
    try:
        lanes = np.broadcast_shapes(left.shape[:-1], right.shape[:-1])
    except ValueError:
        raise BadInput("these arrays have shapes that do not fit each other. Reshape or index one of them.") from None
    return (np.broadcast_to(left, (*lanes, left.shape[-1])), np.broadcast_to(right, (*lanes, right.shape[-1])))


def shift_up(bits: Literals, places: int) -> Literals:
    """Put zeros below the lowest bit."""
    return np.concatenate([np.full((*bits.shape[:-1], places), FALSE), bits], axis=-1)


def add(build: CircuitBuilder, left: Literals, right: Literals, width: int, carry: Literals | int = FALSE) -> Literals:
    """Add two signed numbers and a carry modulo 2^width."""
    left, right = same_lanes(extend(left, width), extend(right, width))
    carried = np.broadcast_to(np.asarray(carry, dtype=np.int64), left.shape[:-1])
    found = np.empty(left.shape, dtype=np.int64)
    for place in range(width):
        first = build.xor(left[..., place], carried)
        found[..., place] = build.xor(first, right[..., place])
        if place + 1 < width:
            second = build.xor(right[..., place], carried)
            carried = build.xor(carried, build.and_(first, second))
    return found


def negate_if(build: CircuitBuilder, bits: Literals, condition: Literals) -> Literals:
    """Return -x where the condition holds, else x, one bit wider."""
    flipped = build.xor(bits, condition[..., None])
    return add(build, extend(flipped, bits.shape[-1] + 1), np.full((1,), FALSE), bits.shape[-1] + 1, condition)


def less(build: CircuitBuilder, left: Literals, right: Literals) -> Literals:
    """Return whether left < right: the sign of the difference."""
    width = max(left.shape[-1], right.shape[-1]) + 1
    return add(build, left, right ^ 1, width, TRUE)[..., -1]


def all_of(build: CircuitBuilder, bits: Literals) -> Literals:
    """Return the AND along the last axis, as a tree."""
    while bits.shape[-1] > 1:
        half = bits.shape[-1] // 2
        joined = build.and_(bits[..., :half], bits[..., half : 2 * half])
        bits = np.concatenate([joined, bits[..., 2 * half :]], axis=-1)
    return bits[..., 0]


def equal(build: CircuitBuilder, left: Literals, right: Literals) -> Literals:
    """Return whether two numbers are equal."""
    width = max(left.shape[-1], right.shape[-1])
    return all_of(build, build.xor(extend(left, width), extend(right, width)) ^ 1)


def select(build: CircuitBuilder, condition: Literals, yes: Literals, no: Literals) -> Literals:
    """Return `yes` where the condition holds, else `no`."""
    width = max(yes.shape[-1], no.shape[-1])
    yes, no = extend(yes, width), extend(no, width)
    return build.xor(no, build.and_(condition[..., None], build.xor(yes, no)))


def total(build: CircuitBuilder, bits: Literals, width: int) -> Literals:
    """Add the numbers of the axis before the last, modulo 2^width."""
    count, size = bits.shape[-2:]
    # s 2^k with weight -1 is (1 - s) 2^k - 2^k: rows need no sign extension, and the constants are added once.
    rows = np.full((*bits.shape[:-1], width), FALSE)
    rows[..., : min(size, width)] = bits[..., :width]
    if size <= width:
        rows[..., size - 1] ^= 1
    return _add_rows(build, rows, -count << (size - 1))


def product(build: CircuitBuilder, left: Literals, right: Literals, width: int) -> Literals:
    """Add the products of pairs of signed numbers along the axis before the last, modulo 2^width.

    Each product is a matrix of ANDs; those of one sign bit have weight -1 and enter complemented (Baugh, Wooley 1973).
    All rows of all products are added together: one carry-propagating addition for a whole dot product.
    """
    left, right = same_lanes(left, right)
    left, left_signed = _without_zero_sign(left)
    right, right_signed = _without_zero_sign(right)
    if left.shape[-1] > right.shape[-1]:
        left, right, left_signed, right_signed = right, left, right_signed, left_signed
    many, wide = left.shape[-1], right.shape[-1]
    terms = build.and_(left[..., :, None], right[..., None, :])
    correction = 0
    if left_signed:
        terms[..., -1, :] ^= 1
        correction -= ((1 << wide) - 1) << (many - 1)
    if right_signed:
        terms[..., :, -1] ^= 1
        correction -= ((1 << many) - 1) << (wide - 1)
    if left_signed and right_signed:
        # The product of both signs has weight +1: it was complemented twice, and both corrections counted it.
        correction += 2 << (many + wide - 2)
    rows = np.full((*terms.shape[:-1], width), FALSE)
    for place in range(min(many, width)):
        end = min(place + wide, width)
        rows[..., place, place:end] = terms[..., place, : end - place]
    count = rows.shape[-3]
    return _add_rows(build, rows.reshape(*rows.shape[:-3], count * many, width), count * correction)


def square(build: CircuitBuilder, bits: Literals, width: int) -> Literals:
    """Add the squares of signed numbers along the axis before the last, modulo 2^width: half the ANDs of a product."""
    bits, signed = _without_zero_sign(bits)
    many = bits.shape[-1]
    rows = np.full((*bits.shape[:-1], many, width), FALSE)
    for place in range(many):
        if 2 * place < width:
            rows[..., place, 2 * place] = bits[..., place]
        above = build.and_(bits[..., place, None], bits[..., place + 1 :])
        if signed and place + 1 < many:
            above[..., -1] ^= 1
        start = 2 * place + 2
        end = min(start + many - place - 1, width)
        if start < end:
            rows[..., place, start:end] = above[..., : end - start]
    correction = -((1 << (many - 1)) - 1) << many if signed else 0
    count = bits.shape[-2]
    return _add_rows(build, rows.reshape(*rows.shape[:-3], count * many, width), count * correction)


def divide(build: CircuitBuilder, left: Literals, right: Literals) -> Literals:
    """Return the quotient of two unsigned numbers, rounded down; all ones if the divisor is 0.

    Non-restoring division: the remainder may be negative, and then the divisor is added next time, so that a bit of the
    quotient costs one addition and no selection.
    """
    left, right = same_lanes(left, right)
    wide, size = left.shape[-1], right.shape[-1]
    by_zero = all_of(build, right ^ 1)
    divisor = np.concatenate([right, np.full((*right.shape[:-1], 1), FALSE)], axis=-1)
    rest = np.full((*left.shape[:-1], size + 1), FALSE)
    found = np.empty(left.shape, dtype=np.int64)
    subtract = np.full(left.shape[:-1], TRUE)
    for place in reversed(range(wide)):
        rest = np.concatenate([left[..., place, None], rest[..., :-1]], axis=-1)
        rest = add(build, rest, build.xor(divisor, subtract[..., None]), size + 1, subtract)
        subtract = rest[..., -1] ^ 1
        found[..., place] = subtract
    return build.or_(found, by_zero[..., None])


def square_root(build: CircuitBuilder, bits: Literals) -> Literals:
    """Return the square root of unsigned numbers, rounded down, by non-restoring digits."""
    if bits.shape[-1] % 2:
        bits = np.concatenate([bits, np.full((*bits.shape[:-1], 1), FALSE)], axis=-1)
    lanes = bits.shape[:-1]
    root = np.full((*lanes, 0), FALSE)
    rest = np.full((*lanes, 1), FALSE)
    positive = np.full(lanes, TRUE)
    for place in reversed(range(bits.shape[-1] // 2)):
        # rest = 4 rest + two digits, less 4 root + 1 if it was not negative, else plus 4 root + 3.
        width = root.shape[-1] + 3
        rest = extend(np.concatenate([bits[..., 2 * place : 2 * place + 2], rest], axis=-1), width)
        digits = [(positive ^ 1)[..., None], np.full((*lanes, 1), TRUE), build.xor(root, positive[..., None])]
        operand = np.concatenate([*digits, positive[..., None]], axis=-1)
        rest = add(build, rest, operand, width, positive)
        positive = rest[..., -1] ^ 1
        root = np.concatenate([positive[..., None], root], axis=-1)
    return root


def _without_zero_sign(bits: Literals) -> tuple[Literals, bool]:
    """Drop a sign that is the constant 0: the number is unsigned then."""
    if bits.shape[-1] > 1 and not bits[..., -1].any():
        return bits[..., :-1], False
    return bits, True


def _add_rows(build: CircuitBuilder, rows: Literals, constant: int) -> Literals:
    """Add rows of bits and a public constant modulo 2^width: three rows become two until two are left."""
    width = rows.shape[-1]
    fixed = np.array([(constant >> place) & 1 for place in range(width)], dtype=np.int64)
    if fixed.any():
        rows = np.concatenate([rows, np.broadcast_to(fixed, (*rows.shape[:-2], 1, width))], axis=-2)
    rows = _compacted(rows)
    while rows.shape[-2] > 2:
        groups = rows.shape[-2] // 3
        triples = rows[..., : 3 * groups, :].reshape(*rows.shape[:-2], groups, 3, width)
        first, second, third = (triples[..., place, :] for place in range(3))
        # A column with two bits keeps them: a half adder costs an AND and removes no bit.
        full = _used(third)
        left = np.where(full, FALSE, second)
        second = np.where(full, second, FALSE)
        differs = build.xor(first, second)
        sums = build.xor(differs, third)
        carries = build.xor(first, build.and_(differs, build.xor(first, third)))
        carries = shift_up(carries, 1)[..., :width]
        rows = _compacted(np.concatenate([sums, carries, left, rows[..., 3 * groups :, :]], axis=-2))
    if rows.shape[-2] == 1:
        return rows[..., 0, :]
    return add(build, rows[..., 0, :], rows[..., 1, :], width)


def _used(rows: Literals) -> NDArray[np.bool_]:
    """Return which places of the last two axes are not the constant 0 in all lanes."""
    return np.asarray((rows != FALSE).reshape(-1, *rows.shape[-2:]).any(axis=0))


def _compacted(rows: Literals) -> Literals:
    """Move the bits of each column to the first rows, in their order, and drop empty rows."""
    used = _used(rows)
    order = np.argsort(~used, axis=0, kind="stable")[: max(int(used.sum(axis=0).max(initial=0)), 1)]
    return np.take_along_axis(rows, np.broadcast_to(order, (*rows.shape[:-2], *order.shape)), axis=-2)
