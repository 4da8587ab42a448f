"""API of synthetic tables that owners made elsewhere: submit, list, download."""

import base64
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from starlette.responses import Response

from cloister.hub.core.models import Job
from cloister.hub.datasets import datasets
from cloister.hub.jobs.external_tables import access
from cloister.hub.jobs.external_tables.access import Sheet
from cloister.hub.jobs.external_tables.submission import HANDED, VOUCHES, hand_in
from cloister.hub.web.api.tables import download, table_name
from cloister.hub.web.context import Visitor, form, scoped
from cloister.hub.web.forms import Form
from cloister.privacy.errors import BadForm

__all__ = ["received", "require_owner", "router"]

router = APIRouter(tags=["datasets"])
Reader = Annotated[Visitor, Depends(scoped("read"))]
Sharer = Annotated[Visitor, Depends(scoped("share"))]
Name = Annotated[str, Path(max_length=200)]
Purpose = Annotated[str, Query(max_length=200, description="what it is for; the first that lets you unless given")]
_FILE = {"type": "string", "format": "binary"}
_SENT = {
    "type": "object",
    "properties": {"table": _FILE, "side": _FILE, "key": {"type": "string"}},
    "required": ["table", "side"],
}


class SheetFacts(BaseModel):
    """Table that an owner has submitted."""

    number: int
    table: str = Field(description="what it was made from")
    method: str
    rows: int
    columns: list[str]
    loss: dict[str, str] = Field(description="what the dataset was charged for it")
    time: float
    sha256: str


class SheetList(BaseModel):
    """Tables that the caller may download, the newest first."""

    tables: list[SheetFacts]
    purpose: str = Field(description="for which the policy was asked")
    vouches: str = VOUCHES


class WholeSheet(BaseModel):
    """Metadata sheet of a table."""

    sheet: SheetFacts
    by: str = Field(description="who handed it in")
    side: dict[str, Any] = Field(description="its metadata file, signed by this hub for the bytes of the table")
    key: str = Field(description="this hub's public key")
    made_with: str = Field(description="the key that its owner's receipt holds under; empty if it came with none")
    receipts: list[str] = Field(description="of the charge")
    vouches: str = VOUCHES


@router.get("/api/datasets/{name}/tables")
def listed(visitor: Reader, name: Name, purpose: Purpose = "") -> SheetList:
    """Return the synthetic tables that its owner has submitted, for users whom the policy lets synthesise."""
    listing = access.look(visitor.hub, visitor.who, name, purpose, visitor.environment)
    return SheetList(tables=[_facts(sheet) for sheet in listing.sheets], purpose=listing.purpose)


@router.post(
    "/api/datasets/{name}/tables",
    status_code=201,
    openapi_extra={"requestBody": {"content": {"multipart/form-data": {"schema": _SENT}}}},
)
async def hand(request: Request, visitor: Sharer, name: Name) -> SheetFacts:
    """Submit a table that you made: `table` (Parquet), `side`, and the `key` that signed its receipt, as a form.

    It is charged to the dataset's account before any other user sees it.
    """
    await run_in_threadpool(require_owner, visitor, name)  # before a file is read: only an owner may upload one
    sent = await form(request)
    job = await run_in_threadpool(received, visitor, name, sent)
    return _sheet(job)


@router.get("/api/datasets/{name}/tables/{number}")
def show(visitor: Reader, name: Name, number: int, purpose: Purpose = "") -> WholeSheet:
    """Return the facts of a submitted table: its metadata file, its cost, what the hub vouches for."""
    job, _ = access.take(visitor.hub, visitor.who, name, number, purpose, visitor.environment, "sheet")
    assert job.result is not None
    return WholeSheet(
        sheet=_sheet(job),
        by=job.person.name,
        side=job.result["side"],
        key=job.result["key"],
        made_with=job.result[HANDED]["key"],
        receipts=(job.receipt or "").splitlines(),
    )


@router.get("/api/datasets/{name}/tables/{number}/table", response_class=Response)
def table(visitor: Reader, name: Name, number: int, purpose: Purpose = "") -> Response:
    """Return the table as Parquet, as it was submitted."""
    job, _ = access.take(visitor.hub, visitor.who, name, number, purpose, visitor.environment, "parquet")
    assert job.result is not None
    content = base64.b64decode(job.result["file"])
    return download(content, f"{table_name(job)}.parquet", "application/vnd.apache.parquet")


def received(visitor: Visitor, name: str, sent: Form) -> Job:
    """Submit the files of a form; return the job."""
    require_owner(visitor, name)
    files = {}
    for field, label in (("table", "Table"), ("side", "Metadata file")):
        file = sent.file(field)
        if file is None:
            raise BadForm(f"'{label}' is missing.")
        with file.file as opened:
            files[field] = opened.read()
    return hand_in(visitor.hub, visitor.who, name, files["table"], files["side"], sent.maybe("key", most=200))


def require_owner(visitor: Visitor, name: str) -> None:
    """Raise NotHere unless the visitor owns the dataset."""
    with visitor.hub.database.reading() as session:
        datasets.owned(session, name, visitor.who)


def _sheet(job: Job) -> SheetFacts:
    return _facts(access.sheet_of(job.id, job.parameters, job.loss or {}, job.finished or 0.0))


def _facts(sheet: Sheet) -> SheetFacts:
    return SheetFacts(
        number=sheet.number,
        table=sheet.table,
        method=sheet.method,
        rows=sheet.rows,
        columns=list(sheet.columns),
        loss=sheet.loss,
        time=sheet.time,
        sha256=sheet.sha256,
    )
