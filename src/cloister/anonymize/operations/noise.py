"""Additive and multiplicative noise with a public distribution, and the filter that removes a part of it.

Noise of a known distribution lets everyone reconstruct the distribution of the values (`reconstruction`). It hides a
value less than its standard deviation suggests: columns that are correlated tell about each other, so that a linear
filter recovers them (Kargupta et al. 2003; Huang, Du and Chen 2005). `spectral_filter` is that attack.

Falls to: `spectral_filter` above, and `attack.tables.scored_linkage`, which allows for noise of a known size.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from scipy import stats

from cloister.anonymize.operations.operated import (
    Floats,
    Operated,
    from_numbers,
    generator,
    is_number,
    read,
    to_numbers,
    with_column,
)
from cloister.privacy.errors import BadBounds, BadNumber, BadScale, BadSchema

__all__ = ["Noise", "perturb", "spectral_filter"]

_NOTE = (
    "This is no differential privacy: the range of the column is not covered, and the digits of doubles may reveal "
    "values. Noise with a known spectrum is filtered out of correlated columns (spectral_filter); extreme values stay "
    "recognisable; the other columns of the row are unchanged."
)
_FILTERED = "An attack, not a protection: these are estimates of the values before the noise."


@dataclass(frozen=True)
class Noise:
    """A public noise distribution.

    Attributes:
        law: `normal` (scale: standard deviation), `uniform` (scale: half of the width), `laplace` (scale: b), or
            `lognormal` (scale: standard deviation of the logarithm; multiplicative only).
        scale: a positive number.
        kind: `additive`, x + r with mean 0, or `multiplicative`, x·r with mean 1.

    >>> Noise("normal", 5).deviation
    5.0
    """

    law: Literal["normal", "uniform", "laplace", "lognormal"]
    scale: float
    kind: Literal["additive", "multiplicative"] = "additive"

    def __post_init__(self) -> None:
        allowed = ("normal", "uniform", "laplace") if self.kind == "additive" else ("lognormal", "uniform")
        if self.kind not in ("additive", "multiplicative") or self.law not in allowed:
            raise BadScale(
                "additive noise is normal, uniform or laplace; multiplicative noise is lognormal or uniform; "
                f"got {self.kind} {self.law}."
            )
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise BadScale("the scale of noise is a positive finite number.")
        if self.kind == "multiplicative" and self.law == "uniform" and self.scale >= 1:
            raise BadScale("the half-width of multiplicative uniform noise is below 1, so that no sign changes.")

    @property
    def distribution(self) -> Any:
        """The distribution of r, as a frozen distribution of scipy."""
        middle = 1.0 if self.kind == "multiplicative" else 0.0
        if self.law == "normal":
            return stats.norm(0, self.scale)
        if self.law == "laplace":
            return stats.laplace(0, self.scale)
        if self.law == "uniform":
            return stats.uniform(middle - self.scale, 2 * self.scale)
        return stats.lognorm(self.scale, scale=np.exp(-(self.scale**2) / 2))

    @property
    def deviation(self) -> float:
        """The standard deviation of r."""
        return float(self.distribution.std())

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw r for a number of cells."""
        if self.law == "normal":
            return rng.normal(0, self.scale, count)
        if self.law == "laplace":
            return rng.laplace(0, self.scale, count)
        if self.law == "uniform":
            middle = 1.0 if self.kind == "multiplicative" else 0.0
            return rng.uniform(middle - self.scale, middle + self.scale, count)
        return rng.lognormal(-(self.scale**2) / 2, self.scale, count)

    def apply(self, values: Floats, rng: np.random.Generator) -> Floats:
        """Return x + r or x·r."""
        draws = self.draw(len(values), rng)
        return values * draws if self.kind == "multiplicative" else values + draws

    def cdf(self, noisy: Floats, values: Floats) -> Floats:
        """Return the probability that a value becomes at most a noisy value; both arrays are broadcast."""
        if self.kind == "additive":
            return np.asarray(self.distribution.cdf(noisy - values))
        noisy, values = np.broadcast_arrays(noisy, values)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self.distribution.cdf(noisy / values)
        positive = np.where(values > 0, share, 1 - share)  # x·r ≤ w means r ≥ w/x for a negative x
        return np.where(values == 0, (noisy >= 0).astype(float), positive)

    def __str__(self) -> str:
        return f"{self.kind} {self.law} noise of scale {self.scale:.12g}"


def perturb(
    rows: object,
    columns: str | Iterable[str],
    noise: Noise,
    *,
    bounds: tuple[float, float] | None = None,
    keep_type: bool = False,
    random_state: int | None = None,
) -> Operated:
    """Add noise to numbers, or multiply them by it. Each cell has its own draw. NULL stays NULL.

    Args:
        rows: the table.
        columns: columns of numbers; of dates (noise in days) and timestamps (seconds) for additive noise.
        noise: the public distribution.
        bounds: limits to clip to. Clipped values no longer follow the public distribution, so leave them out where
            the distribution is to be reconstructed.
        keep_type: round to the column's own type; integers and decimals become doubles otherwise.
        random_state: a seed for tests and lessons: the noise can then be subtracted by anyone who has it.

    >>> result = perturb({"salary": [78, 90]}, "salary", Noise("uniform", 5), random_state=1)
    >>> result.log
    ('Column salary: additive uniform noise of scale 5 on 2 of 2 cells.',)
    """
    table, names = read(rows, columns)
    if bounds is not None and not (np.isfinite(bounds).all() and bounds[0] < bounds[1]):
        raise BadBounds("bounds are two finite numbers, the lower one first.")
    rng = generator(random_state)
    log = []
    for name in names:
        kind, values = table.column(name).type, to_numbers(table, name)
        temporal = not is_number(kind)
        if noise.kind == "multiplicative" and temporal:
            raise BadSchema(f"column {name} is of type {kind}: multiply numbers only, and add noise to dates.")
        noisy = noise.apply(values, rng)
        clipped = noisy if bounds is None else np.clip(noisy, *bounds)
        table = with_column(table, name, _write(clipped, kind, keep_type or temporal))
        count = int((~np.isnan(values)).sum())
        text = f"Column {name}: {noise} on {count:,} of {table.num_rows:,} cells"
        if bounds is not None:
            text += (
                f", {int((noisy != clipped)[~np.isnan(values)].sum()):,} clipped to {bounds[0]:.12g}..{bounds[1]:.12g}"
            )
        log.append(text + ".")
    return Operated(table, tuple(log), _NOTE)


def _write(values: Floats, kind: pa.DataType, keep_type: bool) -> pa.Array:
    return from_numbers(values, kind if keep_type or pa.types.is_floating(kind) else pa.float64())


def spectral_filter(rows: object, columns: Iterable[str], noise: Noise | Mapping[str, Noise]) -> Operated:
    """Estimate the values of correlated columns from values with additive noise of known variance.

    The covariance of the noisy columns is the covariance of the values plus that of the noise. After scaling every
    column by its noise, directions with an eigenvalue of about 1 are noise only. The best linear estimate shrinks a
    direction of eigenvalue e by (e − 1)/e, which is 0 there. Its log states the error that remains.

    Args:
        rows: the table with noise. Rows with a NULL in one of the columns keep their cells.
        columns: at least two columns.
        noise: the noise of all columns, or of each column by name.

    Raises:
        BadNumber: there are fewer rows than ten for each column.
    """
    table, names = read(rows, columns)
    laws = {name: noise if isinstance(noise, Noise) else noise[name] for name in names}
    if len(names) < 2:
        raise BadSchema("a spectral filter needs at least two columns.")
    if any(law.kind != "additive" for law in laws.values()):
        raise BadSchema("the filter is for additive noise. Take logarithms of columns with multiplicative noise first.")
    values = np.column_stack([to_numbers(table, name) for name in names])
    known = ~np.isnan(values).any(axis=1)
    if known.sum() < 10 * len(names):
        raise BadNumber("the filter estimates a covariance: give at least ten complete rows for each column.")
    deviations = np.array([laws[name].deviation for name in names])
    estimates, left = _filter(values[known] / deviations)
    values[known] = estimates * deviations
    log = []
    for position, name in enumerate(names):
        table = with_column(table, name, _write(values[:, position], table.column(name).type, False))
        log.append(
            f"Column {name}: {int(known.sum()):,} cells estimated; the noise has a standard deviation of "
            f"{deviations[position]:.4g}, the estimate an error of about {left[position] * deviations[position]:.4g}."
        )
    return Operated(table, tuple(log), _FILTERED)


def _filter(scaled: Floats) -> tuple[Floats, Floats]:
    """Filter values with noise of variance 1; return estimates, and the expected error of each column."""
    centre = scaled.mean(axis=0)
    eigenvalues, vectors = np.linalg.eigh(np.cov(scaled, rowvar=False))
    # Eigenvalues of pure noise scatter around 1 by about 2·sqrt(d/n) (Marchenko-Pastur): below that bound is noise.
    edge = (1 + np.sqrt(scaled.shape[1] / len(scaled))) ** 2
    signal = np.where(eigenvalues > edge, eigenvalues - 1, 0.0)
    gains = signal / (signal + 1)
    estimates = centre + (scaled - centre) @ (vectors * gains) @ vectors.T
    return estimates, np.sqrt((vectors**2) @ gains)
