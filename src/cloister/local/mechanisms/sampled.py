"""Several numbers, of which a device reports a few, by any mechanism for one number."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import Bytes, uniform
from cloister.local.base.counts import tally, valid
from cloister.local.base.number import Bounds, NumberMechanism, Segment, sums
from cloister.local.base.oracle import Kind, epsilon, read_loss
from cloister.local.base.perturb import perturbed
from cloister.local.mechanisms.duchi_vector import read_pairs
from cloister.local.mechanisms.hybrid import Hybrid
from cloister.privacy.errors import BadInput, BadLoss
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source
from cloister.privacy.number import ratio_within

__all__ = ["SampledNumbers"]

_MOST = 1 << 16
# Wang et al. 2019: one coordinate more for every 2.5 of epsilon.
_EACH = Fraction(5, 2)


@dataclass(frozen=True, slots=True)
class SampledNumbers(NumberMechanism):
    """`picked` coordinates, drawn without replacement, each reported at an equal part of epsilon. Wang et al. 2019.

    The collector averages each coordinate over the people who reported it, which has less error than padding with
    zeros. A report is, for each coordinate in rising order, its number (2 bytes, little-endian) and the inner
    mechanism's report.

    Privacy: pure: the choice of coordinates depends on no value, and the reports' ratios multiply, so
        ratio^picked <= e^epsilon exactly.
    """

    name: ClassVar[str] = "sampled-numbers"
    kind: ClassVar[Kind] = "bits"
    formula: ClassVar[str] = "(d/k) (inner variance at ε/k) + (d/k - 1) (spread of the numbers themselves)"

    pairs: tuple[tuple[Fraction, Fraction], ...]
    inner: NumberMechanism
    picked: int
    loss: Loss

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", read_pairs(self.pairs))
        amount = read_loss(self.loss, self.name)
        if len(self.pairs) > _MOST or not isinstance(self.inner, NumberMechanism) or self.inner.kind != "number":
            raise BadInput(f"{self.name} takes up to {_MOST:,} numbers, and a mechanism for one number to tell each.")
        if isinstance(self.picked, bool) or not isinstance(self.picked, int) or not 1 <= self.picked <= self.size:
            raise BadInput("picked is a whole number of coordinates, at least 1 and at most all.")
        if self.inner.epsilon * self.picked > amount or not ratio_within(
            self.inner.largest_ratio(), amount / self.picked
        ):
            raise BadLoss(f"{self.picked} reports of this mechanism cost more than {self.loss}. Use for_loss().")

    @classmethod
    def for_loss(
        cls,
        bounds: tuple[Bounds, ...] | list[Bounds],
        loss: Loss,
        inner: Callable[[Bounds, Loss], NumberMechanism] = Hybrid.for_loss,
        picked: int | None = None,
    ) -> "SampledNumbers":
        """Build the mechanism with one coordinate for every 2.5 of epsilon, at least one, by default.

        Args:
            bounds: low and high of each coordinate, public.
            loss: the loss of one report, all parts together.
            inner: makes the mechanism for one number: `Piecewise.for_loss`, `Duchi.for_loss`, …
            picked: the number of coordinates a device reports.
        """
        amount, pairs = read_loss(loss, cls.name), read_pairs(bounds)
        count = max(1, min(len(pairs), math.floor(amount / _EACH))) if picked is None else picked
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise BadInput("picked is a whole number of coordinates, at least 1 and at most all.")
        return cls(pairs, inner((-1, 1), epsilon(amount / count)), count, loss)

    @property
    def ends(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """The bounds of each coordinate."""
        return self.pairs

    @property
    def steps(self) -> int:  # type: ignore[override]  # the inner mechanism's grid
        """The steps of every coordinate's grid."""
        return self.inner.steps

    @property
    def listable(self) -> bool:  # type: ignore[override]  # as the inner mechanism
        """True if `law` can return a law in rationals."""
        return self.inner.listable

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self.pairs)

    @property
    def bits(self) -> int:
        """The number of bits per report: whole bytes for each part."""
        return 8 * self.picked * (2 + self.inner.width)

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        reports: int = self.inner.outputs**self.picked
        return math.comb(self.size, self.picked) * reports

    @property
    def parts(self) -> tuple[Segment, ...]:
        """The inner mechanism's runs."""
        return self.inner.parts

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report: for each set of coordinates in turn, of all their inner reports."""
        points = [value // self.inner.domain**axis % self.inner.domain for axis in range(self.size)]
        laws, sets = [self.inner.law(point) for point in points], math.comb(self.size, self.picked)
        return tuple(
            math.prod(chances, start=Fraction(1)) / sets
            for axes in combinations(range(self.size), self.picked)
            for chances in product(*(laws[axis] for axis in axes))
        )

    def largest_ratio(self) -> Fraction:
        """Return the ratio with all reported coordinates at their worst."""
        return self.inner.largest_ratio() ** self.picked

    def describe(self) -> dict[str, str | int]:
        """Return the public, exact facts; the inner mechanism's are marked."""
        pairs = "; ".join(f"{low} {high}" for low, high in self.pairs)
        facts: dict[str, str | int] = {"mechanism": self.name, "bits": self.bits, "width": self.width, "pairs": pairs}
        facts |= {f"inner.{fact}": value for fact, value in self.inner.describe().items()}
        return {**facts, "picked": self.picked, "loss": str(self.epsilon)}

    def _coefficients(self) -> tuple[Fraction, Fraction, Fraction]:
        """Return the variance's coefficients for equal values: k/d of the people per coordinate."""
        share = Fraction(self.size, self.picked)
        v0, v1, v2 = NumberMechanism._coefficients(self)
        return v0 * share, v1 * share, v2 * share

    @property
    def worst_variance(self) -> float:
        """The variance with values that differ as much as possible, from which the reporting people are drawn."""
        spread = Fraction(self.size, self.picked) - 1
        v0, _, v2 = self._coefficients()
        # Half of the people at each end: their numbers spread by 1, and Piecewise is at its worst there.
        return float(max(v0, v0 + v2 + spread) * self._mean_square())

    def _mean_square(self) -> Fraction:
        return sum((((high - low) / 2) ** 2 for low, high in self.pairs), Fraction(0)) / self.size


# Device: reports on a few of the numbers.


@perturbed.register
def _perturb(mechanism: SampledNumbers, values: NDArray[np.int64], source: Source) -> Bytes:
    """Return, for each reported coordinate in rising order, two bytes with its number, then the inner report."""
    each = 2 + mechanism.inner.width
    rows = np.empty((len(values), mechanism.width), dtype=np.uint8)
    coordinates = sampled_coordinates(mechanism.size, mechanism.picked, len(values), source)
    for column in range(mechanism.picked):
        coordinate = coordinates[:, column]
        report = perturbed(mechanism.inner, np.take_along_axis(values, coordinate[:, None], axis=1).ravel(), source)
        at = column * each
        rows[:, at : at + 2] = coordinate.astype("<u2").view(np.uint8).reshape(-1, 2)
        rows[:, at + 2 : at + each] = report.astype("<u8").view(np.uint8).reshape(-1, 8)[:, : each - 2]
    return rows


def sampled_coordinates(size: int, picked: int, people: int, source: Source) -> NDArray[np.int64]:
    """Return sorted rows of `picked` different coordinates, every set equally likely. Bentley & Floyd 1987.

    Of the coordinates 0 … j a uniform one is taken, or j itself if that one was taken before.
    """
    coordinates = np.empty((people, picked), dtype=np.int64)
    for column, last in enumerate(range(size - picked, size)):
        drawn = uniform(last + 1, people, source).astype(np.int64)
        taken = (coordinates[:, :column] == drawn[:, None]).any(axis=1)
        coordinates[:, column] = np.where(taken, last, drawn)
    coordinates.sort(axis=1)
    return coordinates


@valid.register
def _valid_told(mechanism: SampledNumbers, data: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the rows with coordinates in rising order and well-formed inner reports."""
    places, reports = _told(mechanism, data)
    good = (places < mechanism.size).all(axis=1) & (np.diff(places, axis=1) > 0).all(axis=1)
    return np.asarray(good & (reports < np.uint64(mechanism.inner.outputs)).all(axis=1))


@tally.register
def _some(mechanism: SampledNumbers, data: NDArray[Any]) -> NDArray[Any]:
    places, reports = _told(mechanism, data)
    flat, order = reports.ravel(), np.argsort(places.ravel(), kind="stable")
    runs = np.split(flat[order], np.searchsorted(places.ravel()[order], np.arange(1, mechanism.size)))
    return np.stack([sums(mechanism.parts, run) for run in runs])


def _told(mechanism: SampledNumbers, data: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    each = 2 + mechanism.inner.width
    padded = np.zeros((len(data) * mechanism.picked, 8), dtype=np.uint8)
    parts = np.ascontiguousarray(data, dtype=np.uint8).reshape(-1, each)
    padded[:, : each - 2] = parts[:, 2:]
    shape = len(data), mechanism.picked
    places = np.ascontiguousarray(parts[:, :2]).view("<u2").astype(np.int64)
    return places.reshape(shape), padded.view("<u8").reshape(shape)
