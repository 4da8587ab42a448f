"""Numbers with a hidden class: one component per class, zero except for the true class, noise on each."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from cloister.local.base.oracle import Floats, Kind, Oracle, Reports, read_domain, read_loss
from cloister.privacy.errors import BadInput, BadLoss
from cloister.privacy.loss import Loss
from cloister.privacy.number import short_above

if TYPE_CHECKING:
    from cloister.privacy.noise import Source
from numpy.typing import NDArray

from cloister.local.base.counts import chosen, frequencies, tally, valid
from cloister.local.base.intervals import Spread, known_noise, spread_of
from cloister.privacy.mechanisms.randomised_response import answers_of
from cloister.privacy.noise import discrete_laplace
from cloister.privacy.noise.source import SYSTEM, Source

__all__ = ["STEPS", "LabelledNumber"]

# A number in [-1, 1] is an integer of this many steps; the rounding error is far below any noise.
STEPS = 1 << 12


@dataclass(frozen=True, slots=True)
class LabelledNumber(Oracle):
    """For each number in [-1, 1] a vector with one component a class: the number at the true class, zero elsewhere.

    Label hiding (spec LDP-23): the sum of column j is the sum of the numbers of class j, and no report reveals its
    class. Discrete Laplace noise on integers, on every component. Two such vectors differ by at most 2 in L1 norm,
    whether their classes are the same (|b - b'|) or not (|b| + |b'|), so each number adds 2 to the sensitivity.

    The shares of `estimate` are here the means of number · [class is j], one for each number and class.

    Privacy: pure, the log of the largest ratio is 2·numbers·STEPS/scale <= epsilon exactly. A component beyond `limit`
        is cut on the device, which is post-processing.

    >>> from cloister.local import epsilon
    >>> hidden = LabelledNumber(2, 1, epsilon(1))
    >>> hidden.scale / STEPS, hidden.domain, hidden.log_ratio()
    (Fraction(2, 1), 2, Fraction(1, 1))
    """

    name: ClassVar[str] = "labelled-number"
    kind: ClassVar[Kind] = "vector"
    formula: ClassVar[str] = "near 8 m² / (n ε²) for m numbers"

    classes: int
    numbers: int
    loss: Loss

    def __post_init__(self) -> None:
        read_domain(self.classes, self.name, 1 << 16)
        if isinstance(self.numbers, bool) or not isinstance(self.numbers, int) or not 1 <= self.numbers <= 1 << 12:
            raise BadInput("numbers is how many numbers one report holds: 1 to 4,096.")
        read_loss(self.loss, self.name)
        if self.limit >= 1 << 31:
            raise BadLoss(f"{self.name} cannot write noise for {self.loss} in 32 bits. Raise it, or ask fewer numbers.")

    @property
    def domain(self) -> int:  # type: ignore[override]  # how many components a report has
        """Components of a report: number · classes + class."""
        return self.classes * self.numbers

    @property
    def sensitivity(self) -> int:
        """The largest L1 distance of two people's vectors, in steps."""
        return 2 * self.numbers * STEPS

    @property
    def scale(self) -> Fraction:
        """The scale of the noise in steps: sensitivity/epsilon, rounded up if its terms are too long."""
        return short_above(self.sensitivity / self.epsilon)

    @property
    def limit(self) -> int:
        """The largest component: honest noise exceeds it with probability below 2^-64."""
        return STEPS + math.ceil(45 * self.scale)

    @property
    def bits(self) -> int:
        """The number of bits per report: 32 a component on the wire."""
        return 32 * self.domain

    def log_ratio(self) -> Fraction:
        """Return the log of the largest likelihood ratio."""
        return self.sensitivity / self.scale

    def variance(self, frequencies: ArrayLike, people: int) -> Floats:
        """Return the noise variance of each mean: twice e^(-1/scale) / (1 - e^(-1/scale))² steps² a person."""
        x = float(1 / self.scale)
        each = 2 * math.exp(-x) / math.expm1(-x) ** 2 / STEPS**2
        return np.full(np.shape(frequencies), each / people)

    def describe(self) -> dict[str, str | int]:
        """Return the public, exact facts, with the scale."""
        facts: dict[str, str | int] = {"domain": self.domain, "steps": STEPS, "scale": str(self.scale)}
        return {**Oracle.describe(self), **facts, "limit": self.limit}

    def perturb(self, values: Any, source: "Source | None" = None) -> Reports:
        """Perturb people's classes and numbers.

        Args:
            values: a pair: classes, integers in [0, classes), one a person; and numbers, a row of `numbers` of
                them a person, cut to [-1, 1].
            source: the source of random bits; default the operating system's.

        Privacy: costs each person the mechanism's loss, once.
        """
        return perturb(self, values, source)


# Device: to the grid, to the component of the class, and noise on every component.


_PEOPLE = 1 << 12


def perturb(mechanism: LabelledNumber, values: Any, source: Source | None = None) -> Reports:
    """Return reports for a pair (classes, numbers), one row a person.

    Privacy: costs each person the mechanism's loss. A refused value is not shown in the error, and nothing is sent.
    """
    drawn_from = source or SYSTEM
    try:
        labels, numbers = values
    except (TypeError, ValueError):
        raise BadInput("labelled numbers are a pair: people's classes, and their numbers.") from None
    classes = np.atleast_1d(answers_of(labels, mechanism.classes)).ravel()
    rows = np.asarray(numbers)
    if rows.dtype.kind not in "biuf" or rows.size != classes.size * mechanism.numbers or np.isnan(rows).any():
        raise BadInput(f"each person has {mechanism.numbers} numbers in [-1, 1], none of them missing.")
    # Rounding is monotone and the ends are on the grid, so no step count is beyond ±STEPS.
    steps = np.floor(np.clip(rows.reshape(classes.size, -1), -1, 1) * STEPS + 0.5).astype(np.int64)
    return Reports(mechanism, labelled(mechanism, classes, steps, drawn_from), drawn_from.private)


def labelled(
    mechanism: LabelledNumber, classes: NDArray[np.int64], steps: NDArray[np.int64], source: Source
) -> NDArray[np.int32]:
    """Return one row of integers a person, number · classes + class, cut at the limit."""
    sent = np.empty((len(classes), mechanism.domain), dtype=np.int32)
    places = mechanism.classes * np.arange(mechanism.numbers)
    for start in range(0, len(classes), _PEOPLE):
        labels, numbers = classes[start : start + _PEOPLE], steps[start : start + _PEOPLE]
        noisy = discrete_laplace(mechanism.scale, (len(labels), mechanism.domain), source)
        noisy[np.arange(len(labels))[:, None], places + labels[:, None]] += numbers
        sent[start : start + _PEOPLE] = np.clip(noisy, -mechanism.limit, mechanism.limit)
    return sent


# Collector: the sum of the vectors.


@valid.register
def _valid(mechanism: LabelledNumber, data: NDArray[Any]) -> NDArray[np.bool_]:
    """Refuse components beyond the limit: without it one fake could move a sum arbitrarily."""
    limit = mechanism.limit
    return np.asarray(((data >= -limit) & (data <= limit)).all(axis=1))


@tally.register
def _sums(mechanism: LabelledNumber, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.asarray(data.sum(axis=0, dtype=np.int64))


@frequencies.register
def _means(
    mechanism: LabelledNumber, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(table / (people * STEPS), values)


@spread_of.register
def _noise(
    mechanism: LabelledNumber, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    return known_noise(len(shares), n, float(mechanism.scale), STEPS)
