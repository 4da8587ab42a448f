"""Ledger API: own charges, a dataset's account, and for an auditor the check and the copy."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from cloister.hub.accounting import ledger_copy, statements
from cloister.hub.accounting.statements import StatementLine, Sum
from cloister.hub.web.context import Visitor, scoped
from cloister.hub.web.pages.ledger import statement_of
from cloister.privacy.errors import Denied
from cloister.privacy.loss import Loss

__all__ = ["router"]

router = APIRouter(tags=["ledger"])
Reader = Annotated[Visitor, Depends(scoped("read"))]


class Spend(BaseModel):
    """One charge."""

    entry: int = Field(description="its number in the ledger")
    time: float
    person: str
    purpose: str
    kind: str
    job: int | None
    loss: dict[str, str]
    state: str = Field(description="charged, or released if an answer was given")


class Total(BaseModel):
    """Sum of charges with the same user, purpose or month."""

    label: str
    count: int
    loss: dict[str, str]
    share: float = Field(description="of the budget, from 0 to 1")


class Own(BaseModel):
    """Charges of one user on one dataset."""

    dataset: str
    spent: dict[str, str] | None
    left: dict[str, str] | None = Field(description="for everybody")
    spends: list[Spend]


class WithoutEpsilon(BaseModel):
    """An anonymised release: it has no epsilon, and no total contains it."""

    time: float
    person: str
    purpose: str
    job: int


class AccountFacts(BaseModel):
    """A dataset's account."""

    dataset: str
    budget: dict[str, str] | None
    cap: dict[str, str] | None = Field(description="the budget as it adds up")
    spent: dict[str, str] | None
    left: dict[str, str] | None
    share: float
    by_person: list[Total]
    by_purpose: list[Total]
    by_month: list[Total]
    spends: list[Spend]
    without_epsilon: list[WithoutEpsilon] = Field(description="anonymised releases, which no total contains")
    problems: list[str] = Field(description="where the ledger and the jobs do not agree; empty if all is well")


class LedgerCheck(BaseModel):
    """Result of the verifier."""

    ok: bool
    entries: int
    head: str | None
    bad_entry: int | None
    reason: str
    accounts: list[dict[str, Any]]


def _auditor(visitor: Reader) -> Visitor:
    if not visitor.has("auditor"):
        raise Denied("this is for the role auditor.")
    return visitor


Auditor = Annotated[Visitor, Depends(_auditor)]


@router.get("/api/ledger")
def mine(visitor: Reader) -> list[Own]:
    """Return the caller's charges, by dataset."""
    with visitor.hub.database.reading() as session:
        summaries = statements.for_user(visitor.hub, session, visitor.who, visitor.environment)
    return [
        Own(
            dataset=summary.dataset,
            spent=_loss(summary.spent),
            left=_loss(summary.left),
            spends=[*map(_spend, summary.lines)],
        )
        for summary in summaries
    ]


@router.get("/api/datasets/{name}/ledger")
def account(name: str, visitor: Reader) -> AccountFacts:
    """Return a dataset's account: everything for its owner and for auditors, else the total and one's own charges."""
    with visitor.hub.database.reading() as session:
        _, statement, _ = statement_of(visitor, session, name)
    visitor.hub.audit.record(visitor.who.id, "ledger.read", f"dataset/{name}")
    balance = statement.balance
    return AccountFacts(
        dataset=name,
        budget=_loss(balance.rules.budget) if balance else None,
        cap=_loss(balance.rules.cap) if balance else None,
        spent=_loss(balance.spent) if balance else None,
        left=_loss(balance.left) if balance else None,
        share=statement.share,
        by_person=[*map(_total, statement.by_person)],
        by_purpose=[*map(_total, statement.by_purpose)],
        by_month=[*map(_total, statement.by_month)],
        spends=[*map(_spend, statement.lines)],
        without_epsilon=[
            WithoutEpsilon(time=release.time, person=release.person, purpose=release.purpose, job=release.job_id)
            for release in statement.without_epsilon
        ],
        problems=list(statement.problems),
    )


@router.get("/api/ledger/verify")
def verify(visitor: Auditor) -> LedgerCheck:
    """Recompute every hash, signature and total of the ledger."""
    report = ledger_copy.check_ledger(visitor.hub)
    visitor.hub.audit.record(visitor.who.id, "ledger.verified", "ledger", ok=report.ok, entries=report.entries)
    return LedgerCheck(
        ok=report.ok,
        entries=report.entries,
        head=str(report.head) if report.head else None,
        bad_entry=report.bad_entry,
        reason=report.reason,
        accounts=[
            {"account": balance.rules.key, "cap": balance.rules.cap.to_json(), "spent": balance.spent.to_json()}
            for balance in report.balances
        ],
    )


@router.get("/api/ledger/copy", response_class=Response)
def copy(visitor: Auditor) -> Response:
    """Return the ledger as an SQLite file, for `cloister ledger verify`."""
    visitor.hub.audit.record(visitor.who.id, "ledger.copied", "ledger")
    folder = tempfile.TemporaryDirectory(prefix="cloister-ledger-")
    path = Path(folder.name) / "ledger.db"
    ledger_copy.copy_ledger(visitor.hub, path)
    return FileResponse(path, media_type="application/x-sqlite3", background=BackgroundTask(folder.cleanup))


def _loss(loss: Loss | None) -> dict[str, str] | None:
    return None if loss is None else loss.to_json()


def _spend(line: StatementLine) -> Spend:
    return Spend(
        entry=line.entry,
        time=line.time,
        person=line.person,
        purpose=line.purpose,
        kind=line.what,
        job=line.job_id,
        loss=line.loss.to_json(),
        state=line.state,
    )


def _total(total: Sum) -> Total:
    return Total(label=total.label, count=total.count, loss=total.loss.to_json(), share=total.share)
