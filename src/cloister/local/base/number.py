"""The contract of a mechanism for numbers: public bounds, a public grid, and a law whose mean is a straight line.

    value ──► clipped and rounded to a grid point (device) ──► report ──► sums (collector) ──► mean ± error

A number is rounded to a grid of steps + 1 points between its bounds before any randomness, so everything after it is
integer. Rounding happens on the device before the mechanism: the law of a report depends on the grid point alone, and
the largest likelihood ratio is over all pairs of points.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.local.base.counts import Counts, tally
from cloister.local.base.oracle import Floats, Kind, Oracle
from cloister.local.base.perturb import checked
from cloister.privacy.errors import BadBounds, BadInput, BadNumber
from cloister.privacy.noise.grid import read_bounds
from cloister.privacy.number import Number

if TYPE_CHECKING:
    from cloister.local.base.mean import MeanEstimate

__all__ = [
    "Bounds",
    "NumberMechanism",
    "POINTS",
    "Segment",
    "grid_steps",
    "read_ends",
    "read_pair",
    "read_steps",
    "sums",
]

Bounds = tuple[Number, Number]
# Default limit of steps: half a step is far below the noise of a billion people, and reports on the grid, whose range
# is at most twice as long, still fit two bytes.
POINTS = 32_000
_LARGEST = 1 << 24
_FARTHEST = Fraction(10) ** 100


class Segment(NamedTuple):
    """A run of reports, and the moments of a report's position in it.

    All mechanisms for means are such runs. With t = -1 at the lower bound and 1 at the upper one, and y the report's
    position in the run, E[y | t] = mean[0] + mean[1] t and E[y² | t] = square[0] + square[1] t + square[2] t²: exact.

    Attributes:
        start: the number of its first report.
        outputs: the number of reports in it.
        share: the probability that a report is in it, independent of the value.
        mean: the straight line.
        square: the parabola.
    """

    start: int
    outputs: int
    share: Fraction
    mean: tuple[Fraction, Fraction]
    square: tuple[Fraction, Fraction, Fraction]

    @property
    def variance(self) -> tuple[Fraction, Fraction, Fraction]:
        """The variance of (y - mean[0]) / mean[1], which estimates t: coefficients of 1, t and t²."""
        (a, b), (c0, c1, c2) = self.mean, self.square
        return (c0 - a * a) / b**2, (c1 - 2 * a * b) / b**2, c2 / b**2 - 1


class NumberMechanism(Oracle):
    """The contract of a mechanism for numbers; the differences are in `mechanisms/`.

    Privacy: pure epsilon-local differential privacy: for any two numbers and any report y,
        Pr[y | one] <= e^epsilon Pr[y | other], exactly. Who takes part is not hidden. `verify` certifies it.
    """

    __slots__ = ()
    kind: ClassVar[Kind] = "number"
    # True if `law` can return a law in rationals.
    listable: ClassVar[bool] = True
    low: Fraction
    high: Fraction
    steps: int

    @property
    def ends(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """The bounds of each coordinate; a single number has one."""
        return ((self.low, self.high),)

    @property
    def bounds(self) -> Any:
        """The public bounds, low and high; for several coordinates a pair each."""
        return self.ends[0] if len(self.ends) == 1 else self.ends

    @property
    def domain(self) -> int:  # type: ignore[override]  # follows from the grid
        """The number of grid points."""
        points: int = (self.steps + 1) ** len(self.ends)
        return points

    @property
    def bits(self) -> int:
        """The number of bits per report."""
        return (self.outputs - 1).bit_length()

    @property
    def parts(self) -> tuple[Segment, ...]:
        """The runs of reports with their moments, which suffice to estimate a mean."""
        raise NotImplementedError

    # The grid.

    def points(self, values: Any) -> NDArray[np.int64]:
        """Return grid points from 0 to `steps`, one a person; for several coordinates one row a person.

        Computed in doubles and in this order, so that another language rounds alike: clip x to the bounds, then
        floor((x - low) · steps / (high - low) + 1/2). A value that is not a number is refused and not shown.
        """
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" or np.isnan(array).any():
            raise BadNumber("values are numbers: a whole number or a float, or an array of them.")
        sides = len(self.ends)
        if sides > 1 and (array.ndim not in (1, 2) or array.shape[-1] != sides):
            raise BadInput(f"values are rows of {sides} numbers, one row a person.")
        low, high = (np.array([float(pair[side]) for pair in self.ends]) for side in (0, 1))
        x = np.clip(array.astype(np.float64).reshape(-1, sides), low, high)
        places: NDArray[np.int64] = np.floor((x - low) * self.steps / (high - low) + 0.5).astype(np.int64)
        return places if sides > 1 else places.ravel()

    # Error, in closed form.

    def variance(self, values: ArrayLike, people: int = 1) -> Floats:
        """Return the variance of an estimated mean among `people` who all have this value (or each of these values)."""
        low, high = (np.array([float(pair[side]) for pair in self.ends]) for side in (0, 1))
        t = (2 * np.asarray(values, dtype=np.float64) - low - high) / (high - low)
        v0, v1, v2 = (float(c) for c in self._coefficients())
        spread: Floats = np.asarray((v0 + v1 * t + v2 * t * t) * ((high - low) / 2) ** 2 / people)
        return spread if np.ndim(values) or len(self.ends) > 1 else spread.reshape(())

    @property
    def worst_variance(self) -> float:
        """One person's variance at the value where it is largest, in squared units of the values.

        For several coordinates, the mean over them.
        """
        v0, v1, v2 = self._coefficients()
        # A parabola is largest at an end, or, if it opens downwards, at its top.
        peaks = [Fraction(1), Fraction(-1)] + ([max(min(-v1 / (2 * v2), Fraction(1)), Fraction(-1))] if v2 else [])
        largest = max(v0 + v1 * t + v2 * t * t for t in peaks)
        squares = [((high - low) / 2) ** 2 for low, high in self.ends]
        return float(largest * sum(squares, Fraction(0)) / len(squares))

    def mse(self, people: int) -> float:
        """Return the worst-case squared error of a mean."""
        return self.worst_variance / people

    def _coefficients(self) -> tuple[Fraction, Fraction, Fraction]:
        sums = [Fraction(0)] * 3
        for part in self.parts:
            sums = [total + part.share * coefficient for total, coefficient in zip(sums, part.variance, strict=True)]
        return sums[0], sums[1], sums[2]

    # The collector's verb that differs; the device's verbs, the wire and the counts are those of `Oracle`.

    def estimate(  # type: ignore[override]  # a mean has no list of values
        self, counts: "Counts", confidence: Number = "0.95"
    ) -> "MeanEstimate":
        """Estimate the unbiased mean with its standard error and interval.

        Args:
            counts: a result of `aggregate`, or a sum of several.
            confidence: of the interval; of each individually, for several coordinates.
        """
        from cloister.local.base import mean

        return mean.estimate(self, counts, confidence)


def read_ends(mechanism: NumberMechanism) -> None:
    """Check the bounds of a single number, and return them exactly."""
    for field, exact in zip(("low", "high"), read_pair((mechanism.low, mechanism.high)), strict=True):
        object.__setattr__(mechanism, field, exact)


def read_pair(bounds: object) -> tuple[Fraction, Fraction]:
    """Return public bounds of one number that differ as doubles: devices round in doubles."""
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise BadBounds("bounds are a pair of public numbers, the lower one first.")
    low, high = read_bounds(*bounds)
    if max(abs(low), abs(high)) > _FARTHEST or not float(low) < float(high):
        raise BadBounds("the bounds must be at most 1e100 in size and differ as floats: devices round in doubles.")
    return low, high


def read_steps(steps: int, name: str, most: int = _LARGEST) -> int:
    """Return the number of steps of a grid."""
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= most:
        raise BadInput(f"{name} needs a grid of 1 to {most:,} steps, got {steps!r:.40}.")
    return steps


def grid_steps(bounds: Bounds, most: int = POINTS) -> int:
    """Return about `most` steps, such that integers between integer bounds are points of the grid.

    In general the width a/b of the bounds is cut into a multiple of a steps, if they fit.

    >>> grid_steps((17, 90)), grid_steps((0, "2.5")), grid_steps((0, 1))
    (31974, 32000, 32000)
    """
    low, high = read_pair(bounds)
    numerator = (high - low).numerator
    return most // numerator * numerator if numerator <= most else most


# Device: values to grid points, before any mechanism draws.


@checked.register
def _points(mechanism: NumberMechanism, values: Any) -> NDArray[np.int64]:
    return mechanism.points(values)


# Collector: for each run of reports, their number, sum and sum of squares. Exact.


@tally.register
def _one(mechanism: NumberMechanism, data: NDArray[Any]) -> NDArray[Any]:
    return sums(mechanism.parts, data)[None]


def sums(parts: Sequence[Segment], data: NDArray[Any]) -> NDArray[Any]:
    """Return one row a part: its number of reports, the sum of positions and of their squares, as Python ints."""
    rows = []
    for part in parts:
        positions = (
            data if len(parts) == 1 else data[(data >= part.start) & (data < part.start + part.outputs)] - part.start
        )
        # Halves of 16 bits: their products add up within 64 bits for four billion reports.
        high, low = positions >> np.uint64(16), positions & np.uint64(0xFFFF)
        cross, total = int((high * low).sum()), (int(high.sum()) << 16) + int(low.sum())
        rows.append([len(positions), total, (int((high * high).sum()) << 32) + (cross << 17) + int((low * low).sum())])
    return np.array(rows, dtype=object)
