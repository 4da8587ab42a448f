"""Averaging attacks: repeating a query averages the noise away, unless a ledger stops it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloister.privacy.errors import BadNumber, BadProbability, BadScale

__all__ = ["Average", "Guess", "average", "guess", "noise_left"]


@dataclass(frozen=True, slots=True)
class Average:
    """The result of averaging repeated answers to one query."""

    count: int
    mean: float
    standard_error: float
    interval: tuple[float, float]
    confidence: float


def average(answers: Sequence[float], confidence: float = 0.9) -> Average:
    """Return the mean of noisy answers with Student's interval, from the sample standard deviation (n - 1, not n).

    >>> found = average([2.915, 1.882, 1.292, 4.026, 5.346])
    >>> [round(x, 3) for x in (found.mean, *found.interval)]
    [3.092, 1.534, 4.651]
    """
    from scipy.special import stdtrit

    values = np.asarray(answers, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise BadNumber("averaging needs at least two finite answers, in one list.")
    if not 0 < confidence < 1:
        raise BadProbability(f"confidence must lie strictly between 0 and 1, got {confidence!r:.40}. Write 0.9.")
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
    reach = float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * error
    return Average(len(values), mean, error, (mean - reach, mean + reach), confidence)


@dataclass(frozen=True, slots=True)
class Guess:
    """The value inferred from one person's repeated local reports.

    Attributes:
        value: the value that most reports support.
        support: number of reports that support it.
        count: number of reports.
        lead: its lead over the next value, in standard deviations of the difference of two equally likely values.
    """

    value: int
    support: int
    count: int
    lead: float


def guess(supports: Sequence[int], count: int) -> Guess:
    """Return the most likely value of one person, from the numbers of `count` reports that support each value.

    Under every pure protocol the most supported value is the most likely. With fresh noise in each report its lead
    grows with the square root of their number, for any epsilon. If a device repeats one memoised report, there is
    nothing to average, and the guess is never better than that report alone.

    >>> guess([61, 58, 90, 55], 200).value
    2
    """
    counts = np.asarray(supports)
    valid = isinstance(count, int) and not isinstance(count, bool) and count >= 1
    if not valid or counts.ndim != 1 or len(counts) < 2 or counts.dtype.kind not in "iu" or counts.min() < 0:
        raise BadNumber("a guess needs one count of reports for each of at least two values.")
    first, second = np.argsort(-counts, kind="stable")[:2]
    spread = math.sqrt(max(1, int(counts[first]) + int(counts[second])))
    return Guess(int(first), int(counts[first]), count, float(counts[first] - counts[second]) / spread)


def noise_left(scale: float, count: int) -> float:
    """Return √2·scale/√count, the standard deviation of the mean of `count` answers with Laplace noise."""
    if not (math.isfinite(scale) and scale > 0):
        raise BadScale(f"scale must be positive and finite, got {scale!r:.40}.")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise BadNumber(f"count must be a whole number of at least 1, got {count!r:.40}.")
    return math.sqrt(2) * scale / math.sqrt(count)
