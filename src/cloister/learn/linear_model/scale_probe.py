"""The first look of a descent: how many rows there are, where their middle is, how far from it they lie.

One release of features + 2 numbers, at a twentieth of the spend. It replaces three things that would otherwise have to
be known or guessed: the step size (from the number of rows), the centring (one-hot columns and positive numbers lie
far from the origin, and half of gradient noise is spent on their mean), and the length at which gradients are clipped.
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
    """What was released.

    Attributes:
        rows: about how many there are; at least one, and no less than the noise could hide.
        middle: about their mean, in the frame.
        spread: about the root of their mean squared distance from it.
        stretch: what each feature is multiplied by afterwards; `spread` is that of the stretched rows.
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
    """Look once.

    Args:
        meter, budget: pay.
        frame: where rows lie.
        look: gives the scaled rows.
        rows: their number, if it is public.

    Privacy: a twentieth of the budget. A row adds a vector of length at most 2^ROW_BITS, that much for itself, and at
        most that much for its squared length: sqrt(3) 2^ROW_BITS in L2, (sqrt(features) + 2) 2^ROW_BITS in L1.
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
    # The noise makes the mean longer, by its own variance.
    around = float(released[d + 1]) / count * frame.reach**2 - float(middle @ middle) + d * (noise / count) ** 2
    spread = math.sqrt(min(max(around, frame.reach**2 / 100), frame.reach**2))
    return ScaleProbe(count, middle, spread, np.ones(d), noise if rows is None else 0.0)


def _totals(cells: Floats) -> Integers:
    lengths = np.floor(squares(cells) / _ONE)
    return np.concatenate([cells.sum(axis=0), [len(cells) * float(_ONE), lengths.sum()]]).astype(np.int64)


def _within(point: Floats, reach: float) -> Floats:
    return np.asarray(point * min(1.0, reach / max(float(np.linalg.norm(point)), 1e-300)))


def root_above(square: int) -> int:
    """The smallest integer whose square is not below this one."""
    return math.isqrt(square - 1) + 1
