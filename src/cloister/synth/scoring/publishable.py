"""A publishable score: noisy errors of one- and two-way marginals, charged to the ledger."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.attack.report.interval import Interval
from cloister.data.private_data import PrivateData
from cloister.privacy.filter import noise_for
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above
from cloister.privacy.release import Release
from cloister.synth.measure.marginals import Measurer
from cloister.synth.options import check_whole
from cloister.synth.scoring.utility.workload import (
    MOST_PAIRS,
    Compared,
    buy_rows,
    carry_out,
    compare_with,
    one_number,
    pay,
    some_pairs,
)

__all__ = ["PublishableScore", "publishable_score"]

# The noise of the number of rows is in every other number, and averaging over columns does not reduce it.
_ROWS, _COLUMNS, _PAIRS = Fraction(3, 10), Fraction(2, 5), Fraction(3, 10)


@dataclass(frozen=True, slots=True)
class PublishableScore:
    """Errors that may be published.

    Attributes:
        rows: noisy number of real rows.
        columns: for each column half the L1 distance between real and synthetic shares.
        one_way: their mean.
        two_way: the mean over pairs of columns; None if there is one column.
        pairs: number of pairs in that mean.
        release: loss, unit and receipt.

    Privacy: the release's loss. Intervals cover the noise, including that of the number of rows, and the rounding of
        synthetic counts to parts of a row: each holds its number with 95 % confidence.
    """

    rows: Interval
    columns: Mapping[str, Interval]
    one_way: Interval
    two_way: Interval | None
    pairs: int
    release: Release

    @property
    def loss(self) -> Loss:
        """Return the loss."""
        return self.release.loss

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a page or a metadata file."""
        return {
            "publishable": True,
            "private": self.release.private,
            "loss": self.loss.to_json(),
            "unit": str(self.release.unit),
            "rows": self.rows.to_json(),
            "one-way error": self.one_way.to_json(),
            "two-way error": None if self.two_way is None else self.two_way.to_json(),
            "pairs": self.pairs,
            "columns": [{"column": name, **error.to_json()} for name, error in self.columns.items()],
            "settings": self.release.parameters["settings"],
            "receipt": None if self.release.receipt is None else json.loads(self.release.receipt.text()),
        }

    def __str__(self) -> str:
        lines = (
            [] if self.release.private else ["NOT PRIVATE: the noise, or the table itself, came from a seeded source"]
        )
        lines.append("error of marginals (half L1), with noise; 95 % intervals")
        lines.append(f"  {'one-way, mean':<32}{self.one_way.text(4)}")
        if self.two_way is not None:
            lines.append(f"  {f'two-way, mean of {self.pairs}':<32}{self.two_way.text(4)}")
        lines += [f"    {name[:29]:<30}{error.text(4)}" for name, error in self.columns.items()]
        return "\n".join([*lines, f"  cost      {self.loss}", f"  protects  {self.release.unit}"])


def publishable_score(
    data: PrivateData,
    synthetic: Any,
    *,
    spend: Loss,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 32,
    most_pairs: int = 200,
    released: bool = False,
    random_state: Any = None,
) -> PublishableScore:
    """Measure the errors of a synthetic table.

    Args:
        data: the Cloister dataset that it was generated from; its account pays.
        synthetic: the table as a generator returned it or `read_table` read it; or its rows as Arrow or a frame.
        spend: maximum cost; all of it is charged, before anything is read.
        columns, table, bins: as for a generator; those that the tables share unless given.
        most_pairs: maximum number of two-way marginals; if there are more, a fixed public choice.
        released: the caller's assertion that rows without a receipt were released, or do not depend on the dataset.
        random_state: a seed, for teaching and tests; the release is then marked `not private`.

    Raises:
        NotPrivate: the table is a copy, a bootstrap or another `NotPrivateTable`; or has no evidence of a release.

    Privacy: the spend, for the dataset's unit, add/remove neighbours, provided the table was released before: the
        release is private only if the table is too. Three tenths measure the number of rows n. Then, with synthetic
        counts T scaled to that n, four tenths measure the distances Σ|N - T| of all k columns at once, and the rest
        measures the sum of the distances of all pairs, one number. Adding or removing a unit, whose rows count at most
        m together, changes the counts N of a marginal by at most m in L1; T is fixed; so by the triangle inequality
        each distance moves by at most m: the k columns by k·m in L1 and √k·m in L2, the sum over p pairs by p·m.
        Divided by 2·n·p the mean over pairs moves by m/(2n) only. Counts are computed in the engine; they, n, m and T
        are whole numbers of parts of a row (2^20 or more) until noise is added, and only T is rounded. Audited in
        tests/unit/synth/test_publishable.py.
    """
    check_whole("most_pairs", most_pairs, least=0, most=MOST_PAIRS)
    compared = compare_with(data, [synthetic], columns, table, bins, released)
    names = [axis.name for axis in compared.domain.modelled]
    settings = f"{names!r} {most_pairs} pairs"
    paid = pay(data, spend, "the score", f"score synthetic {compared.domain.table}", settings, random_state)
    pairs = some_pairs(len(names), most_pairs) if len(names) > 1 else []

    def steps(survey: Measurer) -> dict[str, Any]:
        shares = {"columns": paid.budget.part(_COLUMNS), "pairs": paid.budget.part(_PAIRS)}
        n = buy_rows(survey, paid.budget.part(_ROWS))
        alone, margin = _columns(survey, compared, n.total, shares["columns"])

        def share(value: float, margin: float) -> Interval:
            # Two independent noises, and what is rounded. Clipped to the possible range only here at the end.
            all_of_it = math.hypot(margin, n.off) + compared.rounding(n.total)
            return Interval(*(min(max(bound, 0.0), 1.0) for bound in (value, value - all_of_it, value + all_of_it)))

        return {
            "rows": n.rows,
            "columns": {name: share(error, margin) for name, error in zip(names, alone, strict=True)},
            "one_way": share(float(np.mean(alone)), margin / math.sqrt(len(alone))),
            "two_way": share(*_pairs(survey, compared, pairs, n.total, shares["pairs"])) if pairs else None,
        }

    figures, release = carry_out(paid, compared, steps)
    return PublishableScore(**figures, pairs=len(pairs), release=release)


def _columns(survey: Measurer, compared: Compared, total: int, loss: Loss) -> tuple[list[float], float]:
    """Return the error of each column, and the margin of its noise."""
    count, most = len(compared.domain.modelled), survey.most_parts
    noise = noise_for(root_above(count * most**2), count * most, loss)

    def look() -> NDArray[np.int64]:
        survey.count([(column,) for column in range(count)])
        return np.array([compared.distance(survey, 0, (column,), total) for column in range(count)], dtype=np.int64)

    size = 2 * total
    return [int(distance) / size for distance in survey.meter.release(look, noise)], noise.margin("0.95") / size


def _pairs(
    survey: Measurer, compared: Compared, pairs: Sequence[tuple[int, ...]], total: int, loss: Loss
) -> tuple[float, float]:
    """Return the mean error of pairs, and the margin of its noise."""
    most = len(pairs) * survey.most_parts
    noise = noise_for(most, most, loss)

    def look() -> NDArray[Any]:
        survey.count(pairs)
        return one_number(sum(compared.distance(survey, 0, pair, total) for pair in pairs))

    size = 2 * total * len(pairs)
    return int(survey.meter.release(look, noise)[0]) / size, noise.margin("0.95") / size
