"""Additive noise: its error bounds, and its release on integers."""

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
    """A mechanism that adds noise to numbers and states its error."""

    __slots__ = ()

    @abstractmethod
    def release(self, statistic: Any, source: Source | None = None) -> Any:
        """Return the statistic with noise."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of the noise on one number."""

    @abstractmethod
    def margin(self, confidence: Number) -> Any:
        """Return the smallest bound on the absolute noise on one number, with at least this probability."""

    @property
    def standard_error(self) -> float:
        """Standard deviation of the noise on one number."""
        return math.sqrt(self.variance)

    def interval(self, value: Any, confidence: Number) -> tuple[Any, Any]:
        """Return limits around a released value that contain the true one with at least this confidence, per number."""
        margin = self.margin(confidence)
        return value - margin, value + margin


class IntegerNoise(Numeric):
    """A symmetric law on the integers. Its quantiles are exact, so an interval covers at least as often as stated."""

    __slots__ = ()

    @abstractmethod
    def beyond(self, beta: Fraction) -> int:
        """Return the smallest k >= 0 with Pr[noise > k] <= beta, for beta <= 1/2."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...] | None, source: Source | None) -> Any:
        """Draw noise of this shape."""

    def quantile(self, p: Number) -> int:
        """Return the smallest k with Pr[noise <= k] >= p."""
        exact = checks.probability(p, "p")
        return self.beyond(1 - exact) if exact >= Fraction(1, 2) else -self.beyond(exact)

    def margin(self, confidence: Number) -> int:
        """Return the smallest k with Pr[|noise| <= k] >= confidence, for one number."""
        return self.beyond(checks.confidence_left(confidence) / 2)

    def release(self, statistic: Any, source: Source | None = None) -> Any:
        """Return the statistic with noise on every number.

        Args:
            statistic: an int, or an array of integers. Floats are refused.
            source: the source of random bits; the operating system's unless given.

        Returns:
            An int, or an int64 array (an object array if a noisy value does not fit).

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
        # Python integers cannot overflow. The type of the result depends on the noisy values only, not on private ones.
        noisy = exact.astype(object) + noise.astype(object)
        fits = all(-(2**63) <= one < 2**63 for one in noisy.flat)
        return noisy.astype(np.int64) if fits else noisy


def _small(part: NDArray[Any]) -> bool:
    return part.dtype.kind != "O" and part.max(initial=0) < 2**62 and part.min(initial=0) > -(2**62)


def whole_error(error: Number) -> int:
    """Return the largest integer within an error."""
    exact = rational(error, "error")
    if exact < 0:
        raise BadNumber(f"error must not be negative, got {show(exact)}. Say how far off an answer may be.")
    return math.floor(exact)
