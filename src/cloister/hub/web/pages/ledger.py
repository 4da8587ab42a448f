"""Ledger pages: one's own over all datasets, a dataset's for its owner, and for an auditor the whole of it.

Figures are read from the signed entries at every visit. No page changes a ledger.
"""

import tempfile
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from sqlalchemy.orm import Session
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, PlainTextResponse, Response

from cloister.hub.accounting import ledger_copy, statements
from cloister.hub.accounting.statements import Statement, Sum
from cloister.hub.core.models import Dataset
from cloister.hub.datasets.datasets import find
from cloister.hub.jobs.gateway import may_know
from cloister.hub.web import charts
from cloister.hub.web.context import Visitor, page, signed_in, with_role
from cloister.hub.web.spreadsheets import csv_of
from cloister.privacy.errors import NotHere
from cloister.privacy.ledger import Report

__all__ = ["router", "statement_of"]

router = APIRouter()
SignedIn = Annotated[Visitor, Depends(signed_in)]
Auditor = Annotated[Visitor, Depends(with_role("auditor"))]
_A_PAGE = 200
_SIDES = ("person", "purpose", "month")


def statement_of(visitor: Visitor, session: Session, name: str) -> tuple[Dataset, Statement, bool]:
    """Return a dataset's account as this user may read it, and True if that is the whole of it.

    Its owner and auditors read everything. A user who may see the dataset reads its total and their own charges.

    Raises:
        NotHere: there is none, or they may not see it.
    """
    dataset = find(session, name)
    unrestricted = dataset.owner_id == visitor.who.id or visitor.has("auditor")
    if not unrestricted and not may_know(visitor.hub, session, visitor.who, dataset, visitor.environment):
        raise NotHere("there is no such dataset.")
    statement = statements.for_owner(visitor.hub, session, dataset)
    return dataset, statement if unrestricted else statements.only(statement, visitor.who), unrestricted


@router.get("/ledger")
def mine(request: Request, visitor: SignedIn) -> Response:
    """Show one's own charges; below, for an auditor, every account."""
    return _mine(request, visitor)


def _mine(request: Request, visitor: Visitor, report: Report | None = None) -> Response:
    with visitor.hub.database.reading() as session:
        spends = statements.for_user(visitor.hub, session, visitor.who, visitor.environment)
    auditor = visitor.has("auditor")
    accounts = (
        [visitor.hub.ledger.balance(account.rules.key) for account in visitor.hub.ledger.accounts()] if auditor else []
    )
    return page(
        request,
        "ledger.html",
        spends=spends,
        auditor=auditor,
        accounts=accounts,
        share=statements.share,
        report=report,
        head=visitor.hub.ledger.head if auditor else None,
        key=str(visitor.hub.key.public),
    )


@router.post("/ledger/verify")
def verify(request: Request, visitor: Auditor) -> Response:
    """Check every entry, signature and total."""
    report = ledger_copy.check_ledger(visitor.hub)
    visitor.hub.audit.record(visitor.who.id, "ledger.verified", "ledger", ok=report.ok, entries=report.entries)
    return _mine(request, visitor, report)


@router.get("/ledger/copy")
def copy(visitor: Auditor) -> Response:
    """Return the ledger as a file, for the offline verifier."""
    visitor.hub.audit.record(visitor.who.id, "ledger.copied", "ledger")
    folder = tempfile.TemporaryDirectory(prefix="cloister-ledger-")
    path = Path(folder.name) / "ledger.db"
    ledger_copy.copy_ledger(visitor.hub, path)
    return FileResponse(
        path,
        filename="cloister-ledger.db",
        media_type="application/x-sqlite3",
        background=BackgroundTask(folder.cleanup),
    )


@router.get("/ledger/head")
def head(visitor: Auditor) -> Response:
    """Return the newest head: one line to keep elsewhere."""
    name = {"Content-Disposition": 'attachment; filename="cloister-ledger.head"'}
    return PlainTextResponse(f"{visitor.hub.ledger.head}\n", headers=name)


@router.get("/datasets/{name}/ledger")
def dataset(request: Request, name: str, visitor: SignedIn) -> Response:
    """Show a dataset's charges by user and purpose, and what is left."""
    dataset_row, statement, unrestricted = _statement(visitor, name)
    visitor.hub.audit.record(visitor.who.id, "ledger.read", f"dataset/{name}")
    return page(
        request,
        "ledger_dataset.html",
        dataset=dataset_row,
        statement=statement,
        lines=statement.lines[:_A_PAGE],
        owner=dataset_row.owner_id == visitor.who.id,
        whole=unrestricted,
        sides=[(side, _side(statement, side)) for side in _SIDES if unrestricted or side != "person"],
    )


@router.get("/datasets/{name}/ledger.csv")
def as_csv(name: str, visitor: SignedIn) -> Response:
    """Return every charge of a dataset, for a spreadsheet."""
    dataset, statement, _ = _statement(visitor, name)
    visitor.hub.audit.record(visitor.who.id, "ledger.read", f"dataset/{name}", form="csv")
    names = ["entry", "time", "person", "purpose", "kind", "job", "measure", "amount", "delta", "state"]
    rows = (
        (
            *(line.entry, f"{line.time:.0f}", line.person, line.purpose, line.what, line.job_id or ""),
            *(line.loss.measure, str(line.loss.amount), str(line.loss.delta), line.state),
        )
        for line in reversed(statement.lines)
    )
    name_of = {"Content-Disposition": f'attachment; filename="cloister-{dataset.name}-ledger.csv"'}
    return Response(csv_of(names, rows), media_type="text/csv; charset=utf-8", headers=name_of)


@router.get("/datasets/{name}/ledger/{side}.svg")
def chart(name: str, side: str, visitor: SignedIn, theme: str = "light") -> Response:
    """Return a chart of charges by user, by purpose or by month, in per cent of the budget."""
    if side not in _SIDES:
        raise NotHere("there is no such picture.")
    sums = _side(_statement(visitor, name)[1], side)
    if not sums:
        raise NotHere("nothing was spent yet.")
    values = [{"label": total.label, "value": round(100 * total.share, 4)} for total in sums[:20]]
    dark: charts.Theme = "dark" if theme == "dark" else "light"
    return Response(charts.bars(values, dark), media_type="image/svg+xml")


def _statement(visitor: Visitor, name: str) -> tuple[Dataset, Statement, bool]:
    with visitor.hub.database.reading() as session:
        return statement_of(visitor, session, name)


def _side(statement: Statement, side: str) -> tuple[Sum, ...]:
    return {"person": statement.by_person, "purpose": statement.by_purpose, "month": statement.by_month}[side]
