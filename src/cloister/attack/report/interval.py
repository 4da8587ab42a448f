"""A number with its interval."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cloister.attack.intervals import at_least, at_most
from cloister.privacy.number import limits_text, percent_limits

__all__ = ["SURE", "Interval", "mean_of", "percent", "share"]

SURE = 0.95
_NORMAL = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its 95 % interval, if it has one.

    Attributes:
        value: the number.
        low, high: bounds with 95 % confidence; None where nothing was random.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, value: float, error: float, least: float = -math.inf, most: float = math.inf) -> "Interval":
        """Build from a standard error; the interval is clipped to the possible range."""
        return cls(value, max(value - _NORMAL * error, least), min(value + _NORMAL * error, most))

    def to_json(self) -> dict[str, float | None]:
        """Return plain values, for a file."""
        return {"value": self.value, "low": self.low, "high": self.high}

    def text(self, digits: int = 3, percent: bool = False) -> str:
        """Format as `0.512 (0.498 to 0.526)`, or in percent; limits are rounded outwards."""
        size, after, format_limits = (100, "\u00a0%", percent_limits) if percent else (1, "", limits_text)
        text = f"{self.value * size:.{digits}f}{after}"
        if self.low is None or self.high is None:
            return text
        return f"{text} ({' to '.join(format_limits(self.low, self.high, digits))})"


def percent(value: float, digits: int = 1) -> str:
    """Format as `76.4 %`, without a line break inside."""
    return f"{100 * value:.{digits}f}\u00a0%"


def share(count: int, n: int, sure: float = SURE) -> Interval:
    """Return a share of n trials with its Clopper-Pearson interval, which is valid for every n."""
    if n == 0:
        return Interval(math.nan, 0.0, 1.0)
    level = (1 - sure) / 2
    return Interval(count / n, float(at_least(count, n, level)), float(at_most(count, n, level)))


def mean_of(values: ArrayLike, drawn: bool, least: float = 0.0, most: float = math.inf) -> Interval:
    """Return the mean of some numbers; with an interval if they are a random sample."""
    numbers: Any = np.asarray(values, dtype=np.float64)
    mean = float(numbers.mean()) if numbers.size else math.nan
    if not drawn or numbers.size < 2:
        return Interval(mean)
    return Interval.of(mean, float(numbers.std(ddof=1) / math.sqrt(numbers.size)), least, most)
