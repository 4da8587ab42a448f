"""Pages of submitted synthetic tables: the list, the form, each with its metadata sheet and its files."""

import base64
import json
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from cloister.hub.core.models import Job
from cloister.hub.jobs.external_tables import access
from cloister.hub.jobs.external_tables.submission import VOUCHES
from cloister.hub.web.api.external_tables import received, require_owner
from cloister.hub.web.api.tables import download, table_name
from cloister.hub.web.context import Visitor, form, go, page, signed_in
from cloister.hub.web.forms import Form
from cloister.hub.web.pages.jobs import chart_of, draw
from cloister.hub.web.problems import status_of
from cloister.hub.web.spreadsheets import csv_of_parquet
from cloister.privacy.errors import CloisterError, NotHere

__all__ = ["router"]

router = APIRouter()
Here = Annotated[Visitor, Depends(signed_in)]


@router.get("/datasets/{name}/tables")
def listed(request: Request, name: str, visitor: Here, purpose: str = "") -> Response:
    """List the tables that the visitor may download; for the owner with a form to submit one."""
    return _list(request, visitor, name, purpose)


@router.post("/datasets/{name}/tables")
async def hand(request: Request, name: str, visitor: Here) -> Response:
    """Submit a table. Files are read only after their sender is known to own the dataset."""
    await run_in_threadpool(require_owner, visitor, name)
    try:
        return await run_in_threadpool(_handed, request, visitor, name, await form(request))
    finally:
        await request.close()  # files that were refused unread, too


def _handed(request: Request, visitor: Visitor, name: str, sent: Form) -> Response:
    try:
        job = received(visitor, name, sent)
    except CloisterError as error:
        if status_of(error) not in (409, 413, 422):
            raise
        return _list(request, visitor, name, "", error, sent.get("key", ""))
    return go(request, f"/datasets/{name}/tables/{job.id}", said="It is uploaded, and charged.")


@router.get("/datasets/{name}/tables/{number}")
def sheet(request: Request, name: str, number: int, visitor: Here, purpose: str = "") -> Response:
    """Show the metadata sheet of a table."""
    job, purpose = access.take(visitor.hub, visitor.who, name, number, purpose, visitor.environment, "sheet")
    at, words = f"/datasets/{name}/tables", urlencode({"purpose": purpose}) if purpose else ""
    return draw(request, job, at=f"{at}/{number}", words=words, above=(at, "Synthetic tables"))


@router.get("/datasets/{name}/tables/{number}/chart.svg")
def chart(
    name: str,
    number: int,
    visitor: Here,
    column: str = "",
    theme: str = "light",
    size: str = "wide",
    purpose: str = "",
) -> Response:
    """Return a chart of a column."""
    job, _ = access.take(visitor.hub, visitor.who, name, number, purpose, visitor.environment, "picture")
    assert job.result is not None
    return chart_of(job.result, column, theme, size)


@router.get("/datasets/{name}/tables/{number}/{file}")
def file(name: str, number: int, file: str, visitor: Here, purpose: str = "") -> Response:
    """Return a file of it: table.parquet, table.csv, table.side.json, receipt, label."""
    if file not in (*_FILES, "table.csv"):
        raise NotHere("there is no such file.")
    job, _ = access.take(visitor.hub, visitor.who, name, number, purpose, visitor.environment, file)
    if file == "table.csv":
        content = csv_of_parquet(visitor.hub.settings, _content(job), visitor.who.id)
        return download(content, f"{table_name(job)}.csv", "text/csv; charset=utf-8")
    return _FILES[file](job)


def _parquet(job: Job) -> Response:
    return download(_content(job), f"{table_name(job)}.parquet", "application/vnd.apache.parquet")


def _side(job: Job) -> Response:
    text = json.dumps((job.result or {})["side"], indent=1, ensure_ascii=False) + "\n"
    return download(text.encode(), f"{table_name(job)}.parquet.side.json", "application/json")


def _receipt(job: Job) -> Response:
    return download((job.receipt or "").encode(), f"{table_name(job)}.receipt.json", "application/json")


def _label(job: Job) -> Response:
    return download((job.result or {})["label"].encode(), f"{table_name(job)}.label.json", "application/json")


_FILES = {
    "table.parquet": _parquet,
    "table.side.json": _side,
    "receipt": _receipt,
    "label": _label,
}


def _content(job: Job) -> bytes:
    return base64.b64decode((job.result or {})["file"])


def _list(
    request: Request, visitor: Visitor, name: str, purpose: str, problem: CloisterError | None = None, key: str = ""
) -> Response:
    listing = access.look(visitor.hub, visitor.who, name, purpose, visitor.environment)
    return page(
        request,
        "tables.html",
        200 if problem is None else status_of(problem),
        found=listing,
        words=urlencode({"purpose": listing.purpose}) if listing.purpose else "",
        vouches=VOUCHES,
        problem=problem,
        key=key,
    )
