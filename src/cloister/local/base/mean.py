"""Means with their errors, from sums of reports and of their squares.

A report's expectation is a straight line in the value (`Segment`), so the mean of the reports, inverted along that
line, is unbiased for the mean of the values. The expectation of its square is a parabola, which gives the mean of the
squared values, and with it the actual error of the noise, without knowing any value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from cloister.local.base.counts import Counts
from cloister.local.base.number import NumberMechanism, Segment
from cloister.local.base.oracle import Floats
from cloister.privacy.errors import BadInput, NotPrivate
from cloister.privacy.mechanisms.checks import confidence_left
from cloister.privacy.number import Number

__all__ = ["MeanEstimate", "estimate", "mean_interval", "pooled", "uneven"]


@dataclass(frozen=True, slots=True, eq=False)
class MeanEstimate:
    """The estimated mean of a number among respondents; arrays, one entry a coordinate, if there are several.

    Attributes:
        mechanism: the mechanism of the reports; None when several were combined.
        mean: in the units of the values.
        standard_error: from the noise alone (and, if each device reported only some coordinates, from that selection).
        interval: lower and upper end, with `confidence`; of each coordinate individually.
        confidence: of each interval.
        n: reports counted.
        refused: reports refused.
        population_error: the standard error if the respondents are a random sample of the population.
        raw: True for the unbiased mean, which may be outside the bounds; False after `projected`.
        private: False if randomness was seeded.
    """

    mechanism: NumberMechanism | None
    mean: Any
    standard_error: Any
    interval: tuple[Any, Any]
    confidence: float
    n: int
    refused: int = 0
    population_error: Any = None
    raw: bool = True
    private: bool = True

    def projected(self) -> "MeanEstimate":
        """Return the mean cut to the public bounds, marked `raw=False`. It is biased, with less error."""
        if not self.raw or self.mechanism is None:
            raise BadInput("only the raw mean of one mechanism is cut to its bounds, once.")
        low, high = (np.array([float(pair[side]) for pair in self.mechanism.ends]) for side in (0, 1))
        if np.ndim(self.mean) == 0:
            low, high = low[0], high[0]
        mean, below, above = (np.clip(number, low, high) for number in (self.mean, *self.interval))
        if np.ndim(mean) == 0:
            mean, below, above = float(mean), float(below), float(above)
        return replace(self, mean=mean, interval=(below, above), raw=False)

    def require_private(self) -> "MeanEstimate":
        """Return this estimate, or raise if its noise was seeded and so not private."""
        if not self.private:
            raise NotPrivate("these reports were drawn from a seeded source: for lessons and tests only.")
        return self


# Estimating.


def estimate(mechanism: NumberMechanism, counts: Counts, confidence: Number = "0.95") -> MeanEstimate:
    """Estimate the unbiased mean with its standard error and interval.

    Args:
        mechanism: the public facts.
        counts: of reports of that mechanism.
        confidence: of the interval; of each individually, for several coordinates.
    """
    if not isinstance(counts, Counts) or counts.mechanism != mechanism:
        raise BadInput("these are not counts of this mechanism's reports. Make them with mechanism.aggregate().")
    if not counts.n:
        raise BadInput("no report was counted, so there is nothing to estimate.")
    scaled = np.array([_moved_back(mechanism.parts, row.tolist(), counts.n) for row in counts.table])
    half, centre = (np.array([float(high + sign * low) / 2 for low, high in mechanism.ends]) for sign in (-1, 1))
    mean, error, population = centre + half * scaled[:, 0], half * scaled[:, 1], half * scaled[:, 2]
    alone = len(mechanism.ends) == 1
    mean, error, population = ((float(array[0]) if alone else array) for array in (mean, error, population))
    return MeanEstimate(
        mechanism=mechanism,
        mean=mean,
        standard_error=error,
        interval=mean_interval(mean, error, confidence),
        confidence=float(1 - confidence_left(confidence)),
        n=counts.n,
        refused=counts.refused,
        population_error=population,
        private=counts.private,
    )


def mean_interval(mean: Any, error: Any, confidence: Number) -> tuple[Any, Any]:
    """Return the ends of a normal interval, for a mean of many independent reports."""
    reach = NormalDist().inv_cdf(1 - float(confidence_left(confidence)) / 2) * error
    return mean - reach, mean + reach


def _moved_back(parts: Sequence[Segment], rows: list[list[int]], people: int) -> tuple[float, float, float]:
    """Return the estimate of the mean t in [-1, 1], its standard error, and the error for a population.

    Each run's sum is inverted along its own line, which keeps the whole unbiased however people are distributed over
    runs.
    """
    reported = sum(row[0] for row in rows)
    if not reported:
        return 0.0, inf, inf
    total, second = Fraction(0), Fraction(0)
    for part, (count, positions, squares) in zip(parts, rows, strict=True):
        a, b = part.mean
        total += (positions - count * a) / b
        second += (squares - 2 * a * positions + count * a * a) / b**2
    mean = float(total / reported)
    spread = max(float(second / reported) - mean * mean, 0.0) * reported / max(reported - 1, 1)
    inner = max(min(mean, 1.0), -1.0)
    square = max(min(_mean_square(parts, rows, inner), 1.0), inner * inner)
    noise = 0.0
    for part, row in zip(parts, rows, strict=True):
        v0, v1, v2 = (float(coefficient) for coefficient in part.variance)
        noise += row[0] / reported * (v0 + v1 * inner + v2 * square)
    # The people who reported this coordinate are drawn without replacement from all respondents.
    drawn = (1 - reported / people) * (square - inner * inner)
    return mean, sqrt((noise + drawn) / reported), sqrt(max(spread, noise) / reported)


def _mean_square(parts: Sequence[Segment], rows: list[list[int]], mean: float) -> float:
    """Return the mean of t², from the parabola of each run that has one.

    A bit's square is the bit itself and adds no information; then use the least value that the mean allows, which makes
    the error largest.
    """
    weights, total = 0.0, 0.0
    for part, (count, _, squares) in zip(parts, rows, strict=True):
        c0, c1, c2 = (float(coefficient) for coefficient in part.square)
        if c2 and count:
            weights += count
            total += count * (squares / count - c0 - c1 * mean) / c2
    return total / weights if weights else mean * mean


def uneven(weights: Floats, people: Sequence[int]) -> float:
    """Return the share of one person's variance added by levels whose weight differs from their share of people.

    Each level is a draw without replacement from all respondents; levels weighted by their people add nothing.
    """
    return max(0.0, sum(float(w) ** 2 / n for w, n in zip(weights, people, strict=True)) - 1 / sum(people))


def pooled(estimates: Sequence[MeanEstimate], weights: Floats, confidence: Number) -> MeanEstimate:
    """Return a weighted mean of means. The weights are public and add up to 1."""
    mean = sum(weight * group.mean for weight, group in zip(weights, estimates, strict=True))
    noise = sum((weight * group.standard_error) ** 2 for weight, group in zip(weights, estimates, strict=True))
    # The error for a population exceeds that of the noise by the spread of the values themselves.
    with np.errstate(invalid="ignore"):  # a coordinate without reports has no finite error
        apart = sum(
            weight * group.n * np.fmax(np.square(group.population_error) - np.square(group.standard_error), 0)
            for weight, group in zip(weights, estimates, strict=True)
        )
    error = np.sqrt(noise + apart * uneven(weights, [group.n for group in estimates]))
    wider = np.sqrt(
        sum((weight * group.population_error) ** 2 for weight, group in zip(weights, estimates, strict=True))
    )
    return MeanEstimate(
        mechanism=None,
        mean=mean,
        standard_error=error,
        interval=mean_interval(mean, error, confidence),
        confidence=float(1 - confidence_left(confidence)),
        n=sum(group.n for group in estimates),
        refused=sum(group.refused for group in estimates),
        population_error=wider,
        private=all(group.private for group in estimates),
    )
