"""A noisy histogram of one column: released once, then queried for any range at no cost.

    ages = synth.histogram(ds, column="age", spend=epsilon(1))
    ages.range(44, 55)          # how many are 44 or older and below 55, with its standard error

A single query with its own noise costs an epsilon, and so does the next. A histogram costs it once, since no row is in
two bins; a range sums the bins in it, and their noise.
"""

import math
from typing import Any

import numpy as np

from cloister.data.private_data import PrivateData
from cloister.privacy.errors import BadBounds, BadInput
from cloister.privacy.loss import Loss
from cloister.synth.generators.m_way import marginal_of
from cloister.synth.measure.marginals import Floats
from cloister.synth.output.expected_errors import ExpectedError
from cloister.synth.output.table import SyntheticTable, told_by
from cloister.synth.run import Progress

__all__ = ["Histogram", "histogram"]


class Histogram(SyntheticTable):
    """A released histogram, also a synthetic table of one column; `standard_error` is that of one count."""

    __slots__ = ()

    @property
    def counts(self) -> Floats:
        """Return the noisy count of each cell, in the order of `labels`: unbiased, so some may be negative."""
        return self.made.measured[0].counts.copy()

    @property
    def labels(self) -> list[str]:
        """Return a description of each cell."""
        return self.domain.modelled[0].labels()

    def range(self, low: Any, high: Any) -> ExpectedError:
        """Return the number of rows with low <= value < high, and its standard error. Costs nothing.

        A bin that the range cuts counts by the share inside, as if its rows were spread uniformly; the standard error
        is of the noise only. Missing values are in no range.
        """
        axis = self.domain.modelled[0]
        if not axis.ordered:
            raise BadInput(f"{axis.name} has no order. Ask for values: .count({{{axis.name!r}: …}}).")
        first, last = axis.number(low), axis.number(high)
        if not first < last:
            raise BadBounds("a range is low <= value < high, so low is below high.")
        inside = axis.weights_of({"from": low, "below": high})
        error = self.standard_error * math.sqrt(float((inside**2).sum()))
        return ExpectedError(float((self.counts * inside).sum()), error, "noise")


def histogram(
    ds: PrivateData,
    *,
    spend: Loss,
    column: str,
    rows: int | None = None,
    table: str | None = None,
    bins: Any = 128,
    progress: Progress | None = None,
    random_state: Any = None,
) -> Histogram:
    """Measure a noisy histogram of one column over its public domain.

    Args:
        column: a column with public bounds or categories.
        ds, spend, rows, table, bins, progress, random_state: as in `synth.one_column`.

    Privacy: the spend, for the dataset's unit of m rows (add/remove): a unit moves all bins together by m, in L1 and in
        L2; one noise sample per bin. With replace-one neighbours the sensitivity is 2m: the same noise costs twice the
        epsilon. Ranges are post-processing. At epsilon 1 and one row each the textbook's range of 11 bins has the
        standard error √22 = 4.7 (4.5 with noise on whole rows).
    """
    if not isinstance(column, str):
        raise BadInput("say which column: column='age'.")
    synthetic = marginal_of(
        ds,
        "histogram",
        spend=spend,
        rows=rows,
        columns=[column],
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
    )
    return Histogram(**{**told_by(synthetic), "standard_error": float(np.mean(synthetic.made.measured[0].sigma))})
