"""The square wave: reports from which a whole distribution is rebuilt, not its mean alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from cloister.local.base.number import Bounds, read_pair, read_steps
from cloister.local.base.oracle import read_loss
from cloister.local.base.tiling import outside
from cloister.local.mechanisms.window import Windowed, fitting
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms.checks import count
from cloister.privacy.number import Number, exp_down

if TYPE_CHECKING:
    from cloister.local.collector.counts import Counts
    from cloister.local.collector.square_wave import DistributionEstimate

__all__ = ["SquareWave"]

# Reports are cut finer than values, such that a window begins and ends where it should.
_REACH = 256
# Numbers that are not whole get so many steps: more could not be told apart by a hundred thousand people.
_STEPS = 256
# Whole bounds so far apart are taken to mean whole numbers.
_WHOLE = range(4, 1025)


@dataclass(frozen=True, slots=True)
class SquareWave(Windowed):
    """A window that moves with the number, as in Piecewise, but wider. Li et al. 2020 (SW), on integers.

    Its width is the one that lets reports tell most about values: 2b = (ε e^ε - e^ε + 1) / (e^ε (e^ε - 1 - ε)) of the
    range. Devices do what they do for Piecewise, with the same fields and the same word. The collector rebuilds the
    shares of all grid points by expectation and maximisation, with smoothing (EMS) unless told otherwise.

    Privacy: pure, p/q <= e^epsilon exactly; verified by enumeration in tests/unit/test_local_numbers.py.

    >>> from cloister.local import epsilon
    >>> age = SquareWave.for_loss((17, 90), epsilon(1))
    >>> age.steps, age.shift, age.window, age.bits
    (73, 3, 112, 9)
    """

    name: ClassVar[str] = "square-wave"
    formula: ClassVar[str] = "no closed form: the estimate carries a bootstrap error for every share"

    @classmethod
    def for_loss(cls, bounds: Bounds, loss: Loss, steps: int | None = None, shift: int | None = None) -> "SquareWave":
        """With the window that tells most; q is rounded up to a multiple of 2^-64.

        Args:
            bounds: low and high, public; values beyond them are clipped.
            loss: what one report may cost, replace-one.
            steps: of the grid whose points get shares; whole numbers between whole bounds that are 4 to 1,024
                apart, else 256 steps.
            shift: reports from one window to the next; about 256 outside a window unless given.
        """
        amount = read_loss(loss, cls.name)
        low, high = read_pair(bounds)
        if steps is None:
            width = high - low
            steps = int(width) if low.denominator == width.denominator == 1 and width in _WHOLE else _STEPS
        read_steps(steps, cls.name, 1 << 14)
        shift = max(1, _REACH // steps) if shift is None else count(shift, "shift")
        power = exp_down(amount)
        share = (amount * power - power + 1) / (power * (power - 1 - amount))
        window = fitting(share, steps * shift)
        return cls(low, high, steps, shift, window, outside(window, steps * shift, amount), loss)

    def estimate(  # type: ignore[override]  # a distribution, not a mean
        self, counts: "Counts", confidence: Number = "0.95", method: Literal["ems", "em"] = "ems"
    ) -> "DistributionEstimate":
        """The shares of all grid points, each with a bootstrap error and interval.

        Args:
            counts: what `aggregate` returned, or a sum of such.
            confidence: of each interval alone.
            method: `"ems"` smooths neighbouring shares in every round; `"em"` does not, for spiky distributions.
        """
        from cloister.local.collector import square_wave

        return square_wave.estimate(self, counts, confidence, method)
