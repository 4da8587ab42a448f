"""Encodings: numbers to integers within declared bounds, and sums of integers back to numbers.

Bounds are public and declared before data is seen. A value outside them is refused, never clipped or wrapped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.privacy.errors import BadBounds, BadNumber, OutOfRange
from cloister.privacy.number import rational

__all__ = ["Encoding", "FixedPoint", "Levels", "exact_array", "exact_fraction", "from_description", "refuse_masked"]

_MOST_BITS = 512
_MOST_EXPONENT = 1_000  # of a Decimal
_NOT_WHOLE = "without fraction_bits only whole numbers are encoded, and a value has a fraction. Declare fraction_bits."


class Encoding(Protocol):
    """A map from numbers to integers between `low` and `high`, the same for every value of a vector."""

    @property
    def lower(self) -> Fraction:
        """The declared lower bound."""

    @property
    def upper(self) -> Fraction:
        """The declared upper bound."""

    @property
    def low(self) -> int:
        """The smallest encoded integer."""

    @property
    def high(self) -> int:
        """The largest encoded integer."""

    def encode(self, values: ArrayLike) -> list[int]:
        """Return one integer for each value; refuse a value outside the declared bounds."""

    def decode(self, totals: Sequence[int], net: int, scale: int = 1) -> NDArray[Any]:
        """Return the numbers of weighted sums of encoded values.

        Args:
            totals: Σ wᵢ·encode(xᵢ), one for each place of the vector.
            net: Σ wᵢ; 1 for a single vector, the number of summands for a plain sum.
            scale: what the weights were multiplied by.
        """

    def describe(self) -> dict[str, object]:
        """Return the encoding for JSON."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Signed fixed point: x becomes the integer next to x·2^fraction_bits. Halves go to the even integer.

    Without fraction bits only whole numbers are encoded, and a fraction is refused.

    Attributes:
        lower: public lower bound of every value.
        upper: public upper bound of every value.
        fraction_bits: bits after the binary point; 0 for whole numbers.

    >>> FixedPoint(-1, 1, 8).encode([0.5, -1])
    [128, -256]
    """

    lower: Fraction
    upper: Fraction
    fraction_bits: int = 0

    def __init__(self, lower: object, upper: object, fraction_bits: int = 0) -> None:
        checked = _bounds(lower, upper)
        _whole("fraction_bits", fraction_bits, 0, _MOST_BITS)
        for name, value in zip(("lower", "upper", "fraction_bits"), (*checked, fraction_bits), strict=True):
            object.__setattr__(self, name, value)

    @property
    def low(self) -> int:
        """The smallest encoded integer."""
        return round(self.lower * (1 << self.fraction_bits))

    @property
    def high(self) -> int:
        """The largest encoded integer."""
        return round(self.upper * (1 << self.fraction_bits))

    def encode(self, values: ArrayLike) -> list[int]:
        """Return one integer for each value; refuse a value outside the declared bounds."""
        array = _numbers(values)
        if array.dtype.kind in "iub":
            whole = array.tolist()
            return _checked(self, whole, [value << self.fraction_bits for value in whole])
        if array.dtype.kind == "f":
            return self._from_floats(array.astype(np.float64))
        exactly = [exact_fraction(value) for value in array.tolist()]
        integers = _checked(self, exactly, [round(value * (1 << self.fraction_bits)) for value in exactly])
        if not self.fraction_bits and any(value.denominator != 1 for value in exactly):
            raise BadNumber(_NOT_WHOLE)
        return integers

    def _from_floats(self, array: NDArray[np.float64]) -> list[int]:
        # A product with a power of two is exact unless it overflows, and infinity is refused.
        with np.errstate(over="ignore"):
            exact = np.ldexp(array, self.fraction_bits)
        scaled = np.rint(exact)
        integers = _checked(self, [array.min().item(), array.max().item()] if array.size else [], _integers(scaled))
        if not self.fraction_bits and (scaled != exact).any():
            raise BadNumber(_NOT_WHOLE)
        return integers

    def decode(self, totals: Sequence[int], net: int, scale: int = 1) -> NDArray[Any]:
        """Return the numbers of sums: integers for whole numbers, floats rounded once otherwise."""
        unit = scale << self.fraction_bits
        return _integer_array(totals) if unit == 1 else _floats(total / unit for total in totals)

    def describe(self) -> dict[str, object]:
        """Return the encoding for JSON."""
        bounds = {"lower": str(self.lower), "upper": str(self.upper)}
        return {"encoding": "fixed-point", **bounds, "fraction_bits": self.fraction_bits}


@dataclass(frozen=True, slots=True)
class Levels:
    """Whole levels between public bounds: x becomes ⌊(2^bits - 1)(x - lower)/(upper - lower)⌋.

    A value is rounded down by less than one step, (upper - lower)/(2^bits - 1); so is a sum by one step a summand.

    >>> Levels(0, 1, 4).encode([0, 0.5, 1])
    [0, 7, 15]
    """

    lower: Fraction
    upper: Fraction
    bits: int

    def __init__(self, lower: object, upper: object, bits: int) -> None:
        checked = _bounds(lower, upper)
        _whole("bits", bits, 1, _MOST_BITS)
        for name, value in zip(("lower", "upper", "bits"), (*checked, bits), strict=True):
            object.__setattr__(self, name, value)

    @property
    def low(self) -> int:
        """The smallest encoded integer."""
        return 0

    @property
    def high(self) -> int:
        """The largest encoded integer."""
        return (1 << self.bits) - 1

    @property
    def step(self) -> Fraction:
        """The distance between two levels."""
        return (self.upper - self.lower) / self.high

    def encode(self, values: ArrayLike) -> list[int]:
        """Return one level for each value; refuse a value outside the declared bounds."""
        # Exact, since a float product may come out above a level that the value is below.
        listed = _numbers(values).tolist()
        exactly = [exact_fraction(value) for value in listed]
        return _checked(self, listed, [max((value - self.lower) // self.step, 0) for value in exactly])

    def decode(self, totals: Sequence[int], net: int, scale: int = 1) -> NDArray[Any]:
        """Return the numbers of sums, each rounded once."""
        return _floats((net * self.lower + total * self.step) / scale for total in totals)

    def describe(self) -> dict[str, object]:
        """Return the encoding for JSON."""
        return {"encoding": "levels", "lower": str(self.lower), "upper": str(self.upper), "bits": self.bits}


def from_description(text: object) -> Encoding:
    """Return the encoding of a description, as written by `describe`."""
    known: Encoding | None = None
    match text:
        case {"encoding": "fixed-point", "lower": str(lower), "upper": str(upper), "fraction_bits": int(bits)}:
            known = FixedPoint(lower, upper, bits)
        case {"encoding": "levels", "lower": str(lower), "upper": str(upper), "bits": int(bits)}:
            known = Levels(lower, upper, bits)
    if known is None or known.describe() != text:
        raise BadNumber(
            "this is no encoding that this version knows. Update Cloister, or ask for the sender's version."
        )
    return known


def _bounds(lower: object, upper: object) -> tuple[Fraction, Fraction]:
    pair = rational(lower, "lower"), rational(upper, "upper")
    if not pair[0] < pair[1]:
        raise BadBounds(f"lower must be below upper, got [{pair[0]}, {pair[1]}].")
    return pair


def _whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadNumber(f"{name} is a whole number from {least} to {most}.")


def _numbers(values: ArrayLike) -> NDArray[Any]:
    array = exact_array(values)
    if array.ndim != 1 or array.dtype.kind not in "iubfO" or array.dtype.itemsize > 8:
        raise BadNumber("what is encoded is one list or array of real numbers. Flatten a matrix by rows first.")
    return array


def exact_array(values: ArrayLike | None) -> NDArray[Any]:
    """Return an array of the same numbers. numpy makes floats of integers that fit no common integer type."""
    refuse_masked(values)
    if isinstance(values, np.ndarray | np.generic):
        return np.asarray(values)
    try:
        kept = np.asarray(values, dtype=object)
        # Floats without long integers among them lose nothing, and are encoded faster.
        long = any(isinstance(value, int | np.integer) and abs(int(value)) > 1 << 53 for value in kept.reshape(-1))
        return kept if long else np.asarray(values)
    except ValueError:
        pass
    raise BadNumber("what is encoded is one list or array of real numbers, with rows of one length.")


def refuse_masked(values: object) -> None:
    """Refuse an array with masked places: numpy would hand out the numbers under the mask."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise BadNumber("an array has masked places. Replace missing values first.")


def exact_fraction(value: object) -> Fraction:
    """Return a real number exactly; refuse what is none."""
    # Text is no number here, and a decimal with a long exponent would fill the memory.
    long = isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > _MOST_EXPONENT
    try:
        if not long and not isinstance(value, str):
            return Fraction(cast(Any, value))
    except (ValueError, TypeError, OverflowError, ZeroDivisionError):
        pass
    raise BadNumber("every value is a finite real number. Replace missing ones first.")


def _integers(values: NDArray[np.float64]) -> list[int]:
    if not np.isfinite(values).all():
        raise BadNumber("every value is a finite real number. Replace missing ones first.")
    if values.size and np.abs(values).max() < 2.0**62:
        return cast(list[int], values.astype(np.int64).tolist())
    return [int(value) for value in values.tolist()]


def _checked(encoding: Encoding, values: Sequence[Any], integers: list[int]) -> list[int]:
    """Return encoded integers, if neither the values nor they are outside: a value half a unit outside rounds in."""
    if integers:
        lower, upper = (_edge(bound, values[0]) for bound in (encoding.lower, encoding.upper))
        inside = lower <= min(values) and max(values) <= upper
        if not (inside and encoding.low <= min(integers) and max(integers) <= encoding.high):
            # Neither the value nor its place: the bounds are public, the data is not.
            raise OutOfRange(
                "a value is outside the bounds declared for it. Declare wider bounds, or clip before encoding."
            )
    return integers


def _edge(bound: Fraction, like: object) -> Fraction:
    """Return the bound as its float, where values are floats: 0.1 is within a bound of one tenth."""
    return Fraction(float(bound)) if isinstance(like, float) and abs(bound) < 1 << 53 else bound


def _floats(numbers: Iterable[Fraction | float]) -> NDArray[np.float64]:
    try:
        return np.array([float(number) for number in numbers], dtype=np.float64)
    except OverflowError:
        pass
    raise OutOfRange("a sum is beyond the range of floats. Declare narrower bounds, or whole numbers.")


def _integer_array(totals: Iterable[int]) -> NDArray[Any]:
    integers = list(totals)
    fits = all(-(1 << 63) <= value < 1 << 63 for value in integers)
    return np.array(integers, dtype=np.int64 if fits else object)
