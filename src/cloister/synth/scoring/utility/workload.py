"""Distances of synthetic tables from private rows, as whole numbers of low sensitivity.

For a marginal let N be the counts of the real rows and T those of the synthetic table, scaled to a measured total. All
of them, and the total, are whole numbers of parts of a row (2^20 or more: `parts_of`), in which N is exact and T is
rounded: a cell may expect far less than one row. The distance Σ|N - T| is a whole number of parts, and T does not
depend on the rows.

Sensitivity. Adding or removing one unit changes N by at most m in L1, where m is the total count of its rows. By the
triangle inequality |Σ|N - T| - Σ|N' - T|| <= Σ|N - N'| <= m. So a distance moves by at most m, the sum of k distances
by at most k·m, and the vector of k distances by k·m in L1 and √k·m in L2. As the mean of k distances over twice the
number of rows, that is m/(2n): the error of a table of 30,000 rows moves by 1/60,000.

T must not depend on the rows without a charge: for a copy of the rows it does, and noise on the distance cannot repair
that. A table is therefore accepted only if it was released (`Compared.private`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloister.attack.report.interval import Interval
from cloister.attack.tables.synthetic.coded_rows import choose_columns
from cloister.data.private_data import PrivateData
from cloister.data.schema import Table
from cloister.privacy.errors import BadInput, BadSchema, Broken, NotPrivate
from cloister.privacy.filter import BudgetShare, PrivacyFilter, budget_share, noise_for, release_steps
from cloister.privacy.noise import SYSTEM, SeededSource, Source
from cloister.privacy.release import Release
from cloister.synth.domain.domain import Domain, read_domain
from cloister.synth.measure.marginals import Measurer, check_noise
from cloister.synth.options import check_flag, check_names
from cloister.synth.output.request import settings_digest
from cloister.synth.output.shared_table import HandedTable
from cloister.synth.output.table import SyntheticTable
from cloister.synth.scoring.negatives import NotPrivateTable
from cloister.synth.scoring.rows import source_of, view_of

__all__ = [
    "MOST_PAIRS",
    "Compared",
    "Paid",
    "RowCount",
    "buy_rows",
    "carry_out",
    "compare_with",
    "one_number",
    "pay",
    "some_pairs",
]

T = TypeVar("T")
_LARGEST = 2**61  # parts of all rows: distances of a marginal then fit into 64 bits
MOST_PAIRS = 100_000  # that a caller may request: each is counted
Positions = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Synthetic tables as cells of the columns that they share with a dataset.

    Attributes:
        domain: the public cells.
        relation: the real rows, in their engine. None of them was read.
        cells: cells of each synthetic table: rows × modelled columns.
        private: whether each table was released privately; False if one was generated with a seed.
    """

    domain: Domain
    relation: Any
    cells: tuple[NDArray[np.int64], ...]
    private: bool = True

    def distance(self, survey: Measurer, table: int, positions: Positions, total: int) -> int:
        """Return Σ|N - T| of one marginal, in parts of a row. Reads rows: call it inside a step.

        Args:
            survey: access to the rows.
            table: index of the synthetic table.
            positions: the marginal's columns.
            total: the rows that T is scaled to, in parts.

        Privacy: moves by at most `survey.most_parts` if one unit is added or removed.
        """
        shape = [self.domain.shape[column] for column in positions]
        joint = np.ravel_multi_index(tuple(self.cells[table][:, column] for column in positions), shape)
        occupied, counts = np.unique(joint, return_counts=True)
        [(_, exact)] = survey.counted([positions])
        # Only cells that occur in either: large domains have too many to list.
        cells, where = np.unique(np.concatenate([exact.cells, occupied]), return_inverse=True)
        far = np.zeros(len(cells), dtype=np.int64)
        np.add.at(far, where[: len(exact.cells)], exact.numbers * (survey.parts // survey.whole))
        np.subtract.at(far, where[len(exact.cells) :], _scaled(counts, len(joint), total))
        return int(np.abs(far).sum())

    def rounding(self, total: int) -> float:
        """Return the most that rounded expectations change an error (half L1) of any table: half a part in a cell."""
        return max(map(len, self.cells)) / (4 * total)


def _scaled(counts: NDArray[np.int64], rows: int, total: int) -> NDArray[np.int64]:
    """Return counts of some rows scaled to a total, each rounded to the nearest whole number, in 64 bits."""
    each, left = divmod(total, rows)
    wide: Any = np.int64 if rows < 2**30 else object
    part = (2 * counts.astype(wide) * left + rows) // (2 * rows)
    return counts * each + part.astype(np.int64)


@dataclass(frozen=True, slots=True)
class RowCount:
    """A noisy number of rows.

    Attributes:
        total: number that synthetic counts are scaled to, in parts of a row: positive, and capped so that distances
            fit into 64 bits.
        rows: the number as released, with its interval.
        off: the most that this number changes an error (half L1), with the interval's confidence.
    """

    total: int
    rows: Interval
    off: float


@dataclass(frozen=True, slots=True)
class Paid:
    """The request, the hash of its settings, and the account that pays."""

    data: PrivateData
    budget: BudgetShare
    source: Source
    request: str
    settings: str


def compare_with(
    data: PrivateData,
    tables: Sequence[Any],
    columns: Sequence[str] | None,
    table: str | None,
    bins: Any,
    released: bool,
) -> Compared:
    """Read synthetic tables as cells of a dataset's domain. No private row is read.

    Args:
        released: the caller's assertion that tables without a receipt were released, or do not depend on the rows.

    Raises:
        NotPrivate: a table is known to be unprotected, or has no evidence of a release.
    """
    if not (hasattr(data, "tables") and hasattr(data, "account") and hasattr(data, "relation")):
        raise BadInput("this is paid for by a Cloister dataset: cl.open(source, schema=…, budget=…).")
    check_names("columns", columns)
    check_flag("released", released)
    private = [_was_released(synthetic, data, released) for synthetic in tables]
    sources = [source_of(synthetic) for synthetic in tables]
    if not sources or not all(hasattr(source, "column_names") or hasattr(source, "columns") for source in sources):
        raise BadInput("give synthetic tables as such, as Arrow tables or as frames. Read files first.")
    name = data.relation(table, []).table
    available = [column for column, term in data.columns(name).items() if not term.unit]
    shared = (
        [column for column in available if all(column in _names(source) for source in sources)]
        if columns is None
        else list(columns)
    )
    domain, relation = read_domain(data, table=name, columns=shared, bins=bins)
    facts = {axis.name: relation.columns[axis.name] for axis in domain.modelled}
    cells = tuple(_placed(view_of(source, Table(name, facts), facts), domain) for source in sources)
    return Compared(domain, relation, cells, all(private))


def _placed(rows: Any, domain: Domain) -> NDArray[np.int64]:
    """Return the cells of all rows; refuse a table with values that the schema does not know.

    A distance over the other rows would be that of another table.
    """
    placed: NDArray[np.int64] = np.column_stack([axis.place(rows.column(axis.name)) for axis in domain.modelled])
    unknown = int((placed < 0).any(axis=1).sum())
    if unknown or not len(placed):
        raise BadSchema(
            f"a synthetic table has {len(placed):,} rows, and {unknown:,} of them lack a required value or have one "
            "that the schema does not know. Mend or remove these rows. Nothing was spent."
        )
    return placed


def _was_released(table: Any, data: PrivateData, released: bool) -> bool:
    """Return True if a table is private, or refuse: a score or a selection must not certify rows without a charge."""
    if isinstance(table, NotPrivateTable):
        raise NotPrivate(
            f"this table was made by {table.method} and protects nobody; a score with a receipt would vouch for it. "
            "Compare it in the owner's view: synth.score."
        )
    if isinstance(table, SyntheticTable):
        return table.private
    if isinstance(table, HandedTable) and not released:
        try:
            table.verify(data.account.book.key.public, rows=True)
        except Broken as error:
            raise NotPrivate(
                f"no key of this dataset's ledger signed these rows ({error}). A receipt vouches for a price, not for "
                "rows. Give the SyntheticTable itself, or pass released=True if these rows were released."
            ) from None
    if isinstance(table, HandedTable):
        return table.side.get("private") is True
    if not released:
        raise NotPrivate(
            "nothing says that these rows were released: a score of raw rows tells about them. Give a SyntheticTable, "
            "read_table(path) with its receipt, or pass released=True if they were released before."
        )
    return True


def _names(table: Any) -> list[str]:
    return list(table.column_names if hasattr(table, "column_names") else table.columns)


def some_pairs(columns: int, most: int) -> list[Positions]:
    """Return all pairs of columns, or some of them by a fixed public choice; a single column by itself."""
    if columns < 2:
        return [(0,)]
    every: list[Positions] = [*combinations(range(columns), 2)]
    return every if len(every) <= most else choose_columns(columns, 2, most, np.random.default_rng(0))


def pay(data: PrivateData, spend: Any, what: str, asked: str, settings: str, random_state: Any) -> Paid:
    """Read the available budget. Nothing is charged yet."""
    source: Source = SYSTEM if random_state is None else SeededSource(str(random_state))
    digest = settings_digest(settings, getattr(data, "reader", None))
    return Paid(data, budget_share(spend, what, "scores"), source, f"{asked} with {digest}", digest)


def carry_out(paid: Paid, compared: Compared, steps: Callable[[Measurer], T]) -> tuple[T, Release]:
    """Charge, then measure in steps.

    Privacy: the spend, whatever the steps: the meter refuses anything beyond it.
    """
    data, reader = paid.data, getattr(paid.data, "reader", None)
    check_noise(compared.relation, paid.budget.loss)

    def whole(meter: PrivacyFilter) -> T:
        return steps(Measurer(compared.domain, compared.relation, meter, paid.budget))

    value, receipt = release_steps(
        whole,
        accounts=[data.account, *([] if reader is None else [reader.account])],
        spend=paid.budget.loss,
        request=paid.request,
        unit=data.tables.schema.unit,
        data_version=data.version,
        source=paid.source,
        private=compared.private,
    )
    return value, Release(
        value=value,
        loss=paid.budget.loss,
        unit=data.tables.schema.unit,
        mechanism=receipt.body["mechanism"],
        parameters={"settings": paid.settings},
        private=paid.source.private and compared.private,
        receipt=receipt,
    )


def one_number(exact: int) -> NDArray[Any]:
    """Return an integer of any size as an array of one."""
    return np.array([exact], dtype=np.int64 if abs(exact) < 2**62 else object)


def buy_rows(survey: Measurer, loss: Any, sure: str = "0.95") -> RowCount:
    """Measure the number of rows: at least one, with its interval at that confidence.

    In parts of a row too, so that its noise is not rounded to whole rows: two noises that are combined in one interval
    must not each leave out up to 5 %.

    Privacy: the loss; a unit's rows count at most `most_parts` together.
    """
    noise, parts = noise_for(survey.most_parts, survey.most_parts, loss), survey.parts

    def look() -> NDArray[Any]:
        [(_, counts)] = survey.counted([(0,)])
        return one_number(int(counts.numbers.sum()) * (parts // survey.whole))

    noisy, margin = int(survey.meter.release(look, noise)[0]), int(noise.margin(sure))
    total = min(max(parts, noisy), _LARGEST)
    value, low, high = (count / parts for count in (noisy, max(0, noisy - margin), noisy + margin))
    # Shares of n rows differ by at most d/2n from shares of n + d rows, whatever the columns.
    return RowCount(total, Interval(value, low, high), (margin + abs(noisy - total)) / (2 * total))
