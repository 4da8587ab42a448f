"""A dataset: tables, their public facts, the privacy unit, and the account charged for every answer.

ds = cl.open("visits.parquet", schema="visits.yaml", budget=cl.epsilon(2, delta=1e-7))
plan = ds.plan("SELECT ward, AVG(stay_days) FROM visits GROUP BY ward", spend=cl.rho("0.01"))
print(plan)              # what it costs, what error to expect, the SQL the engine will run
answer = ds.run(plan)    # a Release: a table with error bars
"""

import os
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from sqlglot import exp

from cloister.data.dialect import literal, verbatim
from cloister.data.private_table import PrivateTable
from cloister.data.schema import UNIT, Column, Schema, internal
from cloister.data.schema import Table as TableFacts
from cloister.data.tables import Tables, open_tables
from cloister.privacy.canonical import fingerprint
from cloister.privacy.errors import BadLoss, BadProbability, BadSchema, OverBudget, QueryRefused
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss, Unit, check_loss
from cloister.privacy.measure import measure
from cloister.privacy.noise import Source
from cloister.privacy.number import Number, rational, show
from cloister.privacy.release import Release
from cloister.query.accuracy import cheapest
from cloister.query.analyst import Analyst
from cloister.query.answer import Answer
from cloister.query.answer_cache import AnswerCache, Snapshot
from cloister.query.builder import Builder
from cloister.query.discovery import (
    Find,
    Found,
    found_range,
    key_finder,
    keys_in,
    keys_sql,
    range_counts,
    range_finder,
    to_find,
)
from cloister.query.expression import Decimals, Expression
from cloister.query.from_clause import SourceRows
from cloister.query.plan import Plan, as_noise, fitting, make_plan, most_found
from cloister.query.postprocess import check_arrangement
from cloister.query.question import Question, ask, relation
from cloister.query.run import nothing_found, rehearse, run_plan

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


_FEW = 1000  # if at most this many groups can be answered, a plan that finds groups notes it
_LEAST_RISK = 1e-9  # of a confidence and of its complement
_SMALL_DELTA = Fraction(1, 10**9)

# Placeholders for groups that are still to be found, by type. Groups of other types cannot be found.
_PLACEHOLDERS: Mapping[str, tuple[Any, ...]] = {"text": ("…",), "integer": (0,)}


class Dataset:
    """Private answers from protected tables."""

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
        self.tables = tables
        self.account = account
        self.version = version
        self.reader = reader
        self._record = record if isinstance(record, AnswerCache) else AnswerCache(version, record)
        self._through: Mapping[str, str] = {}
        self._token = object()  # shared by all views of this dataset, for every analyst
        self._found: dict[tuple[str, str, str], Expression] = {}  # by table, view and column
        self._groups: dict[tuple[str, ...], Found] = {}
        self._views: dict[tuple[str, tuple[str, ...]], SourceRows] = {}
        # The same every time for this owner and account; a secret from everyone else.
        self._secret = fingerprint(account.book.key.sign(f"cloister pairs {account.rules.key}".encode()))[:32]

    @property
    def schema(self) -> Schema:
        """The public facts."""
        return self.tables.schema

    @property
    def unit(self) -> Unit:
        """The privacy unit."""
        return self.schema.unit

    @property
    def left(self) -> Loss:
        """The budget that is left."""
        return self.account.left

    def asked_by(self, reader: Analyst | None) -> "Dataset":
        """Return this dataset for an analyst whose account is charged beside the dataset's."""
        return self._twin(reader, self._through)

    def through(self, views: Mapping[str, str]) -> "Dataset":
        """Return this dataset with some tables read through a SELECT of rows: a policy's columns and rows.

        Args:
            views: `{"visits": "SELECT ward, age FROM visits WHERE ward = 'cardiology'"}`. Tables that are not named
                are read whole; a view reads the tables themselves, never other views.
        """
        twin = self._twin(self.reader, {name.lower(): sql for name, sql in views.items()})
        for name in views:
            if twin._table(name) is None:
                raise BadSchema(f"there is no table {name} to be seen through a view. Look at the schema.")
        return twin

    def _twin(self, reader: Analyst | None, through: Mapping[str, str]) -> "Dataset":
        twin = copy(self)
        twin.reader, twin._through = reader, through
        twin._found = dict(self._found)  # values one reader finds are not shared with another
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
        self._record.refresh()
        if spend is not None:
            check_loss(spend)
        question = ask(str(sql), self._table, self.tables.engine.dialect)
        check_arrangement(question)
        share = float(rational(confidence, "confidence"))
        if not _LEAST_RISK <= share <= 1 - _LEAST_RISK:  # before the charge, not after
            raise BadProbability(f"confidence must lie between 1e-9 and 1 - 1e-9, got {share!r}. Write '0.95'.")
        if (spend is None) == (within is None):
            raise BadLoss(
                "say what the answer may cost (spend=rho('0.01')) or how wrong it may be (within=5), one of them."
            )
        if spend is None:
            assert within is not None
            pure = self.account.kind == "pure"
            plan = cheapest(lambda loss: self._plan(question, loss, share), float(rational(within, "within")), pure)
            rehearse(plan)
            return plan
        plan = self._plan(question, spend, share)
        rehearse(plan)
        self.account.price(plan.spend)  # a pure account cannot pay in rho: refuse before anything is asked
        return plan

    def run(self, plan: Plan, *, source: Source | None = None) -> Answer:
        """Run a plan: charge the account, read the rows, add noise.

        Privacy: the plan's loss; none if all it needs was released before.
        """
        if not isinstance(plan, Plan):
            raise QueryRefused(
                "run takes a plan. Write ds.run(ds.plan(sql, spend=rho('0.01'))), or ds.sql(sql, spend=…)."
            )
        if plan.origin != self._origin:  # its statements contain the rows, unit and caps of the dataset it was made for
            raise QueryRefused(
                "this plan was made for another dataset, another view of it, or another reader. Plan the question here."
            )
        self._record.refresh()
        seen = self._record.snapshot()  # price and answer come from this one snapshot, whatever other threads enter
        if plan.basis != (seen.number, id(plan.question)):  # the record has grown since, or the question changed
            if plan.finds:  # it was laid out for a placeholder: start again from the original question
                asked = ask(plan.question.text, self._table, self.tables.engine.dialect)
                plan = self._plan(asked, _whole(plan), plan.confidence, seen)
            else:
                again = self._plan(plan.question, plan.spend, plan.confidence, seen)
                plan = replace(again, notes=tuple(dict.fromkeys([*again.notes, *plan.notes])))
        rehearse(plan)  # its question may have been replaced, or its groups found, since it was made
        searches = [self._search(plan.question.rows, plan.question.groups[one.group].term) for one in plan.finds]
        self._prepare(*searches, *plan.statements())
        if plan.finds:
            return self._find_then_run(plan, source)
        try:
            return run_plan(
                plan,
                self.tables.engine,
                self.account,
                reader=self.reader,
                version=self.version,
                source=source,
                record=seen.values,
                keep=self._record.keep,
            )
        except OverBudget as error:
            raise _explained(error, self.account, plan.spend) from None

    def _find_then_run(self, plan: Plan, source: Source | None) -> Answer:
        """Find a query's groups, then count in them. Two charges: the second read depends on the first answer."""
        question, notes, receipts, told = plan.question, [], [], dict[int, Found]()
        for account in (self.account, *self._besides):  # do not start a search whose result could not be used
            self.account.book.balance(account.rules.key).add(account.price(_whole(plan)))
        for find in plan.finds:
            term = question.groups[find.group].term
            found = measure(
                partial(keys_in, question.rows, term, self.unit, self._secret, self.tables.engine),
                find.mechanism,
                account=self.account,
                besides=self._besides,
                request=self._request(f"groups of {find.name} in {question.text}"),
                unit=self.unit,
                data_version=self.version,
                source=source,
            )
            told[find.group] = found.value
            if found.private and found.value:
                self._groups[self._group_key(question, find.group)] = found.value
            assert found.receipt is not None
            receipts.append(found.receipt)
            entry = found.receipt.body["ledger"]["entry"]
            notes.append(f"{find} (entry {entry} of the ledger); rows of other groups are left out")
        if not all(told.values()):
            return nothing_found(plan, notes, receipts)
        for i, group in enumerate(question.groups):  # groups known before count towards the same limit
            known = None if group.complete else self._groups.get(self._group_key(question, i))
            told |= {} if known is None else {i: known}
        question, left_out = fitting(question, told)
        notes += left_out
        then = self._plan(question, plan.spend, plan.confidence)
        answer = self.run(then, source=source)
        loss = sum((one.mechanism.loss for one in plan.finds), start=answer.loss)
        return replace(answer, loss=loss, notes=(*notes, *answer.notes), search=tuple(receipts))

    def _prepare(self, *statements: str) -> None:
        """Have the engine parse statements before they are charged, so that a statement it rejects costs nothing."""
        for statement in statements:
            self.tables.engine.prepare(statement)

    def _search(self, rows: SourceRows, term: Expression) -> str:
        """Return the statement that finds the values of a term, with a placeholder for the secret."""
        return keys_sql(rows, term, self.unit, "…", self.tables.engine.dialect)

    def _group_key(self, question: Question, group: int) -> tuple[str, ...]:
        """Return the key of found groups: the rows they come from and the reader. Readers do not share found groups."""
        return (self.version, question.rows.sql.sql(), question.groups[group].term.sql.sql(), self._who)

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
        check_loss(spend)
        table, name, rows, term = self._column(column)
        mechanism = key_finder(spend, self.unit, rows.by_row, rows.copies)
        self._prepare(self._search(rows, term))
        found = measure(
            lambda: keys_in(rows, term, self.unit, self._secret, self.tables.engine),
            mechanism,
            account=self.account,
            besides=self._besides,
            request=self._request(f"find_keys({column})"),
            unit=self.unit,
            data_version=self.version,
            source=source,
        )
        # All other values form one more group, NULL, so that totals include every row.
        self._found[*self._seen_as(table), name] = replace(
            term, values=tuple(value for value, _ in found.value), nullable=True, listed=False
        )
        return replace(found, value=[value for value, _ in found.value])

    def find_bounds(self, column: str, *, spend: Loss, source: Source | None = None) -> Release:
        """Find a range between powers of two that holds nearly all of a column, and clip to it from now on.

        Privacy: the spend, for a noisy histogram over public bins; the rest is post-processing.
        """
        check_loss(spend)
        table, name, rows, term = self._column(column)
        if term.type not in ("integer", "real"):
            raise BadSchema(f"{column} is {term.type}: only numbers have bounds to find.")
        if term.values is not None:
            raise BadSchema(f"{column} has a list of values, and so its bounds are known.")
        sums = range_counts(rows, term, self.unit)
        mechanism = range_finder(spend, sums)
        self._prepare(sums.sql(self.tables.engine.dialect))
        counts = measure(
            lambda: sums.run(self.tables.engine)[0],
            mechanism,
            account=self.account,
            besides=self._besides,
            request=self._request(f"find_bounds({column})"),
            unit=self.unit,
            data_version=self.version,
            source=source,
        )
        found = found_range(counts.value, mechanism)
        self._found[*self._seen_as(table), name] = replace(
            term, low=found.low, high=found.high, clipped=False, decimals=None
        )
        return replace(counts, value=(found.low, found.high), standard_error=None, _margin=None)

    def columns(self, table: str) -> dict[str, Expression]:
        """Return the columns of a table, through its view if there is one, with their public facts."""
        rows = self._table(table)
        if rows is None:
            raise BadSchema(f"there is no table {table!r:.60}. Look at the schema.")
        return dict(rows.columns)

    def relation(self, table: str | None, columns: Sequence[str]) -> PrivateTable:
        """Return the rows of a private table, through its view if there is one, for training models.

        Args:
            table: its name; default the only private table.
            columns: the columns needed. Rows with NULL in a column that may not be NULL are left out.

        Nothing is read.
        """
        private = [one.name for one in self.schema.tables.values() if not one.public]
        name = private[0] if table is None and len(private) == 1 else table
        if name is None or name not in private:
            raise BadSchema("say which private table to learn from: table='visits'.")
        found = self._table(name, frozenset(one.lower() for one in columns))
        assert found is not None
        unknown = [one for one in columns if one not in found.columns or found.columns[one].unit]
        if unknown:
            raise BadSchema(f"there is no column {name}.{unknown[0]:.60} to learn from. Look at the schema.")
        alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
        rows = exp.select().from_(exp.Subquery(this=found.sql.copy(), alias=alias))
        seen = {one: _seen(one, found.columns[one]) for one in columns}
        most = None
        if not found.by_row:
            rows = rows.select(exp.column(UNIT, quoted=True))
            most = min(self.unit.max_rows, found.most or self.unit.max_rows)
        kept = frozenset(one for one in columns if found.columns[one].clipped)
        return PrivateTable(self.tables.engine, rows, seen, most, found.copies, name, kept, self._secret)

    def where(self, condition: str) -> Builder:
        """Start a query built in Python: `ds.where("age >= 18").group_by("ward").agg(cl.count())`."""
        return self.table().where(condition)

    def table(self, name: str | None = None) -> Builder:
        """Start a query on a table; default the only private one."""
        private = [one.name for one in self.schema.tables.values() if not one.public]
        if name is None and len(private) != 1:
            raise BadSchema(f"say which table: {', '.join(private)}.")
        return Builder(self, name or private[0])

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

    @property
    def _origin(self) -> tuple[object, ...]:
        """The state a plan's statements depend on: the tables, their views, and this reader's found groups."""
        return (self._token, self._who, *sorted(self._through.items()))

    @property
    def _who(self) -> str:
        return "" if self.reader is None else self.reader.account.rules.key

    @property
    def _besides(self) -> list[Account]:
        return [] if self.reader is None else [self.reader.account]

    def _request(self, text: str) -> str:
        return text if self.reader is None else self.reader.request(text)

    def _plan(self, question: Question, spend: Loss, confidence: float, seen: Snapshot | None = None) -> Plan:
        seen = seen or self._record.snapshot()
        finds: tuple[Find, ...] = ()
        hidden = [(i, group.name) for i, group in enumerate(question.groups) if group.values is None]
        known = {i: self._groups.get(self._group_key(question, i)) for i, _ in hidden}
        if spend.delta and hidden and all(question.groups[i].term.type in _PLACEHOLDERS for i, _ in hidden):
            # Keep the same remainder once the groups are known, so that repeating the question is free.
            finds, spend = to_find(hidden, spend, question.rows, self.unit)
            finds = tuple(one for one in finds if known[one.group] is None)
        for i in (i for i, _ in hidden if known[i] is None):
            question = _with_values(question, i, _PLACEHOLDERS[question.groups[i].term.type] if finds else None)
        question, notes = fitting(question, {i: found for i, found in known.items() if found is not None})
        most = most_found(question, [one.group for one in finds]) if finds else _FEW
        if most < _FEW:
            notes.append(f"groups that are found: the {most:,} most frequent are answered, as many as fit")
        plan = make_plan(
            question,
            spend,
            self.unit,
            dialect=self.tables.engine.dialect,
            confidence=confidence,
            size_hint=question.rows.size,
            known=(lambda _one: None) if finds else seen.release,  # a placeholder is never in the record
            secret=self._secret,
        )
        plan = replace(plan, notes=(*plan.notes, *notes))
        return replace(plan, finds=finds, basis=(seen.number, id(question)), origin=self._origin)

    def _table(self, name: str, used: frozenset[str] | None = None) -> SourceRows | None:
        view = self._through.get(name.lower())
        rows = self._whole_table(name, used) if view is None else relation(view, self._whole_table)
        if rows is None:
            return None
        # Not inside a view: a policy may name a value that is no longer a category.
        rows = _held_to_lists(rows)
        # Applied after the view: its conditions must read the original values, not the clipped ones.
        found = {column: term for (*seen, column), term in self._found.items() if tuple(seen) == self._seen_as(name)}
        return clipped_to(rows, found) if found else rows

    def _seen_as(self, table: str) -> tuple[str, str]:
        """Return the table and its view, the key under which found values are kept."""
        return table.lower(), self._through.get(table.lower(), "")

    def _whole_table(self, name: str, used: frozenset[str] | None = None) -> SourceRows | None:
        found = next((one for one in self.schema.tables.values() if one.name.lower() == name.lower()), None)
        if found is None:
            return None
        needed = tuple(column for column in found.columns if used is None or column.lower() in used)
        if (found.name, needed) not in self._views:
            # Kept as text: it never changes, and a syntax tree would be copied repeatedly.
            view = verbatim(self.tables.view(found.name, needed).sql(self.tables.engine.dialect))
            # The record identifies a statistic by the schema of its table, whichever columns the view shows. A column
            # that may not be NULL is part of that identity: rows in which it is NULL are left out.
            strict = sorted(name for name in needed if not found.columns[name].nullable)
            view.meta["table"] = " ".join([found.name, self.tables.identity(found.name), *strict])
            kind = "text" if self.tables.unit_as_text else "integer"
            rows = _with_digits(base_rows(found, view, needed, unit_type=kind), self.tables.decimals(found.name))
            keys = (one.other_column.lower() for one in self.schema.foreign_keys if one.other_table == found.name)
            self._views[found.name, needed] = replace(rows, keys=frozenset(keys) if found.public else frozenset())
        return self._views[found.name, needed]

    def _column(self, column: str) -> tuple[str, str, SourceRows, Expression]:
        """Return a column's table, name, relation and term."""
        table, _, name = column.rpartition(".")
        table = table or self.table().table
        rows = self._table(table)
        if rows is None or name not in rows.columns:
            raise BadSchema(f"there is no column {column}. Write table.column, as in the schema.")
        term = replace(rows.columns[name], sql=exp.column(name, internal("source"), quoted=True))
        inner = exp.select().from_(
            exp.Subquery(this=rows.sql, alias=exp.TableAlias(this=exp.to_identifier(internal("source"), quoted=True)))
        )
        if not rows.by_row:
            inner = inner.select(exp.alias_(exp.column(UNIT, internal("source"), quoted=True), UNIT, quoted=True))
        return table, name, replace(rows, sql=inner), term


def _with_digits(rows: SourceRows, digits: Mapping[str, int]) -> SourceRows:
    """Return a table with columns declared as decimals, kept within bounds."""
    columns = dict(rows.columns)
    for name, term in rows.columns.items():
        if name in digits and term.type == "real" and term.low is not None and term.high is not None:
            columns[name] = replace(term, decimals=Decimals.within(digits[name], term.low, term.high))
    return replace(rows, columns=columns)


def _held_to_lists(rows: SourceRows) -> SourceRows:
    """Return a private table whose listed columns may be compared with their listed values only."""
    known = {name: replace(term, listed=term.values is not None) for name, term in rows.columns.items()}
    return replace(rows, columns=known) if rows.private else rows


def _explained(error: OverBudget, account: Account, spend: Loss) -> OverBudget:
    """Return the refusal, with a hint if a pure epsilon was to be paid by an account that adds rho."""
    if account.kind == "pure" or spend.measure != "epsilon" or spend.delta:
        return error
    said = str(error).removeprefix(f"{error.code}: ")
    said += f" This account adds up in rho, and a pure {spend} costs much of it."
    if account.left.delta > _SMALL_DELTA:
        with_delta = Loss("epsilon", spend.amount, _SMALL_DELTA, spend.relation)
        said += f" With a delta it costs {as_noise(with_delta)[0]}: write 'epsilon {show(spend.amount)}, delta 1e-9'."
    explained = OverBudget(said)
    explained.decision = error.decision
    return explained


def _with_values(question: Question, group: int, values: tuple[Any, ...] | None) -> Question:
    groups = list(question.groups)
    groups[group] = replace(groups[group], values=values, complete=False)  # rows of groups not found are left out
    return replace(question, groups=tuple(groups))


def _whole(plan: Plan) -> Loss:
    """Return the spend, in rho, of a plan that finds groups."""
    return sum((one.mechanism.loss for one in plan.finds), start=plan.spend)


def base_rows(
    table: TableFacts, view: Any, needed: Collection[str] | None = None, unit_type: str = "text"
) -> SourceRows:
    """Return a table of the schema as a relation: its canonical view and the public facts of its columns."""
    columns = {name: _term(column) for name, column in table.columns.items() if needed is None or name in needed}
    if table.unit is not None and not table.public:
        person = Expression(exp.column(table.unit, quoted=True), unit_type, nullable=False, unit=True)
        columns = {table.unit: person, **columns}
    names = (*(() if table.unit is None else (table.unit,)), *table.columns)
    by_row = not table.public and table.unit is None
    return SourceRows(view, columns, not table.public, by_row, names=names, most=table.max_rows, size=table.rows)


def clipped_to(rows: SourceRows, learned: Mapping[str, Expression]) -> SourceRows:
    """Return a relation whose columns are clipped to the values or bounds found for them."""
    shown: list[exp.Expression] = []
    columns = dict(rows.columns)
    for name, term in rows.columns.items():
        column: Any = exp.column(name, quoted=True)
        if name in learned:
            found = learned[name]
            columns[name] = replace(found, sql=term.sql)
            if found.values is not None:  # any other value is NULL, also where there are bounds
                listed = exp.In(this=column, expressions=[literal(value) for value in found.values])
                kept = exp.Case(ifs=[exp.If(this=listed if found.values else exp.false(), true=column.copy())])
                column = exp.alias_(kept, name, quoted=True)
            elif found.low is not None and found.high is not None:
                # An integer column stays integer: powers of two of at least one, or zero.
                ends = [literal(int(end) if term.type == "integer" else float(end)) for end in (found.low, found.high)]
                clip = exp.Case(
                    ifs=[
                        exp.If(this=exp.LT(this=column, expression=ends[0]), true=ends[0].copy()),
                        exp.If(this=exp.GT(this=column.copy(), expression=ends[1]), true=ends[1].copy()),
                    ],
                    default=column.copy(),
                )
                column = exp.alias_(clip, name, quoted=True)
        shown.append(column)
    if not rows.by_row:
        shown.append(exp.column(UNIT, quoted=True))
    view = exp.Subquery(this=rows.sql, alias=exp.TableAlias(this=exp.to_identifier(internal("view"), quoted=True)))
    return replace(rows, sql=exp.select(*shown).from_(view), columns=columns)


def _seen(name: str, term: Expression) -> Column:
    """Return the public facts of a column after its view and after values or bounds were found."""
    if term.type in ("text", "integer") and term.values is not None:
        return Column(name, term.type, categories=tuple(term.values), nullable=term.nullable)  # type: ignore[arg-type]
    bounds: Any = None
    if term.type in ("integer", "real") and term.low is not None and term.high is not None and term.low < term.high:
        kind = int if term.type == "integer" else float
        bounds = kind(term.low), kind(term.high)
    return Column(name, term.type, bounds, nullable=term.nullable)  # type: ignore[arg-type]


def _term(column: Any) -> Expression:
    low, high = column.bounds or (None, None)
    if column.type == "integer" and column.categories:
        low, high = min(column.categories), max(column.categories)
    if column.type in ("date", "timestamp") and low is not None and high is not None:
        low, high = low.toordinal(), high.toordinal()
    numeric = column.type in ("integer", "real", "date", "timestamp")
    return Expression(
        exp.column(column.name, quoted=True),
        column.type,
        low if numeric else None,
        high if numeric else None,
        tuple(column.categories) if column.categories is not None else None,
        nullable=column.nullable,
        # Beyond 53 bits these limits are rounded and differ from those the view enforces.
        clipped=column.type in ("integer", "real")
        and column.bounds is not None
        and max(map(abs, column.bounds)) < 2**53,
        moments=column.bounds if column.type == "timestamp" else None,
    )
