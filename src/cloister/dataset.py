"""A dataset: tables, their public facts, the privacy unit, and the account charged for every answer.

ds = cl.open("visits.parquet", schema="visits.yaml", budget=cl.epsilon(2, delta=1e-7))
plan = ds.plan("SELECT ward, AVG(stay_days) FROM visits GROUP BY ward", spend=cl.rho("0.01"))
print(plan)              # what it costs, what error to expect, the SQL the engine will run
answer = ds.run(plan)    # a Release: a table with error bars
"""

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from cloister.data.private_table import PrivateTable
from cloister.data.schema import Schema
from cloister.data.tables import Tables, open_tables
from cloister.privacy.errors import BadLoss, BadSchema
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss, Unit, check_loss
from cloister.privacy.noise import Source
from cloister.privacy.number import Number
from cloister.privacy.release import Release
from cloister.privacy.signing import fingerprint
from cloister.query import discovery
from cloister.query.analyst import Analyst, Payers
from cloister.query.answer import Answer
from cloister.query.answer_cache import AnswerCache
from cloister.query.builder import Builder
from cloister.query.catalog import Catalog
from cloister.query.expression import Expression
from cloister.query.plan import Plan
from cloister.query.run import answer_plan, plan_sql

__all__ = ["Dataset", "open"]


def open(  # noqa: A001
    source: object,
    *,
    schema: Schema | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    budget: Loss | None = None,
    unit: Unit | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    name: str | None = None,
    version: str = "",
    **engine: Any,
) -> "Dataset":
    """Open tables for private queries. No row is read.

    Args:
        source: a CSV or Parquet file, a folder of Parquet, a DuckDB file, an Arrow table, a pandas or polars frame, a
            Spark DataFrame or session, a postgresql:// address, or a dict from table name to any of these.
        schema: the public facts: a `Schema`, a path to `schema.yaml`, or its content. Required.
        budget: the most that all answers together may cost; an add/remove loss.
        unit: the privacy unit, if the schema does not state it, or to override it.
        ledger: the ledger, or a folder for it; default `.cloister` in the working folder.
        name: the account's name; default the first table's name.
        version: the owner's name for this state of the data; it enters receipts, and answers are reused only within it.
        engine: `memory_limit`, `threads`, `timeout_s`, `spill`.

    Privacy: every answer is charged to one account before a row is read; the total stays within the budget.
    """
    if schema is None:
        raise BadSchema(
            "a schema says what is public of the tables: open(source, schema='schema.yaml', budget=epsilon(1)). "
            "`cloister schema draft FILE` writes a first one."
        )
    if budget is None:
        raise BadLoss("say what all answers together may cost: open(source, schema=…, budget=epsilon(1)).")
    check_loss(budget, "budget")
    facts = schema if isinstance(schema, Schema) else Schema.load(schema)
    if unit is not None:
        facts = replace(facts, unit=unit)
    tables = open_tables(source, facts, **engine)
    folder = None if isinstance(ledger, Ledger) else Path(ledger or ".cloister")
    book = ledger if isinstance(ledger, Ledger) else Ledger.in_folder(ledger or ".cloister")
    account = book.open_account(name or next(iter(facts.tables)), budget)
    return Dataset(tables, account, version, None if folder is None else folder / _record_name(account.rules.key))


def _record_name(account: str) -> str:
    """Return the file name of an account's record. The hash separates `a/b` from `a_b`, also ignoring case."""
    return f"{quote(account, safe='')[:80]}-{fingerprint(account)[:16]}.record"


class Dataset:
    """Private answers from protected tables.

    Attributes:
        account: the account that is charged.
        reader: the analyst who asks, if there is one.
        catalog: the tables as this reader sees them.
    """

    def __init__(
        self,
        tables: Tables,
        account: Account,
        version: str = "",
        record: AnswerCache | str | os.PathLike[str] | None = None,
        *,
        reader: Analyst | None = None,
    ) -> None:
        check_loss(account.cap, "budget")
        self.account = account
        self.reader = reader
        # The same every time for this owner and account; a secret from everyone else.
        secret = fingerprint(account.book.key.sign(f"cloister pairs {account.rules.key}".encode()))[:32]
        self.catalog = Catalog(tables, version, secret, _key(reader))
        self._record = record if isinstance(record, AnswerCache) else AnswerCache(version, record)

    @property
    def tables(self) -> Tables:
        """The tables and their engine."""
        return self.catalog.tables

    @tables.setter
    def tables(self, tables: Tables) -> None:
        self.catalog.tables = tables

    @property
    def version(self) -> str:
        """The owner's name for this state of the data."""
        return self.catalog.version

    @property
    def schema(self) -> Schema:
        """The public facts."""
        return self.catalog.schema

    @property
    def unit(self) -> Unit:
        """The privacy unit."""
        return self.schema.unit

    @property
    def left(self) -> Loss:
        """The budget that is left."""
        return self.account.left

    def asked_by(self, reader: Analyst | None) -> "Dataset":
        """Return this dataset for an analyst whose account is charged beside the dataset's.

        What others found, by `find_keys`, `find_bounds` or a question, is unknown to the analyst, who pays to find it.
        """
        return self._twin(reader, self.catalog.views)

    def through(self, views: Mapping[str, str]) -> "Dataset":
        """Return this dataset with some tables read through a SELECT of rows: a policy's columns and rows.

        Args:
            views: `{"visits": "SELECT ward, age FROM visits WHERE ward = 'cardiology'"}`. Tables that are not named
                are read whole; a view reads the tables themselves, never other views.
        """
        twin = self._twin(self.reader, views)
        for name in views:
            if twin.catalog.table(name) is None:
                raise BadSchema(f"there is no table {name} to be seen through a view. Look at the schema.")
        return twin

    def _twin(self, reader: Analyst | None, views: Mapping[str, str]) -> "Dataset":
        twin = copy(self)
        twin.reader, twin.catalog = reader, self.catalog.seen_by(_key(reader), views)
        return twin

    def plan(
        self,
        sql: "str | Builder",
        *,
        spend: Loss | None = None,
        within: Number | None = None,
        confidence: Number = "0.95",
    ) -> Plan:
        """Return the cost and the expected error of a query. Planning costs nothing and reads no row.

        Args:
            sql: the query.
            spend: the most it may cost; with a delta, groups that are not public are found first; or
            within: the acceptable error, in the units of the answer; the smallest sufficient loss is found. For an
                average it is the error if all `rows` of the schema meet the WHERE; the plan says so.
            confidence: of the intervals, from 1e-9 to 1 - 1e-9.
        """
        return plan_sql(
            str(sql), self.catalog, self.account, self._record, spend=spend, within=within, confidence=confidence
        )

    def run(self, plan: Plan, *, source: Source | None = None) -> Answer:
        """Run a plan: charge the account, read the rows, add noise.

        Privacy: the plan's loss; none if all it needs was released before.
        """
        return answer_plan(plan, self.catalog, Payers(self.account, self.reader), self._record, source=source)

    def sql(self, text: str, *, spend: Loss, confidence: Number = "0.95", source: Source | None = None) -> Answer:
        """Plan and run a query in one call."""
        return self.run(self.plan(text, spend=spend, confidence=confidence), source=source)

    def find_keys(self, column: str, *, spend: Loss, source: Source | None = None) -> Release:
        """Find the values of a column that enough people share, and use them as its groups from now on.

        Args:
            column: `table.column`, or `column` if there is one private table.
            spend: with a delta, such as `epsilon("0.5", delta="1e-8")`.
            source: the source of random bits.

        Privacy: the spend; see `query.discovery.Thresholded`. Values that few people have stay hidden.
        """
        return discovery.find_keys(column, spend, self.catalog, Payers(self.account, self.reader), source)

    def find_bounds(self, column: str, *, spend: Loss, source: Source | None = None) -> Release:
        """Find a range between powers of two that holds nearly all of a column, and clip to it from now on.

        Privacy: the spend, for a noisy histogram over public bins; the rest is post-processing.
        """
        return discovery.find_bounds(column, spend, self.catalog, Payers(self.account, self.reader), source)

    def columns(self, table: str) -> dict[str, Expression]:
        """Return the columns of a table, through its view if there is one, with their public facts."""
        return self.catalog.columns(table)

    def relation(self, table: str | None, columns: Sequence[str]) -> PrivateTable:
        """Return the rows of a private table, through its view if there is one, for training models.

        Args:
            table: its name; default the only private table.
            columns: the columns needed. Rows with NULL in a column that may not be NULL are left out.

        Nothing is read.
        """
        return self.catalog.private_table(table, columns)

    def where(self, condition: str) -> Builder:
        """Start a query built in Python: `ds.where("age >= 18").group_by("ward").agg(cl.count())`."""
        return self.table().where(condition)

    def table(self, name: str | None = None) -> Builder:
        """Start a query on a table; default the only private one."""
        return Builder(self, self.catalog.only_private(name))

    def group_by(self, *columns: str) -> Builder:
        """Start a query with its groups."""
        return self.table().group_by(*columns)

    def close(self) -> None:
        """Close the source."""
        self.tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Dataset {', '.join(self.schema.tables)}; protects {self.unit}; {self.left} left>"


def _key(reader: Analyst | None) -> str:
    return "" if reader is None else reader.account.rules.key
