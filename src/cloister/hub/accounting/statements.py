"""Statements of account: who spent what, for which purpose, when, and what is left.

Every figure comes from the ledger's signed entries. The jobs in the hub's own database add the purpose. If the two do
not agree, `problems` names the entry or the job, and the page shows it prominently.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session, defer

from cloister.hub.approvals.visibility import may_know
from cloister.hub.core.models import Dataset, Job, Output, Person, Spent, analyst, person_number
from cloister.hub.policy.conditions import Environment
from cloister.privacy.errors import AccountMismatch
from cloister.privacy.ledger import Balance
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub
import threading
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cloister.privacy.errors import LedgerBroken
from cloister.privacy.ledger.chain import BEFORE_ALL, Entry
from cloister.privacy.ledger.store import open_store

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["StatementLine", "Mine", "Statement", "Sum", "for_owner", "for_user", "only", "share", "analyst"]


# Charges by account, from the ledger's signed entries; each read continues where the last one stopped.
#
# The chain is checked while it is read (hashes, order, the newest signature), so a figure on a page comes from
# a consistent chain that the hub signed. Memory grows with the charges, by some hundred bytes each.


@dataclass(frozen=True, slots=True)
class Charged:
    """One loss in one account.

    Attributes:
        entry: the number of the ledger entry.
        time: the time in seconds since 1970.
        kind: reserve, charge or write-off.
        loss: the loss in the account's measure.
        request: SHA-256 of the request's text.
        analyst: the user whose account was debited in the same entry, or whose account this is; empty if none.
        state: `charged`; `released` if it was committed; `void` if it was cancelled.
    """

    entry: int
    time: float
    kind: str
    loss: Loss
    request: str
    analyst: str
    state: str = "charged"


class Charges:
    """Charges of one ledger, by account."""

    def __init__(self, hub: "Hub") -> None:
        self._place = hub.settings.ledger
        self._key = hub.key.public
        self._lock = threading.Lock()
        self._number, self._hash = 0, BEFORE_ALL
        self._accounts: dict[str, dict[int, Charged]] = {}
        self._open: dict[int, tuple[str, ...]] = {}  # reserves that are neither committed nor voided

    def of(self, account: str) -> list[Charged]:
        """Return every charge of an account, oldest first; voided charges are marked."""
        with self._lock:
            self._follow()
            return list(self._accounts.get(account, {}).values())

    def accounts(self) -> list[str]:
        """Return every account that was ever charged."""
        with self._lock:
            self._follow()
            return sorted(self._accounts)

    def _follow(self) -> None:
        store, last = open_store(self._place, "read"), None
        try:
            with store.reading() as tables:
                for rows in tables.pages(self._number):
                    for row in rows:
                        last = Entry.parse(*row)
                        self._next(last)
        finally:
            store.close()
        if last is not None:
            last.check_signature(self._key)

    def _next(self, entry: Entry) -> None:
        entry.check_hash()
        if (entry.number, entry.previous) != (self._number + 1, self._hash):
            raise LedgerBroken(f"entry {self._number + 1} is missing or does not follow the one before.")
        if entry.kind in ("reserve", "charge", "write-off"):
            time = datetime.fromisoformat(entry.time).timestamp()
            whose = next((line.account.partition("@")[2] for line in entry.lines if "@" in line.account), "")
            if entry.kind == "reserve":
                self._open[entry.number] = tuple({line.account for line in entry.lines})
            for line in entry.lines:
                charge = Charged(entry.number, time, entry.kind, line.loss, entry.request, whose)
                self._accounts.setdefault(line.account, {})[entry.number] = charge
        elif entry.kind in ("commit", "void"):
            state = "released" if entry.kind == "commit" else "void"
            reserve = entry.settles or 0
            for account in self._open.pop(reserve, ()):
                self._accounts[account][reserve] = replace(self._accounts[account][reserve], state=state)
        self._number, self._hash = entry.number, entry.hash


_books: "WeakKeyDictionary[Hub, Charges]" = WeakKeyDictionary()
_guard = threading.Lock()


def charges_of(hub: "Hub") -> Charges:
    """Return the charges of a hub's ledger; always the same object, so that nothing is read twice."""
    with _guard:
        if hub not in _books:
            _books[hub] = Charges(hub)
        return _books[hub]


_NOBODY = "nobody named"


@dataclass(frozen=True, slots=True)
class StatementLine:
    """One charge in a statement.

    Attributes:
        entry: the number of the ledger entry.
        time: the time of the charge.
        loss: the loss of the account.
        state: `charged`; `released` if an answer was given.
        what: the job type, or `write-off`.
        job_id: the job; None if no job of this hub matches.
        person_id: the requesting user.
        person: their name.
        purpose: the stated purpose.
    """

    entry: int
    time: float
    loss: Loss
    state: str
    what: str
    job_id: int | None
    person_id: int | None
    person: str
    purpose: str


@dataclass(frozen=True, slots=True)
class UnpricedRelease:
    """Release without epsilon: an anonymised table. It is in no account of the ledger, only in the audit log."""

    time: float
    job_id: int
    person_id: int
    person: str
    purpose: str


@dataclass(frozen=True, slots=True)
class Sum:
    """Sum of charges with the same user, purpose or month."""

    label: str
    loss: Loss
    count: int
    share: float  # of the cap


@dataclass(frozen=True, slots=True)
class Statement:
    """Statement of a dataset's account.

    Attributes:
        balance: the current balance in the ledger; None if the account was never opened.
        lines: every charge, newest first.
        by_person, by_purpose, by_month: sums, largest first (months in order).
        problems: differences between the ledger and the hub's jobs; empty if there are none.
        without_epsilon: anonymised releases, newest first. No total contains them.
    """

    dataset: str
    balance: Balance | None
    lines: tuple[StatementLine, ...]
    by_person: tuple[Sum, ...]
    by_purpose: tuple[Sum, ...]
    by_month: tuple[Sum, ...]
    problems: tuple[str, ...]
    without_epsilon: tuple[UnpricedRelease, ...] = ()

    @property
    def share(self) -> float:
        """Return the spent share of the budget, from 0 to 1."""
        return 0.0 if self.balance is None else share(self.balance.spent, self.balance.rules.cap)


@dataclass(frozen=True, slots=True)
class Mine:
    """Charges of one user on one dataset.

    Attributes:
        dataset: the name of the dataset.
        spent: the total of the user's own account in the ledger; None if they have none.
        left: the rest of the dataset's budget, for all users; None if the user may not see the dataset now.
        lines: the user's charges, newest first.
    """

    dataset: str
    spent: Loss | None
    left: Loss | None
    lines: tuple[StatementLine, ...]


def for_owner(hub: "Hub", session: Session, dataset: Dataset) -> Statement:
    """Return the statement of a dataset, for its owner and for auditors: it names users, but holds no answers."""
    charged = [charge for charge in charges_of(hub).of(dataset.name) if charge.state != "void"]
    jobs = _Jobs(session, sa.select(Job).where(Job.dataset_id == dataset.id).options(defer(Job.plan)))
    balance = _balance(hub, dataset.name)
    lines = [jobs.line(charge) for charge in charged]
    cap = balance.rules.cap if balance else Loss.from_json(dataset.budget)
    return Statement(
        dataset.name,
        balance,
        tuple(reversed(lines)),
        _sums(lines, lambda line: line.person, cap),
        _sums(lines, lambda row: row.purpose, cap),
        _months(lines, cap),
        tuple(_problems(session, dataset, balance, lines, jobs)),
        _unpriced(session, dataset),
    )


def _unpriced(session: Session, dataset: Dataset) -> tuple[UnpricedRelease, ...]:
    released = sa.select(Output).where(Output.dataset_id == dataset.id, Output.released.is_not(None))
    return tuple(
        UnpricedRelease(
            output.released or 0.0, output.job_id, output.job.person_id, output.job.person.name, output.job.purpose
        )
        for output in session.scalars(released.order_by(Output.released.desc()))
    )


def only(statement: Statement, person: Person) -> Statement:
    """Return the part of a statement that a data user may read: the total, and their own charges."""
    lines = tuple(line for line in statement.lines if line.person_id == person.id)
    without = tuple(release for release in statement.without_epsilon if release.person_id == person.id)
    if statement.balance is None:
        return Statement(statement.dataset, None, lines, (), (), (), (), without)
    cap = statement.balance.rules.cap
    purposes, months = _sums(lines, lambda line: line.purpose, cap), _months(lines, cap)
    return Statement(statement.dataset, statement.balance, lines, (), purposes, months, (), without)


def for_user(hub: "Hub", session: Session, person: Person, environment: Environment) -> list[Mine]:
    """Return a user's charges by dataset.

    What is left of a dataset is shown only to users who may see the dataset now: it reveals what others spend.
    """
    wanted = sa.select(Dataset).join(Spent, Spent.dataset_id == Dataset.id).where(Spent.person_id == person.id)
    statements = []
    for dataset in session.scalars(wanted.distinct().order_by(Dataset.name)):
        own_jobs = sa.select(Job).where(Job.dataset_id == dataset.id, Job.person_id == person.id)
        jobs = _Jobs(session, own_jobs.options(defer(Job.plan)))
        key = f"{dataset.name}@{analyst(person.id)}"
        lines = [jobs.line(charge) for charge in charges_of(hub).of(key) if charge.state != "void"]
        visible = dataset.deleted is None and may_know(hub, session, person, dataset, environment)
        user_balance, dataset_balance = _balance(hub, key), _balance(hub, dataset.name) if visible else None
        spent, left = user_balance.spent if user_balance else None, dataset_balance.left if dataset_balance else None
        statements.append(Mine(dataset.name, spent, left, tuple(reversed(lines))))
    return statements


def share(spent: Loss, cap: Loss) -> float:
    """Return the spent share of a cap: of its amount or of its delta, whichever is larger."""
    parts = [Fraction(spent.amount) / cap.amount if cap.amount else Fraction(0)]
    if cap.delta:
        parts.append(spent.delta / cap.delta)
    return float(min(max(parts), Fraction(1)))


class _Jobs:
    """Finds the job of a charge: by the digest of its request, or by the entry that its receipt names."""

    def __init__(self, session: Session, wanted: sa.Select[Job]) -> None:
        self.all = list(session.scalars(wanted.order_by(Job.id)))
        self._by_digest: dict[str, list[Job]] = defaultdict(list)
        self._by_entry: dict[int, Job] = {}
        for job in self.all:
            if job.charge:
                self._by_digest[job.charge].append(job)
            for entry in _entries(job.receipt):
                self._by_entry[entry] = job
        self._names = {person.id: person.name for person in session.scalars(sa.select(Person))}

    def of(self, charged: Charged) -> Job | None:
        if (match := self._by_entry.get(charged.entry)) is not None:
            return match
        same = self._by_digest.get(charged.request, [])
        # If one request was charged again for a later job, take the newest job that had begun by then.
        return next((job for job in reversed(same) if (job.started or job.created) <= charged.time + 1), None)

    def line(self, charged: Charged) -> StatementLine:
        job = self.of(charged)
        person_id = job.person_id if job else person_number(charged.analyst)
        name = self._names.get(person_id, _NOBODY) if person_id is not None else _NOBODY
        written_off = charged.kind == "write-off"
        return StatementLine(
            charged.entry,
            charged.time,
            charged.loss,
            charged.state,
            "write-off" if written_off else job.kind if job else "unknown",
            job.id if job else None,
            person_id,
            "the owner, written off" if written_off else name,
            "written off" if written_off else job.purpose if job else "unknown",
        )


def _problems(
    session: Session, dataset: Dataset, balance: Balance | None, lines: list[StatementLine], jobs: _Jobs
) -> Iterable[str]:
    if balance is not None:
        none = Loss.nothing(balance.spent.measure, balance.spent.relation)
        total = sum((line.loss for line in lines), start=none)
        if total != balance.spent:
            yield f"The entries add up to {total}, and the ledger's total is {balance.spent}."
    paid: dict[int, Loss] = {}
    for line in lines:
        if line.job_id is not None:
            paid[line.job_id] = paid[line.job_id] + line.loss if line.job_id in paid else line.loss
        elif line.what != "write-off":
            yield f"Entry {line.entry} of the ledger charges {line.loss}, and no job of this hub asked for it."
    for job in jobs.all:
        claimed = Loss.from_json(job.loss) if job.loss else None
        if claimed is not None and claimed.amount and job.state not in ("running", "charged"):
            if job.id not in paid:
                yield f"Job {job.id} says that it cost {claimed}, and the ledger has no such charge."
            elif paid[job.id] != claimed:
                yield f"Job {job.id} says that it cost {claimed}, and the ledger charged {paid[job.id]}."
    yield from _unbooked(session, dataset, paid)


def _unbooked(session: Session, dataset: Dataset, paid: dict[int, Loss]) -> Iterable[str]:
    """Find charges above the reserved amount: the limits per day and per person would be too lenient."""
    booked = session.execute(sa.select(Spent.job_id, Spent.loss).where(Spent.dataset_id == dataset.id))
    aside = {number: Loss.from_json(loss) for number, loss in booked}
    for number, loss in paid.items():
        if number not in aside or not loss <= aside[number]:
            reserved = aside.get(number, "nothing")
            yield f"Job {number} was charged {loss}, and {reserved} was set aside for it: limits count too little."


def _sums(lines: Iterable[StatementLine], label: Callable[[StatementLine], str], cap: Loss) -> tuple[Sum, ...]:
    groups: dict[str, list[Loss]] = defaultdict(list)
    for line in lines:
        groups[label(line)].append(line.loss)
    totals = [(name, sum(losses[1:], start=losses[0]), len(losses)) for name, losses in groups.items()]
    totals.sort(key=lambda total: (-total[1].amount, total[0]))
    return tuple(Sum(name, loss, count, share(loss, cap)) for name, loss, count in totals)


def _months(lines: Iterable[StatementLine], cap: Loss) -> tuple[Sum, ...]:
    months = _sums(lines, lambda line: datetime.fromtimestamp(line.time, UTC).strftime("%Y-%m"), cap)
    return tuple(sorted(months, key=lambda month: month.label))


def _balance(hub: "Hub", key: str) -> Balance | None:
    try:
        return hub.ledger.balance(key)
    except AccountMismatch:
        return None


def _entries(receipts: str | None) -> list[int]:
    """Return the ledger entries that a job's receipts name; one receipt per line."""
    numbers = []
    for line in (receipts or "").splitlines():
        try:
            numbers.append(int(json.loads(line)["receipt"]["ledger"]["entry"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return numbers
