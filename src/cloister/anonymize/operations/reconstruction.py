"""The distribution of values before noise, from the noisy values and the public distribution of the noise.

Agrawal and Srikant (2000) start from the uniform distribution f and iterate Bayes' rule on a grid,

    f'(a) = (1/n) Σ_i  f_R(w_i − a) f(a) / ∫ f_R(w_i − z) f(z) dz,

for noisy values w_i and noise density f_R; for multiplicative noise f_R(w − a) is the density of w given a. It is the
expectation-maximisation algorithm for the histogram of the values (Agrawal and Aggarwal 2001). The noisy values are
counted in cells first, so that a round costs one product of a matrix and a vector, whatever the number of rows.

The likelihood has its maximum at a spiky histogram, so the rounds are a compromise and the stopping rule matters: stop
as soon as the noisy counts are explained as well as true counts would explain them (Pearson's statistic is at most its
number of degrees of freedom), or when a round changes the estimate by less than a tolerance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.anonymize.operations.noise import Noise
from cloister.anonymize.operations.operated import Floats, columns_of, to_numbers
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadBounds, BadNumber

__all__ = ["Reconstruction", "reconstruct", "reconstruct_values"]

_POINTS = 4  # points within a cell of the grid at which the noise is evaluated
_EXPECTED = 5.0  # noisy cells with fewer expected rows are left out of Pearson's statistic


@dataclass(frozen=True)
class Reconstruction:
    """The estimated distribution of the values before noise.

    Attributes:
        edges: ends of the cells of the grid, one more than cells.
        probabilities: probability of each cell; they add up to 1.
        rounds: number of iterations.
        reason: `fitted` (the noisy values are explained), `settled` (the estimate changes no more) or `rounds`.
        count: number of noisy values.
    """

    edges: Floats
    probabilities: Floats
    rounds: int
    reason: str
    count: int

    @property
    def middles(self) -> Floats:
        """Middles of the cells."""
        return (self.edges[1:] + self.edges[:-1]) / 2

    @property
    def mean(self) -> float:
        """Mean of the estimated distribution."""
        return float(self.middles @ self.probabilities)

    @property
    def deviation(self) -> float:
        """Standard deviation of the estimated distribution."""
        return float(np.sqrt(((self.middles - self.mean) ** 2) @ self.probabilities))

    def cdf(self, values: Any) -> Floats:
        """Return the probability of being at most a value, linear within a cell."""
        total = np.concatenate([[0.0], np.cumsum(self.probabilities)])
        return np.asarray(np.interp(np.asarray(values, dtype=float), self.edges, total))

    def quantile(self, share: Any) -> Floats:
        """Return quantiles, linear within a cell."""
        total = np.concatenate([[0.0], np.cumsum(self.probabilities)])
        return np.asarray(np.interp(np.asarray(share, dtype=float), total, self.edges))


def reconstruct(
    rows: object,
    column: str,
    noise: Noise,
    *,
    bounds: tuple[float, float],
    bins: int = 50,
    tolerance: float = 1e-4,
    most_rounds: int = 2000,
) -> Reconstruction:
    """Estimate the distribution of a column from its noisy values.

    Args:
        rows: the table with noise. NULL is left out.
        column: the noisy column.
        noise: the noise that was applied.
        bounds: public bounds of the values before noise.
        bins: number of cells of the grid.
        tolerance: stop when a round moves less than this share of the probability.
        most_rounds: stop after this number of rounds.

    Raises:
        BadNumber: there is no value, or an option is out of range.

    >>> from cloister.anonymize.operations.noise import perturb
    >>> ages = {"age": [20.0] * 500 + [60.0] * 1500}
    >>> noisy = perturb(ages, "age", Noise("normal", 10), random_state=1)
    >>> estimate = reconstruct(noisy, "age", Noise("normal", 10), bounds=(0, 100), bins=20)
    >>> bool(0.2 < estimate.cdf(40) < 0.3)
    True
    """
    table = to_arrow(rows)
    columns_of(table, column)
    return reconstruct_values(
        to_numbers(table, column), noise, bounds=bounds, bins=bins, tolerance=tolerance, most_rounds=most_rounds
    )


def reconstruct_values(
    noisy: Floats,
    noise: Noise,
    *,
    bounds: tuple[float, float],
    bins: int = 50,
    tolerance: float = 1e-4,
    most_rounds: int = 2000,
) -> Reconstruction:
    """Estimate the distribution behind an array of noisy values; NaN is left out. See `reconstruct`."""
    values = noisy[~np.isnan(noisy)]
    _check(values, bounds, bins, tolerance, most_rounds)
    edges = np.linspace(bounds[0], bounds[1], bins + 1)
    counts, kernel = _cells(values, noise, edges)
    estimate = np.full(bins, 1 / bins)
    reason, rounds = "rounds", 0
    for rounds in range(1, most_rounds + 1):
        expected = kernel @ estimate
        if _explained(counts, expected * len(values)):
            reason, rounds = "fitted", rounds - 1
            break
        posterior = estimate * (kernel.T @ (counts / np.maximum(expected, 1e-300)))
        update = posterior / posterior.sum()
        moved = np.abs(update - estimate).sum() / 2
        estimate = update
        if moved < tolerance:
            reason = "settled"
            break
    return Reconstruction(edges, estimate, rounds, reason, len(values))


def _check(values: Floats, bounds: tuple[float, float], bins: int, tolerance: float, most_rounds: int) -> None:
    if not len(values):
        raise BadNumber("the column has no value to reconstruct a distribution from.")
    if not (np.isfinite(bounds).all() and bounds[0] < bounds[1]):
        raise BadBounds("bounds are two finite numbers, the lower one first.")
    if not (2 <= bins <= 5000 and tolerance > 0 and most_rounds >= 1):
        raise BadNumber("bins is a whole number from 2 to 5000, tolerance is positive, most_rounds is at least 1.")


def _cells(values: Floats, noise: Noise, edges: Floats) -> tuple[Floats, Floats]:
    """Count noisy values in cells; return counts, and P(noisy cell | cell of the grid) as a matrix."""
    width = edges[1] - edges[0]
    low, high = min(values.min(), edges[0]), max(values.max(), edges[-1])
    number = int(np.clip(np.ceil((high - low) / width * 2), 20, 4000))
    noisy_edges = np.linspace(low, high, number + 1)
    counts = np.histogram(values, noisy_edges)[0].astype(float)
    kernel = np.zeros((number, len(edges) - 1))
    limits = np.concatenate([[-np.inf], noisy_edges[1:-1], [np.inf]])[:, None]  # nothing is lost beyond the ends
    for point in (np.arange(_POINTS) + 0.5) / _POINTS:
        kernel += np.diff(noise.cdf(limits, (edges[:-1] + point * width)[None, :]), axis=0) / _POINTS
    return counts, kernel


def _explained(counts: Floats, expected: Floats) -> bool:
    large = expected >= _EXPECTED
    rest = max(expected[~large].sum(), 0.0)
    statistic = (((counts - expected) ** 2)[large] / expected[large]).sum()
    cells = int(large.sum())
    if rest >= _EXPECTED:
        statistic += (counts[~large].sum() - rest) ** 2 / rest
        cells += 1
    return bool(cells > 1 and statistic <= cells - 1 and counts[~large].sum() <= rest + 3 * np.sqrt(rest + 1))
