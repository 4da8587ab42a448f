"""How far synthetic tables are from private rows, as whole numbers that one unit moves by little.

For a marginal let N be the counts of the real rows and T those of the synthetic table, scaled to a total that is public
(or was bought). The distance Σ|N - T| is a whole number, and T does not depend on the rows.

Sensitivity. If one unit comes or goes, N changes by at most m in L1: m is what all its rows count together. By the
triangle inequality |Σ|N - T| - Σ|N' - T|| <= Σ|N - N'| <= m. So a distance moves by at most m, the sum of k distances
by at most k·m, and the vector of k distances by k·m in L1 and √k·m in L2. As the mean of k distances over twice the
number of rows, that is m/(2n): the error of a table of 30,000 rows moves by 1/60,000.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloister.data.schema import Table
from cloister.privacy.errors import BadInput, BadSchema
from cloister.privacy.meter import Meter, measure_steps
from cloister.privacy.noise import SYSTEM, SeededSource, Source
from cloister.privacy.purse import Purse, law, purse
from cloister.privacy.release import Release
from cloister.synth.domain import Domain, read_domain
from cloister.synth.marginals import Survey
from cloister.synth.scoring.figure import Figure
from cloister.synth.scoring.marginal_error import choose_columns
from cloister.synth.scoring.rows import source_of, view_of

__all__ = ["Compared", "Paid", "buy_rows", "carry_out", "compare_with", "pay", "some_pairs"]

T = TypeVar("T")
Places = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Synthetic tables as cells of the columns that they share with a dataset.

    Attributes:
        domain: the public cells.
        relation: the real rows, in their engine. None of them was read.
        cells: of each synthetic table: rows × modelled columns.
    """

    domain: Domain
    relation: Any
    cells: tuple[NDArray[np.int64], ...]

    def distance(self, survey: Survey, table: int, places: Places, rows: int) -> int:
        """Σ|N - T| of one marginal, in parts of a row. Reads rows: call it inside a step.

        Privacy: moves by at most `survey.most` if one unit comes or goes.
        """
        shape = [self.domain.shape[place] for place in places]
        joint = np.ravel_multi_index(tuple(self.cells[table][:, place] for place in places), shape)
        counts = np.bincount(joint, minlength=int(np.prod(shape)))
        whole = rows * survey.whole
        wide: Any = np.int64 if 4 * len(joint) * whole < 2**63 else object
        scaled = (2 * counts.astype(wide) * whole + len(joint)) // (2 * len(joint))  # rounded, in whole numbers
        exact = np.rint(survey.exact(places).ravel() * survey.whole).astype(np.int64)  # parts of a row: exact doubles
        return int(np.abs(exact - scaled.astype(np.int64)).sum())


@dataclass(frozen=True, slots=True)
class Paid:
    """What was asked and who pays."""

    data: Any
    budget: Purse
    source: Source
    request: str


def compare_with(
    data: Any, tables: Sequence[Any], columns: Sequence[str] | None, table: str | None, bins: Any
) -> Compared:
    """Read synthetic tables as cells of a dataset's domain. No private row is read."""
    if not (hasattr(data, "tables") and hasattr(data, "account") and hasattr(data, "relation")):
        raise BadInput("this is paid for by a Cloister dataset: cl.open(source, schema=…, budget=…).")
    given = [source_of(one) for one in tables]
    if not given or not all(hasattr(one, "column_names") or hasattr(one, "columns") for one in given):
        raise BadInput("give synthetic tables as such, as Arrow tables or as frames. Read files first.")
    name = data.relation(table, []).table
    seen = [one for one, term in data.columns(name).items() if not term.unit]
    shared = [one for one in seen if all(one in _names(each) for each in given)] if columns is None else list(columns)
    domain, relation = read_domain(data, table=name, columns=shared, bins=bins)
    facts = {axis.name: relation.columns[axis.name] for axis in domain.modelled}
    cells = []
    for one in given:
        rows = view_of(one, Table(name, facts), facts)
        placed = np.column_stack([axis.place(rows.column(axis.name)) for axis in domain.modelled])
        cells.append(placed[(placed >= 0).all(axis=1)])
        if not len(cells[-1]):
            raise BadSchema("a synthetic table has no row whose values the schema knows. Check its columns.")
    return Compared(domain, relation, tuple(cells))


def _names(table: Any) -> list[str]:
    return list(table.column_names if hasattr(table, "column_names") else table.columns)


def some_pairs(columns: int, most: int) -> list[Places]:
    """All pairs of columns, or so many of them: a public choice, the same every time; the column itself if alone."""
    if columns < 2:
        return [(0,)]
    every: list[Places] = [*combinations(range(columns), 2)]
    return every if len(every) <= most else choose_columns(columns, 2, most, np.random.default_rng(0))


def pay(data: Any, spend: Any, what: str, request: str, random_state: Any) -> Paid:
    """Read what may be spent. Nothing is charged yet."""
    reader = getattr(data, "reader", None)
    label = f"{reader.label}\n" if reader is not None and reader.label else ""
    source: Source = SYSTEM if random_state is None else SeededSource(str(random_state))
    return Paid(data, purse(spend, what, "scores"), source, f"{label}{request}")


def carry_out(paid: Paid, compared: Compared, steps: Callable[[Survey], T]) -> tuple[T, Release]:
    """Charge, then look in steps.

    Privacy: the spend, whatever the steps: the meter refuses what goes beyond.
    """
    data, reader = paid.data, getattr(paid.data, "reader", None)

    def whole(meter: Meter) -> T:
        return steps(Survey(compared.domain, compared.relation, meter, paid.budget))

    value, receipt = measure_steps(
        whole,
        accounts=[data.account, *([] if reader is None else [reader.account])],
        spend=paid.budget.loss,
        request=paid.request,
        unit=data.tables.schema.unit,
        data_version=data.version,
        source=paid.source,
    )
    return value, Release(
        value=value,
        loss=paid.budget.loss,
        unit=data.tables.schema.unit,
        mechanism=receipt.body["mechanism"],
        parameters={},
        private=paid.source.private,
        receipt=receipt,
    )


def buy_rows(survey: Survey, loss: Any, sure: str = "0.95") -> tuple[int, Figure]:
    """The number of rows with noise: one at least, and what it may be, with that confidence.

    Privacy: the loss; a unit's rows count at most `most` together.
    """
    noise = law(survey.most, survey.most, loss)

    def look() -> NDArray[np.int64]:
        return np.rint([survey.exact((0,)).sum() * survey.whole]).astype(np.int64)

    found = int(np.ravel(survey.meter.release(look, noise))[0]) / survey.whole
    margin = float(noise.margin(sure)) / survey.whole
    return max(1, round(found)), Figure(found, max(0.0, found - margin), found + margin)
