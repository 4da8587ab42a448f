"""Parse and check the options of `cloister synth` before any charge; read real rows from a database.

workload    'ward,age;ward,age,stay_days'      the marginals that matter
cuts        'age=18,65'                        where a number or date is cut, from outside the table
a share     '0.1'                              of the spend, for errors that may be published
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloister.data.private_data import PrivateData
from cloister.data.schema import Column, Schema, Table
from cloister.privacy.errors import BadBounds, BadInput, BadSource, MissingExtra
from cloister.privacy.filter import budget_share
from cloister.privacy.loss import ROW, Loss
from cloister.privacy.number import rational
from cloister.synth.domain.axis import Axis
from cloister.synth.domain.cuts import PrivateCuts
from cloister.synth.domain.domain import read_domain
from cloister.synth.planning import METHODS, method_of, usual_bins

if TYPE_CHECKING:
    import pyarrow as pa

    from cloister.synth.scoring.publishable import PublishableScore

__all__ = [
    "InDatabase",
    "add_score",
    "check_charts",
    "check_paid",
    "own_options",
    "parse_cuts",
    "parse_share",
    "parse_workload",
    "read_bins",
    "real_rows",
    "shared_out",
]

_ADDRESSES = ("postgresql://", "postgres://")
_CUT = ("integer", "real", "date", "timestamp")


# Making


def parse_workload(text: str) -> list[tuple[str, ...]]:
    """Parse sets of columns.

    >>> parse_workload("ward, age; ward, age, stay_days")
    [('ward', 'age'), ('ward', 'age', 'stay_days')]
    """
    sets = [tuple(name.strip() for name in part.split(",")) for part in text.split(";") if part.strip()]
    if not sets or any(not all(names) or len(set(names)) < len(names) for names in sets):
        raise BadInput("a workload is sets of different columns: 'ward,age;ward,age,stay_days'.")
    return sets


def parse_cuts(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parse cuts of columns.

    >>> parse_cuts(["age=18, 65", "admitted=2025-07-01"])
    {'age': ['18', '65'], 'admitted': ['2025-07-01']}
    """
    by_column: dict[str, list[str]] = {}
    for text in texts:
        name, _, listed = text.partition("=")
        cuts = [cut.strip() for cut in listed.split(",")]
        if not name.strip() or not all(cuts) or name.strip() in by_column:
            raise BadInput(f"{text!r:.60} is no cuts of a column. Write age=18,65, and every column once.")
        by_column[name.strip()] = cuts
    return by_column


def parse_share(text: str) -> Fraction:
    """Parse a share of a spend.

    >>> parse_share("0.1")
    Fraction(1, 10)
    """
    share = rational(text, "the share")
    if not 0 < share < 1:
        raise BadInput("a share for the score is a part of the spend: above 0 and below 1, such as 0.1.")
    return share


def own_options(method: str, **given: Any) -> dict[str, Any]:
    """Return the given options if the method has them.

    Raises:
        BadInput: the method has no such option; the message names the methods that do.
    """
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        takers = [candidate for candidate in METHODS if name in signature(method_of(candidate)).parameters]
        if method not in takers:
            raise BadInput(
                f"{method} takes no {name}. Leave it out, or choose a method that does: {', '.join(takers)}."
            )
    return options


def read_bins(
    data: PrivateData,
    method: str,
    bins: int | None,
    cuts: Mapping[str, Sequence[str]] | None,
    paid: bool,
    **asked: Any,
) -> Any:
    """Read the bins of numbers and dates: a number, the method's default, or cuts, which are public or private.

    Privacy: cuts are given by the caller and must not be derived from the rows. Nothing is read here.
    """
    if cuts and paid:
        raise BadInput("cuts are public or bought: --cuts or --paid-cuts, not both.")
    if paid:
        return PrivateCuts() if bins is None else PrivateCuts(bins)
    usual = usual_bins(method) if bins is None else bins
    if not cuts:
        return usual
    domain, _ = read_domain(data, bins=usual, **asked)
    column_cuts = {
        name: _cuts(domain.axis(name), data.tables.schema.tables[domain.table].columns[name], cuts[name])
        for name in cuts
    }
    return {**dict.fromkeys(domain.names, usual), **column_cuts}


def _cuts(axis: Axis, column: Column, texts: Sequence[str]) -> list[Any]:
    """Convert the cuts of a column to its values."""
    if column.categories is not None or column.type not in _CUT or column.bounds is None:
        raise BadBounds(f"{column.name} is not cut: it is no number or date between public bounds.")
    low, high = (axis.number(end) for end in column.bounds)
    positions = [axis.number(text) for text in texts]
    if not all(low <= position <= high for position in positions):
        raise BadBounds(f"a cut of {column.name} is beyond its bounds, {column.bounds[0]} and {column.bounds[1]}.")
    return [axis.value(position) for position in positions]


def shared_out(spend: Loss, share: Fraction | None) -> tuple[Loss, Loss | None]:
    """Split the spend between the table and its score."""
    if share is None:
        return spend, None
    budget = budget_share(spend, "the synthetic table", "generators")
    return budget.part(1 - share), budget.part(share)


def check_paid(data: PrivateData, losses: Sequence[Loss]) -> None:
    """Refuse, before the first of several charges, a total that the account cannot pay.

    Raises:
        OverBudget: with the amount requested, the amount left, and the difference.
    """
    # As generators pay: an epsilon as its rho.
    prices = [data.account.price(budget_share(loss).loss) for loss in losses]
    data.account.book.balance(data.account.rules.key).add(sum(prices[1:], start=prices[0]))


def add_score(side: Path, score: "PublishableScore") -> None:
    """Add a score to a metadata file, in the same place as a hub does.

    Privacy: the score is a release of its own and states its loss.
    """
    metadata = {**json.loads(side.read_text(encoding="utf-8")), "score": score.to_json()}
    side.write_text(json.dumps(metadata, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# Scoring


@dataclass(frozen=True, slots=True)
class InDatabase:
    """Rows of a PostgreSQL table, read on demand.

    Attributes:
        address: address of the database.
        table: public facts about the table.
    """

    address: str
    table: Table

    def to_arrow(self) -> "pa.Table":
        """Return the columns with public values or bounds, typed as in the schema.

        Privacy: unprotected rows, for the owner only.
        """
        from cloister.data.tables import open_tables
        from cloister.synth.scoring.rows import usable

        columns = {name: column for name, column in self.table.columns.items() if usable(column)}
        facts = {name: replace(column, nullable=True, confirmed=True) for name, column in columns.items()}
        tables = open_tables(self.address, Schema({self.table.name: Table(self.table.name, facts)}, ROW))
        try:
            return tables.engine.run(tables.view(self.table.name).sql(dialect=tables.engine.dialect))
        finally:
            tables.close()


def real_rows(source: str, schema: str, table: str | None) -> Path | InDatabase:
    """Return the source of the owner's rows: a file, a folder, or a postgresql:// address. Nothing is read yet."""
    from cloister.synth.scoring.rows import only_table

    if source.startswith(_ADDRESSES):
        return InDatabase(source, only_table(Schema.load(schema), table))
    if not Path(source).exists():
        raise BadSource(f"there is no file {source}. Give a file, a folder or a postgresql:// address.")
    return Path(source)


def check_charts() -> None:
    """Refuse a report before minutes of work if no chart library is installed."""
    if not all(find_spec(name) for name in ("altair", "vl_convert")):
        raise MissingExtra("a report with charts needs Altair: pip install 'cloister[report]'. --json needs nothing.")
