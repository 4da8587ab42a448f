"""Laplace noise on one number: the baseline, which other mechanisms improve on."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import Words
from cloister.local.base.laplace_rows import laplace_rows
from cloister.local.base.number import Bounds, NumberMechanism, Segment, grid_steps, read_ends, read_pair, read_steps
from cloister.local.base.oracle import read_loss
from cloister.local.base.perturb import perturbed
from cloister.privacy.errors import BadLoss
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import exp_up, rounded_up

__all__ = ["LaplaceNumber"]

_LEAST = Fraction(1, 1000)


@dataclass(frozen=True, slots=True)
class LaplaceNumber(NumberMechanism):
    """The grid point plus discrete Laplace noise of scale steps/epsilon, from the core's exact sampler.

    Two grid points differ by at most `steps`. The noise scale is the range over epsilon whatever the number: Piecewise
    has less error at every epsilon, Duchi below 2.3. It is here for comparison.

    Privacy: pure: the largest ratio is e^(steps/scale) < e^epsilon, the scale being rounded up. A report beyond
        `limit` steps from the bounds is cut on the device, which is post-processing.
    """

    name: ClassVar[str] = "laplace-number"
    formula: ClassVar[str] = "8 r² / (n ε²)"
    listable: ClassVar[bool] = False

    low: Fraction
    high: Fraction
    steps: int
    loss: Loss

    def __post_init__(self) -> None:
        read_ends(self)
        if read_loss(self.loss, self.name) < _LEAST:
            raise BadLoss(f"{self.name} needs an epsilon of at least 0.001, got {self.loss}: raise it.")
        read_steps(self.steps, self.name, 1 << 15)
        self._certify()

    @classmethod
    def for_loss(cls, bounds: Bounds, loss: Loss, steps: int | None = None) -> "LaplaceNumber":
        """Build the mechanism on a grid of about 32,000 steps by default, such that integers are grid points."""
        return cls(*read_pair(bounds), grid_steps(bounds) if steps is None else steps, loss)

    @property
    def scale(self) -> Fraction:
        """steps/epsilon, rounded up in the twelfth digit and never equal: a rational then proves the ratio smaller."""
        return rounded_up(self.steps / self.epsilon * (1 + Fraction(1, 10**12)))

    @property
    def limit(self) -> int:
        """The largest noise: it is exceeded with probability below 2^-64."""
        return math.ceil(45 * self.scale) + 1

    @property
    def outputs(self) -> int:
        """The number of different reports: `limit` steps below the lower bound is report 0."""
        return self.steps + 2 * self.limit + 1

    @property
    def parts(self) -> tuple[Segment, ...]:
        """One run, a report a step. The cut at the limit moves no moment by a 2^64th."""
        x = float(1 / self.scale)
        noise, half = Fraction(2 * math.exp(-x) / math.expm1(-x) ** 2), Fraction(self.steps, 2)
        centre = self.limit + half
        return (Segment(0, self.outputs, Fraction(1), (centre, half), (centre**2 + noise, 2 * centre * half, half**2)),)

    def largest_ratio(self) -> Fraction:
        """Return e^(steps/scale), the bounds against each other: rounded up by less than 1e-39 of itself."""
        return exp_up(self.steps / self.scale)

    def describe(self) -> dict[str, str | int]:
        """Return the public, exact facts, with the scale."""
        return {**NumberMechanism.describe(self), "scale": str(self.scale), "limit": self.limit}


# Device


@perturbed.register
def laplace(mechanism: LaplaceNumber, values: NDArray[np.int64], source: Source) -> Words:
    """Return the grid point plus noise, counted from the lowest report and cut there and at the highest.

    The sum is cut, not the noise: the end of cut noise would reveal the value.
    """
    noisy = values + laplace_rows(mechanism.scale, len(values), 1, source).ravel() + mechanism.limit
    return np.asarray(np.clip(noisy, 0, mechanism.outputs - 1), dtype=np.uint64)
