"""The type of a dataset, as models, generators and jobs need it: tables, the account that pays, and public facts.

`cl.open` returns one (`cloister.dataset.Dataset`). Rooms below it may not import that class; they take a `PrivateData`.
A part of a dataset's people, and a dataset without rows for dry runs, are of this type too.

    def fit(data: PrivateData) -> Model:
        relation = data.relation("visits", ["age", "ward"])   # rows in an engine, through a policy's view
        data.account                                          # is charged before they are read
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cloister.data.private_table import PrivateTable
from cloister.data.tables import Tables
from cloister.privacy.ledger import Account

__all__ = ["ColumnFacts", "PayingAnalyst", "PrivateData", "PrivateTables"]


class PayingAnalyst(Protocol):
    """An analyst whose account is charged beside the dataset's."""

    @property
    def account(self) -> Account:
        """The analyst's account, in the same ledger as the dataset's."""
        ...

    @property
    def label(self) -> str:
        """A label of the work, which enters the hash of its requests."""
        ...


class ColumnFacts(Protocol):
    """The public facts of a column, as its reader sees it."""

    @property
    def type(self) -> str:
        """Integer, real, text, boolean, date or timestamp."""
        ...

    @property
    def low(self) -> float | None:
        """The lower limit of a number, if public."""
        ...

    @property
    def high(self) -> float | None:
        """The upper limit of a number, if public."""
        ...

    @property
    def values(self) -> tuple[Any, ...] | None:
        """All values besides NULL, if that list is public."""
        ...

    @property
    def nullable(self) -> bool:
        """True if it may be NULL."""
        ...

    @property
    def unit(self) -> bool:
        """True if it identifies the unit."""
        ...


class PrivateTables(Protocol):
    """Tables with public facts, whose rows a model can refer to. Nothing here reads a row."""

    @property
    def tables(self) -> Tables:
        """The tables, their public facts and their engine."""
        ...

    def columns(self, table: str) -> Mapping[str, ColumnFacts]:
        """Return the columns of a table, through its view if there is one, with their public facts."""
        ...

    def relation(self, table: str | None, columns: Sequence[str]) -> PrivateTable:
        """Return the rows of a private table, through its view if there is one. Nothing is read.

        Args:
            table: its name; default the only private table.
            columns: the columns needed.
        """
        ...


class PrivateData(PrivateTables, Protocol):
    """Protected tables and the account that is charged for what leaves them.

    Privacy: nothing here reads a row. Rows are read through `relation`, after a charge to `account`.
    """

    @property
    def account(self) -> Account:
        """The account that is charged."""
        ...

    @property
    def reader(self) -> PayingAnalyst | None:
        """The analyst who asks, if there is one."""
        ...

    @property
    def version(self) -> str:
        """The owner's name for this state of the data."""
        ...
