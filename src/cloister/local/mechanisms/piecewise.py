"""The piecewise mechanism: report a number near the true one, or, less often, one far from it."""

from dataclasses import dataclass
from typing import ClassVar

from cloister.local.base.number import POINTS, Bounds, grid_steps, read_pair, read_steps
from cloister.local.base.oracle import read_loss
from cloister.local.base.tiling import can_tile, outside
from cloister.local.mechanisms.window import Windowed, fitting
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.checks import count
from cloister.privacy.number import exp_up

__all__ = ["Piecewise"]


@dataclass(frozen=True, slots=True)
class Piecewise(Windowed):
    """A window of likely reports that moves with the number. Wang et al. 2019 (PM), on integers.

    The grid point k = 0 … steps has the window k·shift … k·shift + window - 1 among the reports 0 … reach + window - 1,
    where reach = steps·shift. Each report in the window has probability p, each other one q: the pieces to the left
    and right are weighted by their lengths, which the textbook's listing 5.4 does not do (spec E-04: no finite
    epsilon). The window is about reach·e^(-epsilon/2) wide, which makes the variance least.

    A device, in any language, reads one word u of 8 bytes, little-endian, and sends

        k·shift + u div P                      if u < window·P, where P = p·2^64,
        v, or v + window if v >= k·shift       otherwise, where v = (u - window·P) div Q and Q = q·2^64,

    in integers throughout: window·P + reach·Q is exactly 2^64. On the wire the report is little-endian.

    Privacy: pure, p/q <= e^epsilon exactly; verified by enumeration in tests/unit/local/test_numbers.py.

    >>> from cloister.local import epsilon
    >>> age = Piecewise.for_loss((17, 90), epsilon(1))
    >>> age.steps, age.window, age.bits, round(age.worst_variance / 36.5**2, 3)
    (31974, 19393, 16, 5.224)
    """

    name: ClassVar[str] = "piecewise"
    formula: ClassVar[str] = "(t² / (e^(ε/2)-1) + (e^(ε/2)+3) / (3 (e^(ε/2)-1)²)) r² / n"

    @classmethod
    def for_loss(
        cls, bounds: Bounds, loss: Loss, steps: int | None = None, shift: int | None = None, window: int | None = None
    ) -> "Piecewise":
        """Build the mechanism with the window of least worst-case variance; q is rounded up to a multiple of 2^-64.

        Args:
            bounds: low and high, public; values beyond them are clipped.
            loss: the loss of one report, replace-one.
            steps: of the grid; default about 32,000, such that integers are grid points.
            shift: reports from one window to the next; default the most that keeps a report within two bytes.
            window: the number of likely reports; default the best number.
        """
        amount = read_loss(loss, cls.name)
        low, high = read_pair(bounds)
        steps = read_steps(grid_steps(bounds) if steps is None else steps, cls.name)
        shift = max(1, POINTS // steps) if shift is None else count(shift, "shift")
        window = fitting(1 / exp_up(amount / 2), steps * shift) if window is None else count(window, "window")
        if not can_tile(window, steps * shift):
            raise BadInput("no odd number may divide both the window and steps times shift: words would be left over.")
        return cls(low, high, steps, shift, window, outside(window, steps * shift, amount), loss)
