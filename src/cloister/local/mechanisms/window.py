"""Shared parts of mechanisms with a moving window: likely reports around the value, all others less likely."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.coins import Words, tossed
from cloister.local.base.dyadic import threshold
from cloister.local.base.number import NumberMechanism, Segment, read_ends, read_steps
from cloister.local.base.oracle import read_loss
from cloister.local.base.perturb import perturbed
from cloister.local.base.tiling import can_tile, inside
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.noise.source import Source

__all__ = ["Windowed", "fitting", "windowed"]


@dataclass(frozen=True, slots=True)
class Windowed(NumberMechanism):
    """The grid point k = 0 … steps has the window k·shift … k·shift + window - 1 among reach + window reports.

    Attributes:
        low, high: bounds of the number.
        steps: of the grid.
        shift: reports from one window to the next.
        window: the number of likely reports.
        q: the probability of each report outside.
        loss: the loss of a report.

    Privacy: pure, p/q <= e^epsilon exactly.
    """

    low: Fraction
    high: Fraction
    steps: int
    shift: int
    window: int
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        read_ends(self)
        read_loss(self.loss, self.name)
        read_steps(self.steps, self.name)
        for field in ("shift", "window"):
            if isinstance(getattr(self, field), bool) or not isinstance(getattr(self, field), int):
                raise BadInput(f"{field} is a whole number of reports.")
        if not (self.shift >= 1 and self.window >= 1 and self.outputs <= 1 << 32):
            raise BadInput("shift and window are at least 1, and there are at most 2^32 reports.")
        inside(self.window, self.reach, self.q)
        self._certify()

    @property
    def reach(self) -> int:
        """The number of reports outside a window."""
        return self.steps * self.shift

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from q
        """The probability of each report in the window."""
        return inside(self.window, self.reach, self.q)

    @property
    def outputs(self) -> int:
        """The number of different reports."""
        return self.reach + self.window

    @property
    def parts(self) -> tuple[Segment, ...]:
        """One run: the position of a window is a straight line in the value."""
        return (_moments(self.window, self.reach, self.p, self.q),)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this grid point."""
        first = value * self.shift
        return tuple(self.p if first <= report < first + self.window else self.q for report in range(self.outputs))

    def largest_ratio(self) -> Fraction:
        """Return the ratio of a report in one point's window and outside another's."""
        return self.p / self.q

    def describe(self) -> dict[str, str | int]:
        """Return the public, exact facts, with p."""
        return {**NumberMechanism.describe(self), "p": str(self.p)}


def fitting(share: Fraction, reach: int) -> int:
    """Return the window nearest to a share of the reach with which all words can be divided."""
    near = max(1, round(share * reach))
    return next(
        window for gap in range(near) for window in (near - gap, near + gap) if can_tile(window, reach)
    )  # a window of 1 always can


def _moments(window: int, reach: int, p: Fraction, q: Fraction) -> Segment:
    """Return the moments of a report: q everywhere, and p - q more in a window that begins at c = reach (1 + t) / 2."""
    w, n, more, half = window, reach + window, p - q, Fraction(reach, 2)
    linear, squares = Fraction(w * (w - 1), 2), Fraction((w - 1) * w * (2 * w - 1), 6)
    flat, flat_squares = q * n * (n - 1) / 2, q * (n - 1) * n * (2 * n - 1) / 6
    # Sums over the window of c + i and of (c + i)², with c = half + half·t.
    mean = more * (w * half + linear) + flat, more * w * half
    square = (
        more * (w * half**2 + 2 * linear * half + squares) + flat_squares,
        more * (2 * w * half**2 + 2 * linear * half),
        more * w * half**2,
    )
    return Segment(0, n, Fraction(1), mean, square)


# Device: one word.


@perturbed.register
def _windowed(mechanism: Windowed, values: NDArray[np.int64], source: Source) -> Words:
    """Return a report in the window or outside it."""
    return windowed(mechanism, values, tossed(len(values), source))


def windowed(mechanism: Windowed, values: NDArray[np.int64], word: Words) -> Words:
    """Return reports: the first window·P words are in the window, P a report; the others around it, Q a report.

    Subtractions wrap where their branch is not the one taken, and are not used there.
    """
    p, q = (np.uint64(threshold(chance)) for chance in (mechanism.p, mechanism.q))
    window, first = np.uint64(mechanism.window), values.astype(np.uint64) * np.uint64(mechanism.shift)
    rest = (word - window * p) // q
    far = rest + np.where(rest >= first, window, np.uint64(0))
    return np.where(word < window * p, first + word // p, far)
