"""Numbers and conditions inside a circuit: arrays of wires with the operators of Python.

Sums and products are exact: the result is as wide as it needs to be, so nothing overflows unless `narrow` says so.
`rescale` and `narrow` cost no gates. Work in a fixed format is therefore `(a * b).rescale(f).narrow(w)`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput
from cloister.vault.circuits import arithmetic
from cloister.vault.circuits.builder import FALSE, CircuitBuilder, Literals, checked_fraction, checked_width

__all__ = ["Number", "Truth"]

_Operand = TypeVar("_Operand", "Number", "Truth")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Truth:
    """Conditions: an array of single wires."""

    build: CircuitBuilder
    bits: Literals

    def __and__(self, other: "Truth") -> "Truth":
        return Truth(self.build, self.build.and_(self.bits, self._truth(other).bits))

    def __or__(self, other: "Truth") -> "Truth":
        return Truth(self.build, self.build.or_(self.bits, self._truth(other).bits))

    def __xor__(self, other: "Truth") -> "Truth":
        return Truth(self.build, self.build.xor(self.bits, self._truth(other).bits))

    def __invert__(self) -> "Truth":
        return Truth(self.build, self.bits ^ 1)

    def select(self, yes: "Number", no: "Number") -> "Number":
        """Return `yes` where the condition holds, else `no`."""
        if not isinstance(yes, Number):
            raise BadInput(f"select chooses between Numbers, got a {type(yes).__name__}. Use build.constant().")
        _of(self.build, yes)
        yes, no = yes.aligned(no)
        return Number(self.build, arithmetic.select(self.build, self.bits, yes.bits, no.bits), yes.fraction)

    def number(self) -> "Number":
        """Return 1 where the condition holds, else 0."""
        return Number(self.build, np.stack([self.bits, np.full_like(self.bits, FALSE)], axis=-1), 0)

    def wires(self) -> tuple[Literals, int, bool]:
        """Return the wires as an output needs them, the bits after the point, and whether there is a sign."""
        return self.bits[..., None], 0, False

    def __repr__(self) -> str:
        return f"<Truth, shape {self.bits.shape}>"

    def __eq__(self, other: object) -> bool:
        raise BadInput("conditions are compared with ~(a ^ b), which is a wire; == would have to be known now.")

    def __bool__(self) -> bool:
        raise BadInput("a condition inside a circuit has no value yet. Use condition.select(yes, no) instead of if.")

    def _truth(self, other: object) -> "Truth":
        if not isinstance(other, Truth):
            raise BadInput(f"the other operand is a condition, got a {type(other).__name__}. Compare numbers first.")
        return _of(self.build, other)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Number:
    """Signed numbers in two's complement: an array of wires whose last axis holds the bits, the lowest first."""

    build: CircuitBuilder
    bits: Literals
    fraction: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the array of numbers."""
        return self.bits.shape[:-1]

    @property
    def width(self) -> int:
        """Return the bits of a number, with its sign."""
        return int(self.bits.shape[-1])

    def __getitem__(self, index: Any) -> "Number":
        lanes = self._lanes(lambda places: places[index])
        return self._with(self.bits.reshape(-1, self.width)[lanes])

    def reshape(self, *shape: int) -> "Number":
        """Return the numbers in another shape."""
        return self._with(self.bits.reshape(*self._lanes(lambda places: places.reshape(*shape)).shape, self.width))

    def __add__(self, other: "Number | int") -> "Number":
        left, right = self.aligned(other)
        width = max(left.width, right.width) + 1
        return left._with(arithmetic.add(self.build, left.bits, right.bits, width))

    __radd__ = __add__

    def __sub__(self, other: "Number | int") -> "Number":
        left, right = self.aligned(other)
        width = max(left.width, right.width) + 1
        return left._with(arithmetic.add(self.build, left.bits, right.bits ^ 1, width, carry=1))

    def __rsub__(self, other: int) -> "Number":
        return self._number(other) - self

    def __neg__(self) -> "Number":
        return self._with(arithmetic.negate_if(self.build, self.bits, np.ones(self.shape, dtype=np.int64)))

    def __abs__(self) -> "Number":
        return self._with(arithmetic.negate_if(self.build, self.bits, self.bits[..., -1]))._unsigned()

    def __mul__(self, other: "Number | int") -> "Number":
        other = self._number(other)
        return self._terms().dot(None if other is self else other._terms())

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> NoReturn:
        raise BadInput(
            "numbers in a circuit are divided by x.divide(other, fraction=16), with 16 bits after the point."
        )

    __rtruediv__ = __truediv__

    def __floordiv__(self, other: object) -> NoReturn:
        raise BadInput("numbers in a circuit are divided by x.divide(other, fraction=0), which rounds towards zero.")

    __rfloordiv__ = __floordiv__

    def __repr__(self) -> str:
        return f"<Number, shape {self.shape}, {self.width} bits, {self.fraction} of them after the point>"

    def dot(self, other: "Number | None" = None) -> "Number":
        """Return sums of products along the last axis; of squares if no other numbers are given.

        Args:
            other: numbers of the same length on the last axis; the axes before are broadcast.
        """
        other = self if other is None else self._number(other)
        if not self.shape or not other.shape or self.shape[-1] != other.shape[-1]:
            raise BadInput("a dot product takes two arrays of one length on the last axis. Check both shapes.")
        width = self.width + other.width + (self.shape[-1] - 1).bit_length()
        if other is self:
            bits = arithmetic.square(self.build, self.bits, width)
        else:
            bits = arithmetic.product(self.build, self.bits, other.bits, width)
        return Number(self.build, bits, self.fraction + other.fraction)

    def matmul(self, other: "Number") -> "Number":
        """Return a matrix times a vector."""
        other = self._number(other)
        if len(self.shape) != 2 or len(other.shape) != 1:
            raise BadInput("matmul takes a matrix and a vector. Reshape, or use dot for other sums of products.")
        return self.dot(other)

    def sum(self) -> "Number":
        """Return sums along the last axis."""
        if not self.shape:
            raise BadInput("a sum takes an array of numbers, got a single one.")
        width = self.width + (self.shape[-1] - 1).bit_length()
        return self._with(arithmetic.total(self.build, self.bits, width))

    def divide(self, other: "Number | int", *, fraction: int) -> "Number":
        """Return quotients with this many bits after the point, rounded towards zero.

        A divisor of 0 gives the largest magnitude that the format has, with the sign of the dividend.
        """
        other = self._number(other)
        checked_fraction(fraction)
        places = fraction + other.fraction - self.fraction
        dividend, divisor = abs(self).bits[..., :-1], abs(other).bits[..., :-1]
        if places >= 0:
            dividend = arithmetic.shift_up(dividend, places)
        else:
            divisor = arithmetic.shift_up(divisor, -places)
        quotient = Number(self.build, arithmetic.divide(self.build, dividend, divisor), fraction)._signed()
        negative = self.build.xor(self.bits[..., -1], other.bits[..., -1])
        return quotient._with(arithmetic.negate_if(self.build, quotient.bits, negative)[..., :-1])

    def sqrt(self, *, fraction: int) -> "Number":
        """Return square roots with this many bits after the point, rounded down; 0 for negative numbers."""
        checked_fraction(fraction)
        positive = self.build.and_(self.bits[..., :-1], self.bits[..., -1:] ^ 1)
        places = 2 * fraction - self.fraction
        scaled = arithmetic.shift_up(positive, places) if places >= 0 else positive[..., -places:]
        return Number(self.build, arithmetic.square_root(self.build, scaled), fraction)._signed()

    def rescale(self, fraction: int) -> "Number":
        """Return the numbers with this many bits after the point, rounded down. It costs no gates."""
        places = checked_fraction(fraction) - self.fraction
        if -places >= self.width:
            raise BadInput(f"numbers of {self.width} bits cannot lose {-places} of them. Keep a bit at least.")
        bits = arithmetic.shift_up(self.bits, places) if places >= 0 else self.bits[..., -places:]
        return Number(self.build, bits, fraction)

    def narrow(self, width: int) -> "Number":
        """Return the numbers in this many bits, by dropping or repeating high bits. It costs no gates.

        The caller knows that the numbers fit. Others wrap around, which no party notices.
        """
        return self._with(arithmetic.extend(self.bits, checked_width(width)))

    def __lt__(self, other: "Number | int") -> Truth:
        left, right = self.aligned(other)
        return Truth(self.build, arithmetic.less(self.build, left.bits, right.bits))

    def __gt__(self, other: "Number | int") -> Truth:
        return self._number(other) < self

    def __le__(self, other: "Number | int") -> Truth:
        return ~(self > other)

    def __ge__(self, other: "Number | int") -> Truth:
        return ~(self < other)

    def equals(self, other: "Number | int") -> Truth:
        """Return whether the numbers are equal."""
        left, right = self.aligned(other)
        return Truth(self.build, arithmetic.equal(self.build, left.bits, right.bits))

    def minimum(self, other: "Number | int") -> "Number":
        """Return the smaller of two numbers."""
        other = self._number(other)
        return (self < other).select(self, other)

    def maximum(self, other: "Number | int") -> "Number":
        """Return the larger of two numbers."""
        other = self._number(other)
        return (self < other).select(other, self)

    def min(self) -> "Number":
        """Return the smallest number along the last axis, by a tree."""
        return self._tree(Number.minimum)

    def max(self) -> "Number":
        """Return the largest number along the last axis, by a tree."""
        return self._tree(Number.maximum)

    def wires(self) -> tuple[Literals, int, bool]:
        """Return the wires as an output needs them, the bits after the point, and whether there is a sign."""
        return self.bits, self.fraction, True

    def aligned(self, other: "Number | int") -> "tuple[Number, Number]":
        """Return both with the same number of bits after the point."""
        other = self._number(other)
        fraction = max(self.fraction, other.fraction)
        return self.rescale(fraction), other.rescale(fraction)

    def __eq__(self, other: object) -> bool:
        raise BadInput("numbers are compared with a.equals(b), which is a wire; == would have to be known now.")

    def __bool__(self) -> bool:
        raise BadInput("a number inside a circuit has no value yet. Compare it, and use select instead of if.")

    def _lanes(self, choose: "Callable[[NDArray[np.intp]], NDArray[np.intp]]") -> NDArray[np.intp]:
        """Return the places of some of the numbers, at least one."""
        try:
            lanes = np.asarray(choose(np.arange(prod(self.shape), dtype=np.intp).reshape(self.shape)))
        except (ValueError, TypeError):  # an IndexError ends Python's loops, and says enough
            lanes = np.empty(0, dtype=np.intp)
        if not lanes.size:
            raise BadInput(f"an array of the shape {self.shape} has no such part or form. Give one that holds numbers.")
        return lanes

    def _tree(self, join: "Callable[[Number, Number], Number]") -> "Number":
        if not self.shape:
            raise BadInput("a minimum or maximum takes an array of numbers, got a single one.")
        left = self
        while (count := left.shape[-1]) > 1:
            half = count // 2
            joined = join(left[..., :half], left[..., half : 2 * half])
            rest = left.bits[..., 2 * half :, :]
            left = self._with(np.concatenate([joined.bits, rest], axis=-2))
        return left[..., 0]

    def _number(self, other: "Number | int") -> "Number":
        """Return a public whole number as constant wires."""
        if isinstance(other, Number):
            return _of(self.build, other)
        if isinstance(other, bool) or not isinstance(other, int):
            raise BadInput(
                f"the other operand is a Number or an int, got a {type(other).__name__}. "
                "Use build.constant() for other numbers."
            )
        return self.build.constant(other, width=other.bit_length() + 1)

    def _terms(self) -> "Number":
        return self._with(self.bits[..., None, :])

    def _with(self, bits: Literals) -> "Number":
        return Number(self.build, bits, self.fraction)

    def _signed(self) -> "Number":
        """Return unsigned bits as signed numbers that are not negative."""
        return self._with(np.concatenate([self.bits, np.full((*self.shape, 1), FALSE)], axis=-1))

    def _unsigned(self) -> "Number":
        """Declare that the numbers are not negative: their sign becomes the constant 0."""
        bits = self.bits.copy()
        bits[..., -1] = FALSE
        return self._with(bits)


def _of(build: CircuitBuilder, operand: _Operand) -> _Operand:
    """Return an operand of this builder. The wires of another have the same numbers and other meanings."""
    if operand.build is not build:
        raise BadInput("these operands are of two CircuitBuilders. Make all inputs of a circuit with one.")
    return operand
