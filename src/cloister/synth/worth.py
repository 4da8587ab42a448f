"""What is worth its noise: which moments are bought, and how small groups may be.

A product whose noise is as large as itself tells nothing, and what it cost is missing elsewhere. The noise is known
before anything is bought; how many rows it is to be compared with was released.

Privacy: from public sizes and released counts; nothing here sees a row.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

from cloister.privacy.loss import Loss
from cloister.synth.features import ONE
from cloister.synth.marginals import Survey, deviation
from cloister.synth.moments import law_of_moments
from cloister.synth.singles import Singles

__all__ = ["Worth", "clear_rows", "what_is_worth"]

_WORTH = 0.1  # products whose mean has more noise than this are not bought
_RARE = 4  # a category has so many times more rows than the noise on a product
_CLEAR = 150  # so has a group: on Adult fewer rows made worse tables than one group of all


@dataclass(frozen=True, slots=True)
class Worth:
    """How the rest of a spend is used.

    Attributes:
        crossed: whether products of columns are worth their noise.
        together: the share that buys moments of all rows.
        cuts, groups: the shares that buy groups and their moments; 0 if they would be noise.
        least: the share of rows that a category needs to have a covariance.
    """

    crossed: bool
    together: Fraction
    cuts: Fraction
    groups: Fraction
    least: float


def what_is_worth(survey: Survey, singles: Singles, rest: Fraction, columns: int, largest: int, size: int) -> Worth:
    """Divide what single columns have left.

    Args:
        survey: pays.
        singles: tell how many rows there are, about.
        rest: the share of the spend that is left.
        columns: beside the label.
        largest: how many columns a set has at most.
        size: about how many rows a group should have.
    """
    grown = sqrt(len(singles.classes))
    crossed = _noise(survey, columns, survey.purse.part(rest)) * grown < _WORTH * singles.total
    together, cuts, groups = rest * 5 / 10, rest * 1 / 10, rest * 4 / 10
    smallest = max(size, clear_rows(survey, min(largest, columns), survey.purse.part(groups)))
    if not crossed or singles.total / len(singles.classes) < 2 * smallest:
        together, cuts, groups = rest, Fraction(0), Fraction(0)
    least = _RARE * _noise(survey, columns, survey.purse.part(together)) * grown / singles.total
    return Worth(crossed, together, cuts, groups, least)


def clear_rows(survey: Survey, columns: int, loss: Loss) -> float:
    """How many rows a group of some columns needs for moments that stand out of their noise."""
    return _CLEAR * _noise(survey, columns, loss, weighed=True)


def _noise(survey: Survey, columns: int, loss: Loss, weighed: bool = False) -> float:
    """The standard deviation of the noise on a sum of products, in rows."""
    law, _ = law_of_moments(survey, columns, loss, weighed=weighed)
    return deviation(law, ONE**2 * survey.whole)
