"""Private cuts of numbers: bins that hold about equally many rows, found within the spend.

    synth.mst(ds, spend=…, bins=synth.PrivateCuts(16))

Equal bins between wide public bounds are mostly empty. A tenth of the spend measures a histogram of each number and
date in 256 equal bins; the cuts are its quantiles, and the ends of the range where rows clearly are. Coinciding cuts
are merged.

Privacy: histograms over public bins, with noise; cuts are post-processing of them. Cuts at exact quantiles would be
values of rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.privacy.errors import BadBounds
from cloister.privacy.filter import BudgetShare
from cloister.synth.domain.axis import MOST_CELLS, Axis

if TYPE_CHECKING:
    from cloister.synth.domain.domain import Domain
    from cloister.synth.measure.marginals import Floats, Measurer

__all__ = ["FINE", "PrivateCuts", "quantile_cuts", "with_cuts"]

FINE = 256
_FEWEST = 3
_LEAST_SHARE = Fraction(1, 1000)
_CLEAR = 4  # standard errors
_FAR = 0.005  # the share of rows beyond the outermost cuts, on either side


@dataclass(frozen=True, slots=True)
class PrivateCuts:
    """Request to cut numbers and dates at private quantiles.

    Attributes:
        bins: maximum number of bins of each column.
        share: share of the spend that pays for the cuts.
    """

    bins: int = 32
    share: Fraction | str = Fraction(1, 10)

    @property
    def most_bins(self) -> int:
        """Return the maximum number of bins of a column, not counting bins that a schema rule cuts."""
        return max(self.bins, 2 * _FEWEST + 1)

    def __post_init__(self) -> None:
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or not _FEWEST <= self.bins <= MOST_CELLS:
            raise BadBounds(f"bought cuts make {_FEWEST} to {MOST_CELLS} bins.")
        try:
            share = Fraction(self.share)
        except (OverflowError, TypeError, ValueError, ZeroDivisionError):
            share = Fraction(0)
        if not _LEAST_SHARE <= share <= 1 - _LEAST_SHARE:
            raise BadBounds(f"the share of the spend that buys cuts is from {float(_LEAST_SHARE)} to 0.999.")


def with_cuts(
    survey: "Measurer", wanted: PrivateCuts, fine: "Domain", read: Callable[[Mapping[str, Any]], "Domain"]
) -> tuple["Measurer", str]:
    """Measure cuts; return a survey of the new cells with the rest of the spend, and a description of the cuts.

    Args:
        survey: a survey of equal bins, with the whole spend.
        wanted: the number of bins and the share for them.
        fine: the same columns in many equal bins, without rules, which matter for cells and not for single columns.
        read: returns the domain for given bins of some columns.

    Privacy: the share, for one histogram of each binned column: L2 sensitivity √k·m, L1 k·m.
    """
    names = [axis.name for axis in survey.domain.modelled if axis.ends is not None]
    if not names:
        return survey, "no column has bins: no cuts were bought"
    looking = replace(survey, domain=fine, _exact={})
    share = Fraction(wanted.share)
    positions = [(fine.positions[name],) for name in names]
    marginals = looking.measure(positions, survey.budget.part(share), why="cuts")
    cuts = {
        name: quantile_cuts(fine.axis(name), marginal.counts, float(np.mean(marginal.sigma)), wanted.bins)
        for name, marginal in zip(names, marginals, strict=True)
    }
    rest = BudgetShare(survey.budget.part(1 - share))
    return replace(survey, domain=read(cuts), budget=rest, _exact={}), f"cuts of {', '.join(names)}"


def quantile_cuts(axis: Axis, counts: "Floats", sigma: float, bins: int) -> list[Any]:
    """Return inner ends of bins with about equally many rows, as column values; the outermost two hold few.

    Args:
        axis: many equal bins.
        counts: noisy number of rows in each.
        sigma: standard deviation of the noise. Counts not clearly above it are treated as zero.
        bins: maximum number of bins.
    """
    present = counts[: axis.known]
    weights = np.where(present > _CLEAR * sigma, present, 0.0)
    if not weights.any():
        weights = np.ones(axis.known)
    # A column of few whole numbers has a cell for each: it reaches to the next number.
    steps = axis.ends or [axis.number(value) for value in axis.values or ()]
    ends = np.array([*steps, *([] if axis.ends else [steps[-1] + 1.0])])
    below = np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum()
    ranks = np.arange(1, bins - 2) / (bins - 2)
    middle = np.interp(ranks, below + 1e-9 * np.arange(len(below)), ends)
    # Whole bins at both ends: a single outlying bin made by noise is not worth a wide bin of its own.
    first = int(np.searchsorted(below, _FAR, side="right")) - 1
    last = int(np.searchsorted(below, 1 - _FAR, side="left"))
    inner = [ends[first], *middle, ends[last]]
    low, high = axis.value(float(ends[0])), axis.value(float(ends[-1]))  # beyond the last one, where all have cells
    cuts = sorted({axis.value(float(end)) for end in inner} - {low, high})
    if len(cuts) < _FEWEST - 1:  # all rows in one place: a few equal bins beside it, so that numbers stay numbers
        even = np.linspace(ends[0], ends[-1], 2 * _FEWEST)[1:-1]
        cuts = sorted({*cuts, *(axis.value(float(end)) for end in even)} - {low, high})
    return [cut for cut in cuts if low < cut < high]
