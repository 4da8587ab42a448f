"""Noise that is added to numbers: how far it may go, and how integers take it."""

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadNumber
from cloister.privacy.mechanisms import checks
from cloister.privacy.noise import Source
from cloister.privacy.number import Number, rational, show

__all__ = ["IntegerNoise", "Numeric", "whole_error"]


class Numeric:
    """A mechanism that adds noise to numbers and knows how large it is."""

    __slots__ = ()

    @abstractmethod
    def release(self, statistic: Any, source: Source | None = None) -> Any:
        """The statistic with noise."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of the noise on one number."""

    @abstractmethod
    def margin(self, confidence: Number) -> Any:
        """The smallest distance that the noise on one number keeps within with at least this probability."""

    @property
    def standard_error(self) -> float:
        """Standard deviation of the noise on one number."""
        return math.sqrt(self.variance)

    def interval(self, value: Any, confidence: Number) -> tuple[Any, Any]:
        """Limits around a released value that hold the true one with at least this confidence, number by number."""
        margin = self.margin(confidence)
        return value - margin, value + margin


class IntegerNoise(Numeric):
    """A symmetric law on the integers. Its quantiles are exact, so an interval covers at least as often as it says."""

    __slots__ = ()

    @abstractmethod
    def beyond(self, beta: Fraction) -> int:
        """The smallest k >= 0 with Pr[noise > k] <= beta, for beta <= 1/2."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...] | None, source: Source | None) -> Any:
        """Noise of that shape."""

    def quantile(self, p: Number) -> int:
        """The smallest k with Pr[noise <= k] >= p."""
        exact = checks.probability(p, "p")
        return self.beyond(1 - exact) if exact >= Fraction(1, 2) else -self.beyond(exact)

    def margin(self, confidence: Number) -> int:
        """The smallest k with Pr[|noise| <= k] >= confidence, for one number."""
        return self.beyond(checks.confidence_left(confidence) / 2)

    def release(self, statistic: Any, source: Source | None = None) -> Any:
        """The statistic with noise on every number.

        Args:
            statistic: an int, or an array of integers. Floats are refused.
            source: where random bits come from; the operating system's unless given.

        Returns:
            An int, or an int64 array (an object array if a noisy value is beyond int64).

        Privacy: the loss of the mechanism, for neighbours under which the statistic moves by at most `sensitivity`
            in the mechanism's norm. The shape is taken as public.
            Audited in tests/statistical/test_mechanism_audits.py.
        """
        exact = checks.integers(statistic)
        if not isinstance(exact, np.ndarray):
            return exact + int(self.draw(None, source))
        noise = self.draw(exact.shape, source)
        if _small(exact) and _small(noise):
            return exact.astype(np.int64) + noise
        # Python integers cannot wrap. The type of the answer depends on the noisy values only, not on the private ones.
        noisy = exact.astype(object) + noise.astype(object)
        fits = all(-(2**63) <= one < 2**63 for one in noisy.flat)
        return noisy.astype(np.int64) if fits else noisy


def _small(part: NDArray[Any]) -> bool:
    return part.dtype.kind != "O" and part.max(initial=0) < 2**62 and part.min(initial=0) > -(2**62)


def whole_error(error: Number) -> int:
    """The integer distance that keeps within an error."""
    exact = rational(error, "error")
    if exact < 0:
        raise BadNumber(f"error must not be negative, got {show(exact)}. Say how far off an answer may be.")
    return math.floor(exact)
