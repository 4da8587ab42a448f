"""Intervals of numbers whose labels are true: half-open, with edges as exact decimals, each made of finer ones."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

__all__ = ["Intervals", "is_whole", "printed"]

_EXACT = Context(prec=1_500)  # sums and quotients of floats as they are written have fewer digits


def is_whole(value: Any) -> bool:
    """Return True for a whole number of any type."""
    if isinstance(value, int):
        return not isinstance(value, bool)
    return isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value)


def _decimal(number: Any) -> Decimal:
    """Return a number as it is written: 0.1 is a tenth."""
    if isinstance(number, int | Decimal):
        return Decimal(number)
    return Decimal(repr(float(number)))


@dataclass(frozen=True)
class Intervals:
    """Intervals between bounds, as decimals without rounding.

    Attributes:
        low, high: the bounds.
        width: of the finest intervals.
        factors: how many of these an interval of each level has.
        whole: True to label whole numbers as 20-29.
    """

    low: Decimal
    high: Decimal
    width: Decimal
    factors: tuple[int, ...]
    whole: bool

    @staticmethod
    def of(low: float, high: float, widths: Sequence[float]) -> "Intervals":
        """Return the intervals of bounds and widths, each width a multiple of the one before it."""
        factors = [1]
        for narrow, wide in itertools.pairwise(widths):
            factors.append(factors[-1] * round(wide / narrow))
        numbers = [_decimal(number) for number in (low, high, *widths)]
        whole = all(number == number.to_integral_value() for number in numbers)
        return Intervals(numbers[0], numbers[1], numbers[2], tuple(factors), whole)

    @property
    def kind(self) -> str:
        """Return the widths in words."""
        return f"intervals of {', '.join(map(printed, self._widths))}"

    @property
    def shares(self) -> tuple[float, ...]:
        """Return the share of the span that an interval of each level is."""
        span = float(_EXACT.subtract(self.high, self.low))
        return tuple(min(float(width) / span, 1.0) for width in self._widths)

    @property
    def _widths(self) -> list[Decimal]:
        return [_EXACT.multiply(self.width, factor) for factor in self.factors]

    def label(self, factor: int, value: Any) -> str:
        """Return the label of a value at the level whose intervals are made of `factor` of the finest ones."""
        number = _decimal(value)
        if number.is_nan():
            raise ValueError("not a number")
        if number < self.low:
            return f"<{printed(self.low)}"
        if number >= self.high:
            return f">={printed(self.high)}"
        # The place of a level is that of the finest one, divided: so intervals nest, whatever the numbers are.
        place = int(_EXACT.divide_int(_EXACT.subtract(number, self.low), self.width)) // factor * factor
        start = _EXACT.add(self.low, _EXACT.multiply(self.width, place))
        end = min(_EXACT.add(start, _EXACT.multiply(self.width, factor)), self.high)
        if self.whole and is_whole(value):
            return f"{printed(start)}-{printed(_EXACT.subtract(end, Decimal(1)))}"
        return f"[{printed(start)}, {printed(end)})"


def printed(number: Decimal) -> str:
    """Print a decimal with all its digits and no others."""
    if not number:
        return "0"
    plain = format(number, "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain
