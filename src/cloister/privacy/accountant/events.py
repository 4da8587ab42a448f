"""Steps of a fixed plan, for accountants that need the noise itself and not only its loss."""

import math
from dataclasses import dataclass
from fractions import Fraction

from cloister.privacy.accountant.amplification import sampled_gaussian_rdp, sampling_rate
from cloister.privacy.errors import BadScale, RelationMismatch
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import Number, rational, show

__all__ = ["GaussianStep", "LaplaceStep"]


@dataclass(frozen=True, slots=True)
class GaussianStep:
    """Gaussian noise on a statistic, possibly of a Poisson sample: one step of DP-SGD.

    This is the continuous law. Noise on a grid has the same rho, but no theorem states that its sampled or distribution
    price is equal; with sigma of many grid steps the difference is far below any digit that is printed.

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
class LaplaceStep:
    """Laplace noise on a statistic: the continuous law.

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
