"""First release of a descent: the number of rows, their mean and their spread.

One release of features + 2 numbers, at a twentieth of the spend. It replaces three things that would otherwise have to
be known or guessed: the step size (from the number of rows), the centring (one-hot columns and positive numbers are far
from the origin, and half of the gradient noise would go to their mean), and the norm that gradients are clipped to.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cloister.learn.base.frame import Floats, Frame, squares
from cloister.learn.base.integer_rows import ROW_BITS, Integers
from cloister.privacy.budget_split import BudgetShare
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace

__all__ = ["SHARE", "ScaleProbe", "root_above", "probe_scale"]

SHARE = Fraction(1, 20)
_ONE = 2**ROW_BITS


@dataclass(frozen=True, slots=True)
class ScaleProbe:
    """Released scale of the rows.

    Attributes:
        rows: approximate number of rows; at least one, and no less than the noise could hide.
        middle: approximate mean, in the frame.
        spread: approximate root mean squared distance from it.
        stretch: the factor of each feature applied afterwards; `spread` is that of the stretched rows.
        noise: the standard deviation of the noise on `rows`; 0 if their number is public.
    """

    rows: float
    middle: Floats
    spread: float
    stretch: Floats
    noise: float = 0.0


def probe_scale(
    meter: PrivacyFilter, budget: BudgetShare, frame: Frame, look: Callable[[], Floats], rows: int | None
) -> ScaleProbe:
    """Release the number, mean and spread of the rows.

    Args:
        meter, budget: the privacy filter and the budget to charge.
        frame: the public scaling of the rows.
        look: returns the scaled rows.
        rows: the number of rows, if it is public.

    Privacy: a twentieth of the budget. A row adds a vector of norm at most 2^ROW_BITS, 2^ROW_BITS for its count, and at
        most that for its squared norm: sqrt(3) 2^ROW_BITS in L2, (sqrt(features) + 2) 2^ROW_BITS in L1.
    """
    d, loss = frame.features, budget.part(SHARE)
    law: DiscreteGaussian | DiscreteLaplace
    if budget.pure:
        law = DiscreteLaplace.for_loss(root_above(d * _ONE**2) + 2 * _ONE, loss)
    else:
        law = DiscreteGaussian.for_loss(root_above(3 * _ONE**2), loss)
    released = np.asarray(meter.release(lambda: _totals(frame.cells(look())), law), dtype=np.float64) / _ONE
    noise = law.standard_error / _ONE
    count = max(float(released[d]) if rows is None else float(rows), 2 * noise, 1.0)
    middle = released[:d] / count * frame.reach
    middle = np.clip(middle, -0.5, 0.5) if not frame.round else _within(middle, frame.reach)
    # The noise adds its variance to the squared norm of the mean.
    around = float(released[d + 1]) / count * frame.reach**2 - float(middle @ middle) + d * (noise / count) ** 2
    spread = math.sqrt(min(max(around, frame.reach**2 / 100), frame.reach**2))
    return ScaleProbe(count, middle, spread, np.ones(d), noise if rows is None else 0.0)


def _totals(cells: Floats) -> Integers:
    lengths = np.floor(squares(cells) / _ONE)
    return np.concatenate([cells.sum(axis=0), [len(cells) * float(_ONE), lengths.sum()]]).astype(np.int64)


def _within(point: Floats, reach: float) -> Floats:
    return np.asarray(point * min(1.0, reach / max(float(np.linalg.norm(point)), 1e-300)))


def root_above(square: int) -> int:
    """Return the smallest integer whose square is at least this one."""
    return math.isqrt(square - 1) + 1
