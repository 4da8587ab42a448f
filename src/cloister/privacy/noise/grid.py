"""Fixed-point grids: every row's value is rounded to a public integer grid before summing.

A sum of floats depends on the order of its terms, and its last bits leak; rounding afterwards does not help
(Casacuberta et al. 2022). So each row is clipped to public bounds and rounded to a multiple of 2^-exponent first.
Integer sums do not depend on the order, and the sensitivity of the sum is exact: the largest integer of one row.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.privacy.errors import BadBounds, BadNumber, BadScale
from cloister.privacy.loss import Relation
from cloister.privacy.noise.draws import Integers
from cloister.privacy.number import Number, rational

__all__ = ["Grid"]

# Steps per noise scale, or per largest value if that is smaller. Rounding must be negligible even if every one of 10^8
# rows is rounded in the same direction: at most a twentieth of one row.
_STEPS_BITS = 30
# Values stay below this, so that doubles hold them exactly and half sums of 2^31 rows fit into int64.
_LARGEST = 2**52


@dataclass(frozen=True, slots=True)
class Grid:
    """Multiples of 2^-exponent.

    >>> grid = Grid(2)
    >>> encoded = grid.encode([0.3, 7.0, -1.0], 0, 5)
    >>> encoded.tolist(), grid.decode(grid.total(encoded)), grid.sensitivity(0, 5)
    ([1, 20, 0], 5.25, 20)
    """

    exponent: int

    @classmethod
    def for_scale(cls, scale: Number, lower: Number, upper: Number) -> "Grid":
        """Return the grid for noise of this scale on values within bounds: a billion steps to the smaller of the two.

        Args:
            scale: scale of the noise, in the units of the values.
            lower, upper: public bounds of a value.
        """
        wanted = rational(scale, "scale")
        if wanted <= 0:
            raise BadScale("a noise scale must be positive.")
        largest = max(abs(end) for end in read_bounds(lower, upper))
        exponent = _STEPS_BITS - _log2_floor(min(wanted, largest))
        return cls(min(exponent, _LARGEST.bit_length() - 2 - _log2_floor(largest)))

    @property
    def step(self) -> Fraction:
        """The distance between neighbouring points."""
        return Fraction(2) ** -self.exponent

    def encode(self, values: ArrayLike, lower: Number, upper: Number) -> Integers:
        """Clip to the bounds, then round half up to the grid. NaN and None become the lower bound: an error would leak.

        Rounding is monotone, so no encoded row is beyond the encoded bounds, and `sensitivity` is exact.
        """
        low, high = self._ends(lower, upper)
        rows = _plain(np.asarray(values))
        if rows.dtype.kind not in "biuf":
            raise BadNumber("a grid takes numbers: bool, integer or float columns.")
        rows = np.where(np.isnan(rows), -np.inf, rows.astype(np.float64))
        # ldexp is exact until it overflows to an infinity of the same sign, which is then clipped.
        with np.errstate(over="ignore"):
            scaled = np.floor(np.ldexp(rows, self.exponent) + 0.5)
        return np.asarray(np.clip(scaled, low, high), dtype=np.int64)

    def total(self, encoded: Integers) -> Any:
        """Return the exact sum over rows, as Python integers. Halves are summed apart, so 2^31 rows cannot overflow."""
        high, low = encoded >> np.int64(31), encoded & np.int64(2**31 - 1)
        total = (np.asarray(high.sum(axis=0)).astype(object) << 31) + np.asarray(low.sum(axis=0)).astype(object)
        return total if encoded.ndim > 1 else int(total)

    def sensitivity(self, lower: Number, upper: Number, relation: str | Relation = Relation.ADD_REMOVE) -> int:
        """Return the sensitivity of the sum to one row, in grid steps, rounding included."""
        low, high = self._ends(lower, upper)
        if Relation.of(relation) is Relation.REPLACE_ONE:
            return high - low
        return max(abs(low), abs(high))

    def point(self, value: Number) -> int:
        """Return the grid integer of a public number."""
        return (2 * rational(value) * Fraction(2) ** self.exponent + 1).__floor__() // 2

    def decode(self, integers: Any) -> Any:
        """Return grid integers as floats in the units of the values: the last step, after the noise."""
        if isinstance(integers, int):
            return float(integers * self.step)
        array: NDArray[Any] = np.asarray(integers)
        if array.dtype == object:
            return np.array([float(int(integer) * self.step) for integer in array.flat]).reshape(array.shape)
        return np.ldexp(array.astype(np.float64), -self.exponent)

    def _ends(self, lower: Number, upper: Number) -> tuple[int, int]:
        low, high = (self.point(end) for end in read_bounds(lower, upper))
        if max(abs(low), abs(high)) > _LARGEST:
            raise BadBounds("the bounds need more than 52 bits on this grid. Use a coarser grid or narrower bounds.")
        return low, high


def read_bounds(lower: Number, upper: Number) -> tuple[Fraction, Fraction]:
    """Return two finite numbers, the lower one first."""
    low, high = rational(lower, "lower bound"), rational(upper, "upper bound")
    if low >= high:
        raise BadBounds("the lower bound must be below the upper bound.")
    return low, high


def _plain(rows: NDArray[Any]) -> NDArray[Any]:
    """Return Python numbers as doubles: numpy makes objects of a list if one row is missing or beyond 64 bits."""
    if rows.dtype != object or not all(row is None or isinstance(row, int | float) for row in rows.flat):
        return rows
    bounded = (np.nan if row is None else max(min(row, 2**1000), -(2**1000)) for row in rows.flat)
    return np.array([float(number) for number in bounded]).reshape(rows.shape)


def _log2_floor(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1
