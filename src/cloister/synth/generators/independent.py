"""Independent columns: the simplest table, and the baseline for the others.

All dependence between columns is lost. The review measures how much that is.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from cloister.data.private_data import PrivateData
from cloister.privacy.loss import Loss
from cloister.synth.measure.error_estimate import estimate_error
from cloister.synth.measure.marginals import Measurer
from cloister.synth.model.inference import fit
from cloister.synth.output.table import SyntheticTable
from cloister.synth.run import GeneratorResult, Progress, synthesise

__all__ = ["independent"]

_REVIEW = Fraction(1, 20)


def independent(
    ds: PrivateData,
    *,
    spend: Loss,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 32,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """Generate a synthetic table of independent columns.

    Args:
        ds: a Cloister dataset, whose account pays.
        spend: maximum cost: epsilon(1, delta="1e-9"), rho("0.01"), or a pure epsilon(1).
        rows: number of rows: a public number; None to estimate it within the spend.
        columns: columns of the synthetic table; all unless given.
        table: the private table; the only one unless given.
        bins: equal bins for numbers and dates, or {column: bins or ends of bins}.
        progress: called with a share from 0 to 1 and a word.
        random_state: a seed, for teaching and tests; the release is then marked `not private`.

    Privacy: the spend, for the dataset's unit (add/remove). One marginal for each of d columns, discrete Gaussian noise
        for L2 sensitivity √d·m (discrete Laplace for d·m under a pure spend); a twentieth pays for the review.
        Structural zeros are kept; domains and `rows` are public.
    """

    def steps(survey: Measurer, tell: Progress) -> GeneratorResult:
        positions = [(column,) for column in range(len(survey.domain.shape))]
        measured = survey.measure(positions, survey.budget.part(1 - _REVIEW), why="every column by itself")
        tell(0.5, "fitting")
        model = fit(survey.domain.shape, measured, zeros=survey.domain.zeros)
        error = estimate_error(survey, model, survey.budget.part(_REVIEW))
        return GeneratorResult(model, measured, [], error)

    return synthesise(
        ds,
        steps,
        method="independent",
        spend=spend,
        rows=rows,
        columns=columns,
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
    )
