"""The piecewise mechanism: report a number near your own, or, less often, one far from it."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from cloister.local.number import POINTS, Bounds, NumberMechanism, Part, grid_steps, read_ends, read_pair, read_steps
from cloister.local.oracle import read_loss
from cloister.local.tiling import can_tile, inside, outside
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.checks import count
from cloister.privacy.number import exp_up

__all__ = ["Piecewise", "check_window", "fitting", "window_law", "window_part"]


@dataclass(frozen=True, slots=True)
class Piecewise(NumberMechanism):
    """A window of likely reports that moves with the number. Wang et al. 2019 (PM), on integers.

    The grid point k = 0 … steps has the window k·shift … k·shift + window - 1 among the reports 0 … reach + window - 1,
    where reach = steps·shift. Each report in the window has probability p, each other one q: the pieces to the left
    and right are weighted by their lengths, which the textbook's listing 5.4 does not do (spec E-04: no finite
    epsilon). The window is about reach·e^(-epsilon/2) wide, which makes the variance least.

    A device, in any language, reads one word u of 8 bytes, little-endian, and sends

        k·shift + u div P                      if u < window·P, where P = p·2^64,
        v, or v + window if v >= k·shift       otherwise, where v = (u - window·P) div Q and Q = q·2^64,

    in whole numbers throughout: window·P + reach·Q is exactly 2^64. On the wire the report is little-endian.

    Privacy: pure, p/q <= e^epsilon exactly; verified by enumeration in tests/unit/test_local_numbers.py.

    >>> from cloister.local import epsilon
    >>> age = Piecewise.for_loss((17, 90), epsilon(1))
    >>> age.steps, age.window, age.bits, round(age.worst_variance / 36.5**2, 3)
    (31974, 19393, 16, 5.224)
    """

    name: ClassVar[str] = "piecewise"
    formula: ClassVar[str] = "(t² / (e^(ε/2)-1) + (e^(ε/2)+3) / (3 (e^(ε/2)-1)²)) r² / n"

    low: Fraction
    high: Fraction
    steps: int
    shift: int
    window: int
    q: Fraction
    loss: Loss

    def __post_init__(self) -> None:
        check_window(self)

    @classmethod
    def for_loss(
        cls, bounds: Bounds, loss: Loss, steps: int | None = None, shift: int | None = None, window: int | None = None
    ) -> "Piecewise":
        """With the window of least worst-case variance; q is rounded up to a multiple of 2^-64.

        Args:
            bounds: low and high, public; values beyond them are clipped.
            loss: what one report may cost, replace-one.
            steps: of the grid; about 32,000 unless given, such that whole numbers lie on it.
            shift: reports from one window to the next; as many as keep a report within two bytes unless given.
            window: how many reports are likely; the best number unless given.
        """
        amount = read_loss(loss, cls.name)
        low, high = read_pair(bounds)
        steps = read_steps(grid_steps(bounds) if steps is None else steps, cls.name)
        shift = max(1, POINTS // steps) if shift is None else count(shift, "shift")
        window = fitting(1 / exp_up(amount / 2), steps * shift) if window is None else count(window, "window")
        if not can_tile(window, steps * shift):
            raise BadInput("no odd number may divide both the window and steps times shift: words would be left over.")
        return cls(low, high, steps, shift, window, outside(window, steps * shift, amount), loss)

    @property
    def reach(self) -> int:
        """How many reports lie outside a window."""
        return self.steps * self.shift

    @property
    def p(self) -> Fraction:  # type: ignore[override]  # follows from q
        """The probability of each report in the window."""
        return inside(self.window, self.reach, self.q)

    @property
    def outputs(self) -> int:
        """How many different reports there are."""
        return self.reach + self.window

    @property
    def parts(self) -> tuple[Part, ...]:
        """One run: the place of a window is a straight line in the value."""
        return (window_part(self.window, self.reach, self.p, self.q),)

    def law(self, value: int) -> tuple[Fraction, ...]:
        """The probability of every report on this grid point."""
        return window_law(value * self.shift, self.window, self.outputs, self.p, self.q)

    def largest_ratio(self) -> Fraction:
        """A report in one point's window and outside another's."""
        return self.p / self.q

    def describe(self) -> dict[str, str | int]:
        """Public and exact, with p."""
        return {**NumberMechanism.describe(self), "p": str(self.p)}


def fitting(share: Fraction, reach: int) -> int:
    """The window nearest to a share of the reach with which all words can be shared out."""
    near = max(1, round(share * reach))
    return next(
        window for gap in range(near) for window in (near - gap, near + gap) if can_tile(window, reach)
    )  # a window of 1 always can


def check_window(mechanism: "NumberMechanism") -> None:
    """Read the fields of a mechanism with a window, and certify it."""
    facts: Piecewise = mechanism  # type: ignore[assignment]  # or a square wave, which has the same fields
    read_ends(facts)
    read_loss(facts.loss, facts.name)
    read_steps(facts.steps, facts.name)
    for field in ("shift", "window"):
        if isinstance(getattr(facts, field), bool) or not isinstance(getattr(facts, field), int):
            raise BadInput(f"{field} is a whole number of reports.")
    if not (facts.shift >= 1 and facts.window >= 1 and facts.outputs <= 1 << 32):
        raise BadInput("shift and window are at least 1, and there are at most 2^32 reports.")
    inside(facts.window, facts.reach, facts.q)
    facts._certify()


def window_law(first: int, window: int, outputs: int, p: Fraction, q: Fraction) -> tuple[Fraction, ...]:
    """p in the window that begins at `first`, q elsewhere."""
    return tuple(p if first <= report < first + window else q for report in range(outputs))


def window_part(window: int, reach: int, p: Fraction, q: Fraction) -> Part:
    """Moments of a report: q everywhere, and p - q more in a window that begins at c = reach (1 + t) / 2."""
    w, n, more, half = window, reach + window, p - q, Fraction(reach, 2)
    ones, squares = Fraction(w * (w - 1), 2), Fraction((w - 1) * w * (2 * w - 1), 6)
    flat, flat_squares = q * n * (n - 1) / 2, q * (n - 1) * n * (2 * n - 1) / 6
    # Sums over the window of c + i and of (c + i)², with c = half + half·t.
    mean = more * (w * half + ones) + flat, more * w * half
    square = (
        more * (w * half**2 + 2 * ones * half + squares) + flat_squares,
        more * (2 * w * half**2 + 2 * ones * half),
        more * w * half**2,
    )
    return Part(0, n, Fraction(1), mean, square)
