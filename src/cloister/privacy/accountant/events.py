"""Steps of a fixed plan, for accountants that need the noise itself and not only its loss."""

import math
from dataclasses import dataclass
from fractions import Fraction

from cloister.privacy.accountant.amplification import sampled_gaussian_rdp, sampling_rate
from cloister.privacy.errors import BadScale, RelationMismatch
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import Number, rational, show

__all__ = ["DiscreteGaussianStep", "GaussianStep", "LaplaceStep"]


@dataclass(frozen=True, slots=True)
class GaussianStep:
    """Gaussian noise on a statistic, possibly of a Poisson sample: one step of DP-SGD.

    This is the continuous law, for planning and comparison. Noise that is drawn is discrete: `DiscreteGaussianStep`
    prices it, and adds to delta what the difference of the two laws can amount to.

    Args:
        sigma: standard deviation divided by the L2 sensitivity (the noise multiplier). A sensitivity exists only if
            each unit's contribution, for example a gradient, is clipped.
        rate: the probability with which each unit enters the sample.
        relation: the neighbours for which the sensitivity was computed; sampling needs add/remove.
    """

    sigma: Fraction
    rate: Fraction
    relation: Relation

    def __init__(self, sigma: Number, rate: Number = 1, relation: str | Relation = Relation.ADD_REMOVE) -> None:
        object.__setattr__(self, "sigma", _multiplier(sigma, "sigma"))
        object.__setattr__(self, "rate", sampling_rate(rate))
        object.__setattr__(self, "relation", Relation.of(relation))
        if self.rate < 1 and self.relation is not Relation.ADD_REMOVE:
            raise RelationMismatch("Poisson sampling is accounted for add/remove neighbours. State sigma for those.")

    @property
    def pure(self) -> None:
        """Gaussian noise has no pure guarantee."""

    @property
    def zcdp(self) -> Loss:
        """rho = 1/(2 sigma²), which sampling does not reduce: it does not amplify the large orders of zCDP."""
        return Loss("rho", 1 / (2 * self.sigma**2), relation=self.relation)

    def rdp(self, alpha: float) -> float:
        """An upper bound on the Rényi divergence of order alpha."""
        return sampled_gaussian_rdp(float(self.sigma), max(float(self.rate), 1e-300), alpha)


@dataclass(frozen=True, slots=True)
class DiscreteGaussianStep:
    """Discrete Gaussian noise on an integer vector, possibly of a Poisson sample: one step of DP-SGD as it is drawn.

    Args:
        sigma: parameter of the noise on each integer, in grid steps.
        sensitivity: the L2 norm of a unit's integer vector, at most.
        coordinates: the number of integers.
        rate: the probability with which each unit enters the sample.

    Privacy: for add/remove neighbours. `DistributionAccountant` prices the rounded normal law, which sampling
        amplifies, and adds the distance from it to delta (accountant/rounded_gaussian.py has the proof).
    """

    sigma: Fraction
    sensitivity: int
    coordinates: int
    rate: Fraction

    def __init__(self, sigma: Number, sensitivity: int, coordinates: int, rate: Number = 1) -> None:
        for value, name in ((sensitivity, "sensitivity"), (coordinates, "coordinates")):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**62:
                raise BadScale(f"{name} is a whole number of at least 1, got {value!r:.40}.")
        exact = rational(sigma, "sigma")
        _multiplier(exact / sensitivity, "sigma / sensitivity")
        object.__setattr__(self, "sigma", exact)
        object.__setattr__(self, "sensitivity", sensitivity)
        object.__setattr__(self, "coordinates", coordinates)
        object.__setattr__(self, "rate", sampling_rate(rate))

    @property
    def relation(self) -> Relation:
        """Poisson sampling is accounted for units added or removed."""
        return Relation.ADD_REMOVE

    @property
    def continuous(self) -> GaussianStep:
        """The step with normal noise of the same sigma."""
        return GaussianStep(self.sigma / self.sensitivity, self.rate)

    @property
    def pure(self) -> None:
        """Gaussian noise has no pure guarantee."""

    @property
    def zcdp(self) -> Loss:
        """rho = sensitivity²/(2 sigma²), exactly (Canonne, Kamath & Steinke 2020, Thm 14); sampling does not reduce it.

        A mixture over samples has at most the largest divergence of its parts.
        """
        return Loss("rho", Fraction(self.sensitivity**2) / (2 * self.sigma**2))

    def rdp(self, alpha: float) -> float:
        """Return alpha rho: no amplification of discrete noise is claimed order by order."""
        return float(self.zcdp.amount) * alpha * (1 + 2.0**-50)


@dataclass(frozen=True, slots=True)
class LaplaceStep:
    """Laplace noise on a statistic: the continuous law, for planning and comparison. It is never drawn.

    Integer noise at a sensitivity of few steps costs more in Rényi privacy: compose `DiscreteLaplace` itself then.

    Args:
        scale: the noise's scale divided by the L1 sensitivity, so 1/epsilon.
        relation: the neighbours for which the sensitivity was computed.
    """

    scale: Fraction
    relation: Relation

    def __init__(self, scale: Number, relation: str | Relation = Relation.ADD_REMOVE) -> None:
        object.__setattr__(self, "scale", _multiplier(scale, "scale"))
        object.__setattr__(self, "relation", Relation.of(relation))

    @property
    def pure(self) -> Loss:
        """epsilon = 1/scale."""
        return Loss("epsilon", 1 / self.scale, relation=self.relation)

    @property
    def zcdp(self) -> Loss:
        """rho = epsilon²/2."""
        return self.pure.as_rho()

    def rdp(self, alpha: float) -> float:
        """ln((alpha e^((alpha-1)/b) + (alpha-1) e^(-alpha/b))/(2 alpha-1))/(alpha-1) (Mironov 2017, Prop. 6)."""
        rate = float(1 / self.scale)
        bound = min(rate, alpha * rate * rate / 2)
        if (alpha - 1) * rate > 700:
            return math.nextafter(bound, math.inf)
        up = alpha / (2 * alpha - 1) * math.expm1((alpha - 1) * rate)
        down = (alpha - 1) / (2 * alpha - 1) * math.expm1(-alpha * rate)
        # The two nearly cancel for large scales: allow for eight roundings of each before taking the logarithm.
        exact = math.log1p(up + down + 2.0**-49 * (up - down)) / (alpha - 1)
        return math.nextafter(min(bound, exact) * (1 + 2.0**-49), math.inf)


def _multiplier(value: Number, name: str) -> Fraction:
    exact = rational(value, name)
    if not Fraction(1, 10**9) <= exact <= 10**9:
        raise BadScale(f"{name} is noise divided by sensitivity, from 1e-9 to 1e9, got {show(exact)}.")
    return exact
