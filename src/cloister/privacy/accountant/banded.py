"""Correlated noise for sums that follow each other: a banded matrix factorisation, and its accountant.

    exact sums g(t) ──► c0 g(t) + c1 g(t-1) + … + c(b-1) g(t-b+1) + noise ──► solved for g(t): x(t)

Each x(t) is its g(t) with the noise C^-1 z, where C has the weights c on its b bands. Steps of an optimiser add the
x(t) up, and there C^-1 z largely cancels: noise of later steps takes back that of earlier ones (Denisov et al. 2022;
Choquette-Choo et al. 2023). With weights of (1 - x)^(-1/2) the errors of prefix sums are about the least
(Fichtenberger, Henzinger & Upadhyay 2023; Kalinin & Lampert 2024).

**Claim.** Let a unit enter at most `passes` of the sums, any two at least b steps apart, and move each by at most S
in L2. Then the noisy sums cost what one Gaussian release of sensitivity S sqrt(passes Σ c²) costs.

**Proof.** The noisy sum of step t depends on earlier outputs only through the sums, so conditionally on them neighbours
differ in it by Σ c(j) d(t-j), where d is what the unit moves. A step has at most one d that is not zero within its b
bands, so the squares of these differences, over all steps and along every path of outputs, add up to at most
Σ over its entries of |d|² Σ c² <= passes S² Σ c². Gaussian noise on a stream whose differences have a bounded sum of
squares along every path is as private as one vector of that length (Denisov et al. 2022, Theorem 2.1); for rho this is
adaptive composition with a bound on every path (Whitehouse, Ramdas, Rogers & Wu 2023), and holds for discrete noise as
it is. For an (epsilon, delta), rounded_gaussian.py adds the distance of discrete from rounded normal noise over all
integers of all steps. Solving for x(t) is post-processing.

The weights are whole numbers, so everything before the noise is exact. They fall strictly, so C^-1 is stable (Eneström
& Kakeya: 1/c(x) has no pole in the unit disc).
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.accountant.planned import PlannedRelease, Steps
from cloister.privacy.errors import BadNumber, OverBudget
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.noise import SYSTEM, Source, discrete_gaussian

__all__ = ["BandedNoise", "BandedRelease", "band_weights", "total_sensitivity"]

_SCALE, _MOST_BANDS = 256, 16  # beyond 16 bands, neighbouring weights would be equal


def band_weights(bands: int) -> tuple[int, ...]:
    """Return whole numbers about in proportion to the coefficients of (1 - x)^(-1/2).

    >>> band_weights(4)
    (256, 128, 96, 80)
    """
    if isinstance(bands, bool) or not isinstance(bands, int) or not 2 <= bands <= _MOST_BANDS:
        raise BadNumber(f"bands is a whole number from 2 to {_MOST_BANDS}, got {bands!r:.40}.")
    return tuple(round(Fraction(_SCALE * math.comb(2 * j, j), 4**j)) for j in range(bands))


def total_sensitivity(sensitivity: int, weights: tuple[int, ...], passes: int) -> int:
    """Return the L2 norm by which a unit moves all weighted sums together, rounded up."""
    return math.isqrt(sensitivity**2 * passes * sum(weight**2 for weight in weights) - 1) + 1


@dataclass(frozen=True, slots=True)
class BandedRelease:
    """One release that consists of sums with correlated noise. A mechanism, as `PlannedRelease` is.

    Args:
        plan: one step, of the total sensitivity and the integers of all sums together; it states price and noise.
        weights: the weights of the bands.
        count: the number of sums.

    Privacy: that of the plan, for one unit added or removed, if a unit enters sums at least as far apart as there are
        bands, as often as the total sensitivity says.
    """

    name: ClassVar[str] = "banded-discrete-gaussian"
    textbook: ClassVar[bool] = False

    plan: PlannedRelease
    weights: tuple[int, ...]
    count: int

    @property
    def steps(self) -> Steps:
        """The one step of the plan."""
        return self.plan.steps

    @property
    def loss(self) -> Loss:
        """The loss."""
        return self.plan.loss

    @property
    def relation(self) -> Relation:
        """The neighbour relation of the loss."""
        return self.plan.relation

    @property
    def pure(self) -> None:
        """Gaussian noise has no pure guarantee."""

    @property
    def zcdp(self) -> Loss:
        """The loss as a rho, with its delta."""
        return self.plan.zcdp

    def rdp(self, alpha: float) -> float:
        """Return the divergence of the plan."""
        return self.plan.rdp(alpha)

    def parameters(self) -> dict[str, str]:
        """Public, exact parameters for a receipt."""
        return {**self.plan.parameters(), "sums": str(self.count), "bands": ", ".join(map(str, self.weights))}

    def release(self, statistic: Callable[["BandedNoise"], Any], source: Source | None = None) -> Any:
        """Carry the steps out; as in `PlannedRelease`."""
        step = self.plan.steps[0][0]
        noise = BandedNoise(self.weights, self.count, step.coordinates // self.count, step.sigma, source or SYSTEM)
        return statistic(noise)


@dataclass(slots=True)
class BandedNoise:
    """Correlated noise of planned sums, in order. Holds the exact sums of the last bands, which no file may.

    Attributes:
        weights, count: as in `BandedRelease`.
        coordinates: the integers of one sum.
        sigma: the scale of the noise on weighted sums.
        source: the source of random bits.
        done: sums released so far.
    """

    weights: tuple[int, ...]
    count: int
    coordinates: int
    sigma: Fraction
    source: Source
    done: int = 0
    _sums: deque[NDArray[np.int64]] = field(default_factory=deque, init=False, repr=False)
    _found: deque[NDArray[np.float64]] = field(default_factory=deque, init=False, repr=False)

    def skip(self, count: int) -> None:
        """Refuse to go on from a later step: earlier exact sums are gone."""
        if count:
            raise OverBudget("correlated noise cannot go on from a checkpoint: it needs earlier exact sums.")

    def release(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sum with its noise, as real numbers of grid steps.

        Raises:
            OverBudget: if all planned sums are released, or this one has another number of integers.
        """
        if self.done >= self.count or integers.shape != (self.coordinates,) or integers.dtype != np.int64:
            raise OverBudget("the plan of this release has no such step left. Nothing more can be released under it.")
        self.done += 1
        self._sums.appendleft(integers)
        exact = sum(weight * past for weight, past in zip(self.weights, self._sums, strict=False))
        noisy = exact + discrete_gaussian(self.sigma, integers.shape, self.source)
        rest = sum(weight * past for weight, past in zip(self.weights[1:], self._found, strict=False))
        found = np.asarray((noisy - rest) / self.weights[0], dtype=np.float64)
        self._found.appendleft(found)
        for held in (self._sums, self._found):
            if len(held) >= len(self.weights):
                held.pop()
        return found
