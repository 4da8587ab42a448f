"""Form for a synthetic table, read against public facts; then the table: charged, made, scored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloister.client import wire
from cloister.dataset import Dataset
from cloister.hub.jobs.job_types.job_type import Progress, column_named
from cloister.privacy.errors import BadForm, BadSchema, CloisterError
from cloister.privacy.filter import BudgetShare, budget_share
from cloister.privacy.loss import Loss
from cloister.privacy.number import rational
from cloister.privacy.receipt import Receipt
from cloister.synth.planning import method_of, usual_bins

if TYPE_CHECKING:
    from cloister.synth.output.table import SyntheticTable
    from cloister.synth.scoring.publishable import PublishableScore

__all__ = ["MOST_CELLS", "MOST_ROWS", "SynthesisRequest", "carry_out", "read"]

# A table is stored with the job that made it, in the hub's database.
MOST_ROWS = 200_000
MOST_CELLS = 2_000_000


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """Request for a synthetic table.

    Attributes:
        method: the generator.
        table, columns: names as the schema spells them; no columns: all that can be used.
        budget: the whole spend, in the measure of the noise.
        share: the part of the spend that pays for a score; 0 for none.
        rows: the number of rows; None: a noisy count, up to the limits here.
        bins: the number of bins for numbers and dates.
    """

    method: str
    table: str
    columns: tuple[str, ...]
    budget: BudgetShare
    share: Fraction
    rows: int | None
    bins: int

    @property
    def making(self) -> Loss:
        """Loss of the table."""
        return self.budget.part(1 - self.share)

    @property
    def scoring(self) -> Loss:
        """Loss of the score."""
        return self.budget.part(self.share)

    @property
    def public(self) -> dict[str, Any]:
        """Return the public facts for a generator and a score."""
        return {"table": self.table, "columns": list(self.columns) or None, "bins": self.bins}

    def check_size(self, names: Sequence[str]) -> None:
        """Refuse a table that is too large to store, before the charge."""
        if self.rows is not None and self.rows * len(names) > MOST_CELLS:
            raise BadForm(
                f"a table here has at most {MOST_CELLS:,} values: with {len(names)} columns that is "
                f"{MOST_CELLS // len(names):,} rows. Ask for fewer; more can be made where the rows live."
            )


def read(data: Dataset, table: str, parameters: Mapping[str, Any]) -> SynthesisRequest:
    """Read parameters. Refuse what cannot be made, from public facts alone, with the way out."""
    terms = {name: term for name, term in data.columns(table).items() if not term.unit}
    wanted = [part.strip() for part in parameters["columns"].split(",") if part.strip()]
    if not wanted:  # a column without public values that is no replaceable text cannot be in the table
        columns = tuple(name for name, term in terms.items() if term.type == "text" or term.domain() or term.bounded)
        if not columns:
            raise BadSchema(f"no column of {table} has public bounds or categories. Ask its owner to give some.")
    else:
        columns = tuple(column_named(terms, name, table) for name in wanted)
    share = Fraction(rational(parameters["score"], "score")) if parameters["score"] else Fraction(0)
    budget = budget_share(wire.parse_loss(parameters["spend"]), "the synthetic table", "generators")
    rows = int(parameters["rows"]) if parameters["rows"] else None
    bins = int(parameters["bins"]) if parameters["bins"] else usual_bins(parameters["method"])
    return SynthesisRequest(parameters["method"], table, columns, budget, share, rows, bins)


def carry_out(
    data: Dataset, asked: SynthesisRequest, progress: Progress
) -> tuple["SyntheticTable", "PublishableScore | str", tuple[Receipt, ...]]:
    """Charge and make the table; charge and score it on request.

    Returns:
        the table, its score or why there is none, and the receipts.

    Privacy: the spend, for the unit of the dataset, charged to the dataset and to the user: one entry for the
        table and one for the score, which add up to it.
    """
    from cloister.synth.scoring.publishable import publishable_score

    upto = 0.8 if asked.share else 0.95
    table = method_of(asked.method)(
        data,
        spend=asked.making,
        rows=asked.rows or 1,
        progress=lambda share, word: progress(0.02 + upto * share, word),
        **asked.public,
    )
    if asked.rows is None:  # about the real number, from the released model; never more than can be stored
        most = min(MOST_ROWS, MOST_CELLS // len(table.domain.names))
        rows = max(1, min(most, round(table.made.model.total)))
        table = table.redraw(rows)
    assert table.receipt is not None
    if not asked.share:
        return table, "", (table.receipt,)
    progress(0.85, "scoring the table")
    try:
        score = publishable_score(data, table, spend=asked.scoring, **asked.public)
    except CloisterError as error:  # the table is charged: release it without a score rather than lose it
        return table, str(error), (table.receipt,)
    assert score.release.receipt is not None
    return table, score, (table.receipt, score.release.receipt)
