"""Private selection among synthetic tables by their distance to the real rows, with its own charge."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cloister.data.private_data import PrivateData
from cloister.privacy.errors import BadCandidates
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import Exponential, PermuteAndFlip
from cloister.privacy.number import upper_text
from cloister.privacy.release import Release
from cloister.synth.measure.marginals import Measurer
from cloister.synth.options import check_whole
from cloister.synth.scoring.utility.workload import MOST_PAIRS, buy_rows, carry_out, compare_with, pay, some_pairs

__all__ = ["TableChoice", "choose"]

_ROWS = Fraction(3, 10)


@dataclass(frozen=True, slots=True)
class TableChoice:
    """Result of a selection among tables.

    Attributes:
        index: its index among the candidates.
        table: the selected table.
        candidates: number of candidates.
        short_by: with 95 % confidence, the excess of its mean error over that of the best candidate.
        release: loss, unit and receipt.

    Privacy: the release's loss. The scores of the candidates are not released.
    """

    index: int
    table: Any
    candidates: int
    short_by: float
    release: Release

    @property
    def loss(self) -> Loss:
        """Return the cost of the selection, in addition to that of the tables."""
        return self.release.loss

    def __str__(self) -> str:
        lines = [] if self.release.private else ["NOT PRIVATE: the choice, or a table, came from a seeded source"]
        lines.append(f"table {self.index + 1} of {self.candidates}")
        lines.append(f"  its mean error exceeds the best one's by at most {upper_text(self.short_by, 2)} (95 %)")
        return "\n".join([*lines, f"  cost      {self.loss}", f"  protects  {self.release.unit}"])


def choose(
    data: PrivateData,
    tables: Sequence[Any],
    *,
    spend: Loss,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 32,
    most_pairs: int = 200,
    released: bool = False,
    random_state: Any = None,
) -> TableChoice:
    """Select a table whose two-way marginals are about the closest to the real ones.

    Args:
        data: the Cloister dataset that they were generated from; its account pays.
        tables: released synthetic tables (each with its own cost), or their rows as Arrow or frames with
            `released`.
        spend: maximum cost of the selection; all of it is charged, before anything is read.
        columns, table, bins, most_pairs, released, random_state: as for `publishable_score`.

    Privacy: the spend, for the dataset's unit, add/remove neighbours, in addition to the cost of the tables. Three
        tenths measure the number of rows. The score of a table is minus the sum over p pairs of columns of Σ|N - T|, T
        its counts scaled to that number, all in whole parts of a row. If a unit is added or removed, whose rows count
        at most m together, N moves by at most m in L1, so each score by at most p·m (triangle inequality), some up and
        others down: permute-and-flip for an epsilon, the exponential mechanism for a rho, at that sensitivity. Keeping
        the best table by `score` or `gate` is the same selection without its charge. Audited in
        tests/unit/synth/test_publishable.py.
    """
    check_whole("most_pairs", most_pairs, most=MOST_PAIRS)
    if not isinstance(tables, list | tuple) or len(tables) < 2:
        raise BadCandidates("a choice is among at least two tables. Give those that were made, in a list.")
    compared = compare_with(data, tables, columns, table, bins, released)
    names = [axis.name for axis in compared.domain.modelled]
    pairs = some_pairs(len(names), most_pairs)
    settings = f"{len(tables)} tables {names!r} {most_pairs} pairs"
    paid = pay(data, spend, "the choice", f"choose among synthetic {compared.domain.table}", settings, random_state)

    def steps(survey: Measurer) -> tuple[int, float]:
        n = buy_rows(survey, paid.budget.part(_ROWS), "0.975")
        kind: Any = PermuteAndFlip if paid.budget.pure else Exponential
        mechanism = kind.for_loss(len(pairs) * survey.most_parts, paid.budget.part(1 - _ROWS))

        def scores() -> list[int]:
            survey.count(pairs)
            return [-sum(compared.distance(survey, i, pair, n.total) for pair in pairs) for i in range(len(tables))]

        short = float(mechanism.margin("0.975", len(tables)) / (2 * n.total * len(pairs)))
        # Both errors, of the selected table and of the best, are off by the number of rows and by what is rounded.
        short += 2 * (n.off + compared.rounding(n.total))
        return int(survey.meter.release(scores, mechanism)), min(1.0, short)

    (index, short_by), release = carry_out(paid, compared, steps)
    return TableChoice(index, tables[index], len(tables), short_by, release)
